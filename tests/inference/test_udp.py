"""UDP: the one equation and its covariance against brute force, golden numbers, and what is (not) released."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri
from scipy.stats import norm

from das.inference.confidential.censoring import correct, moments
from das.inference.confidential.grid import Grid
from das.inference.confidential.parts import PartOptions
from das.inference.confidential.row_statistics import BUILT_IN
from das.inference.confidential.udp import Released, UdpResult, infer, release_parts, udp
from das.storage.single_release import Budget, Charge, single_release

TEST = Charge(testing_key="udp", data="generated")
# Classical noise at epsilon 1, delta 1e-6 for each of the two numbers is about rho = 1/56 for each.
BUDGET, HALF = Budget("zcdp", "1/28"), Fraction(1, 2)


def test_the_censored_mean_of_a_quarter_is_the_golden_number() -> None:
    upper = 3 - float(ndtri(0.25))
    assert moments(3, 1, -upper, upper).mean == pytest.approx(2.85085, abs=1e-5)


def test_the_covariance_is_exact_with_both_bounds() -> None:
    """A quarter on either side: 0.1686; the formula that holds for one bound alone gives 0.1265."""
    z = float(-ndtri(0.25))
    law = moments(3, 1, 3 - z, 3 + z)
    assert law.covariance_high == pytest.approx(0.1686, abs=5e-5)
    assert 0.25 * 0.75 * z == pytest.approx(0.1265, abs=5e-5)
    x = np.random.default_rng(1).normal(3, 1, 400_000)
    assert np.cov(np.clip(x, 3 - z, 3 + z), x > 3 + z)[0, 1] == pytest.approx(law.covariance_high, abs=0.001)


@given(st.floats(-3, 3), st.floats(0.2, 3), st.floats(-2, 0), st.floats(0.5, 2))
def test_moments_agree_with_integration(theta: float, sigma: float, lower: float, upper: float) -> None:
    x = theta + sigma * ndtri((np.arange(20_000) + 0.5) / 20_000)
    c, above = np.clip(x, lower, upper), x > upper
    law = moments(theta, sigma, lower, upper)
    assert law.mean == pytest.approx(c.mean(), abs=2e-3)
    assert law.variance == pytest.approx(c.var(), abs=5e-3)
    assert law.alpha_low == pytest.approx((x < lower).mean(), abs=1e-3)
    assert law.alpha_high == pytest.approx(above.mean(), abs=1e-3)
    assert law.covariance_high == pytest.approx(np.cov(c, above, bias=True)[0, 1], abs=3e-3)


@given(st.floats(-1.5, 3), st.floats(0.3, 3))
def test_the_equation_gives_back_what_was_censored(theta: float, sigma: float) -> None:
    law = moments(theta, sigma, -2, 2)
    if not (0.01 < law.alpha_high < 0.9 and law.alpha_low < 0.9):
        return
    found = correct(law.mean, law.alpha_high, -2, 2)
    assert bool(found.feasible)
    assert float(found.theta) == pytest.approx(theta, abs=1e-6)
    assert float(found.sigma) == pytest.approx(sigma, rel=1e-6)


def test_the_one_sided_limit() -> None:
    """With a far lower bound sigma = (upper - mean) / (z (1 - alpha) + phi(z))."""
    alpha, mean, upper = np.array([0.1, 0.3, 0.6]), 1.0, 2.0
    z = norm.isf(alpha)
    found = correct(mean, alpha, -1e6, upper)
    assert found.sigma == pytest.approx((upper - mean) / (z * (1 - alpha) + norm.pdf(z)), rel=1e-6)


@pytest.mark.parametrize(
    ("mean", "alpha", "reason"),
    [
        (0.5, 0.0, "not positive"),
        (0.5, -0.1, "not positive"),
        (0.5, 1.0, "more parts lie beyond"),
        (0.1, 0.6, "more parts lie beyond"),
        (1.0, 0.2, "the released mean lies beyond the bounds"),
        (1.4, 0.2, "the released mean lies beyond the bounds"),
    ],
)
@pytest.mark.parametrize("upper_side", [True, False])
def test_an_infeasible_pair_is_a_flag_and_not_a_number(
    mean: float, alpha: float, reason: str, upper_side: bool
) -> None:
    released = Released(
        mean=mean if upper_side else -mean,
        mean_noise_variance=1e-4,
        share=alpha,
        share_noise_variance=1e-4,
        upper_side=upper_side,
        lower=-1,
        upper=1,
        parts=100,
    )
    if reason.startswith("more") and alpha < 1:
        released = replace(released, lower=0.0) if upper_side else replace(released, upper=0.0)
    found = infer(released, {}, critical=1.96, simulations=100, seed=1)
    assert not found.feasible
    assert reason in found.reason
    assert found.estimate == released.mean
    assert found.sigma is None
    assert np.isfinite(found.se)
    assert (found.alpha_high if upper_side else found.alpha_low) == alpha
    assert (found.alpha_low if upper_side else found.alpha_high) is None


def test_the_mirror_image_has_the_mirrored_result() -> None:
    common = {"mean_noise_variance": 1e-3, "share": 0.3, "share_noise_variance": 1e-3, "parts": 200}
    one = infer(
        Released(mean=1.2, upper_side=True, lower=-3, upper=2, **common), {}, critical=2, simulations=400, seed=5
    )
    two = infer(
        Released(mean=-1.2, upper_side=False, lower=-2, upper=3, **common), {}, critical=2, simulations=400, seed=5
    )
    assert one.feasible
    assert (two.estimate, two.se, two.sigma) == (-one.estimate, one.se, one.sigma)
    assert (two.alpha_low, two.alpha_high) == (one.alpha_high, one.alpha_low)
    assert two.ci == (-one.ci[1], -one.ci[0])


def replications(alpha: float, runs: int, *, mirrored: bool = False) -> list[UdpResult]:
    """Parts that are normal with mean 3 and deviation 1, P = 1000, clipped so that a share alpha lies beyond."""
    rng, bound = np.random.default_rng([int(1000 * alpha), mirrored]), 3 - float(ndtri(alpha))
    grid = Grid(6 - bound, 2 * bound) if mirrored else Grid(-bound, bound)
    found = []
    for run in range(runs):
        theta = rng.normal(3, 1, (1000, 1))
        with single_release(Charge(testing_key=f"{alpha} {run}", data="generated"), BUDGET, {}, "") as release:
            released = release_parts(theta, grid, BUDGET, HALF, release)
        found.append(infer(released, {}, critical=1.959964, simulations=300, seed=run))
    return found


def check_validity(
    found: list[UdpResult], *, tolerance: float, ratio: tuple[float, float], coverage: tuple[float, float]
) -> None:
    estimates = np.array([each.estimate for each in found])
    assert estimates.mean() == pytest.approx(3, abs=tolerance)
    assert ratio[0] <= np.mean([each.se for each in found]) / estimates.std() <= ratio[1]
    assert coverage[0] <= np.mean([each.ci[0] <= 3 <= each.ci[1] for each in found]) <= coverage[1]


@pytest.mark.parametrize("mirrored", [False, True])
def test_the_correction_in_a_few_runs(mirrored: bool) -> None:
    found = replications(0.25, 60, mirrored=mirrored)
    check_validity(found, tolerance=0.02, ratio=(0.75, 1.3), coverage=(0.85, 1))
    assert abs(np.mean([each.uncorrected for each in found]) - 3) > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.05, 0.125, 0.25, 0.375, 0.5])
def test_golden_validity_of_a_thousand_runs(alpha: float) -> None:
    found = replications(alpha, 1000)
    check_validity(found, tolerance=0.01, ratio=(0.95, 1.07), coverage=(0.92, 0.97))
    assert all(each.feasible for each in found)


@pytest.mark.slow
def test_golden_regression_from_rows_to_interval() -> None:
    """N = 25,000 and P = 250: half of the parts are clipped, and the corrected coefficient is 3 all the same."""
    covered, corrected, naive = [], [], []
    for run in range(60):
        rng = np.random.default_rng(run)
        x = rng.normal(size=25_000)
        rows = np.column_stack([1 + 3 * x + rng.normal(0, 10, 25_000), x])
        test = Charge(testing_key=f"ols {run}", data="generated")
        found = udp(rows, BUILT_IN["ols"], (-3, 3), 250, 10, Budget("zcdp", "1/4"), charge=test, simulations=300)
        covered.append(found.ci[0] <= 3 <= found.ci[1])
        corrected.append(found.estimate)
        naive.append(found.uncorrected)
    assert np.mean(naive) == pytest.approx(2.6, abs=0.1)  # E min(theta_p, 3) = 3 - phi(0), if theta_p has deviation 1
    assert np.mean(corrected) == pytest.approx(3, abs=0.15)
    assert np.mean(covered) >= 0.88


def test_nothing_comes_out_that_was_not_released() -> None:
    rows = np.random.default_rng(1).normal(3, 5, 2000)
    found = udp(rows, BUILT_IN["mean"], (0, "3.5"), 100, 5, Budget("zcdp", 1), charge=TEST, simulations=100)
    document = json.loads(json.dumps(found.to_json()))
    assert set(document) == {
        "estimate", "se", "ci", "alpha_low", "alpha_high", "sigma", "feasible", "reason", "uncorrected", "parts",
        "privacy",
    }  # fmt: skip
    assert document["privacy"]["spent"] == {"estimate": "3/4", "censored share": "1/4"}
    assert set(document["privacy"]["noise"]) == {"estimate", "censored share"}


def test_a_pure_budget_and_a_public_number_of_rows() -> None:
    rows = np.random.default_rng(1).normal(3, 5, 2003)
    budget = Budget("pure", 2, "add-remove")
    options = PartOptions(parts=100, rows=2000)
    found = udp(rows, BUILT_IN["mean"], (0, "3.5"), 100, 5, budget, charge=TEST, options=options)
    assert found.privacy["neighbours"] == "add-remove"
    assert "laplace" in found.privacy["noise"]["estimate"]
    assert found.estimate == pytest.approx(3, abs=6 * found.se)
