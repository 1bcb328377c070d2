"""Posterior draws without rejection, equal in law to those of ABC, where the law of the true statistic is known.

With a prior predictive m(s) that can be computed and s countable: draw s with weights m(s) eta(value | s), then theta
given s from the conjugate posterior. Every draw counts, so the work does not depend on how unlikely the value was.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from das.errors import InputError, Problem, UsageError
from das.inference.algorithm import Seed
from das.inference.models import Model
from das.inference.posterior import Posterior
from das.inference.statistic import NoisyStatistic, raw

__all__ = ["DEPTH", "MOST_VALUES", "Candidates", "candidates", "enumerated_posterior", "latent_posterior"]

DEPTH = 745.0
"""True values are listed as far as the noise density reaches within e^-745 of its peak, the range of doubles."""
MOST_VALUES = 4_000_000


class Candidates(NamedTuple):
    """Possible true values of one released number, with the log density of the noise at each."""

    values: NDArray[np.float64]
    log_noise: NDArray[np.float64]


def candidates(statistic: NoisyStatistic, support: tuple[float, float] | None) -> Candidates:
    """List the integers that may have been the true value of one released number.

    Examples
    --------
    >>> from das.inference.additive_noise import gaussian
    >>> found = candidates(NoisyStatistic(value=2.0, noise=gaussian(0.01)), (0.0, 100.0))
    >>> found.values.tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    """
    raw(statistic)
    if support is None or statistic.size != 1:
        reason = "is not one integer" if support is not None else "is a real number"
        raise UsageError(Problem("statistic", f"the true value {reason}, and cannot be listed", "use abc or mcem"))
    value, noise = float(statistic.value[0]), statistic.noise[0]
    reach = noise.reach(DEPTH)
    first, last = max(support[0], np.ceil(value - reach)), min(support[1], np.floor(value + reach))
    if last < first:
        reason = "lies further from every possible value than the noise reaches"
        raise InputError(Problem("statistic", reason, "check the value, its noise and the model"))
    if last - first >= MOST_VALUES:
        reason = f"more than {MOST_VALUES} true values are possible"
        raise UsageError(Problem("statistic", reason, "use abc or mcem, which sample them"))
    values = np.arange(first, last + 1)
    return Candidates(values, noise.log_density(value - values))


def latent_posterior(statistic: NoisyStatistic, model: Model) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return possible true values, their probabilities given what was released, and the log evidence."""
    listed = candidates(statistic, model.support)
    log_weights = model.log_predictive(listed.values) + listed.log_noise
    best = int(np.argmax(log_weights))
    first, last = listed.values[0] > model.support[0], listed.values[-1] < model.support[1]  # type: ignore[index]
    if (best == 0 and first) or (best == len(log_weights) - 1 and last):
        reason = "lies so far from the released value that true values which it prefers are not listed"
        raise InputError(Problem("prior", reason, "check the value, its noise and the prior"))
    log_evidence = float(logsumexp(log_weights))
    if not np.isfinite(log_evidence):
        raise InputError(Problem("prior", "gives no mass to any true value that the noise allows", "widen the prior"))
    return listed.values, np.exp(log_weights - log_evidence), log_evidence


def enumerated_posterior(*, statistic: NoisyStatistic, model: Model, draws: int = 1_000, seed: Seed) -> Posterior:
    """Draw independently from the posterior; ``acceptance`` is 1, and the draws have the law of `abc_posterior`'s.

    Examples
    --------
    >>> from das.inference.additive_noise import laplace
    >>> from das.inference.models import PoissonGamma
    >>> released = NoisyStatistic(value=37.4, noise=laplace(5))
    >>> found = enumerated_posterior(statistic=released, model=PoissonGamma(shape=25, rate=1), draws=400_000, seed=1)
    >>> round(found.summary()["theta"]["mean"], 1)
    28.6
    """
    rng = np.random.default_rng(seed)
    values, weights, _ = latent_posterior(statistic, model)
    truth = values[rng.choice(len(values), size=draws, p=weights / weights.sum())]
    theta = model.posterior(rng, truth)
    return Posterior(draws={"theta": theta[None, :], "s": truth[None, :]}, independent=True, acceptance=1.0)
