"""Name a minimal set of facts that cannot hold together: without any one of them the others can."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from das.errors import Problem
from das.facts.fact import Declared, Facts, limits_of
from das.facts.irreducible import System, irreducible
from das.schema.limits import NO_LIMIT
from das.schema.query import answer_names
from das.schema.schema import Schema
from geography import Spine

__all__ = ["infeasible_tops", "minimal_conflict"]

_MOST_NUMBERS = 200_000
"""Above so many unknowns a contradiction is named by the sums at its geounit instead of what was declared below it."""
_SIGNS = {"=": "must be", ">=": "must be at least", "<=": "must be at most"}
_REMEDY = "mend or drop any one of these"


@dataclass(frozen=True, slots=True)
class _Rows:
    """The system of some facts, and which fact, geounit and answer each row is."""

    system: System
    keys: list[tuple[int, int, int]]

    def pick(self, rows: NDArray[np.int64]) -> _Rows:
        return _Rows(self.system.pick(rows), [self.keys[row] for row in rows.tolist()])


def infeasible_tops(facts: Facts, spine: Spine) -> NDArray[np.int64]:
    """Find the geounits of the top level at which the facts, those from below included, cannot hold together."""
    top = spine.levels[0]
    declared = [Declared(top, fact, "") for fact in facts[top]]
    if not declared:
        return np.zeros(0, dtype=np.int64)
    schema = declared[0].fact.query.schema
    everywhere = _rows(declared, spine, top, range(spine.size(top)), schema.possible)
    if everywhere.system.holds():
        return np.zeros(0, dtype=np.int64)
    alone = (unit for unit in range(spine.size(top)) if not _holds_at(declared, spine, top, unit, schema))
    return np.fromiter(alone, dtype=np.int64)


def minimal_conflict(declared: Iterable[Declared], facts: Facts, spine: Spine, level: str, unit: int) -> list[Problem]:
    """Name a minimal set of facts, declared at a geounit or below it, that no table obeys together."""
    inside = [fact for fact in declared if fact.level in spine.levels[spine.levels.index(level) :]]
    schema = inside[0].fact.query.schema
    if _numbers(inside, spine, level, unit, schema) > _MOST_NUMBERS:
        shown = all(fact.shown for fact in inside)
        inside = [Declared(level, fact, "with sums of what is declared below", shown) for fact in facts[level]]
    rows = _rows(inside, spine, level, [unit], schema.possible)
    rows = rows.pick(irreducible(rows.system))
    found = [_named(inside[fact], spine, unit, answer, len(rows.keys)) for fact, unit, answer in rows.keys]
    freed = _rows(inside, spine, level, [unit], np.ones(schema.size, dtype=bool))
    same = np.array([at for at, key in enumerate(freed.keys) if key in set(rows.keys)], dtype=np.int64)
    if freed.system.pick(same).holds():
        zeros = ", ".join(repr(zero.name) for zero in schema.structural_zeros)
        found.append(Problem(f"structural zeros {zeros}", "leave no cell that could serve the facts named here"))
    return found


def _holds_at(declared: Sequence[Declared], spine: Spine, level: str, unit: int, schema: Schema) -> bool:
    return _rows(declared, spine, level, [unit], schema.possible).system.holds()


def _named(one: Declared, spine: Spine, unit: int, answer: int, together: int) -> Problem:
    query = one.fact.query
    geocode, name = spine.geocodes(one.level)[unit], answer_names(query)[answer]
    where = f"{one.level} {geocode}, query {query.name!r}, answer {name!r}"
    value = f" {one.fact.values[unit, answer]}" if one.shown else " as counted"
    others = f"the {together - 1} others" if together > 2 else "the other"
    with_whom = f"with {others} named here" if together > 1 else "at all"
    return Problem(where, f"{_SIGNS[one.fact.sign]}{value} ({one.source}); this cannot hold {with_whom}", _REMEDY)


def _numbers(declared: Sequence[Declared], spine: Spine, level: str, unit: int, schema: Schema) -> int:
    lowest = max((spine.levels.index(each.level) for each in declared), default=0)
    first, last = _below(spine, level, range(unit, unit + 1), lowest)
    return (last - first) * len(_kinds(declared, schema.possible))


def _below(spine: Spine, level: str, units: Sequence[int], lowest: int) -> tuple[int, int]:
    """Give the range of descendants at a level of some neighbouring geounits."""
    first, last = units[0], units[-1] + 1
    for at in range(spine.levels.index(level), lowest):
        offsets = spine.first_child(spine.levels[at])
        first, last = int(offsets[first]), int(offsets[last])
    return first, last


def _kinds(declared: Sequence[Declared], possible: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Give one cell for each way in which a cell can count towards the answers in question."""
    cells = np.flatnonzero(possible)
    seen = np.stack([each.fact.query.index[cells] for each in declared], axis=1)
    return np.asarray(cells[np.unique(seen, axis=0, return_index=True)[1]])


def _rows(
    declared: Sequence[Declared], spine: Spine, level: str, units: Sequence[int], possible: NDArray[np.bool_]
) -> _Rows:
    """Write the facts about some neighbouring geounits and what is below them as rows on the lowest level's tables."""
    cells = _kinds(declared, possible)
    lowest = max(spine.levels.index(each.level) for each in declared)
    first, last = _below(spine, level, units, lowest)
    ancestor = {lowest: np.arange(first, last)}
    for at in range(lowest, spine.levels.index(level), -1):
        ancestor[at - 1] = spine.parent(spine.levels[at])[ancestor[at]]
    matrices, lower, upper = [], [], []
    keys: list[tuple[int, int, int]] = []
    for number, each in enumerate(declared):
        query, owner = each.fact.query, ancestor[spine.levels.index(each.level)]
        (limit,) = limits_of((each.fact,), slice(int(owner[0]), int(owner[-1]) + 1))
        row = ((owner - owner[0])[:, None] * query.size + query.index[cells]).reshape(-1)
        shape = (limit.lower.size, len(row))
        matrix = sparse.csr_array((np.ones(len(row)), (row, np.arange(len(row)))), shape)
        says = np.flatnonzero((limit.lower > 0) | (limit.upper < NO_LIMIT))
        matrices.append(matrix[says])
        lower.append(limit.lower.reshape(-1)[says])
        upper.append(limit.upper.reshape(-1)[says])
        keys += [(number, int(owner[0]) + row // query.size, row % query.size) for row in says.tolist()]
    return _Rows(System(sparse.vstack(matrices, format="csr"), np.concatenate(lower), np.concatenate(upper)), keys)
