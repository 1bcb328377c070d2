"""Reading columns of CSV and Parquet files as text, and only as text.

A geocode is a string. A reader that infers types turns ``"01001"`` into 1001, which is not a county; nothing here
infers types.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from geography.arrays import LONGEST_CODE, Codes, Flags, codes_of
from geography.csv_file import UNREADABLE, UnevenRows, batches_of, fault_in, header_of
from geography.file_kind import ENDINGS, SAVE_AS_UTF8, other_kind, other_separator
from geography.problem import Problem, ProblemsFound
from geography.problem_list import AS_TEXT, Source, listed, nearest
from geography.table_text import why_not_in_a_table

MOST_UNPACKED = 200
"""How many times its own size a public file may unpack to: each of its rows is about another unit, so it packs less."""

UNPACKED_BYTES = 256 << 20
"""What any file may unpack to."""


def column_names(path: str | Path) -> tuple[str, ...]:
    """Return the names of a file's columns, in file order.

    Raises
    ------
    ProblemsFound
        The file is missing, empty, unreadable, of an unknown kind, or names a column twice.
    """
    path = Path(path)
    names = header(path)
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        raise ProblemsFound(
            listed(
                range(len(twice)),
                lambda i: Problem(str(path), f"column {twice[i]!r} appears twice", "rename one"),
                Source(str(path)),
            )
        )
    return names


def header(path: Path) -> tuple[str, ...]:
    """Return what a file's header says, also where it names a column twice."""
    _require_file(path)
    if path.suffix == ".parquet":
        return _parquet_names(path)
    try:
        names = header_of(path)
    except UNREADABLE as error:
        raise _unreadable(path, "UTF-8 CSV", error) from None
    if other := other_separator(names):
        raise ProblemsFound(Problem(str(path), *other))
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
        raise ProblemsFound(Problem(str(path), f"has no column {name!r}", nearest(name, known)) for name in missing)
    table = _read_parquet(path, columns) if path.suffix == ".parquet" else _read_csv(path, columns)
    if table.num_rows < at_least:
        raise ProblemsFound(Problem(str(path), "has no rows", "give at least one unit"))
    return {name: _as_codes(table[name], name, Source.of(path)) for name in columns}


def read_parquet(path: str | Path, columns: Sequence[str]) -> Any:
    """Read columns of a Parquet file as an Arrow table, with every failure as a Problem."""
    path = Path(path)
    _require_file(path)
    known = _parquet_names(path)
    missing = [name for name in columns if name not in known]
    if missing:
        raise ProblemsFound(Problem(str(path), f"has no column {name!r}", nearest(name, known)) for name in missing)
    try:
        table = pq.ParquetFile(path).read(columns=list(columns))
        table.validate(full=True)  # damaged text would be found by whoever looks at it first
        if table.column_names != list(columns):
            table = table.select(list(columns))
        return table
    except (*UNREADABLE, KeyError) as error:
        raise _unreadable(path, "Parquet", error) from None


def similar_file(path: Path, others: Collection[Path] = ()) -> str:
    """Return the remedy for a missing file: the one in its folder that is named alike, unless it is one of `others`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     people = Path(folder).resolve() / "people.csv"
    ...     _ = people.write_text("village")
    ...     similar_file(people.with_name("peopel.csv")), similar_file(people.with_name("peopel.csv"), {people})
    ("did you mean 'people.csv'?", '')
    """
    folder = path.parent
    beside = [entry for entry in folder.iterdir() if entry.name.endswith(ENDINGS)] if folder.is_dir() else []
    names = [entry.name for entry in beside if entry.resolve() not in others]
    hint = nearest(path.name, names) if names else ""
    return hint if hint.startswith("did you mean") else ""


def _require_file(path: Path) -> None:
    if not path.exists():
        raise ProblemsFound(Problem(str(path), "does not exist", similar_file(path) or "check the path"))
    if path.is_dir():
        raise ProblemsFound(Problem(str(path), "is a folder", "name one file"))
    if other := other_kind(path):
        raise ProblemsFound(Problem(str(path), *other))
    if path.stat().st_size == 0:
        raise ProblemsFound(Problem(str(path), "is empty", "write the file again"))


def _unreadable(path: Path, kind: str, error: BaseException) -> ProblemsFound:
    reason = f"cannot be read as {kind} ({fault_in(path, error)})"
    remedy = SAVE_AS_UTF8 if "not UTF-8" in reason else "write or copy the file again"
    return ProblemsFound(Problem(str(path), reason, remedy))


def _parquet_names(path: Path) -> tuple[str, ...]:
    try:
        return tuple(pq.read_schema(path).names)
    except UNREADABLE as error:
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


def _read_csv(path: Path, columns: Sequence[str]) -> Any:
    uneven = UnevenRows()
    batches, unpacked = [], 0
    most = max(path.stat().st_size * MOST_UNPACKED, UNPACKED_BYTES)
    try:
        for batch in batches_of(path, columns, uneven):
            batches.append(batch)
            unpacked += batch.nbytes
            if unpacked > most:
                reason = f"unpacks to more than {MOST_UNPACKED} times its size"
                raise ProblemsFound(Problem(str(path), reason, "write the file again, each unit once"))
        table = pa.Table.from_batches(batches, pa.schema([(name, pa.string()) for name in columns]))
    except UNREADABLE as error:
        raise _unreadable(path, "UTF-8 CSV", error) from None

    def describe(position: int) -> Problem:
        row, actual, expected = uneven.first[position]
        reason = f"has {actual} fields where the header has {expected}"
        return Problem(f"{path}, row {row}", reason, "quote a field that holds a comma")

    if uneven.count:
        raise ProblemsFound(listed(range(uneven.count), describe, Source.of(path)))
    return table


def _as_codes(column: Any, name: str, source: Source) -> Codes:
    """Turn a column into codes; refuse what no code can be, before it can fill the memory or reach a table."""
    text = column.cast(pa.string())
    long = _flags(pc.greater(pc.utf8_length(text), LONGEST_CODE))
    # Arrow's pattern finds the few that are worth a look; what it finds is all that the other could refuse.
    perhaps = _flags(pc.match_substring_regex(text, r"[^0-9A-Za-z _.]")) & ~long
    why = {int(i): why_not_in_a_table(text[int(i)].as_py()) for i in np.flatnonzero(perhaps)}
    wrong = [i for i, reason in why.items() if reason]
    too_long = f"{name!r} is longer than {LONGEST_CODE} characters"
    problems = [
        *listed(np.flatnonzero(long), lambda i: Problem(source.row(i), too_long, "shorten it"), source),
        *listed(wrong, lambda i: Problem(source.row(i), f"{name!r} {why[i]}"), source),
    ]
    if problems:
        raise ProblemsFound(problems)
    return codes_of(text)


def _flags(found: pa.ChunkedArray) -> Flags:
    """Arrow's yes and no; of what is missing nothing is true."""
    return np.concatenate(
        [np.zeros(0, np.bool_), *((chunk.to_numpy(zero_copy_only=False) == True) for chunk in found.chunks)]  # noqa: E712
    )
