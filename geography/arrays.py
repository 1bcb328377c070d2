"""The array types of a spine, and how anything array-like becomes one of them."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Codes: TypeAlias = NDArray[np.str_]
Indices: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]
LONGEST_CODE = 200
"""Characters of a code; each code of an array takes the memory of the longest."""

Scalar = TypeVar("Scalar", bound=np.generic)


def frozen(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return a read-only copy.

    Examples
    --------
    >>> frozen(np.arange(3)).flags.writeable
    False
    """
    copy = np.array(array, order="C")
    copy.flags.writeable = False
    return copy


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
