"""Proposals of whole tables: noise on the free cells; the other cells are solved for from the public equalities."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from das.accounting.small_table.dataspace import TableFacts
from das.errors import ConfigError, Problem
from das.table.systems import facts_rows

__all__ = ["Proposing", "SolvedCells"]


@dataclass(frozen=True)
class SolvedCells:
    """The cells of a table that its equalities determine once the others are known.

    Examples
    --------
    >>> cells = SolvedCells(TableFacts(cells=3, values=(), records=9), (0,))
    >>> tables, which = cells.complete(np.array([4, 3, 2]), np.array([[1, 0], [-4, 0], [5, 5]]))
    >>> tables.tolist(), which.tolist()
    ([[3, 4, 2]], [0])
    >>> SolvedCells(TableFacts(cells=3, invariants=((1, 1, 0),), values=(4,), records=9), (0, 1))
    Traceback (most recent call last):
    das.errors.ConfigError: solved cells: the equalities do not determine them; name other cells
    """

    facts: TableFacts
    solved: tuple[int, ...]

    def __post_init__(self) -> None:
        _ = self.solution  # refuses cells that cannot be solved for

    @cached_property
    def free(self) -> NDArray[np.int64]:
        """The cells that are proposed."""
        return np.array([cell for cell in self.facts.allowed if cell not in self.solved], dtype=np.int64)

    @cached_property
    def solution(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """``(offset, matrix)``: the solved cells are ``offset - matrix @ free cells``, in integers."""
        rows, low, high = facts_rows(self.facts)
        rows, values = rows[low == high], low[low == high]
        chosen = _independent(rows[:, list(self.facts.allowed)])
        rows, values = rows[chosen], values[chosen]
        if len(set(self.solved)) != len(rows) or not set(self.solved) <= set(self.facts.allowed):
            reason = f"the equalities determine {len(rows)} cells, not {len(set(self.solved))}"
            raise ConfigError(Problem("solved cells", reason, "name that many different cells, no structural zeros"))
        inverse = _inverse([[Fraction(int(v)) for v in row] for row in rows[:, list(self.solved)]])
        if inverse is None:
            raise ConfigError(Problem("solved cells", "the equalities do not determine them", "name other cells"))
        if any(entry.denominator != 1 for row in inverse for entry in row):
            raise ConfigError(Problem("solved cells", "they would not always be integers", "name other cells"))
        turned = np.array([[int(entry) for entry in row] for row in inverse], dtype=np.int64).reshape(len(rows), -1)
        return turned @ values, turned @ rows[:, self.free]

    def complete(self, centre: NDArray[Any], noise: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
        """Add rows of noise to the free cells and solve for the others.

        Returns
        -------
        tables, which
            The tables that keep every inequality, and which rows they came from.
        """
        offset, matrix = self.solution
        proposed = noise + centre[self.free]
        kept = np.flatnonzero((proposed >= 0).all(axis=1))
        tables = np.zeros((len(kept), self.facts.cells), dtype=proposed.dtype)
        tables[:, self.free] = proposed[kept]
        tables[:, list(self.solved)] = offset - tables[:, self.free] @ matrix.T
        inside = (tables[:, list(self.solved)] >= 0).all(axis=1)
        for row, low, high in self.facts.bounds:
            sums = tables @ np.array(row)
            inside &= (low <= sums) & (sums <= high)
        return tables[inside], kept[inside]


class Proposing:
    """Base class of samplers that propose some cells and solve for the others."""

    facts: TableFacts
    solved: tuple[int, ...]

    def __post_init__(self) -> None:
        _ = self.cells  # refuses cells that cannot be solved for

    @cached_property
    def cells(self) -> SolvedCells:
        """Which cells are proposed, and how the others follow."""
        return SolvedCells(self.facts, self.solved)


def _independent(rows: NDArray[np.int64]) -> list[int]:
    """Return the indices of linearly independent rows, the first ones first."""
    chosen: list[int] = []
    for i in range(len(rows)):
        if np.linalg.matrix_rank(rows[[*chosen, i]]) > len(chosen):
            chosen.append(i)
    return chosen


def _inverse(matrix: list[list[Fraction]]) -> list[list[Fraction]] | None:
    """Invert in rational arithmetic by Gauss-Jordan elimination; None if there is no inverse."""
    size = len(matrix)
    work = [[*row, *(Fraction(int(i == j)) for j in range(size))] for i, row in enumerate(matrix)]
    for column in range(size):
        pivot = next((r for r in range(column, size) if work[r][column]), None)
        if pivot is None:
            return None
        work[column], work[pivot] = work[pivot], work[column]
        work[column] = [entry / work[column][column] for entry in work[column]]
        for r in range(size):
            if r != column and work[r][column]:
                work[r] = [a - work[r][column] * b for a, b in zip(work[r], work[column], strict=True)]
    return [row[size:] for row in work]
