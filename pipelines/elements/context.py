"""The context of a worker, by path rather than by value: the plan travels, and the spine is mapped from a file.

A worker looks at its own part of the spine, and only that is read; workers of one machine share it.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from das.estimation.linear.basis import Basis
from das.plan.plan import Plan, numbers_per_unit
from das.storage.files import write_atomically
from das.storage.shards import Shard, shards_of
from das.storage.staging import SCRATCH
from geography import Spine

__all__ = ["MAPPED", "WorkerContext", "basis_of"]

MAPPED = ".arrow"
"""How the name of a file ends that :meth:`geography.Spine.write_mapped` wrote."""


@lru_cache(maxsize=4)
def _spine(path: Path, _changed: int) -> Spine:
    return Spine.mapped(path) if path.suffix == MAPPED else Spine.load(path)


@lru_cache(maxsize=64)
def _parts(path: Path, changed: int, level: str, numbers: int) -> tuple[Shard, ...]:
    return tuple(shards_of(_spine(path, changed), level, numbers))


_BASES: dict[str, Basis] = {}


def basis_of(plan: Plan) -> Basis:
    """The basis of all queries that a plan measures or that something is known of, made once per process."""
    if plan.digest not in _BASES:
        queries = [*(m.query for m in plan.measurements), *plan.limited_queries]
        _BASES[plan.digest] = Basis.of(plan.schema, queries, plan.limited_queries)
    return _BASES[plan.digest]


_PACKED: list[tuple[Plan, bytes]] = []


def _packed(plan: Plan) -> bytes:
    """The plan as bytes; those of the last plan are kept, because each step of a stage asks for them."""
    if not _PACKED or _PACKED[0][0] is not plan:
        _PACKED[:] = [(plan, zlib.compress(pickle.dumps(plan), 1))]
    return _PACKED[0][1]


@lru_cache(maxsize=4)
def _unpacked(content: bytes) -> Plan:
    plan: Plan = pickle.loads(zlib.decompress(content))
    return plan


def _context_of(content: bytes, spine_path: Path, partial: Path, kept: Path | None) -> WorkerContext:
    return WorkerContext(_unpacked(content), spine_path, partial, kept)


@dataclass(frozen=True)
class WorkerContext:
    """A plan, where its spine lies, and the partial folder of the stage that is being written.

    ``kept`` is a confidential folder for what steps before the wall keep of an interrupted run, if they do.
    """

    plan: Plan
    spine_path: Path
    partial: Path
    kept: Path | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel with the plan as bytes: every step has a context, and all steps of a process share one plan."""
        return _context_of, (_packed(self.plan), self.spine_path, self.partial, self.kept)

    @classmethod
    def mapping(cls, plan: Plan, spine_path: Path, partial: Path) -> WorkerContext:
        """Make the spine of a Parquet file ready to be mapped, for as long as a stage lasts."""
        mapped = partial / SCRATCH / f"spine{MAPPED}"
        if not mapped.exists():
            mapped.parent.mkdir(exist_ok=True)
            write_atomically(mapped, Spine.load(spine_path).write_mapped)
        return cls(plan, mapped, partial)

    @property
    def full(self) -> bool:
        """Whether estimation uses the measurements of all levels at once."""
        return self.plan.settings.estimate.information == "full"

    @property
    def basis(self) -> Basis:
        """The basis of all queries that are measured or known, made once per process."""
        return basis_of(self.plan)

    @property
    def spine(self) -> Spine:
        """The spine, opened once per process."""
        return _spine(self.spine_path, self.spine_path.stat().st_mtime_ns)

    def shards(self, level: str) -> tuple[Shard, ...]:
        """The shards into which a level's files are cut; the same for every stage, so that shard i reads shard i."""
        numbers = numbers_per_unit(self.plan.at(level))
        return _parts(self.spine_path, self.spine_path.stat().st_mtime_ns, level, numbers)

    def steps(self, name: str, levels: Sequence[str] | None = None) -> dict[str, int]:
        """How many elements a step has that works on each shard of some levels, or of all, once."""
        return {f"{name} {level}": len(self.shards(level)) for level in levels or self.plan.levels}

    def all_shards(self) -> list[Shard]:
        """Every shard of every level, top-down."""
        return [shard for level in self.plan.levels for shard in self.shards(level)]
