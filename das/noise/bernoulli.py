"""Exact coins in rational arithmetic, from which the reference samplers are made.

The algorithms are those of Canonne, Kamath and Steinke (2020), "The Discrete Gaussian for Differential Privacy",
arXiv 2004.00010, section 5. They are slow and short: the yardstick for the table sampler, and its substitute where
a table would be too large.
"""

from __future__ import annotations

from fractions import Fraction

from das.noise.stream import Bits


def uniform_below(bits: Bits, n: int) -> int:
    """Return a uniform integer in [0, n): take as many bits as n - 1 has, and again if they are too large.

    Examples
    --------
    >>> from das.noise.stream import RunKey
    >>> bits = RunKey.for_testing("doc").streams(b"").bits(("", "", "", ""))
    >>> all(uniform_below(bits, 3) < 3 for _ in range(20))
    True
    """
    width = (n - 1).bit_length()
    while (value := bits.take(width)) >= n:
        pass
    return value


def bernoulli(bits: Bits, p: Fraction) -> bool:
    """Return True with probability p exactly.

    Examples
    --------
    >>> from das.noise.stream import RunKey
    >>> bits = RunKey.for_testing("doc").streams(b"").bits(("", "", "", ""))
    >>> bernoulli(bits, Fraction(1)), bernoulli(bits, Fraction(0))
    (True, False)
    """
    return uniform_below(bits, p.denominator) < p.numerator


def bernoulli_exp(bits: Bits, x: Fraction) -> bool:
    """Return True with probability exp(-x) exactly, for x >= 0 (their algorithm 1).

    For x <= 1: toss coins of probability x/1, x/2, x/3, ... until the first failure, at toss K. Then
    P(K > k) = x^k / k!, so P(K odd) = 1 - x + x^2/2 - ... = exp(-x). A larger x is paid in units of one.

    Examples
    --------
    >>> from das.noise.stream import RunKey
    >>> bits = RunKey.for_testing("doc").streams(b"").bits(("", "", "", ""))
    >>> bernoulli_exp(bits, Fraction(0)), bernoulli_exp(bits, Fraction(10**6))
    (True, False)
    """
    while x > 1:
        if not bernoulli_exp(bits, Fraction(1)):
            return False
        x -= 1
    toss = 1
    while bernoulli(bits, x / toss):
        toss += 1
    return toss % 2 == 1
