"""The exact likelihood of a regression on one noisy count: summation over the true count, no simulation.

True counts x ~ Poisson(mu), response y = beta0 + beta1 x + N(0, sigma^2), released x + u and y + v. For each possible
x the response is integrated in closed form: normal for Gaussian v, and for Laplace v of scale b the normal-Laplace
density f(r) = e^{A^2/2} [e^{-r/b} Phi(r/s - A) + e^{r/b} Phi(-r/s - A)] / (2 b), A = s/b (Reed and Jorgensen 2004).

Wald intervals fail in small samples. The profile intervals here invert the likelihood-ratio test; with few rows its
limit law is replaced by the one that is exact for regression without noise: n log(1 + F/(n - 2)), F an F(1, n-2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq, minimize
from scipy.special import gammaln, log_ndtr
from scipy.stats import f as f_distribution
from scipy.stats import norm

from das.errors import InputError, Problem, UsageError
from das.inference.additive_noise import AdditiveNoise, noise_of
from das.inference.numerical import derivatives
from das.inference.regression.moments import RegressionFit, corrected_fit, naive_fit

__all__ = ["CountRegression", "LikelihoodFit", "fit_by_likelihood", "normal_laplace_log_density"]

Array = NDArray[np.float64]
DEPTH = 40.0
"""True counts are listed as far as the noise density reaches within e^-40 of its peak, and Poisson's around them."""
LEAST_SIGMA = 1e-3


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

    def log_likelihood(self, parameters: Array) -> float:
        """Log likelihood at (beta0, beta1, log sigma, log mu)."""
        return self.with_gradient(parameters)[0]

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LikelihoodFit:
    """The maximum-likelihood regression; ``profile`` gives intervals that hold in small samples."""

    problem: CountRegression
    starts: tuple[Array, ...]
    parameters: Array
    log_likelihood: float

    @property
    def coefficients(self) -> Array:
        """Intercept and slope."""
        return self.parameters[:2]

    @property
    def sigma(self) -> float:
        """Standard deviation around the line."""
        return LEAST_SIGMA + math.exp(self.parameters[2])

    @property
    def mu(self) -> float:
        """Mean of the true counts."""
        return math.exp(self.parameters[3])

    def covariance(self) -> Array:
        """Covariance of intercept and slope from the observed information (Wald: for large samples)."""
        information = -derivatives(self.problem.log_likelihood, self.parameters)
        if not np.isfinite(information).all() or np.linalg.eigvalsh(information).min() <= 0:
            reason = "is not positive definite at the estimate, so there are no standard errors"
            raise InputError(Problem("information", reason, "use profile intervals"))
        return np.asarray(np.linalg.inv(information)[:2, :2])

    def wald(self, confidence: float = 0.95) -> Array:
        """Lower and upper ends for intercept and slope."""
        half = float(norm.ppf((1 + confidence) / 2)) * np.sqrt(np.diag(self.covariance()))
        return np.stack([self.coefficients - half, self.coefficients + half], axis=1)

    def deviance(self, slope: float) -> float:
        """Twice the log likelihood that is lost by holding the slope at a value."""
        starts = (self.parameters, *self.starts)  # near sigma = 0 the likelihood has hills of its own
        return max(0.0, 2 * (self.log_likelihood - max(_maximum(self.problem, each, slope)[1] for each in starts)))

    def threshold(self, confidence: float = 0.95) -> float:
        """Largest deviance within the interval: n log(1 + F/(n - 2)), which tends to the chi-squared quantile."""
        n = len(self.problem.x)
        return n * math.log1p(float(f_distribution.ppf(confidence, 1, n - 2)) / (n - 2))

    def profile(self, confidence: float = 0.95) -> tuple[float, float]:
        """Lower and upper end for the slope; infinite where no slope on that side can be excluded."""
        most = self.threshold(confidence)
        start = max(abs(float(self.parameters[1])), 0.1) / 8
        ends = []
        for direction in (-1.0, 1.0):
            inner, step = float(self.parameters[1]), direction * start
            outer = inner + step
            for _ in range(12):
                if self.deviance(outer) > most:
                    break
                inner, step = outer, 2 * step
                outer = inner + step
            else:
                ends.append(direction * math.inf)
                continue
            ends.append(float(brentq(lambda slope: self.deviance(slope) - most, inner, outer, xtol=1e-4)))
        return ends[0], ends[1]


def fit_by_likelihood(x: ArrayLike, y: ArrayLike, *, noise_x: object, noise_y: object) -> LikelihoodFit:
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
    starts = _starts(problem)
    parameters, log_likelihood = max((_maximum(problem, start) for start in starts), key=lambda pair: pair[1])
    if not math.isfinite(log_likelihood):
        raise InputError(Problem("regression", "no parameter gives the data a finite likelihood", "check the noise"))
    return LikelihoodFit(problem=problem, starts=starts, parameters=parameters, log_likelihood=log_likelihood)


def _starts(problem: CountRegression) -> tuple[Array, ...]:
    """Begin at the naive line and, where it exists, at the line of corrected moments."""
    mean = math.log(max(float(problem.x.mean()), 0.5))
    fits: list[RegressionFit] = [naive_fit(problem.x, problem.y)]
    try:
        noise, noise_y = problem.noise_x.variance, problem.noise_y.variance
        fits.append(corrected_fit(problem.x, problem.y, noise=noise, noise_y=noise_y))
    except InputError:
        pass  # few rows: the naive line is start enough
    spread = max(float(problem.y.var()) - problem.noise_y.variance, 1.0) ** 0.5
    return tuple(np.array([*fit.coefficients, math.log(spread / 2), mean]) for fit in fits)


def _maximum(problem: CountRegression, start: Array, slope: float | None = None) -> tuple[Array, float]:
    """Maximise over all parameters, or over all but a slope that is held."""
    free = [0, 1, 2, 3] if slope is None else [0, 2, 3]
    fixed = start.copy()
    if slope is not None:
        fixed[1] = slope
        fixed[0] = start[0] + (start[1] - slope) * math.exp(start[3])  # the line still passes through the middle

    def loss(values: Array) -> tuple[float, Array]:
        point = fixed.copy()
        point[free] = values
        value, gradient = problem.with_gradient(point)
        return -value, -gradient[free]

    limits = [(None, None), (None, None), (-7.0, 12.0), (-5.0, 15.0)]
    found = minimize(loss, fixed[free], jac=True, method="L-BFGS-B", bounds=[limits[k] for k in free])
    best = fixed.copy()
    best[free] = found.x
    return best, -float(found.fun)
