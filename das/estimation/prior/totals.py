"""Totals first: what is known of a total in its own right is not left to the cells.

Where cells cannot be negative, noise that is cut off below is not cut off above, and the sum of many sparse cells comes
out too large. A total that was measured by itself is far better known than that sum, yet the nearest table moves it to
where the cells pull. The Bureau estimates totals in a pass of their own and then keeps them (Abowd et al. 2022, "The
2020 Census Disclosure Avoidance System TopDown Algorithm", HDSR, section 4). Here each child's total, shared out so
that the children's totals add up to the parent's, gets a heavy weight in the one pass there is: no table is excluded,
so nothing can become infeasible.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from das.estimation.linear.basis import Basis
from das.estimation.linear.blue import LinearEstimate
from das.estimation.problem import Quadratic
from das.schema.query import parse_query

__all__ = ["Totals", "penalise_totals", "share_out"]

_WEIGHT = 10.0
"""Leaves the cells an eleventh of the pull that they had on a total."""
_BETTER = 10.0
"""A total is held if it is known so many times better than its cells could know it; else they may do it good."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What is known of the children's totals."""

    mean: NDArray[np.float64]
    variance: NDArray[np.float64]

    @classmethod
    def of(cls, basis: Basis, known: LinearEstimate) -> Totals:
        """Add up the cells of each child."""
        variance = basis.variances(parse_query(basis.schema, "total"), known.covariance)[:, 0]
        return cls(basis.to_cells(known.mean).sum(axis=1), np.maximum(variance, 0.0))

    def aims(self, parent: NDArray[np.int64] | None) -> NDArray[np.float64]:
        """Find the nearest totals, none negative, that add up to the parent's."""
        if parent is None:
            return np.maximum(self.mean, 0.0)
        return share_out(self.mean, self.variance, float(parent.sum()))


def penalise_totals(
    distance: Quadratic, basis: Basis, known: LinearEstimate, cells: NDArray[np.int64], parent: NDArray[np.int64] | None
) -> Quadratic:
    """Add w (total - aim)^2 for each child to a distance from its estimates on some cells.

    w is the weight times the information that a total has beyond so many times what its cells would give if they were
    independent, each anywhere between nothing and all that the parent has (variance p^2 / 12). So nothing is added
    where totals were measured no better than cells, or where the parent's few people leave little room: there
    nonnegativity does totals good.
    """
    totals = Totals.of(basis, known)
    variance = totals.variance
    room = np.inf if parent is None else parent**2 / 12.0
    alone = basis.variances(parse_query(basis.schema, "detailed"), known.covariance)[:, cells]
    of_cells = np.minimum(alone, room).sum(axis=1)
    # A total that is known exactly is held by a constraint.
    held = (of_cells > _BETTER * variance) & (variance > 1e-9 * of_cells)
    if not held.any():
        return distance
    weight = np.zeros(len(held))
    weight[held] = _WEIGHT * (1.0 / variance[held] - _BETTER / of_cells[held])
    off = totals.aims(parent) - distance.reference.sum(axis=1)
    # One number more for every pair of cells.
    more = weight[0] if distance.kinds is None else weight[:, None]
    return replace(
        distance,
        hessian=distance.hessian + more,
        linear=distance.linear + (weight * off)[:, None],
        constant=distance.constant + float((weight * off * off).sum()),
    )


def share_out(estimates: NDArray[np.float64], variances: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """Find the nearest numbers, none negative, that add up to a total: those less well known give way the more.

    Examples
    --------
    >>> share_out(np.array([5.0, 1.0, -2.0]), np.array([1.0, 3.0, 1.0]), 10.0).tolist()
    [6.0, 4.0, 0.0]
    """
    positive = np.ones(len(estimates), dtype=bool)
    while True:
        spread = variances * positive
        share = spread / spread.sum() if spread.sum() > 0 else positive / positive.sum()
        found = np.where(positive, estimates + (total - estimates[positive].sum()) * share, 0.0)
        if (found >= 0).all():
            return found
        positive &= found > 0
