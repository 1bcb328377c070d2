"""Enumeration of all data sets that agree with the public facts of a small table, and their distances.

The public facts t are linear invariants with their published values, inequalities, and structural zeros. Everything
here is exact, by enumeration: an oracle for closed forms, and the answer where there is none.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from das.errors import ConfigError, InfeasibleError, Problem

__all__ = ["TableFacts", "data_space", "semi_adjacency"]

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
                refuse_if_large(len(found), "histograms")
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


def refuse_if_large(count: int, what: str) -> None:
    """Raise if there are too many items to enumerate."""
    if count > ENUMERATION_LIMIT:
        raise ConfigError(
            Problem(
                "facts", f"more than {ENUMERATION_LIMIT} {what} to enumerate", "use a hierarchy of nested invariants"
            )
        )


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
