"""Exponential prior for counts of which only a rough mean is known; the means' scale factors are estimated.

Among nonnegative distributions with a given mean the exponential has the largest entropy. The rough means are right up
to a factor, and the distribution of that factor is estimated from the estimates of all cells at once
(:mod:`das.estimation.prior.mixture`).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr

from das.estimation.prior.mixture import posterior_weights

__all__ = ["NOBODY", "fit_means", "log_likelihood"]

Floats = NDArray[np.float64]

NOBODY = 0.01
"""Smallest prior mean, in people: smaller ones act as zero and only make the problem worse conditioned."""
_OCTAVES_BELOW = 7
"""How often the factor may halve a rough mean. It may double until the largest estimate is reached."""


def fit_means(estimates: Floats, deviations: Floats, rough_means: Floats) -> Floats:
    """Estimate the prior mean of each count: its rough mean times the geometric posterior mean of the factor.

    Examples
    --------
    The first rough mean is far too small. Most are ten times too large, so the last is taken to be so as well.

    >>> estimates, rough = np.array([80.0, 0.4, 0.0, 7.0, 70.0, 0.0]), np.array([0.1, 8.0, 5.0, 60.0, 800.0, 40.0])
    >>> fit_means(estimates, np.full(6, 2.0), rough).round(1).tolist()
    [79.0, 0.5, 0.3, 4.7, 60.8, 2.1]
    """
    rough_means = np.maximum(rough_means, NOBODY)
    reach = float(((np.maximum(estimates, 0.0) + deviations) / rough_means).max())
    octaves = np.arange(-_OCTAVES_BELOW, max(math.ceil(math.log2(reach)), 0) + 1)
    means = np.maximum(rough_means * 2.0 ** octaves[:, None], NOBODY)
    weights = posterior_weights(log_likelihood(estimates, deviations, means))
    return np.asarray(np.exp((weights * np.log(means)).sum(axis=0)))


def log_likelihood(estimates: Floats, deviations: Floats, means: Floats) -> Floats:
    """Log-likelihood of exponential counts observed with normal noise; terms without the mean are left out.

    With t = deviation / mean - estimate / deviation it is t^2 / 2 + log Phi(-t) - log(mean), where the first two nearly
    cancel for large t: their sum is then the logarithm of half a scaled complementary error function.
    """
    t = deviations / means - estimates / deviations
    near = np.minimum(t, 0.0)
    far = np.log(0.5 * erfcx(np.maximum(t, 0.0) / math.sqrt(2.0)))
    return np.asarray(np.where(t > 0, far, 0.5 * near**2 + log_ndtr(-near)) - np.log(means))
