"""The posterior of a regression on one noisy count, by Metropolis steps on the exact likelihood.

Parameters are those of `das.inference.regression.likelihood`: (beta0, beta1, log sigma, log mu). Proposals are normal;
their covariance follows the chain while it warms up (Haario, Saksman and Tamminen 2001), and is fixed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from das.errors import InputError, Problem
from das.inference.algorithm import Algorithm, Progress, Seed, at_least, run
from das.inference.posterior import Posterior
from das.inference.regression.likelihood import CountRegression
from das.inference.regression.maximum import LikelihoodFit

__all__ = ["ChainInfo", "ChainOptions", "ChainState", "regression_chain", "regression_posterior"]

Array = NDArray[np.float64]
LogPrior = Callable[[Array], float]
NAMES = ("intercept", "slope", "log_sigma", "log_mu")
JUMP = 2.38**2 / len(NAMES)
"""Proposal covariance over that of the target: the best for a normal target (Gelman, Roberts and Gilks 1996)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainOptions:
    """Options of `regression_chain`: draws that are kept, steps before them, and how many chains."""

    draws: int = 4_000
    warmup: int = 2_000
    chains: int = 2

    def __post_init__(self) -> None:
        at_least(self, draws=4, warmup=100, chains=1)


class ChainState(NamedTuple):
    """Parameters, their log posterior, and mean, scatter and number of the steps that the proposals learnt from."""

    parameters: Array
    log_posterior: float
    mean: Array
    scatter: Array
    steps: int


class ChainInfo(NamedTuple):
    """What one step told."""

    parameters: Array
    accepted: bool


def regression_chain(
    *, problem: CountRegression, start: Array, spread: Array, log_prior: LogPrior, options: ChainOptions
) -> Algorithm[ChainState, ChainInfo]:
    """Bind a regression, a prior and a starting point with its spread to one chain."""
    return Algorithm(
        name="regression-chain",
        options=options,
        init=partial(_init, problem=problem, start=start, spread=spread, log_prior=log_prior),
        step=partial(_step, problem=problem, log_prior=log_prior, options=options),
        done=lambda state: (state.steps, options.warmup + options.draws),
    )


def regression_posterior(
    fit: LikelihoodFit[CountRegression],
    *,
    log_prior: LogPrior,
    options: ChainOptions | None = None,
    seed: int | np.random.SeedSequence,
    progress: Progress | None = None,
) -> Posterior:
    """Draw intercept, slope, log sigma and log mu given a noisy regression.

    Parameters
    ----------
    fit : LikelihoodFit
        The maximum-likelihood fit, where the chains begin.
    log_prior : callable
        Log density of the prior of (intercept, slope, log sigma, log mu); it must be proper, because the likelihood
        does not vanish as sigma tends to zero.

    Examples
    --------
    >>> from das.inference.additive_noise import laplace
    >>> from das.inference.regression.likelihood import fit_by_likelihood
    >>> rng = np.random.default_rng(1)
    >>> x, noise = rng.poisson(10, 40), laplace(1.0)
    >>> y = -5 + 4 * x + rng.normal(0, 5, 40) + noise.draw(rng, 40)
    >>> fit = fit_by_likelihood(x + noise.draw(rng, 40), y, noise_x=noise, noise_y=noise)
    >>> centre, width = np.array([0.0, 0.0, 1.5, 2.3]), np.array([30.0, 10.0, 1.0, 1.0])
    >>> found = regression_posterior(
    ...     fit,
    ...     log_prior=lambda p: -float((((p - centre) / width) ** 2).sum()) / 2,
    ...     options=ChainOptions(draws=1_000, warmup=500, chains=1),
    ...     seed=1,
    ... )
    >>> low, high = found.interval("slope")
    >>> low < 4 < high
    True
    """
    chosen = options or ChainOptions()
    spread = np.array([2.0, 0.3, 0.4, 0.1])
    algorithm = regression_chain(
        problem=fit.problem, start=fit.parameters, spread=spread, log_prior=log_prior, options=chosen
    )
    parent = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    runs = [run(algorithm, seed=np.random.default_rng(each), progress=progress) for each in parent.spawn(chosen.chains)]
    kept = [each.infos[chosen.warmup :] for each in runs]
    draws = np.array([[info.parameters for info in infos] for infos in kept])
    return Posterior(
        draws={name: draws[:, :, k] for k, name in enumerate(NAMES)},
        independent=False,
        acceptance=sum(info.accepted for infos in kept for info in infos) / (chosen.chains * chosen.draws),
    )


def _init(seed: Seed, *, problem: CountRegression, start: Array, spread: Array, log_prior: LogPrior) -> ChainState:
    rng = np.random.default_rng(seed)
    for _ in range(100):
        point = start + spread * rng.normal(size=len(start)) / 2
        density = log_prior(point) + problem.log_likelihood(point)
        if np.isfinite(density):
            return ChainState(point, density, start.copy(), np.diag(spread**2) * 20, 0)
    raise InputError(Problem("prior", "gives no mass near the maximum of the likelihood", "widen the prior"))


def _step(
    seed: Seed, state: ChainState, *, problem: CountRegression, log_prior: LogPrior, options: ChainOptions
) -> tuple[ChainState, ChainInfo]:
    rng = np.random.default_rng(seed)
    learnt = min(state.steps, options.warmup)
    covariance = JUMP * state.scatter / (20 + learnt)
    proposal = state.parameters + np.linalg.cholesky(covariance) @ rng.normal(size=len(NAMES))
    prior = log_prior(proposal)
    density = (
        prior + problem.log_likelihood(proposal) if np.isfinite(prior) and np.abs(proposal[2:]).max() < 30 else -np.inf
    )
    accepted = bool(np.log(rng.uniform()) < density - state.log_posterior)
    point, log_posterior = (proposal, density) if accepted else (state.parameters, state.log_posterior)
    mean, scatter = state.mean, state.scatter
    if state.steps < options.warmup:
        away = point - mean
        mean = mean + away / (20 + state.steps + 1)
        scatter = scatter + np.outer(away, point - mean)
    return ChainState(point, log_posterior, mean, scatter, state.steps + 1), ChainInfo(point, accepted)
