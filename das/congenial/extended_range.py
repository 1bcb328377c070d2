"""Functions of counts whose values have exponents of their own, and the noise as such a function.

A message of the tree is a log-concave function. Stored in doubles it may underflow; stored with an exponent for each
value it never does, however far the public facts push a count away from its true value. Only ratios matter, so no scale
is kept. ``tree.md`` has the theory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import frexp

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from das.congenial.convolution_kernels import UNIT
from das.congenial.function_store import Floats, Integers, Messages, WindowTooSmall, offsets, runs
from das.congenial.noise_weights import exp_minus
from das.noise.interval_arithmetic import Weights

__all__ = ["ExtendedFunctions", "factors", "from_messages", "joined", "leaves_extended", "times_extended"]

_WEIGHT_ERROR = 2 * UNIT
_TABLES: dict[Weights, _FactorTable] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendedFunctions:
    """Many log-concave functions, each stored on a window of the integers.

    Function i has the value ``mantissa 2^exponent`` (positive) at each point of its window, times a scale that is not
    kept, up to a factor between ``e^-error`` and ``e^error``.

    Parameters
    ----------
    first, offset : array of int
        First point of each window, and position of its values.
    mantissa, exponent : arrays
        The values; mantissas are in [1/2, 1).
    error : array of float
        Bound on the log-ratio of stored and true values, up to the scale.
    ends : array (n, 2) of bool
        Whether the true function is zero below, and above, its window.

    Examples
    --------
    >>> from fractions import Fraction
    >>> weights = Weights(Fraction(0), Fraction(1, 2))
    >>> wide = leaves_extended([10**4], weights, [0], [10**9], [0], [10**4])
    >>> int(wide.exponent[0]), wide.ends.tolist()  # e^-5000 is 2^-7213.5
    (-7214, [[True, False]])
    """

    first: Integers
    offset: Integers
    mantissa: Floats
    exponent: Integers
    error: Floats
    ends: NDArray[np.bool_]

    def __post_init__(self) -> None:
        for field in fields(self):
            getattr(self, field.name).flags.writeable = False

    def __len__(self) -> int:
        return len(self.first)

    @property
    def last(self) -> Integers:
        """The last point of each window."""
        last: Integers = self.first + np.diff(self.offset) - 1
        return last

    @property
    def log2(self) -> Floats:
        """The logarithms of all values, to the base 2."""
        log2: Floats = np.log2(self.mantissa) + self.exponent
        return log2

    def pick(self, ids: npt.ArrayLike) -> ExtendedFunctions:
        """Return the functions with these indices, in this order; an index may occur several times."""
        ids = np.asarray(ids, dtype=np.int64)
        offset, at = runs(self.offset, ids)
        return ExtendedFunctions(
            first=self.first[ids],
            offset=offset,
            mantissa=self.mantissa[at],
            exponent=self.exponent[at],
            error=self.error[ids],
            ends=self.ends[ids],
        )


def joined(parts: Sequence[ExtendedFunctions]) -> ExtendedFunctions:
    """Concatenate functions into one store, in order."""
    named = {f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(ExtendedFunctions)}
    named["offset"] = offsets(np.concatenate([np.diff(part.offset) for part in parts]))
    return ExtendedFunctions(**named)


def from_messages(messages: Messages, ids: npt.ArrayLike) -> ExtendedFunctions:
    """Return stored messages as exact and complete functions: the tilt becomes an exponent, which is exact."""
    chosen = messages.pick(ids)
    lengths = np.diff(chosen.offset)
    place = np.arange(chosen.offset[-1]) - np.repeat(chosen.offset[:-1], lengths)
    owner = np.repeat(np.arange(len(chosen)), lengths)
    positive = chosen.weight > 0
    # A log-concave function is zero, if at all, at both ends of its window.
    kept = np.bincount(owner[positive], minlength=len(chosen))
    before = np.full(len(chosen), np.iinfo(np.int64).max)
    np.minimum.at(before, owner[positive], place[positive])
    mantissa, exponent = np.frexp(chosen.weight[positive])
    return ExtendedFunctions(
        first=chosen.first + before,
        offset=offsets(kept),
        mantissa=mantissa,
        exponent=exponent.astype(np.int64) + (chosen.tilt[owner] * place)[positive],
        error=np.zeros(len(chosen)),
        ends=np.ones((len(chosen), 2), dtype=np.bool_),
    )


def leaves_extended(
    counts: npt.ArrayLike,
    weights: Weights,
    lower: npt.ArrayLike,
    upper: npt.ArrayLike,
    first: npt.ArrayLike,
    last: npt.ArrayLike,
) -> ExtendedFunctions:
    """Return the functions p(t - x) of measured leaves, each on the part of its interval that lies in its window."""
    arrays = (np.asarray(a, dtype=np.int64) for a in (counts, lower, upper, first, last))
    centre, low, high, start, stop = np.broadcast_arrays(*arrays)
    start, stop = np.maximum(low, start), np.minimum(high, stop)
    if (start > stop).any():
        raise WindowTooSmall("a leaf's interval lies outside its window", (start > stop).nonzero()[0])
    lengths = stop - start + 1
    offset = offsets(lengths)
    flat = ExtendedFunctions(
        first=start.copy(),
        offset=offset,
        mantissa=np.full(offset[-1], 0.5),
        exponent=np.ones(offset[-1], dtype=np.int64),
        error=np.zeros(len(start)),
        ends=np.stack([start == low, stop == high], axis=1),
    )
    return times_extended(flat, centre, weights, low, high)


def times_extended(
    functions: ExtendedFunctions,
    centres: npt.ArrayLike,
    weights: Weights | None,
    lower: npt.ArrayLike,
    upper: npt.ArrayLike,
) -> ExtendedFunctions:
    """Multiply each function by its node's noise factor w(t - centre), if any, and restrict it to the node's interval.

    Examples
    --------
    >>> from fractions import Fraction
    >>> weights = Weights(Fraction(1, 2), Fraction(0))
    >>> leaf = leaves_extended([3], weights, [0], [9], [1], [9])
    >>> cut = times_extended(leaf, [5], None, [2], [4])
    >>> cut.first.tolist(), cut.last.tolist(), cut.ends.tolist()
    ([2], [4], [[True, True]])
    """
    count = len(functions)
    low, high, centre = (np.broadcast_to(np.asarray(a, dtype=np.int64), count) for a in (lower, upper, centres))
    first, last = np.maximum(functions.first, low), np.minimum(functions.last, high)
    if (first > last).any():
        raise WindowTooSmall("a node's interval lies outside its window", (first > last).nonzero()[0])
    lengths = last - first + 1
    offset = offsets(lengths)
    place = np.arange(offset[-1]) - np.repeat(offset[:-1], lengths)
    index = np.repeat(functions.offset[:-1] + first - functions.first, lengths) + place
    mantissa, exponent, error = functions.mantissa[index], functions.exponent[index], functions.error
    if weights is not None:
        away = np.abs(np.repeat(first - centre, lengths) + place)
        table = factors(weights, int(away.max(initial=0)) + 1)
        mantissa, more = np.frexp(mantissa * table[0][away])
        exponent = exponent + table[1][away] + more
        error = error + (_WEIGHT_ERROR + UNIT)
    largest = np.maximum.reduceat(exponent, offset[:-1]) if count else exponent[:0]
    ends = np.stack(
        [functions.ends[:, 0] | (low >= functions.first), functions.ends[:, 1] | (high <= functions.last)], axis=1
    )
    return ExtendedFunctions(
        first=first,
        offset=offset,
        mantissa=mantissa,
        exponent=exponent - np.repeat(largest, lengths),
        error=error.copy(),
        ends=ends,
    )


class _FactorTable:
    """Weights of a noise law with exponents, computed as far as they were asked for."""

    def __init__(self, weights: Weights) -> None:
        self.ratio = self.weight = exp_minus(weights.quadratic + weights.linear)
        self.shrink = exp_minus(2 * weights.quadratic)
        self.mantissa, self.exponent = np.array([0.5]), np.array([1], dtype=np.int64)

    def extend(self, length: int) -> None:
        """Compute weights up to this number, by the recurrence of `noise_weights.factor_table`."""
        mantissa, exponent = [], []
        for _ in range(len(self.mantissa), length):
            if (self.weight.upper - self.weight.lower) << 54 > self.weight.lower:
                raise ArithmeticError("the enclosure of a weight is too wide")
            m, e = frexp(self.weight.lower)
            mantissa.append(m)
            exponent.append(e + self.weight.exponent)
            self.ratio = self.ratio.times(self.shrink)
            self.weight = self.weight.times(self.ratio)
        self.mantissa = np.concatenate([self.mantissa, np.array(mantissa)])
        self.exponent = np.concatenate([self.exponent, np.array(exponent, dtype=np.int64)])


def factors(weights: Weights, length: int) -> tuple[Floats, Integers]:
    """Return mantissas and exponents of w(0) = 1, w(1), ..., at least this many, each right to 2 u.

    Examples
    --------
    >>> from fractions import Fraction
    >>> mantissa, exponent = factors(Weights(Fraction(0), Fraction(1)), 3001)
    >>> float(mantissa[3000]), int(exponent[3000])  # e^-3000
    (0.9427043779309603, -4328)
    """
    table = _TABLES.setdefault(weights, _FactorTable(weights))
    if len(table.mantissa) < length:
        table.extend(max(length, 2 * len(table.mantissa)))
    return table.mantissa, table.exponent
