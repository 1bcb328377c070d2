"""How a parent's people share out among its children: Polya's urns, of which the data choose one.

Each person of a cell goes to a child by its share s, or to where another person of the cell is already. With p people,
of whom any two are together for that reason with probability r, this is the Dirichlet-multinomial law (Mosimann 1962,
"On the compound multinomial distribution", Biometrika 49):

    mean  p s,    covariance  p (1 + (p - 1) r) (diag s - s s').

So people choose each for themselves at r = 0, and all go to one child at r = 1. Noisy estimates z of the children, with
variances v, tell of a cell how well shares fit and how far its people gather: to second order z - p s has independent
entries of variance v + p s (1 + (p - 1) r), given that the counts add up to p. One cell says little, all of a family's
cells say enough (:mod:`das.estimation.mixture`). What is expected of a cell is the mean and the variance of the urns,
each with its probability.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from das.estimation.mixture import chances

__all__ = ["GATHERING", "crowding", "share_by_urns"]

Floats = NDArray[np.float64]

GATHERING = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
"""The values of r among which the data choose."""


def crowding(people: Floats, gathering: float) -> Floats:
    """Say how many times as much as people who choose each for themselves a child's number varies.

    Examples
    --------
    >>> crowding(np.array([1.0, 5.0]), 0.5).tolist()
    [1.0, 3.0]
    """
    return 1.0 + (people - 1.0) * gathering


def share_by_urns(
    estimates: Floats, variances: Floats, people: Floats, guesses: Sequence[Floats]
) -> tuple[Floats, Floats]:
    """Find the mean and the variance of each child's count in each cell, both before its estimate is looked at.

    Parameters
    ----------
    estimates, variances : arrays, children x cells
        What is known of the counts; a variance of zero for children that have nobody there, of which each cell must
        leave two others at least.
    people : array, cells
        The parent's counts, all positive.
    guesses : sequence of arrays, children x cells
        Shares that may be those of the urns, positive where the variance is, adding up to one in each cell.

    Examples
    --------
    Many cells of a hundred people that are shared out evenly, up to chance: so will be the next, whatever was measured.

    >>> rng = np.random.default_rng(1)
    >>> counts = rng.multinomial(100, [0.5, 0.5], size=50).T
    >>> found = share_by_urns(counts + rng.normal(0, 5, (2, 50)), np.full((2, 50), 25.0), np.full(50, 100.0),
    ...                       [np.full((2, 50), 0.5)])
    >>> [each[:, 0].round().tolist() for each in found]
    [[50.0, 50.0], [63.0, 63.0]]
    """
    may = variances > 0
    crowd = np.stack([crowding(people, r) for r in GATHERING])
    fits = np.empty((len(guesses), len(GATHERING), len(people)))
    for at, share in enumerate(guesses):
        alone = people * share
        off = np.where(may, estimates - alone, 0.0)
        for into, times in zip(fits[at], crowd, strict=True):
            into[:] = _fit(off, variances + alone * times, may)
    urns = chances(fits.reshape(-1, len(people))).reshape(fits.shape)
    # Given the guess, the urn's own variance; and that of its mean, which the guesses do not agree on.
    mean = sum(chance * share for chance, share in zip(urns.sum(axis=1), guesses, strict=True))
    own = sum(times * share for times, share in zip((urns * crowd).sum(axis=1), guesses, strict=True))
    apart = sum(chance * (share - mean) ** 2 for chance, share in zip(urns.sum(axis=1), guesses, strict=True))
    return people * mean, people * own + people**2 * apart


def _fit(off: Floats, variance: Floats, may: NDArray[np.bool_]) -> Floats:
    """Log-likelihood of each cell's misfits, independent but for their sum, which says nothing."""
    total = variance.sum(axis=0)
    variance = np.where(may, variance, 1.0)
    chi2 = (off * off / variance).sum(axis=0) - off.sum(axis=0) ** 2 / total
    return np.asarray(-0.5 * (chi2 + np.log(variance).sum(axis=0) - np.log(total)))
