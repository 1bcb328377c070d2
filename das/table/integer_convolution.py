"""Convolutions of arrays of large integers in several dimensions, exactly.

Few terms are added one by one. Many are packed into one integer each, a fixed number of decimal digits for every value
(Kronecker substitution), and multiplied by Python's `decimal`, whose number-theoretic transform takes little more than
linear time; nothing is rounded, and the context would raise an error if it were.
"""

from __future__ import annotations

import math
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation, Overflow

import numpy as np
from numpy.typing import NDArray

__all__ = ["Grid", "convolved", "packed_digits"]

Grid = NDArray[np.object_]
"""Python integers, none of them negative, in an array."""

_LOG10_TWO = 0.30103  # rounded up


def packed_digits(one: tuple[int, ...], two: tuple[int, ...], bits: int) -> int:
    """Return how many digits a packed product of two shapes has, for values below 2^bits times a few."""
    return math.prod(a + b - 1 for a, b in zip(one, two, strict=True)) * _width(
        bits, min(math.prod(one), math.prod(two))
    )


def convolved(
    one: Grid, two: Grid, low: NDArray[np.int64], high: NDArray[np.int64], bits: int, *, direct: bool
) -> Grid:
    """Return the part from `low` to `high` of the convolution of two arrays.

    Examples
    --------
    >>> one, two = np.array([1, 2, 3], dtype=object), np.array([5, 7], dtype=object)
    >>> [convolved(one, two, np.array([1]), np.array([3]), 9, direct=way).tolist() for way in (True, False)]
    [[17, 29, 21], [17, 29, 21]]
    """
    return _added(one, two, low, high) if direct else _packed(one, two, low, high)


def _added(one: Grid, two: Grid, low: NDArray[np.int64], high: NDArray[np.int64]) -> Grid:
    found = np.zeros(tuple((high - low + 1).tolist()), dtype=object)
    size = np.array(one.shape)
    for place in np.argwhere(two):
        first, last = np.maximum(place, low), np.minimum(place + size - 1, high)
        if np.all(first <= last):
            into = tuple(slice(a, b + 1) for a, b in zip(first - low, last - low, strict=True))
            taken = tuple(slice(a, b + 1) for a, b in zip(first - place, last - place, strict=True))
            found[into] += two[tuple(place)] * one[taken]
    return found


def _packed(one: Grid, two: Grid, low: NDArray[np.int64], high: NDArray[np.int64]) -> Grid:
    shape = tuple(a + b - 1 for a, b in zip(one.shape, two.shape, strict=True))
    largest = max(int(one.max()).bit_length(), int(two.max()).bit_length())
    width = _width(largest, min(one.size, two.size))
    exact = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[Inexact, InvalidOperation, Overflow])
    product = exact.multiply(_number(one, shape, width), _number(two, shape, width))
    digits = format(product, "f").zfill(math.prod(shape) * width)
    inside = np.ix_(*(np.arange(a, b + 1) for a, b in zip(low, high, strict=True)))
    wanted = np.arange(math.prod(shape)).reshape(shape)[inside]
    end = len(digits)
    values = [int(digits[end - (place + 1) * width : end - place * width]) for place in wanted.reshape(-1).tolist()]
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found.reshape(wanted.shape)


def _number(grid: Grid, shape: tuple[int, ...], width: int) -> Decimal:
    """Write all values in one number, the first in its last digits."""
    spread = np.zeros((grid.shape[0], *shape[1:]), dtype=object)
    spread[tuple(slice(size) for size in grid.shape)] = grid
    return Decimal("".join([str(value).zfill(width) for value in spread.reshape(-1)[::-1].tolist()]))


def _width(bits: int, terms: int) -> int:
    """Digits of a sum of so many products of two values below 2^bits."""
    return math.ceil(2 * bits * _LOG10_TWO) + len(str(terms)) + 1
