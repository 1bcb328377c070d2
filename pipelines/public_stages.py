"""The stages after the wall: from what the mechanism released and the public facts, and from nothing else.

They run in a process of their own, which the kernel keeps from every confidential file
(:mod:`pipelines.wall.confinement`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import apache_beam as beam

from das.errors import BudgetError, Problem, UsageError
from das.exact import digest_of
from das.plan.geography import areas_of
from das.plan.plan import Plan
from das.release.estimates import LABELS, table_of_labels
from das.release.finish import begin_statement, is_finished, require_as_committed, write_statement
from das.release.manifest import names_of, versions
from das.release.published_shards import PublishedShards
from das.release.table_tasks import INTERVALS, table_tasks
from das.release.verification import recorded_files, runs_of_files, runs_of_shards
from das.runner import Progress, StageTime, Stopwatch
from das.storage.files import sha256_file
from das.storage.layout import ReleaseFolder
from das.storage.run_identity import RunRecord
from das.storage.shards import parquet_bytes
from das.storage.staging import Staging, committed, verify
from pipelines.elements.context import WorkerContext
from pipelines.runners import is_multi_process
from pipelines.runners.preflight import beam_silenced
from pipelines.stage_runner import PUBLIC, StageRunner, require_unchanged, require_written
from pipelines.stages.estimate import DownSweep
from pipelines.stages.publish import PublishRecords, PublishTable, join_records, write_area_members
from pipelines.stages.verify import VerifyRelease, forget_hashes, hashed_files, verified_shards
from pipelines.wall.confinement import KINDS, Confinement, Wall, weakest
from pipelines.workers import process_pool
from pipelines.workers.forking import ForkServer

__all__ = ["PublicStages", "PublicWork", "run_public_stages"]


@dataclass(frozen=True, slots=True)
class PublicWork:
    """All that crosses the wall: what is to be done, and what may be published about the run.

    Parameters
    ----------
    plan : Plan
        The plan.
    release : ReleaseFolder
        Where measurements and facts are read and everything else is written.
    options : tuple of str
        Beam's.
    stages : tuple of str
        Which stages to run.
    seeded : bool
        Whether noise came from a testing key.
    record : RunRecord or None
        What the statement publishes about the run; None if the statement is not to be written.
    """

    plan: Plan
    release: ReleaseFolder
    options: tuple[str, ...]
    stages: tuple[str, ...]
    seeded: bool
    record: RunRecord | None


def run_public_stages(work: PublicWork, confinement: Confinement, *, progress: Progress, stopwatch: Stopwatch) -> None:
    """Confine this process for good, then run the stages; called in a process that does nothing else."""
    wall = confinement.enforce()
    if is_multi_process(work.options):
        process_pool.use(ForkServer.forked())  # its workers are as confined as this process
    options = [*work.options]
    if confinement.network:  # workers of a cluster confine themselves, by the same means
        options.append(f"--das_confinement={json.dumps(confinement.to_json() | {'kind': wall.kind})}")
    with beam_silenced():
        stages = PublicStages(work, options, confinement, wall, progress)
        for stage in work.stages:
            begun = perf_counter()
            getattr(stages, stage)()
            stopwatch(StageTime(stage=stage, seconds=perf_counter() - begun, **stages.spent.pop(stage, {})))


class PublicStages(StageRunner):
    """``estimate``, ``publish`` and ``report``. Each asks first whether it already happened."""

    def __init__(
        self, work: PublicWork, options: Sequence[str], confinement: Confinement, wall: Wall, progress: Progress
    ) -> None:
        super().__init__(work.plan, work.release, options, progress)
        self.seeded, self.record, self.confinement, self.wall = work.seeded, work.record, confinement, wall

    def estimate(self) -> None:
        """Conforming integer counts, from measurements and facts alone; a congenial draw has them already."""
        release = self.release
        if not self.plan.mechanism_stage.measures and committed(release.counts):
            return
        measured, facts = committed(release.measurements), committed(release.facts)
        if measured is None or facts is None:
            raise UsageError(Problem(str(release.path.parent), "holds no measurements", "run `das measure` first"))
        _require_declared(release.facts, measured["facts_digest"])
        key = digest_of(
            {
                "measured": measured["files"],
                "facts": facts["files"],
                "how": self.plan.settings.estimate.model_dump(),
                "passes": {level: self.plan.passes(level) for level in self.plan.levels},
            }
        )
        if self.happened(release.counts, key):
            return
        require_unchanged(release.measurements)
        self.remove(release.estimates)
        full = self.plan.settings.estimate.information == "full"
        with ExitStack() as stack:
            kept = self._kept_key(key)
            counts = stack.enter_context(Staging(release.counts, mode=PUBLIC, key=kept))
            estimates = stack.enter_context(Staging(release.estimates, mode=PUBLIC, key=kept)) if full else None
            work = WorkerContext.mapping(self.plan, release.facts / "spine.parquet", counts.partial)
            sweep = DownSweep(work, release, estimates.partial if estimates else None)

            def build(pipeline: beam.Pipeline) -> None:
                _ = pipeline | sweep

            shards = work.all_shards()
            steps = work.steps("estimate") | work.steps("write")
            if work.full:  # nothing is sent up from the top
                steps |= work.steps("pool", self.plan.levels[1:])
            self.execute("estimate", (counts.partial,), build, steps, shards=len(shards))
            require_written([shard.path(counts.partial) for shard in shards])
            if estimates:
                require_written([shard.path(estimates.partial) for shard in shards])
                estimates.write(LABELS, parquet_bytes(table_of_labels(self.plan)))
                estimates.commit({"stage": "estimates", "key": key})
            counts.commit({"stage": "estimate", "key": key, "wall": self.wall.to_json()})

    def _kept_key(self, key: str) -> str:
        """Under what shards of an interrupted stage are kept: made behind the same wall, by the same versions."""
        return digest_of({"stage": key, "wall": self.wall.to_json(), "versions": versions()})

    def publish(self) -> None:
        """Tables and records, from the counts alone."""
        release = self.release
        counted = committed(release.counts)
        if counted is None:
            raise UsageError(Problem(str(release.path.parent), "holds no counts", "run `das estimate` first"))
        settings = self.plan.settings
        areas = [[a.model_dump(), sha256_file(self.plan.folder / a.file)] for a in settings.geography.areas]
        named = [level.names for level in settings.geography.levels]
        source = str(settings.geography.units or settings.geography.crosswalk)
        names = [named, sha256_file(self.plan.folder / source)] if any(named) else []
        how = settings.output.model_dump(mode="json")
        estimated = (committed(release.estimates) or {}).get("files")  # what intervals come from
        information = settings.estimate.information
        key = digest_of(
            {
                "counts": counted["files"],
                "estimates": estimated,
                "information": information,
                "areas": areas,
                "names": names,
                "how": how,
            }
        )
        if self.happened(release.tables, key) and self.happened(release.microdata, key):
            return
        require_unchanged(release.counts)
        for folder in (release.tables, release.microdata):
            self.remove(folder)
        with ExitStack() as stack:
            kept = self._kept_key(key)
            tables = stack.enter_context(Staging(release.tables, mode=PUBLIC, key=kept))
            microdata = stack.enter_context(Staging(release.microdata, mode=PUBLIC, key=kept))
            tabulating = WorkerContext.mapping(self.plan, release.facts / "spine.parquet", tables.partial)
            listing = replace(tabulating, partial=microdata.partial)
            tasks = table_tasks(self.plan)
            write_area_members(self.plan, tabulating.spine, tables.partial / release.area_members.name)
            leaves = list(listing.shards(self.plan.levels[-1])) if self.plan.settings.output.microdata else []

            def build(pipeline: beam.Pipeline) -> None:
                steps = (
                    ("tables", tasks, PublishTable(tabulating, release)),
                    ("records", leaves, PublishRecords(listing, release, seeded=self.seeded)),
                )
                for name, work, step in steps:
                    spread = pipeline | name >> beam.Create(work) | f"spread {name}" >> beam.Reshuffle()
                    _ = spread | f"write {name}" >> beam.ParDo(step)

            steps = {**Counter(f"table of {task.place}" for task in tasks), "records": len(leaves)}
            partials = tables.partial, microdata.partial
            self.execute("publish", partials, build, steps, shards=len(tasks) + len(leaves))
            files = [task.file_name(self.plan) for task in tasks]
            areas_here = areas_of(self.plan, tabulating.spine)
            files += [
                f"{task.file_name(self.plan)}{INTERVALS}"
                for task in tasks
                if task.has_intervals(self.plan, tabulating.spine, areas_here)
            ]
            require_written([tables.partial / f"{name}.parquet" for name in files])
            join_records(self.plan, microdata.partial, leaves, seeded=self.seeded)
            microdata.commit({"stage": "microdata", "key": key})
            tables.commit({"stage": "tables", "key": key, "wall": self.wall.to_json()})

    def report(self) -> None:
        """Config, statement and manifest; a release that is complete and unchanged stays as it is."""
        plan, release = self.plan, self.release
        if is_finished(plan, release):
            return
        if self.record is None:
            raise ValueError("the statement needs the record of the run")
        begin_statement(release)
        recorded = recorded_files(plan, release)
        spine = release.facts / "spine.parquet"
        if (
            recorded.keys() - set(names_of(release))
            or sha256_file(spine) != recorded[f"{release.facts.name}/{spine.name}"]
        ):
            require_as_committed(plan, release, {})
        key = self._kept_key(digest_of({"verified": recorded, "plan": plan.digest}))
        with Staging(release.path / "verified", key=key) as staging:  # it is never committed
            work = WorkerContext.mapping(plan, spine, staging.partial)
            published = PublishedShards(plan, release, work.spine)
            files, shards = runs_of_files(release, recorded), runs_of_shards(published)
            forget_hashes(staging.partial)

            def build(pipeline: beam.Pipeline) -> None:
                _ = pipeline | VerifyRelease(work, release, files, shards)

            steps = {**Counter(f"verify {run.level}" for run in shards), "hash files": len(files)}
            self.execute("report", (staging.partial,), build, steps, shards=len(work.all_shards()))
            hashed = hashed_files(staging.partial, len(files))
            require_as_committed(plan, release, hashed)  # shards are read only if no file has changed
            verified = verified_shards(staging.partial, len(shards))
        # The scratch is gone before the manifest says that the release is complete.
        wall = weakest([self.wall, *map(_wall_of, (release.counts, release.tables))])
        write_statement(
            published,
            self.record,
            verified=verified,
            files=hashed,
            public_files=self.confinement.public,
            wall=wall.to_json() | {"words": wall.words},
        )


def _wall_of(folder: Path) -> Wall:
    """The wall behind which a stage was done, from its record; a mechanism's own counts were drawn before it."""
    kept = (committed(folder) or {}).get("wall")
    return Wall(kept["enforced_by"], kept["version"]) if kept else Wall(KINDS[0])


def _require_declared(folder: Path, facts_digest: str) -> None:
    """Refuse to post-process with anything but the facts that were declared when the measurements were made.

    The accountant's numbers hold given exactly these facts (Gong & Meng 2020; Cho & Awan 2024): an estimator that
    read another would be a second, unaccounted release.
    """
    changed = verify(folder)
    if not changed and digest_of((committed(folder) or {})["files"]) != facts_digest:
        changed = [Problem(str(folder), "holds other facts than those declared with the measurements")]
    if changed:
        remedy = "restore the folder; estimation may read only declared facts"
        raise BudgetError(Problem(problem.where, problem.reason, remedy) for problem in changed)
