"""The likelihood of a released number without simulation, where the sum over true values is tractable.

L(theta) = sum over s of eta(value | s) pi(s | theta). Maximum, observed information by Louis (1982),
I = E[-d2 log pi | value] - Var[d log pi | value], likelihood-ratio intervals, and posteriors by quadrature.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.special import gammainc, gammaincc, gammaln, logsumexp, xlogy
from scipy.stats import chi2, norm

from das.errors import InputError, Problem
from das.inference.enumeration import candidates
from das.inference.models import Model
from das.inference.statistic import NoisyStatistic

__all__ = [
    "Fit",
    "GridPosterior",
    "exact_interval",
    "log_likelihood",
    "maximum_likelihood",
    "poisson_laplace",
    "posterior_on_grid",
]

Array = NDArray[np.float64]
BLOCK = 1 << 21
"""So many terms are added up at once."""
TINY = 1e-9
"""Distance that a search keeps from the ends of a parameter's range."""
NEAR = 1e-5
"""A maximum as near to an end as this is compared with the end itself."""


def log_likelihood(theta: ArrayLike, *, statistic: NoisyStatistic, model: Model) -> Array:
    """Return log L at each parameter, by summation over all true values that the noise allows.

    Examples
    --------
    >>> from das.inference.additive_noise import laplace
    >>> from das.inference.models import PoissonGamma
    >>> released, model = NoisyStatistic(value=37.4, noise=laplace(5)), PoissonGamma(shape=25, rate=1)
    >>> summed = log_likelihood([20.0, 37.0], statistic=released, model=model)
    >>> bool(np.allclose(summed, poisson_laplace([20.0, 37.0], value=37.4, epsilon=0.2), rtol=1e-13))
    True
    """
    listed = candidates(statistic, model.support)
    points = np.atleast_1d(np.asarray(theta, dtype=np.float64))
    rows = max(1, BLOCK // len(listed.values))
    return np.concatenate(
        [
            np.asarray(logsumexp(model.log_density(listed.values, part[:, None]) + listed.log_noise, axis=1))
            for part in (points[at : at + rows] for at in range(0, len(points), rows))
        ]
    )


def poisson_laplace(theta: ArrayLike, *, value: float, epsilon: float) -> Array:
    """Return the log likelihood of a Poisson count with Laplace noise of scale 1/epsilon, in closed form.

    With m = ceil(value) and t = theta e^{+-epsilon}: (epsilon/2) e^{-theta} [Q(m, t+) e^{t+ - epsilon value} +
    P(m, t-) e^{t- + epsilon value}], where Q and P are the regularised incomplete gamma functions; for a value of at
    most zero no count lies below it, so the first term is 0 and P is 1. All in logs: e^{t+} overflows.
    """
    points = np.atleast_1d(np.asarray(theta, dtype=np.float64))
    up, down, m = points * np.exp(epsilon), points * np.exp(-epsilon), float(np.ceil(value))
    above = down + epsilon * value
    if m > 0:
        below = _log_upper_gamma(m, up) + up - epsilon * value
        above = np.logaddexp(below, _log_lower_gamma(m, down) + above)
    return np.asarray(np.log(epsilon / 2) - points + above)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A maximum of the likelihood with its observed information; ``interval`` inverts the likelihood-ratio test."""

    estimate: float
    information: float
    log_likelihood: float
    latent_mean: float
    latent_variance: float
    lower: float
    upper: float
    confidence: float
    at_an_end: bool = False
    """Whether the likelihood is largest at an end of the parameter's range, where it has no standard error."""

    @property
    def standard_error(self) -> float:
        """One over the root of the information; NaN at an end of the parameter's range."""
        return float(self.information**-0.5) if self.information > 0 and not self.at_an_end else float("nan")

    @property
    def wald(self) -> tuple[float, float]:
        """Estimate plus and minus the normal quantile times the standard error."""
        half = float(norm.ppf((1 + self.confidence) / 2)) * self.standard_error
        return self.estimate - half, self.estimate + half


def maximum_likelihood(*, statistic: NoisyStatistic, model: Model, confidence: float = 0.95) -> Fit:
    """Maximise the likelihood of one released count.

    Examples
    --------
    >>> from das.inference.additive_noise import laplace
    >>> from das.inference.models import PoissonGamma
    >>> released = NoisyStatistic(value=37.4, noise=laplace(5))
    >>> fit = maximum_likelihood(statistic=released, model=PoissonGamma(shape=25, rate=1))
    >>> round(fit.estimate, 4), round(fit.information, 7)
    (37.2373, 0.0158206)
    """
    listed = candidates(statistic, model.support)

    def log_l(theta: float) -> float:
        terms = model.log_density(listed.values, np.asarray(theta)) + listed.log_noise
        peak = float(terms.max())
        return peak + float(np.log(np.exp(terms - peak).sum())) if np.isfinite(peak) else peak

    points = _parameters(model, statistic, float(listed.values[-1]))
    best = int(np.argmax([log_l(float(theta)) for theta in points]))
    ends = points[max(best - 1, 0)], points[min(best + 1, len(points) - 1)]
    found = minimize_scalar(lambda t: -log_l(t), bounds=ends, method="bounded", options={"xatol": 1e-9 * (1 + ends[1])})
    estimate, peak = float(found.x), -float(found.fun)
    low, high = model.parameter_range
    nearest = min((end for end in (low, high) if np.isfinite(end)), key=lambda end: abs(end - estimate), default=np.inf)
    at_an_end = abs(estimate - nearest) < NEAR and log_l(nearest + np.sign(estimate - nearest) * TINY) >= peak - TINY
    weights = np.exp(model.log_density(listed.values, np.asarray(estimate)) + listed.log_noise - peak)
    mean = float(weights @ listed.values)
    score = model.score(listed.values, estimate)
    information = float(-weights @ model.curvature(listed.values, estimate) - weights @ (score - weights @ score) ** 2)
    drop = float(chi2.ppf(confidence, 1)) / 2
    below, above = _crossings(lambda t: log_l(t) - peak + drop, estimate, (float(points[0]), float(points[-1])))
    return Fit(
        estimate=estimate,
        information=information,
        log_likelihood=peak,
        latent_mean=mean,
        latent_variance=float(weights @ (listed.values - mean) ** 2),
        lower=below,
        upper=above,
        confidence=confidence,
        at_an_end=bool(at_an_end),
    )


def exact_interval(*, statistic: NoisyStatistic, model: Model, confidence: float = 0.95) -> tuple[float, float]:
    """Return the parameters for which the released value lies in neither tail: exact at every sample size.

    The value's distribution rises with the parameter, so its two tails are inverted (Clopper and Pearson 1934). The
    coverage is the confidence under continuous noise, and at least that under discrete noise. A value that no parameter
    explains, such as one far below zero, gives the end of the range alone.

    Examples
    --------
    >>> from das.inference.additive_noise import laplace
    >>> from das.inference.models import PoissonGamma
    >>> released = NoisyStatistic(value=37.4, noise=laplace(5))
    >>> low, high = exact_interval(statistic=released, model=PoissonGamma(shape=25, rate=1))
    >>> round(low, 1), round(high, 1)
    (20.3, 57.7)
    """
    listed, noise, value = candidates(statistic, model.support), statistic.noise[0], float(statistic.value[0])
    points = _parameters(model, statistic, float(listed.values[-1]))
    low, high = float(points[0]), float(points[-1])
    middle = min(max(model.maximise(value), low), high)
    at_most, at_least = noise.cdf(value - listed.values), noise.cdf(listed.values - value)  # the noise is symmetric

    def excess(theta: float, tail: Array) -> float:
        return float(np.exp(model.log_density(listed.values, np.asarray(theta))) @ tail) - (1 - confidence) / 2

    def end(outer: float, tail: Array) -> float:
        """Where the tail's probability is half of what may be missed; at an end of the range if it is nowhere."""
        if excess(outer, tail) >= 0 or middle == outer:
            return outer
        return middle if excess(middle, tail) <= 0 else float(brentq(excess, *sorted((middle, outer)), args=(tail,)))

    return end(low, at_least), end(high, at_most)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GridPosterior:
    """A posterior density on an even grid: moments and quantiles by the trapezoidal rule."""

    theta: Array
    density: Array

    @property
    def mean(self) -> float:
        """Posterior mean."""
        return float(np.trapezoid(self.theta * self.density, self.theta))

    @property
    def std_dev(self) -> float:
        """Posterior standard deviation."""
        return float(np.trapezoid((self.theta - self.mean) ** 2 * self.density, self.theta) ** 0.5)

    @property
    def mode(self) -> float:
        """Where the density is largest, on the grid."""
        return float(self.theta[np.argmax(self.density)])

    def quantile(self, share: ArrayLike) -> Array:
        """Values below which these shares lie."""
        steps = np.diff(self.theta) * (self.density[1:] + self.density[:-1]) / 2
        levels = np.append(0.0, np.cumsum(steps))
        return np.asarray(np.interp(np.asarray(share, dtype=np.float64), levels / levels[-1], self.theta))


def posterior_on_grid(
    theta: ArrayLike, *, log_prior: Callable[[Array], Array], log_likelihood: Callable[[Array], Array]
) -> GridPosterior:
    """Normalise prior times likelihood on a grid that holds the posterior's mass.

    Examples
    --------
    >>> grid = np.linspace(1, 90, 4001)
    >>> found = posterior_on_grid(
    ...     grid,
    ...     log_prior=lambda t: 24 * np.log(t) - t,
    ...     log_likelihood=lambda t: poisson_laplace(t, value=37.4, epsilon=0.2),
    ... )
    >>> round(found.mean, 3), round(found.std_dev, 3)
    (28.576, 4.734)
    """
    points = np.asarray(theta, dtype=np.float64)
    log_density: Array = log_prior(points) + log_likelihood(points)
    peak = log_density.max()
    if not np.isfinite(peak):
        raise InputError(Problem("prior", "gives no mass to any parameter of the grid", "widen the prior or the grid"))
    density = np.exp(log_density - peak)
    return GridPosterior(theta=points, density=density / np.trapezoid(density, points))


def _parameters(model: Model, statistic: NoisyStatistic, most: float) -> Array:
    """Parameters to begin from: up to that of the largest true value listed, closer near that of the released value."""
    low, high = model.parameter_range
    grid = np.linspace(low + TINY, min(high - TINY, model.maximise(most)), 65)
    value, variance = float(statistic.value[0]), statistic.noise[0].variance
    spread = 4 * variance**0.5 + 4 * abs(value) ** 0.5
    near = np.array([model.maximise(value + k * spread / 16) for k in range(-16, 17)])
    return np.asarray(np.unique(np.concatenate([grid, near[(near > grid[0]) & (near < grid[-1])]])))


def _crossings(gap: Callable[[float], float], peak: float, ends: tuple[float, float]) -> tuple[float, float]:
    """Return where a function that is positive at the peak falls to zero on either side, or the ends of the range."""
    found = []
    for end in ends:
        step, inner = (end - peak) / 1024, peak
        outer = peak + step
        while gap(outer) > 0 and outer != end:
            inner, step = outer, 2 * step
            outer = peak + step if abs(step) < abs(end - peak) else end
        found.append(end if gap(outer) > 0 or inner == outer else float(brentq(gap, inner, outer)))
    return found[0], found[1]


def _log_upper_gamma(m: float, t: Array) -> Array:
    """Return log Q(m, t); where it underflows, by the finite series t^{m-1} e^{-t} / Gamma(m) (1 + (m-1)/t + ...)."""
    plain = gammaincc(m, t)
    series = np.ones_like(t)
    term = np.ones_like(t)
    for k in range(1, int(min(m, 400))):
        term = term * (m - k) / np.maximum(t, m)
        series = series + term
    asymptotic = xlogy(m - 1, t) - t - gammaln(m) + np.log(series)
    return np.asarray(np.where(plain > 1e-280, np.log(np.maximum(plain, 1e-300)), asymptotic))


def _log_lower_gamma(m: float, t: Array) -> Array:
    """Return log P(m, t); where it underflows, by the series t^m e^{-t} / Gamma(m+1) (1 + t/(m+1) + ...)."""
    plain = gammainc(m, t)
    series = np.ones_like(t)
    term = np.ones_like(t)
    for k in range(1, 400):
        term = term * np.minimum(t, m) / (m + k)
        series = series + term
    with np.errstate(divide="ignore"):
        asymptotic = xlogy(m, t) - t - gammaln(m + 1) + np.log(series)
    return np.asarray(np.where(plain > 1e-280, np.log(np.maximum(plain, 1e-300)), asymptotic))
