"""Protected counts to products: tables for each level and area, and records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from das.inference.intervals.asked import ask
from das.inference.intervals.estimates import Estimates
from das.inference.intervals.public_files import PublicFiles
from das.inference.intervals.query import level_intervals
from das.plan.geography import areas_of
from das.plan.plan import Plan
from das.release.formats import Format, Style, TableWriter, formats_of
from das.release.microdata import comment_of, table_of_records
from das.release.tables import table_of_answers, table_of_intervals
from das.schema.counts import ProtectedCounts
from das.schema.query import Query, parse_query
from das.storage.counts import read_counts
from das.storage.files import write_atomically
from das.storage.layout import ReleaseFolder
from das.storage.shards import Shard, parquet_bytes
from geography import Areas, Spine
from pipelines.elements.context import WorkerContext
from pipelines.workers.errors import reporting_errors
from pipelines.workers.step_timer import timed

__all__ = ["PublishRecords", "PublishTable", "TableTask", "table_queries", "table_tasks", "write_area_members"]

ROWS_AT_ONCE = 100_000
"""Rows of a table that are held at a time."""
RUNS_KEPT = 8
"""Runs of so many rows whose counts a process keeps between tables."""
WIDEST_TABLE = 4096
"""Columns of a table that is written without being asked for; the counts say the same, row by row."""
LONGEST_INTERVALS = 500_000
"""Rows of a file of intervals; `das query` answers for longer tables, and for everything that is not a table."""
MOST_REMEMBERED = 20_000_000
"""Numbers of all tables of the leaves that a process remembers; a larger state reads its files once for each table."""


@dataclass(frozen=True, slots=True)
class TableTask:
    """One query tabulated for one level or for one kind of area."""

    place: str
    query: str

    def file_name(self, plan: Plan) -> str:
        """Name of the table's files, without their endings."""
        return f"{self.place}-{parse_query(plan.schema, self.query).slug}"

    def has_intervals(self, plan: Plan, spine: Spine, areas: Mapping[str, Areas]) -> bool:
        """Whether a file of intervals stands beside the table; its name ends in ``_intervals``."""
        settings = plan.settings
        linear = plan.mechanism_stage.measures and settings.estimate.information == "full"
        if not settings.output.intervals or not linear:
            return False
        places = spine.size(self.place) if self.place in plan.levels else len(areas[self.place].codes)
        return places * parse_query(plan.schema, self.query).size <= LONGEST_INTERVALS


def table_queries(plan: Plan) -> list[Query]:
    """The queries to tabulate: as configured, or all that were measured but the detailed and other long ones.

    Where nothing else is measured, totals are what everybody asks for first.
    """
    names = plan.settings.output.tables
    if names is None:
        most = min(plan.schema.size, WIDEST_TABLE + 1)
        names = tuple(dict.fromkeys(m.query.name for m in plan.measurements if m.query.size < most)) or ("total",)
    return [parse_query(plan.schema, name) for name in names]


def table_tasks(plan: Plan) -> list[TableTask]:
    """Every table of the release."""
    places = [*plan.levels, *(area.name for area in plan.settings.geography.areas)]
    return [TableTask(place, query.name) for place in places for query in table_queries(plan)]


class PublishTable(beam.DoFn):
    """Write one table, as Parquet and CSV."""

    def __init__(self, work: WorkerContext, release: ReleaseFolder) -> None:
        self.work, self.release = work, release
        self._areas: dict[str, Areas] | None = None
        self._counts: dict[tuple[str, int], ProtectedCounts] = {}

    @timed(lambda self, element: f"table of {element.place}")
    def process(self, task: TableTask) -> Iterator[str]:
        """Yield the file's name."""
        plan = self.work.plan
        name = task.file_name(plan)
        with reporting_errors(self.work.partial):
            _write(self.work.partial, name, self._pieces(task), plan, Style())
            if task.has_intervals(plan, self.work.spine, self._all_areas()):
                _write(self.work.partial, f"{name}_intervals", self._intervals(task), plan, Style())
        yield name

    def _intervals(self, task: TableTask) -> Iterator[pa.Table]:
        plan = self.work.plan
        areas = None if task.place in plan.levels else self._all_areas()[task.place]
        known = _estimates(self.release, plan, self.work.spine)
        found = level_intervals(known, task.place, ask(plan.schema, task.query), areas)
        yield table_of_intervals(parse_query(plan.schema, task.query), *found)

    def _pieces(self, task: TableTask) -> Iterator[pa.Table]:
        """The table's rows, not too many at a time."""
        plan, spine = self.work.plan, self.work.spine
        query = parse_query(plan.schema, task.query)
        if task.place in plan.levels:
            geocodes, real = spine.geocodes(task.place), spine.real(task.place)
            for here, answers in self._answers(task.place, query):
                yield table_of_answers(query, geocodes[here][real[here]], answers[real[here]])
            return
        areas = self._all_areas()[task.place]
        members = areas.membership.tocsc().astype(np.int64)
        totals = np.zeros((len(areas.codes), query.size), dtype=np.int64)
        for here, answers in self._answers(plan.levels[-1], query):
            totals += members[:, here] @ answers
        yield table_of_answers(query, areas.codes, totals)

    def _answers(self, level: str, query: Query) -> Iterator[tuple[slice, NDArray[np.int64]]]:
        """Runs of a level's geounits and their answers."""
        for run in _runs(self.work.shards(level)):
            here = slice(run[0].start, run[-1].stop)
            yield here, self._counts_of(level, run).answers(query, here.stop - here.start)

    def _counts_of(self, level: str, run: Sequence[Shard]) -> ProtectedCounts:
        """Counts of a run of geounits; those of a few runs are kept, because each level has several tables."""
        key = level, run[0].start
        if key not in self._counts:
            if len(self._counts) >= RUNS_KEPT:
                self._counts.clear()
            counts = [read_counts(self.work.spine, level, shard.path(self.release.counts)) for shard in run]
            unit, cell, count = (np.concatenate([getattr(c, n) for c in counts]) for n in ("unit", "cell", "count"))
            self._counts[key] = ProtectedCounts(unit - run[0].start, cell, count)
        return self._counts[key]

    def _all_areas(self) -> dict[str, Areas]:
        """Areas by kind, read once for all tables."""
        if self._areas is None:
            self._areas = areas_of(self.work.plan, self.work.spine)
        return self._areas


def write_area_members(plan: Plan, spine: Spine, folder: Path) -> None:
    """Write which leaves each area consists of, a file per kind, so that a release explains its own areas."""
    for kind, areas in areas_of(plan, spine).items():
        area, leaf = areas.membership.tocoo().coords
        codes = {"area": areas.codes[area], "geocode": spine.leaves[leaf]}
        table = pa.table({name: pa.array(column.tolist(), pa.string()) for name, column in codes.items()})
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / f"{kind}.parquet", parquet_bytes(table))


_ESTIMATES: dict[tuple[Path, str], Estimates] = {}


def _estimates(release: ReleaseFolder, plan: Plan, spine: Spine) -> Estimates:
    """The release's linear estimates, with covariances and what several tables need of its files, once per process."""
    key = release.path, plan.digest
    if key not in _ESTIMATES:
        _ESTIMATES.clear()
        tables = table_queries(plan)
        numbers = sum(query.size for query in tables) * len(spine.leaves)
        kept = tuple(ask(plan.schema, query.name) for query in tables) if numbers <= MOST_REMEMBERED else ()
        _ESTIMATES[key] = Estimates(PublicFiles(release, plan), kept)
    return _ESTIMATES[key]


def _runs(shards: Sequence[Shard]) -> Iterator[list[Shard]]:
    """Consecutive shards, so many at a time that they have about ``ROWS_AT_ONCE`` geounits."""
    run: list[Shard] = []
    for shard in shards:
        if run and shard.stop - run[0].start > ROWS_AT_ONCE:
            yield run
            run = []
        run.append(shard)
    yield run


class PublishRecords(beam.DoFn):
    """Write the records of one shard of the leaves."""

    def __init__(self, work: WorkerContext, release: ReleaseFolder, *, seeded: bool) -> None:
        self.work, self.release, self.seeded = work, release, seeded

    @timed(lambda self, element: "records")
    def process(self, shard: Shard) -> Iterator[str]:
        """Yield the file's name."""
        plan, spine = self.work.plan, self.work.spine

        def records() -> Iterator[pa.Table]:
            counts = read_counts(spine, shard.level, shard.path(self.release.counts)).within(shard.start, shard.stop)
            yield table_of_records(plan, spine.geocodes(shard.level)[shard.start : shard.stop], counts)

        with reporting_errors(self.work.partial):
            name = "records" if shard.of == 1 else f"records-{shard.index:05d}-of-{shard.of:05d}"
            style = Style(delimiter="|", comment=comment_of(plan, seeded=self.seeded))
            _write(self.work.partial, name, records(), plan, style)
        yield name


def _write(folder: Path, name: str, pieces: Iterable[pa.Table], plan: Plan, style: Style) -> None:
    """Write a table piece by piece, in every format that is wanted, unless an interrupted run has done so."""
    wanted = formats_of(plan.settings.output)
    if all((folder / f"{name}.{each.ending}").exists() for each in wanted):
        return

    def write(writers: list[TableWriter], formats: Sequence[Format]) -> None:
        if formats:  # open the next file inside the one before: all of them appear, or none
            first, *others = formats
            path = folder / f"{name}.{first.ending}"
            write_atomically(path, lambda file: write([*writers, first.open(file, style)], others))
            return
        for piece in pieces:
            for writer in writers:
                writer.write(piece)
        for writer in writers:
            writer.close()

    write([], wanted)
