"""Sample-and-aggregate and private maximum likelihood: golden numbers, intervals, vectors, grids."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.bench.coverage_udp import exponential_rate
from das.errors import ConfigError, UsageError
from das.inference.confidential.grid import Grid
from das.inference.confidential.parts import PartOptions
from das.inference.confidential.row_statistics import BUILT_IN
from das.inference.confidential.sample_aggregate import private_mle, release_parts, sample_aggregate
from das.storage.single_release import Budget, Charge, single_release

TEST = Charge(testing_key="sa", data="generated")


@given(st.floats(-20, 20), st.integers(1, 30))
def test_a_grid_point_is_the_nearest_one_within_the_bounds(value: float, bits: int) -> None:
    grid = Grid(-3, "7/2", bits=bits)
    (integer,) = grid.integers(np.array([value])).tolist()
    assert 0 <= integer <= grid.steps
    inside = min(max(Fraction(value), grid.lower), grid.upper)
    assert abs(grid.lower + grid.step * integer - inside) <= grid.step * Fraction(501, 1000)


def test_a_vector_spends_the_budget_on_all_its_coordinates() -> None:
    def two(rows: np.ndarray) -> tuple[float, float]:
        return float(rows.mean()), float(rows.std())

    rows = np.random.default_rng(1).normal(3, 1, 4000)
    options, budget = PartOptions(parts=200), Budget("zcdp", 1)
    found = sample_aggregate(rows, two, [(0, 10), (0, 5)], budget, options=options, charge=TEST)
    alone = sample_aggregate(rows, BUILT_IN["mean"], (0, 10), budget, options=options, charge=TEST)
    assert found.noise_se[0] == pytest.approx(alone.noise_se[0] * 2**0.5, rel=1e-6)
    assert found.noise_se[1] == pytest.approx(found.noise_se[0] / 2, rel=1e-6)
    assert found.estimate == pytest.approx((3, 1), abs=0.3)
    with pytest.raises(ConfigError, match="pairs"):
        sample_aggregate(rows, two, [(0, 10), 5], budget, options=options, charge=TEST)


def test_without_a_share_the_largest_variance_is_taken() -> None:
    rows, options = np.random.default_rng(1).normal(5, 1, 4000), PartOptions(parts=200)
    wide = sample_aggregate(rows, BUILT_IN["mean"], (0, 10), Budget("zcdp", 1), options=options, charge=TEST)
    share = Fraction(1, 4)
    fine = sample_aggregate(
        rows, BUILT_IN["mean"], (4, 6), Budget("zcdp", 1), options=options, charge=TEST, spread_share=share
    )
    assert (wide.spread, fine.spread) == (("bound",), ("released",))
    assert wide.se[0] ** 2 - wide.noise_se[0] ** 2 == pytest.approx(25 / 200, rel=0.02)
    assert fine.se[0] ** 2 - fine.noise_se[0] ** 2 == pytest.approx(0.05 / 200, rel=0.5)
    assert fine.privacy["spent"] == {"estimate": "3/4", "spread": "1/4"}


def scaled_errors(n: int, power: float, *, corrected: bool, runs: int) -> np.ndarray:
    """sqrt(n) (estimate - 1) for the rate of n exponential rows in k = n^power blocks of m; D = 4 and epsilon = 1.

    A block's estimate is m over a Gamma(m) sum, so that blocks are drawn directly.
    """
    k = int(n**power)
    m = n // k
    rng, budget, grids = np.random.default_rng([n, k]), Budget("pure", 1), (Grid(0, 4),)
    found = []
    for run in range(runs):
        rate = m / rng.gamma(m, 1, size=(k, 1)) * ((m - 1) / m if corrected else 1)
        with single_release(Charge(testing_key=f"{n} {run}", data="generated"), budget, {}, "") as release:
            (mean,) = release_parts(rate, grids, budget, Fraction(0), release)
        found.append(mean.value)
    return np.sqrt(n) * (np.array(found) - 1)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "ratio"), [(10**4, 1.90), (10**5, 1.44), (10**6, 1.08)])
def test_golden_efficiency_of_bias_corrected_blocks(n: int, ratio: float) -> None:
    assert np.mean(scaled_errors(n, 0.7, corrected=True, runs=1000) ** 2) == pytest.approx(ratio, abs=0.2)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "bias"), [(10**4, 3.34), (10**5, 4.34), (10**6, 5.68)])
def test_golden_bias_of_uncorrected_blocks_grows(n: int, bias: float) -> None:
    assert np.mean(scaled_errors(n, 0.625, corrected=False, runs=1500)) == pytest.approx(bias, abs=0.2)


def test_private_maximum_likelihood_removes_the_bias_of_blocks() -> None:
    rows = np.random.default_rng(1).exponential(1.0, 20_000)
    options, budget = PartOptions(parts=1000), Budget("zcdp", 4)
    naive = sample_aggregate(rows, exponential_rate, (0, 4), budget, options=options, charge=TEST).estimate[0]
    found = private_mle(rows, exponential_rate, (0, 4), budget, options=options, charge=TEST).estimate[0]
    assert naive == pytest.approx(20 / 19, abs=0.015)
    assert found == pytest.approx(1, abs=0.03)


def test_bounds_that_do_not_fit_a_built_in_statistic_are_named() -> None:
    rows = np.random.default_rng(1).normal(5, 1, (2000, 2))
    with pytest.raises(UsageError, match="2 pairs are given, and 'ols' has 1 number"):
        sample_aggregate(
            rows, BUILT_IN["ols"], [(0, 10), (0, 1)], Budget("pure", 1), options=PartOptions(parts=20), charge=TEST
        )
