"""Noise weights in fixed-point arithmetic, with a proved bound on the total variation error.

All roundings are downwards, so the computed measure is below the true one; ``quotient.md`` derives the missing mass.
With S the sum of all weights (w(0) = 1) and J cells it is at most

    S^J (J tail(reach) + (J (top + 1) + values) 2^-bits)

and since the table itself has weight 1, that is also a bound on the total variation distance.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import isqrt

from das.noise.interval_arithmetic import Weights, enclose_exp_minus

__all__ = ["FixedPoint", "fixed_point"]

LOST_BITS = 100
_LOG_TWO_UPPER = Fraction(6931471806, 10**10)
_PI_UPPER = Fraction(355, 113)


@dataclass(frozen=True)
class FixedPoint:
    """Weights ``floor(2^bits w(k))`` for ``|k| <= reach``, and the bound on the mass that is lost by using them."""

    weights: Weights
    bits: int
    reach: int
    lost: Fraction

    def weight(self, k: int) -> int:
        """Return the integer weight of a step."""
        return self._table[abs(k)] if abs(k) <= self.reach else 0

    @cached_property
    def _table(self) -> tuple[int, ...]:
        return tuple(enclose_exp_minus(self.weights.exponent(k), self.bits)[0] for k in range(self.reach + 1))


def fixed_point(weights: Weights, *, cells: int, top: int, values: int) -> FixedPoint:
    """Choose reach and precision so that at most ``2^-100`` is lost.

    Parameters
    ----------
    weights : Weights
        Weights of the noise of one cell.
    cells : int
        How many cells there are.
    top : int
        The largest count of a cell, which bounds the noise.
    values : int
        How many sums will be rounded to the unit.

    Notes
    -----
    Weights fall, so their sum away from zero is below their integral: ``S <= 1 + min(sqrt(pi/quadratic), 2/linear)``.
    Beyond k each is at most ``e^-(quadratic + linear)`` times the one before: ``tail(k) <= 2 w(k+1) (1 + 1/(quadratic +
    linear))``, since ``1/(1 - e^-y) <= 1 + 1/y``.

    Examples
    --------
    >>> coarse = fixed_point(Weights(Fraction(1, 2), Fraction(0)), cells=4, top=1000, values=5000)
    >>> coarse.reach, coarse.lost == Fraction(1, 2**100), coarse.weight(2) / coarse.weight(0)
    (12, True, 0.1353352832366127)
    >>> fixed_point(Weights(Fraction(1, 2), Fraction(0)), cells=4, top=6, values=50).reach
    6
    """
    mass = _mass_upper(weights)
    spread = (mass.numerator**cells // mass.denominator**cells).bit_length()  # S^cells <= 2^spread
    budget = LOST_BITS + 1 + spread  # one half for the tails, one for the roundings
    beyond = 2 * cells * (1 + 1 / (weights.quadratic + weights.linear))
    needed = _LOG_TWO_UPPER * (budget + (beyond.numerator // beyond.denominator).bit_length())
    low, high = 0, top
    while low < high:  # the least k with w(k + 1) beyond <= 2^-budget, or the top, where nothing is cut off
        middle = (low + high) // 2
        low, high = (low, middle) if weights.exponent(middle + 1) >= needed else (middle + 1, high)
    bits = budget + (cells * (top + 1) + values).bit_length()
    return FixedPoint(weights=weights, bits=bits, reach=low, lost=Fraction(1, 1 << LOST_BITS))


def _mass_upper(weights: Weights) -> Fraction:
    """Bound S, the sum of all weights, from above."""
    bounds = []
    if weights.linear:
        bounds.append(2 / weights.linear)
    if weights.quadratic:
        square = _PI_UPPER / weights.quadratic
        bounds.append(Fraction(isqrt(square.numerator * 2**64 // square.denominator) + 1, 2**32))
    return 1 + min(bounds)
