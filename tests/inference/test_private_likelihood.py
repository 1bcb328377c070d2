"""The Poisson-Laplace example by every method, against figures that were computed by independent code."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta as beta_law
from scipy.stats import kstest, poisson

from das.errors import ConfigError, InputError, UsageError
from das.inference.abc import AbcOptions, abc_posterior
from das.inference.additive_noise import AdditiveNoise, gaussian, laplace, noise_of
from das.inference.data_augmentation import AugmentationOptions, RecordModel, augmented_posterior
from das.inference.enumeration import candidates, enumerated_posterior, latent_posterior
from das.inference.exact_likelihood import (
    GridPosterior,
    exact_interval,
    log_likelihood,
    maximum_likelihood,
    poisson_laplace,
    posterior_on_grid,
)
from das.inference.mcem import McemModel, McemOptions, complete_data_model, mcem_fit
from das.inference.models import BinomialBeta, NormalNormal, PoissonGamma, model_of
from das.inference.posterior import Posterior
from das.inference.record_sweep import sweep
from das.inference.statistic import NoisyStatistic, raw
from das.noise.discrete_gaussian import DiscreteGaussian
from das.noise.discrete_laplace import DiscreteLaplace

RELEASED = NoisyStatistic(value=37.4, noise=laplace(5))
POISSON = PoissonGamma(shape=25, rate=1)
MLE, INFORMATION = 37.237273, 1.58206e-2
MEAN, STD_DEV, ACCEPTANCE, EFFECTIVE = 28.5763, 4.7339, 0.161612, 0.762
"""Verified numbers of the design (inference, section 2); Gong's lecture gives 37.237 and 1.582e-2."""


@pytest.fixture(scope="module")
def exact() -> GridPosterior:
    return posterior_on_grid(
        np.linspace(1e-6, 120, 40_001),
        log_prior=POISSON.log_prior,
        log_likelihood=lambda t: poisson_laplace(t, value=37.4, epsilon=0.2),
    )


def cdf_of(posterior: GridPosterior):
    steps = np.diff(posterior.theta) * (posterior.density[1:] + posterior.density[:-1]) / 2
    return lambda t: np.interp(t, posterior.theta, np.append(0, np.cumsum(steps)))


class TestExactLikelihood:
    def test_maximum_and_information(self) -> None:
        fit = maximum_likelihood(statistic=RELEASED, model=POISSON)
        assert fit.estimate == pytest.approx(MLE, abs=1e-4)
        assert fit.information == pytest.approx(INFORMATION, abs=1e-6)
        assert fit.latent_mean == pytest.approx(fit.estimate, abs=1e-5), "the fixed point of EM"
        assert fit.latent_variance == pytest.approx(15.30018, abs=1e-4)
        naive = 1 / 37.4
        assert naive == pytest.approx(2.67380e-2, abs=1e-6)
        assert naive / fit.information == pytest.approx(1.6901, abs=1e-3)

    def test_information_is_the_curvature_of_the_likelihood(self) -> None:
        h = 1e-3
        around = log_likelihood([MLE - h, MLE, MLE + h], statistic=RELEASED, model=POISSON)
        assert -(around[0] - 2 * around[1] + around[2]) / h**2 == pytest.approx(INFORMATION, rel=1e-4)

    def test_likelihood_ratio_interval(self) -> None:
        fit = maximum_likelihood(statistic=RELEASED, model=POISSON)
        ends = log_likelihood([fit.lower, fit.upper], statistic=RELEASED, model=POISSON)
        assert fit.log_likelihood - ends == pytest.approx([1.920729, 1.920729], abs=1e-5)

    @pytest.mark.parametrize(
        ("noise", "value", "model"),
        [
            (laplace(5), 37.4, POISSON),
            (gaussian(9), 12.3, BinomialBeta(trials=30, a=1, b=1)),
            (noise_of(DiscreteLaplace(3)), 18.0, POISSON),
            (noise_of(DiscreteGaussian(6)), 18.0, BinomialBeta(trials=30, a=1, b=1)),
        ],
        ids=["laplace", "gaussian", "discrete-laplace", "discrete-gaussian"],
    )
    def test_exact_interval_leaves_the_tails(self, noise: AdditiveNoise, value: float, model) -> None:
        low, high = exact_interval(statistic=NoisyStatistic(value=value, noise=noise), model=model)
        rng = np.random.default_rng(1)
        for theta, sign in ((low, 1), (high, -1)):
            drawn = model.simulate(rng, np.full(200_000, theta)) + noise.draw(rng, 200_000)
            assert (sign * drawn >= sign * value).mean() == pytest.approx(0.025, abs=0.0015)

    def test_exact_interval_at_the_edge(self) -> None:
        low, high = exact_interval(statistic=NoisyStatistic(value=-9.0, noise=laplace(5)), model=POISSON)
        assert 0 <= low < 1e-6
        assert 0 < high < 15
        low, high = exact_interval(statistic=NoisyStatistic(value=-40.0, noise=laplace(5)), model=POISSON)
        assert 0 <= low <= high < 1e-6, "no rate explains it"
        model = BinomialBeta(trials=30, a=1, b=1)
        low, high = exact_interval(statistic=NoisyStatistic(value=90.0, noise=laplace(5)), model=model)
        assert 1 - 1e-6 < low <= high <= 1

    @pytest.mark.parametrize("value", [-3.2, 0.0, 0.3, 5.0, 37.4, 40.0])
    def test_closed_form_is_the_sum(self, value: float) -> None:
        theta = np.array([1e-3, 0.5, 3.0, 20.0, 50.0, 300.0, 3000.0])
        s = np.arange(12_000)
        direct = [np.logaddexp.reduce(poisson.logpmf(s, t) - np.abs(value - s) * 0.2 + np.log(0.1)) for t in theta]
        np.testing.assert_allclose(poisson_laplace(theta, value=value, epsilon=0.2), direct, rtol=1e-11, atol=1e-12)
        statistic = NoisyStatistic(value=value, noise=laplace(5))
        np.testing.assert_allclose(log_likelihood(theta, statistic=statistic, model=POISSON), direct, rtol=1e-11)

    def test_closed_form_does_not_overflow(self) -> None:
        far = poisson_laplace([1e-8, 1e5], value=900.3, epsilon=2.0)
        assert np.isfinite(far).all()
        assert far[0] == pytest.approx(math.log(1.0) - 2.0 * 900.3, abs=1e-3), "almost surely s = 0"

    def test_posterior_by_quadrature(self, exact: GridPosterior) -> None:
        assert exact.mean == pytest.approx(MEAN, abs=1e-3)
        assert exact.std_dev == pytest.approx(STD_DEV, abs=1e-3)
        assert exact.mode == pytest.approx(28.27, abs=0.01)
        assert exact.quantile([0.025, 0.5, 0.975]) == pytest.approx([19.632, 28.465, 38.187], abs=2e-3)
        naive_shape, naive_rate = 25 + 37.4, 1 + 1
        assert naive_shape / naive_rate == pytest.approx(31.2)
        assert math.sqrt(naive_shape) / naive_rate == pytest.approx(3.9497, abs=1e-4)

    @given(value=st.integers(-5, 40), sigma2=st.sampled_from(["1/2", "4", "25"]), theta=st.floats(0.05, 0.95))
    def test_binomial_against_brute_force(self, value: int, sigma2: str, theta: float) -> None:
        mechanism, model = DiscreteGaussian(sigma2), BinomialBeta(trials=30, a=2, b=3)
        brute = sum(math.comb(30, s) * theta**s * (1 - theta) ** (30 - s) * mechanism.pmf(value - s) for s in range(31))
        statistic = NoisyStatistic(value=value, noise=mechanism)
        found = log_likelihood(theta, statistic=statistic, model=model)[0]
        assert found == pytest.approx(math.log(brute), rel=1e-9) if brute > 1e-290 else found < -600


@pytest.fixture(scope="module")
def found() -> Posterior:
    return abc_posterior(
        statistic=RELEASED,
        prior=POISSON.prior,
        simulate=POISSON.simulate,
        options=AbcOptions(draws=40_000, batch=100_000),
        seed=11,
    )


class TestAbc:
    def test_moments_and_acceptance(self, found: Posterior) -> None:
        summary = found.summary()["theta"]
        assert summary["mean"] == pytest.approx(MEAN, abs=4 * summary["simulation_error"])
        assert summary["std_dev"] == pytest.approx(STD_DEV, rel=0.02)
        simulated = 40_000 / ACCEPTANCE
        assert found.acceptance == pytest.approx(ACCEPTANCE, abs=4 * math.sqrt(ACCEPTANCE * 0.84 / simulated))

    def test_the_law_is_the_posterior_and_not_the_naive_one(self, found: Posterior, exact: GridPosterior) -> None:
        draws = found.flat("theta")[:10_000]
        assert kstest(draws, cdf_of(exact)).pvalue > 1e-4
        assert kstest(draws, "gamma", args=(62.4, 0, 0.5)).pvalue < 1e-12
        other = posterior_on_grid(
            exact.theta,
            log_prior=POISSON.log_prior,
            log_likelihood=lambda t: poisson_laplace(t, value=37.4, epsilon=0.26),
        )
        assert kstest(draws, cdf_of(other)).pvalue < 1e-12, "noise of another scale is told apart"

    def test_acceptance_is_the_evidence_over_the_peak(self) -> None:
        _, _, log_evidence = latent_posterior(RELEASED, POISSON)
        assert math.exp(log_evidence - RELEASED.log_peak) == pytest.approx(ACCEPTANCE, abs=1e-6)

    def test_enumeration_has_the_same_law(self, exact: GridPosterior) -> None:
        found = enumerated_posterior(statistic=RELEASED, model=POISSON, draws=10_000, seed=3)
        assert found.acceptance == 1.0
        assert kstest(found.flat("theta"), cdf_of(exact)).pvalue > 1e-4

    def test_two_numbers_and_two_parameters(self) -> None:
        statistic = NoisyStatistic(value=[4.0, -1.0], noise=[gaussian(1.0), gaussian(4.0)])
        found = abc_posterior(
            statistic=statistic,
            prior=lambda rng, n: rng.normal(size=(n, 2)),
            simulate=lambda rng, theta: theta,
            options=AbcOptions(draws=4_000, batch=50_000),
            seed=1,
        )
        assert found.flat("theta_0").mean() == pytest.approx(2.0, abs=0.05), "conjugate: 4 * 1 / (1 + 1)"
        assert found.flat("theta_1").mean() == pytest.approx(-0.2, abs=0.06), "conjugate: -1 * 1 / (1 + 4)"

    def test_partial_work_is_kept(self) -> None:
        options = AbcOptions(draws=1_000, batch=200, most_simulated=500)
        found = abc_posterior(
            statistic=RELEASED, prior=POISSON.prior, simulate=POISSON.simulate, options=options, seed=1
        )
        assert not found.complete
        assert 40 < found.flat("theta").size < 130

    @pytest.mark.parametrize(
        ("prior", "words"),
        [
            (lambda rng, n: np.full(n, 1e9), "none of 2000"),
            (lambda rng, n: np.zeros(0), "returned shape"),
            (lambda rng, n: np.full(n, np.nan), "not finite"),
        ],
    )
    def test_a_prior_without_mass(self, prior, words: str) -> None:
        options = AbcOptions(draws=10, batch=1000, most_simulated=2000)
        with pytest.raises(InputError, match=words):
            abc_posterior(statistic=RELEASED, prior=prior, simulate=POISSON.simulate, options=options, seed=1)


class TestMcem:
    def test_estimate_information_and_effective_sample(self) -> None:
        fit = mcem_fit(statistic=RELEASED, model=complete_data_model(POISSON), start=30.0, seed=4)
        assert fit.estimate[0] == pytest.approx(MLE, abs=0.02)
        assert fit.information[0, 0] == pytest.approx(INFORMATION, rel=0.02)
        assert fit.effective_share == pytest.approx(EFFECTIVE, abs=0.01)
        assert fit.standard_errors[0] == pytest.approx(INFORMATION**-0.5, rel=0.02)
        assert fit.converged
        assert fit.infos[-1].draws > fit.infos[0].draws
        exact = log_likelihood(fit.estimate, statistic=RELEASED, model=POISSON)[0]
        assert fit.log_likelihood == pytest.approx(exact, abs=0.01)

    def test_general_log_likelihood_agrees_with_the_shortcut(self) -> None:
        general = McemModel(
            simulate=lambda rng, theta, n: rng.poisson(max(theta[0], 1e-6), n),
            log_density=lambda s, theta: s * np.log(max(theta[0], 1e-6)) - theta[0],
        )
        options = McemOptions(iterations=20, draws=2_000, growth=1.1, information_draws=50_000)
        fit = mcem_fit(statistic=RELEASED, model=general, start=33.0, options=options, seed=2)
        assert fit.estimate[0] == pytest.approx(MLE, abs=0.12)
        assert fit.information[0, 0] == pytest.approx(INFORMATION, rel=0.05)

    def test_two_parameters_normal_closed_form(self) -> None:
        """s ~ N(theta, 1) for two numbers with Gaussian noise: the estimate is the value, the information 1/(1 + v)."""
        model = McemModel(
            simulate=lambda rng, theta, n: theta + rng.normal(size=(n, 2)),
            log_density=lambda s, theta: -((s - theta) ** 2).sum(axis=1) / 2,
            sufficient=lambda s: s,
            maximise=lambda mean: mean,
        )
        statistic = NoisyStatistic(value=[1.0, -2.0], noise=[gaussian(1.0), gaussian(3.0)])
        options = McemOptions(iterations=40, draws=2_000, information_draws=50_000)
        fit = mcem_fit(statistic=statistic, model=model, start=[0.0, 0.0], options=options, seed=3)
        assert fit.estimate == pytest.approx([1.0, -2.0], abs=0.05)
        np.testing.assert_allclose(fit.information, np.diag([0.5, 0.25]), atol=0.03)

    def test_collapsed_weights_are_refused(self) -> None:
        with pytest.raises(InputError, match="collapsed"):
            mcem_fit(statistic=RELEASED, model=complete_data_model(POISSON), start=2_000.0, seed=1)

    def test_a_path_that_has_not_settled_says_so(self) -> None:
        slow = NoisyStatistic(value=60.0, noise=laplace(40))  # far noise: EM creeps
        options = McemOptions(iterations=12, draws=20_000, growth=1.0, information_draws=2_000)
        fit = mcem_fit(statistic=slow, model=complete_data_model(POISSON), start=20.0, options=options, seed=1)
        assert not fit.converged


BERNOULLI = RecordModel(
    prior=lambda rng: rng.uniform(size=1),
    posterior=lambda rng, x: rng.beta(1 + x.sum(), 1 + len(x) - x.sum(), size=1),
    latent=lambda rng, theta, n: (rng.uniform(size=n) < theta[0]).astype(float),
    contribution=lambda x: x,
)


class TestDataAugmentation:
    def test_bernoulli_golden(self) -> None:
        statistic = NoisyStatistic(value=63.7, noise=laplace(2))
        options = AugmentationOptions(records=100, draws=4_000, warmup=200, chains=2)
        found = augmented_posterior(statistic=statistic, model=BERNOULLI, options=options, seed=5)
        summary = found.summary()["theta"]
        assert summary["mean"] == pytest.approx(0.63435, abs=0.003)
        assert summary["std_dev"] == pytest.approx(0.05493, abs=0.003)
        assert summary["r_hat"] < 1.02
        assert found.acceptance == pytest.approx(0.90, abs=0.01)
        assert found.acceptance >= math.exp(-0.5)
        grid = np.linspace(1e-6, 1 - 1e-6, 4_001)
        model = BinomialBeta(trials=100, a=1, b=1)
        exact = posterior_on_grid(
            grid,
            log_prior=model.log_prior,
            log_likelihood=lambda t: log_likelihood(t, statistic=statistic, model=model),
        )
        assert (exact.mean, exact.std_dev) == pytest.approx((0.63435, 0.05493), abs=1e-5)

    def test_the_sweep_does_what_a_plain_loop_does(self) -> None:
        rng = np.random.default_rng(2)
        value, now, then = rng.normal(size=3) * 5, rng.normal(size=(40, 3)), rng.normal(size=(40, 3))
        laws = (laplace(2), gaussian(3), laplace(0.7))
        log_uniform = np.log(rng.uniform(size=40))
        current, accepted = now.copy(), []
        statistic = NoisyStatistic(value=value, noise=laws)
        for i in range(40):
            proposal = current.copy()
            proposal[i] = then[i]
            gain = statistic.log_density(np.stack([proposal.sum(axis=0), current.sum(axis=0)]))
            accepted.append(bool(log_uniform[i] < gain[0] - gain[1]))
            current = proposal if accepted[-1] else current
        residual = value - now.sum(axis=0)
        quadratic, linear = np.array([law.quadratic for law in laws]), np.array([law.linear for law in laws])
        assert sweep(residual, then - now, log_uniform, quadratic, linear).tolist() == accepted
        np.testing.assert_allclose(residual, value - current.sum(axis=0))
        assert 5 < sum(accepted) < 40

    def test_two_statistics_against_enumeration(self) -> None:
        """Twelve records of three kinds; two counts were released, with noise of two laws."""
        n, value, laws = 12, (6.0, 1.0), (DiscreteLaplace(2), DiscreteGaussian(2))
        model = RecordModel(
            prior=lambda rng: rng.dirichlet(np.ones(3)),
            posterior=lambda rng, x: rng.dirichlet(1 + np.bincount(x, minlength=3)),
            latent=lambda rng, theta, m: np.searchsorted(np.cumsum(theta)[:2], rng.uniform(size=m)),
            contribution=lambda x: np.column_stack([x == 1, x == 2]),
        )
        options = AugmentationOptions(records=n, draws=6_000, warmup=100, chains=1)
        statistic = NoisyStatistic(value=value, noise=laws)
        found = augmented_posterior(statistic=statistic, model=model, options=options, seed=1)
        pairs = [(a, b) for a in range(n + 1) for b in range(n + 1 - a)]  # all as likely, under a flat prior
        weights = np.array([laws[0].pmf(6 - a) * laws[1].pmf(1 - b) for a, b in pairs])
        exact = [weights @ [1 + pair[k] for pair in pairs] / weights.sum() / (n + 3) for k in (0, 1)]
        for k, name in enumerate(("theta_1", "theta_2")):
            assert found.flat(name).mean() == pytest.approx(exact[k], abs=0.012)

    def test_wrong_contributions_are_named(self) -> None:
        model = RecordModel(
            prior=BERNOULLI.prior,
            posterior=BERNOULLI.posterior,
            latent=BERNOULLI.latent,
            contribution=lambda x: np.column_stack([x, x]),
        )
        with pytest.raises(InputError, match="contribution"):
            augmented_posterior(
                statistic=RELEASED, model=model, options=AugmentationOptions(records=5, draws=4, chains=1), seed=1
            )


class TestNoiseAndStatistic:
    @pytest.mark.parametrize("mechanism", [DiscreteGaussian("7/2"), DiscreteLaplace("5/2")], ids=str)
    def test_discrete_densities_are_the_mechanisms(self, mechanism) -> None:
        noise, k = noise_of(mechanism), np.arange(-60, 61)
        np.testing.assert_allclose(noise.log_density(k), [math.log(mechanism.pmf(int(each))) for each in k], rtol=1e-9)
        assert np.exp(noise.log_density(k)).sum() == pytest.approx(1.0, abs=1e-9)
        assert noise.log_density([0.5])[0] == -np.inf

    @pytest.mark.parametrize(
        "noise", [laplace(3), gaussian(5), noise_of(DiscreteGaussian(5)), noise_of(DiscreteLaplace(3))]
    )
    def test_simulated_noise_has_its_variance(self, noise: AdditiveNoise) -> None:
        draws = noise.draw(np.random.default_rng(1), 200_000)
        assert draws.var() == pytest.approx(noise.variance, rel=0.03)
        for u in (-4.0, 0.0, 2.5):
            assert (draws <= u).mean() == pytest.approx(noise.cdf(u), abs=0.005)
        assert abs(draws.mean()) < 5 * math.sqrt(noise.variance / 200_000)
        depth = noise.log_density([0.0])[0] - noise.log_density([round(noise.reach(9.0))])[0]
        assert depth == pytest.approx(9.0, rel=0.25)

    @pytest.mark.parametrize("provenance", ["clamped", "rounded", "projected", "table"])
    def test_post_processed_numbers_are_refused_everywhere(self, provenance: str) -> None:
        statistic = NoisyStatistic(value=37.0, noise=laplace(5), provenance=provenance)
        calls = [
            lambda: abc_posterior(statistic=statistic, prior=POISSON.prior, simulate=POISSON.simulate, seed=1),
            lambda: mcem_fit(statistic=statistic, model=complete_data_model(POISSON), start=30.0, seed=1),
            lambda: maximum_likelihood(statistic=statistic, model=POISSON),
            lambda: enumerated_posterior(statistic=statistic, model=POISSON, seed=1),
            lambda: augmented_posterior(
                statistic=statistic, model=BERNOULLI, options=AugmentationOptions(records=9), seed=1
            ),
        ]
        for call in calls:
            with pytest.raises(UsageError, match="use the release's measurements"):
                call()

    def test_a_bare_number_is_refused(self) -> None:
        with pytest.raises(UsageError, match="NoisyStatistic"):
            raw(37.4)

    def test_a_fraction_cannot_come_from_integer_noise(self) -> None:
        with pytest.raises(InputError, match="fraction"):
            NoisyStatistic(value=3.5, noise=DiscreteGaussian(4))
        assert NoisyStatistic(value=3.5, noise=DiscreteGaussian(4), provenance="projected").rounded().value[0] == 4

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({"value": [1.0, 2.0], "noise": [laplace(1)]}, "mechanisms"),
            ({"value": np.nan, "noise": laplace(1)}, "finite"),
            ({"value": 1.0, "noise": object()}, "no density"),
            ({"value": 1.0, "noise": laplace(1), "provenance": "guessed"}, "not known"),
        ],
    )
    def test_bad_statistics_are_named(self, arguments: dict[str, object], words: str) -> None:
        with pytest.raises((UsageError, InputError), match=words):
            NoisyStatistic(**arguments)

    def test_values_are_read_only(self) -> None:
        with pytest.raises(ValueError, match="read-only"):
            RELEASED.value[0] = 1.0

    def test_a_value_out_of_reach_is_named(self) -> None:
        with pytest.raises(InputError, match="further"):
            candidates(NoisyStatistic(value=-10_000.0, noise=laplace(1)), (0.0, 100.0))
        with pytest.raises(UsageError, match="real number"):
            candidates(RELEASED, None)


class TestModels:
    @pytest.mark.parametrize(
        "model",
        [PoissonGamma(shape=3, rate=0.5, exposure=2.0), BinomialBeta(trials=25, a=2, b=5)],
        ids=["poisson", "binomial"],
    )
    def test_predictive_is_prior_times_likelihood(self, model) -> None:
        high = min(model.parameter_range[1] - 1e-9, 60.0)
        theta, s = np.linspace(1e-9, high, 20_001), np.array([0.0, 3.0, 11.0])
        joint = np.exp(model.log_prior(theta) + model.log_density(s[:, None], theta))
        np.testing.assert_allclose(np.trapezoid(joint, theta), np.exp(model.log_predictive(s)), rtol=1e-5)

    @pytest.mark.parametrize(
        "model",
        [
            PoissonGamma(shape=3, rate=0.5, exposure=2.0),
            BinomialBeta(trials=25, a=2, b=5),
            NormalNormal(variance=2.0, mean=-1.0, prior_variance=3.0),
        ],
        ids=["poisson", "binomial", "normal"],
    )
    def test_derivatives_and_conjugacy(self, model) -> None:
        s, at, h = np.array([2.0, 7.0]), 0.4, 1e-4
        up, mid, down = (model.log_density(s, np.asarray(at + d)) for d in (h, 0.0, -h))
        np.testing.assert_allclose(model.score(s, at), (up - down) / (2 * h), rtol=1e-5)
        np.testing.assert_allclose(model.curvature(s, at), (up - 2 * mid + down) / h**2, rtol=1e-4)
        rng = np.random.default_rng(1)
        prior = model.prior(rng, 20_000)
        both = model.posterior(rng, model.simulate(rng, prior))
        assert both.mean() == pytest.approx(prior.mean(), abs=0.05 * prior.std()), "the posterior averages to the prior"
        assert both.std() == pytest.approx(prior.std(), rel=0.03)

    def test_bad_models_name_every_mistake(self) -> None:
        with pytest.raises(ConfigError) as caught:
            model_of({"name": "poisson-gamma", "shape": 1, "scale": 2})
        assert len(caught.value.problems) == 2
        with pytest.raises(ConfigError, match="positive"):
            PoissonGamma(shape=-1, rate=1)


class TestPosterior:
    def test_arviz_is_optional(self, monkeypatch: pytest.MonkeyPatch) -> None:
        posterior = Posterior(draws={"theta": np.ones((2, 5))}, independent=False, acceptance=0.5)
        monkeypatch.setitem(sys.modules, "arviz", None)
        with pytest.raises(UsageError, match="to_dict"):
            posterior.to_inference_data()
        monkeypatch.setitem(sys.modules, "arviz", SimpleNamespace(from_dict=lambda posterior: sorted(posterior)))
        assert posterior.to_inference_data() == ["theta"]

    def test_interval_of_a_known_law(self) -> None:
        draws = beta_law.rvs(2, 3, size=(2, 50_000), random_state=np.random.default_rng(1))
        low, high = Posterior(draws={"p": draws}, independent=True, acceptance=1.0).interval("p", 0.9)
        assert (low, high) == pytest.approx(tuple(beta_law.ppf([0.05, 0.95], 2, 3)), abs=0.005)


class TestCalibration:
    """Ranks of true parameters among posterior draws are uniform (Talts et al. 2018), and not with noise misjudged."""

    @staticmethod
    def ranks(assumed: AdditiveNoise, true: AdditiveNoise, method: str, replications: int = 600) -> np.ndarray:
        rng = np.random.default_rng(8)
        theta = POISSON.prior(rng, replications)
        released = POISSON.simulate(rng, theta) + true.draw(rng, replications)
        found = []
        for t, value in zip(theta, released, strict=True):
            statistic = NoisyStatistic(value=value, noise=assumed)
            if method == "abc":
                options = AbcOptions(draws=99, batch=1_500)
                posterior = abc_posterior(
                    statistic=statistic, prior=POISSON.prior, simulate=POISSON.simulate, options=options, seed=rng
                )
            else:
                posterior = enumerated_posterior(statistic=statistic, model=POISSON, draws=99, seed=rng)
            found.append(((posterior.flat("theta") < t).sum() + rng.uniform()) / 100)
        return np.array(found)

    @pytest.mark.parametrize("method", ["abc", "enumeration"])
    @pytest.mark.parametrize("scale", ["2", "7"])
    def test_ranks(self, method: str, scale: str) -> None:
        noise = noise_of(DiscreteLaplace(scale))
        assert kstest(self.ranks(noise, noise, method), "uniform").pvalue > 1e-4

    def test_noise_that_is_ignored_is_found(self) -> None:
        ranks = self.ranks(noise_of(DiscreteLaplace("1/2")), noise_of(DiscreteLaplace(7)), "enumeration")
        assert kstest(ranks, "uniform").pvalue < 1e-6


@pytest.mark.parametrize("value", ["many", [[1.0, 2.0], [3.0]], None])
def test_values_that_are_no_numbers_are_named(value: object) -> None:
    with pytest.raises(InputError, match="not finite numbers"):
        NoisyStatistic(value=value, noise=laplace(5))  # type: ignore[arg-type]


def test_a_prior_whose_values_are_out_of_the_noises_reach_is_refused() -> None:
    """Listed values end 745 scales from the released one; what the prior prefers lies below them all."""
    model = PoissonGamma(shape=25, rate=1)
    for value, scale in ((1e9, 5), (4_000.0, 5)):
        with pytest.raises(InputError, match="lies so far from the released value"):
            latent_posterior(NoisyStatistic(value=value, noise=laplace(scale)), model)
    values, weights, _ = latent_posterior(NoisyStatistic(value=3_000.0, noise=laplace(5)), model)
    decay = 0.5 * math.exp(1 / 5)  # of the negative binomial law times the noise, below the value
    assert values @ weights == pytest.approx(25 * decay / (1 - decay), rel=1e-9)


@pytest.mark.parametrize(
    ("model", "value"),
    [(PoissonGamma(shape=25, rate=1), -3.0), (BinomialBeta(trials=10, a=1, b=1), 14.0)],
)
def test_a_maximum_at_an_end_of_the_range_has_no_standard_error(model: Any, value: float) -> None:
    fit = maximum_likelihood(statistic=NoisyStatistic(value=value, noise=laplace(5)), model=model)
    assert fit.at_an_end
    assert math.isnan(fit.standard_error)
    inside = maximum_likelihood(statistic=NoisyStatistic(value=7.0, noise=laplace(1)), model=model)
    assert not inside.at_an_end
    assert inside.standard_error > 0
