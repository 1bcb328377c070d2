"""An evaluation as one long table, for Parquet: a row per level, query and part, a column per measure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

__all__ = ["table_of"]

WORDS = ("level", "query", "part", "group", "bin")
INNER = {"bins", "groups", "shares"}


def table_of(evaluation: Mapping[str, Any]) -> pa.Table:
    """Lay an evaluation out; ``part`` says what a row is of: all, size, group, group and size, or share.

    Examples
    --------
    >>> row = {"level": "tract", "query": "sex", "cells": 4, "mae": 1.5, "bins": [{"bin": "0", "mae": 2.0}],
    ...        "groups": [{"group": "f", "mae": 1.0, "bins": []}], "shares": None}
    >>> table_of({"levels": [row]}).select(["part", "group", "bin", "mae"]).to_pylist()[1:]
    [{'part': 'size', 'group': None, 'bin': '0', 'mae': 2.0}, {'part': 'group', 'group': 'f', 'bin': None, 'mae': 1.0}]
    """
    rows = [row for level in evaluation["levels"] for row in _rows(level)]
    names = list(dict.fromkeys([*WORDS, *(name for row in rows for name in row)]))
    columns = {name: [row.get(name) for row in rows] for name in names}
    return pa.table(
        {
            name: pa.array(values, pa.string() if name in WORDS else None if name == "on_spine" else pa.float64())
            for name, values in columns.items()
        }
    )


def _rows(level: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    where = {"level": level["level"], "query": level["query"], "on_spine": level.get("on_spine", True)}
    yield {**where, "part": "all", **_plain(level)}
    for size in level["bins"]:
        yield {**where, "part": "size", **_plain(size)}
    for group in level["groups"]:
        yield {**where, "part": "group", **_plain(group)}
        for size in group["bins"]:
            yield {**where, "part": "group and size", "group": group["group"], **_plain(size)}
    for share in (level.get("shares") or {}).get("bins", ()):
        yield {**where, "part": "share", **_plain(share)}


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in INNER}
