"""Protected counts to products: tables for each level and area, and records."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from das.inference.intervals.asked import ask
from das.inference.intervals.estimates import Estimates
from das.inference.intervals.public_files import PublicFiles
from das.inference.intervals.query import level_intervals
from das.plan.geography import areas_of, names_of
from das.plan.plan import Plan
from das.release.formats import Format, Style, TableWriter, formats_of
from das.release.microdata import comment_of, table_of_records
from das.release.table_tasks import INTERVALS, TableTask, table_queries
from das.release.tables import table_of_answers, table_of_intervals
from das.schema.counts import ProtectedCounts
from das.schema.query import Query, parse_query
from das.storage.counts import read_counts
from das.storage.files import write_atomically
from das.storage.layout import ReleaseFolder
from das.storage.shards import Shard, parquet_bytes, read_parquet
from geography import Areas, Spine
from pipelines.elements.context import WorkerContext
from pipelines.workers.errors import reporting_errors
from pipelines.workers.step_timer import timed

__all__ = ["PublishRecords", "PublishTable", "join_records", "write_area_members"]

RECORDS = "records"
"""Name of the files of records, without their endings."""
ROWS_AT_ONCE = 100_000
"""Rows of a table that are held at a time."""
RUNS_KEPT = 8
"""Runs of so many rows whose counts a process keeps between tables."""
MOST_REMEMBERED = 20_000_000
"""Numbers of all tables of the leaves that a process remembers; a larger state reads its files once for each table."""


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
            style = Style(geoid=plan.settings.output.geoid)
            _write(self.work.partial, name, self._pieces(task), plan, style)
            if task.has_intervals(plan, self.work.spine, self._all_areas()):
                _write(self.work.partial, f"{name}{INTERVALS}", self._intervals(task), plan, style)
        yield name

    def _intervals(self, task: TableTask) -> Iterator[pa.Table]:
        plan, spine = self.work.plan, self.work.spine
        areas = None if task.place in plan.levels else self._all_areas()[task.place]
        known = _estimates(self.release, plan, spine)
        found = level_intervals(known, task.place, ask(plan.schema, task.query), areas)
        if areas is not None:
            names = areas.names if _has_names(plan, task.place) else None
        else:
            names = names_of(plan, spine).get(task.place)
            names = None if names is None else names[spine.real(task.place)]
        yield table_of_intervals(parse_query(plan.schema, task.query), *found, names, notes=known.files.notes())

    def _pieces(self, task: TableTask) -> Iterator[pa.Table]:
        """The table's rows, not too many at a time."""
        plan, spine = self.work.plan, self.work.spine
        query = parse_query(plan.schema, task.query)
        if task.place in plan.levels:
            geocodes, real = spine.geocodes(task.place), spine.real(task.place)
            names = names_of(plan, spine).get(task.place)
            for here, answers in self._answers(task.place, query):
                called = None if names is None else names[here][real[here]]
                yield table_of_answers(query, geocodes[here][real[here]], answers[real[here]], called)
            return
        areas = self._all_areas()[task.place]
        members = areas.membership.tocsc().astype(np.int64)
        totals = np.zeros((len(areas.codes), query.size), dtype=np.int64)
        for here, answers in self._answers(plan.levels[-1], query):
            totals += members[:, here] @ answers
        yield table_of_answers(query, areas.codes, totals, areas.names if _has_names(plan, task.place) else None)

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


def _has_names(plan: Plan, kind: str) -> bool:
    return any(area.names for area in plan.settings.geography.areas if area.name == kind)


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
    """Write the records of one shard of the leaves; :func:`join_records` makes one file of several."""

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
            if shard.of == 1:
                _write(self.work.partial, RECORDS, records(), plan, _record_style(plan, seeded=self.seeded))
            elif not (part := _part(self.work.partial, shard)).exists():
                part.parent.mkdir(exist_ok=True)
                write_atomically(part, parquet_bytes(next(records())))
        yield RECORDS


def join_records(plan: Plan, folder: Path, shards: Sequence[Shard], *, seeded: bool) -> None:
    """Make one file of the records of all shards, in every format, holding some shards at a time."""
    if len(shards) < 2:
        return

    def pieces() -> Iterator[pa.Table]:
        held: list[pa.Table] = []
        for shard in shards:
            held.append(read_parquet(_part(folder, shard)))
            if sum(piece.num_rows for piece in held) >= ROWS_AT_ONCE or shard is shards[-1]:
                yield pa.concat_tables(held).combine_chunks()
                held = []

    _write(folder, RECORDS, pieces(), plan, _record_style(plan, seeded=seeded))
    shutil.rmtree(_part(folder, shards[0]).parent)


def _part(folder: Path, shard: Shard) -> Path:
    return folder / "parts" / f"{shard.index:06d}.parquet"


def _record_style(plan: Plan, *, seeded: bool) -> Style:
    return Style(delimiter="|", comment=comment_of(plan, seeded=seeded))


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
