"""Dirichlet-multinomial, mixture and exponential priors: against enumeration, integration and their definitions."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats

from das.estimation.prior.dirichlet_multinomial import OVERDISPERSION, ShareEstimate, fit_shares, overdispersion_factor
from das.estimation.prior.exponential import NOBODY, fit_means, log_likelihood
from das.estimation.prior.mixture import posterior_weights

Floats = NDArray[np.float64]


@pytest.mark.parametrize("correlation", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("people", [1, 2, 5])
def test_the_overdispersion_factor_equals_that_of_enumerated_sequences(people: int, correlation: float) -> None:
    share = np.array([0.2, 0.3, 0.5])
    orders = list(product(range(3), repeat=people))
    ways = np.array([np.bincount(came, minlength=3) for came in orders], dtype=float)
    weights = np.ones(len(ways))
    for at, came in enumerate(orders):
        for number, child in enumerate(came):
            # A share weighs as much as (1 - r) / r people who came before.
            before = came[:number].count(child)
            weight = (1 - correlation) * share[child] + correlation * before
            weights[at] *= weight / (1 - correlation + correlation * number) if number else share[child]
    assert weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(weights @ ways, people * share, atol=1e-12)
    expected = (
        overdispersion_factor(np.array([float(people)]), correlation)[0]
        * people
        * (np.diag(share) - np.outer(share, share))
    )
    np.testing.assert_allclose(np.cov(ways.T, bias=True, aweights=weights), expected, atol=1e-12)


def drawn_counts(rng: np.random.Generator, people: int, share: Floats, correlation: float, cells: int) -> Floats:
    """Dirichlet-multinomial counts: children x cells."""
    if correlation in (0.0, 1.0):
        drawn = rng.multinomial(people if correlation == 0 else 1, share, size=cells)
        return drawn.T * (1.0 if correlation == 0 else people)
    return rng.multinomial(people, rng.dirichlet(share * (1 / correlation - 1), size=cells)).T.astype(float)


def certain(share: Floats, cells: int) -> ShareEstimate:
    """The same shares for all cells, known for certain."""
    return ShareEstimate(np.repeat(share[:, None], cells, axis=1), np.zeros((len(share), cells)))


@pytest.mark.parametrize("correlation", [0.0, 0.1, 1.0])
def test_the_overdispersion_is_estimated_from_noisy_estimates(correlation: float) -> None:
    rng = np.random.default_rng(3)
    share, people, cells = np.array([0.1, 0.2, 0.3, 0.4]), 40, 150
    counts = drawn_counts(rng, people, share, correlation, cells)
    noise = rng.normal(0, 3, counts.shape)
    candidate = certain(share, cells)
    mean, variance = fit_shares(counts + noise, np.full(counts.shape, 9.0), np.full(cells, float(people)), [candidate])
    np.testing.assert_allclose(mean, people * candidate.share)
    # The neighbours among the values to choose from, 0.03 and 0.3, or 0.01 and 0.3, are at least twice as far off.
    assert float((variance / mean).mean()) == pytest.approx(
        overdispersion_factor(np.array([40.0]), correlation)[0], rel=0.5
    )


def test_the_shares_that_fit_most_cells_predict_all() -> None:
    rng = np.random.default_rng(4)
    even, uneven = np.full(4, 0.25), np.array([0.7, 0.1, 0.1, 0.1])
    counts = drawn_counts(rng, 30, uneven, 0.01, 80)
    candidates = [certain(even, 80), certain(uneven, 80)]
    estimates = counts + rng.normal(0, 6, counts.shape)
    mean, variance = fit_shares(estimates, np.full(counts.shape, 36.0), np.full(80, 30.0), candidates)
    assert np.abs(mean - 30 * candidates[1].share).mean() < 0.5
    # The prior predicts better than the estimates.
    assert np.abs(mean - counts).mean() < 0.5 * np.abs(estimates - counts).mean()
    assert variance.mean() < 36.0 / 2


def test_one_unpredicted_large_count_does_not_change_the_other_children() -> None:
    rng = np.random.default_rng(8)
    share, people, cells = np.array([0.1, 0.2, 0.3, 0.4]), 40, 60
    counts = drawn_counts(rng, people, share, 0.0, cells)
    counts[:, 0] = [0, 28, 4, 8]
    estimates = counts + rng.normal(0, 2, counts.shape)
    variance = fit_shares(
        estimates, np.full(counts.shape, 4.0), np.full(cells, float(people)), [certain(share, cells)]
    )[1]
    usual = np.median(variance, axis=1)
    assert variance[1, 0] > 5 * usual[1]
    assert variance[3, 0] < 2 * usual[3]


def test_mean_and_variance_are_those_of_the_mixture() -> None:
    rng = np.random.default_rng(5)
    n, m = 4, 7
    variances = rng.uniform(1, 9, (n, m))
    variances[0, 2] = variances[3, 5] = 0.0
    allowed = variances > 0
    people = rng.integers(1, 50, m).astype(float)
    candidates = [ShareEstimate.by(rng.uniform(1, 50, (n, m)), rng.uniform(0, 9, (n, m)), allowed) for _ in range(3)]
    estimates = np.where(allowed, rng.normal(5, 6, (n, m)), 0.0)
    fits = np.zeros((3, len(OVERDISPERSION), m))
    for (g, candidate), (r, correlation), cell in product(enumerate(candidates), enumerate(OVERDISPERSION), range(m)):
        here, p = allowed[:, cell], people[cell]
        spread = p * candidate.share[here, cell] * (1 + (p - 1) * correlation) + p**2 * candidate.variance[here, cell]
        deviation = np.sqrt(variances[here, cell] + spread)
        off = estimates[here, cell] - p * candidate.share[here, cell]
        # Independent misfits, given their sum.
        joint = stats.norm.logpdf(off, scale=deviation).sum()
        fits[g, r, cell] = joint - stats.norm.logpdf(off.sum(), scale=np.sqrt((deviation**2).sum()))
    weights = posterior_weights(fits.reshape(-1, m)).reshape(fits.shape).sum(axis=1)
    mean = sum(weights[g] * people * candidate.share for g, candidate in enumerate(candidates))
    second = sum(
        weights[g] * people**2 * (candidate.share**2 + candidate.variance) for g, candidate in enumerate(candidates)
    )  # second moment of the means
    counts = [(child, cell) for child, cell in product(range(n), range(m)) if allowed[child, cell]]
    spreads = np.array(
        [
            [mean[at] * (1 + (people[at[1]] - 1) * correlation) + second[at] - mean[at] ** 2 for at in counts]
            for correlation in OVERDISPERSION
        ]
    )
    own = [
        [stats.norm.logpdf(estimates[at], mean[at], np.sqrt(variances[at] + here[i])) for i, at in enumerate(counts)]
        for here in spreads
    ]
    spread = (posterior_weights(np.array(own)) * spreads).sum(axis=0)
    found = fit_shares(estimates, variances, people, candidates)
    np.testing.assert_allclose(found[0], mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found[1][allowed], spread, rtol=1e-8)


def test_a_mixtures_weights_are_more_likely_than_any_others_nearby() -> None:
    rng = np.random.default_rng(6)
    # Two kinds of cells, a fourth of them with the mean 3.
    values = rng.normal(np.where(np.arange(400) % 4 == 0, 3.0, 0.0), 1.0)
    fits = stats.norm.logpdf(values, loc=np.array([0.0, 3.0, 30.0])[:, None])
    weights = posterior_weights(fits)
    np.testing.assert_allclose(weights.sum(axis=0), 1)
    weight = weights.mean(axis=1)
    assert weight == pytest.approx([0.75, 0.25, 0.0], abs=0.05)

    def likelihood(weights: Floats) -> float:
        return float(np.log(weights @ np.exp(fits)).sum())

    for move in ([0.02, -0.02, 0.0], [-0.02, 0.02, 0.0], [-0.01, 0.0, 0.01]):
        assert likelihood(weight + move) < likelihood(weight)


@pytest.mark.parametrize("estimate", [-9.0, -0.5, 0.0, 3.0, 60.0])
def test_the_likelihood_of_an_exponential_count_is_its_integral(estimate: float) -> None:
    deviation, means = 2.5, np.array([0.3, 1.0, 4.0, 70.0, 3000.0])
    found = log_likelihood(np.array([estimate]), np.array([deviation]), means[:, None])[:, 0]

    def density(x: float, mean: float) -> float:
        return float(np.exp(-x / mean) / mean * stats.norm.pdf(estimate, loc=x, scale=deviation))

    near = max(estimate, 0.0)
    exact = [
        np.log(integrate.quad(density, max(near - 40, 0), near + 40, args=(mean,), points=[near], limit=500)[0])
        for mean in means
    ]
    # Up to one number for all means.
    np.testing.assert_allclose(found - found[0], np.array(exact) - exact[0], atol=1e-6)


def test_no_estimate_and_no_rough_mean_is_too_large_or_too_small() -> None:
    estimates, deviations = np.array([-40.0, 0.0, 1e9, 5.0]), np.array([1.0, 300.0, 1.0, 1e-3])
    for candidate in (1e-30, 1.0, 1e9):
        found = fit_means(estimates, deviations, np.full(4, candidate))
        assert np.isfinite(found).all()
        assert (found >= NOBODY * (1 - 1e-12)).all()
        # What was plainly seen to be there is not expected away.
        assert found[2] > 1e8
        assert found[3] > 1
