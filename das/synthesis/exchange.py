"""Spread rows over places: rows of one group exchange their columns until every place is near what is expected there.

An exchange between two rows of one group keeps every count that does not name a place, and every count of the fixed
columns in every place. What it changes is how many of each label a place has, which should be near what is expected
there, at every level of the geography at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from das.compiled import compiled

__all__ = ["PlaceGoals", "exchanged"]

Codes = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PlaceGoals:
    """Expected counts of the labels of each column in the units of one level.

    Parameters
    ----------
    unit : ndarray of int
        The unit of each row.
    expected : tuple of ndarray
        Units x labels, one table for each column.
    """

    unit: Codes
    expected: tuple[NDArray[np.float64], ...]


def exchanged(
    columns: Codes, group: Codes, levels: Sequence[PlaceGoals], generator: np.random.Generator, *, sweeps: int
) -> Codes:
    """Return the columns with rows of the same group exchanged, so that units are nearer to what is expected.

    Parameters
    ----------
    columns : ndarray of int
        Label positions, a row a record.
    group : ndarray of int
        Rows exchange within a group alone.
    levels : sequence of PlaceGoals
        What is expected where.
    generator : numpy.random.Generator
        Chooses partners.
    sweeps : int
        How often each row looks for a partner.

    Examples
    --------
    >>> goals = PlaceGoals(np.array([0, 0, 1, 1]), (np.ones((2, 2)),))
    >>> start = np.array([[0], [0], [1], [1]])
    >>> done = exchanged(start, np.zeros(4, int), [goals], np.random.default_rng(1), sweeps=9)
    >>> sorted(done[:2, 0].tolist()), sorted(done[2:, 0].tolist())
    ([0, 1], [0, 1])
    """
    moved = np.ascontiguousarray(columns)[:].copy()
    if not len(moved) or not levels:
        return moved
    order = np.argsort(group, kind="stable")
    sizes = np.unique(group[order], return_counts=True)[1]
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    units = np.stack([level.unit for level in levels])
    labels = np.array([table.shape[1] for table in levels[0].expected], dtype=np.int64)
    offsets = np.zeros((len(levels), len(labels)), dtype=np.int64)
    parts, begin = [], 0
    for row, level in enumerate(levels):
        for place, table in enumerate(level.expected):
            cells = level.unit * table.shape[1] + moved[:, place]
            counts = np.bincount(cells, minlength=table.size)
            parts.append(counts - table.reshape(-1))
            offsets[row, place] = begin
            begin += table.size
    residuals = np.concatenate(parts)
    for _ in range(sweeps):
        if _sweep(moved, order, starts, units, labels, offsets, residuals, generator.random(len(moved))) == 0:
            break
    return moved


@compiled
def _sweep(columns, order, starts, units, labels, offsets, residuals, draws):  # type: ignore[no-untyped-def]
    """Offer each row one partner of its group; exchange if the squared distance to the expected counts falls."""
    moves = 0
    for group in range(len(starts) - 1):
        begin, end = starts[group], starts[group + 1]
        if end - begin < 2:
            continue
        for place in range(begin, end):
            other = begin + min(int(draws[place] * (end - begin)), end - begin - 1)
            one, two = order[place], order[other]
            change = 0.0
            for level in range(units.shape[0]):
                here, there = units[level, one], units[level, two]
                if here == there:
                    continue
                for column in range(columns.shape[1]):
                    old, new = columns[one, column], columns[two, column]
                    if old != new:
                        at = offsets[level, column] + here * labels[column]
                        to = offsets[level, column] + there * labels[column]
                        change += residuals[at + new] - residuals[at + old] + residuals[to + old] - residuals[to + new]
                        change += 2.0
            if change < -1e-9:
                moves += 1
                for level in range(units.shape[0]):
                    here, there = units[level, one], units[level, two]
                    if here == there:
                        continue
                    for column in range(columns.shape[1]):
                        old, new = columns[one, column], columns[two, column]
                        at = offsets[level, column] + here * labels[column]
                        to = offsets[level, column] + there * labels[column]
                        residuals[at + old] -= 1.0
                        residuals[at + new] += 1.0
                        residuals[to + new] -= 1.0
                        residuals[to + old] += 1.0
                for column in range(columns.shape[1]):
                    kept = columns[one, column]
                    columns[one, column] = columns[two, column]
                    columns[two, column] = kept
    return moves
