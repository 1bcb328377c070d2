"""Estimation as Beam steps: an up-sweep of linear estimates, then a down-sweep that solves family by family.

Only public files are read. Each worker reads the measurements of its shard and writes its shard's files itself. What
travels between levels is small: linear estimates of parents go up; parents' counts and linear estimates go down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from das.errors import Problem, ProblemsFound
from das.estimation import estimate_families
from das.estimation.assemble import Family, measured_by_query
from das.estimation.linear.blue import LinearEstimate, update_from_parent
from das.estimation.problem import FamilyEstimate
from das.facts.fact import Fact, in_order
from das.facts.file import read_facts
from das.release.estimates import RECURRING, table_of_estimates
from das.release.measurements import read_measurements
from das.schema.counts import ProtectedCounts
from das.storage.counts import table_of_counts
from das.storage.files import write_atomically
from das.storage.layout import ReleaseFolder
from das.storage.shards import Shard, families, parquet_bytes
from pipelines.elements.arrays import Arrays, Join, Joined, sparse_counts
from pipelines.elements.context import WorkerContext
from pipelines.elements.kept import remembered
from pipelines.elements.linear_estimates import estimate_arrays, estimate_of, estimates_of_all
from pipelines.elements.messages import Keyed, received_from_above, received_from_below, send_down, send_up
from pipelines.workers.errors import reporting_errors
from pipelines.workers.step_timer import count, timed

__all__ = ["DownSweep"]


class DownSweep(beam.PTransform):
    """Measurements and facts to protected integer counts, from the top of the spine to its leaves.

    With full information an up-sweep comes first: the sum of each family's linear estimates is sent to its parent. The
    down-sweep then carries two things to each child: its parent's counts, and its parent's linear estimate.
    """

    def __init__(self, work: WorkerContext, release: ReleaseFolder, estimates: Path | None) -> None:
        super().__init__()
        self.work, self.release, self.estimates = work, release, estimates

    def expand(self, start: beam.pvalue.PBegin) -> beam.PCollection[str]:
        """Build the steps: up if there is to be full information, then down, one join per level each."""
        work, levels = self.work, self.work.plan.levels
        nothing = [(shard.index, Arrays({})) for shard in work.shards(levels[-1])]
        sent = {levels[-1]: start | "leaves" >> beam.Create(nothing).with_output_types(Keyed)}
        for above, level in reversed(list(pairwise(levels))) if work.full else ():
            sent[above] = (
                sent[level]
                | f"collect estimates of {level}" >> beam.GroupByKey()
                | f"pool {level}" >> beam.ParDo(PoolShard(work, self.release, level)).with_output_types(Keyed)
            )
        written = []
        received = start | "above the top" >> beam.Create([(0, Arrays({}))]).with_output_types(Keyed)
        for level, below in zip(levels, [*levels[1:], None], strict=True):
            joined = {"above": received} | ({"below": sent[level]} if work.full and below else {})
            solved = (
                joined
                | f"join {level} with its parents" >> Join()
                | f"estimate {level}"
                >> beam.ParDo(EstimateShard(work, self.release, level, self.estimates)).with_output_types(Keyed)
            )
            write = WriteShard(work, level, self.estimates)
            written.append(solved | f"write {level}" >> beam.ParDo(write).with_output_types(str))
            if below:
                received = solved | f"send {level} down" >> beam.ParDo(SendDown(work, below)).with_output_types(Keyed)
        return written | beam.Flatten()


class FamiliesOfShard(beam.DoFn):
    """A step that reads a shard's measurements and facts and works on its families."""

    def __init__(self, work: WorkerContext, release: ReleaseFolder, level: str) -> None:
        self.work, self.release, self.level = work, release, level

    def setup(self) -> None:
        """Give linear algebra one thread: families are small, and its sums must not depend on the number of cores."""
        self._threads = threadpool_limits(limits=1)

    def teardown(self) -> None:
        """Give the threads back."""
        self._threads.restore_original_limits()

    def families(self, shard: Shard, below: Mapping[int, LinearEstimate]) -> Iterator[tuple[int, int, Family]]:
        """Yield each family of the shard with the positions of its parent and of its first child."""
        plan, spine = self.work.plan, self.work.spine
        values = read_measurements(plan, shard.level, shard.path(self.release.measurements))
        facts_path = shard.path(self.release.facts)
        facts = in_order(plan.limited_queries, read_facts(plan, facts_path)) if facts_path.exists() else ()
        uses_below = self.work.full and shard.level != plan.levels[-1]
        offsets = families(spine, shard.level)
        first, last = np.searchsorted(offsets, [shard.start, shard.stop])
        for parent in range(int(first), int(last)):
            children = range(int(offsets[parent]), int(offsets[parent + 1]))
            if uses_below and not below.keys() >= set(children):
                raise self.unmet(parent)
            rows = slice(children.start - shard.start, children.stop - shard.start)
            family = Family(
                basis=self.work.basis,
                level=shard.level,
                children=len(children),
                measured=measured_by_query(plan.at(shard.level), values[rows]),
                facts=tuple(Fact(fact.query, fact.sign, fact.values[rows]) for fact in facts),
                below=estimates_of_all([below[child] for child in children]) if uses_below else None,
            )
            yield parent, children.start, family

    def unmet(self, parent: int) -> ProblemsFound:
        """Say that the elements of a family did not come together; no data can cause this."""
        where = f"family {parent} of {self.level}"
        return ProblemsFound(Problem(where, "its measurements and its parent do not meet", "verify the release"))


class PoolShard(FamiliesOfShard):
    """Sum the linear estimates of each family of a shard, and send them up: they estimate its parent."""

    @timed(lambda self, element: f"pool {self.level}")
    def process(self, element: tuple[int, Iterable[Arrays]]) -> Iterator[Keyed]:
        """Yield the number of a shard above and the estimates of its geounits."""
        index, messages = element
        shard = self.work.shards(self.level)[index]
        with reporting_errors(self.work.partial):  # a full disk is one, too
            yield from remembered(self.work.partial, f"pool-{self.level}-{index}", lambda: self.pooled(shard, messages))

    def pooled(self, shard: Shard, messages: Iterable[Arrays]) -> Iterator[Keyed]:
        """Work out what the shard sends up."""
        spine = self.work.spine
        below = received_from_below(messages)
        pooled = {parent: family.pooled() for parent, _, family in self.families(shard, below)}
        above = spine.levels[spine.levels.index(self.level) - 1]
        yield from send_up(self.work, above, np.array(list(pooled)), estimates_of_all(list(pooled.values())))


class EstimateShard(FamiliesOfShard):
    """Solve and round each family of a shard; yield their counts, linear estimates, and how each was solved."""

    def __init__(self, work: WorkerContext, release: ReleaseFolder, level: str, estimates: Path | None) -> None:
        super().__init__(work, release, level)
        self.estimates = estimates

    @timed(lambda self, element: f"estimate {self.level}")
    def process(self, element: Joined) -> Iterator[Keyed]:
        """Yield the shard's number and its estimates; nothing for leaves whose files are there already."""
        index, joined = element
        shard = self.work.shards(self.level)[index]
        if self.level != self.work.plan.levels[-1]:  # what they send down is in no file
            name = f"estimate-{self.level}-{index}"
            with reporting_errors(self.work.partial):
                yield from remembered(self.work.partial, name, lambda: [(index, self.solved(shard, joined))])
        elif not all(path.exists() for path in _files(self.work, shard, self.estimates)):
            yield index, self.solved(shard, joined)

    def solved(self, shard: Shard, joined: Mapping[str, Iterable[Arrays]]) -> Arrays:
        """Estimate the families of the shard."""
        above, below = received_from_above(joined["above"]), received_from_below(joined.get("below", ()))
        settings, geocodes = self.work.plan.settings.estimate, self.work.spine.geocodes(self.level)
        starts, problems, best = [], [], []
        with reporting_errors(self.work.partial):
            for parent, first, family in self.families(shard, below):
                if parent not in above:
                    raise self.unmet(parent)
                counts, of_parent = above[parent]
                linear = family.estimate_alike() if self.work.full else None
                names = tuple(geocodes[first : first + family.children].tolist())
                starts.append(first)
                problems.append(family.problem(names, counts, linear, settings.prior))
                if linear is not None:
                    best.append(linear if of_parent is None else update_from_parent(self.work.basis, linear, of_parent))
            estimates = estimate_families(problems, solver=settings.solver, passes=self.work.plan.passes(self.level))
        count(f"families estimated, {self.level}", len(estimates))
        solved = _solved(list(zip(starts, estimates, strict=True)))
        return solved.with_arrays(estimate_arrays(estimates_of_all(best))) if best else solved


def _files(work: WorkerContext, shard: Shard, estimates: Path | None) -> list[Path]:
    """Where a shard's counts, diagnostics and, with full information, linear estimates are written."""
    folders = [work.partial, work.partial / "diagnostics", *([estimates] if estimates else [])]
    return [shard.path(folder) for folder in folders]


def _solved(found: list[tuple[int, FamilyEstimate]]) -> Arrays:
    unit, cell, count = [], [], []
    for first, family in found:
        child, column = np.nonzero(family.counts)
        unit.append(child + first)
        cell.append(family.cells[column])
        count.append(family.counts[child, column])
    how = [family.diagnostics for _, family in found]
    return Arrays(
        {
            "unit": np.concatenate(unit, dtype=np.int64),
            "cell": np.concatenate(cell, dtype=np.int64),
            "count": np.concatenate(count, dtype=np.int64),
            "first": np.array([first for first, _ in found], dtype=np.int64),
            "children": np.array([len(family.counts) for _, family in found], dtype=np.int32),
            "quality": np.array([[d.residual, d.gap, d.iterations, d.rounding_distance, d.widened] for d in how]),
            "solver": np.frombuffer("\n".join(d.solver for d in how).encode(), dtype=np.uint8),
        }
    )


class SendDown(beam.DoFn):
    """Send each geounit's counts and linear estimate to the shard of the level below that holds its children."""

    def __init__(self, work: WorkerContext, below: str) -> None:
        self.work, self.below = work, below

    @timed(lambda self, element: f"send down to {self.below}")
    def process(self, element: Keyed) -> Iterator[Keyed]:
        """Yield the number of a shard below, and the counts and estimates of its parents."""
        solved = element[1]
        first, children = np.asarray(solved["first"]), np.asarray(solved["children"])
        unit = np.arange(first[0], first[-1] + children[-1])
        best = estimate_of(solved) if self.work.full else None
        yield from send_down(self.work, self.below, unit, sparse_counts(ProtectedCounts, solved), best)


class WriteShard(beam.DoFn):
    """Write a shard's counts and diagnostics, and its linear estimates into their own folder."""

    def __init__(self, work: WorkerContext, level: str, estimates: Path | None) -> None:
        self.work, self.level, self.estimates = work, level, estimates

    @timed(lambda self, element: f"write {self.level}")
    def process(self, element: Keyed) -> Iterator[str]:
        """Yield the file's name."""
        index, solved = element
        shard, plan = self.work.shards(self.level)[index], self.work.plan
        files = _files(self.work, shard, self.estimates)
        geocodes = self.work.spine.geocodes(self.level)[shard.start : shard.stop]

        def of_counts() -> bytes:
            local = sparse_counts(ProtectedCounts, solved).within(shard.start, shard.stop)
            return parquet_bytes(table_of_counts(plan.schema, geocodes, local))

        def of_estimates() -> bytes:
            table = table_of_estimates(plan, self.work.basis, self.level, geocodes, estimate_of(solved))
            return parquet_bytes(table, with_dictionary=RECURRING)

        def of_solutions() -> bytes:
            return parquet_bytes(self._diagnostics(solved))

        contents: tuple[Callable[[], bytes], ...] = (of_counts, of_solutions, of_estimates)
        with reporting_errors(self.work.partial):
            for path, content in zip(files, contents, strict=False):  # without full information there are no estimates
                if not path.exists():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    write_atomically(path, content())
        count(f"shards written, {self.level}")
        yield files[0].name

    def _diagnostics(self, solved: Arrays) -> pa.Table:
        spine, at = self.work.spine, self.work.spine.levels.index(self.level)
        parents = spine.parent(self.level)[np.asarray(solved["first"])]
        above = spine.geocodes(spine.levels[at - 1])[parents].tolist() if at else [""] * len(parents)
        quality = np.asarray(solved["quality"])
        return pa.table(
            {
                "parent": pa.array(above, pa.string()),
                "children": pa.array(np.asarray(solved["children"])),
                "solver": pa.array(bytes(np.asarray(solved["solver"])).decode().split("\n"), pa.string()),
                "residual": quality[:, 0],
                "gap": quality[:, 1],
                "iterations": quality[:, 2].astype(np.int64),
                "rounding_distance": quality[:, 3],
                "widened": quality[:, 4].astype(np.int64),
            }
        )
