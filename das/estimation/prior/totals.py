"""Quadratic penalty that keeps each child's total near its own linear estimate.

Nonnegativity truncates the noise of cells below and not above, so the sum of many sparse cells comes out too large. A
total that was measured by itself is known far better than that sum, yet the nearest table moves it to where the cells
add up. The Bureau estimates totals in a pass of their own and then keeps them (Abowd et al. 2022, "The 2020 Census
Disclosure Avoidance System TopDown Algorithm", HDSR, section 4). Here there is one pass, in which each child's total
gets a target and a large weight; the targets add up to the parent's total. A penalty excludes no table, so nothing can
become infeasible.

The two constants are tuned, not derived; ``das/estimation/README.md`` says what they trade off.
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
"""Weight of the penalty, in units of a total's own precision. With the distance itself the total then has eleven times
its precision, so that the cells move it an eleventh as far. A tuned constant."""
_BETTER = 10.0
"""A total is penalised only if its variance is so many times smaller than that of the sum of independent cells;
otherwise nonnegativity improves it more than it harms it. A tuned constant."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Linear estimates of the children's totals and their variances."""

    mean: NDArray[np.float64]
    variance: NDArray[np.float64]

    @classmethod
    def of(cls, basis: Basis, known: LinearEstimate) -> Totals:
        """Add up the cells of each child."""
        variance = basis.variances(parse_query(basis.schema, "total"), known.covariance)[:, 0]
        return cls(basis.to_cells(known.mean).sum(axis=1), np.maximum(variance, 0.0))

    def targets(self, parent: NDArray[np.int64] | None) -> NDArray[np.float64]:
        """Targets: the nearest totals, none negative, that add up to the parent's."""
        if parent is None:
            return np.maximum(self.mean, 0.0)
        return share_out(self.mean, self.variance, float(parent.sum()))


def penalise_totals(
    distance: Quadratic, basis: Basis, known: LinearEstimate, cells: NDArray[np.int64], parent: NDArray[np.int64] | None
) -> Quadratic:
    """Add w (total - target)^2 for each child to the distance from its estimates on some cells.

    With v the variance of the total and u that of the sum of its cells if they were independent,
    w = 10 (1 / v - 10 / u) where that is positive. A cell's variance in u is at most p^2 / 12, that of a uniform
    distribution between zero and the parent's count p. So nothing is added where the total is not much better known
    than the cells, or where the parent's counts are small: there nonnegativity improves totals.
    """
    totals = Totals.of(basis, known)
    variance = totals.variance
    uniform = np.inf if parent is None else parent**2 / 12.0
    cell_variances = basis.variances(parse_query(basis.schema, "detailed"), known.covariance)[:, cells]
    of_cells = np.minimum(cell_variances, uniform).sum(axis=1)
    # A total that is known exactly is kept by a constraint.
    penalised = (of_cells > _BETTER * variance) & (variance > 1e-9 * of_cells)
    if not penalised.any():
        return distance
    weight = np.zeros(len(penalised))
    weight[penalised] = _WEIGHT * (1.0 / variance[penalised] - _BETTER / of_cells[penalised])
    shift = totals.targets(parent) - distance.reference.sum(axis=1)
    # The Hessian of a squared total is the same number for every pair of cells.
    more = weight[0] if distance.kinds is None else weight[:, None]
    return replace(
        distance,
        hessian=distance.hessian + more,
        linear=distance.linear + (weight * shift)[:, None],
        constant=distance.constant + float((weight * shift * shift).sum()),
    )


def share_out(estimates: NDArray[np.float64], variances: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """Project estimates onto nonnegative numbers with a given total, in the metric of their variances.

    Examples
    --------
    >>> share_out(np.array([5.0, 1.0, -2.0]), np.array([1.0, 3.0, 1.0]), 10.0).tolist()
    [6.0, 4.0, 0.0]
    """
    positive = np.ones(len(estimates), dtype=bool)
    while True:
        spread = variances * positive
        share = spread / spread.sum() if spread.sum() > 0 else positive / positive.sum()
        shares = np.where(positive, estimates + (total - estimates[positive].sum()) * share, 0.0)
        if (shares >= 0).all():
            return shares
        positive &= shares > 0
