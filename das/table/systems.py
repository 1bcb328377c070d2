"""Linear systems of public facts: which tables agree, a feasible table from the facts alone, and nested subsystems."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

from das.accounting.small_table.dataspace import Row, TableFacts
from das.errors import ConfigError, InfeasibleError, Problem

__all__ = ["agreeing", "agrees", "facts_rows", "is_laminar", "nearest_laminar", "no_exact_sampler", "public_start"]

_SUBSETS_TRIED = 20_000


def facts_rows(facts: TableFacts) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return all facts as rows with a low and a high end: the number of records, the invariants, the bounds.

    Examples
    --------
    >>> rows, low, high = facts_rows(TableFacts(cells=2, values=(), records=3, bounds=(((1, 0), 1, 2),)))
    >>> rows.tolist(), low.tolist(), high.tolist()
    ([[1, 1], [1, 0]], [3, 1], [3, 2])
    """
    if facts.records is None or facts.values is None:
        raise ConfigError(Problem("facts", "the published values are needed here", "give values and records"))
    rows = [(1,) * facts.cells, *facts.invariants, *(row for row, _, _ in facts.bounds)]
    low = [facts.records, *facts.values, *(least for _, least, _ in facts.bounds)]
    high = [facts.records, *facts.values, *(most for _, _, most in facts.bounds)]
    return np.array(rows, dtype=np.int64), np.array(low, dtype=np.int64), np.array(high, dtype=np.int64)


def agrees(facts: TableFacts, tables: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which tables, along the last axis, agree with the facts.

    Examples
    --------
    >>> agrees(TableFacts(cells=2, values=(), records=3), np.array([[1, 2], [4, -1], [1, 1]])).tolist()
    [True, False, False]
    """
    rows, low, high = facts_rows(facts)
    sums = tables @ rows.T
    inside = np.all((low <= sums) & (sums <= high), axis=-1) & np.all(tables >= 0, axis=-1)
    return np.asarray(inside & ~np.any(tables[..., sorted(facts.zeros)], axis=-1))


def agreeing(facts: TableFacts, x: ArrayLike) -> tuple[int, ...]:
    """Return a confidential table as integers, or raise, without naming a count, if it violates the public facts.

    Examples
    --------
    >>> agreeing(TableFacts(cells=2, values=(), records=3), [4, 1])
    Traceback (most recent call last):
    das.errors.InfeasibleError: table: it does not agree with the public facts; publish its own facts
    """
    table = np.asarray(x)
    if table.shape != (facts.cells,) or not np.issubdtype(table.dtype, np.integer):
        raise ConfigError(Problem("table", "it is not one integer for each cell", f"give {facts.cells} counts"))
    if not agrees(facts, table):
        raise InfeasibleError(Problem("table", "it does not agree with the public facts", "publish its own facts"))
    return tuple(table.tolist())


def public_start(facts: TableFacts) -> NDArray[np.int64]:
    """Return a table that agrees with the facts, with the smallest largest cell: a public start for a chain.

    A chain that begins at the confidential table and stops early discloses more than its stationary law.

    Examples
    --------
    >>> public_start(TableFacts(cells=3, invariants=((1, 1, 0),), values=(4,), records=5)).tolist()
    [2, 2, 1]
    """
    rows, low, high = facts_rows(facts)
    cells, records = facts.cells, int(high[0])
    spread = np.hstack([np.eye(cells), -np.ones((cells, 1))])  # every cell is at most the last variable
    constraints = [
        LinearConstraint(np.hstack([rows, np.zeros((len(rows), 1))]), low, high),
        LinearConstraint(spread, -np.inf, 0),
    ]
    top = np.append(np.where(np.isin(np.arange(cells), sorted(facts.zeros)), 0, records), records)
    objective = np.append(np.zeros(cells), 1.0)
    found = milp(objective, constraints=constraints, integrality=np.ones(cells + 1), bounds=Bounds(0, top))
    if found.x is None:
        reason, remedy = "no table agrees with all of them", "check the invariants and bounds against each other"
        raise InfeasibleError(Problem("facts", reason, remedy))
    return np.asarray(np.rint(found.x[:-1]), dtype=np.int64)


def is_laminar(rows: Sequence[Row]) -> bool:
    """Return whether any two of these sets of cells (rows of 0 and 1) are nested or disjoint.

    Examples
    --------
    >>> is_laminar([(1, 1, 0), (1, 0, 0)]), is_laminar([(1, 1, 0), (0, 1, 1)])
    (True, False)
    """
    if any(weight not in (0, 1) for row in rows for weight in row):
        return False
    sets = [frozenset(cell for cell, weight in enumerate(row) if weight) for row in rows]
    return all(a <= b or b <= a or not a & b for a, b in combinations(sets, 2))


def nearest_laminar(facts: TableFacts) -> tuple[int, ...]:
    """Return the invariants (by index) of a largest nested subset; the first one among equals.

    Where there are too many subsets to try, invariants are added in order as long as they stay nested.

    Examples
    --------
    >>> from das.accounting.small_table.margins import margin_invariants
    >>> nearest_laminar(TableFacts(cells=6, invariants=margin_invariants((2, 3), [(0,), (1,)])))
    (2, 3, 4)
    """
    rows = facts.invariants
    if 2 ** len(rows) <= _SUBSETS_TRIED:
        for size in range(len(rows), 0, -1):
            for subset in combinations(range(len(rows)), size):
                if is_laminar([rows[i] for i in subset]):
                    return subset
    kept: list[int] = []
    for i in range(len(rows)):
        if is_laminar([rows[j] for j in (*kept, i)]):
            kept.append(i)
    return tuple(kept)


def no_exact_sampler(facts: TableFacts, reason: str) -> ConfigError:
    """Return the error that names why a system has no sampler with a proved error, and nested invariants that have.

    Examples
    --------
    >>> print(no_exact_sampler(TableFacts(cells=2, invariants=((1, 0), (1, 1))), "it is too large"))
    facts: no sampler with a proved error: it is too large; keep the nested invariants 0 and 1 and sample the tree
    """
    kept = nearest_laminar(facts)
    nested = " and ".join(map(str, kept)) if len(kept) < 3 else f"{', '.join(map(str, kept[:-1]))} and {kept[-1]}"
    remedy = f"keep the nested invariants {nested} and sample the tree" if kept else "publish fewer invariants"
    return ConfigError(Problem("facts", f"no sampler with a proved error: {reason}", remedy))
