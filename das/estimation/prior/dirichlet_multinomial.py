"""Dirichlet-multinomial prior for splitting a parent's count among its children; the overdispersion is estimated.

The p people of a cell go to the children with shares s. If any two of them go to the same child beyond what shares
explain with probability r (the intraclass correlation), the children's counts are Dirichlet-multinomial (Mosimann 1962,
"On the compound multinomial distribution", Biometrika 49):

    mean  p s,    covariance  p (1 + (p - 1) r) (diag s - s s').

People choose independently at r = 0 (multinomial), and all go to one child at r = 1. The factor 1 + (p - 1) r is the
overdispersion factor. Noisy estimates z of the children's counts, with variances v, carry information on shares and on
overdispersion: to second order z - p s has independent entries of variance v + p s (1 + (p - 1) r), given that the
counts add up to p. One cell says little; all cells of a family together say enough
(:mod:`das.estimation.prior.mixture`). The fit has two steps:

- posterior weights of several share estimates for each cell, with r integrated out;
- around the resulting mean, posterior weights of r for each child's count by itself, because one large count where
  none was predicted says nothing about the other children.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from das.estimation.prior.mixture import posterior_weights

__all__ = ["OVERDISPERSION", "ShareEstimate", "fit_shares", "overdispersion_factor"]

Floats = NDArray[np.float64]

OVERDISPERSION = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Grid of intraclass correlations r over which the mixture is fitted."""


@dataclass(frozen=True, slots=True)
class ShareEstimate:
    """Estimated shares of the children, adding up to one in each cell, and their variance."""

    share: Floats  # children x cells
    variance: Floats  # children x cells

    @classmethod
    def by(cls, people: Floats, variance: Floats, allowed: NDArray[np.bool_]) -> ShareEstimate:
        """Estimate shares from the children's counts of other people, which are known with a variance.

        The variance of a share has two parts: that of the counts, and s / N for the N people themselves, whose choice
        is a sample.

        Examples
        --------
        >>> estimate = ShareEstimate.by(np.array([[3.0], [1.0]]), np.array([[0.0], [1.0]]), np.full((2, 1), True))
        >>> estimate.share[:, 0].tolist(), estimate.variance[:, 0].tolist()
        ([0.75, 0.25], [0.1875, 0.125])
        """
        every = people.sum(axis=0, where=allowed)
        return cls(np.where(allowed, people / every, 0.0), np.where(allowed, (people + variance) / every**2, 0.0))


def overdispersion_factor(people: Floats, correlation: float) -> Floats:
    """Ratio of the variance of a child's count to the multinomial variance, at an intraclass correlation.

    Examples
    --------
    >>> overdispersion_factor(np.array([1.0, 5.0]), 0.5).tolist()
    [1.0, 3.0]
    """
    return 1.0 + (people - 1.0) * correlation


def fit_shares(
    estimates: Floats, variances: Floats, people: Floats, candidates: Sequence[ShareEstimate]
) -> tuple[Floats, Floats]:
    """Fit the prior: mean and variance of each child's count in each cell.

    Parameters
    ----------
    estimates, variances : arrays, children x cells
        Linear estimates of the counts and their variances; a variance of zero marks a child that cannot have anybody in
        the cell. At least two children of each cell must have a positive variance.
    people : array, cells
        The parent's counts, all positive.
    candidates : sequence of ShareEstimate
        Share estimates to choose from, positive where the variance of the estimates is.

    Examples
    --------
    Fifty cells of a hundred people each are split evenly up to sampling variation. The prior mean of the first cell is
    an even split, whatever was measured there.

    >>> rng = np.random.default_rng(1)
    >>> counts = rng.multinomial(100, [0.5, 0.5], size=50).T
    >>> even = ShareEstimate(np.full((2, 50), 0.5), np.zeros((2, 50)))
    >>> found = fit_shares(counts + rng.normal(0, 5, (2, 50)), np.full((2, 50), 25.0), np.full(50, 100.0), [even])
    >>> [array[:, 0].round().tolist() for array in found]
    [[50.0, 50.0], [58.0, 54.0]]
    """
    allowed = variances > 0
    factors = np.stack([overdispersion_factor(people, r) for r in OVERDISPERSION])
    fits = np.empty((len(candidates), len(OVERDISPERSION), len(people)))
    for candidate, fit in zip(candidates, fits, strict=True):
        multinomial, uncertain = people * candidate.share, variances + people**2 * candidate.variance
        residual = np.where(allowed, estimates - multinomial, 0.0)
        fit[:] = _log_likelihood(residual, uncertain + multinomial * factors[:, None], allowed)
    weights = posterior_weights(fits.reshape(-1, len(people))).reshape(fits.shape).sum(axis=1)
    mean, between = np.zeros(allowed.shape), np.zeros(allowed.shape)
    for candidate, weight in zip(candidates, weights, strict=True):
        mean += weight * people * candidate.share
    for candidate, weight in zip(candidates, weights, strict=True):
        between += weight * (people**2 * candidate.variance + (people * candidate.share - mean) ** 2)
    spreads = (factors[:, None] * mean + between)[:, allowed]
    variance = variances[allowed] + spreads
    weights = posterior_weights(-0.5 * ((estimates - mean)[allowed] ** 2 / variance + np.log(variance)))
    spread = np.zeros(allowed.shape)
    spread[allowed] = (weights * spreads).sum(axis=0)
    return mean, spread


def _log_likelihood(residual: Floats, variance: Floats, allowed: NDArray[np.bool_]) -> Floats:
    """Normal log-likelihood of each cell's residuals, conditional on their sum; for several sets of variances."""
    total = variance.sum(axis=-2, where=allowed)
    variance = np.where(allowed, variance, 1.0)
    chi2 = (residual * residual / variance).sum(axis=-2) - residual.sum(axis=0) ** 2 / total
    return np.asarray(-0.5 * (chi2 + np.log(variance).sum(axis=-2) - np.log(total)))
