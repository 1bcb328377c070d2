"""The down-sweep: each family joins its parent's estimate and is solved; only public things are read.

One CoGroupByKey per level brings a family's measurements and limits together with its parent's protected counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from das.encoding import Encoded, merge
from das.estimation import estimate_family
from das.estimation.learning import pass_down, pool
from das.estimation.problem import FamilyEstimate
from das.release.counts import table_of_counts
from das.release.durable import write_atomically
from das.release.estimates import table_of_estimates
from das.release.facts_file import read_facts
from das.release.layout import ReleaseFolder
from das.release.measurements import read_measurements
from das.release.parts import Part, families, parquet_bytes
from pipelines.complaints import complaining
from pipelines.family import Arrays, sparse_counts
from pipelines.view import FamilyView, Joined, knowledge_arrays, knowledge_of, knowledge_of_all
from pipelines.work import Work

__all__ = ["DownSweep"]

Keyed = tuple[int, Arrays]
PUBLIC_FILE = 0o644


class DownSweep(beam.PTransform):
    """Measurements and facts to protected integer counts, from the top of the spine to its leaves.

    With full information an up-sweep comes first: each family pools what it knows and tells its parent. The down-sweep
    then carries two things to each child: its parent's counts, and its parent's best linear unbiased estimate.
    """

    def __init__(self, work: Work, release: ReleaseFolder, estimates: Path | None) -> None:
        super().__init__()
        self.work, self.release, self.estimates = work, release, estimates

    def expand(self, start: beam.pvalue.PBegin) -> beam.PCollection[str]:
        """Build the steps: up if there is to be full information, then down, one join per level each."""
        work, levels = self.work, self.work.plan.levels
        measured = {
            level: start
            | f"parts of {level}" >> beam.Create(list(work.parts(level)))
            | f"spread {level}" >> beam.Reshuffle()
            | f"read {level}" >> beam.ParDo(ReadFamilies(work, self.release)).with_output_types(Keyed)
            for level in levels
        }
        below: dict[str, beam.PCollection[Keyed]] = {}
        for above, level in reversed(list(pairwise(levels))) if work.full else ():
            joined = {"family": measured[level]} | ({"below": below[level]} if level in below else {})
            below[above] = (
                joined
                | f"join {level} with its children" >> beam.CoGroupByKey()
                | f"pool {level}" >> beam.ParDo(PoolFamily(work, level)).with_output_types(Keyed)
            )
        written = []
        parents = start | "above the top" >> beam.Create([(0, Arrays({}))]).with_output_types(Keyed)
        for level in levels:
            joined = {"parent": parents, "family": measured[level]} | (
                {"below": below[level]} if level in below else {}
            )
            solved = (
                joined
                | f"join {level} with its parents" >> beam.CoGroupByKey()
                | f"estimate {level}" >> beam.ParDo(EstimateFamily(work, level)).with_output_types(Keyed)
            )
            parents = solved | f"hand {level} down" >> beam.ParDo(ToChildren(work)).with_output_types(Keyed)
            written.append(
                solved
                | f"by part of {level}" >> beam.ParDo(ToPart(work, level)).with_output_types(Keyed)
                | f"gather {level}" >> beam.GroupByKey()
                | f"write {level}" >> beam.ParDo(WriteCounts(work, level, self.estimates)).with_output_types(str)
            )
        return written | beam.Flatten()


class ReadFamilies(beam.DoFn):
    """Read a part's measurements and facts and split them by family."""

    def __init__(self, work: Work, release: ReleaseFolder) -> None:
        self.work, self.release = work, release

    def process(self, part: Part) -> Iterator[Keyed]:
        """Yield the parent's position and the family's arrays."""
        plan = self.work.plan
        values = read_measurements(plan, part.level, part.path(self.release.measurements))
        values = values.astype(np.min_scalar_type(-max(1, int(np.abs(values).max(initial=0)) + 1)))
        facts_path = part.path(self.release.facts)
        facts = read_facts(plan, facts_path) if facts_path.exists() else ()
        offsets = families(self.work.spine, part.level)
        first, last = np.searchsorted(offsets, [part.start, part.stop])
        for parent in range(int(first), int(last)):
            here = slice(int(offsets[parent]) - part.start, int(offsets[parent + 1]) - part.start)
            named: dict[str, NDArray[np.generic]] = {"values": values[here]}
            named |= {f"{fact.sign} {fact.query.name}": fact.values[here] for fact in facts}
            yield parent, Arrays(named)


class PoolFamily(beam.DoFn):
    """Pool what a family knows and address it to the family above, of which its parent is a child."""

    def __init__(self, work: Work, level: str) -> None:
        self.work, self.level = work, level

    def process(self, element: Joined) -> Iterator[Keyed]:
        """Yield the grandparent's position and the parent's pooled knowledge."""
        parent, joined = element
        with complaining(self.work.partial):
            view = FamilyView(self.work, self.level, parent, joined)
            told = knowledge_arrays(pool(view.knowledge()))
        spine = self.work.spine
        above = spine.levels[spine.levels.index(self.level) - 1]
        yield max(0, int(spine.parent(above)[parent])), told.with_array("child", np.array([parent]))


class EstimateFamily(beam.DoFn):
    """Solve one family and round it; yield its counts, its linear estimates, and how it was solved."""

    def __init__(self, work: Work, level: str) -> None:
        self.work, self.level = work, level

    def setup(self) -> None:
        """Give linear algebra one thread: families are small, and its sums must not depend on the number of cores."""
        self._threads = threadpool_limits(limits=1)

    def teardown(self) -> None:
        """Give the threads back."""
        self._threads.restore_original_limits()

    def process(self, element: Joined) -> Iterator[Keyed]:
        """Yield the parent's position, the children's counts and the diagnostics."""
        parent, joined = element
        above = list(joined["parent"])
        with complaining(self.work.partial):
            view = FamilyView(self.work, self.level, parent, joined)
            if len(above) != 1:
                raise view.unmet()
            known = view.knowledge() if self.work.full else None
            estimate = estimate_family(view.problem(above[0], known), solver=self.work.plan.settings.estimate.solver)
        solved = _solved(estimate, int(families(self.work.spine, self.level)[parent]))
        if known is not None:
            best = pass_down(self.work.basis, known, knowledge_of(above[0])) if "mean" in above[0] else known
            solved = solved.with_arrays(knowledge_arrays(best))
        yield parent, solved


def _solved(estimate: FamilyEstimate, first: int) -> Arrays:
    child, column = np.nonzero(estimate.counts)
    d = estimate.diagnostics
    return Arrays(
        {
            "unit": child.astype(np.int64) + first,
            "cell": estimate.cells[column],
            "count": estimate.counts[child, column],
            "children": np.arange(first, first + len(estimate.counts), dtype=np.int64),
            "quality": np.array([d.residual, d.gap, d.iterations, d.rounding_distance, d.widened], dtype=np.float64),
            "solver": np.frombuffer(d.solver.encode(), dtype=np.uint8),
        }
    )


class ToChildren(beam.DoFn):
    """Hand each child its own counts and estimates: it is the parent of the next family."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def process(self, element: Keyed) -> Iterator[Keyed]:
        """Yield each child's position and its sparse counts."""
        arrays = element[1]
        counts = sparse_counts(arrays)
        children = np.asarray(arrays["children"], dtype=np.int64)
        cuts = np.searchsorted(counts.unit, np.append(children, children[-1] + 1))
        known = knowledge_of(arrays) if self.work.full else None
        for at, child in enumerate(children.tolist()):
            mine = slice(cuts[at], cuts[at + 1])
            handed = Arrays({"cell": counts.cell[mine], "count": counts.count[mine]})
            yield child, handed if known is None else handed.with_arrays(knowledge_arrays(known.unit(at)))


class ToPart(beam.DoFn):
    """Key a solved family by the part in which its counts are written."""

    def __init__(self, work: Work, level: str) -> None:
        self.work, self.level = work, level

    def process(self, element: Keyed) -> Iterator[Keyed]:
        """Yield the part's number and the family."""
        arrays = element[1]
        starts = [part.start for part in self.work.parts(self.level)]
        first = int(np.asarray(arrays["children"])[0])
        yield int(np.searchsorted(starts, first, side="right")) - 1, arrays


class WriteCounts(beam.DoFn):
    """Write a part's counts and how each family was solved, and the linear estimates into their own folder."""

    def __init__(self, work: Work, level: str, estimates: Path | None) -> None:
        self.work, self.level, self.estimates = work, level, estimates

    def process(self, element: tuple[int, Iterable[Arrays]]) -> Iterator[str]:
        """Yield the file's name."""
        index, unordered = element
        solved = sorted(unordered, key=lambda arrays: int(np.asarray(arrays["children"])[0]))
        part, plan, spine = self.work.parts(self.level)[index], self.work.plan, self.work.spine
        counts = merge([sparse_counts(arrays) for arrays in solved], plan.schema.size)
        local = Encoded(counts.unit - part.start, counts.cell, counts.count)
        geocodes = spine.geocodes(self.level)[part.start : part.stop]
        path = part.path(self.work.partial)
        with complaining(self.work.partial):
            _write(path, table_of_counts(plan.schema, geocodes, local))
            _write(part.path(self.work.partial / "diagnostics"), self._diagnostics(solved))
            if self.estimates is not None:
                known = knowledge_of_all([knowledge_of(arrays) for arrays in solved])
                table = table_of_estimates(plan, self.work.basis, self.level, geocodes, known)
                _write(part.path(self.estimates), table)
        yield path.name

    def _diagnostics(self, solved: list[Arrays]) -> pa.Table:
        spine = self.work.spine
        firsts = [int(np.asarray(arrays["children"])[0]) for arrays in solved]
        parents = spine.parent(self.level)[firsts]
        top = spine.levels.index(self.level) == 0
        above = [""] * len(solved) if top else spine.geocodes(spine.levels[spine.levels.index(self.level) - 1])[parents]
        quality = np.array([np.asarray(arrays["quality"]) for arrays in solved]).reshape(-1, 5)
        return pa.table(
            {
                "parent": pa.array(list(above), pa.string()),
                "children": pa.array([len(np.asarray(arrays["children"])) for arrays in solved], pa.int32()),
                "solver": pa.array([bytes(np.asarray(arrays["solver"])).decode() for arrays in solved], pa.string()),
                "residual": quality[:, 0],
                "gap": quality[:, 1],
                "iterations": quality[:, 2].astype(np.int64),
                "rounding_distance": quality[:, 3],
                "widened": quality[:, 4].astype(np.int64),
            }
        )


def _write(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, parquet_bytes(table), mode=PUBLIC_FILE)
