"""Checks for a vacuous promise: what the public facts disclose by themselves.

When the public facts leave only one histogram, every release of it is trivially "0-Semi-DP", and nobody is protected.
The checks here find that (V0), cells whose counts are disclosed exactly (V1), and secrets that no data set could hide
(V2). `das.accounting.moves.determined_queries` finds queries whose answers are public already.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint, milp

from das.accounting.small_table.dataspace import TableFacts
from das.errors import ConfigError, InfeasibleError, Problem

__all__ = ["NestedTotals", "Vacuity", "cell_ranges", "table_vacuity"]


MOST_RECORDS = 10**9
"""Counts that the solver's doubles hold apart with room to spare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuity:
    """What the public facts disclose by themselves.

    Parameters
    ----------
    vacuous : bool
        V0: only one histogram is left; report the data as determined by its invariants, never as epsilon 0.
    pinned : tuple of int
        V1: cells whose counts are fixed.
    unprotected : tuple of int
        V2: cells in which nobody can be: that a record is not there is public.
    coverage : Fraction
        V2: of the ordered pairs (is c, could be y) with c possible, the share in which y is possible too.
    """

    vacuous: bool
    pinned: tuple[int, ...]
    unprotected: tuple[int, ...]
    coverage: Fraction


def cell_ranges(facts: TableFacts) -> tuple[tuple[int, int], ...]:
    """Least and largest count of each cell over all data sets that agree with the facts, by integer programming.

    Examples
    --------
    >>> cell_ranges(TableFacts(cells=3, invariants=((1, 1, 0),), values=(1,), records=3))
    ((0, 1), (0, 1), (2, 2))
    """
    if facts.values is None or facts.records is None:
        raise ConfigError(Problem("facts", "the published values are needed here", "give values and records"))
    rows = [(1,) * facts.cells, *facts.invariants, *(row for row, _, _ in facts.bounds)]
    low = [facts.records, *facts.values, *(bottom for _, bottom, _ in facts.bounds)]
    high = [facts.records, *facts.values, *(top for _, _, top in facts.bounds)]
    if facts.records > MOST_RECORDS:
        raise ConfigError(Problem("facts", f"more than {MOST_RECORDS:,} records are not decided here", "use fewer"))
    largest = np.array([0 if cell in facts.zeros else facts.records for cell in range(facts.cells)])
    constraints = LinearConstraint(np.array(rows), np.array(low), np.array(high))

    def extreme(cell: int, sign: int, least: int, most: int) -> int | None:
        """Return the smallest (sign 1) or largest count of a cell between two limits; None if there is none."""
        objective, bottom, top = np.zeros(facts.cells), np.zeros(facts.cells), largest.copy()
        objective[cell], bottom[cell], top[cell] = sign, least, most
        # Without a gap of zero the solver stops within a ten-thousandth of the optimum: several people of many.
        found = milp(
            objective,
            integrality=np.ones(facts.cells),
            bounds=(bottom, top),
            constraints=constraints,
            options={"mip_rel_gap": 0},
        )
        if found.status not in (0, 2):
            raise ConfigError(Problem("facts", "the range of a cell could not be decided", "use fewer cells"))
        return round(sign * found.fun) if found.status == 0 else None

    ranges = []
    for cell in range(facts.cells):
        ends = [extreme(cell, sign, 0, int(largest[cell])) for sign in (1, -1)]
        if None in ends:
            raise InfeasibleError(
                Problem("facts", "no data set agrees with all of them", "check the invariants and bounds")
            )
        first, last = (int(end or 0) for end in ends)
        if first == last:  # what is taken for known gets no noise: no optimum is believed, both sides must be empty
            below = extreme(cell, 1, 0, first - 1) if first else None
            above = extreme(cell, -1, first + 1, int(largest[cell])) if first < largest[cell] else None
            first, last = (first if below is None else below), (last if above is None else above)
        ranges.append((first, last))
    return tuple(ranges)


def table_vacuity(facts: TableFacts) -> Vacuity:
    """Run V0 to V2 on a table.

    Examples
    --------
    >>> margins = ((1, 1, 0, 0), (0, 0, 1, 1), (1, 0, 1, 0), (0, 1, 0, 1))
    >>> table_vacuity(TableFacts(cells=4, invariants=margins, values=(3, 0, 2, 1), records=3))
    Vacuity(vacuous=True, pinned=(0, 1, 2, 3), unprotected=(2, 3), coverage=Fraction(1, 3))
    """
    ranges = cell_ranges(facts)
    pinned = tuple(cell for cell, (low, high) in enumerate(ranges) if low == high and cell not in facts.zeros)
    empty = tuple(cell for cell, (_, high) in enumerate(ranges) if high == 0 and cell not in facts.zeros)
    cells = len(facts.allowed)
    return Vacuity(
        vacuous=len(pinned) == cells, pinned=pinned, unprotected=empty, coverage=_coverage(cells - len(empty), cells)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedTotals:
    """V0 to V2 for nested totals, as sums over their classes: those of parts of the data add up.

    A class has a public count and a number of cells, of which none is written out. It is fixed when it has one cell or
    nobody; the data are determined when all classes are.

    Parameters
    ----------
    classes, pinned, unprotected : int
        Classes, those whose counts are fixed (V1), and those in which nobody can be (V2).
    possible, cells : int
        Cells in which somebody can be, and all cells.

    Examples
    --------
    >>> found = NestedTotals.of(np.array([5, 0, 7]), np.array([2, 2, 1]))
    >>> found.vacuous, found.pinned, found.unprotected, found.coverage
    (False, 2, 1, Fraction(1, 2))
    """

    classes: int = 0
    pinned: int = 0
    unprotected: int = 0
    possible: int = 0
    cells: int = 0

    @classmethod
    def of(cls, totals: NDArray[np.int64], cells: NDArray[np.int64]) -> NestedTotals:
        """Sum over classes: the public count and the number of cells of each."""
        if (totals < 0).any() or (cells < 1).any():
            raise ConfigError(Problem("classes", "a total is negative or a class has no cell", "correct the totals"))
        empty = totals == 0
        return cls(
            classes=len(totals),
            pinned=int((empty | (cells == 1)).sum()),
            unprotected=int(empty.sum()),
            possible=int(cells[~empty].sum()),
            cells=int(cells.sum()),
        )

    def __add__(self, other: NestedTotals) -> NestedTotals:
        return NestedTotals(
            classes=self.classes + other.classes,
            pinned=self.pinned + other.pinned,
            unprotected=self.unprotected + other.unprotected,
            possible=self.possible + other.possible,
            cells=self.cells + other.cells,
        )

    @property
    def vacuous(self) -> bool:
        """V0: whether only one histogram is left."""
        return self.pinned == self.classes

    @property
    def coverage(self) -> Fraction:
        """V2: of the ordered pairs (is c, could be y) with c possible, the share in which y is possible too."""
        return _coverage(self.possible, self.cells)


def _coverage(possible: int, cells: int) -> Fraction:
    return Fraction(possible - 1, cells - 1) if cells > 1 and possible else Fraction(0)
