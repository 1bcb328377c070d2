"""Effective sample size of a Markov chain, from its autocorrelation time."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["autocorrelation_time", "effective_samples"]


def autocorrelation_time(values: ArrayLike) -> float:
    """Estimate ``1 + 2 (rho_1 + rho_2 + ...)`` by the initial monotone sequence (Geyer 1992, section 3.3).

    Sums of neighbouring pairs of autocorrelations of a reversible chain are positive and fall; they are added, held
    down to their running minimum, until the first that is not positive. Infinite for a chain that never moved.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> round(autocorrelation_time(rng.normal(size=20_000)), 1)
    1.0
    >>> round(autocorrelation_time(np.repeat(rng.normal(size=20_000), 10)))
    10
    """
    series = np.asarray(values, dtype=np.float64)
    away = series - series.mean()
    variance = float(away @ away) / len(away)
    if variance == 0.0:
        return float("inf")
    size = 1 << (2 * len(away) - 1).bit_length()
    covariance = np.fft.irfft(np.abs(np.fft.rfft(away, size)) ** 2, size)[: len(away)] / len(away)
    pairs = (covariance[: len(away) // 2 * 2].reshape(-1, 2).sum(axis=1)) / variance
    ends = np.flatnonzero(pairs <= 0)
    initial = pairs[: ends[0]] if len(ends) else pairs
    return max(1.0, 2.0 * float(np.minimum.accumulate(initial).sum()) - 1.0)


def effective_samples(values: ArrayLike) -> float:
    """Return the length of a series over its autocorrelation time.

    Examples
    --------
    >>> effective_samples([1.0, 1.0, 1.0])
    0.0
    """
    return len(np.asarray(values)) / autocorrelation_time(values)
