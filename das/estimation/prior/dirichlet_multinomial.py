"""How a parent's people share out among its children: Polya's urns, of which the data choose.

Each person of a cell goes to a child by its share s, or to where another person of the cell is already. With p people,
of whom any two are together for that reason with probability r, this is the Dirichlet-multinomial law (Mosimann 1962,
"On the compound multinomial distribution", Biometrika 49):

    mean  p s,    covariance  p (1 + (p - 1) r) (diag s - s s').

So people choose each for themselves at r = 0, and all go to one child at r = 1. Noisy estimates z of the children, with
variances v, tell of a cell how well shares fit and how far its people gather: to second order z - p s has independent
entries of variance v + p s (1 + (p - 1) r), given that the counts add up to p. One cell says little, all of a family's
cells say enough (:mod:`das.estimation.prior.mixture`). That is learnt twice:

- which shares are those of a cell, from guesses, with whatever r fits it;
- around these, how far people gather, for each child's count by itself: a crowd in a place where nobody would have
  expected one is a matter of that place.
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
"""The values of r among which the data choose."""


@dataclass(frozen=True, slots=True)
class ShareEstimate:
    """Shares of the children, adding up to one in each cell, and the variance with which they are known."""

    share: Floats  # children x cells
    variance: Floats  # children x cells

    @classmethod
    def by(cls, people: Floats, variance: Floats, may: NDArray[np.bool_]) -> ShareEstimate:
        """ShareEstimate shares from how many of some people the children have, known with a variance.

        They are people who chose as well: were there N of them, s / N is what chance does to a share.

        Examples
        --------
        >>> guess = ShareEstimate.by(np.array([[3.0], [1.0]]), np.array([[0.0], [1.0]]), np.full((2, 1), True))
        >>> guess.share[:, 0].tolist(), guess.variance[:, 0].tolist()
        ([0.75, 0.25], [0.1875, 0.125])
        """
        every = people.sum(axis=0, where=may)
        return cls(np.where(may, people / every, 0.0), np.where(may, (people + variance) / every**2, 0.0))


def overdispersion_factor(people: Floats, gathering: float) -> Floats:
    """Say how many times as much as people who choose each for themselves a child's number varies.

    Examples
    --------
    >>> crowding(np.array([1.0, 5.0]), 0.5).tolist()
    [1.0, 3.0]
    """
    return 1.0 + (people - 1.0) * gathering


def fit_shares(
    estimates: Floats, variances: Floats, people: Floats, guesses: Sequence[ShareEstimate]
) -> tuple[Floats, Floats]:
    """Find the mean and the variance of each child's count in each cell.

    Parameters
    ----------
    estimates, variances : arrays, children x cells
        What is known of the counts; a variance of zero for children that have nobody there, of which each cell must
        leave two others at least.
    people : array, cells
        The parent's counts, all positive.
    guesses : sequence of ShareEstimate
        Shares that may be those of the urns, positive where the variance of the estimates is.

    Examples
    --------
    Many cells of a hundred people that are shared out evenly, up to chance: so will be the next, whatever was measured.

    >>> rng = np.random.default_rng(1)
    >>> counts = rng.multinomial(100, [0.5, 0.5], size=50).T
    >>> even = ShareEstimate(np.full((2, 50), 0.5), np.zeros((2, 50)))
    >>> found = fit_shares(counts + rng.normal(0, 5, (2, 50)), np.full((2, 50), 25.0), np.full(50, 100.0), [even])
    >>> [each[:, 0].round().tolist() for each in found]
    [[50.0, 50.0], [58.0, 54.0]]
    """
    may = variances > 0
    crowds = np.stack([overdispersion_factor(people, r) for r in OVERDISPERSION])
    fits = np.empty((len(guesses), len(OVERDISPERSION), len(people)))
    for guess, into in zip(guesses, fits, strict=True):
        alone, unsure = people * guess.share, variances + people**2 * guess.variance
        off = np.where(may, estimates - alone, 0.0)
        into[:] = _fit(off, unsure + alone * crowds[:, None], may)
    chance = posterior_weights(fits.reshape(-1, len(people))).reshape(fits.shape).sum(axis=1)
    mean, doubt = np.zeros(may.shape), np.zeros(may.shape)
    for guess, here in zip(guesses, chance, strict=True):
        mean += here * people * guess.share
    for guess, here in zip(guesses, chance, strict=True):
        doubt += here * (people**2 * guess.variance + (people * guess.share - mean) ** 2)
    spreads = (crowds[:, None] * mean + doubt)[:, may]
    variance = variances[may] + spreads
    chance = posterior_weights(-0.5 * ((estimates - mean)[may] ** 2 / variance + np.log(variance)))
    spread = np.zeros(may.shape)
    spread[may] = (chance * spreads).sum(axis=0)
    return mean, spread


def _fit(off: Floats, variance: Floats, may: NDArray[np.bool_]) -> Floats:
    """Log-likelihood of each cell's misfits, independent but for their sum, which says nothing; for many variances."""
    total = variance.sum(axis=-2, where=may)
    variance = np.where(may, variance, 1.0)
    chi2 = (off * off / variance).sum(axis=-2) - off.sum(axis=0) ** 2 / total
    return np.asarray(-0.5 * (chi2 + np.log(variance).sum(axis=-2) - np.log(total)))
