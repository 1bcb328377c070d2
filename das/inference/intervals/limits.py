"""Confidence limits from a linear estimate and its standard deviation, and exact ones for a single measurement.

The linear estimate is unbiased and, as a sum of many independent noises, normal to a good approximation. Counts are not
negative, which gives a choice: *normal* limits are cut at zero, and are a point where the estimate lies far below it;
*Feldman-Cousins* limits (Feldman and Cousins 1998, Physical Review D 57, 3873) order outcomes by their likelihood ratio
and are never empty. Both cover a normal estimate with the stated probability whatever the true count is.

A number that rests on one integer measurement is not normal: with discrete Gaussian noise of standard deviation 0.5 the
normal interval of 95 % covers 79 %. There the noise's own distribution is used, which covers at least with the stated
probability, and mixed with a normal one as far as other measurements have a part in the estimate. Feldman-Cousins
limits alone would cover as little, and are widened to hold these.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from das.noise.two_sided import TwoSidedNoise

__all__ = ["feldman_cousins", "fieller", "half_width", "normal_limits"]

Floats = NDArray[np.float64]
_STEPS, _NEAR, _SURE = 4, 1e-8, 1e-12
"""Newton's steps to a limit, how near to stay to it, and what rounding errors of a probability are below."""


def normal_limits(estimate: Floats, std_dev: Floats, confidence: float, *, least: float = 0.0) -> tuple[Floats, Floats]:
    """Estimate plus and minus a multiple of its standard deviation, cut at ``least``.

    Examples
    --------
    >>> low, high = normal_limits(np.array([1.0, 50.0]), np.array([2.0, 2.0]), 0.95)
    >>> low.round(2).tolist(), high.round(2).tolist()
    ([0.0, 46.08], [4.92, 53.92])
    """
    half = ndtri(0.5 + confidence / 2) * std_dev
    return np.maximum(estimate - half, least), np.maximum(estimate + half, least)


def feldman_cousins(estimate: Floats, std_dev: Floats, confidence: float) -> tuple[Floats, Floats]:
    """Feldman-Cousins limits for a mean that is not negative.

    A mean m is inside unless outcomes at least as likely as the observed one, relative to the best mean for each, have
    probability above ``confidence``. Those outcomes are an interval with known ends, so m is found by bisection.

    Examples
    --------
    >>> low, high = feldman_cousins(np.array([-1.0, 0.0, 2.0, 9.0]), np.ones(4), 0.95)
    >>> low.round(2).tolist(), high.round(2).tolist()  # the paper's table X
    ([0.0, 0.0, 0.35, 7.04], [1.1, 1.96, 3.96, 10.96])
    """
    known = std_dev <= 0
    x = np.where(known, 0.0, estimate / np.where(known, 1.0, std_dev))
    reach = ndtri(0.5 + confidence / 2)
    high = _bisect(x, np.maximum(x, 0.0), np.maximum(x, 0.0) + reach + 1.0, confidence)
    low = _bisect(x, np.maximum(x, 0.0), np.zeros_like(x), confidence)
    exact = np.maximum(estimate, 0.0)
    return np.where(known, exact, low * std_dev), np.where(known, exact, high * std_dev)


def _bisect(x: Floats, inside: Floats, outside: Floats, confidence: float) -> Floats:
    """The last mean between one that is inside and one that may be outside."""
    inside, outside = inside.copy(), outside.copy()
    reaches = _probability(x, outside) <= confidence
    inside = np.where(reaches, outside, inside)
    for _ in range(60):
        middle = (inside + outside) / 2
        is_in = _probability(x, middle) <= confidence
        inside, outside = np.where(is_in, middle, inside), np.where(is_in, outside, middle)
    return inside


def _probability(x: Floats, mean: Floats) -> Floats:
    """Probability of all outcomes with a larger likelihood ratio than x, if the mean is this."""
    safe = np.maximum(mean, 1e-12)
    mirrored = 2 * mean - x
    left_of_zero = x - x * x / (2 * safe)
    other = np.where(
        x >= 0,
        np.where(mirrored >= 0, mirrored, left_of_zero),
        mean + np.sqrt(np.maximum(mean * mean - 2 * x * mean, 0.0)),
    )
    return np.asarray(np.abs(ndtr(other - mean) - ndtr(x - mean)))


def fieller(
    numerator: Floats, denominator: Floats, variances: tuple[Floats, Floats, Floats], confidence: float
) -> tuple[Floats, Floats]:
    """Fieller's limits for the ratio of two normal means: all r with (n - r d)^2 <= z^2 Var(n - r d).

    Exact if both are normal, unlike the delta method. Where the denominator is not different from zero the set is
    unbounded, and the limits are infinite.

    Parameters
    ----------
    numerator, denominator
        Estimates.
    variances
        Variance of the numerator, that of the denominator, and their covariance.
    confidence
        Probability that the limits hold the ratio.

    Examples
    --------
    >>> four = np.array([4.0])
    >>> low, high = fieller(np.array([30.0]), np.array([100.0]), (four, np.array([9.0]), four), 0.95)
    >>> low.round(4).tolist(), high.round(4).tolist()
    ([0.269], [0.33])
    """
    z2 = ndtri(0.5 + confidence / 2) ** 2
    of_n, of_d, both = variances
    a = denominator**2 - z2 * of_d
    b = numerator * denominator - z2 * both
    c = numerator**2 - z2 * of_n
    root = np.sqrt(np.maximum(b * b - a * c, 0.0))
    bounded = a > 0
    safe = np.where(bounded, a, 1.0)
    return np.where(bounded, (b - root) / safe, -np.inf), np.where(bounded, (b + root) / safe, np.inf)


@lru_cache(maxsize=4096)
def half_width(noise: TwoSidedNoise, weight: float, confidence: float) -> float:
    """Half the width of an interval around an estimate in which one noise has this weight.

    The best linear estimate of an answer that was measured itself, with variance V, gives that measurement the weight
    w = V / variance of its noise; the rest of its error has variance V (1 - w) and is taken for normal. With weight one
    the error is the noise alone, and the result its exact quantile: the smallest h with P(|noise| <= h) >= confidence.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from das.noise import DiscreteGaussian
    >>> [half_width(DiscreteGaussian(Fraction(s) ** 2), 1.0, 0.95) for s in ("1/2", "1", "3/2", "2")]
    [1.0, 2.0, 3.0, 4.0]
    >>> round(half_width(DiscreteGaussian(100), 0.01, 0.95), 3)  # next to nothing is left of the noise
    1.96
    """
    variance = noise.variance()
    rest = np.sqrt(max(weight * variance * (1.0 - weight), 0.0))
    outside = (1.0 - confidence) / 2
    reach, k, probability = _masses(noise, outside)
    if rest < 1e-6 * np.sqrt(variance):
        tail = np.cumsum(probability[::-1])[: reach + 1]  # P(X >= reach - i)
        return float(weight * (reach - int(np.searchsorted(tail, outside, side="right")) + 0.0))
    moved = weight * k

    def inside(half: float) -> float:
        return float(probability @ (ndtr((half - moved) / rest) - ndtr((-half - moved) / rest)))

    def slope(half: float) -> float:
        squares = ((half - moved) / rest) ** 2, ((-half - moved) / rest) ** 2
        return float(probability @ sum(np.exp(-each / 2) for each in squares) / (rest * np.sqrt(2 * np.pi)))

    guess = float(ndtri(0.5 + confidence / 2) * np.sqrt(weight * variance))
    below, above = _around(inside, slope, confidence, guess)
    low, high = 0.0, float(weight * reach + 40 * rest)
    for _ in range(60):
        middle = (low + high) / 2
        if middle in (low, high):  # no double lies between them
            break
        enough = middle >= above or (middle > below and inside(middle) >= confidence)
        low, high = (low, middle) if enough else (middle, high)
    return high


@lru_cache(maxsize=64)
def _masses(noise: TwoSidedNoise, outside: float) -> tuple[int, NDArray[np.int64], Floats]:
    """How far a noise reaches, the integers up to there, and their probabilities."""
    reach = 1
    while noise.cdf(-reach - 1) > outside * 1e-6:
        reach *= 2
    k = np.arange(-reach, reach + 1)
    return reach, k, np.exp(noise.log_pmf(k))


def _around(
    inside: Callable[[float], float], slope: Callable[[float], float], confidence: float, guess: float
) -> tuple[float, float]:
    """Two numbers near the one at which an increasing function reaches the confidence, surely below and above it.

    Newton's method finds them. Where it does not, they are far from it: zero and infinity.
    """
    at = guess
    for _ in range(_STEPS):
        rise = slope(at)
        if not (rise > 0 and at > 0):
            return 0.0, np.inf
        at -= (inside(at) - confidence) / rise
    below, above = at * (1 - _NEAR), at * (1 + _NEAR)
    if at > 0 and inside(below) < confidence - _SURE and inside(above) > confidence + _SURE:
        return below, above
    return 0.0, np.inf
