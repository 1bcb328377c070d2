"""Parts of the audit against brute force: exact losses, the search, confidence bounds, e-values."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from das.accounting.moves import worst_loss
from das.accounting.pld import LossDistribution, loss_distribution
from das.accounting.policies import policy_moves
from das.congenial.tree import UNBOUNDED, Tree
from das.evaluation.privacy_audit.conditioned_loss import conditioned_epsilon_lower, log_normalizer, tree_of_world
from das.evaluation.privacy_audit.epsilon_bound import Sample, empirical_epsilon, rate_lower, rate_upper
from das.evaluation.privacy_audit.exact_loss import Losses, epsilon_lower, product_epsilon_lower
from das.evaluation.privacy_audit.mechanism_runs import facts_between
from das.evaluation.privacy_audit.noise_law import check_noise_law
from das.evaluation.privacy_audit.small_world import small_world
from das.evaluation.privacy_audit.streams_apart import check_streams
from das.evaluation.privacy_audit.worst_pair import Pair, Search, worst_pair
from das.noise import DiscreteGaussian, DiscreteLaplace, RunKey
from das.noise.two_sided import TwoSidedNoise
from das.plan.for_accountant import hierarchical_plan

if TYPE_CHECKING:
    from conftest import Country

NOISE = st.one_of(
    st.builds(DiscreteGaussian, st.fractions(Fraction(1, 4), 20, max_denominator=9)),
    st.builds(DiscreteLaplace, st.fractions(Fraction(1, 2), 6, max_denominator=9)),
)


def delta_of(p: np.ndarray[Any, Any], q: np.ndarray[Any, Any], epsilon: float) -> float:
    """Hockey-stick divergence of two laws, by its definition."""
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


@settings(max_examples=25)
@given(noise=NOISE, change=st.integers(1, 3), delta=st.sampled_from([Fraction(1, 50), Fraction(1, 10**6)]))
def test_the_loss_of_one_number_is_exact(noise: TwoSidedNoise, change: int, delta: Fraction) -> None:
    k = np.arange(-400, 401)
    p, q = np.exp(noise.log_pmf(k)), np.exp(noise.log_pmf(k + change))
    found = product_epsilon_lower([(noise, change)], delta)
    assert found == 0 or delta_of(p, q, found) >= delta
    assert delta_of(p, q, found * 1.001 + 1e-3) <= delta


def test_the_loss_of_many_numbers_is_below_the_accountant_and_close() -> None:
    cells: list[tuple[TwoSidedNoise, int]] = [
        *((DiscreteGaussian("9/2"), 1) for _ in range(6)),
        (DiscreteGaussian(40), 2),
        (DiscreteLaplace(3), 1),
        (DiscreteGaussian("1/10"), 1),  # far atoms: windows by standard deviations would cut them off
    ]
    for delta in (Fraction(1, 1000), Fraction(1, 10**10)):
        upper = loss_distribution([(noise.event("", ""), (change,)) for noise, change in cells[:-1]])
        assert isinstance(upper, LossDistribution)
        found = product_epsilon_lower(cells[:-1], delta)
        assert upper.epsilon_upper(delta) * 0.995 < found < upper.epsilon_upper(delta)
        assert product_epsilon_lower(cells, delta) > found + 4  # the last number alone loses 5 almost surely


def test_a_pure_loss_is_the_largest_one() -> None:
    cells: list[tuple[TwoSidedNoise, int]] = [(DiscreteLaplace("5/2"), 2), (DiscreteLaplace(4), -1)]
    assert product_epsilon_lower(cells, Fraction(0)) == pytest.approx(0.8 + 0.25)
    assert product_epsilon_lower([(DiscreteGaussian(1), 1)], Fraction(0)) == math.inf
    assert product_epsilon_lower([(DiscreteGaussian(1), 0)], Fraction(0)) == 0


@pytest.mark.parametrize("noise", [DiscreteGaussian(2), DiscreteLaplace("1/2")], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("fixed", [True, False], ids=["total fixed", "total measured"])
def test_the_loss_of_conditioned_draws_is_that_of_all_tables(noise: TwoSidedNoise, fixed: bool) -> None:
    """A total over two pairs of cells, every table of it listed."""
    one, other = np.array([2, 0, 1, 0]), np.array([1, 1, 1, 0])
    total = 3 if fixed else UNBOUNDED
    tree = Tree(
        parents=(-1, 0, 0, 1, 1, 2, 2),
        noise=(None if fixed else noise, noise, None, *(noise,) * 4),
        lower=(3 if fixed else 0, *(0,) * 6),
        upper=(total, total, 2 if fixed else total, *(total,) * 4),
    )
    tables = np.array([t for t in product(range(16), repeat=4) if not fixed or (sum(t) == 3 and t[2] + t[3] <= 2)])
    counts = tree.counts(tables)
    laws = []
    for data in (one, other):
        log = np.zeros(len(tables))
        for node, each in enumerate(tree.noise):
            if each is not None:
                log += each.log_pmf(counts[:, node] - tree.counts(data)[node])
        assert log_normalizer(tree, data) == pytest.approx(np.logaddexp.reduce(log), abs=1e-9)
        laws.append(np.exp(log - np.logaddexp.reduce(log)))
    for delta in (Fraction(1, 100), Fraction(1, 10**5)):
        found = conditioned_epsilon_lower(tree, one, other, delta)
        worst = max(delta_of(*laws, found), delta_of(*laws[::-1], found))
        if noise.weights.quadratic:
            assert worst >= delta
            assert max(delta_of(*laws, found + 0.01), delta_of(*laws[::-1], found + 0.01)) < delta
        else:  # the largest loss, whatever delta is
            assert found == pytest.approx(np.abs(np.log(laws[0]) - np.log(laws[1])).max(), abs=1e-6)


def test_a_world_as_a_tree_has_the_normaliser_of_the_sampler(country: Country) -> None:
    shares = {"geolevels": {"state": "1/3", "county": "1/3", "block": "1/3"}, "queries": {"all": {"detailed": "1"}}}
    plan = country.plan(
        strategy=shares,
        estimate={"method": "congenial"},
        invariant=[{"query": "total", "level": "state", "reason": "seats"}],
    )
    world = small_world(plan)
    pair = worst_pair(Search(world), "semi", 2, crowd=1)
    assert isinstance(pair, Pair)
    tree = tree_of_world(world, facts_between(world, pair.one, pair.other))
    assert np.array_equal(tree.counts(pair.one)[tree.leaves], pair.one)
    for data in (pair.one, pair.other):
        assert log_normalizer(tree, data) == pytest.approx(tree.log_normalizer(data), abs=1e-8)


@pytest.mark.parametrize("privacy", [{"framework": "zcdp", "rho": "1/2"}, {"framework": "pure", "epsilon": "2"}])
@pytest.mark.parametrize("level", [None, "state", "county", "block"])
def test_the_search_finds_what_the_accountant_fears(
    country: Country, privacy: dict[str, Any], level: str | None
) -> None:
    facts = [{"query": "total", "level": level, "reason": "seats"}] if level else None
    plan = country.plan(privacy=privacy, invariant=facts)
    world = small_world(plan)
    search, whole = Search(world), hierarchical_plan(plan, world.spine)
    framework = plan.framework
    for policy in ("semi", "irreducible", "nearest", "unconstrained"):
        moves, a = policy_moves(whole, policy)
        assert isinstance(moves, tuple)
        worst, _ = worst_loss(moves, whole.events, framework)
        pair = worst_pair(search, policy, a or 1)
        assert isinstance(pair, Pair)
        if (level, policy) == ("state", "irreducible"):
            # One state has a single block: nobody there can also change place, which the accountant does not count on.
            assert 0.8 * float(worst) < pair.cost < float(worst)  # type: ignore[arg-type]
        else:
            assert pair.cost == pytest.approx(float(worst))  # type: ignore[arg-type]
        assert pair.cost == pytest.approx(float(search.cost(world.rows @ (pair.other - pair.one))))
        assert pair.one.min() >= 0
        assert pair.other.min() >= 0
        if policy != "unconstrained":
            assert not np.any(world.invariant_rows @ (pair.other - pair.one))
        changed = int(np.abs(pair.other - pair.one).sum()) // 2
        assert 1 <= changed <= (a or 1)


def test_no_two_changes_cost_more_than_those_found(country: Country) -> None:
    plan = country.plan(
        privacy={"framework": "pure", "epsilon": "2"},
        invariant=[{"query": "total", "level": "county", "reason": "seats"}],
    )
    search = Search(small_world(plan))
    _, best, exhaustive = search.worst_of_two(trading=False)
    rng = np.random.default_rng(5)
    tried = 0
    for first in rng.integers(0, len(search.changes), 300).tolist():
        seconds = np.flatnonzero(search.shifts == -search.shifts[first])
        for second in rng.choice(seconds, 4).tolist():
            change = search.answers((first, second))
            before, after = search.changes[[first, second]].T
            net = np.bincount(after, minlength=search.world.columns) - np.bincount(
                before, minlength=search.world.columns
            )
            assert not np.any(search.world.invariant_rows @ net)
            assert float(search.cost(change)) <= best * (1 + 1e-9)
            tried += 1
    assert exhaustive
    assert tried == 1200


@given(hits=st.integers(0, 40), error=st.sampled_from([0.01, 0.2]))
def test_confidence_bounds_are_those_of_clopper_and_pearson(hits: int, error: float) -> None:
    low, high = rate_lower(hits, 40, error), rate_upper(hits, 40, error)
    assert 0 <= low <= hits / 40 <= high <= 1

    def tail(p: float, of: range) -> float:
        return math.fsum(math.comb(40, k) * p**k * (1 - p) ** (40 - k) for k in of)

    if hits:
        assert tail(low, range(hits, 41)) == pytest.approx(error)
    if hits < 40:
        assert tail(high, range(hits + 1)) == pytest.approx(error)


def responses(rng: np.random.Generator, epsilon: float, runs: int) -> tuple[Sample, Sample]:
    """Randomised response: its epsilon is known exactly."""
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    one, other = rng.random(runs) < truth, rng.random(runs) > truth
    return Sample(np.where(one, 1.0, -1.0), 0), Sample(np.where(other, 1.0, -1.0), 0)


def test_a_lower_bound_is_rarely_above_the_truth() -> None:
    rng = np.random.default_rng(7)
    found = [
        empirical_epsilon(responses(rng, 1.0, 200), responses(rng, 1.0, 200), Fraction(0), 0.05).epsilon
        for _ in range(400)
    ]
    assert sum(each > 1.0 for each in found) <= 20  # at most 5 % of them
    assert np.median(found) > 0.5
    far = empirical_epsilon(responses(rng, 2.0, 4000), responses(rng, 2.0, 4000), Fraction(0), 0.001)
    assert 1.5 < far.epsilon < 2.0


def test_refusals_are_outputs() -> None:
    always, never = Sample(np.zeros(0), 1000), Sample(np.zeros(1000), 0)
    found = empirical_epsilon((always, never), (always, never), Fraction(0), 0.001)
    assert found.event == "nothing is released"
    assert found.epsilon > 4.8
    reversed_ = empirical_epsilon((never, always), (never, always), Fraction(1, 10), 0.001)
    assert 4.5 < reversed_.epsilon < 4.8


def draws(noise: TwoSidedNoise, runs: int, text: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    streams = RunKey.for_testing(text).streams(b"tests of the audit")
    return noise.draw(streams.bundle([("l", str(run), "q", "m") for run in range(runs)]), 4)


@pytest.mark.parametrize(
    ("stated", "wrong"),
    [(DiscreteGaussian(100), DiscreteGaussian("9025/100")), (DiscreteLaplace(8), DiscreteLaplace("76/10"))],
    ids=["gaussian", "laplace"],
)
def test_a_wrong_scale_is_told_from_the_right_one(stated: TwoSidedNoise, wrong: TwoSidedNoise) -> None:
    assert check_noise_law(draws(wrong, 3000, "wrong"), [stated] * 4, 0.001).verdict == "VIOLATED"
    verdicts = Counter(
        check_noise_law(draws(stated, 400, f"right {k}"), [stated] * 4, 0.001).verdict for k in range(40)
    )
    assert verdicts == {"consistent": 40}


def test_a_law_of_another_shape_is_found_by_what_was_learnt() -> None:
    stated = DiscreteGaussian(9)
    moved = draws(stated, 3000, "moved") + (np.arange(4) == 0)  # one of four numbers is biased by one
    assert check_noise_law(moved, [stated] * 4, 0.001).verdict == "VIOLATED"
    assert check_noise_law(moved[:0], [stated] * 4, 0.001).verdict == "not checked"


def test_opposite_noise_is_no_less_shared() -> None:
    drawn = draws(DiscreteLaplace(5), 200, "streams")
    assert check_streams(drawn, "abcd", 0.001).verdict == "consistent"
    opposite = np.column_stack([drawn, -drawn[:, 2] // 3])
    assert check_streams(opposite, "abcde", 0.001).verdict == "VIOLATED"
    assert check_streams(drawn[:1], "abcd", 0.001).verdict == "not checked"


def test_nothing_lost_is_epsilon_zero() -> None:
    assert epsilon_lower(Losses(1.0, 0.0, np.array([1.0])), Fraction(1, 10)) == 0.0
