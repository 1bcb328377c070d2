"""The noisy measurement file: a row per geounit and query, in the layout of the Bureau's public files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from das.noise.mechanisms import column_of
from das.plan.plan import Plan, numbers_per_unit

__all__ = ["read_measurements", "table_of_measurements"]


def table_of_measurements(plan: Plan, level: str, geocodes: NDArray[np.str_], values: NDArray[np.int64]) -> pa.Table:
    """Lay out the noisy answers (geounits x numbers, queries side by side in the plan's order) as rows.

    Columns: geocode, query, one column per attribute with the recode that the query keeps of it (``*`` where it is
    summed out), query_shape, value, variance (of the noise of each number) and the exact noise parameter, ``sigma2``
    for the discrete Gaussian and ``scale`` for the discrete Laplace.
    """
    measured = plan.at(level)
    sizes = np.array([m.query.size for m in measured], dtype=np.int64)
    units, kinds = len(geocodes), len(measured)

    again = pa.array(np.tile(np.arange(kinds), units))

    def each_unit(column: Sequence[object], kind: pa.DataType) -> pa.Array:
        return pa.array(column, kind).take(again)

    kept = [[n for n in m.query.shape if n > 1] or [1] for m in measured]
    offsets = np.append(0, np.cumsum(np.tile(sizes, units))).astype(np.int64)
    columns: dict[str, pa.Array] = {
        "geocode": pa.array(geocodes.tolist(), pa.string()).take(pa.array(np.repeat(np.arange(units), kinds))),
        "query": each_unit([m.query.name for m in measured], pa.string()),
    }
    for name in plan.schema.names:
        columns[name] = each_unit([m.query.axes[name] for m in measured], pa.string())
    columns["query_shape"] = each_unit(kept, pa.list_(pa.int32()))
    columns["value"] = pa.LargeListArray.from_arrays(offsets, values.reshape(-1)).cast(pa.list_(pa.int64()))
    columns["variance"] = each_unit([m.mechanism.variance() for m in measured], pa.float64())
    columns[column_of(m.mechanism for m in measured)] = each_unit([m.parameter for m in measured], pa.string())
    return pa.table(columns)


def read_measurements(plan: Plan, level: str, path: Path) -> NDArray[np.signedinteger[Any]]:
    """Read one shard's file back as geounits x numbers, in the smallest integers that hold them."""
    numbers, pieces = numbers_per_unit(plan.at(level)), []
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            flat = file.read_row_group(group, columns=["value"], use_threads=False)["value"].combine_chunks()
            if isinstance(flat, pa.ChunkedArray):
                flat = flat.chunk(0)
            values = np.asarray(flat.flatten())
            largest = max(1, -int(values.min(initial=0)), int(values.max(initial=0)))
            pieces.append(values.astype(np.min_scalar_type(-largest - 1)).reshape(-1, numbers))
    return np.concatenate(pieces) if pieces else np.zeros((0, numbers), dtype=np.int8)
