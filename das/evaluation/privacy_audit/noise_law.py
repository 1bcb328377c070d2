"""Is the drawn noise distributed as stated? Tests that hold at every sample size: e-values.

An e-value is a nonnegative number whose mean is at most one if the stated law is true, so by Markov's inequality it is
1/a or more with probability at most a. A likelihood ratio of any fixed law against the stated one is an e-value, and
so is an average of several. Here the other laws are the stated one with its scale changed by a stated factor, and one
that is learnt from half of the draws and judged on the other half (Wasserman, Ramdas and Balakrishnan 2020). Nothing
is asymptotic. A scale that is 5 % too small takes about 5,000 draws to find.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from das.evaluation.privacy_audit.checks import Check
from das.noise.interval_arithmetic import Weights
from das.noise.two_sided import TwoSidedNoise

__all__ = ["check_noise_law", "log_e_value", "scale_log_ratios"]

FACTORS = (0.5, 0.8, 0.9, 0.95, 0.975, 0.99, 1.01, 1.025, 1.05, 1.1, 1.25, 2.0)
"""Scales other than the stated one that are compared with it."""
NAME = "The noise has the stated distribution"
Draws = NDArray[np.int64]


def check_noise_law(noise: Draws, mechanisms: Sequence[TwoSidedNoise], error: float) -> Check:
    """Test all draws, runs x rows, against the stated law of each row; refuted wrongly with probability `error`.

    One e-value is made of all rows together, for a fault of all of them, and one for each stated mechanism.
    """
    if not noise.size:
        return Check(name=NAME, verdict="not checked", detail="nothing was released")
    kinds = dict.fromkeys(mechanisms)
    logs: dict[str, float] = {}
    together = np.zeros(len(FACTORS))
    for kind in kinds:
        draws = noise[:, [each == kind for each in mechanisms]]
        ratios = scale_log_ratios(draws, kind)
        together += ratios
        logs[kind.name] = log_e_value(np.append(ratios, _learnt_log_ratio(draws, kind)))
    logs = {"all together": log_e_value(together), **logs}
    worst = max(logs, key=lambda name: logs[name])
    found = logs[worst] - math.log(len(logs))
    detail = f"{noise.size:,} draws of {len(kinds)} stated laws; largest e-value {_shown(found)} ({worst})"
    return Check(name=NAME, verdict="VIOLATED" if found >= -math.log(error) else "consistent", detail=detail)


def log_e_value(logs: NDArray[np.float64]) -> float:
    """Log of the average of e-values that are given by their logs.

    Examples
    --------
    >>> round(math.exp(log_e_value(np.log([1.0, 3.0]))), 12)
    2.0
    """
    largest = float(logs.max())
    return largest + math.log(float(np.exp(logs - largest).mean()))


def scale_log_ratios(draws: Draws, noise: TwoSidedNoise) -> NDArray[np.float64]:
    """Log-likelihood ratio of each of `FACTORS` times the stated scale against the stated one."""
    values, counts = np.unique(draws, return_counts=True)
    stated = noise.log_pmf(values)
    return np.array([float(counts @ (_log_pmf(noise, factor, values) - stated)) for factor in FACTORS])


def _log_pmf(noise: TwoSidedNoise, factor: float, values: Draws) -> NDArray[np.float64]:
    """Log-probabilities of the same kind of noise with its scale multiplied."""
    ratio = Fraction(factor)
    weights = Weights(quadratic=noise.weights.quadratic / ratio**2, linear=noise.weights.linear / ratio)
    quadratic, linear = float(weights.quadratic), float(weights.linear)
    size = np.arange(1, weights.reach(80) + 1, dtype=np.float64)
    # The sum over the reach is below the whole by less than a double shows; its bound keeps the ratio an e-value.
    total = (1 + 2 * float(np.exp(-(quadratic * size * size + linear * size)).sum())) * (1 + 1e-12)
    value = np.abs(values).astype(np.float64)
    return np.asarray(-(quadratic * value * value + linear * value) - math.log(total))


def _learnt_log_ratio(draws: Draws, noise: TwoSidedNoise) -> float:
    """Log-likelihood ratio of a law learnt from the first half of the runs, judged on the second.

    The law is that of the stated one on bins of roughly equal probability, with learnt probabilities of the bins: a
    tenth of the stated ones, and nine tenths of the observed.
    """
    half = len(draws) // 2
    if half == 0:
        return 0.0
    deviation = math.sqrt(noise.variance())
    edges = np.unique(np.round(np.linspace(-3, 3, 25) * deviation)) + 0.5
    stated = np.diff([0.0, *(noise.cdf(math.floor(edge)) for edge in edges), 1.0])
    first, second = (
        np.bincount(np.searchsorted(edges, some.reshape(-1)), minlength=len(stated))
        for some in (draws[:half], draws[half:])
    )
    learnt = (first + stated) / (first.sum() + 1)
    ratio = np.where(stated > 0, (0.9 * learnt + 0.1 * stated) / np.where(stated > 0, stated, 1.0), 1.0)
    return float(second @ np.log(ratio))


def _shown(log: float) -> str:
    return f"e^{log:.1f}" if abs(log) > 20 else f"{math.exp(log):.3g}"
