"""Numbers as they are shown: plain data for machines, tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["finite", "table"]


def finite(content: Any) -> Any:
    """Plain data in which a number that is not defined is ``None``, because JSON has no ``nan``.

    Examples
    --------
    >>> finite({"mape": float("nan"), "bins": [{"mae": 1.5}]})
    {'mape': None, 'bins': [{'mae': 1.5}]}
    """
    if isinstance(content, Mapping):
        return {key: finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and content != content else content


def table(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Lay out rows under headings: words to the left, numbers to the right, a dash where there is none.

    Parameters
    ----------
    columns : Mapping
        Key in a row to heading, in order.
    rows : sequence of Mapping
        What to show.

    Examples
    --------
    >>> print(table({"level": "level", "mae": "mean |error|"}, [{"level": "tract", "mae": 2.5}, {"level": "block"}]))
    level  mean |error|
    tract          2.50
    block             -
    """
    shown = [[_shown(row.get(key)) for key in columns] for row in rows]
    rightwards = [all(not isinstance(row.get(key), str) for row in rows) for key in columns]
    lines = [list(columns.values()), *shown]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    return "\n".join(
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, rightwards, strict=True)
        ).rstrip()
        for line in lines
    )


def _shown(value: Any) -> str:
    if value is None or value != value:
        return "-"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
