"""Which of a few hypotheses each of many cells follows, when nobody knows how common each of them is.

How common they are is learnt from all cells at once: Robbins (1956, "An empirical Bayes approach to statistics", Third
Berkeley Symposium), by the maximum of the likelihood over all weights of the hypotheses (Kiefer and Wolfowitz 1956),
which expectation and maximisation in turn climb to (Laird 1978, "Nonparametric maximum likelihood estimation of a
mixing distribution", JASA 73).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["posterior_weights"]

_ROUNDS = 30
_CELLS_BEFORE = 1.0
"""So many cells, spread evenly over the hypotheses, are taken as seen before: no weight is nothing after few cells."""


def posterior_weights(fits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Find the probability of each hypothesis for each cell, given the logarithm of its likelihood there.

    Parameters
    ----------
    fits : array, hypotheses x cells
        Log-likelihoods, up to a number for each cell.

    Examples
    --------
    Most cells speak for the first; so a cell that says nothing of its own probably follows it.

    >>> fits = np.array([[9.0, 9.0, 9.0, 0.0, 0.0], [0.0, 0.0, 0.0, 9.0, 0.0]])
    >>> chances(fits).round(2).tolist()
    [[1.0, 1.0, 1.0, 0.0, 0.7], [0.0, 0.0, 0.0, 1.0, 0.3]]
    """
    likelihood = np.exp(fits - fits.max(axis=0))
    hypotheses, cells = likelihood.shape
    weight = np.full(hypotheses, 1.0 / hypotheses)
    for _ in range(_ROUNDS):
        probability = weight[:, None] * likelihood
        probability /= probability.sum(axis=0)
        weight = (probability.sum(axis=1) + _CELLS_BEFORE / hypotheses) / (cells + _CELLS_BEFORE)
    return np.asarray(probability)
