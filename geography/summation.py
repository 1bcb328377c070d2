"""Exact sums over leaves: by contiguous ranges, or by membership."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from geography.arrays import Indices


def sum_ranges(values: Any, offsets: Indices) -> Any:
    """Sum consecutive slices of the leading axis, ``values[offsets[i]:offsets[i + 1]]``.

    Parameters
    ----------
    values : array or scipy sparse matrix, leaves leading
    offsets : Indices
        Strictly increasing, from 0 to the number of leaves: no slice is empty.

    Examples
    --------
    >>> sum_ranges(np.array([1, 2, 3]), np.array([0, 2, 3])).tolist()
    [3, 3]
    """
    _require_leading_axis(values, int(offsets[-1]))
    if sparse.issparse(values):
        leaves = int(offsets[-1])
        ones = np.ones(leaves, dtype=np.int8)
        ranges = sparse.csr_array((ones, np.arange(leaves), offsets), shape=(len(offsets) - 1, leaves))
        return sum_members(ranges, values)
    dense = np.asarray(values)
    return np.add.reduceat(dense, offsets[:-1], axis=0, dtype=_sum_dtype(dense.dtype))


def sum_members(membership: Any, values: Any) -> Any:
    """Sum the leading axis over the members of each row of a 0/1 matrix.

    Examples
    --------
    >>> both = sparse.csr_array(np.array([[1, 1, 0], [0, 1, 1]]))
    >>> sum_members(both, np.array([1, 2, 3], dtype=np.uint8)).tolist()
    [3, 5]
    """
    _require_leading_axis(values, membership.shape[1])
    if sparse.issparse(values):
        dtype = _sum_dtype(values.dtype)
        return sparse.csr_array(membership.astype(dtype) @ values.astype(dtype))
    dense = np.asarray(values)
    dtype = _sum_dtype(dense.dtype)
    flat = dense.reshape(len(dense), -1).astype(dtype, copy=False)
    totals: NDArray[Any] = membership.astype(dtype) @ flat
    return totals.reshape(membership.shape[0], *dense.shape[1:])


def _sum_dtype(dtype: Any) -> Any:
    """Return the type NumPy would sum in: wide enough that booleans count and small integers do not wrap around."""
    return dtype if dtype.kind == "O" else np.add.reduce(np.empty(0, dtype=dtype)).dtype


def _require_leading_axis(values: Any, leaves: int) -> None:
    shape = np.shape(values) if not sparse.issparse(values) else values.shape
    if not shape or shape[0] != leaves:
        raise ValueError(f"values of shape {shape} need a leading axis of {leaves} leaves")
