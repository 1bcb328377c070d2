"""Every sampler of small tables through one protocol: the enumerated law is accepted, a wrong one is rejected."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import chdtrc

from das.accounting.conditioning import conditional_law, conditioned_geometric
from das.accounting.events import GaussianEvent, LaplaceEvent
from das.accounting.small_table.dataspace import TableFacts, data_space
from das.accounting.small_table.enumeration import net_moves
from das.accounting.small_table.margins import cycle_moves, margin_invariants
from das.errors import ConfigError, InfeasibleError, UsageError
from das.noise import Bundle, DiscreteGaussian, DiscreteLaplace, RunKey
from das.table.example import AGES, COUNTS, MINORS, SEX_BY_AGE, SOLVED
from das.table.heat_bath import HeatBath
from das.table.quotient import TableLaw, TableSampler
from das.table.rejection import RejectionSampler
from das.table.systems import agrees, is_laminar, nearest_laminar, public_start
from das.table.walks import WORD_BITS, Choice, choose, flatten

PUBLISHED = Path(__file__).resolve().parents[1] / "data" / "vectors" / "sex_by_age.json"
STREAMS = RunKey.for_testing("tables").streams(b"")
CROSSING = ((1, 1, 1, 0, 0, 0), (0, 1, 1, 0, 1, 1))

# facts, a table that agrees with them, cells to solve for
SYSTEMS: dict[str, tuple[TableFacts, tuple[int, ...], tuple[int, ...]]] = {
    "a total": (TableFacts(cells=3, values=(), records=6), (1, 0, 5), (2,)),
    "2 x 3 margins": (
        TableFacts(cells=6, invariants=margin_invariants((2, 3), [(0,), (1,)]), values=(5, 4, 3, 2, 4), records=9),
        (2, 1, 2, 1, 1, 2),
        (0, 1, 2, 3),
    ),
    "3 x 3 margins": (
        TableFacts(cells=9, invariants=margin_invariants((3, 3), [(0,), (1,)]), values=(3, 2, 2, 3, 2, 2), records=7),
        (2, 0, 1, 1, 1, 0, 0, 1, 1),
        (0, 1, 2, 3, 6),
    ),
    "totals that cross": (
        TableFacts(cells=6, invariants=CROSSING, values=(4, 4), records=7),
        (2, 1, 1, 1, 0, 2),
        (0, 1, 3),
    ),
    "a bound and a structural zero": (
        TableFacts(
            cells=4,
            invariants=((1, 1, 0, 0),),
            values=(5,),
            records=8,
            bounds=(((0, 1, 1, 0), 1, 4),),
            zeros=frozenset({3}),
        ),
        (4, 1, 3, 0),
        (0, 2),
    ),
}
NOISES = (DiscreteLaplace(2), DiscreteGaussian("3/2"))
SAMPLERS: dict[str, Callable[..., Any]] = {
    "quotient": lambda facts, noise, solved: TableSampler(facts, noise),
    "rejection": RejectionSampler,
    "coupling": lambda facts, noise, solved: HeatBath(facts, noise),
}


def bundle(text: str = "", count: int = 1) -> Any:
    return STREAMS.bundle([("table", f"{text}{i}", "detailed", "congenial") for i in range(count)])


def enumerated(facts: TableFacts, x: tuple[int, ...], noise: Any) -> tuple[np.ndarray, np.ndarray]:
    event = (
        LaplaceEvent(level="t", query="detailed", scale=noise.scale)
        if isinstance(noise, DiscreteLaplace)
        else GaussianEvent(level="t", query="detailed", sigma2=noise.sigma2)
    )
    space = data_space(facts)
    return space, conditional_law(space, x, event)


def p_value(tables: np.ndarray, space: np.ndarray, law: np.ndarray) -> float:
    place = {tuple(row): i for i, row in enumerate(space.tolist())}
    observed = np.bincount([place[tuple(row)] for row in tables.tolist()], minlength=len(space))
    expected = len(tables) * law
    often = expected >= 5
    observed = np.append(observed[often], observed[~often].sum())
    expected = np.append(expected[often], max(expected[~often].sum(), 1e-9))
    if expected[-1] < 1:
        observed, expected = observed[:-1], expected[:-1]
    return float(chdtrc(len(expected) - 1, ((observed - expected) ** 2 / expected).sum()))


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: noise.name)
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("name", SAMPLERS)
def test_protocol(name: str, system: str, noise: Any) -> None:
    facts, x, solved = SYSTEMS[system]
    sampler = SAMPLERS[name](facts, noise, solved)
    assert sampler.error.status == "proved"
    assert sampler.error.total_variation < Fraction(1, 10**29)
    law = sampler.given(x)
    assert str(list(x))[1:-1] not in repr(law)
    n = {"quotient": 20_000, "rejection": 600, "coupling": 120}[name]
    drawn = law.draw(bundle(name), n)
    assert drawn.shape == (1, n, facts.cells)
    space, truth = enumerated(facts, x, noise)
    assert p_value(drawn[0], space, truth) > 1e-6
    if name == "quotient":
        wider = DiscreteLaplace(Fraction(13, 5)) if isinstance(noise, DiscreteLaplace) else DiscreteGaussian("21/10")
        assert p_value(drawn[0], space, enumerated(facts, x, wider)[1]) < 1e-12
    assert np.array_equal(law.draw(bundle(name), 7)[0], drawn[0, :7])
    two = law.draw(bundle(name, 2), 3)
    assert np.array_equal(two[0], drawn[0, :3])
    assert not np.array_equal(law.draw(bundle("other"), 40), drawn[:, :40])


@st.composite
def systems(draw: st.DrawFn) -> tuple[TableFacts, tuple[int, ...]]:
    cells = draw(st.integers(1, 5))
    x = draw(st.tuples(*[st.integers(0, 3)] * cells))
    rows = draw(st.lists(st.tuples(*[st.integers(-1, 2)] * cells), max_size=2))
    bounds = draw(st.lists(st.tuples(st.tuples(*[st.integers(-1, 1)] * cells), st.integers(0, 2)), max_size=1))
    return (
        TableFacts(
            cells=cells,
            invariants=tuple(rows),
            values=tuple(int(np.dot(row, x)) for row in rows),
            records=sum(x),
            bounds=tuple((row, int(np.dot(row, x)) - slack, int(np.dot(row, x)) + slack) for row, slack in bounds),
            zeros=frozenset(i for i in range(cells - 1) if x[i] == 0 and draw(st.booleans())),
        ),
        x,
    )


def walked(law: TableLaw) -> dict[tuple[int, ...], Fraction]:
    """The law of the draws as rationals: every walk with the product of its exact shares."""
    graph, found = law.sampler.graph, {}

    def members(k: int, totals: list[int], j: int, left: int, table: dict[int, int], share: Fraction) -> None:
        if k == len(graph.cells):
            row = tuple(table.get(cell, 0) for cell in range(law.sampler.facts.cells))
            found[row] = found.get(row, Fraction(0)) + share
        elif j == len(graph.cells[k]) - 1:
            following = totals[k + 1] if k + 1 < len(totals) else 0
            members(k + 1, totals, 0, following, table | {graph.cells[k][j]: left}, share)
        else:
            choice = law._of_member(k, j, left)
            for amount, weight in zip(choice.amounts, choice.weights, strict=True):
                part = share * Fraction(weight, sum(choice.weights))
                members(k, totals, j + 1, left - amount, table | {graph.cells[k][j]: amount}, part)

    def classes(level: int, node: int, totals: list[int], share: Fraction) -> None:
        if level == len(graph.cells):
            members(0, totals, 0, totals[0], {}, share)
            return
        choice = law._of_class(level, node)
        for amount, weight, following in zip(choice.amounts, choice.weights, choice.following, strict=True):
            classes(level + 1, following, [*totals, amount], share * Fraction(weight, sum(choice.weights)))

    classes(0, 0, [], Fraction(1))
    return found


@settings(max_examples=60)
@given(systems(), st.sampled_from([DiscreteLaplace("3/2"), DiscreteGaussian("1/3"), DiscreteGaussian(5)]))
def test_the_walks_law_is_the_enumerated_one(system: tuple[TableFacts, tuple[int, ...]], noise: Any) -> None:
    facts, x = system
    sampler = TableSampler(facts, noise)
    law = sampler.given(x)
    space, truth = enumerated(facts, x, noise)
    found = walked(law)
    assert sum(found.values()) == 1
    assert set(found) <= set(map(tuple, space.tolist()))
    shares = np.array([float(found.get(tuple(row), Fraction(0))) for row in space.tolist()])
    assert shares == pytest.approx(truth, rel=1e-12, abs=1e-29)
    assert np.exp(law.log_density(space)) == pytest.approx(truth, rel=1e-11, abs=1e-300)
    away = np.abs(space - np.array(x))
    exponent = away @ np.full(facts.cells, float(noise.weights.linear)) + float(noise.weights.quadratic) * (
        away**2
    ).sum(axis=1)
    assert law.log_normalizer == pytest.approx(math.log(np.exp(-exponent).sum()), abs=1e-12)
    assert np.isneginf(law.log_density(space[:1] + 1)).all()


def test_the_error_is_a_bound_in_rationals() -> None:
    """Total variation of the walk's law from the true one, both to 400 bits, where the reach really cuts."""
    facts, noise = TableFacts(cells=3, values=(), records=40), DiscreteGaussian("1/2")
    sampler = TableSampler(facts, noise)
    assert sampler.arithmetic.reach < 40
    found = walked(sampler.given((0, 20, 20)))
    weights = {}
    from das.noise.interval_arithmetic import enclose_exp_minus

    for row in data_space(facts).tolist():
        exponent = sum(noise.weights.exponent(s - c) for s, c in zip(row, (0, 20, 20), strict=True))
        weights[tuple(row)] = Fraction(enclose_exp_minus(exponent, 400)[1], 1 << 400)
    total = sum(weights.values())
    distance = sum(abs(found.get(row, Fraction(0)) - weight / total) for row, weight in weights.items()) / 2
    assert 0 < distance <= sampler.error.total_variation


def test_fast_and_rational_draws_are_the_same_draws() -> None:
    facts, x, _ = SYSTEMS["totals that cross"]
    law = TableSampler(facts, DiscreteLaplace(2)).given(x)
    from das.table.walks import words

    one, steps = bundle("both"), 6
    fast = law.draw(one, 200)[0]
    uniform = words(one, 200 * steps).reshape(200, steps)
    for i in range(200):
        assert law.decide(uniform[i].tolist(), one, 0, i * steps).tolist() == fast[i].tolist()


def test_a_word_on_a_threshold_takes_more_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    facts, x, _ = SYSTEMS["a total"]
    law = TableSampler(facts, DiscreteLaplace(2)).given(x)
    walks = law._walks
    root_next = int(walks.first[law._entries[0] + 6])  # the only total, then the first member
    on = np.zeros((1, 4000, 3), dtype=np.uint32)
    on[0, :, 1] = walks.threshold[root_next]
    on[0, :, 2] = np.arange(4000, dtype=np.uint32) * np.uint32(2**32 // 4000)
    monkeypatch.setattr("das.table.quotient.words", lambda bundle, n: on.reshape(1, -1))
    drawn = law.draw(bundle("tie"), 4000)[0]
    choice = law._of_member(0, 0, 6)
    share = (choice.weights[0] << WORD_BITS) / sum(choice.weights) - int(walks.threshold[root_next])
    assert 0.02 < share < 0.98
    assert set(drawn[:, 0]) == set(choice.amounts[:2])
    taken = (drawn[:, 0] == choice.amounts[0]).mean()
    assert abs(taken - share) < 5 * math.sqrt(share * (1 - share) / 4000)


def test_choose_splits_every_point() -> None:
    walks = flatten([Choice((0, 1, 2), (5, 2, 1), (0, 0, 0))])
    bits = STREAMS.bits(("", "", "", ""))
    for word in (0, 5 << 29, (5 << 29) - 1, 7 << 29, (7 << 29) - 1, 2**32 - 1):
        place = choose((5, 2, 1), word, lambda: bits)
        low, high = (0, 5, 7)[place] << 29, (5, 7, 8)[place] << 29
        assert low <= word < high
    assert walks.threshold[:2].tolist() == [5 << 29, 7 << 29]


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1, 2), Fraction(2)])
@pytest.mark.parametrize("system", ["a total", "2 x 3 margins", "3 x 3 margins", "totals that cross"])
def test_the_loss_never_exceeds_the_reported_bound(system: str, epsilon: Fraction) -> None:
    facts, _, _ = SYSTEMS[system]
    sampler, space = TableSampler(facts, DiscreteLaplace(1 / epsilon)), data_space(facts)
    logs = {tuple(x): sampler.given(x).log_density(space) for x in space.tolist()}
    worst: dict[int, float] = {}
    for move in net_moves(facts, 2):
        for x in space:
            other = tuple((x + move).tolist())
            if other in logs:
                size = int(np.abs(move).sum())
                worst[size] = max(worst.get(size, 0.0), float((logs[tuple(x.tolist())] - logs[other]).max()))
    assert worst
    for size, loss in worst.items():
        assert size * float(epsilon) * (1 - 1e-9) <= loss  # conditioning never makes the worst case milder than this
        assert loss <= conditioned_geometric(epsilon, size, "equalities and box").cost


def published() -> dict[str, Any]:
    """Gong's table and figures."""
    return json.loads(PUBLISHED.read_text(encoding="utf-8"))


def test_the_example_is_the_published_table() -> None:
    table = published()
    female, male = (np.array(table["confidential"][sex]) for sex in ("female", "male"))
    assert (*female, *male) == COUNTS
    assert tuple(table["ages"]) == AGES
    assert table["minors"] == MINORS
    minors = female[:MINORS].sum() + male[:MINORS].sum()
    sums = {"female": female.sum(), "male": male.sum(), "minors": minors, "adults": 256 - minors, "total": 256}
    assert sums == table["invariants"]
    assert SEX_BY_AGE.values == (sums["female"], sums["adults"])
    assert SEX_BY_AGE.records == sums["total"]
    assert agrees(SEX_BY_AGE, np.array([table["released"]["female"], table["released"]["male"]]).reshape(-1))


def test_the_example() -> None:
    law = TableSampler(SEX_BY_AGE, DiscreteLaplace(2)).given(COUNTS)
    x = np.array(COUNTS)
    assert (x[:23].sum(), x[23:].sum(), x[[*range(4), *range(23, 27)]].sum(), x.sum()) == (130, 126, 43, 256)
    # by floating-point convolution of the four classes
    minor, adult, q = slice(0, 4), slice(4, 23), math.exp(-0.5)

    def convolved(counts: np.ndarray) -> np.ndarray:
        found = np.ones(1)
        for count in counts:
            found = np.convolve(found, q ** np.abs(np.arange(257) - count))[:257]
        return found

    classes = [convolved(x[:23][minor]), convolved(x[:23][adult]), convolved(x[23:][minor]), convolved(x[23:][adult])]
    total = sum(classes[0][g] * classes[1][130 - g] * classes[2][43 - g] * classes[3][83 + g] for g in range(44))
    assert law.log_normalizer == pytest.approx(math.log(total), abs=1e-11)
    assert law.log_normalizer == pytest.approx(published()["expected"]["log_normalizer"], abs=1e-12)
    drawn = law.draw(bundle("example"), 20_000)[0]
    assert agrees(SEX_BY_AGE, drawn).all()
    # class totals against their exact law
    share = [classes[0][g] * classes[1][130 - g] * classes[2][43 - g] * classes[3][83 + g] / total for g in range(44)]
    observed = np.bincount(drawn[:, :4].sum(axis=1), minlength=44)
    often = np.array(share) * 20_000 >= 10
    expected = 20_000 * np.array(share)[often]
    assert chdtrc(often.sum() - 1, ((observed[often] - expected) ** 2 / expected).sum()) > 1e-6
    sampler = RejectionSampler(SEX_BY_AGE, DiscreteLaplace(2), next(iter(SOLVED.values())))
    rate = sampler.acceptance(law.log_normalizer)
    noise = sampler.noise.draw(bundle("wait"), 43 * 100_000).reshape(-1, 43)
    tables, _ = sampler.cells.complete(x, noise)
    found = np.exp(-0.5 * np.abs(tables - x)[:, list(sampler.solved)].sum(axis=1)).sum() / 100_000
    assert found == pytest.approx(rate, rel=0.2)


def test_published_numbers_that_follow_from_the_normaliser(vectors) -> None:
    """Z c^46 and Z c^43, for the normaliser of the sampler."""
    names = ("seed_table_logZ", "seed_table_exact_rejection_acceptance", "seed_table_P_in_Sstar")
    vector = {v["name"]: v for v in vectors(*names)}
    log_z = TableSampler(SEX_BY_AGE, DiscreteLaplace(2)).given(COUNTS).log_normalizer
    assert log_z == pytest.approx(vector["seed_table_logZ"]["expected"], abs=vector["seed_table_logZ"]["tol"])
    sampler = RejectionSampler(SEX_BY_AGE, DiscreteLaplace(2), next(iter(SOLVED.values())))
    expected = vector["seed_table_exact_rejection_acceptance"]
    assert sampler.acceptance(log_z) == pytest.approx(expected["expected"], abs=expected["tol"])
    inside = math.exp(log_z + 46 * math.log(DiscreteLaplace(2).pmf(0)))
    expected = vector["seed_table_P_in_Sstar"]
    assert inside == pytest.approx(expected["expected"], abs=expected["tol"])


def test_what_cannot_be_is_infeasible() -> None:
    facts = TableFacts(cells=4, invariants=((1, 1, 0, 0), (0, 0, 1, 1)), values=(3, 3), records=5)
    with pytest.raises(InfeasibleError, match="no table agrees"):
        TableSampler(facts, DiscreteLaplace(2))
    with pytest.raises(InfeasibleError, match="no table agrees"):
        public_start(facts)
    nobody = TableFacts(cells=3, invariants=((0, 0, 1),), values=(1,), records=5, zeros=frozenset({2}))
    with pytest.raises(InfeasibleError, match="no table agrees"):
        TableSampler(nobody, DiscreteLaplace(2))
    with pytest.raises(InfeasibleError, match="no table agrees"):
        TableSampler(TableFacts(cells=2, values=(), records=5, zeros=frozenset({0, 1})), DiscreteLaplace(2))
    fine, x, _ = SYSTEMS["2 x 3 margins"]
    with pytest.raises(InfeasibleError, match="does not agree with the public facts"):
        TableSampler(fine, DiscreteLaplace(2)).given([3, *x[1:]])
    with pytest.raises(ConfigError, match="one integer for each cell"):
        TableSampler(fine, DiscreteLaplace(2)).given([0.5] * 6)
    with pytest.raises(ConfigError, match="published values are needed"):
        TableSampler(TableFacts(cells=3), DiscreteLaplace(2))


def test_a_system_without_a_bound_is_refused_with_what_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("das.table.class_graph.EDGE_LIMIT", 20_000)
    rows = margin_invariants((6, 6), [(0,), (1,)])
    facts = TableFacts(cells=36, invariants=rows, values=(60,) * 12, records=360)
    with pytest.raises(ConfigError, match=r"no sampler with a proved error.*nested invariants 0, 1, 2, 3, 4 and 5"):
        TableSampler(facts, DiscreteLaplace(2))
    small = TableFacts(cells=9, invariants=rows_of(3), values=(5,) * 6, records=15)
    with pytest.raises(ConfigError, match=r"200 tables at most.*nested invariants 0, 1 and 2"):
        HeatBath(small, DiscreteLaplace(2), cycle_moves(3, 3, 2))
    assert TableSampler(small, DiscreteLaplace(2)).error.status == "proved"
    for records, reason in ((10_000, "ways to split the class totals"), (100_000, "a class total may exceed 32,767")):
        with pytest.raises(ConfigError, match=f"{reason}; publish fewer invariants"):
            TableSampler(TableFacts(cells=100, values=(), records=records), DiscreteLaplace(10_000))


def rows_of(size: int) -> tuple[tuple[int, ...], ...]:
    return margin_invariants((size, size), [(0,), (1,)])


def test_nested_parts() -> None:
    for shape in product((2, 3), repeat=2):
        rows = margin_invariants(shape, [(0,), (1,)])
        kept = nearest_laminar(TableFacts(cells=shape[0] * shape[1], invariants=rows))
        assert len(kept) == max(shape)
        assert is_laminar([rows[i] for i in kept])
    assert nearest_laminar(SEX_BY_AGE) == (0,)
    assert not is_laminar([(1, 2)])


def test_rejection_says_when_it_would_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("das.table.rejection._MOST_PROPOSALS", 2048)
    law = RejectionSampler(SEX_BY_AGE, DiscreteLaplace(2), next(iter(SOLVED.values()))).given(COUNTS)
    with pytest.raises(UsageError, match="TableSampler"):
        law.draw(bundle(), 100)


def test_the_coins_of_rejection_are_not_the_bits_of_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise without a table is drawn from the bits of its position; a coin from the same bits would depend on it."""
    read: list[tuple[int, int]] = []
    bits = Bundle.bits

    def recorded(self: Bundle, stream: int, position: int) -> Any:
        read.append((stream, position))
        return bits(self, stream, position)

    monkeypatch.setattr("das.noise.two_sided.table_of", lambda weights: None)
    monkeypatch.setattr("das.table.rejection._FIRST_PROPOSALS", 32)
    monkeypatch.setattr(Bundle, "bits", recorded)
    facts = TableFacts(cells=3, values=(), records=9)
    RejectionSampler(facts, DiscreteLaplace(2), (0,)).given([4, 3, 2]).draw(bundle(), 2)
    noise = {place for place in read if place[1] < 2**32}
    coins = [place for place in read if place not in noise]
    assert len(noise) >= 64
    assert coins
    assert len(set(coins)) == len(coins)
