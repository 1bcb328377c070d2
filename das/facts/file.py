"""Files of public facts: one row for each geounit, query and sign."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from das.facts.fact import Fact
from das.plan.plan import Plan
from das.schema.limits import NO_LIMIT
from das.schema.selection import parse_limited
from das.storage.shards import read_parquet

__all__ = ["read_facts", "table_of_facts"]


def table_of_facts(plan: Plan, geocodes: NDArray[np.str_], facts: tuple[Fact, ...]) -> pa.Table:
    """Lay out a level's facts as rows: geocode, query, recode columns, sign, value; null where nothing is known."""
    codes: list[str] = []
    rows: dict[str, list[str]] = {"query": [], **{name: [] for name in plan.schema.names}, "sign": []}
    values: list[pa.Array] = []
    lengths: list[int] = []
    for fact in facts:
        units, size = fact.values.shape
        codes += geocodes.tolist()
        rows["query"] += [fact.query.name] * units
        rows["sign"] += [fact.sign] * units
        for name, kept in fact.query.axes.items():
            rows[name] += [kept] * units
        flat = fact.values.reshape(-1)
        values.append(pa.array(flat, mask=(flat >= NO_LIMIT)))
        lengths += [size] * units
    flat_values = pa.concat_arrays(values) if values else pa.array([], pa.int64())
    offsets = pa.array(np.append(0, np.cumsum(np.array(lengths, dtype=np.int64))).astype(np.int32))
    columns = {"geocode": pa.array(codes, pa.string())}
    columns |= {name: pa.array(column, pa.string()) for name, column in rows.items()}
    columns["value"] = pa.ListArray.from_arrays(offsets, flat_values)
    return pa.table(columns)


def read_facts(plan: Plan, path: Path) -> tuple[Fact, ...]:
    """Read the facts of a shard, in the order in which they were written."""
    table = read_parquet(path)
    query, sign = table["query"].to_numpy(zero_copy_only=False), table["sign"].to_numpy(zero_copy_only=False)
    facts = []
    for name, mark in dict.fromkeys(zip(query.tolist(), sign.tolist(), strict=True)):
        found = parse_limited(plan.schema, name)
        flat = table.filter(pa.array((query == name) & (sign == mark)))["value"].combine_chunks()
        numbers = (flat.chunk(0) if isinstance(flat, pa.ChunkedArray) else flat).flatten()
        values = np.asarray(numbers.fill_null(int(NO_LIMIT))).reshape(-1, found.size)
        facts.append(Fact(found, mark, values))
    return tuple(facts)
