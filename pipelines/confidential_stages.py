"""The stages before the wall: records to true counts, and true counts to what the mechanism releases."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain, count
from pathlib import Path

import apache_beam as beam

from das.errors import ConfigError, Problem, UsageError, WindowsTooNarrow
from das.exact import digest_of, digest_of_input
from das.facts.collect import facts_of
from das.facts.vacuous import refuse_vacuous_facts, refuse_vacuous_plan
from das.plan.geography import areas_of, names_of, spine_of
from das.plan.plan import Plan
from das.plan.tree_of_counts import tree_of
from das.records.read import chunks, fingerprints, input_files
from das.release.manifest import versions
from das.runner import Progress
from das.schema.query import parse_query
from das.storage.files import write_atomically
from das.storage.layout import Layout
from das.storage.population import population_of
from das.storage.room import require_room
from das.storage.run_identity import RunIdentity
from das.storage.shards import parquet_bytes
from das.storage.staging import Staging, committed
from geography import Spine
from pipelines.elements.context import MAPPED, WorkerContext
from pipelines.stage_runner import PUBLIC, StageRunner, require_unchanged, require_written
from pipelines.stages.measure import MeasureShard, true_answers_of, write_facts
from pipelines.stages.tabulate import Tabulate

__all__ = ["ConfidentialStages"]

MOST_COUNTS = 2**34
"""Counts of a tree for which ``das/congenial/tree.md`` proves the sampler's errors."""
REACHES = (20.0, 40.0, 80.0, 160.0, 320.0)
"""Half the width of the congenial sampler's windows, in standard deviations: the next where one does not hold."""


class ConfidentialStages(StageRunner):
    """``tabulate`` and ``measure``. Each asks first whether it already happened."""

    def __init__(
        self, plan: Plan, layout: Layout, identity: RunIdentity, options: Sequence[str], progress: Progress
    ) -> None:
        super().__init__(plan, layout.release, options, progress)
        self.layout, self.identity = layout, identity

    def tabulate(self) -> None:
        """True histograms of every level, into the confidential folder."""
        if committed(self.layout.release.mechanism(self.plan)):
            return  # nothing after the wall may depend on the records again
        files = input_files(self.plan)
        pieces = chunks(self.plan)
        spine = spine_of(self.plan)
        self._read_areas_and_names(spine)
        refuse_vacuous_plan(self.plan, spine)
        prints = fingerprints(files)
        self.identity.refuse_known_files(prints)
        how = self.plan.settings.input.model_dump(mode="json", exclude={"budget", "data", "ledger"})
        made_of = {"plan": self.plan.digest, "input": digest_of_input(prints), "how": how, "spine": spine.digest()}
        key = digest_of(made_of | {"holds": ["counts", "spine.parquet", f"spine{MAPPED}"]})
        folder = self.layout.confidential.histograms
        if self.happened(folder, key):
            return
        kept = digest_of({"stage": key, "versions": versions()})  # chunks that were placed before an interruption stay
        with Staging(folder, key=kept) as staging:
            staging.write("spine.parquet", parquet_bytes(spine.to_table()))
            staging.write(f"spine{MAPPED}", spine.write_mapped)
            del spine  # from here on it is mapped, and need not be held
            work = WorkerContext(self.plan, staging.partial / f"spine{MAPPED}", staging.partial)

            def build(pipeline: beam.Pipeline) -> None:
                _ = pipeline | "chunks" >> beam.Create(pieces) | beam.Reshuffle() | Tabulate(work)

            steps = {"place records": len(pieces)} | work.steps("write")
            self.execute("tabulate", (staging.partial,), build, steps, shards=len(work.all_shards()))
            staging.commit({"stage": "tabulate", "key": key, "inputs": prints, "how": digest_of(how)})

    def _read_areas_and_names(self, spine: Spine) -> None:
        """Say what is wrong with areas and names before anything is spent; only ``publish`` needs them."""
        areas_of(self.plan, spine)
        names_of(self.plan, spine)

    def measure(self) -> None:
        """Noisy measurements and public facts: the only step at which anything is spent."""
        release, confidential = self.layout.release, self.layout.confidential
        tabulated = committed(confidential.histograms)
        if not committed(release.mechanism(self.plan)):
            if tabulated is None:
                raise UsageError(Problem(str(self.layout.root), "holds no histograms", "run `das tabulate` first"))
            require_unchanged(confidential.histograms)
            spine_path = confidential.histograms / f"spine{MAPPED}"
            reading = WorkerContext(self.plan, spine_path, confidential.histograms)
            self._require_provable(reading)
            self._read_areas_and_names(reading.spine)
            require_room(self.plan, reading.spine, release.path)
            answers = true_answers_of(reading, confidential.histograms)
            facts = facts_of(self.plan, reading.spine, answers)
            refuse_vacuous_facts(self.plan, reading.spine, facts)  # before anything is charged or drawn
            totals = answers(self.plan.levels[-1], parse_query(self.plan.schema, "total"))[:, 0]
            # From here on the run is charged; whatever happens, it is charged once.
            people, how = population_of(tabulated["inputs"], reading.spine, totals), tabulated.get("how", "")
            self.identity.reserve(tabulated["inputs"], people, how=how)
            self.remove(release.facts)  # of an interrupted run: the geography may have been mended since
            with Staging(release.facts, mode=PUBLIC) as staging:
                write_facts(WorkerContext(self.plan, spine_path, staging.partial), facts)
                staging.commit({"stage": "facts", "key": self.plan.digest})
            inputs = self.identity.commitments(tabulated["inputs"])
            declared = digest_of((committed(release.facts) or {})["files"])
            # Shards that were measured, or families that were drawn, before an interruption stay.
            begun = {
                "run": self.identity.run_id,
                "plan": self.plan.digest,
                "inputs": inputs,
                "how": how,
                "facts": declared,
                "versions": versions(),
            }
            key = digest_of(begun)
            with ExitStack() as stack:
                measures = self.plan.mechanism_stage.measures
                # What is kept of a draw goes when the draw is committed, and is itself never committed.
                draw = None if measures else stack.enter_context(Staging(confidential.path / "draw", key=key))
                staging = stack.enter_context(Staging(release.mechanism(self.plan), mode=PUBLIC, key=key))
                work = WorkerContext.mapping(self.plan, release.facts / "spine.parquet", staging.partial)
                if draw is None:
                    self._measure(work)
                else:
                    self._draw(replace(work, kept=draw.partial), staging, draw.partial)
                require_written([shard.path(staging.partial) for shard in work.all_shards()])
                staging.commit(
                    {"stage": "measure", "key": self.plan.digest, "inputs": inputs, "facts_digest": declared}
                )
        self.identity.commit_charge()

    def _measure(self, work: WorkerContext) -> None:
        """Independent noise on every answer."""
        step = MeasureShard(work, self.layout.confidential.histograms, self.layout.confidential.key)

        def build(pipeline: beam.Pipeline) -> None:
            _ = pipeline | "shards" >> beam.Create(work.all_shards()) | beam.Reshuffle() | beam.ParDo(step)

        self.execute("measure", (work.partial,), build, work.steps("measure"), shards=len(work.all_shards()))

    def _draw(self, work: WorkerContext, staging: Staging, kept: Path) -> None:
        """Draw conforming counts, in doubles where they prove the promised errors, and else in extended range.

        Which attempt goes through is decided by the true counts before any random word is used. Wide enough windows
        in extended range prove the errors for every data set (``das/congenial/tree.md``): only the time that a run
        takes depends on the counts.
        """
        # Their kernels are compiled when they are first loaded.
        from pipelines.stages.congenial import Congenial
        from pipelines.stages.congenial_extended import CongenialExtended

        where = work, self.layout.confidential.histograms, self.layout.release.facts, self.layout.confidential.key
        doubles = (Congenial(*where, reach) for reach in REACHES)
        for attempt, sweep in enumerate(chain(doubles, (CongenialExtended(*where, 2.0**k) for k in count()))):
            narrow = kept / f"too-narrow-{attempt}"
            if narrow.exists():  # an interrupted run has found out
                continue

            def build(pipeline: beam.Pipeline, sweep: beam.PTransform = sweep) -> None:
                _ = pipeline | sweep

            try:
                self.execute("measure", (work.partial,), build, work.steps("write"), shards=len(work.all_shards()))
                return
            except WindowsTooNarrow:
                write_atomically(narrow, b"")
                staging.begin_again()

    def _require_provable(self, work: WorkerContext) -> None:
        """Refuse a tree of counts that is too large for the sampler's proof: a public reason, before the charge."""
        if self.plan.mechanism_stage.sampler and tree_of(self.plan).counts(work.spine) > MOST_COUNTS:
            reason = "the tree has more counts than the rounding errors of the congenial sampler are proved for"
            raise ConfigError(Problem("estimate.method", reason, 'use method = "nonnegative-l2"'))
