"""The array types of a spine, and how anything array-like becomes one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Codes: TypeAlias = NDArray[np.str_]
Indices: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]
LONGEST_CODE = 200
"""Characters of a code; each code of an array takes the memory of the longest."""
_AT_ONCE = 1 << 16
"""Codes that Arrow is given at a time: it cuts what is longer into arrays of its own."""

Scalar = TypeVar("Scalar", bound=np.generic)


def frozen(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return the array if nobody can write to it, or a read-only copy.

    Examples
    --------
    >>> frozen(np.arange(3)).flags.writeable
    False
    """
    at: Any = array
    while isinstance(at, np.ndarray) and not at.flags.writeable:
        at = at.base
    if not isinstance(at, np.ndarray) and array.flags.c_contiguous:
        return array
    copy = np.array(array, order="C")
    copy.flags.writeable = False
    return copy


def is_ascending(codes: Codes) -> bool:
    """Whether codes are sorted; equal ones may follow each other."""
    return bool((codes[1:] >= codes[:-1]).all())


def in_order(paths: Sequence[Codes]) -> bool:
    """Whether rows are sorted by the first column, then by the second, and so on.

    Examples
    --------
    >>> in_order([np.array(["1", "1"]), np.array(["a", "b"])]), in_order([np.array(["1", "1"]), np.array(["b", "a"])])
    (True, False)
    """
    sorted_so_far: Any = True
    for column in reversed(paths):
        sorted_so_far = (column[:-1] < column[1:]) | ((column[:-1] == column[1:]) & sorted_so_far)
    return bool(np.all(sorted_so_far))


def arrow_text(codes: Codes) -> pa.Array:
    """Return codes as an Arrow array of text, without a Python string for each."""
    pieces = [pa.array(codes[start : start + _AT_ONCE], pa.string()) for start in range(0, len(codes), _AT_ONCE)]
    return pa.concat_arrays(pieces) if pieces else pa.array([], pa.string())


def codes_of(column: pa.Array | pa.ChunkedArray) -> Codes:
    """Return Arrow text as codes, missing values as blanks, without a Python string for each.

    Examples
    --------
    >>> codes_of(pa.array(["01", None, "\u00e9a1"])).tolist()
    ['01', '', '\u00e9a1']
    """
    chunks = [_chunk(each) for each in (column.chunks if isinstance(column, pa.ChunkedArray) else [column])]
    if not chunks:
        return np.zeros(0, dtype="<U1")
    return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)


def _chunk(text: pa.Array) -> Codes:
    kind = np.int64 if pa.types.is_large_string(text.type) else np.int32
    _, starts, data = text.buffers()
    if not len(text):
        return np.zeros(0, dtype="<U1")
    offsets = np.frombuffer(starts, dtype=kind)[text.offset : text.offset + len(text) + 1].astype(np.int64)
    letters = np.frombuffer(data, dtype=np.uint8)[offsets[0] : offsets[-1]] if data else np.zeros(0, np.uint8)
    length = np.diff(offsets)
    if text.null_count or (letters >= 128).any() or not (letters.all() and length.max()):
        return np.array([value or "" for value in text.to_pylist()], dtype=np.str_)
    points = np.zeros((len(text), int(length.max())), dtype=np.uint32)  # NumPy's text: four bytes a character
    if length.min() == length.max():
        points[:] = letters.reshape(points.shape)
    else:
        points[np.arange(points.shape[1]) < length[:, None]] = letters
    return points.view(f"<U{points.shape[1]}").reshape(-1)


def as_text(values: Any) -> tuple[Codes, Flags]:
    """Split values into their text and a flag for those that are not text.

    A missing value (None or NaN) is blank text; anything else that is not a string is flagged, never converted, because
    ``str(1001)`` is not the geocode ``"01001"``.

    Examples
    --------
    >>> text, other = as_text(["01", None, 1])
    >>> text.tolist(), other.tolist()
    (['01', '', ''], [False, False, True])
    """
    array = np.asarray(values)
    if array.dtype.kind == "U":
        return array, np.zeros(array.shape, dtype=np.bool_)
    if array.dtype.kind == "T":
        return array.astype(np.str_), np.zeros(array.shape, dtype=np.bool_)
    objects = array.astype(object)
    is_text = np.fromiter((isinstance(value, str) for value in objects), dtype=np.bool_, count=len(objects))
    missing = np.fromiter((value is None or value != value for value in objects), dtype=np.bool_, count=len(objects))
    return np.where(is_text, objects, "").astype(np.str_), ~is_text & ~missing
