"""Composed loss distributions: never below the truth, hardly above it, and below zCDP."""

from __future__ import annotations

import math
import time
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from das.accounting import pld
from das.accounting.conversion import epsilon_upper, gdp_epsilon_upper
from das.accounting.events import (
    Change,
    Event,
    ExactEvent,
    GaussianEvent,
    KNormEvent,
    LaplaceEvent,
    NotSupported,
    UnknownEvent,
    zcdp_rho,
)
from das.accounting.pld import LossDistribution, loss_distribution
from das.accounting.policies import guarantee
from das.accounting.tight import tight_epsilon_upper

mpmath = pytest.importorskip("mpmath")
DELTA = Fraction(1, 10**10)


def gaussian(sigma2: str | int | Fraction) -> GaussianEvent:
    return GaussianEvent(level="us", query="total", sigma2=Fraction(sigma2))


def laplace(scale: str | int | Fraction) -> LaplaceEvent:
    return LaplaceEvent(level="us", query="total", scale=Fraction(scale))


def cell_law(event: Event, shift: int, reach: int) -> list[tuple[object, object]]:
    """(mass, loss) of one cell with 50 digits, straight from the mass functions of the two data sets."""

    def weight(x: int) -> object:
        if isinstance(event, GaussianEvent):
            return mpmath.exp(-mpmath.mpf(x * x) * event.sigma2.denominator / (2 * event.sigma2.numerator))
        return mpmath.exp(-mpmath.mpf(abs(x)) * event.scale.denominator / event.scale.numerator)

    normaliser = sum(weight(x) for x in range(-3 * reach, 3 * reach + 1))
    return [(weight(x) / normaliser, mpmath.log(weight(x) / weight(x - shift))) for x in range(-reach, reach + 1)]


def delta_precisely(measured: list[tuple[Event, Change]], epsilon: float, reach: int) -> object:
    """Sum over all outcomes of (p - e^epsilon q)_+, the definition; outcomes beyond the reach are left out."""
    with mpmath.workdps(50):
        laws = [cell_law(event, entry, reach) for event, change in measured for entry in change]
        total = mpmath.mpf(0)
        for outcome in product(*laws):
            mass = mpmath.fprod(p for p, _ in outcome)
            loss = mpmath.fsum(loss for _, loss in outcome)
            if loss > epsilon:
                total += mass * (1 - mpmath.exp(epsilon - loss))
        return total


SMALL = [
    ([(gaussian(1), (1,))], 25),
    ([(gaussian("1/3"), (1, -1))], 12),
    ([(gaussian(4), (1,)), (gaussian("9/7"), (2,))], 20),
    ([(gaussian(2), (1, -1)), (gaussian("1/2"), (1,))], 10),
    ([(laplace(2), (1, -1))], 60),
    ([(laplace("3/2"), (3,)), (gaussian(1), (1,))], 45),
]


@pytest.mark.parametrize(("measured", "reach"), SMALL)
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 2.5])
def test_never_below_the_exact_composition(measured, reach, epsilon) -> None:
    truth = delta_precisely(measured, epsilon, reach)
    got = loss_distribution(measured).delta_upper(epsilon)
    assert got >= truth
    assert got <= float(truth) * (1 + 2e-4) + 1e-13


@pytest.mark.parametrize(("case", "epsilon"), [(0, 8.0), (1, 30.0), (2, 15.0)])
def test_the_tail_keeps_relative_accuracy(case: int, epsilon: float) -> None:
    measured, reach = SMALL[case]
    truth = delta_precisely(measured, epsilon, reach)
    got = loss_distribution(measured).delta_upper(epsilon)
    assert truth <= got <= float(truth) * 1.001
    assert truth < 1e-10


def test_vectors_of_the_discrete_gaussian(vectors) -> None:
    for vector in vectors("discrete_gaussian_exact_delta"):
        given_ = vector["input"]
        got = loss_distribution([(gaussian(given_["sigma2"]), (given_["shift"],))]).delta_upper(given_["eps"])
        assert got == pytest.approx(vector["expected"], rel=2e-6)


def test_discrete_gaussian_is_not_gaussian_dp() -> None:
    # the exact delta at sigma2 = 1, epsilon = 1 exceeds that of mu = 1
    assert loss_distribution([(gaussian(1), (1,))]).delta_upper(1.0) > 0.1269368
    assert loss_distribution([(gaussian(25), (1,))]).delta_upper(1.0) == pytest.approx(1.829336e-8, rel=1e-4)


@pytest.mark.parametrize("sigma2", ["1/4", "1", "7", "1000"])
def test_fewer_larger_entries_are_worse(sigma2: str) -> None:
    for event in (gaussian(sigma2), laplace(sigma2)):
        two, ones, one = (loss_distribution([(event, change)]) for change in ((2,), (1, 1), (1,)))
        for epsilon in (0.0, 0.01, 0.1, 0.5, 1.0, 3.0, 8.0):
            assert two.delta_upper(epsilon) >= ones.delta_upper(epsilon) * (1 - 1e-5) - 1e-35
            assert ones.delta_upper(epsilon) >= one.delta_upper(epsilon) * (1 - 1e-5) - 1e-35


events = st.one_of(
    st.fractions(min_value=Fraction(1, 5), max_value=3000, max_denominator=20).map(gaussian),
    st.fractions(min_value=Fraction(1, 5), max_value=300, max_denominator=20).map(laplace),
)
measurements = st.lists(
    st.tuples(events, st.sampled_from([(1,), (1, -1), (2, -2), (1, -1, 1, -1), (3,)])), min_size=1, max_size=5
)


@settings(max_examples=25)
@given(measurements, st.integers(2, 14))
def test_below_zcdp_and_below_the_sum_of_pure_losses(measured, digits: int) -> None:
    delta = Fraction(1, 10**digits)
    composed = loss_distribution(measured)
    epsilon = composed.epsilon_upper(delta)
    assert composed.delta_upper(epsilon) <= delta
    rho = sum((zcdp_rho(event, change) for event, change in measured), Fraction(0))
    assert epsilon <= epsilon_upper(rho, delta) * (1 + 1e-3) + 1e-6
    if all(isinstance(event, LaplaceEvent) for event, _ in measured):
        pure = sum(Fraction(sum(map(abs, change))) / event.scale for event, change in measured)
        assert epsilon <= float(pure) * (1 + 5e-3)  # each loss is rounded up to a grid, so the bound is a little above


@settings(max_examples=12)
@given(measurements, measurements)
def test_more_measurements_cost_more(some, more) -> None:
    fewer, all_ = loss_distribution(some), loss_distribution([*some, *more])
    for epsilon in (0.0, 0.5, 2.0):
        assert all_.delta_upper(epsilon) >= fewer.delta_upper(epsilon) * (1 - 1e-3) - 1e-12


def test_agrees_with_dp_accounting() -> None:
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    ours = loss_distribution([(gaussian(9), (1, -1, 1)), (gaussian(30), (1,) * 4)])
    theirs = pld.from_discrete_gaussian_mechanism(3.0, value_discretization_interval=1e-4).self_compose(3)
    theirs = theirs.compose(
        pld.from_discrete_gaussian_mechanism(math.sqrt(30), value_discretization_interval=1e-4).self_compose(4)
    )
    for epsilon in (0.5, 1.0, 2.0, 3.0):
        # theirs rounds every loss up to its grid, which costs a little more than splitting it
        assert ours.delta_upper(epsilon) <= theirs.get_delta_for_epsilon(epsilon)
        assert ours.delta_upper(epsilon) == pytest.approx(theirs.get_delta_for_epsilon(epsilon), rel=4e-3)


def test_many_wide_measurements_approach_the_gaussian() -> None:
    # 400 cells of variance 1000: a Gaussian of mu^2 = 0.4 up to the width of the grid
    composed = loss_distribution([(gaussian(1000), (1,) * 400)])
    delta = Fraction(1, 10**6)
    exact = gdp_epsilon_upper(math.sqrt(0.4), delta)
    assert exact * (1 - 1e-9) <= composed.epsilon_upper(delta) <= exact * (1 + 1e-4)


def test_splitting_keeps_the_mean_of_the_other_data_set() -> None:
    # sum of masses is 1 and the mean of exp(-loss) is 1 (the other data set's total mass): nothing is lost or doubled
    composed = loss_distribution([(gaussian("5/2"), (1, -1)), (laplace(3), (2,)), (gaussian(300), (1,) * 7)])
    losses = (composed.first + np.arange(len(composed.masses))) * composed.step
    assert composed.masses.sum() == pytest.approx(1, abs=1e-12)
    assert composed.masses @ np.exp(-losses) == pytest.approx(1, abs=1e-9)
    assert composed.masses @ np.exp(-losses) <= 1 + 1e-12
    assert composed.infinite < 1e-36
    assert composed.slack < 1e-10


def test_census_plan_is_tight_and_quick(census_plan) -> None:
    plan, delta = census_plan("pl94_person_US")
    started = time.perf_counter()
    tight = tight_epsilon_upper(plan, "unconstrained", delta)
    assert time.perf_counter() - started < 10
    assert 16.465154 < tight < 16.4653
    assert tight < guarantee(plan, "unconstrained", delta).epsilon
    for policy in ("nearest", "irreducible", "semi"):
        got = guarantee(plan, policy, delta)
        assert (
            gdp_epsilon_upper(math.sqrt(2 * got.rho), delta) * (1 - 1e-6)
            <= tight_epsilon_upper(plan, policy, delta)
            < got.epsilon
        )


def test_what_has_no_lattice_is_not_supported_and_exact_counts_are_infinite() -> None:
    real = GaussianEvent(level="us", query="total", sigma2=Fraction(1), support="reals")
    assert isinstance(loss_distribution([(real, (1,))]), NotSupported)
    assert isinstance(loss_distribution([(gaussian(10**11), (1,))]), NotSupported)
    assert isinstance(loss_distribution([(UnknownEvent(level="us", query="total", description="x"), ())]), NotSupported)
    exact = loss_distribution([(ExactEvent(level="us", query="total"), (1,))])
    assert isinstance(exact, LossDistribution)
    assert exact.epsilon_upper(DELTA) == math.inf
    nothing = loss_distribution([(real, ()), (gaussian(1), ())])
    assert nothing.epsilon_upper(DELTA) == 0.0


def test_other_pure_events_are_randomised_response() -> None:
    event = KNormEvent(level="table", query="detailed", epsilon=Fraction(1), generators=((1, -1),))
    composed = loss_distribution([(event, (1, -1))])
    p = 1 / (1 + math.exp(-1))
    for epsilon in (0.0, 0.4, 0.9):
        assert composed.delta_upper(epsilon) == pytest.approx(p - math.exp(epsilon) * (1 - p), rel=1e-4)
    assert composed.epsilon_upper(DELTA) <= 1.0001


def test_a_coarser_grid_is_hardly_larger_and_never_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wide noise has so many atoms that a fine grid takes seconds; a coarse one gives an upper bound, too."""
    measured = [(GaussianEvent(level="us", query=str(i), sigma2=Fraction(300 + 70 * i)), (1, -1)) for i in range(3)]
    found = {}
    for points in (2**12, 2**13, 2**15):
        monkeypatch.setattr(pld, "GRID_POINTS", (points,))
        found[points] = loss_distribution(measured).epsilon_upper(DELTA)
    assert found[2**15] <= found[2**13] <= found[2**12] < found[2**15] * (1 + 1e-4)


def test_the_grid_is_fine_where_that_is_quick_and_coarse_where_it_is_not() -> None:
    def points(sigma2: int, times: int) -> float:
        found = loss_distribution(
            [(GaussianEvent(level="us", query=str(i), sigma2=sigma2 + Fraction(i, 7)), (1,)) for i in range(times)]
        )
        return len(found.masses)

    assert points(100, 3) > 2**14
    assert points(10**5, 5) < 2**14 + 2**13
