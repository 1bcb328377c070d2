"""Sparse counts by geounit and cell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from das.schema.query import Query

__all__ = ["SparseCounts", "answers_of", "merge"]


@dataclass(frozen=True, slots=True, repr=False)
class SparseCounts:
    """Sparse true counts: confidential. Ascending by (unit, cell), each pair once, each count positive."""

    unit: NDArray[np.int64]
    cell: NDArray[np.int64]
    count: NDArray[np.int64]


def merge(parts: list[SparseCounts], cells: int) -> SparseCounts:
    """Add sparse counts together.

    Examples
    --------
    >>> one = SparseCounts(np.array([0, 2]), np.array([1, 0]), np.array([5, 1]))
    >>> merge([one, one], cells=4).count.tolist()
    [10, 2]
    """
    unit = np.concatenate([p.unit for p in parts]) if parts else np.zeros(0, np.int64)
    cell = np.concatenate([p.cell for p in parts]) if parts else np.zeros(0, np.int64)
    count = np.concatenate([p.count for p in parts]) if parts else np.zeros(0, np.int64)
    key = unit * cells + cell
    order = np.argsort(key, kind="stable")
    key, count = key[order], count[order]
    begins = np.flatnonzero(np.diff(key, prepend=-1))
    summed = np.add.reduceat(count, begins) if len(key) else count
    kept = summed > 0
    key, summed = key[begins][kept] if len(key) else key, summed[kept]
    return SparseCounts(key // cells, key % cells, summed)


def answers_of(query: Query, counts: SparseCounts, units: int) -> NDArray[np.int64]:
    """Answers of a query from sparse counts: units x answers."""
    out = np.zeros((units, query.size), dtype=np.int64)
    np.add.at(out, (counts.unit, query.group_of(counts.cell)), counts.count)
    return out
