"""Sparse counts as files: geocode, the attributes' labels, cell number and count; cells not listed are zero."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from das.noise.mechanisms import column_of
from das.plan.plan import Measurement
from das.schema.counts import ProtectedCounts
from das.schema.schema import Schema
from das.storage.shards import read_parquet
from geography import Spine

__all__ = ["read_counts", "stated_noise", "table_of_counts", "with_noise_stated"]

NOISE = b"das conditioned noise"
"""Key in a counts file's metadata: what was conditioned, where the mechanism drew conforming counts at once."""


def table_of_counts(schema: Schema, geocodes: NDArray[np.str_], counts: ProtectedCounts) -> pa.Table:
    """Lay out sparse counts, whose units are positions in ``geocodes``, as rows."""
    columns: dict[str, pa.Array] = {
        "geocode": pa.DictionaryArray.from_arrays(pa.array(counts.unit, pa.int32()), pa.array(geocodes.tolist()))
    }
    for name, code in schema.labels_of(counts.cell).items():
        labels = pa.array(schema.attribute(name).labels)
        columns[name] = pa.DictionaryArray.from_arrays(pa.array(code, pa.int32()), labels)
    columns["cell"] = pa.array(counts.cell, pa.int64())
    columns["count"] = pa.array(counts.count, pa.int64())
    return pa.table(columns)


def with_noise_stated(table: pa.Table, measurements: Iterable[Measurement]) -> pa.Table:
    """Write into a table of drawn counts which noise was conditioned: level, query, parameter and its exact value."""
    stated = [[m.level, m.query.name, column_of([m.mechanism]), m.parameter] for m in measurements]
    return table.replace_schema_metadata({NOISE: json.dumps(stated).encode()})


def stated_noise(path: Path) -> list[list[str]]:
    """Read what :func:`with_noise_stated` wrote, once for all shards of a level; shards that differ are all listed."""
    files = [path] if path.is_file() else sorted(path.iterdir())
    stated = [json.loads((pq.read_schema(file).metadata or {}).get(NOISE, b"[]")) for file in files]
    return [list(noise) for noise in dict.fromkeys(tuple(noise) for part in stated for noise in part)]


def read_counts(spine: Spine, level: str, path: Path) -> ProtectedCounts:
    """Read a file, or a folder of shard files, of sparse counts; units are positions in the level."""
    columns = ["geocode", "cell", "count"]
    table = pq.read_table(path, columns=columns) if path.is_dir() else read_parquet(path, columns)
    codes = table["geocode"].combine_chunks()
    if isinstance(codes, pa.ChunkedArray):
        codes = pa.concat_arrays([c.dictionary_decode() for c in codes.chunks])
    decoded = codes.dictionary_decode() if pa.types.is_dictionary(codes.type) else codes
    encoded = decoded.dictionary_encode()
    known = np.asarray(encoded.dictionary.to_pylist(), dtype=np.str_)
    position = spine.locate(level, known) if len(known) else np.zeros(0, np.int64)
    unit = position[np.asarray(encoded.indices)] if len(known) else np.zeros(0, np.int64)
    return ProtectedCounts(unit, np.asarray(table["cell"]), np.asarray(table["count"]))
