"""Read back the noise that published files state, and count what public facts determine: shard by shard."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from das.accounting.events import Event
from das.accounting.hierarchy import finest_invariant
from das.accounting.vacuity import NestedTotals
from das.errors import BudgetError, Problem
from das.noise.mechanisms import MECHANISMS, mechanism_of
from das.plan.plan import Plan
from das.release.published_shards import PublishedShards
from das.schema.query import Query, parse_query
from das.storage.counts import stated_noise
from das.storage.layout import ReleaseFolder
from das.storage.shards import Shard

__all__ = ["KnownCells", "Stated", "classes_in", "events_of", "known_cells_in", "measured_events", "stated_in"]

Stated = tuple[str, ...]
"""Level, query, column and parameter of a measurement, as a file states them."""


def measured_events(plan: Plan, release: ReleaseFolder) -> list[Event]:
    """List each (level, query) with the exact noise parameter that its files state; reads one file at a time."""

    def stated() -> Iterable[Stated]:
        for level in plan.levels:
            path = release.mechanism(plan) / f"{level}.parquet"
            for file in [path] if path.is_file() else sorted(path.iterdir()):
                yield from stated_in(plan, level, file)

    return events_of(stated())


def events_of(stated: Iterable[Stated]) -> list[Event]:
    """The events that files state, each once; shards that differ are all listed."""
    return [mechanism_of(column, value).event(*measured) for *measured, column, value in dict.fromkeys(stated)]


def stated_in(plan: Plan, level: str, file: Path) -> list[Stated]:
    """What noise one file of the mechanism states."""
    return _STATED[plan.mechanism_stage.folder](level, file)


def _stated_by_column(level: str, file: Path) -> list[Stated]:
    """Level, query, column and parameter of each query, as the rows of a measurement file state them."""
    columns = [name for name in pq.read_schema(file).names if name in MECHANISMS]
    if len(columns) != 1:
        reason = f"states {' and '.join(columns) or 'no parameter'} of a known mechanism, and must state one"
        raise BudgetError(Problem(f"{level}.parquet", reason, "do not publish; find out what ran"))
    stated = pq.read_table(file, columns=["query", *columns], read_dictionary=["query", *columns])
    distinct = stated.group_by(stated.column_names, use_threads=False).aggregate([]).to_pylist()
    return [(level, found["query"], columns[0], found[columns[0]]) for found in distinct]


_STATED: dict[str, Callable[[str, Path], list[Stated]]] = {
    "measurements": _stated_by_column,
    "counts": lambda level, file: [tuple(noise) for noise in stated_noise(file)],
}
"""How the files of a mechanism's folder state their noise."""


def classes_in(published: PublishedShards, shard: Shard) -> NestedTotals:
    """Classes of people in a shard of the finest invariant's level; none in a shard of another.

    A class is one answer of the finest invariant in one geounit. It holds as many cells as the geounit has leaves,
    times the attribute cells of the answer; with a single cell, or with nobody, it is disclosed exactly.
    """
    finest = finest_invariant(published.whole)
    if not isinstance(finest, tuple) or finest[0] != shard.level:
        return NestedTotals()
    query = parse_query(published.plan.schema, finest[1])
    per_answer = np.bincount(query.index[published.plan.schema.possible], minlength=query.size)
    cells = np.outer(published.leaves(shard.level, shard.start, shard.stop), per_answer).reshape(-1)
    totals = _exact(published, finest, shard.start, shard.stop).reshape(-1)
    return NestedTotals.of(totals[cells > 0], cells[cells > 0])


def _exact(published: PublishedShards, finest: tuple[str, str], start: int, stop: int) -> NDArray[np.int64]:
    """Public answers of the finest invariant."""
    facts = published.facts_within(finest[0], start, stop)
    return next(fact.values for fact in facts if fact.query.name == finest[1] and fact.sign == "=")


Parted = tuple[int, tuple[int, ...], tuple[int, ...]]
"""A geounit of the finest invariant's level, the cells that are left of each answer in one shard of its leaves, at most
two, and whether somebody is counted there."""


@dataclass(frozen=True, slots=True)
class KnownCells:
    """Cells of leaves whose counts readers know from the public facts.

    ``empty``: cells that a published zero empties, an exact one or an upper bound, at the leaf or above it; ``alone``:
    cells that are the only one left of a published total that is not zero; ``parted``: geounits whose leaves are in
    several shards, so that only all of these together say what is left of their totals.
    """

    empty: int = 0
    alone: int = 0
    parted: tuple[Parted, ...] = ()

    @classmethod
    def of(cls, parts: Iterable[KnownCells]) -> KnownCells:
        """Add up what shards say."""
        found = list(parts)
        together: dict[int, Parted] = {}
        for unit, remaining, held in chain.from_iterable(each.parted for each in found):
            before = together[unit][1] if unit in together else (0,) * len(remaining)
            together[unit] = unit, tuple(min(2, a + b) for a, b in zip(before, remaining, strict=True)), held
        return cls(sum(each.empty for each in found), sum(each.alone for each in found), tuple(together.values()))

    @property
    def exact(self) -> int:
        """The only cells that are left of published totals, once all shards are in."""
        pairs = chain.from_iterable(zip(left, held, strict=True) for _, left, held in self.parted)
        return self.alone + sum(1 for left, held in pairs if left == 1 and held)


def known_cells_in(published: PublishedShards, shard: Shard) -> KnownCells:
    """Count the cells that are known of a shard's leaves; none in a shard of another level."""
    plan = published.plan
    if shard.level != plan.levels[-1]:
        return KnownCells()
    above = published.ancestors(shard.level, shard.start, shard.stop)
    zeros, asked = [], []
    for level in plan.levels:
        unit = above[level]
        for fact in published.facts_within(level, int(unit[0]), int(unit[-1]) + 1):
            if fact.sign in ("=", "<="):
                zeros.append((fact.values == 0)[unit - unit[0]])
                asked.append(fact.query)
    patterns, which = _patterns(zeros, shard.stop - shard.start)
    possible = plan.schema.possible.reshape(-1)
    known = [_emptied(row, asked, plan.schema.size) for row in patterns]
    emptied = np.array([int((mask & possible).sum()) for mask in known])
    empty = int(emptied[which].sum())
    finest = finest_invariant(published.whole)
    if not isinstance(finest, tuple):
        return KnownCells(empty)
    query, unit = parse_query(plan.schema, finest[1]), above[finest[0]]
    left = np.array([np.bincount(query.index[possible & ~mask], minlength=query.size) for mask in known])
    begins = np.flatnonzero(np.diff(unit, prepend=-1))
    remaining = np.add.reduceat(left[which], begins, axis=0)
    held = _exact(published, finest, int(unit[0]), int(unit[-1]) + 1) > 0
    parted = _parted(published, shard, finest[0], unit)
    exact = ((remaining == 1) & held)[~parted]
    return KnownCells(
        empty,
        int(exact.sum()),
        tuple(
            (int(unit[begins[at]]), tuple(np.minimum(remaining[at], 2).tolist()), tuple(held[at].astype(int).tolist()))
            for at in np.flatnonzero(parted).tolist()
        ),
    )


def _parted(published: PublishedShards, shard: Shard, level: str, unit: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which ancestors of a shard's leaves have leaves outside of it: the first or the last, if any."""
    parted = np.zeros(int(unit[-1] - unit[0]) + 1, dtype=np.bool_)
    before, after = max(0, shard.start - 1), min(shard.stop + 1, published.spine.size(shard.level))
    around = published.ancestors(shard.level, before, after)[level]
    parted[0] |= before < shard.start and around[0] == unit[0]
    parted[-1] |= after > shard.stop and around[-1] == unit[-1]
    return parted


def _emptied(row: NDArray[np.bool_], asked: list[Query], cells: int) -> NDArray[np.bool_]:
    """Cells that one pattern of published zeros empties."""
    mask, start = np.zeros(cells, dtype=np.bool_), 0
    for query in asked:
        mask |= row[start : start + query.size][query.index]
        start += query.size
    return mask


def _patterns(zeros: list[NDArray[np.bool_]], leaves: int) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Different rows of what is known to be zero, and which of them each leaf has; there are few of them."""
    if not zeros:
        return np.zeros((1, 0), dtype=np.bool_), np.zeros(leaves, dtype=np.intp)
    rows, which = np.unique(np.concatenate(zeros, axis=1), axis=0, return_inverse=True)
    return rows, which.reshape(-1)
