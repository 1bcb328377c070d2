"""Golden numbers and laws: selection, clamping, stability, MWEM, private moments.

Figures are those of the project's inference specification, sections 1.5 to 1.7 and 2.
"""

from __future__ import annotations

from fractions import Fraction
from math import exp

import numpy as np
import pytest
from scipy.stats import chi2

from das.errors import BudgetError, InputError
from das.noise import DiscreteLaplace, RunKey, Streams
from das.schema.query import Neighbours
from das.synthesis.cost import epsilon_of_selection, rho_for, selection_cost
from das.synthesis.curator import Curator, Records
from das.synthesis.domain import NO_CONSTRAINTS, Constraints, Domain, Invariant
from das.synthesis.exponential import choose
from das.synthesis.gaussian import NumericCurator, fit_gaussian
from das.synthesis.histogram import clamping_bias, fit_exponential, fit_histogram
from das.synthesis.invariant_rounding import round_to_invariants
from das.synthesis.mwem import MwemOptions, fit_mwem_cells
from das.synthesis.pmw import PmwOptions, fit_pmw
from das.synthesis.stability import fit_stability, leak, threshold

MILLIONTH = Fraction(1, 10**6)


def streams(key: str) -> Streams:
    return RunKey.for_testing(key).streams(b"figures")


def curator_of(
    records: Records, key: str, *, framework: str = "pure", epsilon: Fraction = Fraction(1), **more
) -> Curator:
    more.setdefault("neighbours", Neighbours.ADD_REMOVE)
    return Curator(records, streams(key), framework=framework, budget=epsilon, **more)


def test_selection_has_its_exact_law_and_no_other() -> None:
    scores, epsilon = [0, 1, 2, 4, 4], Fraction(6, 5)
    bits = streams("selection").bits(("", "", "select", ""))
    drawn = np.bincount([choose(bits, scores, epsilon=epsilon, sensitivity=1) for _ in range(6_000)], minlength=5)

    def p_value(temperature: float) -> float:
        weight = np.exp(float(epsilon) * temperature * np.array(scores) / 2)
        expected = 6_000 * weight / weight.sum()
        return float(chi2.sf(((drawn - expected) ** 2 / expected).sum(), 4))

    assert p_value(1.0) > 1e-6
    assert p_value(1.4) < 1e-12
    assert p_value(0.6) < 1e-12


def test_selection_costs() -> None:
    for rho in (Fraction(1, 7), Fraction("0.0000117")):
        epsilon = epsilon_of_selection(rho)
        assert 0 <= rho - selection_cost(epsilon) < Fraction(1, 10**11)
    assert float(rho_for(Fraction(1), Fraction(1, 10**9))) == pytest.approx(0.014973, abs=1e-6)
    with pytest.raises(BudgetError):
        rho_for(Fraction(1, 10**12), Fraction(1, 10**15))


def test_stability_constants() -> None:
    one = Fraction(1)
    assert threshold(one, MILLIONTH, Neighbours.REPLACE) == 28
    assert threshold(one, MILLIONTH, Neighbours.ADD_REMOVE) == 14
    assert leak(one, MILLIONTH, Neighbours.REPLACE) == pytest.approx(5.176e-7, rel=1e-3)
    for neighbours in Neighbours:
        for epsilon in (Fraction(1, 3), Fraction(2), Fraction(7, 5)):
            changed = 2 if neighbours is Neighbours.REPLACE else 1
            noise = DiscreteLaplace(Fraction(changed) / epsilon)
            above = threshold(epsilon, MILLIONTH, neighbours)
            released = 1 - noise.cdf(above - 1)  # 1 + Z > T
            assert leak(epsilon, MILLIONTH, neighbours) == pytest.approx(released, rel=1e-6)
            assert released < 1e-6
    noise = DiscreteLaplace(2)
    assert noise.mean_absolute() == pytest.approx(1.9190, abs=5e-5)
    assert noise.variance() ** 0.5 == pytest.approx(2.7992, abs=5e-5)


def test_stability_on_a_large_domain_releases_the_frequent_cells_alone() -> None:
    """Zipf's law with exponent 1.2 on 20,000 of a million labels: 242 of 7,745 bins, largest error 33, L1 / n .202."""
    weight = np.arange(1, 20_001) ** -1.2
    codes = np.random.default_rng(11).choice(20_000, 100_000, p=weight / weight.sum())[:, None]
    records = Records(Domain(("word",), (10**6,)), codes)
    truth = records.counts(("word",))
    assert (truth > 0).sum() == pytest.approx(7745, rel=0.03)
    model = fit_stability(curator_of(records, "zipf", neighbours=Neighbours.REPLACE), NO_CONSTRAINTS, None)
    found = model.cells[:, 0]
    assert (np.diff(found) > 0).all(), "in the order of labels"
    assert (truth[found] > 0).all()
    assert set(np.flatnonzero(truth > 60)) <= set(found)
    assert len(found) == pytest.approx(242, rel=0.05)
    whole = truth.astype(float)
    whole[found] -= model.weights
    assert np.abs(whole).max() == pytest.approx(33, abs=6)
    assert np.abs(whole).sum() / len(codes) == pytest.approx(0.202, rel=0.05)
    # all cells and clamping instead: .9595 on each of nearly a million empty cells
    clamped = fit_histogram(curator_of(records, "zipf", neighbours=Neighbours.REPLACE), NO_CONSTRAINTS, None)
    everywhere = -truth.astype(float)
    everywhere[clamped.cells[:, 0]] += clamped.weights
    assert np.abs(everywhere).sum() / len(codes) == pytest.approx(9.63, rel=0.01)


def test_a_file_of_single_records_releases_nothing() -> None:
    records = Records(Domain(("id",), (10**6,)), np.arange(5_000)[:, None])
    with pytest.raises(Exception, match="no cell is above"):
        fit_stability(curator_of(records, "single"), NO_CONSTRAINTS, None)


def test_clamping_bias_is_what_empty_cells_get() -> None:
    records = Records(Domain(("cell",), (200_000,)), np.zeros((10, 1), dtype=np.int64))
    model = fit_histogram(curator_of(records, "bias", neighbours=Neighbours.REPLACE), NO_CONSTRAINTS, None)
    mean = model.weights[model.cells[:, 0] > 0].sum() / 199_999
    assert mean == pytest.approx(clamping_bias(Fraction(1), 2), rel=0.02)
    assert mean == pytest.approx(0.9595, rel=0.02)


def test_the_exponential_histogram_has_its_law_on_the_range() -> None:
    records = Records(Domain(("cell",), (20_000,)), np.zeros((3, 1), dtype=np.int64))
    curator = curator_of(records, "range", epsilon=Fraction(2))
    model = fit_exponential(curator, NO_CONSTRAINTS, 3)
    counts = np.zeros(20_000)
    counts[model.cells[:, 0]] = model.weights
    drawn = np.bincount(counts[1:].astype(int), minlength=4)

    def p_value(rate: float) -> float:
        expected = 19_999 * np.exp(-rate * np.arange(4)) / np.exp(-rate * np.arange(4)).sum()
        return float(chi2.sf(((drawn - expected) ** 2 / expected).sum(), 3))

    assert len(drawn) == 4
    assert p_value(1.0) > 1e-6  # epsilon / (2 changed)
    assert p_value(1.3) < 1e-12
    assert p_value(0.7) < 1e-12


def toy() -> Records:
    """Ten binary attributes with two classes of people: a uniform table is off by .074 on the 960 three-way counts."""
    rng = np.random.default_rng(3)
    kind = rng.random(10_000) < 0.5
    codes = rng.random((10_000, 10)) < np.where(kind[:, None], 0.8, 0.62)
    return Records(Domain(tuple(f"b{k}" for k in range(10)), (2,) * 10), codes.astype(np.int64))


@pytest.mark.parametrize(("rounds", "mean", "tolerance"), [(30, 0.0084, 0.0025), (10, 0.0110, 0.0035)])
def test_classical_mwem_on_the_toy(rounds: int, mean: float, tolerance: float) -> None:
    records = toy()
    sets = records.domain.subsets(3)
    truth = [records.counts(each) / 10_000 for each in sets]
    assert np.mean([np.abs(each - 1 / 8).mean() for each in truth]) == pytest.approx(0.0739, abs=0.006)
    model = fit_mwem_cells(
        curator_of(records, "toy"), NO_CONSTRAINTS, 10_000, MwemOptions(rounds=rounds, replays=30, degree=3)
    )
    errors = [np.abs(model.marginal(each) / 10_000 - one).mean() for each, one in zip(sets, truth, strict=True)]
    assert np.mean(errors) == pytest.approx(mean, abs=tolerance)


def test_the_search_of_pmw_has_its_exact_law_and_no_other() -> None:
    """Three counts, the middle one off by 6: which is found first, against sums over both noises."""
    records = Records(Domain(("cell",), (3,)), np.array([[1]] * 6))
    epsilon, runs = Fraction(2), 1_000
    found = np.zeros(4)
    for run in range(runs):
        curator = curator_of(records, f"search {run}", epsilon=epsilon)
        at = curator.first_above([("cell",)], [np.zeros(3)], 0, 4, epsilon)
        found[3 if at is None else at] += 1

    def p_value(factor: Fraction) -> float:
        limits, noise = np.arange(-60, 61), DiscreteLaplace(4 / epsilon * factor)
        threshold = DiscreteLaplace(2 / epsilon * factor)
        below = np.array([[noise.cdf(4 + int(r) - d - 1) for d in (0, 6, 0)] for r in limits])
        first = np.array([threshold.pmf(int(r)) for r in limits])
        silent = np.cumprod(below, axis=1)
        law = [first @ (1 - below[:, 0]), first @ (silent[:, 0] * (1 - below[:, 1]))]
        law += [first @ (silent[:, 1] * (1 - below[:, 2])), first @ silent[:, 2]]
        expected = runs * np.array(law)
        return float(chi2.sf(((found - expected) ** 2 / expected).sum(), 3))

    assert p_value(Fraction(1)) > 1e-6
    assert p_value(Fraction(7, 4)) < 1e-12
    assert p_value(Fraction(1, 2)) < 1e-12


def test_pmw_on_the_toy_lies_between_a_uniform_table_and_mwem() -> None:
    records = toy()
    sets = records.domain.subsets(3)
    model = fit_pmw(curator_of(records, "toy"), NO_CONSTRAINTS, 10_000, PmwOptions())
    errors = [np.abs(model.marginal(each) - records.counts(each)).mean() / 10_000 for each in sets]
    assert 0.008 < np.mean(errors) < 0.03


@pytest.mark.parametrize(
    ("n", "error", "tolerance"), [(1_000, 0.63, 0.2), (10_000, 0.078, 0.03), (100_000, 0.0099, 0.004)]
)
def test_private_moments(n: int, error: float, tolerance: float) -> None:
    rng = np.random.default_rng(2)
    factor = np.eye(5) + 0.1 * np.tri(5, k=-1)
    covariance = factor @ factor.T
    values = rng.multivariate_normal(np.full(5, 0.5), covariance, n)
    errors = []
    for repetition in range(4):
        curator = NumericCurator(
            [f"x{k}" for k in range(5)],
            values,
            streams(f"moments {repetition}"),
            centre=[0.0] * 5,
            radius=8.0,
            budget=rho_for(Fraction(1), MILLIONTH),
            neighbours=Neighbours.ADD_REMOVE,
        )
        model = fit_gaussian(curator)
        assert curator.left == 0
        errors.append(np.linalg.norm(model.covariance - covariance) / np.linalg.norm(covariance))
        assert np.abs(model.mean - 0.5).max() < 4000 / n
        assert np.linalg.eigvalsh(model.covariance).min() > -1e-9
    assert np.mean(errors) == pytest.approx(error, abs=tolerance)


def test_gaussian_rows_and_marginals_follow_the_model() -> None:
    curator = NumericCurator(
        ["x", "y"],
        np.random.default_rng(1).multivariate_normal([1, 2], [[1, 0.5], [0.5, 2]], 50_000),
        streams("rows"),
        centre=[0.0, 0.0],
        radius=10.0,
        budget=Fraction(1),
        neighbours=Neighbours.REPLACE,
    )
    model = fit_gaussian(curator)
    rows = model.rows(50_000, np.random.default_rng(2))
    assert np.cov(rows.T) == pytest.approx(model.covariance, rel=0.05, abs=0.02)
    assert model.marginal(["y"]).mean == pytest.approx([2.0], abs=0.05)
    assert [step.what for step in curator.spent.steps] == ["sum", "second moments"], "n is shared by neighbours"


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(InputError, match="finite"):
        NumericCurator(
            ["x"],
            np.array([[np.nan]]),
            streams("nan"),
            centre=[0.0],
            radius=1.0,
            budget=Fraction(1),
            neighbours=Neighbours.REPLACE,
        )


def test_rounding_to_crossing_invariants_is_exact_and_near() -> None:
    rng = np.random.default_rng(6)
    table = rng.integers(0, 6, (4, 5, 3))
    facts = Constraints(
        invariants=(Invariant(("a", "b"), table.sum(axis=2)), Invariant(("c",), table.sum(axis=(0, 1))))
    )
    expected = table + rng.normal(0, 0.2, table.shape) * (table > 0)
    rounded = round_to_invariants(np.maximum(expected, 0), ("a", "b", "c"), facts, rng)
    assert np.array_equal(rounded.sum(axis=2), table.sum(axis=2))
    assert np.array_equal(rounded.sum(axis=(0, 1)), table.sum(axis=(0, 1)))
    assert np.abs(rounded - expected).max() < 6


def test_clamping_bias_formula_by_summation() -> None:
    a = exp(-0.5)
    k = np.arange(400)
    assert clamping_bias(Fraction(1), 2) == pytest.approx(((1 - a) / (1 + a) * k * a**k).sum())
