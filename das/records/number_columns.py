"""Columns of a confidential file as numbers; what is missing or is no number is named by its row, and not shown."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from das.errors import InputError, Problem, UsageError
from das.records.read import read_columns
from geography.problem_list import Source, listed

__all__ = ["number_columns"]


def number_columns(path: Path, columns: list[str]) -> NDArray[np.float64]:
    """Read columns of a ``.csv``, ``.csv.gz`` or ``.parquet`` file: an array (rows, columns).

    Raises
    ------
    InputError
        The file cannot be read, has no such column, has no rows, or some value is missing or is not a finite number.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "people.csv"
    ...     _ = path.write_text("age,income\\n30,10\\n41,20\\n")
    ...     number_columns(path, ["income", "age"]).tolist()
    [[10.0, 30.0], [20.0, 41.0]]
    """
    if not path.name.endswith((".csv", ".csv.gz", ".parquet")):
        raise InputError(Problem(path.name, "is neither .csv, .csv.gz nor .parquet", "convert or rename it"))
    twice = [name for name in dict.fromkeys(columns) if columns.count(name) > 1]
    if twice:
        raise UsageError(Problem(f"column {twice[0]!r}", "is named twice", "name it once"))
    blocks, bad = [], 0
    problems: list[Problem] = []
    for batch in read_columns(path, columns):
        block = np.column_stack([_numbers(batch.table.column(name)) for name in columns])
        wrong = np.argwhere(~np.isfinite(block))
        bad += len(wrong)
        if len(problems) < 20:
            source = Source(path.name, first_row=batch.first_row)
            for row, column in wrong[:20].tolist():
                reason = f"column {columns[column]!r} is missing or is not a finite number"
                problems.append(Problem(source.row(row), reason, "fill it in, or leave the row out; nothing was spent"))
        blocks.append(block)
    if bad:
        raise InputError(listed(range(bad), lambda i: problems[i], Source(path.name)))
    if not sum(map(len, blocks)):
        raise InputError(Problem(path.name, "has no rows", "name a file with some"))
    return np.concatenate(blocks)


def _numbers(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """Numbers of a column, with "not a number" for what is none."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        text = pc.utf8_trim_whitespace(column)
        good = pc.fill_null(pc.match_substring_regex(text, r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"), False)
        column = pc.if_else(good, pc.replace_substring_regex(text, r"^\+", ""), pa.scalar(None, text.type))
    try:
        return np.asarray(column.cast(pa.float64()).to_numpy().astype(np.float64))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return np.full(len(column), np.nan)
