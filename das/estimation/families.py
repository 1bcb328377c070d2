"""The fast solver of a family: settle the active set, then certify the result.

    minimise distance(x)  over tables x (each cell's people shared among the children)  with limits L <= B x <= U

The active-set method finds the optimum itself, and a lower bound on all tables says how good what it found is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from das.estimation.active import settle
from das.estimation.distance import distance_of
from das.estimation.known import free_cells, known_groups
from das.estimation.nonnegative import clean, closed_form, solve
from das.estimation.problem import FamilyProblem, Solution
from das.estimation.tables import Tables, value_and_bound
from das.estimation.verify import residual, tolerance

__all__ = ["solve_fast"]


def solve_fast(problem: FamilyProblem, gap: float = 1e-6) -> Solution:
    """Find the nonnegative least-squares solution of one family to a certified relative gap.

    What this does not solve goes to the cvxpy reference, whose solver the solution then names.

    Examples
    --------
    >>> from das.schema import Attribute, Schema
    >>> from das.query import parse_query
    >>> from das.estimation.problem import Measured
    >>> schema = Schema((Attribute("sex", ("f", "m")),))
    >>> noisy = Measured(query=parse_query(schema, "detailed"), values=np.array([[5, -3], [2, 6]]), variance=1.0)
    >>> family = FamilyProblem(level="tract", geocodes=("1", "2"), cells=np.arange(2), parent=np.array([5, 4]),
    ...                        measured=(noisy,), limits=())
    >>> found = solve_fast(family)
    >>> found.solver, found.x.round(6).tolist(), found.gap < 1e-6
    ('fast', [[4.0, 0.0], [1.0, 4.0]], True)
    """
    known = known_groups(problem)
    free = free_cells(problem, known)
    closed = closed_form(problem, known, free)
    if closed is not None:
        return closed
    if problem.correlated is None and not problem.measured:
        return solve(problem)
    x: NDArray[np.float64] = np.zeros(problem.shape)
    left = None
    parent = np.zeros(0) if problem.parent is None else problem.parent.astype(np.float64)
    if len(parent):
        # A cell that one child alone may fill is no variable: it is filled, and the rest is solved given it.
        alone = free.sum(axis=0) <= 1
        if alone.any():
            left = np.flatnonzero(~alone)
            np.multiply(free, parent * alone, out=x)
    distance = distance_of(problem, left, x)
    tables = Tables.of(parent, free, known, left, x)
    found = settle(distance, tables)
    if found.stands:
        if left is None:
            x = np.ascontiguousarray(found.x.T)
        else:
            x[:, left] = found.x.T
        x = clean(problem, x)
        at = np.ascontiguousarray((x if left is None else x.take(left, axis=1)).T)
        value, bound = value_and_bound(distance, tables, at, found.multipliers)
        off = (value - bound) / max(value, 1.0)
        missed = residual(problem, known, x)
        if off <= gap and (missed <= 1e-6 or missed <= tolerance(problem)):
            return Solution(x=x, solver="fast", residual=missed, gap=max(off, 0.0), iterations=found.products)
    return solve(problem)
