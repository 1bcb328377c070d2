"""Families in which each cell is a problem of its own: one detailed query, and no limit beyond the parent.

    minimise  sum over c of w_c (x_c - y_c)^2   subject to  x >= 0,  sum over c of x_c = p

has the solution x_c = max(0, y_c + price / w_c) for the one price at which the sum is p: a weighted projection onto a
simplex, found by sorting the prices at which each child becomes positive (Held, Wolfe and Crowder 1974).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from das.estimation.grouping import group_cells
from das.estimation.problem import FamilyProblem, Quadratic, Solution
from das.estimation.support import limits_on_support
from das.estimation.verify import residual

__all__ = ["share_cells", "solve_separable"]

_ROUNDING = 1e-12
"""Curvature between two cells below this share of their own is rounding."""


def solve_separable(problem: FamilyProblem) -> Solution | None:
    """Solve a family at once, all cells side by side; ``None`` if its cells have to do with one another.

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
    x = share_cells(*wanted, problem.parent.astype(np.float64))
    missed = residual(problem, (), x)
    return Solution(x=x, solver="separable", residual=missed, gap=0.0, iterations=0)


def share_cells(
    wanted: NDArray[np.float64], weight: NDArray[np.float64], parent: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Share each cell's people among the children; children x cells.

    Examples
    --------
    >>> share_cells(np.array([[5.0], [1.0], [-2.0]]), np.array([[3.0], [1.0], [3.0]]), np.array([10.0])).tolist()
    [[6.0], [4.0], [0.0]]
    """
    appears = -weight * wanted  # the price from which a child has somebody
    order = np.argsort(appears, axis=0, kind="stable")
    give = np.cumsum(np.take_along_axis(1.0 / weight, order, axis=0), axis=0)
    prices = (parent - np.cumsum(np.take_along_axis(wanted, order, axis=0), axis=0)) / give
    # As long as the price of the first k is beyond where the k-th appears, it belongs to them.
    last = (prices > np.take_along_axis(appears, order, axis=0)).sum(axis=0) - 1
    price = np.take_along_axis(prices, np.maximum(last, 0)[None, :], axis=0)
    x = np.maximum(wanted + price / weight, 0.0) * (parent > 0)
    sums = x.sum(axis=0)
    return np.asarray(x * np.divide(parent, sums, out=np.ones_like(sums), where=sums > 0))


def _measured(problem: FamilyProblem) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """What was measured of each cell, pooled over queries, if every query sees every cell by itself."""
    groups = [group_cells(measured.query, problem.cells) for measured in problem.measured]
    if not groups or any(grouping.size < len(problem.cells) for grouping in groups):
        return None
    weight = sum(1.0 / measured.variance for measured in problem.measured)
    wanted = np.zeros(problem.shape)
    for measured, grouping in zip(problem.measured, groups, strict=True):
        wanted += measured.values[:, grouping.answers[grouping.index]] / (measured.variance * weight)
    return wanted, np.full(problem.shape, weight)


def _estimated(distance: Quadratic) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """The minimum of a distance and its curvature, if that is diagonal."""
    n, m = distance.reference.shape
    if distance.kinds is None:
        own, one = np.tile(distance.hessian.diagonal(), (n, 1)), distance.hessian[0, 1:]
    else:
        own, one = distance.hessian[:, distance.kinds.diagonal()], distance.hessian[0, distance.kinds[0, 1:]]
    rounding = _ROUNDING * float(own.min())
    # One row of one child settles it almost always, before all of them are looked at.
    if rounding <= 0 or np.abs(one).max(initial=0.0) > rounding:
        return None
    apart = ~np.eye(m, dtype=bool)
    between = distance.hessian[apart] if distance.kinds is None else distance.hessian[:, distance.kinds[apart]]
    if np.abs(between).max(initial=0.0) > rounding:
        return None
    return distance.reference + distance.linear / own, own
