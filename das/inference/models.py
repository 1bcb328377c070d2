"""Built-in models of one released statistic s given a parameter, each with a conjugate prior.

A model is the functions that the methods ask for. A model of one's own gives those that its method needs: see
`das.inference.abc`, `das.inference.mcem` and `das.inference.exact_likelihood`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, gammaln, xlog1py, xlogy

from das.errors import ConfigError, Problem

__all__ = ["MODELS", "BinomialBeta", "Model", "NormalNormal", "PoissonGamma", "model_of"]

Array = NDArray[np.float64]


class Model(Protocol):
    """A model with one parameter: prior, likelihood of s, and what conjugacy gives."""

    @property
    def support(self) -> tuple[float, float] | None:
        """Smallest and largest value of an integer s; None if s is real."""

    @property
    def parameter_range(self) -> tuple[float, float]:
        """Open interval of the parameter."""

    def prior(self, rng: np.random.Generator, n: int) -> Array:
        """Draw n parameters from the prior."""

    def log_prior(self, theta: Array) -> Array:
        """Log density of the prior."""

    def simulate(self, rng: np.random.Generator, theta: Array) -> Array:
        """Draw one s for each parameter."""

    def log_density(self, s: Array, theta: Array) -> Array:
        """Log probability (or density) of s given the parameter; arguments broadcast."""

    def log_predictive(self, s: Array) -> Array:
        """Log probability (or density) of s with the parameter drawn from the prior."""

    def posterior(self, rng: np.random.Generator, s: Array) -> Array:
        """Draw a parameter given each true s."""

    def maximise(self, mean_s: float) -> float:
        """Return the parameter of largest complete-data likelihood, given the mean of s (exponential family)."""

    def score(self, s: Array, theta: float) -> Array:
        """Derivative of the log density by the parameter."""

    def curvature(self, s: Array, theta: float) -> Array:
        """Second derivative of the log density by the parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Positive:
    """Parameters that must be positive numbers; those named in ``free`` may be any number."""

    free: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        problems = []
        for name in (each.name for each in fields(self)):
            value = getattr(self, name)
            good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not good or (value <= 0 and name not in self.free):
                need = "a number" if name in self.free else "a positive number"
                problems.append(Problem(f"model.{name}", f"is not {need}", "see the model's documentation"))
        if problems:
            raise ConfigError(*problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoissonGamma(_Positive):
    """``s ~ Poisson(exposure * theta)``, ``theta ~ Gamma(shape, rate)``.

    Examples
    --------
    >>> model = PoissonGamma(shape=25, rate=1)
    >>> model.maximise(37.0), round(float(np.exp(model.log_predictive(np.arange(200.0))).sum()), 12)
    (37.0, 1.0)
    """

    shape: float
    rate: float
    exposure: float = 1.0

    @property
    def support(self) -> tuple[float, float] | None:
        """Return all nonnegative integers."""
        return 0.0, math.inf

    @property
    def parameter_range(self) -> tuple[float, float]:
        """Positive numbers."""
        return 0.0, math.inf

    def prior(self, rng: np.random.Generator, n: int) -> Array:
        """Draw n rates."""
        return rng.gamma(self.shape, 1 / self.rate, n)

    def log_prior(self, theta: Array) -> Array:
        """Log density of Gamma(shape, rate)."""
        constant = self.shape * math.log(self.rate) - float(gammaln(self.shape))
        return np.asarray(xlogy(self.shape - 1, theta) - self.rate * theta + constant)

    def simulate(self, rng: np.random.Generator, theta: Array) -> Array:
        """Draw counts."""
        return rng.poisson(self.exposure * theta).astype(np.float64)

    def log_density(self, s: Array, theta: Array) -> Array:
        """Log probability of Poisson counts."""
        mean = self.exposure * theta
        return np.asarray(xlogy(s, mean) - mean - gammaln(s + 1))

    def log_predictive(self, s: Array) -> Array:
        """Log probability of negative binomial counts."""
        a, b, e = self.shape, self.rate, self.exposure
        binomial = gammaln(s + a) - gammaln(s + 1) - gammaln(a)
        return np.asarray(binomial + a * math.log(b / (b + e)) + s * math.log(e / (b + e)))

    def posterior(self, rng: np.random.Generator, s: Array) -> Array:
        """Draw from Gamma(shape + s, rate + exposure)."""
        return rng.gamma(self.shape + s, 1 / (self.rate + self.exposure))

    def maximise(self, mean_s: float) -> float:
        """Return the rate whose mean count is this."""
        return mean_s / self.exposure

    def score(self, s: Array, theta: float) -> Array:
        """Return ``s / theta - exposure``."""
        return s / theta - self.exposure

    def curvature(self, s: Array, theta: float) -> Array:
        """Return ``-s / theta^2``."""
        return -s / theta**2


@dataclass(frozen=True, slots=True, kw_only=True)
class BinomialBeta(_Positive):
    """``s ~ Binomial(trials, theta)`` with a public number of trials, ``theta ~ Beta(a, b)``."""

    trials: int
    a: float
    b: float

    @property
    def support(self) -> tuple[float, float] | None:
        """Return the integers from 0 to the number of trials."""
        return 0.0, float(self.trials)

    @property
    def parameter_range(self) -> tuple[float, float]:
        """Probabilities."""
        return 0.0, 1.0

    def prior(self, rng: np.random.Generator, n: int) -> Array:
        """Draw n probabilities."""
        return rng.beta(self.a, self.b, n)

    def log_prior(self, theta: Array) -> Array:
        """Log density of Beta(a, b)."""
        return np.asarray(xlogy(self.a - 1, theta) + xlog1py(self.b - 1, -theta) - betaln(self.a, self.b))

    def simulate(self, rng: np.random.Generator, theta: Array) -> Array:
        """Draw counts."""
        return rng.binomial(self.trials, theta).astype(np.float64)

    def log_density(self, s: Array, theta: Array) -> Array:
        """Log probability of binomial counts."""
        return np.asarray(self._log_choose(s) + xlogy(s, theta) + xlog1py(self.trials - s, -np.asarray(theta)))

    def log_predictive(self, s: Array) -> Array:
        """Log probability of beta-binomial counts."""
        beta = betaln(self.a + s, self.b + self.trials - s) - betaln(self.a, self.b)
        return np.asarray(self._log_choose(s) + beta)

    def posterior(self, rng: np.random.Generator, s: Array) -> Array:
        """Draw from Beta(a + s, b + trials - s)."""
        return rng.beta(self.a + s, self.b + self.trials - s)

    def maximise(self, mean_s: float) -> float:
        """Return the share."""
        return mean_s / self.trials

    def score(self, s: Array, theta: float) -> Array:
        """Return ``s / theta - (trials - s) / (1 - theta)``."""
        return s / theta - (self.trials - s) / (1 - theta)

    def curvature(self, s: Array, theta: float) -> Array:
        """Return ``-s / theta^2 - (trials - s) / (1 - theta)^2``."""
        return -s / theta**2 - (self.trials - s) / (1 - theta) ** 2

    def _log_choose(self, s: Array) -> Array:
        return np.asarray(gammaln(self.trials + 1) - gammaln(s + 1) - gammaln(self.trials - s + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalNormal(_Positive):
    """``s ~ N(theta, variance)`` with a known variance, ``theta ~ N(mean, prior_variance)``."""

    free: ClassVar[frozenset[str]] = frozenset({"mean"})

    variance: float
    mean: float
    prior_variance: float

    @property
    def support(self) -> tuple[float, float] | None:
        """None: s is real."""
        return None

    @property
    def parameter_range(self) -> tuple[float, float]:
        """All numbers."""
        return -math.inf, math.inf

    def prior(self, rng: np.random.Generator, n: int) -> Array:
        """Draw n means."""
        return rng.normal(self.mean, math.sqrt(self.prior_variance), n)

    def log_prior(self, theta: Array) -> Array:
        """Log density of N(mean, prior_variance)."""
        return _log_normal(theta - self.mean, self.prior_variance)

    def simulate(self, rng: np.random.Generator, theta: Array) -> Array:
        """Draw one s for each mean."""
        return rng.normal(theta, math.sqrt(self.variance))

    def log_density(self, s: Array, theta: Array) -> Array:
        """Log density of N(theta, variance)."""
        return _log_normal(s - theta, self.variance)

    def log_predictive(self, s: Array) -> Array:
        """Log density of N(mean, variance + prior_variance)."""
        return _log_normal(s - self.mean, self.variance + self.prior_variance)

    def posterior(self, rng: np.random.Generator, s: Array) -> Array:
        """Draw a mean given s."""
        precision = 1 / self.variance + 1 / self.prior_variance
        centre = (s / self.variance + self.mean / self.prior_variance) / precision
        return rng.normal(centre, math.sqrt(1 / precision))

    def maximise(self, mean_s: float) -> float:
        """Return the mean."""
        return mean_s

    def score(self, s: Array, theta: float) -> Array:
        """Return ``(s - theta) / variance``."""
        return (s - theta) / self.variance

    def curvature(self, s: Array, theta: float) -> Array:
        """Return ``-1 / variance``."""
        return np.full(np.shape(s), -1 / self.variance)


MODELS: dict[str, type[PoissonGamma] | type[BinomialBeta] | type[NormalNormal]] = {
    "poisson-gamma": PoissonGamma,
    "binomial-beta": BinomialBeta,
    "normal": NormalNormal,
}
"""Built-in models by the name that an input file gives."""


def model_of(content: Mapping[str, object]) -> Model:
    """Make the model that a table of an input file describes.

    Examples
    --------
    >>> model_of({"name": "poisson-gamma", "shape": 25, "rate": 1})
    PoissonGamma(shape=25, rate=1, exposure=1.0)
    >>> model_of({"name": "poisson"})
    Traceback (most recent call last):
    das.errors.ConfigError: model.name: 'poisson' is not a built-in model; there are poisson-gamma, binomial-beta, ...
    """
    name = content.get("name")
    if name not in MODELS:
        known = ", ".join(MODELS)
        remedy = f"there are {known}; for another, call das.inference from Python"
        raise ConfigError(Problem("model.name", f"{name!r} is not a built-in model", remedy))
    kind = MODELS[str(name)]
    given = {key: value for key, value in content.items() if key != "name"}
    wanted = [each.name for each in fields(kind)]
    needed = {each.name for each in fields(kind) if each.default is MISSING}
    wrong = [
        Problem(f"model.{key}", "is not known", f"{name} has {', '.join(wanted)}") for key in given if key not in wanted
    ]
    missing = [Problem(f"model.{key}", "is missing", f"{name} needs it") for key in sorted(needed - given.keys())]
    if wrong or missing:
        raise ConfigError(*wrong, *missing)
    return kind(**given)  # type: ignore[arg-type]  # each checks its own values


def _log_normal(away: Array, variance: float) -> Array:
    return np.asarray(-(away**2) / (2 * variance) - math.log(2 * math.pi * variance) / 2)
