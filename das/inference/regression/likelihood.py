"""The exact likelihood of a regression on one noisy count: summation over the true count, no simulation.

True counts x ~ Poisson(mu), response y = beta0 + beta1 x + N(0, sigma^2), released x + u and y + v. For each possible
x the response is integrated in closed form: normal for Gaussian v, and for Laplace v of scale b the normal-Laplace
density f(r) = e^{A^2/2} [e^{-r/b} Phi(r/s - A) + e^{r/b} Phi(-r/s - A)] / (2 b), A = s/b (Reed and Jorgensen 2004).
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, log_ndtr

from das.errors import InputError, Problem, UsageError
from das.inference.additive_noise import AdditiveNoise, noise_of
from das.inference.regression.maximum import LEAST_SIGMA, LikelihoodFit, maximum_likelihood_fit
from das.inference.regression.moments import corrected_fit, naive_fit

__all__ = ["CountRegression", "fit_by_likelihood", "lines", "normal_laplace_log_density"]

Array = NDArray[np.float64]
DEPTH = 40.0
"""True counts are listed as far as the noise density reaches within e^-40 of its peak, and Poisson's around them."""


def normal_laplace_log_density(away: ArrayLike, sigma: float, scale: float) -> Array:
    """Return the log density of N(0, sigma^2) plus Laplace(scale), stable far from zero and for tiny sigma.

    Examples
    --------
    >>> grid = np.linspace(-60, 60, 40_001)
    >>> round(float(np.trapezoid(np.exp(normal_laplace_log_density(grid, 2.0, 3.0)), grid)), 8)
    1.0
    """
    left, right = _sides(np.asarray(away, dtype=np.float64), sigma, scale)
    return np.asarray(np.logaddexp(left, right) + (sigma / scale) ** 2 / 2 - math.log(2 * scale))


def _sides(r: Array, sigma: float, scale: float) -> tuple[Array, Array]:
    ratio = sigma / scale
    return log_ndtr(r / sigma - ratio) - r / scale, log_ndtr(-r / sigma - ratio) + r / scale


def _log_response(r: Array, sigma: float, noise: AdditiveNoise) -> Array:
    """Log density of a response this far from its line."""
    if not noise.quadratic:
        return normal_laplace_log_density(r, sigma, 1 / noise.linear)
    variance = sigma**2 + noise.variance
    return -(r**2) / (2 * variance) - math.log(2 * math.pi * variance) / 2


def _response(r: Array, sigma: float, noise: AdditiveNoise) -> tuple[Array, Array, Array]:
    """Log density of a response this far from its line, and its derivatives by the distance and by sigma.

    In the normal-Laplace density the normal densities that the two sides leave on differentiation are equal: by r they
    cancel, and by sigma they add up to -phi(r/s) / b^2.
    """
    if noise.quadratic:
        variance = sigma**2 + noise.variance
        log_density = -(r**2) / (2 * variance) - math.log(2 * math.pi * variance) / 2
        return log_density, -r / variance, sigma * (r**2 / variance - 1) / variance
    b = 1 / noise.linear
    left, right = _sides(r, sigma, b)
    log_density = np.logaddexp(left, right) + (sigma / b) ** 2 / 2 - math.log(2 * b)
    log_normal = -(r**2) / (2 * sigma**2) - math.log(2 * math.pi) / 2
    return log_density, np.tanh((right - left) / 2) / b, (sigma - np.exp(log_normal - log_density)) / b**2


@dataclass(frozen=True, slots=True, eq=False)
class CountRegression:
    """Released pairs with their noise; parameters are (beta0, beta1, log sigma, log mu)."""

    x: Array
    y: Array
    noise_x: AdditiveNoise
    noise_y: AdditiveNoise
    counts: Array
    log_fixed: Array
    """Log density of the noise of x at each possible count, less log(count!): what no parameter changes."""

    @classmethod
    def of(cls, x: ArrayLike, y: ArrayLike, *, noise_x: object, noise_y: object) -> CountRegression:
        """Prepare the sum over true counts."""
        regressor, response = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
        on_x, on_y = noise_of(noise_x), noise_of(noise_y)
        if regressor.ndim != 1 or regressor.shape != response.shape or len(regressor) < 4:
            raise InputError(Problem("regression", "needs at least four pairs of numbers", "give a row for each place"))
        if on_y.on_integers:
            reason = f"{on_y.name} on a normal response has no density on the real line"
            raise UsageError(Problem("noise of the response", reason, "use the moment correction"))
        # Beyond both ends the Poisson weights, or the noise, have fallen below e^-40.
        mean = max(float(regressor.mean()), 1.0) + 6 * (float(regressor.std()) + 1) / len(regressor) ** 0.5
        last = max(mean + 10 * mean**0.5 + 20, float(regressor.max()) + 3 * on_x.variance**0.5)
        last = min(last, max(float(regressor.max()), 1.0) + on_x.reach(DEPTH))
        counts = np.arange(math.ceil(last) + 1, dtype=np.float64)
        log_fixed = on_x.log_density(regressor[:, None] - counts) - gammaln(counts + 1)
        return cls(regressor, response, on_x, on_y, counts, log_fixed)

    @property
    def limits(self) -> list[tuple[float | None, float | None]]:
        """Least and largest value of each parameter."""
        return [(None, None), (None, None), (-7.0, 12.0), (-5.0, 15.0)]

    def log_likelihood(self, parameters: Array) -> float:
        """Log likelihood at (beta0, beta1, log sigma, log mu), in a third of the time of its gradient."""
        b0, b1, log_sigma, log_mu = parameters
        sigma = LEAST_SIGMA + math.exp(log_sigma)
        terms = self.log_fixed + _log_response(self.y[:, None] - (b0 + b1 * self.counts), sigma, self.noise_y)
        terms += self.counts * log_mu
        peak = terms.max(axis=1, keepdims=True)
        totals = np.exp(terms - peak).sum(axis=1, keepdims=True)
        return float((peak + np.log(totals)).sum()) - len(self.x) * math.exp(log_mu)

    def with_gradient(self, parameters: Array) -> tuple[float, Array]:
        """Log likelihood and its derivative by each parameter."""
        b0, b1, log_sigma, log_mu = parameters
        sigma, mu = LEAST_SIGMA + math.exp(log_sigma), math.exp(log_mu)
        away = self.y[:, None] - b0 - b1 * self.counts
        response, by_away, by_sigma = _response(away, sigma, self.noise_y)
        terms = self.log_fixed + response + (self.counts * log_mu - mu)
        peak = terms.max(axis=1, keepdims=True)
        weights = np.exp(terms - peak)
        totals = weights.sum(axis=1, keepdims=True)
        weights /= totals
        pull = weights * by_away
        gradient = [
            -pull.sum(),
            -(pull * self.counts).sum(),
            (weights * by_sigma).sum() * math.exp(log_sigma),
            (weights * self.counts).sum() - len(self.x) * mu,
        ]
        return float((peak + np.log(totals)).sum()), np.array(gradient)


def fit_by_likelihood(
    x: ArrayLike, y: ArrayLike, *, noise_x: object, noise_y: object
) -> LikelihoodFit[CountRegression]:
    """Fit a response to one noisy count by maximum likelihood.

    Examples
    --------
    >>> from das.inference.additive_noise import laplace
    >>> rng = np.random.default_rng(1)
    >>> x = rng.poisson(10, 100)
    >>> y = -5 + 4 * x + rng.normal(0, 5, len(x))
    >>> noise = laplace(2.0)
    >>> fit = fit_by_likelihood(
    ...     x + noise.draw(rng, len(x)), y + noise.draw(rng, len(x)), noise_x=noise, noise_y=noise
    ... )
    >>> low, high = fit.profile()
    >>> bool(low < 4 < high), bool(3 < fit.coefficients[1] < 5)
    (True, True)
    """
    problem = CountRegression.of(x, y, noise_x=noise_x, noise_y=noise_y)
    mean = math.log(max(float(problem.x.mean()), 0.5))
    spread = max(float(problem.y.var()) - problem.noise_y.variance, 1.0) ** 0.5
    starts = lines(problem.x, problem.y, problem.noise_x.variance, problem.noise_y.variance)
    return maximum_likelihood_fit(problem, [np.array([*line, math.log(spread / 2), mean]) for line in starts])


def lines(x: Array, y: Array, noise_x: float, noise_y: float) -> list[Array]:
    """Where to begin: the naive line and, where it exists, the line of corrected moments."""
    found = [naive_fit(x, y).coefficients]
    with suppress(InputError):  # few rows: the naive line is start enough
        found.append(corrected_fit(x, y, noise=noise_x, noise_y=noise_y).coefficients)
    return found
