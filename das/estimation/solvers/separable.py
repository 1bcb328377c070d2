"""Exact solution of families whose cells are independent: every cell measured alone, and no limit but the parent.

    minimise  sum over c of w_c (x_c - y_c)^2   subject to  x >= 0,  sum over c of x_c = p

has the solution x_c = max(0, y_c + t / w_c), with t the multiplier of the sum: a weighted projection onto a simplex,
found by sorting the multipliers at which each child becomes positive (Held, Wolfe and Crowder 1974).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from das.estimation.certificate import relative_gap
from das.estimation.grouping import group_cells
from das.estimation.problem import FamilyProblem, Quadratic, Solution
from das.estimation.support import limits_on_support
from das.estimation.verify import residual

__all__ = ["share_cells", "solve_separable"]

Floats = NDArray[np.float64]

_ROUNDING = 1e-12
"""Hessian entries between two cells below this share of the diagonal are rounding errors."""


def solve_separable(problem: FamilyProblem) -> Solution | None:
    """Solve all cells of a family at once; ``None`` if the objective or a limit connects cells.

    Examples
    --------
    >>> from das.schema.schema import Attribute, Schema
    >>> from das.schema.query import parse_query
    >>> from das.estimation.problem import Measured
    >>> schema = Schema((Attribute("sex", ("f", "m")),))
    >>> noisy = Measured(query=parse_query(schema, "detailed"), values=np.array([[5, -3], [2, 6]]), variance=1.0)
    >>> family = FamilyProblem(level="tract", geocodes=("1", "2"), cells=np.arange(2), parent=np.array([5, 4]),
    ...                        measured=(noisy,), limits=())
    >>> solve_separable(family).x.tolist()
    [[4.0, 0.0], [1.0, 4.0]]
    """
    if problem.parent is None or not len(problem.cells):
        return None
    wanted = _measured(problem) if problem.correlated is None else _estimated(problem.correlated)
    if wanted is None or limits_on_support(problem):
        return None
    parent = problem.parent.astype(np.float64)
    x, multipliers = share_cells(*wanted, parent)
    gap = _gap(*wanted, parent, x, multipliers)
    return Solution(x=x, solver="separable", residual=residual(problem, (), x), gap=gap, iterations=0)


def share_cells(wanted: Floats, weight: Floats, parent: Floats) -> tuple[Floats, Floats]:
    """Share each cell's people among the children; return children x cells, and the multiplier of each cell's sum.

    Examples
    --------
    >>> x, multiplier = share_cells(np.array([[5.0], [1.0], [-2.0]]), np.array([[3.0], [1.0], [3.0]]), np.array([10.0]))
    >>> x.tolist(), multiplier.tolist()
    ([[6.0], [4.0], [0.0]], [[3.0]])
    """
    threshold = -weight * wanted  # a child is positive where the multiplier is above it
    order = np.argsort(threshold, axis=0, kind="stable")
    give = np.cumsum(np.take_along_axis(1.0 / weight, order, axis=0), axis=0)
    multipliers = (parent - np.cumsum(np.take_along_axis(wanted, order, axis=0), axis=0)) / give
    # The multiplier of the first k children is theirs as long as it is above the threshold of the k-th.
    last = (multipliers > np.take_along_axis(threshold, order, axis=0)).sum(axis=0) - 1
    multiplier = np.take_along_axis(multipliers, np.maximum(last, 0)[None, :], axis=0)
    x = np.maximum(wanted + multiplier / weight, 0.0) * (parent > 0)
    sums = x.sum(axis=0)
    return np.asarray(x * np.divide(parent, sums, out=np.ones_like(sums), where=sums > 0)), multiplier


def _gap(wanted: Floats, weight: Floats, parent: Floats, x: Floats, multiplier: Floats) -> float:
    """Relative gap to the dual value: w (z - y)^2 + 2 t (p - sum of z), with z >= 0 the minimiser for multipliers t.

    The objective may be larger by a constant, so that this is at least the gap relative to the objective.
    """
    nearest = np.maximum(wanted + multiplier / weight, 0.0)
    value = float((weight * (x - wanted) ** 2).sum())
    bound = float((weight * (nearest - wanted) ** 2).sum())
    return relative_gap(value, bound + 2.0 * float((multiplier * (parent - nearest.sum(axis=0))).sum()))


def _measured(problem: FamilyProblem) -> tuple[Floats, Floats] | None:
    """Weighted mean of what was measured of each cell, and its precision; ``None`` if a query adds cells up."""
    groups = [group_cells(measured.query, problem.cells) for measured in problem.measured]
    if not groups or any(grouping.size < len(problem.cells) for grouping in groups):
        return None
    weight = sum(1.0 / measured.variance for measured in problem.measured)
    wanted = np.zeros(problem.shape)
    for measured, grouping in zip(problem.measured, groups, strict=True):
        wanted += measured.values[:, grouping.answers[grouping.index]] / (measured.variance * weight)
    return wanted, np.full(problem.shape, weight)


def _estimated(distance: Quadratic) -> tuple[Floats, Floats] | None:
    """Minimiser of a quadratic and the diagonal of its Hessian; ``None`` if the Hessian is not diagonal."""
    n, m = distance.reference.shape
    if distance.kinds is None:
        own, one = np.tile(distance.hessian.diagonal(), (n, 1)), distance.hessian[0, 1:]
    else:
        own, one = distance.hessian[:, distance.kinds.diagonal()], distance.hessian[0, distance.kinds[0, 1:]]
    rounding = _ROUNDING * float(own.min())
    # One row of one child is almost always enough to tell, before all of them are looked at.
    if rounding <= 0 or np.abs(one).max(initial=0.0) > rounding:
        return None
    apart = ~np.eye(m, dtype=bool)
    between = distance.hessian[apart] if distance.kinds is None else distance.hessian[:, distance.kinds[apart]]
    if np.abs(between).max(initial=0.0) > rounding:
        return None
    return distance.reference + distance.linear / own, own
