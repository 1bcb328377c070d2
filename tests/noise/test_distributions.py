"""The two distributions: probabilities, moments, costs, refusals, and draws that have power against a wrong scale."""

import pickle
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from das.errors import ConfigError
from das.noise import DiscreteGaussian, DiscreteLaplace, RunKey
from das.noise.bernoulli import bernoulli, bernoulli_exp, uniform_below
from das.noise.interval_arithmetic import Weights

ACCEPT, REJECT = 1e-6, 1e-12  # every test runs under a fixed key, so these are met once and for all


def wrong(noise, factor):
    """Return the distribution whose parameter is off by a factor."""
    if isinstance(noise, DiscreteGaussian):
        return DiscreteGaussian(noise.sigma2 * factor)
    return DiscreteLaplace(noise.scale * factor)


def test_probabilities_are_the_nearest_doubles(noise, oracle):
    exact = oracle(noise)
    for k in (0, 1, 2, 5, -1, -3, 12):
        for ours, theirs in ((noise.pmf(k), exact.pmf(k)), (noise.cdf(k), exact.cdf(k))):
            assert ours == float(theirs) or (theirs < Decimal(10) ** -305 and ours < 1e-305)


def test_variance_is_the_nearest_double(noise, oracle):
    assert noise.variance() == pytest.approx(float(oracle(noise).variance()), rel=3e-16)


def test_sigma2_is_not_the_variance():
    assert DiscreteGaussian("1/10").variance() < 0.02
    assert DiscreteGaussian(1).variance() == pytest.approx(1 - 2.1e-7, abs=1e-8)
    assert DiscreteGaussian(10**30).variance() == 1e30


def test_log_pmf_of_an_array(noise):
    k = np.array([-4, 0, 1, 7])
    with np.errstate(divide="ignore"):
        assert np.allclose(np.exp(noise.log_pmf(k)), [noise.pmf(int(i)) for i in k], rtol=1e-13, atol=1e-300)


def test_costs_are_rationals():
    assert DiscreteGaussian("3/2").rho(2) == Fraction(2, 3)
    assert DiscreteGaussian("3/2").rho(Fraction(1, 2)) == Fraction(1, 6)
    assert DiscreteLaplace("5/2").epsilon(4) == Fraction(8, 5)
    assert isinstance(DiscreteGaussian(2).rho(4), Fraction)
    assert isinstance(DiscreteLaplace(2).epsilon(4), Fraction)


def test_rho_bounds_every_renyi_divergence():
    noise, shift = DiscreteGaussian("3/4"), 2
    for alpha in (1.5, 2.0, 5.0):
        k = np.arange(-40, 41)
        p, q = noise.log_pmf(k), noise.log_pmf(k - shift)
        divergence = np.log(np.exp(alpha * p - (alpha - 1) * q).sum()) / (alpha - 1)
        assert divergence <= alpha * float(noise.rho(shift**2)) * (1 + 1e-12)


def test_epsilon_is_the_largest_loss():
    noise = DiscreteLaplace("5/2")
    k = np.arange(-30, 31)
    losses = noise.log_pmf(k) - noise.log_pmf(k - 3)
    assert np.abs(losses).max() == pytest.approx(float(noise.epsilon(3)))


@pytest.mark.parametrize("noise", [DiscreteGaussian("3/2"), DiscreteLaplace("3/2")])
def test_values_travel(noise):
    copy = pickle.loads(pickle.dumps(noise))
    assert copy == noise
    assert copy.weights == noise.weights
    with pytest.raises(AttributeError):
        noise.weights = None
    assert noise.status == "exact"


def test_names_are_canonical():
    assert DiscreteGaussian("6/4").name == "discrete-gaussian(sigma2=3/2)"
    assert DiscreteGaussian("1.5") == DiscreteGaussian(Fraction(3, 2))
    assert DiscreteLaplace(3).name == "discrete-laplace(scale=3)"
    assert hash(DiscreteGaussian(2)) == hash(DiscreteGaussian("2"))
    assert repr(DiscreteGaussian(2)) == "DiscreteGaussian(sigma2=Fraction(2, 1))"
    assert DiscreteGaussian(2).weights == Weights(Fraction(1, 4), Fraction(0))


@pytest.mark.parametrize("make", [DiscreteGaussian, DiscreteLaplace])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (1.5, "float"),
        (float("nan"), "float"),
        (float("inf"), "float"),
        (np.float64(2), "float"),
        (0, "not positive"),
        (Fraction(-1, 2), "not positive"),
        ("-3", "not positive"),
        ("nan", "not a rational"),
        ("1/0", "not a rational"),
        ("abc", "not a rational"),
        (None, "not a rational"),
        (True, "not a rational"),
        (Decimal("1.5"), "not a rational"),
    ],
)
def test_what_is_not_a_positive_rational_is_refused_with_the_reason(make, value, reason):
    with pytest.raises(ConfigError, match=reason):
        make(value)


def test_draws_have_the_stated_distribution(noise, streams, p_value):
    draws = noise.draw(streams.bundle([("test", str(i), "q", noise.name) for i in range(7)]), 150_000).ravel()
    assert p_value(draws, noise) > ACCEPT


@pytest.mark.parametrize("noise", [DiscreteGaussian("1/2"), DiscreteGaussian("484/25"), DiscreteGaussian(40_000)])
def test_draws_reject_a_variance_off_by_five_percent(noise, streams, p_value):
    draws = noise.draw(streams.bundle([("test", "", "power", noise.name)]), 1_000_000)[0]
    assert p_value(draws, noise) > ACCEPT
    assert p_value(draws, wrong(noise, Fraction(105, 100))) < REJECT
    assert p_value(draws, wrong(noise, Fraction(95, 100))) < REJECT


@pytest.mark.parametrize("noise", [DiscreteLaplace("1/2"), DiscreteLaplace("44/10"), DiscreteLaplace(60)])
def test_laplace_draws_reject_a_scale_off_by_two_and_a_half_percent(noise, streams, p_value):
    draws = noise.draw(streams.bundle([("test", "", "power", noise.name)]), 1_000_000)[0]
    assert p_value(draws, noise) > ACCEPT
    assert p_value(draws, wrong(noise, Fraction(1025, 1000))) < REJECT
    assert p_value(draws, wrong(noise, Fraction(975, 1000))) < REJECT


@pytest.mark.slow
@pytest.mark.parametrize("noise", [DiscreteGaussian("484/25"), DiscreteLaplace("44/10")], ids=lambda noise: noise.name)
def test_a_hundred_million_draws(noise, streams, p_value):
    # Enough to see a relative error of 1 in 1,000 in the variance.
    chunks = [
        noise.draw(streams.bundle([("test", str(i), "many", noise.name)]), 10_000_000)[0].astype(np.int16)
        for i in range(10)
    ]
    draws = np.concatenate(chunks)
    assert p_value(draws, noise) > ACCEPT
    assert p_value(draws, wrong(noise, Fraction(1002, 1000))) < REJECT
    assert abs(draws.var(dtype=np.float64) / noise.variance() - 1) < 1e-3


def test_neighbouring_positions_and_streams_are_uncorrelated(streams):
    noise = DiscreteGaussian(9)
    draws = noise.draw(streams.bundle([("test", str(i), "corr", noise.name) for i in range(2)]), 400_000).astype(float)
    bound = 6 / 400_000**0.5
    assert abs(np.corrcoef(draws[0], draws[1])[0, 1]) < bound
    for lag in (1, 7, 8):
        assert abs(np.corrcoef(draws[0, lag:], draws[0, :-lag])[0, 1]) < bound


@pytest.mark.parametrize(
    "noise", [DiscreteGaussian("3/2"), DiscreteGaussian(20), DiscreteLaplace("5/2"), DiscreteLaplace("1/3")]
)
def test_the_reference_sampler_has_the_stated_distribution(noise, streams, p_value):
    draws = noise.draw_reference(streams.bits(("test", "", "reference", noise.name)), 12_000)
    assert p_value(draws, noise) > ACCEPT
    assert p_value(draws, wrong(noise, Fraction(13, 10))) < REJECT
    assert p_value(draws, wrong(noise, Fraction(7, 10))) < REJECT


def test_coins_have_their_probabilities(streams):
    bits = streams.bits(("test", "", "coins", ""))
    size = 20_000
    for p, toss in [
        (2 / 7, lambda: bernoulli(bits, Fraction(2, 7))),
        (np.exp(-0.3), lambda: bernoulli_exp(bits, Fraction(3, 10))),
        (np.exp(-2.5), lambda: bernoulli_exp(bits, Fraction(5, 2))),
    ]:
        heads = sum(toss() for _ in range(size))
        assert abs(heads - size * p) < 5 * (size * p * (1 - p)) ** 0.5
    counts = np.bincount([uniform_below(bits, 5) for _ in range(size)], minlength=5)
    assert counts.size == 5
    assert np.abs(counts - size / 5).max() < 5 * (size * 0.16) ** 0.5


def test_golden_draws():
    # Frozen on purpose: the same key and names must give the same noise in every version that shares the domain string.
    bundle = RunKey.for_testing("golden").streams(b"").bundle([("county", "44001", "total", "m")])
    assert DiscreteGaussian("484/25").draw(bundle, 8).tolist() == [[1, -1, 3, 5, 1, 5, 0, -6]]
    assert DiscreteLaplace("44/10").draw(bundle, 8).tolist() == [[1, -1, 2, 5, 1, 6, 0, -8]]
