"""The weights of the noise as doubles, each proved right to a relative error of 2^-52."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import ceil, ldexp
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from das.errors import ConfigError, Problem
from das.noise.interval_arithmetic import Weights, enclose_exp_minus, is_tabled

__all__ = ["FACTOR_ERROR", "Enclosure", "exp_minus", "factor_table"]

FACTOR_ERROR = 2.0**-52


_SMALLEST = 2.0**-1000  # smaller weights are not tabled
_BITS = 160


class Enclosure(NamedTuple):
    """lower 2^exponent <= x <= upper 2^exponent, with lower of about 160 bits."""

    lower: int
    upper: int
    exponent: int

    def times(self, other: Enclosure) -> Enclosure:
        """Return an enclosure of the product."""
        lower, upper = self.lower * other.lower, self.upper * other.upper
        drop = lower.bit_length() - _BITS
        return Enclosure(lower >> drop, -(-upper >> drop), self.exponent + other.exponent + drop)


def exp_minus(x: Fraction) -> Enclosure:
    """Enclose e^-x with 160 significant bits; e^-x is above 2^-1.4427 x."""
    bits = _BITS + 2 * ceil(x) + 8
    lower, upper = enclose_exp_minus(x, bits)
    return Enclosure(1 << _BITS, 1 << _BITS, -_BITS).times(Enclosure(lower, upper, -bits))


@lru_cache(maxsize=64)
def factor_table(weights: Weights) -> NDArray[np.float64]:
    """Return w(0) = 1, w(1), w(2), ... as far as they are above 2^-1000.

    With r(k) = w(k+1)/w(k), w(k+1) = w(k) r(k) and r(k+1) = r(k) e^(-2 quadratic): multiplications alone, in integers
    whose lower ends are rounded down and upper ends up. An entry is the double nearest to the lower end, and the
    ends are closer than 2^-54 of it; both are checked, entry by entry.

    Examples
    --------
    >>> from fractions import Fraction
    >>> table = factor_table(Weights(Fraction(1, 2), Fraction(0)))  # the discrete Gaussian with sigma2 = 1
    >>> len(table), float(table[1])
    (38, 0.6065306597126334)
    """
    if not is_tabled(weights):
        raise ConfigError(
            Problem("noise", "it spreads over more than 2^18 counts on either side", "take less noise, or scale it")
        )
    table = [1.0]
    if weights.exponent(1) < 700:
        ratio = weight = exp_minus(weights.quadratic + weights.linear)
        shrink = exp_minus(2 * weights.quadratic)
        while (entry := ldexp(weight.lower, weight.exponent)) >= _SMALLEST:
            if (weight.upper - weight.lower) << 54 > weight.lower:
                raise ArithmeticError("the enclosure of a weight is too wide")
            table.append(entry)
            ratio = ratio.times(shrink)
            weight = weight.times(ratio)
    entries = np.array(table)
    entries.flags.writeable = False
    return entries
