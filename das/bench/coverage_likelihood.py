"""Coverage of the methods that model the noise: posteriors, maximum likelihood and regression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator, SeedSequence

from das.bench.replications import Finished, Row, row, submitted
from das.errors import InputError
from das.inference.abc import AbcOptions, abc_posterior
from das.inference.additive_noise import gaussian, laplace, noise_of
from das.inference.data_augmentation import AugmentationOptions, RecordModel, augmented_posterior
from das.inference.enumeration import enumerated_posterior
from das.inference.exact_likelihood import exact_interval, maximum_likelihood
from das.inference.mcem import McemOptions, complete_data_model, mcem_fit
from das.inference.models import BinomialBeta, PoissonGamma
from das.inference.posterior import Posterior
from das.inference.regression.chain import regression_posterior
from das.inference.regression.likelihood import fit_by_likelihood
from das.inference.regression.measured_counts import CountNoise, fit_measured_counts
from das.inference.regression.moments import corrected_fit, naive_fit
from das.inference.statistic import NoisyStatistic
from das.noise.discrete_gaussian import DiscreteGaussian
from das.noise.discrete_laplace import DiscreteLaplace

__all__ = ["STUDIES", "rows"]

NOMINAL = 0.95
_CHUNK = 20
MODEL = PoissonGamma(shape=25, rate=1)
INTERCEPT, SLOPE, SIGMA, MEAN = -5.0, 4.0, 5.0, 10.0
PRIOR_MEAN, PRIOR_WIDTH = np.array([-5.0, 4.0, 1.6, 2.3]), np.array([5.0, 2.0, 0.5, 0.3])
"""Of intercept, slope, log sigma and log mu, each normal, in the study of the chain."""


def abc_study(rng: Generator) -> bool:
    """ABC: a Poisson count with Laplace noise, its rate drawn from the prior."""
    noise = laplace(5)
    theta = MODEL.prior(rng, 1)
    statistic = NoisyStatistic(value=MODEL.simulate(rng, theta) + noise.draw(rng, 1), noise=noise)
    options = AbcOptions(draws=1_000, batch=10_000)
    found = abc_posterior(statistic=statistic, prior=MODEL.prior, simulate=MODEL.simulate, options=options, seed=rng)
    return _holds(found, float(theta[0]))


def enumeration_study(rng: Generator) -> bool:
    """Enumeration: a beta-binomial count with discrete Gaussian noise."""
    model, noise = BinomialBeta(trials=200, a=2, b=6), noise_of(DiscreteGaussian(50))
    theta = model.prior(rng, 1)
    statistic = NoisyStatistic(value=model.simulate(rng, theta) + noise.draw(rng, 1), noise=noise)
    return _holds(enumerated_posterior(statistic=statistic, model=model, draws=2_000, seed=rng), float(theta[0]))


def augmentation_study(rng: Generator) -> bool:
    """Data augmentation: 50 Bernoulli records, their sum with discrete Laplace noise."""
    noise = noise_of(DiscreteLaplace(2))
    theta = rng.uniform()
    statistic = NoisyStatistic(value=rng.binomial(50, theta) + noise.draw(rng, 1), noise=noise)
    options = AugmentationOptions(records=50, draws=1_000, warmup=100, chains=1)
    seed = SeedSequence(int(rng.integers(2**63)))
    return _holds(augmented_posterior(statistic=statistic, model=BERNOULLI, options=options, seed=seed), theta)


def mcem_study(rng: Generator) -> bool:
    """Monte Carlo EM: Wald interval of a Poisson rate, Gaussian noise."""
    noise = gaussian(50)
    truth = np.array([60.0])
    statistic = NoisyStatistic(value=MODEL.simulate(rng, truth) + noise.draw(rng, 1), noise=noise)
    options = McemOptions(iterations=15, draws=500, growth=1.2, information_draws=20_000)
    start = max(float(statistic.value[0]), 20.0)
    fit = mcem_fit(statistic=statistic, model=complete_data_model(MODEL), start=start, options=options, seed=rng)
    return bool(abs(fit.estimate[0] - truth[0]) <= 1.959964 * fit.standard_errors[0])


def ratio_study(rng: Generator) -> bool:
    """Exact likelihood: likelihood-ratio interval of a Poisson rate of 200, Laplace noise."""
    truth, statistic = _count(rng, 200.0)
    fit = maximum_likelihood(statistic=statistic, model=MODEL)
    return bool(fit.lower <= truth <= fit.upper)


def inversion_study(rng: Generator) -> bool:
    """Exact likelihood: interval by inverting both tails, a Poisson rate of 30, Laplace noise."""
    truth, statistic = _count(rng, 30.0)
    low, high = exact_interval(statistic=statistic, model=MODEL)
    return bool(low <= truth <= high)


def naive_study(rng: Generator) -> bool:
    """Naive least squares on 1,000 noisy rows: what happens without correction."""
    x, y, _ = _pairs(rng, 1_000, 2.0)
    low, high = naive_fit(x, y).intervals()[1]
    return bool(low <= SLOPE <= high)


def moment_study(rng: Generator) -> bool:
    """Moment correction on 1,000 rows at epsilon 1/2."""
    x, y, noise = _pairs(rng, 1_000, 2.0)
    low, high = corrected_fit(x, y, noise=noise.variance, noise_y=noise.variance).intervals()[1]
    return bool(low <= SLOPE <= high)


def profile_study(rng: Generator) -> bool:
    """Profile likelihood on 10 rows at epsilon 1/2."""
    x, y, noise = _pairs(rng, 10, 2.0)
    fit = fit_by_likelihood(x, y, noise_x=noise, noise_y=noise)
    return fit.deviance(SLOPE) <= fit.threshold(NOMINAL)


def counts_study(rng: Generator) -> bool:
    """Profile likelihood of one measured count on another, 20 rows, discrete Gaussian noise on both."""
    x = rng.negative_binomial(2, 2 / 42, 20)
    y = np.rint(3 + 0.5 * x + rng.normal(size=20) * np.sqrt(16 + (0.1 * x) ** 2))
    u, v = noise_of(DiscreteGaussian(25)).draw(rng, (2, 20))
    noise = CountNoise.of(DiscreteGaussian(25))
    fit = fit_measured_counts(x + u, y + v, noise_x=noise, noise_y=noise)
    return fit.deviance(0.5) <= fit.threshold(NOMINAL)


def chain_study(rng: Generator) -> bool:
    """Metropolis on the exact likelihood, 10 rows, parameters drawn from the prior; default options."""
    noise, noise_y = laplace(2.0), gaussian(8.0)
    intercept, slope, log_sigma, log_mu = truth = PRIOR_MEAN + PRIOR_WIDTH * rng.normal(size=4)
    x = rng.poisson(np.exp(log_mu), 10)
    y = intercept + slope * x + rng.normal(0, np.exp(log_sigma), 10)
    fit = fit_by_likelihood(x + noise.draw(rng, 10), y + noise_y.draw(rng, 10), noise_x=noise, noise_y=noise_y)
    found = regression_posterior(
        fit,
        log_prior=lambda p: -float((((p - PRIOR_MEAN) / PRIOR_WIDTH) ** 2).sum()) / 2,
        seed=SeedSequence(int(rng.integers(2**63))),
    )
    low, high = found.interval("slope", NOMINAL)
    return bool(low <= truth[1] <= high)


def wald_study(rng: Generator) -> bool:
    """Wald interval of the exact likelihood on 10 rows: what happens without the profile."""
    x, y, noise = _pairs(rng, 10, 2.0)
    try:
        low, high = fit_by_likelihood(x, y, noise_x=noise, noise_y=noise).wald()[1]
    except InputError:  # no standard error: no interval, so it holds nothing
        return False
    return bool(low <= SLOPE <= high)


class Study(NamedTuple):
    """One replication, whether its method claims the nominal coverage, and how many times as often it is run."""

    replicate: Callable[[Generator], bool]
    claims: bool = True
    times: int = 1


STUDIES: dict[str, Study] = {
    "abc poisson-laplace": Study(abc_study, times=10),
    "enumeration binomial-discrete-gaussian": Study(enumeration_study, times=10),
    "data augmentation bernoulli-discrete-laplace": Study(augmentation_study, times=2),
    "mcem poisson-gaussian wald": Study(mcem_study, times=4),
    "exact likelihood poisson-laplace, likelihood ratio": Study(ratio_study, times=4),
    "exact likelihood poisson-laplace, both tails": Study(inversion_study, times=10),
    "regression moment correction, 1000 rows": Study(moment_study, times=10),
    "regression exact likelihood, profile, 10 rows": Study(profile_study, times=2),
    "regression of measured counts, profile, 20 rows": Study(counts_study),
    "regression chain, 10 rows": Study(chain_study),
    "regression naive, 1000 rows": Study(naive_study, claims=False),
    "regression exact likelihood, wald, 10 rows": Study(wald_study, claims=False),
}
"""Methods that claim 95 %, the quick ones run more often, and two that do not and show what goes wrong."""

BERNOULLI = RecordModel(
    prior=lambda rng: rng.uniform(size=1),
    posterior=lambda rng, x: rng.beta(1 + x.sum(), 1 + len(x) - x.sum(), size=1),
    latent=lambda rng, theta, n: (rng.uniform(size=n) < theta[0]).astype(np.float64),
    contribution=lambda x: x,
)


def rows(replications: int, seed: int, pool: Executor, finished: Finished) -> list[Row]:
    """Replicate every study; the first ones that end are told first."""
    chunks = {}
    for number, (name, study) in enumerate(STUDIES.items()):
        children = SeedSequence([seed, number]).spawn(replications * study.times)
        chunks[name] = [(name, children[at : at + _CHUNK]) for at in range(0, len(children), _CHUNK)]
    waiting = submitted(pool, _held, chunks)
    found = []
    for name, study in STUDIES.items():
        runs = replications * study.times
        share = sum(each.result() for each in waiting[name]) / runs
        error = (share * (1 - share) / runs) ** 0.5
        found.append(row(name, share, runs, NOMINAL, claimed=study.claims, simulation_error=error))
        finished(found[-1])
    return found


def _held(name: str, seeds: Sequence[SeedSequence]) -> int:
    """How many of some replications hold the truth."""
    return sum(STUDIES[name].replicate(np.random.default_rng(seed)) for seed in seeds)


def _count(rng: Generator, rate: float) -> tuple[float, NoisyStatistic]:
    """Draw a Poisson count of this rate, released with Laplace noise at epsilon 1/5."""
    noise = laplace(5)
    return rate, NoisyStatistic(value=rng.poisson(rate, 1) + noise.draw(rng, 1), noise=noise)


def _holds(posterior: Posterior, truth: float) -> bool:
    low, high = posterior.interval("theta", NOMINAL)
    return low <= truth <= high


def _pairs(rng: Generator, n: int, scale: float) -> tuple[Any, Any, Any]:
    """Gong's example: Poisson counts, a line, and Laplace noise on both."""
    noise = laplace(scale)
    x = rng.poisson(MEAN, n)
    y = INTERCEPT + SLOPE * x + rng.normal(0, SIGMA, n)
    return x + noise.draw(rng, n), y + noise.draw(rng, n), noise
