"""Limits: their coverage by exact sums and integrals, and the published tables of Feldman and Cousins."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from das.inference.intervals.limits import feldman_cousins, fieller, half_width, normal_limits
from das.noise import DiscreteGaussian, DiscreteLaplace


@pytest.mark.parametrize(
    ("sigma", "half", "normal"), [("1/2", 1, 0.787), ("1", 2, 0.883), ("3/2", 3, 0.911), ("2", 4, 0.923)]
)
def test_one_measurement_with_small_noise_needs_its_own_quantiles(sigma: str, half: int, normal: float) -> None:
    """Half widths and coverages as INFERENCE 3.5 has them: the normal interval is too narrow."""
    noise = DiscreteGaussian(Fraction(sigma) ** 2)
    assert half_width(noise, 1.0, 0.95) == half
    k = np.arange(-60, 61)
    probability = np.exp(noise.log_pmf(k))
    assert probability[np.abs(k) <= half].sum() >= 0.95
    assert probability[np.abs(k) <= half - 1].sum() < 0.95
    _, high = normal_limits(np.zeros(1), np.array([np.sqrt(noise.variance())]), 0.95)
    assert probability[np.abs(k) <= high[0]].sum() == pytest.approx(normal, abs=2e-3)


@pytest.mark.parametrize("noise", [DiscreteGaussian(Fraction(1, 4)), DiscreteGaussian(3), DiscreteLaplace(7)])
@pytest.mark.parametrize("weight", [0.2, 0.7, 0.99])
def test_a_noise_mixed_with_a_normal_error_is_covered_exactly(
    noise: DiscreteGaussian | DiscreteLaplace, weight: float
) -> None:
    half = half_width(noise, weight, 0.9)
    k = np.arange(-400, 401)
    rest = np.sqrt(weight * (1 - weight) * noise.variance())
    inside = stats.norm.cdf((half - weight * k) / rest) - stats.norm.cdf((-half - weight * k) / rest)
    assert float(np.exp(noise.log_pmf(k)) @ inside) == pytest.approx(0.9, abs=1e-6)


def test_a_laplace_measurement_is_wider_than_the_normal_interval() -> None:
    noise = DiscreteLaplace(50)
    normal = 1.959964 * np.sqrt(noise.variance())
    assert half_width(noise, 1.0, 0.95) == pytest.approx(50 * np.log(20), abs=1.5)
    assert half_width(noise, 1.0, 0.95) > 1.05 * normal


@pytest.mark.parametrize("mean", [0.0, 0.1, 0.7, 1.5, 3.0, 10.0])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_feldman_cousins_covers_with_the_stated_probability(mean: float, confidence: float) -> None:
    """The outcomes whose interval holds the mean are an interval of their own; its probability is the coverage."""
    x = np.linspace(mean - 9, mean + 9, 20001)
    low, high = feldman_cousins(x, np.ones_like(x), confidence)
    inside = (low <= mean + 1e-9) & (mean <= high + 1e-12)
    covered = float((stats.norm.pdf(x - mean) * inside).sum() * (x[1] - x[0]))
    assert covered == pytest.approx(confidence, abs=2e-3)
    assert (high > 0).all()


def test_feldman_cousins_equals_the_published_table() -> None:
    """Feldman and Cousins 1998, table X, 90 %: outcomes -2, -1, 0, 1, 2, 3."""
    low, high = feldman_cousins(np.array([-2.0, -1, 0, 1, 2, 3]), np.ones(6), 0.9)
    np.testing.assert_allclose(low, [0, 0, 0, 0, 0.58, 1.37], atol=0.01)
    np.testing.assert_allclose(high, [0.40, 0.81, 1.64, 2.64, 3.64, 4.64], atol=0.01)


def test_what_is_known_exactly_stays_so() -> None:
    assert [end.tolist() for end in feldman_cousins(np.array([5.0]), np.zeros(1), 0.95)] == [[5.0], [5.0]]


@given(
    n=st.floats(-5, 50),
    d=st.floats(5, 100),
    deviations=st.tuples(st.floats(0.1, 3), st.floats(0.1, 2)),
    correlation=st.floats(-0.9, 0.9),
)
def test_at_fiellers_ends_the_difference_is_as_many_deviations_from_zero(
    n: float, d: float, deviations: tuple[float, float], correlation: float
) -> None:
    of_n, of_d = deviations[0] ** 2, deviations[1] ** 2
    both = correlation * deviations[0] * deviations[1]
    arrays = [np.array([value]) for value in (n, d, of_n, of_d, both)]
    low, high = fieller(arrays[0], arrays[1], (arrays[2], arrays[3], arrays[4]), 0.95)
    if d * d <= 1.959964**2 * of_d * (1 + 1e-9):
        assert (low[0], high[0]) == (-np.inf, np.inf)
        return
    for r in (low[0], high[0]):
        assert abs(n - r * d) == pytest.approx(
            1.959964 * np.sqrt(of_n - 2 * r * both + r * r * of_d), rel=1e-5, abs=1e-6
        )
    assert low[0] <= n / d + 1e-9 <= high[0] + 2e-9
