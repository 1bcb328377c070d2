"""Moves under any small system of linear invariants, by enumeration.

A *move* is a change of the histogram that keeps the published invariants. Records are substituted, never
added or removed, so every move sums to zero. Only the invariants matter here, not their published values.
``moves.md`` has the definitions and what is proved.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import combinations, combinations_with_replacement, product
from math import comb, prod

import numpy as np
import numpy.typing as npt

from das.accounting.small_table.dataspace import Moves, Row, TableFacts, refuse_if_large

__all__ = [
    "irreducible_moves",
    "irreducible_relabellings",
    "net_moves",
    "record_classes",
    "sensitivity",
]


def record_classes(facts: TableFacts) -> tuple[tuple[int, ...], ...]:
    """Group cells that no invariant separates: within a group one record can change alone.

    Examples
    --------
    >>> record_classes(TableFacts(cells=4, invariants=((1, 1, 0, 0), (0, 0, 1, 1))))
    ((0, 1), (2, 3))
    """
    groups: dict[Row, list[int]] = defaultdict(list)
    for cell in facts.allowed:
        groups[tuple(row[cell] for row in facts.invariants)].append(cell)
    return tuple(tuple(cells) for cells in groups.values())


def net_moves(facts: TableFacts, size: int) -> Moves:
    """All changes of the histogram that keep the invariants and need at most `size` records: the ball of Semi-DP.

    Multisets of cells with the same invariant sums are matched; disjoint ones give the moves of exactly their size.

    Examples
    --------
    >>> len(net_moves(TableFacts(cells=4, invariants=((1, 1, 0, 0), (0, 0, 1, 1))), 1))
    4
    """
    allowed, found = facts.allowed, set()
    refuse_if_large(sum(comb(len(allowed) + h - 1, h) for h in range(1, size + 1)), "multisets of cells")
    for h in range(1, size + 1):
        by_sum: dict[Row, list[Counter[int]]] = defaultdict(list)
        for cells in combinations_with_replacement(allowed, h):
            by_sum[tuple(sum(row[c] for c in cells) for row in facts.invariants)].append(Counter(cells))
        refuse_if_large(sum(len(g) * (len(g) - 1) // 2 for g in by_sum.values()), "pairs of multisets")
        for group in by_sum.values():
            for gained, lost in combinations(group, 2):
                if gained.keys().isdisjoint(lost):
                    found.add(_vector(facts.cells, gained, lost))
                    found.add(_vector(facts.cells, lost, gained))
    return _sorted_moves(facts.cells, found)


def irreducible_relabellings(facts: TableFacts, size: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Changes of class, at most `size` of them, that keep the invariants together, while no proper subset does.

    Each is a tuple of (class before, class after), classes numbered as in `record_classes`; a change inside one class
    is irreducible alone and is given as ``((k, k),)`` when the class has two cells.

    Examples
    --------
    >>> list(irreducible_relabellings(TableFacts(cells=3, invariants=((1, 1, 0), (0, 0, 1))), 2))
    [((0, 0),), ((0, 1), (1, 0))]
    """
    classes = record_classes(facts)
    columns = [tuple(row[cells[0]] for row in facts.invariants) for cells in classes]
    yield from (((k, k),) for k, cells in enumerate(classes) if len(cells) > 1)
    changes = [(k, j) for k in range(len(classes)) for j in range(len(classes)) if k != j]
    shift = {change: tuple(b - a for a, b in zip(*(columns[c] for c in change), strict=True)) for change in changes}
    closing: dict[Row, list[tuple[int, int]]] = defaultdict(list)
    for change in changes:
        closing[shift[change]].append(change)
    for h in range(2, size + 1):
        refuse_if_large(comb(len(changes) + h - 2, h - 1), "relabellings")
        for first in combinations_with_replacement(changes, h - 1):
            rest = tuple(-sum(parts) for parts in zip(*(shift[c] for c in first), strict=True))
            for last in closing.get(rest, ()):
                if last >= first[-1] and not _splits([shift[c] for c in (*first, last)]):
                    yield (*first, last)


def irreducible_moves(facts: TableFacts, size: int) -> Moves:
    """Changes of the histogram made by irreducible relabellings of at most `size` records; the zero change is left out.

    Examples
    --------
    >>> square = ((1, 1, 0, 0), (0, 0, 1, 1), (1, 0, 1, 0), (0, 1, 0, 1))
    >>> irreducible_moves(TableFacts(cells=4, invariants=square), 3).tolist()
    [[-1, 1, 1, -1], [1, -1, -1, 1]]
    """
    classes = record_classes(facts)
    found: set[Row] = set()
    for relabelling in irreducible_relabellings(facts, size):
        choices = [classes[k] for change in relabelling for k in change]
        refuse_if_large(len(found) + prod(map(len, choices)), "cells of one relabelling")
        for cells in product(*choices):
            move = _vector(facts.cells, Counter(cells[1::2]), Counter(cells[0::2]))
            if any(move):
                found.add(move)
    return _sorted_moves(facts.cells, found)


def sensitivity(moves: Moves, workload: npt.ArrayLike | None = None) -> tuple[int, int, int]:
    """Largest L1 norm, squared L2 norm and Linf norm of the answers' changes; the identity when no workload is given.

    Examples
    --------
    >>> sensitivity(np.array([[1, -1, 0]]))
    (2, 2, 1)
    """
    changes = moves if workload is None else moves @ np.asarray(workload, dtype=np.int64).T
    if not changes.size:
        return (0, 0, 0)
    return (
        int(np.abs(changes).sum(axis=1).max()),
        int((changes * changes).sum(axis=1).max()),
        int(np.abs(changes).max()),
    )


def _vector(cells: int, gained: Counter[int], lost: Counter[int]) -> Row:
    vector = [0] * cells
    for cell, count in gained.items():
        vector[cell] += count
    for cell, count in lost.items():
        vector[cell] -= count
    return tuple(vector)


def _sorted_moves(cells: int, found: set[Row]) -> Moves:
    moves = np.array(sorted(found), dtype=np.int64).reshape(len(found), cells)
    moves.setflags(write=False)
    return moves


def _splits(shifts: list[Row]) -> bool:
    """Return whether a proper subset of these shifts, which together sum to zero, sums to zero already."""
    # a subset or its complement contains the last shift, so subsets of the others are enough
    return any(
        not any(map(sum, zip(*subset, strict=True)))
        for size in range(1, len(shifts))
        for subset in combinations(shifts[:-1], size)
    )
