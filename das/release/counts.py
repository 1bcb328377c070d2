"""Sparse counts as files: geocode, the attributes' labels, cell number and count; cells not listed are zero."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from das.encoding import Encoded
from das.schema import Schema
from geography import Spine

__all__ = ["read_counts", "table_of_counts"]


def table_of_counts(schema: Schema, geocodes: NDArray[np.str_], counts: Encoded) -> pa.Table:
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


def read_counts(spine: Spine, level: str, path: Path) -> Encoded:
    """Read a file, or a folder of parts, of sparse counts; units are positions in the level."""
    table = pq.read_table(path, columns=["geocode", "cell", "count"])
    codes = table["geocode"].combine_chunks()
    if isinstance(codes, pa.ChunkedArray):
        codes = pa.concat_arrays([c.dictionary_decode() for c in codes.chunks])
    decoded = codes.dictionary_decode() if pa.types.is_dictionary(codes.type) else codes
    encoded = decoded.dictionary_encode()
    known = np.asarray(encoded.dictionary.to_pylist(), dtype=np.str_)
    position = spine.locate(level, known) if len(known) else np.zeros(0, np.int64)
    unit = position[np.asarray(encoded.indices)] if len(known) else np.zeros(0, np.int64)
    return Encoded(unit, np.asarray(table["cell"]), np.asarray(table["count"]))
