"""The down-sweep: each family joins its parent's estimate and is solved; only public things are read.

One CoGroupByKey per level brings a family's measurements and limits together with its parent's protected counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from das.encoding import Encoded, merge
from das.errors import Problem, ProblemsFound
from das.estimation import estimate_family
from das.estimation.problem import FamilyEstimate, FamilyProblem, Measured
from das.facts import Fact, limits_of
from das.release.counts import table_of_counts
from das.release.durable import write_atomically
from das.release.facts_file import read_facts
from das.release.layout import ReleaseFolder
from das.release.measurements import read_measurements
from das.release.parts import Part, families, parquet_bytes
from pipelines.complaints import complaining
from pipelines.family import Arrays, sparse_counts
from pipelines.work import Work

__all__ = ["DownSweep"]

Keyed = tuple[int, Arrays]
PUBLIC_FILE = 0o644


class DownSweep(beam.PTransform):
    """Measurements and facts to protected integer counts, from the top of the spine to its leaves."""

    def __init__(self, work: Work, release: ReleaseFolder) -> None:
        super().__init__()
        self.work, self.release = work, release

    def expand(self, start: beam.pvalue.PBegin) -> beam.PCollection[str]:
        """Build the steps, one join per level."""
        work, written = self.work, []
        above = start | "above the top" >> beam.Create([(0, Arrays({}))]).with_output_types(Keyed)
        for level in work.plan.levels:
            measured = (
                start
                | f"parts of {level}" >> beam.Create(list(work.parts(level)))
                | f"spread {level}" >> beam.Reshuffle()
                | f"read {level}" >> beam.ParDo(ReadFamilies(work, self.release)).with_output_types(Keyed)
            )
            solved = (
                {"parent": above, "family": measured}
                | f"join {level} with its parents" >> beam.CoGroupByKey()
                | f"estimate {level}" >> beam.ParDo(EstimateFamily(work, level)).with_output_types(Keyed)
            )
            above = solved | f"hand {level} down" >> beam.ParDo(ToChildren()).with_output_types(Keyed)
            written.append(
                solved
                | f"by part of {level}" >> beam.ParDo(ToPart(work, level)).with_output_types(Keyed)
                | f"gather {level}" >> beam.GroupByKey()
                | f"write {level}" >> beam.ParDo(WriteCounts(work, level)).with_output_types(str)
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


class EstimateFamily(beam.DoFn):
    """Solve one family and round it; the element is the family's counts and how well it was solved."""

    def __init__(self, work: Work, level: str) -> None:
        self.work, self.level = work, level

    def process(self, element: tuple[int, dict[str, Iterable[Arrays]]]) -> Iterator[Keyed]:
        """Yield the parent's position, the children's counts and the diagnostics."""
        parent, joined = element
        found, above = list(joined["family"]), list(joined["parent"])
        with complaining(self.work.partial):
            if len(found) != 1 or len(above) != 1:
                where = f"family {parent} of {self.level}"
                raise ProblemsFound(Problem(where, "its measurements and its parent do not meet", "verify the release"))
            problem = self._problem(parent, above[0], found[0])
            estimate = estimate_family(problem, solver=self.work.plan.settings.estimate.solver)
        yield parent, _solved(estimate, int(families(self.work.spine, self.level)[parent]))

    def _problem(self, parent: int, above: Arrays, family: Arrays) -> FamilyProblem:
        plan, spine = self.work.plan, self.work.spine
        offsets = families(spine, self.level)
        geocodes = spine.geocodes(self.level)[offsets[parent] : offsets[parent + 1]]
        if "cell" in above:
            cells, counts = above["cell"], above["count"]
        else:
            cells, counts = np.flatnonzero(plan.schema.possible), None
        values, at = np.asarray(family["values"], dtype=np.int64), 0
        measured = []
        for measurement in plan.at(self.level):
            size = measurement.query.size
            measured.append(
                Measured(
                    query=measurement.query,
                    values=values[:, at : at + size],
                    variance=measurement.mechanism.variance(),
                )
            )
            at += size
        facts = tuple(
            Fact(query, sign, np.asarray(family[name], dtype=np.int64))
            for query in plan.limited_queries
            for sign in ("=", ">=", "<=")
            if (name := f"{sign} {query.name}") in family
        )
        return FamilyProblem(
            level=self.level,
            geocodes=tuple(geocodes.tolist()),
            cells=np.asarray(cells, dtype=np.int64),
            parent=None if counts is None else np.asarray(counts, dtype=np.int64),
            measured=tuple(measured),
            limits=limits_of(facts, slice(None)),
        )


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
    """Hand each child its own counts: it is the parent of the next family."""

    def process(self, element: Keyed) -> Iterator[Keyed]:
        """Yield each child's position and its sparse counts."""
        arrays = element[1]
        counts = sparse_counts(arrays)
        children = np.asarray(arrays["children"], dtype=np.int64)
        cuts = np.searchsorted(counts.unit, np.append(children, children[-1] + 1))
        for child, start, stop in zip(children.tolist(), cuts[:-1], cuts[1:], strict=True):
            yield child, Arrays({"cell": counts.cell[start:stop], "count": counts.count[start:stop]})


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
    """Write a part's protected counts, and beside them how each family was solved."""

    def __init__(self, work: Work, level: str) -> None:
        self.work, self.level = work, level

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
