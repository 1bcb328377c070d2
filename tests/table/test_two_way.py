"""Two-way tables with both margins, drawn column by column: against enumeration, and against convolutions by hand."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import chdtrc

from das.accounting.conditioning import conditional_law, conditioned_geometric
from das.accounting.events import LaplaceEvent
from das.accounting.small_table.dataspace import TableFacts, data_space
from das.accounting.small_table.enumeration import net_moves
from das.accounting.small_table.margins import margin_invariants
from das.errors import ConfigError
from das.noise import Bundle, DiscreteGaussian, DiscreteLaplace, RunKey
from das.table import two_way
from das.table.integer_convolution import convolved
from das.table.neighbours import neighbours_of
from das.table.quotient import TableSampler
from das.table.two_way import TwoWayLaw, TwoWaySampler, TwoWayTable, choose_running
from das.table_release.mechanisms import ConditioningMechanism, Promise

STREAMS = RunKey.for_testing("two-way").streams(b"")


def bundle(name: str, count: int = 1) -> Bundle:
    return STREAMS.bundle([("table", f"{name}{i}", "detailed", "congenial") for i in range(count)])


def facts_of(table: Any, zeros: frozenset[int] = frozenset()) -> TableFacts:
    counts = np.asarray(table)
    rows, x = margin_invariants(counts.shape, [(0,), (1,)]), counts.reshape(-1)
    values = tuple(int(np.dot(row, x)) for row in rows)
    return TableFacts(cells=x.size, invariants=rows, values=values, records=int(x.sum()), zeros=zeros)


def law_of_draws(law: TwoWayLaw) -> dict[tuple[int, ...], Fraction]:
    """Every table with the product of the exact shares of its columns."""
    table, found = law.sampler.table, {}

    def column(k: int, state: tuple[int, ...], filled: dict[int, int], share: Fraction) -> None:
        if k < 0:
            found[tuple(filled.get(cell, 0) for cell in range(law.sampler.facts.cells))] = share
            return
        offered, running = law.offers(k, state)
        before = 0
        for chosen, reached in zip(offered.tolist(), running, strict=True):
            whole = [*chosen, table.column_totals[k] - sum(chosen)]
            cells = {c: n for c, n in zip(table.cells[:, k].tolist(), whole, strict=True) if c >= 0}
            rest = tuple(a - b for a, b in zip(state, chosen, strict=True))
            column(k - 1, rest, filled | cells, share * Fraction(reached - before, running[-1]))
            before = reached

    column(len(table.column_totals) - 1, table.row_totals[:-1], {}, Fraction(1))
    return found


@st.composite
def tables(draw: st.DrawFn) -> tuple[np.ndarray, frozenset[int]]:
    shape = draw(st.sampled_from([(2, 2), (2, 4), (3, 3), (3, 2), (2, 3), (4, 2), (1, 3)]))
    size = shape[0] * shape[1]
    x = np.array(draw(st.lists(st.integers(0, 2), min_size=size, max_size=size)))
    zeros = frozenset(i for i in range(size - 1) if x[i] == 0 and draw(st.booleans())) if draw(st.booleans()) else ()
    return x.reshape(shape), frozenset(zeros)


@settings(max_examples=30, deadline=None)
@given(tables(), st.sampled_from([DiscreteLaplace("3/2"), DiscreteGaussian("1/3"), DiscreteGaussian(5)]), st.booleans())
def test_the_law_is_the_enumerated_one(world: tuple[np.ndarray, frozenset[int]], noise: Any, packed: bool) -> None:
    table, zeros = world
    facts, x = facts_of(table, zeros), table.reshape(-1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(two_way, "DIRECT", 0 if packed else 10**9)
        if TwoWayTable.of(facts) is None:  # zeros may leave totals that do not cross
            assert zeros or 1 in table.shape
            return
        sampler = TwoWaySampler(facts, noise)
        assert sampler.error == TableSampler(facts, noise).error
        law = sampler.given(x)
        found = law_of_draws(law)
    space = data_space(facts)
    weights = np.array([_weight(noise, row - x) for row in space])
    truth = weights / weights.sum()
    assert sum(found.values()) == 1
    assert set(found) <= set(map(tuple, space.tolist()))
    shares = np.array([float(found.get(tuple(row), Fraction(0))) for row in space.tolist()])
    assert shares == pytest.approx(truth, rel=1e-12, abs=1e-29)
    assert np.exp(law.log_density(space)) == pytest.approx(truth, rel=1e-11, abs=1e-300)


def _weight(noise: Any, away: np.ndarray) -> float:
    steps = np.abs(away)
    return float(np.exp(-float(noise.weights.quadratic) * (steps**2).sum() - float(noise.weights.linear) * steps.sum()))


@pytest.mark.parametrize("shape", [(2, 5), (3, 4)])
def test_draws_have_the_enumerated_law(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(shape[1])
    table = rng.multinomial(9, np.ones(shape[0] * shape[1]) / (shape[0] * shape[1])).reshape(shape)
    facts, x, n = facts_of(table), table.reshape(-1), 3_000
    drawn = TwoWaySampler(facts, DiscreteLaplace(2)).given(x).draw(bundle("law"), n)[0]
    assert np.array_equal(np.array(facts.invariants) @ drawn.T, np.tile(facts.values, (n, 1)).T)
    space = data_space(facts)

    def p_value(scale: Fraction) -> float:
        law = conditional_law(space, x, LaplaceEvent(level="t", query="d", scale=scale))
        place = {tuple(row): i for i, row in enumerate(space.tolist())}
        observed = np.bincount([place[tuple(row)] for row in drawn.tolist()], minlength=len(space))
        often = n * law >= 5
        expected = n * np.append(law[often], max(float(law[~often].sum()), 1e-9))
        observed = np.append(observed[often], observed[~often].sum())
        return float(chdtrc(len(expected) - 1, ((observed - expected) ** 2 / expected).sum()))

    assert p_value(Fraction(2)) > 1e-6
    assert p_value(Fraction(26, 10)) < 1e-12


def test_draws_are_functions_of_stream_and_place() -> None:
    facts = facts_of([[3, 1, 2], [0, 4, 1], [2, 2, 0]])
    law = TwoWaySampler(facts, DiscreteLaplace(2)).given([3, 1, 2, 0, 4, 1, 2, 2, 0])
    drawn = law.draw(bundle("a", 2), 6)
    assert np.array_equal(law.draw(bundle("a", 2), 3), drawn[:, :3])
    assert not np.array_equal(drawn[0], drawn[1])
    assert "3, 1, 2" not in repr(law)


def test_a_word_on_a_threshold_takes_more_bits() -> None:
    # a third of the words: the word at the border is decided by further bits, both ways
    border = 2**32 // 3
    assert {choose_running([1, 3], border - 1, bundle("t"), 0, i) for i in range(40)} == {0}
    assert {choose_running([1, 3], border, bundle("t"), 0, i) for i in range(40)} == {0, 1}
    assert {choose_running([1, 3], border + 1, bundle("t"), 0, i) for i in range(40)} == {1}


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_packed_convolutions_are_the_added_ones(data: st.DataObject) -> None:
    dimensions = data.draw(st.integers(1, 3))
    shapes = [data.draw(st.tuples(*[st.integers(1, 4)] * dimensions)) for _ in range(2)]
    one, two = (
        np.array(data.draw(st.lists(st.integers(0, 2**70), min_size=n, max_size=n)), dtype=object).reshape(shape)
        for shape, n in ((shape, int(np.prod(shape))) for shape in shapes)
    )
    whole = np.array(one.shape) + np.array(two.shape) - 2
    low = np.array([data.draw(st.integers(0, int(top))) for top in whole])
    high = np.array([data.draw(st.integers(int(a), int(b))) for a, b in zip(low, whole, strict=True)])
    added, packed = (convolved(one, two, low, high, 71, direct=direct) for direct in (True, False))
    assert np.array_equal(added, packed)
    assert all(isinstance(value, int) for value in packed.reshape(-1).tolist())


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1)])
@pytest.mark.parametrize(
    "table", [[[2, 1, 0, 1], [0, 1, 2, 0]], [[1, 0, 1], [1, 1, 0], [0, 1, 1]]], ids=["2 x 4", "3 x 3"]
)
def test_the_claim_is_never_below_enumeration(table: list[list[int]], epsilon: Fraction) -> None:
    """Squares (L = 4) and hexagons (L = 6), over all tables with these margins."""
    facts = facts_of(table)
    sampler, space = TwoWaySampler(facts, DiscreteLaplace(1 / epsilon)), data_space(facts)
    logs = {tuple(x): sampler.given(x).log_density(space) for x in space.tolist()}
    worst: dict[int, float] = {}
    for move in net_moves(facts, 3):
        for x in space:
            if (other := tuple((x + move).tolist())) in logs:
                loss = float((logs[tuple(x.tolist())] - logs[other]).max())
                size = int(np.abs(move).sum())
                worst[size] = max(worst.get(size, 0.0), loss)
    assert set(worst) == {4} if len(table) == 2 else {4, 6}
    for size, loss in worst.items():
        assert (
            size * float(epsilon) * (1 - 1e-9)
            <= loss
            <= conditioned_geometric(epsilon, size, "equalities and box").cost
        )


@pytest.mark.parametrize(("shape", "records"), [((2, 23), 2_000), ((3, 3), 150), ((4, 4), 60), ((10, 10), 14)])
def test_tables_that_are_too_large_cell_by_cell(shape: tuple[int, int], records: int) -> None:
    rng = np.random.default_rng(records)
    table = rng.multinomial(records, np.ones(shape[0] * shape[1]) / (shape[0] * shape[1])).reshape(shape)
    facts, x = facts_of(table), table.reshape(-1)
    drawn = TwoWaySampler(facts, DiscreteLaplace(5)).given(x).draw(bundle("large"), 20)[0]
    assert (drawn >= 0).all()
    assert np.array_equal(np.array(facts.invariants) @ drawn.T, np.tile(facts.values, (20, 1)).T)
    assert (drawn != x).any(axis=1).all()


def test_the_mechanism_takes_the_sampler_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    table = np.array([[2, 3, 1], [2, 1, 2], [1, 1, 3]])
    near = neighbours_of(facts_of(table))
    promise = Promise(None, Fraction(1), Fraction(0))
    small = ConditioningMechanism.keeping(promise, near)
    assert isinstance(small.sampler, TableSampler)
    monkeypatch.setattr("das.table.class_graph.EDGE_LIMIT", 100)
    large = ConditioningMechanism.keeping(promise, near)
    assert isinstance(large.sampler, TwoWaySampler)
    assert large.loss(near.semi, Fraction(0)) == small.loss(near.semi, Fraction(0))
    monkeypatch.setattr(two_way, "DIRECT", 10)
    monkeypatch.setattr(two_way, "LARGEST_DIGITS", 100)
    with pytest.raises(ConfigError, match=r"the sums of 2 rows have .* values, too many.*use `gaussian`"):
        _ = ConditioningMechanism.keeping(promise, near).sampler


def test_other_facts_are_not_taken_for_margins() -> None:
    facts = TableFacts(cells=6, invariants=((1, 1, 1, 0, 0, 0), (0, 1, 1, 0, 1, 1)), values=(4, 4), records=7)
    bounded = facts_of([[1, 2], [2, 1]])
    bounded = TableFacts(
        cells=4, invariants=bounded.invariants, values=bounded.values, records=6, bounds=(((1, 0, 0, 0), 0, 2),)
    )
    for other in (facts, bounded, TableFacts(cells=3, values=(), records=5)):
        with pytest.raises(ConfigError, match="not both margins"):
            TwoWaySampler(other, DiscreteLaplace(2))
