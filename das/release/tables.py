"""Tables keyed by geocode: a row per area, a column per answer of a query."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from das.schema.query import Query, answer_names

__all__ = ["csv_bytes", "table_of_answers", "table_of_intervals"]


def table_of_answers(query: Query, codes: NDArray[np.str_], answers: NDArray[np.int64]) -> pa.Table:
    """Lay out answers with their geocodes; an answer's column is named by the labels that it counts."""
    columns = {"GEOID": pa.array(codes.tolist(), pa.string())}
    columns |= {name: pa.array(answers[:, i]) for i, name in enumerate(answer_names(query))}
    return pa.table(columns)


def table_of_intervals(
    query: Query, codes: Sequence[str], numbers: Mapping[str, NDArray[np.float64]], *, notes: Sequence[str] = ()
) -> pa.Table:
    """Lay out counts with their linear estimates and intervals, in long form: a row per area and answer.

    Columns: GEOID; one per attribute or recode that the query keeps, with its label; ``count``, the published count;
    ``estimate``, the linear estimate, which is unbiased and may be negative; ``std_dev``, its standard deviation; and
    ``low`` and ``high``, the 95 % interval, which is not cut at the published count. Where there is something to know
    of every interval, as beside counts of an earlier release, a last column ``note`` says it in each row.

    Parameters
    ----------
    query
        What the table counts.
    codes
        Geocodes of the areas.
    numbers
        ``count``, ``estimate``, ``std_dev``, ``low`` and ``high``: areas x answers each.
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
    columns: dict[str, pa.Array] = {"GEOID": pa.array(np.repeat(np.asarray(codes, np.str_), query.size).tolist())}
    for at, factor in enumerate(factor for factor in query.factors if not factor.is_everything):
        columns[factor.name] = pa.array([label[at] for label in labels] * len(codes), pa.string())
    columns["count"] = pa.array(np.asarray(numbers["count"]).reshape(-1).astype(np.int64))
    for name in ("estimate", "std_dev", "low", "high"):
        columns[name] = pa.array(np.round(numbers[name].reshape(-1), 3), pa.float64(), from_pandas=True)
    if notes:
        columns["note"] = pa.array(["; ".join(notes)] * len(columns["count"]), pa.string())
    return pa.table(columns)


def csv_bytes(table: pa.Table, *, delimiter: str = ",", comment: str = "", header: bool = True) -> bytes:
    """Write a table as CSV, quoting only where needed, with an optional comment line before the header.

    Examples
    --------
    >>> csv_bytes(pa.table({"GEOID": ["01"], "total": [3]}))
    b'GEOID,total\\n01,3\\n'
    """
    sink = io.BytesIO()
    if comment:
        sink.write(f"# {comment}\n".encode())
    if header:
        names = io.StringIO()
        csv.writer(names, delimiter=delimiter, lineterminator="\n").writerow(table.column_names)
        sink.write(names.getvalue().encode())
    body = io.BytesIO()
    try:
        pa_csv.write_csv(table, body, _options(delimiter, "none"))
    except pa.ArrowInvalid:  # a value holds a delimiter or a quote
        body = io.BytesIO()
        pa_csv.write_csv(table, body, _options(delimiter, "needed"))
    return sink.getvalue() + body.getvalue()


def _options(delimiter: str, quoting: str) -> pa_csv.WriteOptions:
    return pa_csv.WriteOptions(include_header=False, delimiter=delimiter, quoting_style=quoting)
