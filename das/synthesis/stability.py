"""Stability-based histogram: for large or unknown domains, only cells that are clearly not empty are released.

Korolova et al. (2009), Bun, Nissim and Stemmer (2016); constants and proof in ``stability.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, exp, log

from das.errors import BudgetError, ConfigError, InfeasibleError, Problem
from das.noise import DiscreteLaplace
from das.schema.query import Neighbours
from das.synthesis.curator import Curator
from das.synthesis.domain import Constraints
from das.synthesis.table_model import CellModel

__all__ = ["StabilityOptions", "fit_stability", "leak", "threshold"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StabilityOptions:
    """The delta of the mechanism; it should be far below one over the number of records."""

    delta: Fraction = Fraction(1, 10**6)

    def __post_init__(self) -> None:
        if not 0 < self.delta < 1:
            raise BudgetError(Problem("delta", "is not between 0 and 1", "give a small rational such as 1/1000000"))


def threshold(epsilon: Fraction, delta: Fraction, neighbours: Neighbours) -> int:
    """Return T: a cell is released if its noisy count is *above* T.

    T = ceil((2/epsilon) ln(1/delta)) if a record is replaced, ceil((1/epsilon) ln(1/delta)) if it is added or removed.

    Examples
    --------
    >>> threshold(Fraction(1), Fraction(1, 10**6), Neighbours.REPLACE)
    28
    >>> threshold(Fraction(1), Fraction(1, 10**6), Neighbours.ADD_REMOVE)
    14
    """
    changed = 2 if neighbours is Neighbours.REPLACE else 1
    return max(1, ceil(changed / float(epsilon) * log(1 / float(delta)) * (1 + 2**-40)))


def leak(epsilon: Fraction, delta: Fraction, neighbours: Neighbours) -> float:
    """Return the chance that a cell with one record is released, a^T / (1 + a); it is below delta.

    Examples
    --------
    >>> f"{leak(Fraction(1), Fraction(1, 10**6), Neighbours.REPLACE):.4g}"
    '5.176e-07'
    """
    changed = 2 if neighbours is Neighbours.REPLACE else 1
    a = exp(-float(epsilon) / changed)
    return a ** threshold(epsilon, delta, neighbours) / (1 + a)


def fit_stability(
    curator: Curator, constraints: Constraints, total: int | None, options: StabilityOptions | None = None
) -> CellModel:
    """Release noisy counts of the cells above the threshold; spends the whole budget, (epsilon, delta)."""
    options = options or StabilityOptions()
    if constraints.invariants:
        raise ConfigError(Problem("invariants", "released cells do not keep them", "use `pairs`, `aim` or `mst`"))
    epsilon = curator.left
    above = threshold(epsilon, options.delta, curator.neighbours)
    known = total if total is not None else curator.public_total
    if known is not None and above >= known:
        reason = f"a cell is released above {above} records, and there are {known}"
        raise BudgetError(Problem("budget", reason, "give a larger epsilon or delta"))
    noise = DiscreteLaplace(Fraction(curator.changed) / epsilon)
    cells, counts = curator.stable_cells(noise, above, epsilon, options.delta)
    if not len(cells):
        reason = f"no cell is above the threshold of {above}"
        raise InfeasibleError(Problem("stability", reason, "count fewer attributes or coarser labels; this was spent"))
    return CellModel(curator.domain, cells, counts.astype(float), float(total if total is not None else counts.sum()))
