"""Fixed-point interval arithmetic in Python integers: every bound is proved by its rounding direction.

A real number x in [0, 1] is enclosed by two integers, lower <= x * 2**bits <= upper. Lower bounds are computed with
floors, upper bounds with ceilings; nothing here is a float.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from math import isqrt


def _over(numerator: int, denominator: int) -> int:
    """Return the quotient rounded up."""
    return -(-numerator // denominator)


def _shift_up(value: int, bits: int) -> int:
    """Return value / 2**bits rounded up."""
    return -(-value >> bits)


def enclose_exp_minus(x: Fraction, bits: int) -> tuple[int, int]:
    """Return integers with lower <= exp(-x) * 2**bits <= upper, for a rational x >= 0.

    The argument is halved until it is below 1/2; there the terms of the Taylor series fall in size and alternate in
    sign, so a partial sum errs by at most its first omitted term. The result is squared back up.

    Examples
    --------
    >>> enclose_exp_minus(Fraction(1), 20)
    (385749, 385750)
    """
    halvings = max(0, (x.numerator // x.denominator).bit_length() + 1)
    work = bits + halvings + 16  # each squaring can double the error; the guard bits pay for it
    top, bottom = x.numerator, x.denominator << halvings
    lower = upper = 0
    term_lower = term_upper = 1 << work
    n = 0
    while term_upper > 1:
        if n % 2 == 0:
            lower, upper = lower + term_lower, upper + term_upper
        else:
            lower, upper = lower - term_upper, upper - term_lower
        n += 1
        term_lower = term_lower * top // (bottom * n)
        term_upper = _over(term_upper * top, bottom * n)
    lower, upper = max(0, lower - term_upper), min(1 << work, upper + term_upper)
    for _ in range(halvings):
        lower, upper = lower * lower >> work, _shift_up(upper * upper, work)
    return lower >> (work - bits), _shift_up(upper, work - bits)


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights w(k) = exp(-(quadratic k^2 + linear |k|)) on the integers: a probability after division by their sum.

    The discrete Gaussian has quadratic = 1/(2 sigma2), linear = 0; the discrete Laplace quadratic = 0,
    linear = 1/scale.

    Examples
    --------
    >>> Weights(Fraction(1, 2), Fraction(0)).exponent(-3)
    Fraction(9, 2)
    """

    quadratic: Fraction
    linear: Fraction
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Every draw looks its table up by this, and hashing a Fraction takes a modular inverse.
        object.__setattr__(self, "_hash", hash((self.quadratic, self.linear)))

    def __hash__(self) -> int:
        return self._hash

    def exponent(self, k: int) -> Fraction:
        """Return -log w(k)."""
        return self.quadratic * k * k + self.linear * abs(k)

    def reach(self, bits: int) -> int:
        """Return a k of the size at which w(k) passes below 2**-bits: an estimate, never part of a proof."""
        # Solve quadratic k^2 + linear k = bits, a little further out than bits * log(2).
        a, b = self.quadratic, self.linear
        if a == 0:
            return int(bits / b) + 1
        root = isqrt(int((b * b + 4 * a * bits) * 2**64)) + 1
        return int((Fraction(root, 2**32) - b) / (2 * a)) + 1


def relative_bits(weights: Weights, k: int) -> int:
    """Return a precision at which w(k) still has 128 bits and more; a power of two, so that few of them are ever used.

    Examples
    --------
    >>> relative_bits(Weights(Fraction(1, 2), Fraction(0)), 20)
    512
    """
    # exp(-x) = 2**(-1.4427 x); a probability below 2**-1100 is zero as a double whatever is done.
    needed = 192 + min(1100, int(weights.exponent(k) * Fraction(3, 2)))
    return int(1 << (needed - 1).bit_length())


@lru_cache(maxsize=4)
def enclose_tails(weights: Weights, bits: int) -> tuple[tuple[int, int], ...]:
    """Return enclosures of P(X >= k), k = 1, 2, ..., in units of 2**-bits, until the probability is about one unit.

    X has P(X = k) = w(k) / sum of all w. By symmetry entry k - 1 also encloses P(X <= -k). The last entry's upper
    bound holds for every larger k too.

    Notes
    -----
    With r(k) = w(k+1)/w(k) = exp(-(quadratic (2k+1) + linear)) both sequences follow by multiplication alone:
    w(k+1) = w(k) r(k) and r(k+1) = r(k) exp(-2 quadratic). Since r falls, the mass cut off at K is at most
    w(K) / (1 - r(K)); it is part of every upper bound, so no tail is lost.

    Examples
    --------
    >>> tails = enclose_tails(Weights(Fraction(1, 2), Fraction(0)), 64)   # sigma2 = 1
    >>> [round(lower / 2**64, 6) for lower, upper in tails[:3]]
    [0.300529, 0.058558, 0.004567]
    """
    guard = 2 * weights.reach(bits).bit_length() + 16
    work = bits + guard
    one = 1 << work
    ratio = enclose_exp_minus(weights.quadratic + weights.linear, work)
    shrink = enclose_exp_minus(2 * weights.quadratic, work)
    lower_weights, upper_weights = [], []
    lower, upper = ratio
    while upper >> guard:
        lower_weights.append(lower)
        upper_weights.append(upper)
        ratio = ratio[0] * shrink[0] >> work, _shift_up(ratio[1] * shrink[1], work)
        lower, upper = lower * ratio[0] >> work, _shift_up(upper * ratio[1], work)

    sum_lower, sum_upper = 0, _over(upper << work, one - ratio[1])  # all that lies beyond the last weight
    sums = [(sum_lower, sum_upper)]
    for lower, upper in zip(reversed(lower_weights), reversed(upper_weights), strict=True):
        sum_lower, sum_upper = sum_lower + lower, sum_upper + upper
        sums.append((sum_lower, sum_upper))
    total_lower, total_upper = one + 2 * sum_lower, one + 2 * sum_upper
    return tuple(((low << bits) // total_upper, _over(high << bits, total_lower)) for low, high in reversed(sums))


@lru_cache(maxsize=256)
def probability_of_zero(weights: Weights) -> Fraction:
    """Return P(X = 0) = 1 - 2 P(X >= 1) to more than a hundred bits; every other probability is its multiple.

    Examples
    --------
    >>> round(float(probability_of_zero(Weights(Fraction(1, 2), Fraction(0)))), 6)
    0.398942
    """
    lower, upper = enclose_tails(weights, 192)[0]
    return 1 - Fraction(lower + upper, 1 << 192)


LONGEST = 2**18


def is_tabled(weights: Weights) -> bool:
    """Whether the noise is in the proved range: its weights reach 2^-1000 within 2^18 counts.

    Examples
    --------
    >>> is_tabled(Weights(Fraction(1, 2 * 4**2), Fraction(0))), is_tabled(Weights(Fraction(0), Fraction(1, 400)))
    (True, False)
    """
    return weights.reach(1000) <= LONGEST
