"""What is verified of a release before it is called one, piece by piece: a runner spreads the pieces over workers.

Two kinds of pieces. Files are hashed, and compared with what the stages recorded. Runs of neighbouring shards are read:
whether counts conform, which noise is stated, and what the facts give away. Each piece gives a small summary; only the
summaries come together in one process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from das.accounting.vacuity import NestedTotals
from das.errors import Problem
from das.plan.plan import Plan
from das.release.audit import KnownCells, Stated, classes_in, known_cells_in, stated_in
from das.release.conformance import Broken, broken_in, problems_of
from das.release.crossing import crossed_in
from das.release.manifest import Entry, entry_of, names_of
from das.release.published_shards import PublishedShards
from das.storage.layout import ReleaseFolder
from das.storage.shards import Shard
from das.storage.staging import committed

__all__ = [
    "FileRun",
    "ShardRun",
    "Verified",
    "hash_run",
    "recorded_files",
    "runs_of_files",
    "runs_of_shards",
    "stage_folders",
    "verify_run",
]

SHARDS_TOGETHER = 8
"""Neighbours, which have the same parents: these are read once for all of them."""
FILES_TOGETHER, BYTES_TOGETHER = 256, 1 << 28


@dataclass(frozen=True, slots=True)
class ShardRun:
    """Neighbouring shards of a level, by number."""

    level: str
    first: int
    stop: int


def runs_of_shards(published: PublishedShards) -> list[ShardRun]:
    """All shards of a release, level by level."""
    return [
        ShardRun(level, first, min(first + SHARDS_TOGETHER, len(shards)))
        for level in published.plan.levels
        for shards in [published.of(level)]
        for first in range(0, len(shards), SHARDS_TOGETHER)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What reading shards has shown: broken promises, stated noise, and what the public facts determine."""

    broken: Broken
    stated: tuple[Stated, ...]
    classes: NestedTotals
    known: KnownCells
    crossed: bool

    @classmethod
    def of(cls, parts: Iterable[Verified]) -> Verified:
        """Put the summaries of shards together; they come level by level."""
        found = list(parts)
        return cls(
            broken=Broken(
                *(
                    tuple(dict.fromkeys(chain.from_iterable(getattr(each.broken, kind) for each in found)))
                    for kind in Broken.__slots__
                )
            ),
            stated=tuple(dict.fromkeys(chain.from_iterable(each.stated for each in found))),
            classes=sum((each.classes for each in found), NestedTotals()),
            known=KnownCells.of(each.known for each in found),
            crossed=any(each.crossed for each in found),
        )

    @property
    def problems(self) -> list[Problem]:
        """Each broken promise about the counts, named once."""
        return problems_of([self.broken])

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Verified:
        """Read what :meth:`to_json` gave."""
        broken = {kind: tuple(Problem(**problem) for problem in content["broken"][kind]) for kind in Broken.__slots__}
        known = content["known"]
        parted = tuple((unit, tuple(left), tuple(held)) for unit, left, held in known["parted"])
        return cls(
            broken=Broken(**broken),
            stated=tuple(tuple(stated) for stated in content["stated"]),
            classes=NestedTotals(**content["classes"]),
            known=KnownCells(known["empty"], known["alone"], parted),
            crossed=content["crossed"],
        )


def verify_run(published: PublishedShards, run: ShardRun) -> Verified:
    """Read some shards, one at a time."""
    return Verified.of(_verified(published, shard) for shard in published.of(run.level)[run.first : run.stop])


def _verified(published: PublishedShards, shard: Shard) -> Verified:
    mechanism = published.release.mechanism(published.plan)
    return Verified(
        broken=broken_in(published, shard),
        stated=tuple(stated_in(published.plan, shard.level, shard.path(mechanism))),
        classes=classes_in(published, shard),
        known=known_cells_in(published, shard),
        crossed=crossed_in(published, shard),
    )


@dataclass(frozen=True, slots=True)
class FileRun:
    """Some files of a release by name, each with the SHA-256 that its stage recorded, if it did."""

    files: tuple[tuple[str, str | None], ...]


def recorded_files(plan: Plan, release: ReleaseFolder) -> dict[str, str]:
    """The SHA-256 of each file that a stage has made durable, by its name in the release."""
    return {
        f"{folder.name}/{name}": file["sha256"]
        for folder in stage_folders(plan, release)
        for name, file in ((committed(folder) or {}).get("files") or {}).items()
    }


def runs_of_files(release: ReleaseFolder, recorded: Mapping[str, str]) -> list[FileRun]:
    """All files in the folders of a release, so many together that hashing them takes about as long."""
    runs: list[FileRun] = []
    held: list[tuple[str, str | None]] = []
    size = 0
    for name in names_of(release):
        if "/" in name:
            held.append((name, recorded.get(name)))
            size += (release.path / name).stat().st_size
            if size >= BYTES_TOGETHER or len(held) >= FILES_TOGETHER:
                runs.append(FileRun(tuple(held)))
                held, size = [], 0
    return [*runs, *([FileRun(tuple(held))] if held else [])]


def hash_run(release: ReleaseFolder, run: FileRun) -> dict[str, Entry]:
    """Hash some files, one at a time."""
    return {name: entry_of(release, name) for name, _ in run.files}


def stage_folders(plan: Plan, release: ReleaseFolder) -> list[Path]:
    """The folders that the stages of a plan commit."""
    folders = [release.facts, release.counts, release.tables, release.microdata]
    if plan.mechanism_stage.measures:
        folders.append(release.measurements)
        if plan.settings.estimate.information == "full":
            folders.append(release.estimates)
    return folders
