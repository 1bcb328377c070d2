"""The exact likelihood of a regression of one measured count on another: a sum over the true counts, no simulation.

True regressors are counts of places, which vary more than Poisson's: x ~ negative binomial with mean mu and size r. The
true response is the whole number nearest to beta0 + beta1 x + N(0, sigma^2 + tau^2 x^2): its spread may grow with the
count. Released are x + u and y + v, with u and v the noise of as many answers as were added up. With s^2 the variance
around the line and p the probabilities of v, a response that far from the line, r, has probability

    g(r) = sum over j of p(j) [Phi((r - j + 1/2) / s) - Phi((r - j - 1/2) / s)].

For discrete Gaussian v of variance V the sum is Phi((r + 1/2) / S) - Phi((r - 1/2) / S) with S^2 = s^2 + V, up to a
relative error of about 2 exp(-2 pi^2 V) (Poisson's summation formula): below 1e-8 from V = 1 on, where it is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, log_ndtr, ndtr, psi

from das.errors import InputError, Problem
from das.inference.additive_noise import noise_of
from das.inference.regression.likelihood import lines
from das.inference.regression.maximum import LEAST_SIGMA, LikelihoodFit, maximum_likelihood_fit
from das.noise.two_sided import TwoSidedNoise

__all__ = ["CountNoise", "MeasuredRegression", "fit_measured_counts"]

Array = NDArray[np.float64]
DEPTH = 30.0
"""Noise is listed as far as its probability reaches within e^-30 of the largest."""
MOST_TERMS = 2_000_000
"""Terms of the sums, over rows, true counts and, where there is no closed form, noise of the response."""
_FLOOR = 1e-300


@dataclass(frozen=True, slots=True, eq=False)
class CountNoise:
    """The noise of a sum of answers: probabilities of -reach, ..., reach; ``normal`` if the closed form holds.

    Examples
    --------
    >>> from das.noise.discrete_gaussian import DiscreteGaussian
    >>> noise = CountNoise.of(DiscreteGaussian(4), answers=3)
    >>> round(float(noise.probability.sum()), 12), round(noise.variance, 9), noise.normal
    (1.0, 12.0, True)
    """

    probability: Array
    variance: float
    normal: bool

    @classmethod
    def of(cls, mechanism: TwoSidedNoise, answers: int = 1) -> CountNoise:
        """Add up independent noises of as many answers."""
        one = noise_of(mechanism)
        most = math.ceil(one.reach(DEPTH))
        single = np.exp(one.log_density(np.arange(-most, most + 1)))
        total: Array = np.ones(1)
        for bit in bin(answers)[2:]:
            total = _trimmed(np.convolve(total, total))
            total = _trimmed(np.convolve(total, single)) if bit == "1" else total
        variance = answers * one.variance
        return cls(total / total.sum(), variance, normal=one.quadratic > 0 and one.variance >= 1)

    @property
    def values(self) -> Array:
        """What the probabilities are those of."""
        reach = len(self.probability) // 2
        return np.arange(-reach, reach + 1, dtype=np.float64)


def _trimmed(probability: NDArray[np.floating[Any]]) -> Array:
    """Leave out what is too unlikely, the same on both sides."""
    kept = np.flatnonzero(probability >= math.exp(-DEPTH) * probability.max())
    return np.asarray(probability[kept[0] : kept[-1] + 1], dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredRegression:
    """Released pairs of counts; parameters are (beta0, beta1, log sigma, log mu, log r, log tau)."""

    x: Array
    y: Array
    noise_x: CountNoise
    noise_y: CountNoise
    counts: NDArray[np.int64]
    """Possible true regressors: rows x noise."""
    log_fixed: Array
    """Log probability of the noise of x, less log(count!); minus infinity where the count would be negative."""

    @classmethod
    def of(cls, x: ArrayLike, y: ArrayLike, *, noise_x: CountNoise, noise_y: CountNoise) -> MeasuredRegression:
        """Prepare the sum over true counts."""
        regressor, response = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
        if regressor.ndim != 1 or regressor.shape != response.shape or len(regressor) < 4:
            raise InputError(Problem("regression", "needs at least four pairs of numbers", "give a row for each place"))
        if any((column != np.rint(column)).any() for column in (regressor, response)):
            raise InputError(Problem("regression", "has fractions, which measured counts have not", "use measurements"))
        terms = regressor.size * noise_x.probability.size * (1 if noise_y.normal else noise_y.probability.size)
        if terms > MOST_TERMS:
            reason = f"sums over {terms:,} terms at every step, and up to {MOST_TERMS:,} are offered"
            raise InputError(
                Problem("the likelihood", reason, "the moment correction is for many rows; or ask a level above")
            )
        counts = (regressor[:, None] - noise_x.values).astype(np.int64)
        possible = counts >= 0
        safe = np.where(possible, counts, 0)
        with np.errstate(divide="ignore"):
            log_fixed = np.where(possible, np.log(noise_x.probability) - gammaln(safe + 1.0), -np.inf)
        if not possible.any(axis=1).all():
            raise InputError(Problem("regression", "has a regressor that no count and noise give", "check the noise"))
        return cls(regressor, response, noise_x, noise_y, safe, log_fixed)

    @property
    def limits(self) -> list[tuple[float | None, float | None]]:
        """Least and largest value of each parameter."""
        return [(None, None), (None, None), (-7.0, 15.0), (-5.0, 20.0), (-5.0, 12.0), (-15.0, 3.0)]

    def with_gradient(self, parameters: Array) -> tuple[float, Array]:
        """Log likelihood and its derivative by each parameter."""
        b0, b1, log_sigma, log_mu, log_r, log_tau = parameters
        sigma, mu, r, tau = LEAST_SIGMA + math.exp(log_sigma), math.exp(log_mu), math.exp(log_r), math.exp(log_tau)
        # What depends on the true count alone is worked out once for each count.
        every = np.arange(int(self.counts.max()) + 1, dtype=np.float64)
        spread = np.sqrt(sigma**2 + (tau * every) ** 2 + (self.noise_y.variance if self.noise_y.normal else 0.0))
        log_prior = gammaln(every + r) - gammaln(r) + every * (log_mu - math.log(r + mu)) - r * math.log1p(mu / r)
        by_r = r * (psi(every + r) - psi(r) - math.log1p(mu / r) + (mu - every) / (r + mu))
        at, s = self.counts, spread[self.counts]
        log_g, by_away, by_s = self._response(self.y[:, None] - (b0 + b1 * every)[at], s)
        terms = self.log_fixed + log_prior[at] + log_g
        peak = terms.max(axis=1, keepdims=True)
        weights = np.exp(terms - peak)
        totals = weights.sum(axis=1, keepdims=True)
        weights /= totals
        pull, widen = weights * by_away, weights * by_s / s
        gradient = [
            -pull.sum(),
            -(pull * at).sum(),
            widen.sum() * sigma * math.exp(log_sigma),
            (weights * (r * (every - mu) / (r + mu))[at]).sum(),
            (weights * by_r[at]).sum(),
            (widen * ((tau * every) ** 2)[at]).sum(),
        ]
        return float((peak + np.log(totals)).sum()), np.array(gradient)

    def _response(self, away: Array, s: Array) -> tuple[Array, Array, Array]:
        """Log g, and its derivatives by the distance from the line and by s."""
        if self.noise_y.normal:
            far, near = -(np.abs(away) + 0.5) / s, -(np.abs(away) - 0.5) / s
            log_near = log_ndtr(near)
            log_g = log_near + np.log1p(-np.exp(np.minimum(log_ndtr(far) - log_near, -1e-15)))
            of_far, of_near = (np.exp(-(u**2) / 2 - math.log(2 * math.pi) / 2 - log_g) for u in (far, near))
            return log_g, np.sign(away) * (of_far - of_near) / s, (far * of_far - near * of_near) / s
        # Summation by parts: one distribution function for each value of the noise.
        steps = np.diff(np.concatenate([[0.0], self.noise_y.probability, [0.0]]))
        g, by_away, by_s = np.full(away.shape, _FLOOR), np.zeros(away.shape), np.zeros(away.shape)
        for j, step in zip([*self.noise_y.values, self.noise_y.values[-1] + 1], steps, strict=True):
            u = (away - j + 0.5) / s
            density = step * np.exp(-(u**2) / 2) / math.sqrt(2 * math.pi)
            g += step * ndtr(u)
            by_away += density
            by_s -= density * u
        g = np.maximum(g, _FLOOR)
        return np.log(g), by_away / (s * g), by_s / (s * g)


def fit_measured_counts(
    x: ArrayLike, y: ArrayLike, *, noise_x: CountNoise, noise_y: CountNoise
) -> LikelihoodFit[MeasuredRegression]:
    """Fit one measured count to another by maximum likelihood; their noises must be independent.

    Examples
    --------
    >>> from das.noise.discrete_gaussian import DiscreteGaussian
    >>> rng = np.random.default_rng(1)
    >>> x = rng.negative_binomial(2, 2 / 42, 100)
    >>> y = np.rint(3 + 0.5 * x + rng.normal(0, 4, len(x)))
    >>> mechanism = DiscreteGaussian(100)
    >>> u, v = noise_of(mechanism).draw(rng, (2, len(x)))
    >>> noise = CountNoise.of(mechanism)
    >>> fit = fit_measured_counts(x + u, y + v, noise_x=noise, noise_y=noise)
    >>> low, high = fit.profile()
    >>> bool(low < 0.5 < high)
    True
    """
    problem = MeasuredRegression.of(x, y, noise_x=noise_x, noise_y=noise_y)
    mean = max(float(problem.x.mean()), 0.5)
    excess = max(float(problem.x.var()) - noise_x.variance - mean, 0.05 * mean)
    around = max(float(problem.y.var()) - noise_y.variance, 1.0) ** 0.5 / 2
    rest = [math.log(around), math.log(mean), float(np.clip(math.log(mean**2 / excess), -4, 11)), math.log(0.05)]
    starts = [np.array([*line, *rest]) for line in lines(problem.x, problem.y, noise_x.variance, noise_y.variance)]
    return maximum_likelihood_fit(problem, starts)
