"""Nonparametric empirical Bayes: posterior weights of a few hypotheses for each cell, with weights fitted to all cells.

The prior weights of the hypotheses are unknown and are estimated from all cells at once (Robbins 1956, "An empirical
Bayes approach to statistics", Third Berkeley Symposium). They maximise the likelihood over all mixing distributions on
the given hypotheses (Kiefer and Wolfowitz 1956), which the EM algorithm climbs (Laird 1978, "Nonparametric maximum
likelihood estimation of a mixing distribution", JASA 73).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["posterior_weights"]

_ROUNDS = 30
_PSEUDO_CELLS = 1.0
"""Pseudo-observations, spread evenly over the hypotheses, so that no weight is zero when there are few cells."""


def posterior_weights(fits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Find the posterior probability of each hypothesis for each cell, given its log-likelihood there.

    Parameters
    ----------
    fits : array, hypotheses x cells
        Log-likelihoods, up to a constant for each cell.

    Examples
    --------
    Most cells speak for the first hypothesis, so a cell without information of its own probably follows it.

    >>> fits = np.array([[9.0, 9.0, 9.0, 0.0, 0.0], [0.0, 0.0, 0.0, 9.0, 0.0]])
    >>> posterior_weights(fits).round(2).tolist()
    [[1.0, 1.0, 1.0, 0.0, 0.7], [0.0, 0.0, 0.0, 1.0, 0.3]]
    """
    likelihood = np.exp(fits - fits.max(axis=0))
    hypotheses, cells = likelihood.shape
    weight = np.full(hypotheses, 1.0 / hypotheses)
    for _ in range(_ROUNDS):
        probability = weight[:, None] * likelihood
        probability /= probability.sum(axis=0)
        weight = (probability.sum(axis=1) + _PSEUDO_CELLS / hypotheses) / (cells + _PSEUDO_CELLS)
    return np.asarray(probability)
