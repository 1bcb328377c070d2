"""How many people a cell may have, of which nothing but a guess is known: exponential laws with learnt means.

Of a count that is not negative and has the mean m the exponential law says least. Guesses of the means are right up to
a factor, and how far off they are is learnt from the estimates of all cells at once (:mod:`das.estimation.prior.mixture`).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr

from das.estimation.prior.mixture import posterior_weights

__all__ = ["NOBODY", "fit_exponential", "fit_means"]

Floats = NDArray[np.float64]

NOBODY = 0.01
"""So few people are as good as none: nobody has a reason to expect fewer."""
_OCTAVES_BELOW = 7
"""How often a factor may halve a guess. It doubles guesses until they reach the largest estimate."""


def fit_means(estimates: Floats, deviations: Floats, guesses: Floats) -> Floats:
    """Find the mean of each count: a guess times a factor, of what is known of it the mean of the logarithm.

    Examples
    --------
    The first guess is far too small. Most are ten times too large, so the last of them is as well.

    >>> estimates, guesses = np.array([80.0, 0.4, 0.0, 7.0, 70.0, 0.0]), np.array([0.1, 8.0, 5.0, 60.0, 800.0, 40.0])
    >>> fit_means(estimates, np.full(6, 2.0), guesses).round(1).tolist()
    [79.0, 0.5, 0.3, 4.7, 60.8, 2.1]
    """
    guesses = np.maximum(guesses, NOBODY)
    reach = float(((np.maximum(estimates, 0.0) + deviations) / guesses).max())
    octaves = np.arange(-_OCTAVES_BELOW, max(math.ceil(math.log2(reach)), 0) + 1)
    means = np.maximum(guesses * 2.0 ** octaves[:, None], NOBODY)
    chance = posterior_weights(fit_exponential(estimates, deviations, means))
    return np.asarray(np.exp((chance * np.log(means)).sum(axis=0)))


def fit_exponential(estimates: Floats, deviations: Floats, means: Floats) -> Floats:
    """Log-likelihood of exponential counts with normal noise; terms without the mean are left out.

    With t = deviation / mean - estimate / deviation it is t^2 / 2 + log Phi(-t) - log(mean), where the first two nearly
    cancel for large t: their sum is then the logarithm of half a scaled complementary error function.
    """
    t = deviations / means - estimates / deviations
    near = np.minimum(t, 0.0)
    far = np.log(0.5 * erfcx(np.maximum(t, 0.0) / math.sqrt(2.0)))
    return np.asarray(np.where(t > 0, far, 0.5 * near**2 + log_ndtr(-near)) - np.log(means))
