"""Protected counts to products: tables for each level and area, and records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa

from das.encoding import Encoded
from das.places import areas_of
from das.plan import Plan
from das.query import Query, parse_query
from das.release.counts import read_counts
from das.release.durable import write_atomically
from das.release.layout import ReleaseFolder
from das.release.microdata import comment_of, table_of_records
from das.release.parts import Part, parquet_bytes
from das.release.tables import answers_of, csv_bytes, table_of_answers
from pipelines.complaints import complaining
from pipelines.work import Work

__all__ = ["PublishRecords", "PublishTable", "TableTask", "table_queries", "table_tasks"]

PUBLIC_FILE = 0o644


@dataclass(frozen=True, slots=True)
class TableTask:
    """One query tabulated for one level or for one kind of area."""

    place: str
    query: str

    def file_name(self, plan: Plan) -> str:
        """Name of the table's files, without their endings."""
        return f"{self.place}-{parse_query(plan.schema, self.query).slug}"


def table_queries(plan: Plan) -> list[Query]:
    """The queries to tabulate: as configured, or all that were measured but the detailed one."""
    names = plan.settings.output.tables
    if names is None:
        names = tuple(dict.fromkeys(m.query.name for m in plan.measurements if m.query.size < plan.schema.size))
    return [parse_query(plan.schema, name) for name in names]


def table_tasks(plan: Plan) -> list[TableTask]:
    """Every table of the release."""
    places = [*plan.levels, *(area.name for area in plan.settings.geography.areas)]
    return [TableTask(place, query.name) for place in places for query in table_queries(plan)]


class PublishTable(beam.DoFn):
    """Write one table, as Parquet and CSV."""

    def __init__(self, work: Work, release: ReleaseFolder) -> None:
        self.work, self.release = work, release

    def process(self, task: TableTask) -> Iterator[str]:
        """Yield the file's name."""
        plan, spine = self.work.plan, self.work.spine
        query = parse_query(plan.schema, task.query)
        with complaining(self.work.partial):
            if task.place in plan.levels:
                counts = _whole_level(self.work, self.release, task.place)
                answers = answers_of(query, counts, spine.size(task.place))
                shown = spine.real(task.place)
                codes, answers = spine.geocodes(task.place)[shown], answers[shown]
            else:
                counts = _whole_level(self.work, self.release, plan.levels[-1])
                areas = areas_of(plan, spine)[task.place]
                codes, answers = areas.codes, areas.tabulate(answers_of(query, counts, len(spine.leaves)))
            name = task.file_name(plan)
            _write(self.work.partial, name, table_of_answers(query, codes, answers), csv=plan.settings.output.csv)
        yield name


class PublishRecords(beam.DoFn):
    """Write the records of one part of the leaves."""

    def __init__(self, work: Work, release: ReleaseFolder, *, seeded: bool) -> None:
        self.work, self.release, self.seeded = work, release, seeded

    def process(self, part: Part) -> Iterator[str]:
        """Yield the file's name."""
        plan, spine = self.work.plan, self.work.spine
        with complaining(self.work.partial):
            counts = read_counts(spine, part.level, part.path(self.release.counts))
            counts = Encoded(counts.unit - part.start, counts.cell, counts.count)
            records = table_of_records(plan, spine.geocodes(part.level)[part.start : part.stop], counts)
            name = "records" if part.of == 1 else f"records-{part.index:05d}-of-{part.of:05d}"
            comment = comment_of(plan, seeded=self.seeded)
            _write(self.work.partial, name, records, csv=plan.settings.output.csv, delimiter="|", comment=comment)
        yield name


def _whole_level(work: Work, release: ReleaseFolder, level: str) -> Encoded:
    parts = [read_counts(work.spine, level, part.path(release.counts)) for part in work.parts(level)]
    return Encoded(*(np.concatenate([getattr(p, name) for p in parts]) for name in ("unit", "cell", "count")))


def _write(folder: Path, name: str, table: pa.Table, *, csv: bool, delimiter: str = ",", comment: str = "") -> None:
    write_atomically(folder / f"{name}.parquet", parquet_bytes(table), mode=PUBLIC_FILE)
    if csv:
        content = csv_bytes(table, delimiter=delimiter, comment=comment)
        write_atomically(folder / f"{name}.csv", content, mode=PUBLIC_FILE)
