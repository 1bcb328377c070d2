"""Reading the confidential files piece by piece: batches of raw columns with their row numbers.

A message names the file, the row and the column of what does not fit, and never shows what stands there: a label with
the number of its row is a part of a person's record, and after a lost comma a count may stand where a label should.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from das.errors import InputError, Problem, ProblemsFound
from das.plan.files import remedy_for_missing
from das.plan.plan import Plan
from geography.csv_file import UNREADABLE, Span, UnevenRows, batches_of, fault_in, spans_of
from geography.file_kind import SAVE_AS_UTF8, other_kind, remote_scheme
from geography.problem_list import Source, listed, nearest
from geography.reading import header

__all__ = [
    "Batch",
    "Chunk",
    "chunks",
    "files_matching",
    "fingerprints",
    "input_files",
    "public_files",
    "read",
    "read_columns",
]

COPY_AGAIN = "copy or write the file again"

CHUNK_ROWS = 1 << 18
"""Row groups are gathered into chunks of at least this many rows: a file of thousands is opened a few times."""

SPAN_BYTES = 32 << 20
"""About so many bytes of a CSV file are a chunk: several workers read one file."""

BATCH_ROWS = 1 << 18
"""Rows that are in memory at a time: a row group of a few bytes may hold millions."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of an input file that one worker reads: row groups of a Parquet file, a span of a CSV file or all of it.

    ``part`` names the piece among all pieces of the input, if its length is bounded; what is placed of it can be kept.
    """

    path: str
    groups: tuple[int, ...] | None
    first_row: int
    span: Span | None = None
    part: str | None = None

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
        matches = files_matching(plan, pattern)
        if not matches and (scheme := remote_scheme(pattern)):
            problems.append(Problem(pattern, f"files of {scheme}:// are not read", "copy them here, or mount them"))
        elif not matches:
            remedy = remedy_for_missing(plan, pattern) or "paths are relative to the config file"
            problems.append(Problem(pattern, "no such file", remedy))
        found.extend(matches)
    problems += [Problem(path.name, *other) for path in found if (other := other_kind(path))]
    if problems:
        raise InputError(problems)
    return sorted({path.resolve() for path in found})  # a file that two patterns name is read once


def files_matching(plan: Plan, pattern: str) -> list[Path]:
    """Find the files that one pattern names; relative ones start at the config's folder."""
    path = Path(pattern)
    root = Path(path.anchor) if path.is_absolute() else plan.folder
    try:
        return [match for match in root.glob(str(path.relative_to(path.anchor))) if match.is_file()]
    except (ValueError, IndexError, NotImplementedError):  # no pattern at all, such as "." or "a**b"
        return []


def public_files(plan: Plan) -> list[Path]:
    """Find the public files that the config names; a file that also holds the records is not one of them."""
    geography = plan.settings.geography
    named = [name for name in (geography.units, geography.crosswalk) if name]
    named += [area.file for area in geography.areas] + [bound.source for bound in plan.bounds]
    paths = dict.fromkeys((plan.folder / name).resolve() for name in named)
    records = {match.resolve() for pattern in plan.settings.input.files for match in files_matching(plan, pattern)}
    return [path for path in paths if path not in records]


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
    for number, path in enumerate(input_files(plan)):
        try:
            known = header(path)
            out.extend(_pieces(path, f"place-{number}"))
        except ProblemsFound as error:
            problems += [replace(problem, where=path.name) for problem in error.problems]
            continue
        except UNREADABLE as error:
            problems.append(_unreadable(path, error))
            continue
        problems += [_no_column(path, name, known) for name in wanted if name not in known]
        # Only names that the config has are shown: without a header, the first record stands in its place.
        twice = [name for name in wanted if known.count(name) > 1]
        problems += [Problem(path.name, f"column {name!r} appears twice", "rename one") for name in twice]
    if problems:
        raise InputError(problems)
    return out


def read(chunk: Chunk, plan: Plan) -> Iterator[Batch]:
    """Read a chunk's columns; text stays text, because type inference would lose leading zeros."""
    path = Path(chunk.path)
    columns = columns_of(plan)
    try:
        if chunk.groups is not None:
            yield from _read_parquet(path, columns, chunk.groups, chunk.first_row)
        else:
            yield from _read_csv(path, columns, chunk.first_row, chunk.span)
    except (*UNREADABLE, KeyError) as error:
        raise InputError(_unreadable(path, error)) from None


def read_columns(path: Path, columns: list[str]) -> Iterator[Batch]:
    """Read columns of one file that no plan describes.

    Raises
    ------
    InputError
        The file is missing or cannot be read, or has no such column; the nearest one is named.
    """
    try:
        known = header(path)
        missing = [_no_column(path, name, known) for name in columns if name not in known]
        if missing:
            raise InputError(missing)
        if path.suffix == ".parquet":
            groups = tuple(range(pq.read_metadata(path).num_row_groups))
            yield from _read_parquet(path, columns, groups, 1)
        else:
            yield from _read_csv(path, columns, 2)
    except InputError:
        raise
    except ProblemsFound as error:
        raise InputError(error.problems) from None
    except (*UNREADABLE, KeyError) as error:
        raise InputError(_unreadable(path, error)) from None


def _pieces(path: Path, name: str) -> Iterator[Chunk]:
    if path.suffix != ".parquet":
        short = path.suffix != ".gz" and path.stat().st_size <= SPAN_BYTES
        spans = [] if short else spans_of(path, SPAN_BYTES)
        for span in spans:
            yield Chunk(str(path), None, span.first_row, span, f"{name}-{span.first_row}")
        if not spans:
            yield Chunk(str(path), None, 2, part=f"{name}-2" if short else None)
        return
    metadata = pq.read_metadata(path)
    first, rows, groups = 1, 0, []
    for group in range(metadata.num_row_groups):
        groups.append(group)
        rows += metadata.row_group(group).num_rows
        if rows >= CHUNK_ROWS or group == metadata.num_row_groups - 1:
            yield Chunk(str(path), tuple(groups), first, part=f"{name}-{first}")
            first, rows, groups = first + rows, 0, []


def _read_parquet(path: Path, columns: list[str], groups: tuple[int, ...], first_row: int) -> Iterator[Batch]:
    row = first_row
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(BATCH_ROWS, row_groups=list(groups), columns=columns):
            batch.validate(full=True)  # damaged text would be found by whoever looks at it first
            yield Batch(pa.Table.from_batches([batch]).select(columns), row)
            row += batch.num_rows


def _read_csv(path: Path, columns: list[str], first_row: int, span: Span | None = None) -> Iterator[Batch]:
    uneven, row = UnevenRows(), first_row
    for batch in batches_of(path, columns, uneven, span):
        if not uneven.count:
            yield Batch(pa.Table.from_batches([batch]), row)
        row += batch.num_rows
    if uneven.count:
        reason, remedy = "has another number of fields than the header", "mend the row, or delete it if it is blank"
        raise InputError(
            listed(
                range(uneven.count),
                lambda i: Problem(f"{path.name}, row {uneven.first[i][0]}", reason, remedy),
                Source(path.name),
            )
        )


def _no_column(path: Path, name: str, known: tuple[str, ...]) -> Problem:
    # A file without a header shows its first record where the names should be, so they are not listed.
    near = nearest(name, [column for column in known if not column.isdigit()])
    remedy = near if near.startswith("did you mean") else "its first row must name its columns as [input] does"
    return Problem(path.name, f"has no column {name!r}", remedy)


def _unreadable(path: Path, error: BaseException) -> Problem:
    # Arrow's message may quote the row that it failed on, so only the place is shown.
    kind, fault = "Parquet" if path.suffix == ".parquet" else "CSV", fault_in(path, error)
    remedy = SAVE_AS_UTF8 if "not UTF-8" in fault else COPY_AGAIN
    return Problem(path.name, f"cannot be read as {kind} ({fault})", remedy)
