"""Coins whose probability is a real number known only by enclosures: exact, by comparing binary digits one by one.

A uniform number of [0, 1) is read digit by digit until its interval lies below or above the enclosure of the
probability, which is refined along. No floating point takes part.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from math import isqrt

from das.noise.bernoulli import bernoulli_exp, uniform_below
from das.noise.interval_arithmetic import enclose_exp_minus
from das.noise.stream import Bits

__all__ = ["below", "draw_shifted_gaussian", "shifted_mass_ratio", "toss_exp", "toss_shifted_mass"]

Enclose = Callable[[int], tuple[int, int]]
_STEP = 64
_GUARD = 16
_NEAREST = ((0, 1), (1, 1), (2, 1), (1, -1), (2, -1))
_PI_SQUARED_LOWER = Fraction(98696, 10**4)


def below(word: int, digits: int, bits: Callable[[int], int], enclose: Enclose) -> bool:
    """Return whether a uniform number with these leading digits lies below a probability, reading more if need be.

    Parameters
    ----------
    word, digits : int
        The first digits: the number lies in [word, word + 1) / 2^digits.
    bits : callable
        Gives as many further bits as it is asked for.
    enclose : callable
        Gives integers with ``lower <= p 2^d <= upper`` for a precision d.

    Examples
    --------
    >>> half = lambda d: (1 << (d - 1), 1 << (d - 1))
    >>> below(0, 1, lambda count: 0, half), below(1, 1, lambda count: 0, half)
    (True, False)
    """
    while True:
        lower, upper = enclose(digits + _GUARD)
        if (word + 1) << _GUARD <= lower:
            return True
        if word << _GUARD >= upper:
            return False
        word, digits = (word << _STEP) | bits(_STEP), digits + _STEP


def toss_exp(word: int, bits: Callable[[int], int], x: Fraction) -> bool:
    """Return True with probability exp(-x) exactly, from a 64-bit word and the bits that follow it.

    Examples
    --------
    >>> toss_exp(0, lambda count: 0, Fraction(1)), toss_exp(2**64 - 1, lambda count: 0, Fraction(1))
    (True, False)
    """
    return below(word, _STEP, bits, lambda digits: enclose_exp_minus(x, digits))


@lru_cache(maxsize=4096)
def _mass(shift: Fraction, variance: Fraction, digits: int) -> tuple[int, int]:
    """Enclose sum over k of exp(-(k - shift)^2 / (2 variance)), 0 <= shift <= 1/2, in units of 2^-digits."""
    work = digits + 8
    lower = upper = 0
    for side in (shift, 1 - shift):  # distances side, side + 1, ... on each side of the shift
        away = side
        while True:
            low, high = enclose_exp_minus(away * away / (2 * variance), work)
            lower, upper = lower + low, upper + high
            if high <= 1:
                # ratios fall below exp(-away / variance): the rest is at most the last term times variance / away
                upper += high * (int(variance / away) + 1)
                break
            away += 1
    return lower >> 8, -(-upper >> 8)


def shifted_mass_ratio(shift: Fraction, variance: Fraction, digits: int) -> tuple[int, int]:
    """Enclose rho(shift) / rho(0), rho(c) = sum over integers k of exp(-(k - c)^2 / (2 variance)).

    Examples
    --------
    >>> lower, upper = shifted_mass_ratio(Fraction(1, 2), Fraction(1, 4), 60)
    >>> upper - lower < 2**10, round(lower / 2**60, 9)
    (True, 0.971640385)
    """
    work = digits + 8
    shifted, centred = _mass(shift, variance, work), _mass(Fraction(0), variance, work)
    return (shifted[0] << digits) // centred[1], min(1 << digits, -(-(shifted[1] << digits) // centred[0]))


@lru_cache(maxsize=1024)
def _surely(variance: Fraction) -> int:
    """Return a lower bound of 2^64 rho(c) / rho(0) for every c.

    Poisson summation: rho(c) is proportional to ``1 + 2 sum q^(j^2) cos(2 pi j c)``, ``q = exp(-2 pi^2 variance)``, so
    the ratio is at least ``(1 - 2 T)/(1 + 2 T) >= 1 - 4 T`` with ``T = sum q^(j^2) <= q / (1 - q)``.
    """
    q = enclose_exp_minus(2 * _PI_SQUARED_LOWER * variance, _STEP)[1]
    if q << 1 >= 1 << _STEP:
        return 0
    return max(0, (1 << _STEP) - 4 * (-(-(q << _STEP) // ((1 << _STEP) - q))))


def toss_shifted_mass(bits: Bits, shift: Fraction, variance: Fraction) -> bool:
    """Return True with probability rho(shift) / rho(0) exactly; rho as in `shifted_mass_ratio`.

    Examples
    --------
    >>> from das.noise.stream import RunKey
    >>> bits = RunKey.for_testing("doc").streams(b"").bits(("", "", "", ""))
    >>> toss_shifted_mass(bits, Fraction(3), Fraction(1)), toss_shifted_mass(bits, Fraction(1, 2), Fraction(1, 100))
    (True, False)
    """
    fraction = shift % 1
    if not fraction:
        return True
    word = bits.take(_STEP)
    if word < _surely(variance):
        return True
    nearest = min(fraction, 1 - fraction)
    return below(word, _STEP, bits.take, lambda digits: shifted_mass_ratio(nearest, variance, digits))


def draw_shifted_gaussian(bits: Bits, centre: Fraction, variance: Fraction) -> int:
    """Draw an integer k with probability proportional to exp(-(k - centre)^2 / (2 variance)), exactly.

    Rejection from the two-sided geometric law around the integer n nearest to the centre, as Canonne, Kamath and
    Steinke (2020, algorithm 3) do for centre 0. With ``k = n + y``, ``f = centre - n``, ``t`` an integer and ``e`` the
    sign of y,

        (y - f)^2 / (2 v) - |y| / t  =  (|y| - e f - v / t)^2 / (2 v) - e f / t - v / (2 t^2),

    so accepting with probability ``exp(-((|y| - e f - v/t)^2 / (2 v) + (|f| - e f) / t))`` gives the law. Where v < 1
    the smallest of these exponents, which is at |y| <= 2, is subtracted from all, so that narrow laws are not rejected.

    Examples
    --------
    >>> from das.noise.stream import RunKey
    >>> bits = RunKey.for_testing("doc").streams(b"").bits(("", "", "", ""))
    >>> draw_shifted_gaussian(bits, Fraction(7, 2), Fraction(1, 1000)) in (3, 4)
    True
    """
    nearest = round(centre)
    offset = centre - nearest
    t = isqrt(variance.numerator // variance.denominator) + 1

    def exponent(size: int, sign: int) -> Fraction:
        gap = size - sign * offset - variance / t
        return gap * gap / (2 * variance) + (abs(offset) - sign * offset) / t

    least = min(exponent(size, sign) for size, sign in _NEAREST) if t == 1 else Fraction(0)
    while True:
        size = _geometric(bits, t)
        sign = 1 - 2 * bits.take(1)
        if size == 0 and sign < 0:
            continue
        if bernoulli_exp(bits, exponent(size, sign) - least):
            return nearest + sign * size


def _geometric(bits: Bits, t: int) -> int:
    """Draw k >= 0 with probability proportional to exp(-k / t), t an integer (their algorithm 2)."""
    while True:
        rest = uniform_below(bits, t)
        if bernoulli_exp(bits, Fraction(rest, t)):
            break
    times = 0
    while bernoulli_exp(bits, Fraction(1)):
        times += 1
    return rest + t * times
