"""What intervals are computed from: the public files of one release, read as far as a question needs them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from das.errors import Problem, UsageError
from das.estimation.linear.basis import Basis
from das.estimation.linear.blue import Exact
from das.estimation.linear.covariances import Covariances, LevelFacts, sweep_covariances
from das.estimation.linear.exact_zeros import known_zeros
from das.estimation.linear.selected import sees_unseen
from das.facts.fact import Fact, limits_of
from das.facts.file import read_facts
from das.inference.intervals.asked import ask
from das.plan.load import load
from das.plan.plan import Measurement, Plan, numbers_per_unit
from das.storage.layout import ReleaseFolder
from das.storage.shards import Shard, read_parquet, shards_of
from geography import Areas, Spine, read_areas

__all__ = ["LARGEST_BLOCK", "PublicFiles"]

LARGEST_BLOCK = 400
"""Largest block for which covariances of a whole spine are worked out: its cost grows with the cube."""


@dataclass(frozen=True)
class PublicFiles:
    """The files of a release folder, without any confidential one."""

    folder: ReleaseFolder
    given: Plan | None = None

    @cached_property
    def plan(self) -> Plan:
        """The plan, from the resolved config unless it was given."""
        return self.given or load(self.folder.config)

    @cached_property
    def spine(self) -> Spine:
        """The spine."""
        return Spine.load(self.folder.facts / "spine.parquet")

    @cached_property
    def basis(self) -> Basis:
        """The basis of all queries that are measured or known."""
        if self.coupled > LARGEST_BLOCK:
            reason = f"couple {self.coupled} sums of cells, and covariances are worked out up to {LARGEST_BLOCK}"
            raise UsageError(Problem("its queries", reason, "ask for the numbers that you need with `das query`"))
        return self._whole_basis

    @property
    def coupled(self) -> int:
        """How many sums of cells the queries couple: the size of the largest block."""
        return math.prod(axis.shared for axis in self._whole_basis.axes)

    @cached_property
    def _whole_basis(self) -> Basis:
        plan = self.plan
        queries = [*(m.query for m in plan.measurements), *plan.limited_queries]
        return Basis.of(plan.schema, queries, plan.limited_queries)

    def notes(self) -> tuple[str, ...]:
        """What a reader should know of every answer."""
        if not self.plan.published:
            return ()
        fixed = ", ".join(f"{each.query.name!r} at {each.level}" for each in self.plan.published)
        return (f"counts of an earlier release ({fixed}) are kept as published; no interval covers their own noise",)

    def estimable(self, level: str) -> list[str]:
        """Measured queries that can be estimated at a level."""
        seen = self.covariances.seen(level)
        names = dict.fromkeys(m.query.name for m in self.plan.measurements)
        return [name for name in names if not sees_unseen(self.basis, ask(self.plan.schema, name).factors, seen)]

    @cached_property
    def covariances(self) -> Covariances:
        """Covariances of all linear estimates: from the plan, the spine and the facts."""
        return sweep_covariances(self.basis, self.spine, {level: self.level_facts(level) for level in self.plan.levels})

    def level_facts(self, level: str) -> LevelFacts:
        """What covariances depend on at one level."""
        if level not in self._level_facts:
            self._level_facts[level] = self._read_level_facts(level)
        return self._level_facts[level]

    @cached_property
    def _level_facts(self) -> dict[str, LevelFacts]:
        return {}

    def _read_level_facts(self, level: str) -> LevelFacts:
        units = self.spine.size(level)
        facts = self.facts(level)
        return LevelFacts(
            measured=[(m.query, m.mechanism.variance()) for m in self.measured(level)],
            exact=[Exact(fact.query, fact.values) for fact in facts if fact.sign == "="],
            zeros=known_zeros(self.basis, limits_of(facts, slice(None)), units),
        )

    def measured(self, level: str) -> tuple[Measurement, ...]:
        """The measurements of one level."""
        return self.plan.at(level)

    def facts(self, level: str) -> tuple[Fact, ...]:
        """The facts of one level, its shards put together."""
        paths = [shard.path(self.folder.facts) for shard in self.shards(level)]
        parts = [read_facts(self.plan, path) for path in paths if path.exists()]
        if not parts:
            return ()
        return tuple(
            Fact(same[0].query, same[0].sign, np.concatenate([fact.values for fact in same]))
            for same in zip(*parts, strict=True)
        )

    def shards(self, level: str) -> list[Shard]:
        """The shards of a level."""
        if level not in self._shards:
            self._shards[level] = shards_of(self.spine, level, numbers_per_unit(self.plan.at(level)))
        return self._shards[level]

    @cached_property
    def _shards(self) -> dict[str, list[Shard]]:
        return {}

    def touched(self, level: str, units: NDArray[np.int64]) -> Iterator[tuple[Shard, NDArray[np.int64]]]:
        """Yield each shard that holds some of the geounits, with their positions in ``units``."""
        shards = self.shards(level)
        which = np.searchsorted([shard.start for shard in shards], units, side="right") - 1
        for index in np.unique(which).tolist():
            yield shards[index], np.flatnonzero(which == index)

    def estimates(self, shard: Shard) -> NDArray[np.float32]:
        """Linear estimates of a shard: geounits x numbers, measured queries side by side, from the published files."""
        table = read_parquet(shard.path(self.folder.estimates), ["estimate"])
        return _flat(table["estimate"]).reshape(shard.stop - shard.start, -1)

    def areas(self, kind: str) -> Areas:
        """The areas of a kind that the release tabulates, from its own copy of their members."""
        path = self.folder.area_members / f"{kind}.parquet"
        if not path.exists():
            raise UsageError(Problem(kind, "has no file of members in this release", "name one with --areas"))
        return read_areas(path, self.spine)

    def read_areas(self, path: Path) -> Areas:
        """Areas of a user's own file: columns ``area`` and ``geocode``, one row per leaf."""
        return read_areas(path, self.spine)


def _flat(column: pa.ChunkedArray) -> NDArray[np.float32]:
    """All numbers of a column of lists."""
    return np.concatenate([chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks])
