"""The tables that a geounit can have, as bounds on sums over sets of answers; exact under sums over children.

The proofs are in ``attainable.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geography.arrays import Indices
from geography.summation import sum_ranges

__all__ = ["Attainable", "SetLimit"]


@dataclass(frozen=True, slots=True)
class SetLimit:
    """Limits on how many people are in a set of elements, for each geounit; the set is a bit mask."""

    members: int
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Attainable:
    """The fewest and the most people that each set of elements can hold, for each geounit.

    Elements are numbered and a set is the bit mask of its members: column 5 is the set of elements 0 and 2. The tables
    x >= 0 with ``least[X] <= x(X) <= most[X]`` for all sets X are an integral generalised polymatroid (Frank and Tardos
    1988), and so is what becomes of it here. Numbers are whole, or infinite; floats hold them exactly.

    Examples
    --------
    One person in one of two elements:

    >>> whole = SetLimit(0b11, np.array([1.0]), np.array([1.0]))
    >>> one, _ = Attainable.anything(1, 2).within([whole])
    >>> one.most.tolist()
    [[0.0, 1.0, 1.0, 1.0]]
    """

    least: NDArray[np.float64]  # geounits x sets
    most: NDArray[np.float64]  # geounits x sets

    @classmethod
    def anything(cls, units: int, elements: int) -> Attainable:
        """Bounds of all nonnegative tables."""
        most = np.full((units, 1 << elements), np.inf)
        most[:, 0] = 0.0
        return cls(np.zeros_like(most), most)

    @property
    def empty(self) -> NDArray[np.bool_]:
        """Geounits that are infeasible: no table keeps their bounds."""
        return np.asarray((self.least > self.most).any(axis=1))

    def within(self, limits: Iterable[SetLimit]) -> tuple[Attainable, NDArray[np.bool_]]:
        """Impose limits, on small sets first, and mark the geounits for which that is not exact.

        A limit on one element is a box, and a limit on a set A of which the rest is independent is a plank; both leave
        a generalised polymatroid (Frank 2011, chapter 14). Where a limit binds on any other set, bounds on sums cannot
        describe the result; the limit is left out, and the bounds returned for the geounit are too wide.
        """
        attainable, inexact = self, np.zeros(len(self.most), dtype=bool)
        for limit in sorted(limits, key=lambda limit: limit.members.bit_count()):
            if limit.members.bit_count() == 1:
                attainable = attainable._boxed(limit)
            else:
                attainable, missed = attainable._planked(limit)
                inexact |= missed
        return attainable, inexact & ~attainable.empty

    def summed(self, offsets: Indices) -> Attainable:
        """Bounds of sums over children: border functions of a Minkowski sum are the sums of the children's.

        Examples
        --------
        >>> low, high = np.array([[0.0, 1.0], [0.0, 2.0]]), np.array([[0.0, 4.0], [0.0, np.inf]])
        >>> Attainable(low, high).summed(np.array([0, 2])).least.tolist()
        [[0.0, 3.0]]
        """
        return Attainable(sum_ranges(self.least, offsets), sum_ranges(self.most, offsets))

    def _boxed(self, limit: SetLimit) -> Attainable:
        """Restrict one element e: most(X) becomes most(X - e) + upper if that is less, or most(X + e) - lower."""
        sets = np.arange(self.most.shape[1])
        has = (sets & limit.members) > 0
        other = sets ^ limit.members
        lower, upper = limit.lower[:, None], limit.upper[:, None]
        return Attainable(
            np.maximum(self.least, self.least[:, other] + np.where(has, lower, -upper)),
            np.minimum(self.most, self.most[:, other] + np.where(has, upper, -lower)),
        )

    def _planked(self, limit: SetLimit) -> tuple[Attainable, NDArray[np.bool_]]:
        """Restrict a set A independent of the rest: most(X & A) becomes upper - least(A - X) if that is less."""
        sets = np.arange(self.most.shape[1])
        inside, rest, missing = sets & limit.members, sets & ~limit.members, limit.members & ~sets
        binds = (limit.upper < self.most[:, limit.members]) | (limit.lower > self.least[:, limit.members])
        if not binds.any():
            return self, binds
        apart = (self.most[:, inside] + self.most[:, rest] == self.most).all(axis=1)
        apart &= (self.least[:, inside] + self.least[:, rest] == self.least).all(axis=1)
        at = np.flatnonzero(binds & apart)
        least, most = self.least.copy(), self.most.copy()
        lower, upper = limit.lower[at, None], limit.upper[at, None]
        low, high = self.least[at], self.most[at]
        least[at] = low[:, rest] + np.maximum(low[:, inside], lower - high[:, missing])
        most[at] = high[:, rest] + np.minimum(high[:, inside], upper - low[:, missing])
        return Attainable(least, most), binds & ~apart
