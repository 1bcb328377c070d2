"""Moves under any small system of linear invariants, by enumeration.

A *move* is what the histogram may change by while the invariants stay as published. Records are substituted, never
added or removed, so every move sums to zero. `irreducible_moves` and `net_moves` look at the invariants alone;
`data_space` and `semi_adjacency` at their published values too. ``moves.md`` has definitions and what is proved.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations, combinations_with_replacement, product
from math import comb, prod

import numpy as np
import numpy.typing as npt

from das.errors import ConfigError, InfeasibleError, Problem

__all__ = [
    "TableFacts",
    "data_space",
    "irreducible_moves",
    "irreducible_relabellings",
    "move_rank",
    "net_moves",
    "record_classes",
    "semi_adjacency",
    "sensitivity",
]

Moves = npt.NDArray[np.int64]
Row = tuple[int, ...]
ENUMERATION_LIMIT = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """What is public about one table of counts.

    Parameters
    ----------
    cells : int
        Number of cells.
    invariants : tuple of rows
        Integer weights of each published count over the cells.
    values : tuple of int, optional
        The published counts; needed by everything that asks about the data and not only about its changes.
    records : int, optional
        The number of records, likewise.
    bounds : tuple of (row, low, high)
        Public inequalities ``low <= row . x <= high``.
    zeros : frozenset of int
        Structural zeros: cells in which nobody can be.

    Examples
    --------
    >>> TableFacts(cells=3, invariants=((1, 0.5, 0),))
    Traceback (most recent call last):
    das.errors.ConfigError: invariant 0: its weights are not all integers; scale the row to integers
    """

    cells: int
    invariants: tuple[Row, ...] = ()
    values: Row | None = None
    records: int | None = None
    bounds: tuple[tuple[Row, int, int], ...] = ()
    zeros: frozenset[int] = field(default_factory=frozenset)

    def __post_init__(self) -> None:
        problems = [
            Problem(f"invariant {i}", "its weights are not all integers", "scale the row to integers")
            for i, row in enumerate(self.invariants)
            if not all(_is_integer(w) for w in row)
        ]
        for name, rows in (("invariant", self.invariants), ("bound", tuple(row for row, _, _ in self.bounds))):
            problems += [
                Problem(f"{name} {i}", f"it has {len(row)} weights for {self.cells} cells", "give one weight a cell")
                for i, row in enumerate(rows)
                if len(row) != self.cells
            ]
        if self.values is not None:
            if len(self.values) != len(self.invariants):
                problems.append(Problem("values", "there is not one value per invariant", "give each its value"))
            if not all(_is_integer(v) for v in self.values):
                problems.append(Problem("values", "an invariant's value is not an integer", "counts are integers"))
        problems += [
            Problem(f"bound {i}", "its low end is above its high end", "swap or correct them")
            for i, (_, low, high) in enumerate(self.bounds)
            if low > high
        ]
        if problems:
            raise ConfigError(problems)

    @property
    def allowed(self) -> tuple[int, ...]:
        """The cells that are not structural zeros."""
        return tuple(cell for cell in range(self.cells) if cell not in self.zeros)


def record_classes(facts: TableFacts) -> tuple[tuple[int, ...], ...]:
    """Group cells that no invariant tells apart: within a group one record can change alone.

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
    _refuse_if_large(sum(comb(len(allowed) + h - 1, h) for h in range(1, size + 1)), "multisets of cells")
    for h in range(1, size + 1):
        by_sum: dict[Row, list[Counter[int]]] = defaultdict(list)
        for cells in combinations_with_replacement(allowed, h):
            by_sum[tuple(sum(row[c] for c in cells) for row in facts.invariants)].append(Counter(cells))
        _refuse_if_large(sum(len(g) * (len(g) - 1) // 2 for g in by_sum.values()), "pairs of multisets")
        for group in by_sum.values():
            for gained, lost in combinations(group, 2):
                if gained.keys().isdisjoint(lost):
                    found.add(_vector(facts.cells, gained, lost))
                    found.add(_vector(facts.cells, lost, gained))
    return _sorted_moves(facts.cells, found)


def irreducible_relabellings(facts: TableFacts, size: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Changes of class, at most `size` of them, that keep the invariants together and in no smaller part.

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
        _refuse_if_large(comb(len(changes) + h - 2, h - 1), "relabellings")
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
        _refuse_if_large(len(found) + prod(map(len, choices)), "cells of one relabelling")
        for cells in product(*choices):
            move = _vector(facts.cells, Counter(cells[1::2]), Counter(cells[0::2]))
            if any(move):
                found.add(move)
    return _sorted_moves(facts.cells, found)


def data_space(facts: TableFacts) -> Moves:
    """Every histogram that agrees with the public facts, one a row.

    Examples
    --------
    >>> data_space(TableFacts(cells=3, invariants=((1, 1, 0),), values=(1,), records=3)).tolist()
    [[0, 1, 2], [1, 0, 2]]
    """
    if facts.records is None or facts.values is None:
        raise ConfigError(Problem("facts", "the published values are needed here", "give values and records"))
    rows = [*facts.invariants, *(row for row, _, _ in facts.bounds)]
    low = np.array([*facts.values, *(bottom for _, bottom, _ in facts.bounds)], dtype=np.int64)
    high = np.array([*facts.values, *(top for _, _, top in facts.bounds)], dtype=np.int64)
    weights = np.array(rows, dtype=np.int64).reshape(len(rows), facts.cells)[:, list(facts.allowed)]
    # what the cells not yet filled can still add to each row, per record
    least = np.minimum.accumulate(weights[:, ::-1], axis=1)[:, ::-1]
    most = np.maximum.accumulate(weights[:, ::-1], axis=1)[:, ::-1]
    found: list[list[int]] = []

    def fill(filled: list[int], left: int, sums: Moves) -> None:
        position = len(filled)
        if position == len(facts.allowed):
            if left == 0 and bool(np.all((low <= sums) & (sums <= high))):
                found.append(list(filled))
                _refuse_if_large(len(found), "histograms")
            return
        if np.any(sums + left * most[:, position] < low) or np.any(sums + left * least[:, position] > high):
            return
        for count in range(left + 1):
            fill([*filled, count], left - count, sums + count * weights[:, position])

    fill([], facts.records, np.zeros(len(rows), dtype=np.int64))
    if not found:
        raise InfeasibleError(
            Problem(
                "facts", "no data set agrees with all of them", "check the invariants and bounds against each other"
            )
        )
    space = np.zeros((len(found), facts.cells), dtype=np.int64)
    space[:, list(facts.allowed)] = found
    return space


def semi_adjacency(facts: TableFacts) -> int:
    """The semi-adjacency parameter a(t): how many records must change so that any one record can change as it likes.

    ``a(t) = max over X, i, feasible y of min {H(X, X') : X' agrees with t, X'_i = y}``, over all data sets that agree
    with the published t; 0 when no record can change at all. With histograms, turning one record from c into y costs
    ``1 + ||x - e_c - x' + e_y||_1 / 2``.

    Examples
    --------
    >>> margins = ((1, 1, 0, 0), (0, 0, 1, 1), (1, 0, 1, 0), (0, 1, 0, 1))
    >>> semi_adjacency(TableFacts(cells=4, invariants=margins, values=(2, 1, 2, 1), records=3))
    3
    """
    space = data_space(facts)
    largest = 0
    for y in range(facts.cells):
        reached = space[space[:, y] > 0]
        if not len(reached):
            continue
        reached = reached.copy()
        reached[:, y] -= 1
        for c in range(facts.cells):
            if c == y:
                continue
            for x in space[space[:, c] > 0]:
                rest = x.copy()
                rest[c] -= 1
                largest = max(largest, 1 + int(np.abs(reached - rest).sum(axis=1).min()) // 2)
    return largest


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


def move_rank(moves: Moves) -> int:
    """Dimension of the space the moves span: how many numbers the invariants leave free.

    Examples
    --------
    >>> move_rank(np.array([[1, -1, 0], [0, 1, -1], [1, 0, -1]]))
    2
    """
    return int(np.linalg.matrix_rank(moves)) if len(moves) else 0


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


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
    """Tell whether a proper part of these shifts, which together sum to zero, sums to zero already."""
    # a part or its complement contains the last shift, so parts of the others are enough
    return any(
        not any(map(sum, zip(*part, strict=True)))
        for size in range(1, len(shifts))
        for part in combinations(shifts[:-1], size)
    )


def _refuse_if_large(count: int, what: str) -> None:
    if count > ENUMERATION_LIMIT:
        raise ConfigError(
            Problem(
                "facts", f"more than {ENUMERATION_LIMIT} {what} to enumerate", "use a hierarchy of nested invariants"
            )
        )
