"""A normal estimate censored at two bounds: its moments, and the mean and deviation that a censored mean comes from.

Evans, King, Schwenzfeier and Thakurta (2023, APSR 117(4)) state three equations for theta, sigma and the shares of
censored estimates. Written for one side they are one strictly monotone equation, which is what is solved here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

__all__ = ["Corrected", "Moments", "correct", "moments"]

Reals = NDArray[np.float64]
_STEPS = 48
_WIDEST = 30.0  # log of sigma over the width of the bounds, at either end of the search


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Moments of c = clip(X, lower, upper), X normal, and of the indicator of X > upper."""

    alpha_low: float
    alpha_high: float
    mean: float
    variance: float
    covariance_high: float
    """Cov(c, 1[X > upper]) = alpha_high (upper - mean), exactly."""


def moments(theta: float, sigma: float, lower: float, upper: float) -> Moments:
    """Return the moments of a normal variable censored at both bounds.

    Notes
    -----
    With a, b = (bound - theta)/sigma: alpha_1 = Phi(a), alpha_2 = 1 - Phi(b),
    E c = lower alpha_1 + upper alpha_2 + (1 - alpha_1 - alpha_2) theta + sigma (phi(a) - phi(b)), and E c^2 likewise.
    Since c = upper wherever X > upper, E[c 1[X > upper]] = upper alpha_2 and the covariance is alpha_2 (upper - E c).

    Examples
    --------
    >>> round(moments(3.0, 1.0, -4.0, 3.6744897501960817).mean, 5)
    2.85085
    """
    a, b = (lower - theta) / sigma, (upper - theta) / sigma
    low, high, pa, pb = float(ndtr(a)), float(ndtr(-b)), float(_phi(a)), float(_phi(b))
    inside = 1 - low - high
    mean = lower * low + upper * high + inside * theta + sigma * (pa - pb)
    square = (
        lower * lower * low
        + upper * upper * high
        + inside * (theta * theta + sigma * sigma)
        + 2 * theta * sigma * (pa - pb)
        + sigma * sigma * (a * pa - b * pb)
    )
    return Moments(
        alpha_low=low,
        alpha_high=high,
        mean=mean,
        variance=max(square - mean * mean, 0.0),
        covariance_high=high * (upper - mean),
    )


@dataclass(frozen=True, slots=True)
class Corrected:
    """Solutions, one for each pair; where there is none, theta is the censored mean and sigma is not a number."""

    theta: Reals
    sigma: Reals
    feasible: NDArray[np.bool_]


def correct(censored_mean: ArrayLike, alpha_high: ArrayLike, lower: float, upper: float) -> Corrected:
    """Return theta and sigma for which a normal variable has this censored mean and this share above the upper bound.

    Notes
    -----
    With z = Phi^-1(1 - alpha) we have theta = upper - sigma z, and the mean is

        theta_C(sigma) = upper - E[min(sigma (z - Z)_+, upper - lower)],

    which falls strictly from upper to upper - (upper - lower)(1 - alpha) as sigma grows. So there is one solution if
    the censored mean lies strictly between, and otherwise none. Bisection in log sigma; all pairs at once.

    Examples
    --------
    >>> found = correct([2.85084, 5.0], [0.25, 0.25], -4.0, 3.6744897501960817)
    >>> found.theta.round(3).tolist(), found.feasible.tolist()
    ([3.0, 5.0], [True, False])
    """
    mean, alpha = np.broadcast_arrays(
        np.asarray(censored_mean, dtype=np.float64), np.asarray(alpha_high, dtype=np.float64)
    )
    width = upper - lower
    with np.errstate(invalid="ignore"):
        feasible = (alpha > 0) & (alpha < 1) & (mean < upper) & (mean > upper - width * (1 - alpha))
    z = -ndtri(np.where(feasible, alpha, 0.5))
    cdf_z, phi_z = ndtr(z), _phi(z)
    gap = (upper - mean) / width  # E[min(s (z - Z)_+, 1)] must equal it, in units of the width
    low, high = np.full(mean.shape, -_WIDEST), np.full(mean.shape, _WIDEST)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        sigma = np.exp(middle)
        start = z - 1 / sigma
        value = ndtr(start) + sigma * (z * (cdf_z - ndtr(start)) + phi_z - _phi(start))
        larger = value < gap
        low, high = np.where(larger, middle, low), np.where(larger, high, middle)
    sigma = width * np.exp((low + high) / 2)
    feasible = feasible & (low > -_WIDEST) & (high < _WIDEST)
    return Corrected(
        np.where(feasible, upper - sigma * z, mean), np.where(feasible, sigma, np.nan), np.asarray(feasible)
    )


def _phi(x: ArrayLike) -> Reals:
    return np.asarray(np.exp(-np.square(x) / 2) / np.sqrt(2 * np.pi))
