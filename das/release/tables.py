"""Tables keyed by geocode: a row per area, a column per answer of a query."""

from __future__ import annotations

import csv
import io

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from das.schema.query import Query, answer_names

__all__ = ["csv_bytes", "table_of_answers"]


def table_of_answers(query: Query, codes: NDArray[np.str_], answers: NDArray[np.int64]) -> pa.Table:
    """Lay out answers with their geocodes; an answer's column is named by the labels that it counts."""
    columns = {"GEOID": pa.array(codes.tolist(), pa.string())}
    columns |= {name: pa.array(answers[:, i]) for i, name in enumerate(answer_names(query))}
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
