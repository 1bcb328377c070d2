"""Density: golden rates, bins chosen from noisy counts alone, the simplex against brute force."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import beta

from das.inference.confidential.density import Density, density, joined_bins, on_simplex
from das.storage.single_release import Budget, Charge

LAW = beta(3, 3)
TEST = Charge(testing_key="density", data="generated")
NO_NOISE = Budget("pure", 10**9)


def l2_error(found: Density) -> float:
    """Root of the integrated squared distance from the density, exact to the midpoint rule."""
    x = (np.arange(20_160) + 0.5) / 20_160
    heights = np.array(found.heights)[np.minimum((x * found.bins).astype(int), found.bins - 1)]
    return float(np.sqrt(np.mean((heights - LAW.pdf(x)) ** 2)))


def errors_at(n: int, budget: Budget, runs: int, bins="rule") -> float:
    rng = np.random.default_rng(n)
    found = [
        density(rng.beta(3, 3, n), (0, 1), budget, charge=Charge(testing_key=f"{n} {i}", data="generated"), bins=bins)
        for i in range(runs)
    ]
    return float(np.sqrt(np.mean([l2_error(each) ** 2 for each in found])))


SIZES = {10**3: 80, 10**4: 60, 10**5: 30, 10**6: 8}


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "golden"), [("none", -0.333), ("epsilon 1", -0.335), ("epsilon n^-1/3", -0.329)])
def test_golden_rate_is_that_of_a_histogram_without_noise(noise: str, golden: float) -> None:
    """The slope of log L2 error on log n is -1/3; at n = 10^6 noise of epsilon 1 does not show."""
    found = []
    for n, runs in SIZES.items():
        epsilon = {"none": 10**9, "epsilon 1": 1, "epsilon n^-1/3": Fraction(1, round(n ** (1 / 3)))}[noise]
        found.append(errors_at(n, Budget("pure", epsilon), runs))
    slope = np.polyfit(np.log(list(SIZES)), np.log(found), 1)[0]
    assert slope == pytest.approx(golden, abs=0.02)
    if noise != "epsilon n^-1/3":
        assert found[-1] == pytest.approx(0.01588, rel=0.05)


def test_the_error_is_the_one_of_the_formula() -> None:
    """MISE = int h'^2 / (12 d^2) + (d - int h^2) / n + v d^2 / n^2, for replacing: v = 2 (2/epsilon)^2."""
    n, d, epsilon = 4000, 16, Fraction(1, 2)
    variance = 2 * (2 / float(epsilon)) ** 2
    theory = 17.142857 / (12 * d * d) + (d - 10 / 7) / n + variance * d * d / n**2
    assert errors_at(n, Budget("pure", epsilon), 40) ** 2 == pytest.approx(theory, rel=0.1)


def test_chosen_bins_are_nearly_as_good_as_the_rule_and_depend_on_noisy_counts_alone() -> None:
    n, budget = 20_000, Budget("pure", 1)
    assert errors_at(n, budget, 15, "cross-validation") < 1.1 * errors_at(n, budget, 15)
    narrow = np.random.default_rng(1).normal(0.5, 0.02, n)
    found = density(narrow, (0, 1), budget, charge=TEST)
    assert found.bins >= 60  # the rule has 28
    flat = density(np.random.default_rng(1).uniform(size=n), (0, 1), budget, charge=TEST)
    assert flat.bins <= 4


@given(st.integers(2, 40), st.integers(0, 10**6))
def test_cross_validation_is_leave_one_out(rows: int, seed: int) -> None:
    """Without noise the criterion is int h^2 - 2 mean of the density at each row estimated from the others."""
    place = np.random.default_rng(seed).integers(0, 12, rows)
    risks = {}
    for d in (1, 2, 3, 4, 6, 12):
        bins = place * d // 12
        counts = np.bincount(bins, minlength=d)
        left_out = d * (counts[bins] - 1) / (rows - 1)
        risks[d] = d * float(np.square(counts / rows).sum()) - 2 * float(left_out.mean())
    chosen = joined_bins(np.bincount(place, minlength=12), rows, 0.0)
    assert risks[chosen] == pytest.approx(min(risks.values()), abs=1e-9)


@given(arrays(np.float64, st.integers(1, 6), elements=st.floats(-2, 2)))
def test_the_nearest_probabilities(values: np.ndarray) -> None:
    found = on_simplex(values)
    assert found.sum() == pytest.approx(1)
    assert (found >= 0).all()
    rng = np.random.default_rng(1)
    others = rng.dirichlet(np.ones(len(values)), 50)
    assert np.sum((found - values) ** 2) <= np.sum((others - values) ** 2, axis=1).min() + 1e-12


def test_values_beyond_the_bounds_are_counted_at_the_ends() -> None:
    found = density(np.array([-5.0, 0.5, 9.0, 9.0] * 100), (0, 1), NO_NOISE, charge=TEST, bins=2)
    assert found.counts == (100, 300)
    assert found.edges == (0.0, 0.5, 1.0)


def test_one_document_comes_out() -> None:
    found = density(np.random.default_rng(1).beta(3, 3, 500), (0, 1), Budget("zcdp", 1), charge=TEST, bins=5)
    document = json.loads(json.dumps(found.to_json()))
    assert document["privacy"]["spent"] == {"counts": "1"}
    assert len(document["heights"]) == len(document["counts"]) == document["bins"] == 5
    assert all(low <= high for low, high in document["ci"])
