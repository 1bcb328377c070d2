"""The fast solver of families: settle the active set, then certify the result.

    minimise distance(x)  over tables x (each cell's people shared among the children)  with limits L <= B x <= U

The active-set method finds the optimum itself, and a lower bound on all tables says how good what it found is.
"""

from __future__ import annotations

from collections.abc import Sequence

from das.estimation.problem import FamilyProblem, Solution
from das.estimation.solvers.active_set.batch import Batch, batches
from das.estimation.solvers.reference import closed_form, solve
from das.estimation.support import free_cells, limits_on_support

__all__ = ["solve_families", "solve_fast"]

_MISSED = 1e-6
"""So far, in persons, a sum or a limit may be missed; and by as much as rounding makes of many people."""
_ROUNDING = 1e-13


def solve_fast(problem: FamilyProblem, gap: float = 1e-6) -> Solution:
    """Find the nonnegative least-squares solution of one family to a certified relative gap.

    What this does not solve goes to the cvxpy reference, whose solver the solution then names.

    Examples
    --------
    >>> import numpy as np
    >>> from das.schema.schema import Attribute, Schema
    >>> from das.schema.query import parse_query
    >>> from das.estimation.problem import Measured
    >>> schema = Schema((Attribute("sex", ("f", "m")),))
    >>> noisy = Measured(query=parse_query(schema, "detailed"), values=np.array([[5, -3], [2, 6]]), variance=1.0)
    >>> family = FamilyProblem(level="tract", geocodes=("1", "2"), cells=np.arange(2), parent=np.array([5, 4]),
    ...                        measured=(noisy,), limits=())
    >>> found = solve_fast(family)
    >>> found.solver, found.x.round(6).tolist(), found.gap < 1e-6
    ('fast', [[4.0, 0.0], [1.0, 4.0]], True)
    """
    return solve_families([problem], gap)[0]


def solve_families(problems: Sequence[FamilyProblem], gap: float = 1e-6) -> list[Solution]:
    """Solve families, those of one level together."""
    solutions: list[Solution] = []
    for run in batches(problems):
        if not run[0].measured and run[0].correlated is None:
            solutions += [_elsewhere(problem) for problem in run]
            continue
        tables, found = Batch.of(run).solve()
        for problem, x, (stands, off, missed, products) in zip(run, tables, found.tolist(), strict=True):
            # A bound above the value is that of a family without tables.
            if stands and abs(off) <= gap and missed <= max(_MISSED, _ROUNDING * float(x.sum())):
                solution = Solution(x=x, solver="fast", residual=missed, gap=max(off, 0.0), iterations=int(products))
                solutions.append(solution)
            else:
                solutions.append(_elsewhere(problem))
    return solutions


def _elsewhere(problem: FamilyProblem) -> Solution:
    """Answer where there is nothing to choose; else ask the reference, which names contradictions."""
    known = limits_on_support(problem)
    return closed_form(problem, known, free_cells(problem, known)) or solve(problem)
