"""Reading columns of CSV and Parquet files as text, and only as text.

A geocode is a string. A reader that infers types turns ``"01001"`` into 1001, which is not a county; nothing here
infers types.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from geography.arrays import Codes
from geography.problem import Problem, ProblemsFound
from geography.problem_list import AS_TEXT, Source, listed, nearest


def column_names(path: str | Path) -> tuple[str, ...]:
    """Return the names of a file's columns, in file order.

    Raises
    ------
    ProblemsFound
        The file is missing, empty, unreadable, of an unknown kind, or names a column twice.
    """
    path = Path(path)
    _require_file(path)
    names = _parquet_names(path) if path.suffix == ".parquet" else _csv_names(path)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ProblemsFound(Problem(str(path), f"column {name!r} appears twice", "rename one") for name in twice)
    return names


def read_text_columns(path: str | Path, columns: Sequence[str], *, at_least: int = 1) -> dict[str, Codes]:
    """Read columns of a ``.csv``, ``.csv.gz`` or ``.parquet`` file as text; a missing value is blank.

    Parameters
    ----------
    path : str or Path
    columns : sequence of str
        The columns wanted, by name.
    at_least : int
        How many rows there must be.

    Raises
    ------
    ProblemsFound
        The file cannot be read, has too few rows, lacks a column, or holds numbers where text is needed.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "geo.csv"
    ...     _ = path.write_text("state,county\\n01,001\\n")
    ...     read_text_columns(path, ["county"])["county"].tolist()
    ['001']
    """
    path = Path(path)
    known = column_names(path)
    missing = [name for name in columns if name not in known]
    if missing:
        raise ProblemsFound(
            Problem(str(path), f"has no column {name!r}", nearest(name, known) + _other_delimiter(known))
            for name in missing
        )
    table = _read_parquet(path, columns) if path.suffix == ".parquet" else _read_csv(path, columns)
    if table.num_rows < at_least:
        raise ProblemsFound(Problem(str(path), "has no rows", "give at least one unit"))
    return {name: _as_codes(table[name]) for name in columns}


def read_parquet(path: str | Path, columns: Sequence[str]) -> Any:
    """Read columns of a Parquet file as an Arrow table, with every failure as a Problem."""
    path = Path(path)
    _require_file(path)
    known = _parquet_names(path)
    missing = [name for name in columns if name not in known]
    if missing:
        raise ProblemsFound(Problem(str(path), f"has no column {name!r}", nearest(name, known)) for name in missing)
    try:
        return pq.read_table(path, columns=list(columns))
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, "Parquet", error) from None


def _require_file(path: Path) -> None:
    if not path.exists():
        neighbours = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        hint = nearest(path.name, neighbours) if neighbours else ""
        remedy = hint if hint.startswith("did you mean") else "check the path"
        raise ProblemsFound(Problem(str(path), "does not exist", remedy))
    if path.is_dir():
        raise ProblemsFound(Problem(str(path), "is a folder", "name one file"))
    if not path.name.endswith((".csv", ".csv.gz", ".parquet")):
        raise ProblemsFound(Problem(str(path), "is neither .csv, .csv.gz nor .parquet", "convert or rename it"))
    if path.stat().st_size == 0:
        raise ProblemsFound(Problem(str(path), "is empty", "write the file again"))


def _unreadable(path: Path, kind: str, error: Exception) -> ProblemsFound:
    first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
    return ProblemsFound(Problem(str(path), f"cannot be read as {kind} ({first_line})", "write or copy the file again"))


def _parquet_names(path: Path) -> tuple[str, ...]:
    try:
        return tuple(pq.read_schema(path).names)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, "Parquet", error) from None


def _read_parquet(path: Path, columns: Sequence[str]) -> Any:
    table = read_parquet(path, columns)
    problems = []
    for name in columns:
        kind = table.schema.field(name).type
        value_kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if pa.types.is_integer(value_kind) or pa.types.is_floating(value_kind):
            problems.append(
                Problem(str(path), f"column {name!r} holds numbers, which have lost leading zeros", AS_TEXT)
            )
        elif not _is_text(value_kind):
            problems.append(Problem(str(path), f"column {name!r} is of type {kind}, not text", AS_TEXT))
    if problems:
        raise ProblemsFound(problems)
    return table


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _csv_names(path: Path) -> tuple[str, ...]:
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as lines:
            return tuple(next(csv.reader(lines), ()))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise _unreadable(path, "UTF-8 CSV", error) from None


def _read_csv(path: Path, columns: Sequence[str]) -> Any:
    uneven: list[Any] = []

    def note(row: Any) -> str:
        uneven.append(row)
        return "skip"

    try:
        table = pa_csv.read_csv(
            path,
            # One thread, because only then does Arrow know the number of a bad row.
            read_options=pa_csv.ReadOptions(use_threads=False),
            parse_options=pa_csv.ParseOptions(ignore_empty_lines=False, invalid_row_handler=note),
            convert_options=pa_csv.ConvertOptions(
                include_columns=list(columns), column_types=dict.fromkeys(columns, pa.string())
            ),
        )
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, "UTF-8 CSV", error) from None

    def describe(position: int) -> Problem:
        row = uneven[position]
        reason = f"has {row.actual_columns} fields where the header has {row.expected_columns}"
        return Problem(f"{path}, row {row.number}", reason, "quote a field that holds a comma")

    if uneven:
        raise ProblemsFound(listed(range(len(uneven)), describe, Source.of(path)))
    return table


def _other_delimiter(names: Sequence[str]) -> str:
    found = next((mark for mark in "|;\t" if len(names) == 1 and mark in names[0]), None)
    return "" if found is None else f"; the fields seem to be separated by {found!r}, write commas instead"


def _as_codes(column: Any) -> Codes:
    values = column.cast(pa.string()).fill_null("").to_numpy(zero_copy_only=False)
    return np.asarray(values).astype(np.str_)
