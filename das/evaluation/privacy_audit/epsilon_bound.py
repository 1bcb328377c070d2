"""A lower bound on epsilon from two samples of outputs, at a stated confidence: Clopper and Pearson (1934).

If a mechanism is (epsilon, delta)-DP then P(S | x) <= e^epsilon P(S | x') + delta for every set S of outputs. Bounds
that hold together with the stated confidence, P(S | x) >= p and P(S | x') <= q, give epsilon >= log((p - delta) / q).
S is chosen on one half of the runs and judged on the other, so that the choice costs no confidence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainccinv, betaincinv

__all__ = ["EpsilonBound", "Sample", "empirical_epsilon", "epsilon_of_counts", "rate_lower", "rate_upper"]

LEVELS = 1 / (1 + np.exp(np.linspace(9, -9, 200)))
"""Quantiles of the scores that are tried as thresholds, dense in both tails."""


def rate_lower(hits: int, of: int, error: float) -> float:
    """Lower confidence bound on a probability: the true one is below with probability at most `error`.

    Examples
    --------
    >>> round(rate_lower(1000, 1000, 0.0005), 6)  # 0.0005^(1/1000)
    0.992428
    """
    return 0.0 if hits == 0 else float(betaincinv(hits, of - hits + 1, error))


def rate_upper(hits: int, of: int, error: float) -> float:
    """Upper confidence bound on a probability: the true one is above with probability at most `error`.

    Examples
    --------
    >>> round(rate_upper(0, 1000, 0.0005), 6)
    0.007572
    """
    return 1.0 if hits == of else float(betainccinv(hits + 1, of - hits, error))


def epsilon_of_counts(hits: tuple[int, int], of: tuple[int, int], delta: Fraction, error: float) -> float:
    """Lower bound on epsilon from how often a set of outputs was hit under x and under x'; both bounds share `error`.

    Examples
    --------
    >>> round(epsilon_of_counts((1000, 0), (1000, 1000), Fraction(0), 0.001), 2)
    4.88
    """
    likely = rate_lower(hits[0], of[0], error / 2) - float(delta)
    unlikely = rate_upper(hits[1], of[1], error / 2)
    return math.log(likely / unlikely) if likely > unlikely else 0.0


@dataclass(frozen=True, slots=True)
class Sample:
    """Runs on one data set: a number for each release, large where the first data set is likelier, and the refusals."""

    scores: NDArray[np.float64]
    refused: int

    @property
    def size(self) -> int:
        """Number of runs."""
        return len(self.scores) + self.refused


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    """A set of outputs: refusals, or scores on one side of a threshold; `forward` if it is likelier under x."""

    forward: bool
    threshold: float | None

    def hits(self, sample: Sample) -> int:
        if self.threshold is None:
            return sample.refused
        above = sample.scores >= self.threshold
        return int((above if self.forward else ~above).sum())

    def words(self) -> str:
        if self.threshold is None:
            return "nothing is released"
        side = "at least" if self.forward else "below"
        return f"the log-likelihood ratio is {side} {self.threshold:.4g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EpsilonBound:
    """A lower bound on epsilon, the set of outputs that gives it, and how often it was hit on the judging halves."""

    epsilon: float
    event: str
    hits: tuple[int, int]
    runs: tuple[int, int]


def empirical_epsilon(
    training: tuple[Sample, Sample], judging: tuple[Sample, Sample], delta: Fraction, error: float
) -> EpsilonBound:
    """Choose the set of outputs on the training halves and judge it on the others.

    Parameters
    ----------
    training, judging : pair of Sample
        Runs on x and on x', independent of each other.
    delta : Fraction
        The delta of the claim.
    error : float
        How often a bound above the true epsilon may be returned.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> halves = [(Sample(rng.normal(2, 2, 5000), 0), Sample(rng.normal(-2, 2, 5000), 0)) for _ in range(2)]
    >>> found = empirical_epsilon(*halves, Fraction(1, 10**6), 0.001)
    >>> 2 < found.epsilon < 10
    True
    """
    best, chosen = -1.0, _Event(forward=True, threshold=None)
    for event in _candidates(training):
        found = _judged(event, training, delta, error)
        if found.epsilon > best:
            best, chosen = found.epsilon, event
    return _judged(chosen, judging, delta, error)


def _candidates(training: tuple[Sample, Sample]) -> Iterator[_Event]:
    scores = np.concatenate([sample.scores for sample in training])
    quantiles = np.unique(np.quantile(scores, LEVELS)) if len(scores) else []
    for forward in (True, False):
        yield _Event(forward=forward, threshold=None)
        yield from (_Event(forward=forward, threshold=float(each)) for each in quantiles)


def _judged(event: _Event, samples: tuple[Sample, Sample], delta: Fraction, error: float) -> EpsilonBound:
    one, other = samples if event.forward else samples[::-1]
    hits, runs = (event.hits(one), event.hits(other)), (one.size, other.size)
    return EpsilonBound(epsilon=epsilon_of_counts(hits, runs, delta, error), event=event.words(), hits=hits, runs=runs)
