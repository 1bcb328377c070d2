"""Choose in proportion to log-concave values with 256 random bits, in double-double arithmetic; see ``tree.md``."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# The compiler infers the types of what it compiles.

from __future__ import annotations

import math

import numpy as np

from das.compiled import compiled, compiled_part
from das.congenial.convolution_kernels import UNIT

CHOICE_ERROR = 3 * UNIT
_SPLITTER = 134217729.0  # 2^27 + 1
_SMALLEST = -1000


@compiled_part
def _add(high, low, other, other_low):
    """Return the sum of two double-doubles, right to 2^-103 of it where both are positive (Dekker 1971)."""
    total = high + other
    part = total - high
    rest = (high - (total - part)) + (other - part) + low + other_low
    result = total + rest
    return result, rest - (result - total)


@compiled_part
def _times(high, low, other, other_low):
    """Return the product of two double-doubles, right to 2^-100 of it (Dekker 1971)."""
    product = high * other
    split = _SPLITTER * high
    a = split - (split - high)
    b = high - a
    split = _SPLITTER * other
    c = split - (split - other)
    d = other - c
    rest = ((a * c - product) + a * d + b * c) + b * d
    rest += high * other_low + low * other
    result = product + rest
    return result, rest - (result - product)


@compiled_part
def _below(high, low, other, other_low):
    return high < other or (high == other and low < other_low)


@compiled_part
def uniform(words, complement):
    """Return four words of 64 bits as a number in [0, 1), or its complement, with full relative accuracy."""
    high = low = 0.0
    for k in range(4):
        word = ~words[k] if complement else words[k]
        upper, lower = float(word >> np.uint64(32)), float(word & np.uint64(0xFFFFFFFF))
        high, low = _add(high, low, math.ldexp(upper, -64 * k - 32), 0.0)
        high, low = _add(high, low, math.ldexp(lower, -64 * k - 64), 0.0)
    return high, low


@compiled
def choose_extended(values, words):
    """Return the index drawn in proportion to log-concave values, the largest of which is about one.

    Both sides of the largest value are cumulated from their far ends. Sums, the uniform number and their product have
    a relative error below 2^-96; for log-concave values that is at most 2^-96 times their number, relative to any of
    them.
    """
    mode = np.argmax(values)
    left = left_low = right = right_low = 0.0
    for k in range(mode):
        left, left_low = _add(left, left_low, values[k], 0.0)
    for k in range(len(values) - 1, mode - 1, -1):
        right, right_low = _add(right, right_low, values[k], 0.0)
    total, total_low = _add(left, left_low, right, right_low)
    high, low = uniform(words, False)
    aim, aim_low = _times(high, low, total, total_low)
    reached = reached_low = 0.0
    if _below(aim, aim_low, left, left_low):
        for k in range(mode):
            reached, reached_low = _add(reached, reached_low, values[k], 0.0)
            if _below(aim, aim_low, reached, reached_low):
                return k
        return mode - 1
    high, low = uniform(words, True)
    aim, aim_low = _times(high, low, total, total_low)
    for k in range(len(values) - 1, mode, -1):
        reached, reached_low = _add(reached, reached_low, values[k], 0.0)
        if _below(aim, aim_low, reached, reached_low):
            return k
    return mode


@compiled
def scale_products(mantissa, exponent, a, b, out):
    """Write the products of value a + k and value b - k, scaled by a power of two so that the largest is about one."""
    top = exponent[a] + exponent[b]
    for k in range(len(out)):
        top = max(top, exponent[a + k] + exponent[b - k])
    for k in range(len(out)):
        shift = exponent[a + k] + exponent[b - k] - top
        product = mantissa[a + k] * mantissa[b - k]
        out[k] = math.ldexp(product, int(shift)) if shift >= _SMALLEST else 0.0
