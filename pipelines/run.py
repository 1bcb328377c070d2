"""The stages as one resumable job: each begins where the one before was made durable; a finished one is not repeated.

=========  =====================================  =======================================================
stage      reads                                  makes durable
=========  =====================================  =======================================================
tabulate   the input files, the geography         ``confidential/histograms``
measure    the histograms, the run key            ``release/facts``, ``release/measurements``; the ledger
estimate   measurements and facts                 ``release/estimates``, ``release/counts``
publish    counts                                 ``release/tables``, ``release/microdata``
report     all of the release                     ``config.toml``, ``privacy.*``, ``manifest.json`` (last)
=========  =====================================  =======================================================
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import apache_beam as beam

from das.errors import BudgetError, InputError, Problem, SplitNotProved, UsageError, WindowsTooNarrow
from das.exact import digest_of, digest_of_input
from das.facts.collect import facts_of
from das.plan.geography import spine_of
from das.plan.plan import Plan
from das.records.read import chunks, fingerprints, input_files
from das.release.finish import is_finished, write_statement
from das.runner import STAGES, Progress, StageTime, Stopwatch
from das.storage.files import exclusive_lock, sha256_file, write_atomically
from das.storage.layout import Layout, make_root
from das.storage.run_identity import RunIdentity
from das.storage.shards import parquet_bytes
from das.storage.staging import Staging, committed, verify
from pipelines.elements.context import WorkerContext
from pipelines.runners import is_elsewhere, runner_and_options
from pipelines.runners.preflight import failure_of, ready_runner
from pipelines.stages.estimate import DownSweep
from pipelines.stages.measure import MeasureShard, true_answers_of, write_facts
from pipelines.stages.publish import PublishRecords, PublishTable, table_tasks
from pipelines.stages.tabulate import Tabulate
from pipelines.workers.errors import raise_reported
from pipelines.workers.progress import watch_progress
from pipelines.workers.step_timer import steps_of

__all__ = ["BeamRunner"]

PUBLIC = 0o755
REACHES = (20.0, 40.0, 80.0, 160.0, 320.0)
"""Half the width of the congenial sampler's windows, in standard deviations: the next where one does not hold."""


class BeamRunner:
    """Run plans on Apache Beam; see :class:`das.runner.Runner`."""

    def run(
        self,
        plan: Plan,
        out: Path,
        *,
        upto: str = STAGES[-1],
        options: Sequence[str] = (),
        testing_key: str | None = None,
        progress: Progress | None = None,
        stopwatch: Stopwatch | None = None,
    ) -> None:
        """Run the plan into ``out``, up to and including a stage."""
        if is_elsewhere(options):  # options are checked before anything is written
            out = out.resolve()  # the workers' current folder is another
        run = _Run(plan, Layout(out), options, progress or (lambda stage, done, of: None))
        make_root(out)
        with exclusive_lock(out), ExitStack() as stack:
            run.identity = RunIdentity.claim(plan, run.layout, testing_key)
            run.options = stack.enter_context(ready_runner(options, out))
            stages = {
                "tabulate": run.tabulate,
                "measure": run.measure,
                "estimate": run.estimate,
                "publish": run.publish,
                "report": run.report,
            }
            for stage in STAGES[: STAGES.index(upto) + 1]:
                begun, start = datetime.now(UTC), perf_counter()
                stages[stage]()
                took = perf_counter() - start
                if stopwatch:
                    stopwatch(StageTime(stage=stage, seconds=took, **run.spent.pop(stage, {})))
                run.layout.log.touch(mode=0o600)  # how long a stage took may reveal something about the data
                with run.layout.log.open("a") as log:
                    log.write(f"{begun:%Y-%m-%dT%H:%M:%SZ} {stage} {took:.1f} s\n")


class _Run:
    """One run in one folder."""

    identity: RunIdentity

    def __init__(self, plan: Plan, layout: Layout, options: Sequence[str], progress: Progress) -> None:
        self.plan, self.layout, self.options, self.progress = plan, layout, options, progress
        self.spent: dict[str, dict[str, Any]] = {}

    # Each stage asks first whether it already happened.

    def tabulate(self) -> None:
        """True histograms of every level, into the confidential folder."""
        if committed(self.layout.release.mechanism(self.plan)):
            return  # nothing after the wall may depend on the records again
        files = input_files(self.plan)
        pieces = chunks(self.plan)
        spine = spine_of(self.plan)
        prints = fingerprints(files)
        how = self.plan.settings.input.model_dump(mode="json", exclude={"budget", "ledger"})
        key = digest_of(
            {"plan": self.plan.digest, "input": digest_of_input(prints), "how": how, "spine": spine.digest()}
        )
        folder = self.layout.confidential.histograms
        if self._happened(folder, key):
            return
        with Staging(folder) as staging:
            staging.write("spine.parquet", parquet_bytes(spine.to_table()))
            work = WorkerContext(self.plan, staging.partial / "spine.parquet", staging.partial)

            def build(pipeline: beam.Pipeline) -> None:
                _ = pipeline | "chunks" >> beam.Create(pieces) | beam.Reshuffle() | Tabulate(work)

            self._execute("tabulate", (staging.partial,), build, shards=len(work.all_shards()))
            staging.commit({"stage": "tabulate", "key": key, "inputs": prints})

    def measure(self) -> None:
        """Noisy measurements and public facts: the only step at which anything is spent."""
        release, confidential = self.layout.release, self.layout.confidential
        tabulated = committed(confidential.histograms)
        if not committed(release.mechanism(self.plan)):
            if tabulated is None:
                raise UsageError(Problem(str(self.layout.root), "holds no histograms", "run `das tabulate` first"))
            self._require_unchanged(confidential.histograms)
            spine_path = confidential.histograms / "spine.parquet"
            reading = WorkerContext(self.plan, spine_path, confidential.histograms)
            facts = facts_of(self.plan, reading.spine, true_answers_of(reading, confidential.histograms))
            # From here on the run is charged; whatever happens, it is charged once.
            self.identity.reserve(tabulated["inputs"])
            self._remove(release.facts)  # of an interrupted run: the geography may have been mended since
            with Staging(release.facts, mode=PUBLIC) as staging:
                write_facts(WorkerContext(self.plan, spine_path, staging.partial), facts)
                staging.commit({"stage": "facts", "key": self.plan.digest})
            with Staging(release.mechanism(self.plan), mode=PUBLIC) as staging:
                work = WorkerContext(self.plan, release.facts / "spine.parquet", staging.partial)
                mechanisms = {"measure": self._measure, "congenial": self._draw}
                mechanisms[self.plan.mechanism_stage.name](work, staging)
                self._require([shard.path(staging.partial) for shard in work.all_shards()])
                inputs = self.identity.commitments(tabulated["inputs"])
                declared = digest_of((committed(release.facts) or {})["files"])
                staging.commit(
                    {"stage": "measure", "key": self.plan.digest, "inputs": inputs, "facts_digest": declared}
                )
        self.identity.commit_charge()

    def _measure(self, work: WorkerContext, _staging: Staging) -> None:
        """Independent noise on every answer."""
        step = MeasureShard(work, self.layout.confidential.histograms, self.layout.confidential.key)

        def build(pipeline: beam.Pipeline) -> None:
            _ = pipeline | "shards" >> beam.Create(work.all_shards()) | beam.Reshuffle() | beam.ParDo(step)

        self._execute("measure", (work.partial,), build, shards=len(work.all_shards()))

    def _draw(self, work: WorkerContext, staging: Staging) -> None:
        """Draw conforming counts. Windows that prove too narrow are widened while nothing has been drawn yet.

        The widest windows may be too narrow, or a split may fail once the draw has begun. Wider windows would then
        depend on the draw, so they are not tried. Either way the run is refused and stays charged
        (``das/congenial/tree.md`` says why).
        """
        from pipelines.stages.congenial import Congenial  # its kernels are compiled when they are first loaded

        inside, facts = self.layout.confidential, self.layout.release.facts
        for reach in REACHES:
            sweep = Congenial(work, inside.histograms, facts, inside.key, reach)

            def build(pipeline: beam.Pipeline, sweep: Congenial = sweep) -> None:
                _ = pipeline | sweep

            try:
                self._execute("measure", (work.partial,), build, len(work.all_shards()))
                return
            except WindowsTooNarrow:
                staging.clear()
            except SplitNotProved:
                break
        raise self._refusal()

    def _refusal(self) -> WindowsTooNarrow:
        """Say that the run was refused and stays charged; the reason depends on confidential counts."""
        charged = "a test run is charged nothing" if self.identity.seeded else "what it was charged stays charged"
        reason = (
            "the congenial sampler cannot prove its errors here, with any windows it may use, and nothing was "
            f"published. Whether it can is a matter of confidential counts: {charged}, and only people who are "
            "cleared for the counts may be told"
        )
        remedy = (
            'in another folder, give the levels more even shares, or use method = "nonnegative-l2"; `das ledger DIR` '
            "shows what is left for it"
        )
        return WindowsTooNarrow(Problem("strategy", reason, remedy))

    def estimate(self) -> None:
        """Conforming integer counts, from measurements and facts alone; a congenial draw has them already."""
        release = self.layout.release
        if not self.plan.mechanism_stage.measures and committed(release.counts):
            return
        measured, facts = committed(release.measurements), committed(release.facts)
        if measured is None or facts is None:
            raise UsageError(Problem(str(self.layout.root), "holds no measurements", "run `das measure` first"))
        self._require_declared(measured["facts_digest"])
        key = digest_of(
            {"measured": measured["files"], "facts": facts["files"], "how": self.plan.settings.estimate.model_dump()}
        )
        if self._happened(release.counts, key):
            return
        self._require_unchanged(release.measurements)
        self._remove(release.estimates)
        full = self.plan.settings.estimate.information == "full"
        with ExitStack() as stack:
            counts = stack.enter_context(Staging(release.counts, mode=PUBLIC))
            estimates = stack.enter_context(Staging(release.estimates, mode=PUBLIC)) if full else None
            work = WorkerContext(self.plan, release.facts / "spine.parquet", counts.partial)
            sweep = DownSweep(work, release, estimates.partial if estimates else None)

            def build(pipeline: beam.Pipeline) -> None:
                _ = pipeline | sweep

            shards = work.all_shards()
            self._execute("estimate", (counts.partial,), build, shards=2 * len(shards))
            self._require([shard.path(counts.partial) for shard in shards])
            if estimates:
                self._require([shard.path(estimates.partial) for shard in shards])
                estimates.commit({"stage": "estimates", "key": key})
            counts.commit({"stage": "estimate", "key": key})

    def publish(self) -> None:
        """Tables and records, from the counts alone."""
        release = self.layout.release
        counted = committed(release.counts)
        if counted is None:
            raise UsageError(Problem(str(self.layout.root), "holds no counts", "run `das estimate` first"))
        settings = self.plan.settings
        areas = [[a.model_dump(), sha256_file(self.plan.folder / a.file)] for a in settings.geography.areas]
        how = settings.output.model_dump(mode="json")
        key = digest_of({"counts": counted["files"], "areas": areas, "how": how})
        if self._happened(release.tables, key) and self._happened(release.microdata, key):
            return
        self._require_unchanged(release.counts)
        for folder in (release.tables, release.microdata):
            self._remove(folder)
        with Staging(release.tables, mode=PUBLIC) as tables, Staging(release.microdata, mode=PUBLIC) as microdata:
            spine_path = release.facts / "spine.parquet"
            tabulating = WorkerContext(self.plan, spine_path, tables.partial)
            listing = WorkerContext(self.plan, spine_path, microdata.partial)
            tasks = table_tasks(self.plan)
            leaves = list(listing.shards(self.plan.levels[-1])) if self.plan.settings.output.microdata else []

            def build(pipeline: beam.Pipeline) -> None:
                steps = (
                    ("tables", tasks, PublishTable(tabulating, release)),
                    ("records", leaves, PublishRecords(listing, release, seeded=self.identity.seeded)),
                )
                for name, work, step in steps:
                    spread = pipeline | name >> beam.Create(work) | f"spread {name}" >> beam.Reshuffle()
                    _ = spread | f"write {name}" >> beam.ParDo(step)

            self._execute("publish", (tables.partial, microdata.partial), build, shards=len(tasks) + len(leaves))
            self._require([tables.partial / f"{task.file_name(self.plan)}.parquet" for task in tasks])
            microdata.commit({"stage": "microdata", "key": key})
            tables.commit({"stage": "tables", "key": key})

    def report(self) -> None:
        """Config, statement and manifest; a release that is complete and unchanged stays as it is."""
        if not is_finished(self.plan, self.layout.release):
            write_statement(self.plan, self.layout.release, self.identity.record())

    def _require_unchanged(self, folder: Path) -> None:
        """A stage reads what the one before it made durable, and nothing that was damaged since."""
        changed = verify(folder)
        if changed:
            raise UsageError(changed)

    def _require_declared(self, facts_digest: str) -> None:
        """Refuse to post-process with anything but the facts that were declared when the measurements were made.

        The accountant's numbers hold given exactly these facts (Gong & Meng 2020; Cho & Awan 2024): an estimator that
        read another would be a second, unaccounted release.
        """
        folder = self.layout.release.facts
        changed = verify(folder)
        if not changed and digest_of((committed(folder) or {})["files"]) != facts_digest:
            changed = [Problem(str(folder), "holds other facts than those declared with the measurements")]
        if changed:
            remedy = "restore the folder; estimation may read only declared facts"
            raise BudgetError(Problem(problem.where, problem.reason, remedy) for problem in changed)

    def _happened(self, folder: Path, key: str) -> bool:
        """Whether a stage was done from the same things; if from others, its output is removed."""
        record = committed(folder)
        if record is not None and record["key"] == key:
            return True
        self._remove(folder)
        return False

    def _remove(self, folder: Path) -> None:
        """Remove a stage's output, and the manifest that lists it."""
        if folder.exists():
            self.layout.release.manifest.unlink(missing_ok=True)
            shutil.rmtree(folder)

    def _execute(
        self, stage: str, partials: tuple[Path, ...], build: Callable[[beam.Pipeline], None], shards: int
    ) -> None:
        begun = perf_counter()
        runner, options = runner_and_options(self.options)
        pipeline = beam.Pipeline(runner=runner, options=options)
        build(pipeline)
        try:
            with watch_progress(partials, shards, lambda done: self.progress(stage, done, shards)):
                result = pipeline.run()
                result.wait_until_finish()
        except Exception as error:
            raise_reported(*partials)
            write_atomically(partials[0] / "room", bytes(4096))  # a worker on a full disk could not report its error
            raise failure_of(error, self.options) from error
        raise_reported(*partials)
        self.spent[stage] = {"pipeline_seconds": perf_counter() - begun, "steps": steps_of(result.metrics())}

    def _require(self, paths: list[Path]) -> None:
        """Check that the files exist; a runner's success is not taken for granted."""
        missing = [path for path in paths if not path.exists()]
        if missing:
            remedy = "use another runner; this one lost work without saying so"
            raise InputError(Problem(missing[0].name, f"{len(missing)} files were not written by the runner", remedy))
