"""Maximum likelihood of a regression with profile intervals, for any of its likelihoods.

Wald intervals fail in small samples. The profile intervals here invert the likelihood-ratio test; with few rows its
limit law is replaced by the one that is exact for regression without noise: n log(1 + F/(n - 2)), F an F(1, n-2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize
from scipy.stats import f as f_distribution
from scipy.stats import norm

from das.errors import InputError, Problem
from das.inference.numerical import derivatives, one_thread

__all__ = ["LEAST_SIGMA", "Likelihood", "LikelihoodFit", "maximum_likelihood_fit"]

Array = NDArray[np.float64]
LEAST_SIGMA = 1e-3
_MANY = 100
"""Rows from which on the profile is climbed from the maximum alone."""


class Likelihood(Protocol):
    """A log likelihood of (intercept, slope, log sigma, log mean count, ...)."""

    @property
    def x(self) -> Array:
        """Released regressors."""

    @property
    def limits(self) -> Sequence[tuple[float | None, float | None]]:
        """Least and largest value of each parameter."""

    def with_gradient(self, parameters: Array) -> tuple[float, Array]:
        """Log likelihood and its derivative by each parameter."""


L = TypeVar("L", bound=Likelihood)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LikelihoodFit(Generic[L]):
    """The maximum-likelihood regression; ``profile`` gives intervals that hold in small samples."""

    problem: L
    starts: tuple[Array, ...]
    parameters: Array
    log_likelihood: float

    @property
    def coefficients(self) -> Array:
        """Intercept and slope."""
        return self.parameters[:2]

    @property
    def sigma(self) -> float:
        """Standard deviation around the line, where the count is zero if it grows with the count."""
        return LEAST_SIGMA + math.exp(self.parameters[2])

    @property
    def mu(self) -> float:
        """Mean of the true counts."""
        return math.exp(self.parameters[3])

    def covariance(self) -> Array:
        """Covariance of intercept and slope from the observed information (Wald: for large samples)."""
        information = -derivatives(lambda at: self.problem.with_gradient(at)[0], self.parameters)
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
        # With few rows, near sigma = 0, the likelihood has hills of its own.
        starts = (self.parameters, *self.starts) if len(self.problem.x) < _MANY else (self.parameters,)
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


def maximum_likelihood_fit(problem: L, starts: Sequence[Array]) -> LikelihoodFit[L]:
    """Maximise from each start and keep the best."""
    parameters, log_likelihood = max((_maximum(problem, start) for start in starts), key=lambda pair: pair[1])
    if not math.isfinite(log_likelihood):
        raise InputError(Problem("regression", "no parameter gives the data a finite likelihood", "check the noise"))
    return LikelihoodFit(problem=problem, starts=tuple(starts), parameters=parameters, log_likelihood=log_likelihood)


def _maximum(problem: Likelihood, start: Array, slope: float | None = None) -> tuple[Array, float]:
    """Maximise over all parameters, or over all but a slope that is held."""
    free = [k for k in range(len(start)) if k != 1 or slope is None]
    fixed = start.copy()
    if slope is not None:
        fixed[1] = slope
        fixed[0] = start[0] + (start[1] - slope) * math.exp(start[3])  # the line still passes through the middle

    def loss(values: Array) -> tuple[float, Array]:
        point = fixed.copy()
        point[free] = values
        value, gradient = problem.with_gradient(point)
        return -value, -gradient[free]

    bounds = [problem.limits[k] for k in free]
    with one_thread():
        found = minimize(loss, fixed[free], jac=True, method="L-BFGS-B", bounds=bounds)
    best = fixed.copy()
    best[free] = found.x
    return best, -float(found.fun)
