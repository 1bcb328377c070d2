"""The theorems of ``conditioned_tree.md`` on enumerated worlds: they hold on trees, and fail where they may."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from das.accounting.conditioned_tree import (
    PROMISED,
    TreeSampler,
    chained_order,
    geometric_on_tree_upper,
    integer_order_epsilon_upper,
)
from das.accounting.conversion import epsilon_upper
from das.accounting.events import GaussianEvent, LaplaceEvent
from das.accounting.hierarchy import HierarchicalPlan
from das.accounting.joint import conditioned_on_tree
from das.accounting.policies import guarantee

DELTA = Fraction(1, 10**10)
MOST = 4


@dataclass(frozen=True)
class Counts:
    """Sets of leaves with, for each, a rational weight per unit of noise and an interval; ``power`` 1 or 2 of noise."""

    leaves: int
    sets: tuple[tuple[int, ...], ...]
    weight: tuple[Fraction, ...]
    interval: tuple[tuple[int, int], ...]
    power: int

    def space(self) -> list[tuple[int, ...]]:
        return [
            s
            for s in product(range(MOST + 1), repeat=self.leaves)
            if all(
                low <= sum(s[i] for i in members) <= high
                for members, (low, high) in zip(self.sets, self.interval, strict=True)
            )
        ]

    def density(self, s: tuple[int, ...], x: tuple[int, ...]) -> Fraction:
        out = Fraction(1)
        for members, q in zip(self.sets, self.weight, strict=True):
            out *= q ** (abs(sum(s[i] - x[i] for i in members)) ** self.power)
        return out

    def normaliser(self, space: list[tuple[int, ...]], x: tuple[int, ...]) -> Fraction:
        return sum((self.density(s, x) for s in space), Fraction(0))


def moved(x: tuple[int, ...], i: int, j: int, times: int) -> tuple[int, ...]:
    return tuple(value + times * ((k == j) - (k == i)) for k, value in enumerate(x))


@st.composite
def trees(draw: st.DrawFn, power: int | None = None) -> tuple[Counts, tuple[int, ...]]:
    """A random laminar family on up to four leaves and a data set that keeps its intervals."""
    leaves = draw(st.integers(2, 4))
    cut = draw(st.integers(1, leaves - 1))
    sets = [tuple(range(leaves)), tuple(range(cut)), tuple(range(cut, leaves)), *((i,) for i in range(leaves))]
    x = tuple(draw(st.lists(st.integers(0, 2), min_size=leaves, max_size=leaves)))
    weights = st.sampled_from([Fraction(1), Fraction(1, 20), Fraction(1, 3), Fraction(3, 5), Fraction(9, 10)])
    intervals = []
    for members in sets:
        true = sum(x[i] for i in members)
        low = draw(st.sampled_from([0, max(0, true - 1), true]))
        high = draw(st.sampled_from([MOST, true + 1, true]))
        intervals.append((low, max(true, high)))
    usual = st.sampled_from([Fraction(1, 20), Fraction(1, 3), Fraction(3, 5), Fraction(9, 10)])
    chosen = tuple(draw(weights if len(members) > 1 and leaves > 2 else usual) for members in sets)
    return Counts(leaves, tuple(sets), chosen, tuple(intervals), power or draw(st.sampled_from([1, 2]))), x


@settings(max_examples=60)
@given(world=trees(), data=st.data())
def test_the_normaliser_is_log_concave_along_every_simple_move(
    world: tuple[Counts, tuple[int, ...]], data: st.DataObject
) -> None:
    counts, x = world
    i = data.draw(st.integers(0, counts.leaves - 1))
    j = data.draw(st.integers(0, counts.leaves - 1).filter(lambda k: k != i))
    space = counts.space()
    z = [counts.normaliser(space, moved(x, i, j, times)) for times in range(-3, 5)]
    for (before, here), (_, after) in pairwise(pairwise(z)):
        assert here * here >= before * after


def neighbours(counts: Counts, space: list[tuple[int, ...]]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All pairs of data sets in the space that differ by one record."""
    inside = set(space)
    pairs = []
    for x in space:
        for i, j in product(range(counts.leaves), repeat=2):
            if i != j and moved(x, i, j, 1) in inside:
                pairs.append((x, moved(x, i, j, 1)))
    return pairs


@settings(max_examples=25)
@given(world=trees(power=2))
def test_renyi_divergences_of_integer_order_stay_below_those_of_the_noise(
    world: tuple[Counts, tuple[int, ...]],
) -> None:
    counts, _ = world
    space = counts.space()
    for x, other in neighbours(counts, space)[:30]:
        here = {s: counts.density(s, x) for s in space}
        there = {s: counts.density(s, other) for s in space}
        z, z_other = sum(here.values()), sum(there.values())
        # D_alpha <= alpha rho(m), with exp(-2 rho) the product of the weights that the move touches; as exact powers.
        touched = math.prod(
            (q for members, q in zip(counts.sets, counts.weight, strict=True) if _changes(members, x, other)),
            start=Fraction(1),
        )
        for alpha in (2, 3, 6):
            moment = sum((there[s] / z_other) ** alpha * (here[s] / z) ** (1 - alpha) for s in space)
            # exp((alpha-1) alpha rho) = touched ** (-alpha (alpha-1))  where  q = exp(-1/(2 sigma2)) = exp(-rho)
            assert moment <= touched ** (-alpha * (alpha - 1))


def _changes(members: tuple[int, ...], x: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return sum(x[i] for i in members) != sum(other[i] for i in members)


@settings(max_examples=30)
@given(world=trees(power=1))
def test_the_geometric_bound_holds_for_all_neighbours(world: tuple[Counts, tuple[int, ...]]) -> None:
    counts, _ = world
    space = counts.space()
    for x, other in neighbours(counts, space)[:40]:
        ratio = counts.normaliser(space, other) / counts.normaliser(space, x)
        loss = math.log(ratio * max(counts.density(s, x) / counts.density(s, other) for s in space))
        epsilons = [
            -math.log(q) for members, q in zip(counts.sets, counts.weight, strict=True) if _changes(members, x, other)
        ]
        bound = geometric_on_tree_upper(Fraction(sum(epsilons)), Fraction(min(epsilons)))
        assert loss <= bound * (1 + 1e-12) + 1e-12


def test_a_bounded_count_without_noise_costs_more() -> None:
    """The second leaf alone is measured; the total is bounded, and its bound pushes the draw away for nothing."""
    counts = Counts(2, ((0, 1), (1,)), (Fraction(1), Fraction(1, 20)), ((0, 4), (0, 4)), 1)
    space = counts.space()
    losses = [
        math.log(counts.normaliser(space, other) / counts.normaliser(space, x))
        + math.log(max(counts.density(s, x) / counts.density(s, other) for s in space))
        for x, other in neighbours(counts, space)
    ]
    epsilon = Fraction(math.log(20))
    assert geometric_on_tree_upper(epsilon, epsilon) < max(losses) <= geometric_on_tree_upper(epsilon, Fraction(0))


def test_the_geometric_bound_is_nearly_reached() -> None:
    """Everybody in one of many cells, and one moves to an empty one: MATH 5.4's vertex."""
    q, cells, people = Fraction(9, 10), 3, 9
    space = [s for s in product(range(people + 1), repeat=cells) if sum(s) == people]
    x, other = (people, 0, 0), (people - 1, 1, 0)
    weigh = {c: sum(q ** sum(abs(a - b) for a, b in zip(s, c, strict=True)) for s in space) for c in (x, other)}
    loss = -2 * math.log(q) + math.log(weigh[other] / weigh[x])
    bound = geometric_on_tree_upper(Fraction(-2 * math.log(q)), Fraction(-math.log(q)))
    assert 0.75 * bound < loss <= bound


def test_what_is_no_tree_can_break_it() -> None:
    """A lattice polytope of MATH 5.5 that is no box of a tree: the normaliser is not log-concave along a move."""
    q = Fraction(math.exp(-1 / (2 * 0.3))).limit_denominator(10**6)
    space = [(0, 0, 0), (1, 0, 0), (2, 0, 0), (0, 1, 0), (0, 0, 1), (2, -1, 0), (2, 0, -1)]
    worst = Fraction(0)
    for x, other in product(space, repeat=2):
        move = [b - a for a, b in zip(x, other, strict=True)]
        z = [
            sum(q ** sum((v - a - k * m) ** 2 for v, a, m in zip(s, x, move, strict=True)) for s in space)
            for k in range(3)
        ]
        worst = max(worst, z[0] * z[2] / (z[1] * z[1]))
    assert worst > 1


def test_integer_orders_cost_little_more_and_never_less() -> None:
    for rho in (Fraction(1, 1000), Fraction(1, 10), Fraction(2), Fraction(30)):
        both = integer_order_epsilon_upper(rho, DELTA), epsilon_upper(rho, DELTA)
        assert both[1] <= both[0] <= 1.35 * both[1]
    brute = min(
        (1 + t) * 0.3 + math.log(t / (1 + t)) + (math.log(1e10) - math.log(1 + t)) / t for t in range(1, 10_000)
    )
    assert integer_order_epsilon_upper(Fraction(3, 10), DELTA) == pytest.approx(brute, rel=1e-9)


def plan_of(*events: GaussianEvent | LaplaceEvent) -> HierarchicalPlan:
    return HierarchicalPlan(
        levels=("us", "state"),
        units=(1, 3),
        attributes=(("sex", 2),),
        queries={"total": (None,), "sex": ((0, 1),)},
        events=events,
        invariants=(("state", "total"),),
    )


@settings(max_examples=15)
@given(world=trees(power=2), data=st.data())
def test_changes_in_a_row_cost_what_their_chain_says(
    world: tuple[Counts, tuple[int, ...]], data: st.DataObject
) -> None:
    """Two and three changes of any kind, the counts on the way in the intervals or not (Theorem 4)."""
    counts, x = world
    space = counts.space()
    leaf = st.integers(0, counts.leaves - 1)
    steps = data.draw(st.integers(2, 3))
    other, rho = x, 0.0
    for _ in range(steps):
        i = data.draw(leaf)
        after = moved(other, i, data.draw(leaf.filter(lambda k, i=i: k != i)), 1)
        seen = [q for members, q in zip(counts.sets, counts.weight, strict=True) if _changes(members, other, after)]
        rho, other = max(rho, -math.log(math.prod(seen, start=Fraction(1)))), after
    here, there = ([counts.density(s, centre) for s in space] for centre in (x, other))
    z, z_other = sum(here), sum(there)
    for order in (2, 3, 5):
        moment = sum((b / z_other) ** order * (a / z) ** (1 - order) for a, b in zip(here, there, strict=True))
        bound = (order - 1) * float(chained_order(steps, Fraction(order))) * rho
        assert math.log(moment.numerator) - math.log(moment.denominator) <= bound + 1e-9


def test_chains_are_never_below_group_privacy_and_hardly_above() -> None:
    for steps in range(1, 13):
        for order in (2, 3, 4, 5, 7, 11, 64, 1001):
            share = chained_order(steps, Fraction(order)) / (steps**2 * order)
            assert 1 <= share < Fraction(103, 100)
            assert share == 1 or steps not in (1, 2, 3, 4, 6)
    for steps in (2, 5):
        whole = integer_order_epsilon_upper(Fraction(1, 10), DELTA, steps)
        assert whole == pytest.approx(integer_order_epsilon_upper(Fraction(steps**2, 10), DELTA), rel=0.03)
        assert whole >= integer_order_epsilon_upper(Fraction(steps**2, 10), DELTA) * (1 - 1e-12)


def test_all_policies_are_proved_for_conditioned_noise() -> None:
    plan = plan_of(GaussianEvent(level="state", query="sex", sigma2=Fraction(4)))
    stated = {
        policy: conditioned_on_tree(guarantee(plan, policy, DELTA), plan, PROMISED).status
        for policy in ("nearest", "irreducible", "semi")
    }
    assert set(stated.values()) == {"proved"}


def test_the_samplers_error_is_paid_for() -> None:
    plan = plan_of(GaussianEvent(level="state", query="sex", sigma2=Fraction(4)))
    found = guarantee(plan, "irreducible", DELTA)
    exact = conditioned_on_tree(found, plan, TreeSampler(total_variation=Fraction(0), log_ratio=Fraction(0)))
    rough = conditioned_on_tree(found, plan, TreeSampler(total_variation=Fraction(0), log_ratio=Fraction(1, 2000)))
    assert rough.epsilon == pytest.approx(exact.epsilon + 0.001)
    # Total variation takes its part of delta, and a relative error makes all of it larger: both need room.
    for sizes in ((Fraction(1, 10**9), Fraction(0)), (Fraction(0), Fraction(1, 1000))):
        useless = TreeSampler(total_variation=sizes[0], log_ratio=sizes[1])
        assert conditioned_on_tree(found, plan, useless).status == "not supported"


def test_the_sampler_costs_what_the_worst_sampler_within_its_errors_can() -> None:
    """Two laws at (epsilon, delta); the one is raised and the other lowered as far as the sampler's errors allow."""
    epsilon, delta, eta, factor = 0.5, 0.01, 0.001, math.exp(0.02)
    p_exact = 0.3
    q_exact = (p_exact - delta) / math.exp(epsilon)
    p, q = factor * (p_exact + eta), (q_exact - eta) / factor
    grown = math.exp(epsilon) * factor**2
    assert p - grown * q == pytest.approx(factor * delta + (factor + grown / factor) * eta)
    assert p - grown * q <= factor * delta + (factor + grown) * eta
    assert p - grown * q > delta + (1 + math.exp(epsilon)) * eta  # delta is made larger as well


def test_a_large_pure_epsilon_is_not_called_proved_when_its_delta_is_no_small_number() -> None:
    """e^epsilon times 2^-90 passes one from epsilon = 63 on; a status "proved" beside it would say nothing."""
    for scale, status in ((Fraction(1, 4), "proved"), (Fraction(1, 30), "not supported")):
        plan = plan_of(LaplaceEvent(level="state", query="sex", scale=scale))
        assert conditioned_on_tree(guarantee(plan, "nearest", DELTA), plan, PROMISED).status == status


def test_laplace_noise_loses_its_purity_to_the_windows_and_says_so() -> None:
    plan = plan_of(LaplaceEvent(level="state", query="sex", scale=Fraction(4)))
    found = conditioned_on_tree(guarantee(plan, "nearest", DELTA), plan, PROMISED)
    assert found.status == "proved"
    assert found.epsilon > 0.5
    assert found.added_delta >= (1 + math.exp(found.epsilon)) * PROMISED.total_variation > 0


def test_mixed_noise_is_not_supported() -> None:
    plan = plan_of(
        LaplaceEvent(level="state", query="sex", scale=Fraction(4)),
        GaussianEvent(level="us", query="sex", sigma2=Fraction(4)),
    )
    assert conditioned_on_tree(guarantee(plan, "nearest", DELTA), plan, PROMISED).status == "not supported"
