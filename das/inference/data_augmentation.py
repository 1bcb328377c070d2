"""Posteriors of record-level models by data augmentation (Ju, Awan, Gong and Rao 2022, arXiv:2206.00710).

The confidential records are unknowns beside the parameter. One step draws theta given the records, then visits each
record: a new one is drawn from the model and accepted with probability min(1, eta(value | s') / eta(value | s)), where
s' is the statistic with that record replaced. Under an epsilon-DP mechanism the acceptance is at least e^-epsilon.
Statistics that add over records are kept up to date, so a sweep costs as much as there are records.
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
from das.inference.record_sweep import sweep
from das.inference.statistic import NoisyStatistic, raw

__all__ = [
    "AugmentationInfo",
    "AugmentationOptions",
    "AugmentationState",
    "RecordModel",
    "augmented_posterior",
    "data_augmentation",
]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordModel:
    """A model of records: four functions.

    Parameters
    ----------
    prior : callable
        ``prior(rng)`` draws a parameter, an array (parameters,): where a chain begins.
    posterior : callable
        ``posterior(rng, records)`` draws a parameter given complete records.
    latent : callable
        ``latent(rng, theta, n)`` draws n records: an array whose first axis has n entries.
    contribution : callable
        ``contribution(records)`` is what each record adds to the released numbers: an array (n,) or (n, numbers).
    """

    prior: Callable[[np.random.Generator], Array]
    posterior: Callable[[np.random.Generator, Array], Array]
    latent: Callable[[np.random.Generator, Array, int], Array]
    contribution: Callable[[Array], Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class AugmentationOptions:
    """Options of `data_augmentation`.

    Parameters
    ----------
    records : int
        How many records there are: public.
    draws, warmup, chains : int
        Draws that are kept of each chain, sweeps before them, and how many chains.
    """

    records: int
    draws: int = 2_000
    warmup: int = 500
    chains: int = 4

    def __post_init__(self) -> None:
        at_least(self, records=1, draws=4, warmup=0, chains=1)


class AugmentationState(NamedTuple):
    """Parameter, records, what each record adds, and how many sweeps were made."""

    theta: Array
    records: Array
    contributions: Array
    sweeps: int


class AugmentationInfo(NamedTuple):
    """What one sweep told: the parameter, how many proposals were accepted, and the log density of the value."""

    theta: Array
    accepted: int
    log_density: float


def data_augmentation(
    *, statistic: NoisyStatistic, model: RecordModel, options: AugmentationOptions
) -> Algorithm[AugmentationState, AugmentationInfo]:
    """Bind a released statistic and a record-level model to one chain of the algorithm."""
    released = raw(statistic)
    return Algorithm(
        name="data-augmentation",
        options=options,
        init=partial(_init, records=options.records, statistic=released, model=model),
        step=partial(_step, statistic=released, model=model),
        done=lambda state: (state.sweeps, options.warmup + options.draws),
    )


def augmented_posterior(
    *,
    statistic: NoisyStatistic,
    model: RecordModel,
    options: AugmentationOptions,
    seed: int | np.random.SeedSequence,
    progress: Progress | None = None,
) -> Posterior:
    """Run the chains, and gather their draws.

    Examples
    --------
    The number of ones among 100 records, released with Laplace noise at epsilon 1/2.

    >>> from das.inference.additive_noise import laplace
    >>> bernoulli = RecordModel(
    ...     prior=lambda rng: rng.uniform(size=1),
    ...     posterior=lambda rng, x: rng.beta(1 + x.sum(), 1 + len(x) - x.sum(), size=1),
    ...     latent=lambda rng, theta, n: (rng.uniform(size=n) < theta[0]).astype(float),
    ...     contribution=lambda x: x,
    ... )
    >>> found = augmented_posterior(
    ...     statistic=NoisyStatistic(value=63.7, noise=laplace(2)),
    ...     model=bernoulli,
    ...     options=AugmentationOptions(records=100, draws=2000, chains=2),
    ...     seed=1,
    ... )
    >>> abs(found.summary()["theta"]["mean"] - 0.634) < 0.02, bool(found.acceptance > np.exp(-0.5))
    (True, True)
    """
    algorithm = data_augmentation(statistic=statistic, model=model, options=options)
    parent = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    chains, accepted = [], 0
    for number, child in enumerate(parent.spawn(options.chains), start=1):
        told = None if progress is None else _for_chain(progress, number, options)
        infos = run(algorithm, seed=np.random.default_rng(child), progress=told).infos[options.warmup :]
        chains.append([info.theta for info in infos])
        accepted += sum(info.accepted for info in infos)
    draws = np.array(chains)
    names = ["theta"] if draws.shape[2] == 1 else [f"theta_{k}" for k in range(draws.shape[2])]
    return Posterior(
        draws={name: draws[:, :, k] for k, name in enumerate(names)},
        independent=False,
        acceptance=accepted / (options.chains * options.draws * options.records),
    )


def _for_chain(progress: Progress, number: int, options: AugmentationOptions) -> Progress:
    sweeps = options.warmup + options.draws
    return lambda name, done, of: progress(name, (number - 1) * sweeps + done, options.chains * sweeps)


def _init(seed: Seed, *, records: int, statistic: NoisyStatistic, model: RecordModel) -> AugmentationState:
    rng = np.random.default_rng(seed)
    theta = _parameter(model.prior(rng), "prior")
    drawn = np.asarray(model.latent(rng, theta, records))
    return AugmentationState(theta, drawn, _contributions(model, drawn, records, statistic.size), 0)


def _step(
    seed: Seed, state: AugmentationState, *, statistic: NoisyStatistic, model: RecordModel
) -> tuple[AugmentationState, AugmentationInfo]:
    rng = np.random.default_rng(seed)
    n = len(state.records)
    theta = _parameter(model.posterior(rng, state.records), "posterior sampler")
    proposed = np.asarray(model.latent(rng, theta, n))
    adds = _contributions(model, proposed, n, statistic.size)
    residual = statistic.value - state.contributions.sum(axis=0)
    quadratic, linear = (np.array([getattr(law, name) for law in statistic.noise]) for name in ("quadratic", "linear"))
    accepted = sweep(residual, adds - state.contributions, np.log(rng.uniform(size=n)), quadratic, linear)
    taken = accepted.reshape((n,) + (1,) * (state.records.ndim - 1))
    records = np.where(taken, proposed, state.records)
    contributions = np.where(accepted[:, None], adds, state.contributions)
    log_density = float(statistic.log_density(contributions.sum(axis=0)[None, :])[0])
    after = AugmentationState(theta, records, contributions, state.sweeps + 1)
    return after, AugmentationInfo(theta, int(accepted.sum()), log_density)


def _contributions(model: RecordModel, records: Array, n: int, numbers: int) -> Array:
    found = np.asarray(model.contribution(records), dtype=np.float64)
    found = found[:, None] if found.ndim == 1 else found
    if found.shape != (n, numbers) or not np.isfinite(found).all():
        reason = f"gave shape {found.shape}, or numbers that are not finite"
        raise InputError(Problem("contribution", reason, f"return {numbers} finite numbers for each of {n} records"))
    return found


def _parameter(value: object, where: str) -> Array:
    theta = np.atleast_1d(np.asarray(value, dtype=np.float64))
    if not np.isfinite(theta).all() or not theta.size:
        raise InputError(Problem(where, "returned no finite parameter", "draw parameters where it has mass"))
    return theta
