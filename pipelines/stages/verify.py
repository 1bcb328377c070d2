"""Verification of a release as Beam steps: files are hashed, then shards are read; only summaries come back.

Summaries are written as files, because a runner gives the driver nothing but counters. If a file is not what its stage
recorded, no shard is read: the driver will say which one it was.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam

from das.release.manifest import Entry
from das.release.published_shards import PublishedShards
from das.release.verification import FileRun, ShardRun, Verified, hash_run, verify_run
from das.storage.files import write_atomically
from das.storage.layout import ReleaseFolder
from das.storage.staging import SCRATCH
from pipelines.elements.arrays import Arrays, Join, Joined
from pipelines.elements.context import WorkerContext
from pipelines.elements.messages import Keyed
from pipelines.workers.errors import reporting_errors
from pipelines.workers.step_timer import timed

__all__ = ["VerifyRelease", "forget_hashes", "hashed_files", "verified_shards"]

HASHED, READ = "hashed", "read"


class VerifyRelease(beam.PTransform):
    """Hash the files, and read the shards if none of them has changed."""

    def __init__(
        self, work: WorkerContext, release: ReleaseFolder, files: Sequence[FileRun], shards: Sequence[ShardRun]
    ) -> None:
        super().__init__()
        self.work, self.release, self.files, self.shards = work, release, files, shards

    def expand(self, start: beam.pvalue.PBegin) -> beam.PCollection[str]:
        """Build the steps: reading waits for all hashes."""
        numbered = list(enumerate(self.files))
        hashing = HashFiles(self.work, self.release, len(self.shards))
        changed = (
            start
            | "files" >> beam.Create(numbered)
            | "spread files" >> beam.Reshuffle()
            | "hash files" >> beam.ParDo(hashing).with_output_types(Keyed)
        )
        runs = start | "shards" >> beam.Create(
            [(number, Arrays({})) for number in range(len(self.shards))]
        ).with_output_types(Keyed)
        joined = {"run": runs, "changed": changed} | "wait for hashes" >> Join()
        return joined | "read shards" >> beam.ParDo(ReadShards(self.work, self.release, self.shards))


class HashFiles(beam.DoFn):
    """Hash some files and write their hashes down; a file that has changed is told to every run of shards."""

    def __init__(self, work: WorkerContext, release: ReleaseFolder, runs: int) -> None:
        self.work, self.release, self.runs = work, release, runs

    @timed(lambda self, element: "hash files")
    def process(self, element: tuple[int, FileRun]) -> Iterator[Keyed]:
        """Yield a message to every run of shards if a file has changed, and nothing otherwise."""
        number, run = element
        found = hash_run(self.release, run)
        _write(self.work.partial, HASHED, number, found)
        if any(found[name]["sha256"] != recorded for name, recorded in run.files if recorded is not None):
            for each in range(self.runs):
                yield each, Arrays({})


class ReadShards(beam.DoFn):
    """Read some shards and write their summary, unless an interrupted run has done so."""

    published: PublishedShards

    def __init__(self, work: WorkerContext, release: ReleaseFolder, shards: Sequence[ShardRun]) -> None:
        self.work, self.release, self.shards = work, release, shards

    def setup(self) -> None:
        """Open the release."""
        self.published = PublishedShards(self.work.plan, self.release, self.work.spine)

    @timed(lambda self, element: f"verify {self.shards[element[0]].level}")
    def process(self, element: Joined) -> Iterator[str]:
        """Yield the level of the shards that were read."""
        number, joined = element
        if any(True for _ in joined["changed"]) or _path(self.work.partial, READ, number).exists():
            return
        with reporting_errors(self.work.partial):
            found = verify_run(self.published, self.shards[number])
        _write(self.work.partial, READ, number, found.to_json())
        yield self.shards[number].level


def forget_hashes(partial: Path) -> None:
    """Remove hashes of an interrupted run: a file may have changed since."""
    for path in (partial / SCRATCH).glob(f"{HASHED}-*"):
        path.unlink()


def hashed_files(partial: Path, runs: int) -> dict[str, Entry]:
    """The hashes that workers have written down."""
    found: dict[str, Entry] = {}
    for number in range(runs):
        found |= json.loads(_path(partial, HASHED, number).read_bytes())
    return found


def verified_shards(partial: Path, runs: int) -> Verified:
    """What workers have read, together."""
    summaries = (json.loads(_path(partial, READ, number).read_bytes()) for number in range(runs))
    return Verified.of(map(Verified.from_json, summaries))


def _write(partial: Path, kind: str, number: int, content: Any) -> None:
    path = _path(partial, kind, number)
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, json.dumps(content).encode())


def _path(partial: Path, kind: str, number: int) -> Path:
    return partial / SCRATCH / f"{kind}-{number}"
