"""The answer to a question: a table of estimates with intervals, and how they came about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import isinf
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from das.inference.intervals.asked import Asked

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Intervals", "answer_rows"]

_SHOWN = 60
"""Rows of an answer that are shown as text."""
_DECIMALS = {"estimate": 2, "std_dev": 2, "low": 1, "high": 1}
"""Decimals of a count's numbers; ratios are shown with four."""


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """Estimates with intervals: a row per place and answer.

    Columns: ``place``; a column per attribute or recode that the query keeps; ``count``, the published count; and
    ``estimate``, ``std_dev``, ``low``, ``high`` of the linear estimate. Null where something is not estimable.

    Parameters
    ----------
    table : pyarrow.Table
        The rows.
    asked : str
        What was asked, in words.
    confidence : float
        Probability with which an interval holds the truth.
    interval : str
        How intervals were made.
    notes : tuple of str
        What a reader should know.
    is_ratio : bool
        Whether the numbers are ratios.

    Examples
    --------
    >>> table = pa.table({"place": ["tract:01"], "count": [377], "estimate": [371.2], "std_dev": [6.1],
    ...     "low": [359.2], "high": [383.2]})
    >>> Intervals(table=table, asked="total where sex=f", confidence=0.95, interval="normal")
    total where sex=f; 95 % intervals: normal
    place     count  estimate  std_dev    low   high
    tract:01    377    371.20     6.10  359.2  383.2
    """

    table: pa.Table
    asked: str
    confidence: float
    interval: str
    notes: tuple[str, ...] = ()
    is_ratio: bool = False

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table."""
        return self.table

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a data frame."""
        return self.table.to_pandas()

    def to_json(self) -> dict[str, Any]:
        """The whole answer as plain data."""
        return {
            "asked": self.asked,
            "confidence": self.confidence,
            "interval": self.interval,
            "notes": list(self.notes),
            "rows": [_plain(row) for row in self.table.to_pylist()],
        }

    def text(self, rows: int = _SHOWN) -> str:
        """The answer as a table for people, of at most so many rows."""
        head = f"{self.asked}; {100 * self.confidence:.10g} % intervals: {self.interval}"
        columns = self.table.column_names
        decimals = {} if self.is_ratio else _DECIMALS
        shown = [
            [_cell(row[name], decimals.get(name, 4)) for name in columns]
            for row in self.table.slice(0, rows).to_pylist()
        ]
        widths = [max(len(name), *(len(row[i]) for row in shown), 0) for i, name in enumerate(columns)]
        numeric = [not pa.types.is_string(self.table.schema.field(name).type) for name in columns]

        def line(cells: Sequence[str]) -> str:
            parts = zip(cells, widths, numeric, strict=True)
            return "  ".join(c.rjust(w) if right else c.ljust(w) for c, w, right in parts).rstrip()

        more = [f"... {self.table.num_rows - rows} more rows"] if self.table.num_rows > rows else []
        return "\n".join([head, line(columns), *map(line, shown), *more, *self.notes])

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.text())}</pre>"


def answer_rows(
    asked: Asked,
    names: Sequence[str],
    counts: NDArray[np.float64],
    values: Mapping[str, NDArray[np.float64]],
    *,
    is_ratio: bool,
) -> pa.Table:
    """Lay out numbers, an array of places x answers each, as a row per place and answer; NaN becomes null."""
    columns: dict[str, pa.Array] = {"place": pa.array(np.repeat(names, asked.size).tolist(), pa.string())}
    for at, name in enumerate(asked.columns):
        columns[name] = pa.array([labels[at] for labels in asked.labels] * len(names), pa.string())
    flat = counts.reshape(-1)
    whole = not is_ratio and bool(np.isfinite(flat).all() and (flat == np.rint(flat)).all())
    columns["count"] = pa.array(flat.astype(np.int64) if whole else flat, from_pandas=True)
    for name, value in values.items():
        columns[name] = pa.array(value.reshape(-1), pa.float64(), from_pandas=True)
    return pa.table(columns)


def _cell(value: Any, decimals: int) -> str:
    if value is None:
        return "-"
    return f"{value:.{decimals}f}" if isinstance(value, float) else str(value)


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without infinite numbers, which JSON does not have."""
    return {name: None if isinstance(value, float) and isinf(value) else value for name, value in row.items()}
