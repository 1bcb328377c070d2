"""Maximum likelihood by Monte Carlo EM with an importance-sampled E-step (Gong 2022).

E-step: true statistics s_i drawn from the model at the present parameter, with weights w_i = eta(value | s_i).
M-step: the complete-data maximum under these weights; in an exponential family, a function of the mean of the
sufficient statistic. Observed information by Louis (1982): I = E[-d2 log pi | value] - Var[d log pi | value].

Simulation noise never vanishes at a fixed number of draws, so that number grows and the last iterates are averaged.
Weights collapse when the noise is small beside the spread of s, or when many numbers were released: the effective
sample size says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp

from das.errors import ConfigError, InputError, Problem
from das.inference.algorithm import Algorithm, Progress, Seed, at_least, run
from das.inference.models import Model
from das.inference.numerical import derivatives, gradients
from das.inference.statistic import NoisyStatistic, raw

__all__ = ["McemFit", "McemInfo", "McemModel", "McemOptions", "McemState", "complete_data_model", "mcem", "mcem_fit"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class McemModel:
    """A complete-data model.

    Parameters
    ----------
    simulate : callable
        ``simulate(rng, theta, n)`` draws n true statistics at one parameter: an array (n,) or (n, numbers).
    log_density : callable
        ``log_density(s, theta)`` is the log density of each, up to a constant.
    sufficient, maximise : callable, optional
        The shortcut of an exponential family: ``sufficient(s)`` is an array (n,) or (n, k), and ``maximise(mean)`` the
        parameter of largest likelihood given its mean. Without them the weighted log density is maximised numerically.
    score, curvature : callable, optional
        First derivatives (n, parameters) and second derivatives (n, parameters, parameters) of the log density by the
        parameter, for the information; without them by differences.
    """

    simulate: Callable[[np.random.Generator, Array, int], Array]
    log_density: Callable[[Array, Array], Array]
    sufficient: Callable[[Array], Array] | None = None
    maximise: Callable[[Array], ArrayLike] | None = None
    score: Callable[[Array, Array], Array] | None = None
    curvature: Callable[[Array, Array], Array] | None = None

    def __post_init__(self) -> None:
        if (self.sufficient is None) != (self.maximise is None):
            raise ConfigError(Problem("model", "has one of sufficient and maximise", "give both, or neither"))


@dataclass(frozen=True, slots=True, kw_only=True)
class McemOptions:
    """Options of `mcem`.

    Parameters
    ----------
    iterations : int
        Steps of EM.
    draws, growth, most_draws : int, float, int
        Draws of the first E-step, by what factor they grow from step to step, and where they stop.
    tail : float
        Share of the last iterates that are averaged into the estimate.
    information_draws : int
        Draws for the information at the estimate.
    least_effective : float
        Below so many effective draws the weights have collapsed, and the fit is refused.
    """

    iterations: int = 40
    draws: int = 1_000
    growth: float = 1.15
    most_draws: int = 100_000
    tail: float = 0.4
    information_draws: int = 200_000
    least_effective: float = 20.0

    def __post_init__(self) -> None:
        at_least(self, iterations=5, draws=10, growth=1.0, most_draws=10, information_draws=10)
        if not 0 < self.tail <= 1:
            raise ConfigError(Problem("tail", "is not a share above 0 and at most 1"))


class McemState(NamedTuple):
    """The path of the parameter, a row a step."""

    path: tuple[tuple[float, ...], ...]


class McemInfo(NamedTuple):
    """What one step told."""

    draws: int
    effective: float
    log_likelihood: float
    moved: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class McemFit:
    """A maximum-likelihood estimate with its observed information and the diagnostics of its path.

    ``simulation_error`` is the error of the estimate that comes from simulation alone. ``drift`` is by how many
    standard errors the parameter still rose or fell over the averaged tail; the path has converged if that is at most
    a tenth, or no more than simulation explains.
    """

    estimate: Array
    information: Array
    effective_share: float
    log_likelihood: float
    simulation_error: Array
    drift: float
    converged: bool
    path: Array
    infos: tuple[McemInfo, ...]

    @property
    def covariance(self) -> Array:
        """Inverse of the information; refused where that is not positive definite."""
        if np.linalg.eigvalsh(self.information).min() <= 0:
            reason = "is not positive definite at the estimate, so there are no standard errors"
            remedy = "use intervals of the likelihood ratio (das.inference.exact_likelihood), or a posterior"
            raise InputError(Problem("information", reason, remedy))
        return np.asarray(np.linalg.inv(self.information))

    @property
    def standard_errors(self) -> Array:
        """Roots of the diagonal of the covariance."""
        return np.sqrt(np.diag(self.covariance))


def mcem(
    *, statistic: NoisyStatistic, model: McemModel, start: ArrayLike, options: McemOptions
) -> Algorithm[McemState, McemInfo]:
    """Bind a released statistic, a complete-data model and a starting parameter to the algorithm."""
    first = tuple(np.atleast_1d(np.asarray(start, dtype=np.float64)).tolist())
    return Algorithm(
        name="mcem",
        options=options,
        init=lambda seed: McemState((first,)),
        step=partial(_step, statistic=raw(statistic), model=model, options=options),
        done=lambda state: (len(state.path) - 1, options.iterations),
    )


def mcem_fit(
    *,
    statistic: NoisyStatistic,
    model: McemModel,
    start: ArrayLike,
    options: McemOptions | None = None,
    seed: Seed,
    progress: Progress | None = None,
) -> McemFit:
    """Maximise the likelihood of a released statistic.

    Examples
    --------
    >>> from das.inference.additive_noise import laplace
    >>> poisson = McemModel(
    ...     simulate=lambda rng, theta, n: rng.poisson(theta[0], n),
    ...     log_density=lambda s, theta: s * np.log(theta[0]) - theta[0],
    ...     sufficient=lambda s: s,
    ...     maximise=lambda mean: mean,
    ... )
    >>> released = NoisyStatistic(value=37.4, noise=laplace(5))
    >>> fit = mcem_fit(statistic=released, model=poisson, start=30.0, seed=1)
    >>> bool(abs(fit.estimate[0] - 37.237) < 0.1), round(fit.effective_share, 2), fit.converged
    (True, 0.76, True)
    """
    chosen = options or McemOptions()
    rng = np.random.default_rng(seed)
    ended = run(mcem(statistic=statistic, model=model, start=start, options=chosen), seed=rng, progress=progress)
    path = np.array(ended.state.path)
    tail = path[-max(4, round(chosen.tail * chosen.iterations)) :]
    estimate, error, rise = _settle(tail)
    truth, weights, effective, log_l = _e_step(rng, estimate, chosen.information_draws, statistic, model, chosen)
    information = louis_information(truth, weights, estimate, model)
    variances = (
        np.diag(np.linalg.inv(information)) if np.linalg.eigvalsh(information).min() > 0 else np.zeros(len(rise))
    )
    drift = float((rise / np.sqrt(variances)).max()) if variances.all() else float("inf")
    return McemFit(
        estimate=estimate,
        information=information,
        effective_share=effective / chosen.information_draws,
        log_likelihood=log_l,
        simulation_error=error,
        drift=drift,
        converged=bool(variances.all() and (drift <= 0.1 or (rise <= 6 * error).all())),
        path=path,
        infos=ended.infos,
    )


def louis_information(truth: Array, weights: Array, theta: Array, model: McemModel) -> Array:
    """Return E[-d2 log pi] - Var[d log pi] under weights that add up to one."""
    size = len(theta)
    given = model.score(truth, theta) if model.score else gradients(partial(model.log_density, truth), theta)
    score = np.asarray(given, dtype=np.float64).reshape(len(truth), size)
    if model.curvature:
        second = np.asarray(model.curvature(truth, theta), dtype=np.float64).reshape(len(truth), size, size)
        mean_second = np.einsum("n,nij->ij", weights, second)
    else:
        mean_second = derivatives(lambda t: float(weights @ model.log_density(truth, t)), theta)
    away = score - weights @ score
    return np.asarray(-mean_second - np.einsum("n,ni,nj->ij", weights, away, away))


def _step(
    seed: Seed, state: McemState, *, statistic: NoisyStatistic, model: McemModel, options: McemOptions
) -> tuple[McemState, McemInfo]:
    rng = np.random.default_rng(seed)
    theta = np.array(state.path[-1])
    draws = int(min(options.draws * options.growth ** (len(state.path) - 1), options.most_draws))
    truth, weights, effective, log_l = _e_step(rng, theta, draws, statistic, model, options)
    if model.sufficient is not None and model.maximise is not None:
        means = np.atleast_1d(weights @ np.asarray(model.sufficient(truth), dtype=np.float64))
        after = np.atleast_1d(np.asarray(model.maximise(means), dtype=np.float64))
    else:
        found = minimize(lambda t: -float(weights @ model.log_density(truth, t)), theta, method="Nelder-Mead")
        after = np.asarray(found.x)
    if after.shape != theta.shape or not np.isfinite(after).all():
        raise InputError(Problem("model", "its M-step gave no finite parameter", "check maximise or log_density"))
    moved = float(np.abs(after - theta).max())
    return McemState((*state.path, tuple(after.tolist()))), McemInfo(draws, effective, log_l, moved)


def _e_step(
    rng: np.random.Generator,
    theta: Array,
    draws: int,
    statistic: NoisyStatistic,
    model: McemModel,
    options: McemOptions,
) -> tuple[Array, Array, float, float]:
    """Draw true statistics and weigh them: values, weights, effective draws and the log likelihood."""
    truth = np.asarray(model.simulate(rng, theta, draws), dtype=np.float64)
    log_weights = statistic.log_density(truth)
    total = float(logsumexp(log_weights))
    weights = np.exp(log_weights - total) if np.isfinite(total) else np.zeros(draws)
    effective = 1 / float(weights @ weights) if weights.any() else 0.0
    if effective < options.least_effective:
        reason = f"of {draws} simulated values only {effective:.1f} count: the weights have collapsed"
        remedy = "start nearer, use das.inference.exact_likelihood where values can be listed, or data augmentation"
        raise InputError(Problem("mcem", reason, remedy))
    return truth, weights, effective, total - float(np.log(draws))


def _settle(tail: Array) -> tuple[Array, Array, Array]:
    """Average the tail: estimate, its error by simulation (batch means around the trend), and the rise of the trend."""
    steps = np.linspace(-0.5, 0.5, len(tail))
    rise = steps @ tail / (steps @ steps)
    around = tail - np.outer(steps, rise)
    means = np.array([batch.mean(axis=0) for batch in np.array_split(around, 4)])
    return tail.mean(axis=0), means.std(axis=0, ddof=1) / 2, np.abs(rise)


def complete_data_model(model: Model) -> McemModel:
    """Give a built-in model as Monte Carlo EM takes it."""
    return McemModel(
        simulate=lambda rng, theta, n: model.simulate(rng, np.full(n, theta[0])),
        log_density=lambda s, theta: model.log_density(s, theta[:1]),
        sufficient=lambda s: s,
        maximise=lambda mean: model.maximise(float(mean[0])),
        score=lambda s, theta: model.score(s, float(theta[0]))[:, None],
        curvature=lambda s, theta: model.curvature(s, float(theta[0]))[:, None, None],
    )
