"""Regression on noisy counts: limits of the naive fit, corrections, the exact likelihood and its intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, laplace, nbinom, norm, poisson

from das.errors import InputError, UsageError
from das.inference.additive_noise import gaussian, noise_of
from das.inference.additive_noise import laplace as laplace_noise
from das.inference.numerical import gradients
from das.inference.regression.attenuation import Line, attenuated
from das.inference.regression.likelihood import CountRegression, fit_by_likelihood, normal_laplace_log_density
from das.inference.regression.measured_counts import CountNoise, MeasuredRegression, fit_measured_counts
from das.inference.regression.moments import corrected_fit, naive_fit
from das.inference.regression.page import example, outline, render
from das.noise.discrete_gaussian import DiscreteGaussian
from das.noise.discrete_laplace import DiscreteLaplace
from das.noise.two_sided import TwoSidedNoise

TRUE = Line(intercept=-5.0, slope=4.0, residual_variance=25.0)
LIMITS = {  # epsilon: reliability, slope, intercept, residual variance (design, inference, section 2)
    0.5: (0.5556, 2.2222, 12.7778, 104.11),
    0.2: (0.1667, 0.6667, 28.3333, 208.33),
    0.1: (0.0476, 0.1905, 33.0952, 377.38),
}


def simulated(rng: np.random.Generator, n: int, epsilon: float):
    noise = laplace_noise(1 / epsilon)
    x = rng.poisson(10, n)
    y = -5 + 4 * x + rng.normal(0, 5, n)
    return x + noise.draw(rng, n), y + noise.draw(rng, n), noise


@pytest.mark.parametrize("epsilon", LIMITS)
class TestAttenuation:
    def test_formulas(self, epsilon: float) -> None:
        noise = 2 / epsilon**2
        found = attenuated(TRUE, mean=10.0, variance=10.0, noise_x=noise, noise_y=noise)
        reliability, slope, intercept, residual = LIMITS[epsilon]
        assert found.slope / TRUE.slope == pytest.approx(reliability, abs=5e-5)
        assert found.slope == pytest.approx(slope, abs=5e-5)
        assert found.intercept == pytest.approx(intercept, abs=5e-5)
        assert found.residual_variance == pytest.approx(residual, abs=5e-3)

    def test_the_naive_fit_goes_there_and_the_corrected_one_to_the_truth(self, epsilon: float) -> None:
        x, y, noise = simulated(np.random.default_rng(3), 1_000_000, epsilon)
        naive = naive_fit(x, y)
        _, slope, intercept, residual = LIMITS[epsilon]
        assert naive.coefficients == pytest.approx([intercept, slope], abs=0.12)
        assert naive.coefficients[1] == pytest.approx(slope, abs=0.01)
        assert naive.residual_variance == pytest.approx(residual, rel=0.01)
        fit = corrected_fit(x, y, noise=noise.variance, noise_y=noise.variance)
        assert fit.coefficients[1] == pytest.approx(4.0, abs={0.5: 0.05, 0.2: 0.2, 0.1: 0.6}[epsilon])
        assert abs(fit.coefficients[1] - 4) < 4 * fit.standard_errors[1]
        assert fit.standard_errors[1] < {0.5: 0.03, 0.2: 0.1, 0.1: 0.3}[epsilon]


class TestMomentCorrection:
    def test_without_noise_it_is_least_squares(self) -> None:
        rng = np.random.default_rng(1)
        x, y = rng.normal(size=(50, 2)), rng.normal(size=50)
        plain, same = naive_fit(x, y), corrected_fit(x, y, noise=[0.0, 0.0])
        np.testing.assert_allclose(plain.coefficients, same.coefficients)
        assert plain.residual_variance == pytest.approx(same.residual_variance)

    def test_residual_variance_is_that_around_the_true_line(self) -> None:
        x, y, noise = simulated(np.random.default_rng(4), 400_000, 0.5)
        fit = corrected_fit(x, y, noise=noise.variance, noise_y=noise.variance)
        assert fit.residual_variance == pytest.approx(25, abs=2.5)

    def test_noise_that_both_share_is_taken_off(self) -> None:
        """Response and regressor have part of their noise in common, as sums of the same noisy cells do."""
        rng = np.random.default_rng(5)
        truth = rng.poisson(30, 200_000)
        shared, own = rng.normal(0, 4, len(truth)), rng.normal(0, 2, len(truth))
        x, y = truth + shared, 1 + 0.5 * truth + shared + own
        right = corrected_fit(x, y, noise=16.0, noise_y=20.0, noise_xy=[16.0])
        wrong = corrected_fit(x, y, noise=16.0, noise_y=20.0)
        assert right.coefficients == pytest.approx([1, 0.5], abs=0.3)
        assert right.residual_variance == pytest.approx(0, abs=0.3)
        assert wrong.coefficients[1] > 0.9

    def test_standard_errors_are_those_of_repetition(self) -> None:
        rng = np.random.default_rng(6)
        found = []
        for _ in range(400):
            x, y, noise = simulated(rng, 500, 0.5)
            fit = corrected_fit(x, y, noise=noise.variance, noise_y=noise.variance)
            found.append((fit.coefficients[1], fit.standard_errors[1]))
        slopes, errors = np.array(found).T
        assert np.median(errors) == pytest.approx(slopes.std(), rel=0.2)

    @pytest.mark.parametrize(
        ("x", "noise", "words"),
        [
            (np.arange(10.0), 100.0, "positive definite"),
            (np.column_stack([np.arange(10.0), np.arange(10.0)]), [0.0, 0.0], "positive definite"),
            (np.arange(10.0), [1.0, 1.0], "covariance matrix"),
            (np.arange(10.0), -1.0, "covariance matrix"),
            (np.full(10, np.nan), 1.0, "finite"),
            (np.arange(9.0), 1.0, "together"),
        ],
    )
    def test_degenerate_problems_are_named(self, x, noise, words: str) -> None:
        with pytest.raises(InputError, match=words):
            corrected_fit(x, np.arange(10.0), noise=noise)

    def test_naive_fit_of_a_constant_is_named(self) -> None:
        with pytest.raises(InputError, match="do not vary"):
            naive_fit(np.ones(10), np.arange(10.0))
        with pytest.raises(InputError, match="more rows"):
            naive_fit([1.0, 2.0], [1.0, 2.0])


class TestExactLikelihood:
    @given(r=st.floats(-40, 40), sigma=st.floats(0.3, 8), scale=st.floats(0.5, 8))
    def test_normal_laplace_is_the_convolution(self, r: float, sigma: float, scale: float) -> None:
        u = np.linspace(-12 * sigma, 12 * sigma, 20_001) + 0.0
        direct = np.trapezoid(norm.pdf(u, scale=sigma) * laplace.pdf(r - u, scale=scale), u)
        assert math.exp(normal_laplace_log_density([r], sigma, scale)[0]) == pytest.approx(direct, rel=1e-4)

    def test_normal_laplace_far_out_is_finite(self) -> None:
        far = normal_laplace_log_density([-1e5, 1e5], 2.0, 3.0)
        assert far == pytest.approx([-1e5 / 3 + 2 / 9 - math.log(6)] * 2)

    @pytest.mark.parametrize("kind", ["laplace", "gaussian"])
    def test_likelihood_against_a_direct_sum(self, kind: str) -> None:
        rng = np.random.default_rng(2)
        noise_x = noise_of(DiscreteLaplace(2))
        noise_y = laplace_noise(2) if kind == "laplace" else gaussian(8)
        x, y = rng.poisson(10, 8) + noise_x.draw(rng, 8), 30 + rng.normal(0, 12, 8)
        problem = CountRegression.of(x, y, noise_x=noise_x, noise_y=noise_y)
        b0, b1, sigma, mu = -4.0, 3.5, 4.0, 9.0
        direct = 0.0
        for a, b in zip(x, y, strict=True):
            s = np.arange(400)
            away = b - b0 - b1 * s
            spread = math.hypot(sigma, 8**0.5)
            y_part = (
                np.exp(normal_laplace_log_density(away, sigma, 2.0)) if kind == "laplace" else norm.pdf(away, 0, spread)
            )
            direct += math.log((poisson.pmf(s, mu) * np.exp(noise_x.log_density(a - s)) * y_part).sum())
        at = np.array([b0, b1, math.log(sigma - 1e-3), math.log(mu)])
        assert problem.log_likelihood(at) == pytest.approx(direct, rel=1e-9)
        numeric = gradients(lambda t: np.array([problem.log_likelihood(t)]), at)[0]
        np.testing.assert_allclose(problem.with_gradient(at)[1], numeric, rtol=1e-5, atol=1e-6)

    def test_fit_and_intervals_of_a_larger_sample(self) -> None:
        x, y, noise = simulated(np.random.default_rng(8), 200, 0.5)
        fit = fit_by_likelihood(x, y, noise_x=noise, noise_y=noise)
        assert fit.coefficients[1] == pytest.approx(4, abs=0.6)
        assert fit.mu == pytest.approx(10, abs=0.8)
        low, high = fit.profile()
        assert low < fit.coefficients[1] < high
        assert fit.deviance(low) == pytest.approx(fit.threshold(), abs=0.05)
        assert low < 4 < high
        wald = fit.wald()[1]
        assert wald[1] - wald[0] == pytest.approx(high - low, rel=0.5)

    def test_the_threshold_tends_to_chi_squared_and_is_exact_without_noise(self) -> None:
        rng = np.random.default_rng(1)
        noise = laplace_noise(1.0)
        few, many = (
            fit_by_likelihood(rng.poisson(10, n), rng.normal(size=n), noise_x=noise, noise_y=noise).threshold()
            for n in (10, 2000)
        )
        assert many == pytest.approx(chi2.ppf(0.95, 1), rel=2e-3)
        t = 2.306004  # Student's quantile with 8 degrees of freedom
        assert few == pytest.approx(10 * math.log1p(t**2 / 8), rel=1e-6)

    def test_discrete_noise_on_a_real_response_is_refused(self) -> None:
        with pytest.raises(UsageError, match="moment correction"):
            fit_by_likelihood(np.arange(9), np.arange(9), noise_x=laplace_noise(1), noise_y=DiscreteLaplace(2))

    @pytest.mark.slow
    def test_profile_covers_at_ten_rows_where_wald_does_not(self) -> None:
        rng = np.random.default_rng(7)
        profile, wald, n = 0, 0, 300
        for _ in range(n):
            x, y, noise = simulated(rng, 10, 0.5)
            fit = fit_by_likelihood(x, y, noise_x=noise, noise_y=noise)
            profile += fit.deviance(4.0) <= fit.threshold()
            try:
                low, high = fit.wald()[1]
                wald += bool(low <= 4 <= high)
            except InputError:
                pass
        assert 0.91 <= profile / n <= 0.98
        assert wald / n < 0.6


class TestPage:
    def test_regions_hold_what_they_should(self) -> None:
        found = example()
        for each in found:
            fit = each["corrected"]
            edge = outline(fit, points=8)[:, ::-1] - fit.coefficients
            distances = np.einsum("ni,ij,nj->n", edge, np.linalg.inv(fit.covariance), edge)
            np.testing.assert_allclose(distances, chi2.ppf(0.95, 2))
            away = np.array([-5.0, 4.0])
            inside = [
                (away - f.coefficients) @ np.linalg.inv(f.covariance) @ (away - f.coefficients) < chi2.ppf(0.95, 2)
                for f in (each["naive"], fit)
            ]
            assert inside == [False, True], each["epsilon"]

    def test_a_refused_correction_is_said(self) -> None:
        found = example(rows=2_000)
        found[2]["corrected"] = None
        page = render(found, rows=2_000)
        assert "was refused" in page
        assert page.count("was refused") == 1


class TestMeasuredCounts:
    """The likelihood of one measured count on another, with the noise of releases."""

    @pytest.mark.parametrize(
        ("mechanism", "answers"),
        [(DiscreteGaussian(4), 1), (DiscreteGaussian(3), 3), (DiscreteGaussian("1/2"), 1), (DiscreteLaplace(2), 2)],
    )
    def test_likelihood_and_gradient_against_a_direct_sum(self, mechanism: TwoSidedNoise, answers: int) -> None:
        rng = np.random.default_rng(3)
        noise = CountNoise.of(mechanism, answers)
        x, y = rng.negative_binomial(2, 2 / 17, 6) + rng.integers(-2, 3, 6), rng.integers(-3, 20, 6)
        problem = MeasuredRegression.of(x, y, noise_x=noise, noise_y=noise)
        b0, b1, sigma, mu, size, tau = 1.0, 0.7, 1.5, 12.0, 2.5, 0.1
        true, response = np.arange(300), np.arange(-150, 200)
        single = noise_of(mechanism)
        probability = np.exp(single.log_density(np.arange(-80, 81)))
        summed = probability
        for _ in range(answers - 1):
            summed = np.convolve(summed, probability)
        law = dict(zip(range(-(len(summed) // 2), len(summed) // 2 + 1), summed, strict=True))
        spread = np.sqrt(sigma**2 + (tau * true) ** 2)[:, None]
        away = response - (b0 + b1 * true)[:, None]
        rounded = norm.cdf((away + 0.5) / spread) - norm.cdf((away - 0.5) / spread)
        direct = 0.0
        for a, b in zip(x.tolist(), y.tolist(), strict=True):
            of_x = np.array([law.get(a - k, 0.0) for k in true.tolist()])
            of_y = np.array([law.get(b - k, 0.0) for k in response.tolist()])
            direct += math.log((nbinom.pmf(true, size, size / (size + mu)) * of_x) @ rounded @ of_y)
        at = np.array([b0, b1, math.log(sigma - 1e-3), math.log(mu), math.log(size), math.log(tau)])
        value, gradient = problem.with_gradient(at)
        assert value == pytest.approx(direct, rel=1e-8)
        numeric = gradients(lambda t: np.array([problem.with_gradient(t)[0]]), at)[0]
        np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-6)

    @pytest.mark.slow
    def test_the_fit_undoes_the_attenuation(self) -> None:
        rng = np.random.default_rng(4)
        x = rng.negative_binomial(3, 3 / 23, 150)
        y = np.rint(2 + 0.5 * x + rng.normal(0, 1, 150) * np.sqrt(4 + (0.1 * x) ** 2))
        law = noise_of(DiscreteGaussian(100))
        noise = CountNoise.of(DiscreteGaussian(100))
        u, v = law.draw(rng, (2, 150))
        fit = fit_measured_counts(x + u, y + v, noise_x=noise, noise_y=noise)
        low, high = fit.profile()
        assert low < 0.5 < high
        assert naive_fit(x + u, y + v).intervals()[1][1] < 0.5
        assert fit.mu == pytest.approx(20, abs=4)

    def test_what_cannot_be_summed_is_named(self) -> None:
        noise = CountNoise.of(DiscreteGaussian(4))
        many = CountNoise.of(DiscreteLaplace(200))
        for x, y, on_y, words in (
            ([1, 2, 3], [1, 2, 3], noise, "four pairs"),
            ([1, 2, 3, 4.5], [1, 2, 3, 4], noise, "fractions"),
            ([1, 2, 3, -400], [1, 2, 3, 4], noise, "no count and noise"),
            (np.arange(900), np.arange(900), many, "moment correction"),
        ):
            with pytest.raises(InputError, match=words):
                fit_measured_counts(x, y, noise_x=noise, noise_y=on_y)
