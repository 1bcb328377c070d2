"""Tables keyed by geocode: a row per area, a column per answer of a query."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from das.schema.column_names import GEOID, NAME, NOTE, NUMBERS, answer_columns, label_columns
from das.schema.query import Query

__all__ = ["csv_bytes", "in_form", "label_columns_of", "table_of_answers", "table_of_intervals"]


def table_of_answers(
    query: Query, codes: NDArray[np.str_], answers: NDArray[np.int64], names: NDArray[np.str_] | None = None
) -> pa.Table:
    """Lay out answers with the codes and names of their places; a column is named by the labels that it counts."""
    columns = _places(codes, names, 1)
    columns |= {name: pa.array(answers[:, i]) for i, name in enumerate(answer_columns(query))}
    return pa.table(columns)


def table_of_intervals(
    query: Query,
    codes: Sequence[str],
    numbers: Mapping[str, NDArray[np.float64]],
    names: NDArray[np.str_] | None = None,
    *,
    notes: Sequence[str] = (),
) -> pa.Table:
    """Lay out counts with their linear estimates and intervals, in long form: a row per area and answer.

    Columns: GEOID, and NAME where places have names; one per attribute or recode that the query keeps, with its label;
    ``count``, the published count; ``estimate``, the linear estimate, which is unbiased and may be negative;
    ``std_dev``, its standard deviation; and ``low`` and ``high``, the 95 % interval, which is not cut at the published
    count. Where there is something to know of every interval, as beside counts of an earlier release, a last column
    ``note`` says it in each row.

    Parameters
    ----------
    query
        What the table counts.
    codes
        Geocodes of the areas.
    numbers
        ``count``, ``estimate``, ``std_dev``, ``low`` and ``high``: areas x answers each.
    names
        What the areas are called; none to have no such column.
    notes
        What `das query` says below every answer.

    Examples
    --------
    >>> from das.schema.query import parse_query
    >>> from das.schema.schema import Attribute, Schema
    >>> sex = parse_query(Schema((Attribute("sex", ("f", "m")),)), "sex")
    >>> numbers = {name: np.array([[5.0, 4.0]]) for name in ("count", "estimate", "std_dev", "low", "high")}
    >>> table_of_intervals(sex, ["01"], numbers).to_pylist()[1]
    {'GEOID': '01', 'sex': 'm', 'count': 4, 'estimate': 4.0, 'std_dev': 4.0, 'low': 4.0, 'high': 4.0}
    >>> table_of_intervals(sex, ["01"], numbers, notes=["kept as published"])["note"].to_pylist()
    ['kept as published', 'kept as published']
    """
    labels = list(query.labels())
    columns = _places(np.asarray(codes, np.str_), names, query.size)
    for at, name in enumerate(label_columns_of(query)):
        columns[name] = pa.array([label[at] for label in labels] * len(codes), pa.string())
    columns["count"] = pa.array(np.asarray(numbers["count"]).reshape(-1).astype(np.int64))
    for name in NUMBERS[1:]:
        columns[name] = pa.array(np.round(numbers[name].reshape(-1), 3), pa.float64(), from_pandas=True)
    if notes:
        columns[NOTE] = pa.array(["; ".join(notes)] * len(columns["count"]), pa.string())
    return pa.table(columns)


def label_columns_of(query: Query) -> list[str]:
    """Columns of labels in a table of intervals: one for each attribute or recode that the query keeps."""
    return label_columns([factor.name for factor in query.factors if not factor.is_everything], (*NUMBERS, NOTE))


def _places(codes: NDArray[np.str_], names: NDArray[np.str_] | None, each: int) -> dict[str, pa.Array]:
    """Columns of codes and names, each place so many times; a place without a name has null."""
    columns = {GEOID: pa.array(np.repeat(codes, each).tolist(), pa.string())}
    if names is not None:
        columns[NAME] = pa.array([name or None for name in np.repeat(names, each).tolist()], pa.string())
    return columns


def in_form(table: pa.Table, form: str) -> pa.Table:
    """Write codes as a spreadsheet keeps them as text, where ``form`` is ``"excel"``.

    Examples
    --------
    >>> in_form(pa.table({"GEOID": ["01"], "total": [3]}), "excel").to_pylist()
    [{'GEOID': '="01"', 'total': 3}]
    """
    if form != "excel" or GEOID not in table.column_names:
        return table
    codes = ['="' + code.replace('"', '""') + '"' for code in table[GEOID].to_pylist()]
    return table.set_column(table.column_names.index(GEOID), GEOID, pa.array(codes, pa.string()))


def csv_bytes(
    table: pa.Table, *, delimiter: str = ",", comment: str = "", header: bool = True, quoted: bool = False
) -> bytes:
    """Write a table as CSV, with an optional comment line before the header.

    Text is quoted only where it must be, unless ``quoted``: then all text is, the header too, and no number.

    Examples
    --------
    >>> csv_bytes(pa.table({"GEOID": ["01"], "total": [3]}))
    b'GEOID,total\\n01,3\\n'
    >>> csv_bytes(pa.table({"GEOID": ["01"], "total": [3]}), quoted=True)
    b'"GEOID","total"\\n"01",3\\n'
    """
    sink = io.BytesIO()
    if comment:
        sink.write(f"# {comment}\n".encode())
    if header:
        names = io.StringIO()
        header_row = csv.writer(
            names, csv.unix_dialect if quoted else csv.excel, delimiter=delimiter, lineterminator="\n"
        )
        header_row.writerow(table.column_names)
        sink.write(names.getvalue().encode())
    body = io.BytesIO()
    try:
        pa_csv.write_csv(table, body, _options(delimiter, "needed" if quoted else "none"))
    except pa.ArrowInvalid:  # a value holds a delimiter or a quote
        body = io.BytesIO()
        pa_csv.write_csv(table, body, _options(delimiter, "needed"))
    return sink.getvalue() + body.getvalue()


def _options(delimiter: str, quoting: str) -> pa_csv.WriteOptions:
    return pa_csv.WriteOptions(include_header=False, delimiter=delimiter, quoting_style=quoting)
