"""Sparse counts by geounit and cell: true ones, which are confidential, and protected ones, which are not.

The two are different types with the same shape. Only a mechanism turns one into the other: noise is added to answers of
true counts in :mod:`das.noise.measure`, or conforming counts are drawn in :mod:`das.congenial`. Nothing after that
accepts true counts, and a type checker sees it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from das.schema.query import Query

__all__ = ["ProtectedCounts", "TrueCounts"]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class _SparseCounts:
    """Ascending by (unit, cell), each pair once, each count positive; a cell that is not listed is empty."""

    unit: NDArray[np.int64]
    cell: NDArray[np.int64]
    count: NDArray[np.int64]

    @classmethod
    def nobody(cls) -> Self:
        """Counts of nobody."""
        return cls(*(np.zeros(0, np.int64) for _ in range(3)))

    @classmethod
    def sum_of(cls, counts: Iterable[Self], cells: int) -> Self:
        """Add counts together.

        Examples
        --------
        >>> one = TrueCounts(np.array([0, 2]), np.array([1, 0]), np.array([5, 1]))
        >>> TrueCounts.sum_of([one, one], cells=4).count.tolist()
        [10, 2]
        """
        several = [cls.nobody(), *counts]
        key = np.concatenate([each.unit * cells + each.cell for each in several])
        order = np.argsort(key, kind="stable")
        key, count = key[order], np.concatenate([each.count for each in several])[order]
        begins = np.flatnonzero(np.diff(key, prepend=-1))
        summed = np.add.reduceat(count, begins) if len(key) else count
        kept = summed > 0
        key, summed = key[begins][kept] if len(key) else key, summed[kept]
        return cls(key // cells, key % cells, summed)

    def equals(self, other: Self) -> bool:
        """Whether both list the same rows."""
        mine, theirs = (self.unit, self.cell, self.count), (other.unit, other.cell, other.count)
        return all(np.array_equal(one, two) for one, two in zip(mine, theirs, strict=True))

    def rows(self, some: slice) -> Self:
        """Give some of the rows."""
        return type(self)(self.unit[some], self.cell[some], self.count[some])

    def within(self, start: int, stop: int) -> Self:
        """Give the counts of the geounits from ``start`` to before ``stop``, numbered from zero.

        Examples
        --------
        >>> ProtectedCounts(np.array([0, 2, 3]), np.array([1, 0, 1]), np.array([5, 1, 2])).within(2, 4).unit.tolist()
        [0, 1]
        """
        found = self.rows(slice(*np.searchsorted(self.unit, [start, stop])))
        return type(self)(found.unit - start, found.cell, found.count)

    def answers(self, query: Query, units: int) -> NDArray[np.int64]:
        """Answer a query for geounits 0 to ``units`` - 1: units x answers."""
        out = np.zeros((units, query.size), dtype=np.int64)
        np.add.at(out, (self.unit, query.group_of(self.cell)), self.count)
        return out


class TrueCounts(_SparseCounts):
    """Counts of records: confidential, and shown by no text."""

    __slots__ = ()


class ProtectedCounts(_SparseCounts):
    """Counts that a mechanism released, or that were computed from nothing but such a release and public facts."""

    __slots__ = ()
