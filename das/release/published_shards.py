"""The shards of a release's files, read one at a time: what is held does not grow with the release."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from das.facts.fact import Fact
from das.facts.file import read_facts
from das.plan.for_accountant import hierarchical_plan
from das.plan.plan import Plan, numbers_per_unit
from das.schema.counts import ProtectedCounts
from das.storage.counts import read_counts
from das.storage.layout import ReleaseFolder
from das.storage.shards import Shard, shards_of
from geography import Spine

__all__ = ["PublishedShards"]

KEPT_OPEN = 2
"""Shards of a level above that are kept: neighbours have the same parents."""


class PublishedShards:
    """Counts and facts of a release by shard, and the way from a geounit to its ancestors and to its leaves.

    Parameters
    ----------
    plan, release, spine
        What was planned, where it lies, and its geography; ``whole`` is the plan as the accountant reads it.
    """

    def __init__(self, plan: Plan, release: ReleaseFolder, spine: Spine) -> None:
        self.plan, self.release, self.spine = plan, release, spine
        self.whole = hierarchical_plan(plan, spine)
        self._shards: dict[str, tuple[Shard, ...]] = {}
        self._counts = {level: lru_cache(KEPT_OPEN)(self._read_counts) for level in plan.levels}
        self._facts = {level: lru_cache(KEPT_OPEN)(self._read_facts) for level in plan.levels}

    def of(self, level: str) -> tuple[Shard, ...]:
        """The shards of a level."""
        if level not in self._shards:
            self._shards[level] = tuple(shards_of(self.spine, level, numbers_per_unit(self.plan.at(level))))
        return self._shards[level]

    def counts(self, shard: Shard) -> ProtectedCounts:
        """The counts of a shard, by position in its level."""
        return self._counts[shard.level](shard)

    def facts(self, shard: Shard) -> tuple[Fact, ...]:
        """The facts of a shard; none where it has no file."""
        return self._facts[shard.level](shard)

    def overlapping(self, level: str, start: int, stop: int) -> Sequence[Shard]:
        """The shards of a level that hold geounits from ``start`` to before ``stop``."""
        shards = self.of(level)
        first, last = (bisect_right(shards, unit, key=lambda each: each.start) for unit in (start, stop - 1))
        return shards[first - 1 : last]

    def facts_within(self, level: str, start: int, stop: int) -> list[Fact]:
        """The facts of the geounits from ``start`` to before ``stop``."""
        parts: dict[tuple[str, str], list[Fact]] = {}
        for shard in self.overlapping(level, start, stop):
            here = slice(max(start, shard.start) - shard.start, min(stop, shard.stop) - shard.start)
            for fact in self.facts(shard):
                part = Fact(fact.query, fact.sign, fact.values[here])
                parts.setdefault((fact.query.name, fact.sign), []).append(part)
        return [
            Fact(found[0].query, found[0].sign, np.concatenate([part.values for part in found]))
            for found in parts.values()
        ]

    def ancestors(self, level: str, start: int, stop: int) -> dict[str, NDArray[np.int64]]:
        """For each level down to this one, the ancestor of each geounit from ``start`` to before ``stop``."""
        levels = self.plan.levels[: self.plan.levels.index(level) + 1]
        unit: NDArray[np.int64] = np.arange(start, stop)
        found = {level: unit}
        for below, above in zip(levels[::-1], levels[-2::-1], strict=False):
            found[above] = unit = self.spine.parent(below)[unit]
        return found

    def leaves(self, level: str, start: int, stop: int) -> NDArray[np.int64]:
        """How many leaves each geounit from ``start`` to before ``stop`` has."""
        offsets = np.arange(start, stop + 1)
        for each in self.plan.levels[self.plan.levels.index(level) : -1]:
            offsets = self.spine.first_child(each)[offsets]
        return np.diff(offsets)

    def _read_counts(self, shard: Shard) -> ProtectedCounts:
        return read_counts(self.spine, shard.level, shard.path(self.release.counts))

    def _read_facts(self, shard: Shard) -> tuple[Fact, ...]:
        path = shard.path(self.release.facts)
        return read_facts(self.plan, path) if path.exists() else ()
