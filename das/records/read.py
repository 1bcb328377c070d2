"""Reading the confidential files piece by piece: batches of raw columns with their row numbers.

A message about a row may name the file, the row and a label or geocode that does not fit; it never shows a count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from das.errors import InputError, Problem, ProblemsFound
from das.plan.plan import Plan
from geography import column_names
from geography.problem_list import Source, listed, nearest

__all__ = ["Batch", "Chunk", "chunks", "fingerprints", "input_files", "read"]

COPY_AGAIN = "copy or write the file again"


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of an input file that one worker reads: a row group of a Parquet file, or a whole CSV file."""

    path: str
    group: int | None
    first_row: int

    @property
    def name(self) -> str:
        """The file's name without its folder: what messages show."""
        return Path(self.path).name


@dataclass(frozen=True, slots=True, repr=False)
class Batch:
    """Rows as Arrow columns, and the number of the first one."""

    table: pa.Table
    first_row: int


def input_files(plan: Plan) -> list[Path]:
    """Find the files that the config's patterns name, sorted; a pattern that matches nothing is an error."""
    found: list[Path] = []
    problems = []
    for pattern in plan.settings.input.files:
        path = Path(pattern)
        matches = files_matching(plan, pattern)
        if not matches:
            folder = (plan.folder / path).parent
            names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
            near = nearest(path.name, names) if names else ""
            remedy = near if near.startswith("did you mean") else "paths are relative to the config file"
            problems.append(Problem(pattern, "no such file", remedy))
        found.extend(matches)
    for path in found:
        if not path.name.endswith((".csv", ".csv.gz", ".parquet")):
            problems.append(Problem(path.name, "is neither .csv, .csv.gz nor .parquet", "convert or rename it"))
    if problems:
        raise InputError(problems)
    return sorted({path.resolve() for path in found})  # a file that two patterns name is read once


def files_matching(plan: Plan, pattern: str) -> list[Path]:
    """Find the files that one pattern names; relative ones start at the config's folder."""
    path = Path(pattern)
    root = Path(path.anchor) if path.is_absolute() else plan.folder
    return [match for match in root.glob(str(path.relative_to(path.anchor))) if match.is_file()]


def fingerprints(files: list[Path]) -> list[dict[str, str]]:
    """Name and SHA-256 of each file: confidential, because a hash lets anyone test a hypothesis about the contents."""
    out = []
    for path in files:
        with path.open("rb") as file:
            out.append({"name": path.name, "sha256": hashlib.file_digest(file, "sha256").hexdigest()})
    return out


def columns_of(plan: Plan) -> list[str]:
    """List the columns that the config asks for."""
    settings = plan.settings.input
    columns = list(settings.geocode)
    if settings.cell:
        for cell in settings.cell:
            columns += [cell.column, *([cell.minus] if cell.minus else [])]
    else:
        columns += [settings.columns.get(name, name) for name in plan.schema.names]
        columns += [settings.count] if settings.histograms else []
    return list(dict.fromkeys(columns))


def chunks(plan: Plan) -> list[Chunk]:
    """Split the input into pieces for workers, after checking that each file opens and has its columns."""
    out: list[Chunk] = []
    problems: list[Problem] = []
    wanted = columns_of(plan)
    for path in input_files(plan):
        try:
            known = column_names(path)
            out.extend(_pieces(path))
        except ProblemsFound as error:
            problems += [replace(problem, where=path.name) for problem in error.problems]
            continue
        except (pa.ArrowException, OSError) as error:
            problems.append(_unreadable(path, error))
            continue
        problems += [_no_column(path, name, known) for name in wanted if name not in known]
    if problems:
        raise InputError(problems)
    return out


def read(chunk: Chunk, plan: Plan) -> Iterator[Batch]:
    """Read a chunk's columns; text stays text, because type inference would lose leading zeros."""
    path = Path(chunk.path)
    columns = columns_of(plan)
    try:
        if chunk.group is not None:
            with pq.ParquetFile(path) as file:
                yield Batch(file.read_row_group(chunk.group, columns=columns), chunk.first_row)
            return
        yield from _read_csv(path, columns, chunk.first_row)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise InputError(_unreadable(path, error)) from None


def _pieces(path: Path) -> Iterator[Chunk]:
    if path.suffix != ".parquet":
        yield Chunk(str(path), None, 2)
        return
    metadata = pq.read_metadata(path)
    first = 1
    for group in range(metadata.num_row_groups):
        yield Chunk(str(path), group, first)
        first += metadata.row_group(group).num_rows


def _read_csv(path: Path, columns: list[str], first_row: int) -> Iterator[Batch]:
    ragged: list[int] = []

    def note(row: pa_csv.InvalidRow) -> str:
        ragged.append(row.number or 0)
        return "skip"

    reader = pa_csv.open_csv(
        pa.input_stream(str(path), compression="detect"),
        read_options=pa_csv.ReadOptions(use_threads=False, block_size=16 << 20),
        parse_options=pa_csv.ParseOptions(ignore_empty_lines=False, invalid_row_handler=note),
        convert_options=pa_csv.ConvertOptions(
            include_columns=columns, column_types={name: pa.string() for name in columns}, strings_can_be_null=False
        ),
    )
    row = first_row
    for batch in reader:
        if not ragged:
            yield Batch(pa.Table.from_batches([batch]), row)
        row += batch.num_rows
    if ragged:
        source = Source(path.name, rows=np.array(ragged))
        reason, remedy = "has another number of fields than the header", "mend the row, or delete it if it is blank"
        raise InputError(listed(range(len(ragged)), lambda i: Problem(source.row(i), reason, remedy), source))


def _no_column(path: Path, name: str, known: tuple[str, ...]) -> Problem:
    # A file without a header shows its first record where the names should be, so they are not listed.
    near = nearest(name, [column for column in known if not column.isdigit()])
    remedy = near if near.startswith("did you mean") else "its first row must name its columns as [input] does"
    return Problem(path.name, f"has no column {name!r}", remedy)


def _unreadable(path: Path, error: Exception) -> Problem:
    # Arrow's message may quote the row that it failed on, so only the kind of failure is shown.
    kind = "Parquet" if path.suffix == ".parquet" else "CSV"
    return Problem(path.name, f"cannot be read as {kind} ({type(error).__name__}): truncated or damaged", COPY_AGAIN)
