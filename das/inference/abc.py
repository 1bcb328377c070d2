"""Approximate Bayesian computation that is exact: Gong's Algorithm 3 (2022, J. Privacy and Confidentiality 12(2)).

Draw theta from the prior and s from the model, and accept theta with probability eta(value | s) / max eta, where eta is
the density of the mechanism. Because eta is the mechanism and no kernel that somebody chose, accepted draws are
independent draws from the posterior given the released value. The share that is accepted is the evidence over max eta.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from das.errors import InputError, Problem
from das.inference.algorithm import Algorithm, Progress, Seed, at_least, run
from das.inference.posterior import Posterior
from das.inference.statistic import NoisyStatistic, raw

__all__ = ["AbcInfo", "AbcOptions", "AbcState", "abc", "abc_posterior"]

Array = NDArray[np.float64]
Prior = Callable[[Generator, int], Array]
Simulator = Callable[[Generator, Array], Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class AbcOptions:
    """Options of `abc`.

    Parameters
    ----------
    draws : int
        How many accepted draws are wanted.
    batch : int
        How many parameters are drawn and simulated at once.
    most_simulated : int
        Stop after so many simulations; what was accepted until then is kept.
    """

    draws: int = 1_000
    batch: int = 10_000
    most_simulated: int = 10_000_000

    def __post_init__(self) -> None:
        at_least(self, draws=1, batch=1, most_simulated=1)


class AbcState(NamedTuple):
    """Accepted parameters by batch, and how many were simulated."""

    accepted: tuple[Array, ...]
    simulated: int


class AbcInfo(NamedTuple):
    """What one batch told."""

    simulated: int
    accepted: int


def abc(
    *, statistic: NoisyStatistic, prior: Prior, simulate: Simulator, options: AbcOptions
) -> Algorithm[AbcState, AbcInfo]:
    """Bind a released statistic, a prior and a simulator to the algorithm.

    Parameters
    ----------
    statistic : NoisyStatistic
        What was released; post-processed numbers are refused.
    prior : callable
        ``prior(rng, n)`` returns n parameters: an array (n,) or (n, parameters).
    simulate : callable
        ``simulate(rng, theta)`` returns a true statistic for each: an array (n,) or (n, numbers).
    options : AbcOptions
    """
    return Algorithm(
        name="abc",
        options=options,
        init=lambda seed: AbcState((), 0),
        step=partial(_step, statistic=raw(statistic), prior=prior, simulate=simulate, options=options),
        done=partial(_done, options=options),
    )


def abc_posterior(
    *,
    statistic: NoisyStatistic,
    prior: Prior,
    simulate: Simulator,
    options: AbcOptions | None = None,
    seed: Seed,
    progress: Progress | None = None,
) -> Posterior:
    """Draw from the posterior given a released statistic, and report how many simulations were accepted.

    Examples
    --------
    Gong's example: a Poisson count released with Laplace noise at epsilon 0.2.

    >>> from das.inference.additive_noise import laplace
    >>> released = NoisyStatistic(value=37.4, noise=laplace(5))
    >>> found = abc_posterior(
    ...     statistic=released,
    ...     prior=lambda rng, n: rng.gamma(25, 1, n),
    ...     simulate=lambda rng, theta: rng.poisson(theta),
    ...     options=AbcOptions(draws=20_000, batch=50_000),
    ...     seed=1,
    ... )
    >>> round(found.summary()["theta"]["mean"], 1), round(found.acceptance, 2)
    (28.6, 0.16)
    """
    chosen = options or AbcOptions()
    algorithm = abc(statistic=statistic, prior=prior, simulate=simulate, options=chosen)
    ended = run(algorithm, seed=seed, progress=progress).state
    found = sum(map(len, ended.accepted))
    if not found:
        reason = f"none of {ended.simulated} parameters drawn from it was accepted"
        remedy = "widen the prior, or use das.inference.data_augmentation where many numbers were released"
        raise InputError(Problem("prior", reason, remedy))
    accepted = np.concatenate(ended.accepted)[: chosen.draws]
    columns = {"theta": accepted} if accepted.ndim == 1 else {f"theta_{k}": c for k, c in enumerate(accepted.T)}
    return Posterior(
        draws={name: column[None, :] for name, column in columns.items()},
        independent=True,
        acceptance=found / ended.simulated,
        complete=len(accepted) == chosen.draws,
    )


def _step(
    seed: Seed, state: AbcState, *, statistic: NoisyStatistic, prior: Prior, simulate: Simulator, options: AbcOptions
) -> tuple[AbcState, AbcInfo]:
    rng = np.random.default_rng(seed)
    n = min(options.batch, options.most_simulated - state.simulated)
    theta = _checked(prior(rng, n), n, "prior", "draw parameters where it has mass")
    truth = _checked(simulate(rng, theta), n, "simulator", "return a statistic for every parameter")
    log_ratio = statistic.log_density(truth) - statistic.log_peak
    accepted = theta[np.log(rng.uniform(size=n)) < log_ratio]
    kept = (*state.accepted, accepted) if len(accepted) else state.accepted
    return AbcState(kept, state.simulated + n), AbcInfo(n, len(accepted))


def _done(state: AbcState, *, options: AbcOptions) -> tuple[int, int]:
    if state.simulated >= options.most_simulated:
        return options.draws, options.draws
    return min(sum(map(len, state.accepted)), options.draws), options.draws


def _checked(values: object, n: int, where: str, remedy: str) -> Array:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim not in (1, 2) or len(found) != n or not math.prod(found.shape):
        raise InputError(Problem(where, f"returned shape {found.shape} where {n} rows were asked for", remedy))
    if not np.isfinite(found).all():
        raise InputError(Problem(where, "returned values that are not finite numbers", remedy))
    return found
