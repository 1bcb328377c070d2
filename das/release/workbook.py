"""An Excel workbook of a release: a sheet of notes, and a sheet for each chosen table with its intervals.

Codes, names and labels are written as text cells, so that nothing is computed and leading zeros stay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from das.errors import Problem, UsageError
from das.plan.load import load
from das.release.table_tasks import INTERVALS, TableTask, table_tasks
from das.schema.column_names import GEOID, NAME
from das.schema.query import answer_names, parse_query
from das.storage.layout import ReleaseFolder
from geography.problem_list import nearest

if TYPE_CHECKING:
    from openpyxl.worksheet.worksheet import Worksheet

__all__ = ["write_workbook"]

MOST_ROWS, MOST_COLUMNS, LONGEST_TITLE = 1_048_575, 16_384, 31
"""What a sheet holds below its header, and how long its name may be."""
BY_DEFAULT = 20_000
"""Cells of a table that goes into the workbook without being asked for."""


def write_workbook(release: ReleaseFolder, path: Path, chosen: Sequence[str] = ()) -> list[str]:
    """Write tables of a release to a workbook, and return their names.

    Parameters
    ----------
    release : ReleaseFolder
        A finished release.
    path : Path
        The file to write.
    chosen : sequence of str
        Names of tables, such as ``"district-total"``; all that are not long unless given.

    Raises
    ------
    UsageError
        A table is unknown or too large for a sheet, or openpyxl is not installed.
    """
    try:
        from openpyxl import Workbook
    except ImportError:
        remedy = 'install it: pip install "das[excel]"'
        raise UsageError(Problem("openpyxl", "is not installed, and writes workbooks", remedy)) from None
    plan = load(release.config)
    tasks = {task.file_name(plan): task for task in table_tasks(plan)}
    there = {name: task for name, task in tasks.items() if (release.tables / f"{name}.parquet").exists()}
    unknown = [name for name in chosen if name not in there]
    if unknown:
        raise UsageError(Problem("--table", f"{name!r} is not a table", nearest(name, there)) for name in unknown)
    names = list(chosen) or [name for name in there if _cells(release, name) <= BY_DEFAULT]
    book = Workbook()
    notes = book.worksheets[0]
    notes.title = "Notes"
    titles = _titles(names)
    for name in names:
        query = parse_query(plan.schema, there[name].query)
        _table(book.create_sheet(titles[name]), release, name, answer_names(query))
    _notes(notes, plan.name, plan.settings.privacy.unit, {titles[name]: there[name] for name in names})
    book.save(path)
    return names


def _cells(release: ReleaseFolder, name: str) -> int:
    metadata = pq.read_metadata(release.tables / f"{name}.parquet")
    return int(metadata.num_rows * metadata.num_columns)


def _titles(names: Sequence[str]) -> dict[str, str]:
    """Names of sheets: cut to what Excel takes, and numbered where that makes two the same."""
    found: dict[str, str] = {}
    for name in names:
        title, number = name[:LONGEST_TITLE], 1
        while title.lower() in (each.lower() for each in found.values()):
            number += 1
            title = f"{name[: LONGEST_TITLE - len(str(number)) - 1]}~{number}"
        found[name] = title
    return found


def _notes(sheet: Worksheet, name: str, unit: str, tables: dict[str, TableTask]) -> None:
    lines = [
        ("Release", name),
        (
            "What is counted",
            f"one for each {unit}; protected counts: noise was added, and no number is exact unless it was"
            " declared to be",
        ),
        ("low, high", "the truth lies between them in 95 of 100 releases; a count may lie outside of its interval"),
        ("A count of 0", "a small count; not a place without anybody"),
        ("Sums", "counts add up to those of the places above; do not add intervals: `das query` gives those of sums"),
        ("Codes", "text, of which leading zeros are a part"),
        ("Promise", "privacy.html beside the tables says what is promised about each person"),
    ]
    for line in lines:
        _texts(sheet, line)
    _texts(sheet, ())
    _texts(sheet, ("Sheet", "Places", "Query"))
    for title, task in tables.items():
        _texts(sheet, (title, task.place, task.query))
    sheet.column_dimensions["A"].width = 28
    sheet.column_dimensions["B"].width = 60


def _table(sheet: Worksheet, release: ReleaseFolder, name: str, labels: Sequence[str]) -> None:
    """One row a place: its code, its name, and for each answer the count with both ends of its interval."""
    from openpyxl.styles import Font

    table = pq.read_table(release.tables / f"{name}.parquet")
    beside = release.tables / f"{name}{INTERVALS}.parquet"
    ends = None
    if beside.exists():
        long = pq.read_table(beside, columns=["low", "high"])
        ends = [long[end].to_pylist() for end in ("low", "high")]
    places = [column for column in (GEOID, NAME) if column in table.column_names]
    wide = len(places) + len(labels) * (1 if ends is None else 3)
    if table.num_rows > MOST_ROWS or wide > MOST_COLUMNS:
        reason = f"has {table.num_rows:,} rows and {wide:,} columns, more than a sheet holds"
        raise UsageError(Problem(name, reason, "use its .csv or .parquet file"))
    shown = [re.sub(r" \* ", ", ", label) for label in labels]
    _texts(sheet, [*places, *(text for label in shown for text in _head(label, ends is not None))])
    counts = list(zip(*(table[column].to_pylist() for column in table.column_names[len(places) :]), strict=True))
    for row in range(table.num_rows):
        values: list[Any] = []
        for at, count in enumerate(counts[row]):
            position = row * len(labels) + at
            values += [count] if ends is None else [count, *(each[position] for each in ends)]
        _texts(sheet, [table[column][row].as_py() or "" for column in places], values)
    for cell in sheet[1]:
        cell.font = Font(bold=True)
    sheet.freeze_panes = sheet.cell(row=2, column=len(places) + 1)


def _head(label: str, with_ends: bool) -> tuple[str, ...]:
    return (label, f"{label}: low", f"{label}: high") if with_ends else (label,)


def _texts(sheet: Worksheet, texts: Sequence[str], numbers: Sequence[float | None] = ()) -> None:
    """Append a row of texts and numbers; a text stays text, whatever it begins with."""
    row = sheet.max_row + 1 if sheet.max_row > 1 or sheet.cell(1, 1).value is not None else 1
    for column, text in enumerate(texts, start=1):
        cell = sheet.cell(row, column, text)
        cell.data_type = "s"
        cell.number_format = "@"
    for column, number in enumerate(numbers, start=len(texts) + 1):
        sheet.cell(row, column, number)
