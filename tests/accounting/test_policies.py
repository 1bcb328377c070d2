"""Policies on hierarchies against enumeration of small worlds, and against the numbers of the 2020 Census."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from das.accounting.conversion import epsilon_upper
from das.accounting.events import ExactEvent, GaussianEvent, LaplaceEvent, NotSupported, UnknownEvent
from das.accounting.hierarchy import HierarchicalPlan, attribute_changes, compose, finest_invariant
from das.accounting.moves import Secret, adjacency, determined_queries
from das.accounting.policies import (
    attribute_secrets,
    geography_secrets,
    guarantee,
    nominal_secret_guarantee,
    policy_moves,
    secret_guarantee,
)
from das.accounting.small_table.dataspace import TableFacts, semi_adjacency
from das.accounting.small_table.enumeration import irreducible_moves, net_moves
from das.accounting.small_table.plan import TablePlan
from das.errors import ConfigError

DELTA = Fraction(1, 10**10)


def tree_paths(branching: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Each leaf as the numbers of its geounits, top down."""
    paths: list[tuple[int, ...]] = [()]
    for children in branching:
        paths = [(*path, child) for path in paths for child in range(children)]
    numbered = [sorted({path[: d + 1] for path in paths}) for d in range(len(branching))]
    return [tuple(numbered[d].index(path[: d + 1]) for d in range(len(branching))) for path in paths]


def answer_rows(
    plan: HierarchicalPlan, branching: tuple[int, ...], level: str, query: str
) -> tuple[tuple[int, ...], ...]:
    depth = plan.depth(level)
    maps = plan.queries[query]
    cells = list(product(tree_paths(branching), product(*(range(size) for _, size in plan.attributes))))
    labels = [
        (path[depth], *(m[v] for m, v in zip(maps, values, strict=True) if m is not None)) for path, values in cells
    ]
    return tuple(tuple(int(label == wanted) for label in labels) for wanted in sorted(set(labels)))


def as_table(plan: HierarchicalPlan, branching: tuple[int, ...]) -> TablePlan:
    """The same plan with every leaf and every cell written out."""
    rows = tuple(row for pair in plan.invariants for row in answer_rows(plan, branching, *pair))
    cells = len(tree_paths(branching)) * math.prod(size for _, size in plan.attributes)
    return TablePlan(
        facts=TableFacts(cells=cells, invariants=rows),
        workloads={(e.level, e.query): answer_rows(plan, branching, e.level, e.query) for e in plan.events},
        events=plan.events,
    )


def largest_cost(table: TablePlan, moves: np.ndarray) -> float:
    """The cost by its definition, in floats: sum over events of ||W m||_2^2 / (2 sigma2) or ||W m||_1 / scale."""
    costs = np.zeros(len(moves))
    for event in table.events:
        changes = moves @ np.array(table.workloads[event.level, event.query]).T
        if isinstance(event, GaussianEvent):
            costs += (changes**2).sum(axis=1) / (2 * float(event.sigma2))
        else:
            costs += np.abs(changes).sum(axis=1) / float(event.scale)
    return float(costs.max(initial=0.0))


QUERIES = {
    "total": (None, None),
    "sex": ((0, 1), None),
    "age": (None, (0, 1, 2)),
    "adult": (None, (0, 1, 1)),
    "detailed": ((0, 1), (0, 1, 2)),
}


def small_plan(branching: tuple[int, ...], invariants: tuple[tuple[str, str], ...], events: tuple) -> HierarchicalPlan:
    return HierarchicalPlan(
        levels=tuple("abc"[: len(branching)]),
        units=tuple(int(n) for n in np.cumprod(branching)),
        attributes=(("sex", 2), ("age", 3)),
        queries=QUERIES,
        events=events,
        invariants=invariants,
    )


def gaussians(levels: str, queries: tuple[str, ...]) -> tuple[GaussianEvent, ...]:
    return tuple(
        GaussianEvent(level=level, query=query, sigma2=Fraction(1 + 2 * i + 5 * j, 3))
        for i, level in enumerate(levels)
        for j, query in enumerate(queries)
    )


NESTED = [
    ((1, 2, 2), ()),
    ((1, 2, 2), (("a", "total"),)),
    ((1, 2, 2), (("b", "total"),)),
    ((2, 2), (("a", "total"),)),
    ((2, 2), (("b", "total"), ("a", "total"))),
    ((2, 1), (("a", "total"),)),
    ((2, 2), (("a", "sex"),)),
    ((1, 2), (("b", "sex"), ("b", "total"))),
    ((1, 2), (("b", "adult"), ("a", "total"))),
    ((1, 3), (("b", "age"),)),
    ((1, 1), (("b", "adult"),)),
]


@pytest.mark.parametrize(("branching", "invariants"), NESTED)
@pytest.mark.parametrize("queries", [("total", "sex", "age", "detailed"), ("adult", "age"), ("detailed",), ("total",)])
def test_hierarchy_equals_enumeration(branching, invariants, queries) -> None:
    plan = small_plan(branching, invariants, gaussians("abc"[: len(branching)], queries))
    table = as_table(plan, branching)
    a = adjacency(plan)
    free = TableFacts(cells=table.facts.cells)
    expected = {
        "unconstrained": largest_cost(table, net_moves(free, 1)),
        "nearest": largest_cost(table, net_moves(table.facts, 1)),
        "semi": largest_cost(table, net_moves(table.facts, a)),
    }
    for policy, cost in expected.items():
        assert float(guarantee(plan, policy, DELTA).rho) == pytest.approx(cost), policy
    got, exact = (
        float(guarantee(plan, "irreducible", DELTA).rho),
        largest_cost(table, irreducible_moves(table.facts, a)),
    )
    assert got >= exact * (1 - 1e-12)
    if not any(query in ("sex", "adult", "age") for _, query in invariants):
        assert got == pytest.approx(exact)


@pytest.mark.parametrize(("branching", "invariants"), NESTED)
def test_pure_costs_equal_enumeration(branching, invariants) -> None:
    events = tuple(
        LaplaceEvent(level=level, query=query, scale=Fraction(2 + i, 3))
        for i, (level, query) in enumerate(product("abc"[: len(branching)], ("total", "age", "detailed")))
    )
    plan = small_plan(branching, invariants, events)
    table = as_table(plan, branching)
    a = adjacency(plan)
    assert float(guarantee(plan, "nearest", DELTA).pure) == pytest.approx(
        largest_cost(table, net_moves(table.facts, 1))
    )
    assert float(guarantee(plan, "semi", DELTA).pure) == pytest.approx(largest_cost(table, net_moves(table.facts, a)))


@pytest.mark.parametrize(
    ("branching", "invariants", "data"),
    [
        ((2, 1), (("a", "total"),), (0, 7)),
        ((1, 1), (("b", "sex"),), (0, 3, 4)),
        ((1, 1), (("a", "total"),), (0, 1)),
        ((1, 1), (), (2,)),
    ],
)
def test_adjacency_of_nested_invariants_is_the_definition(branching, invariants, data) -> None:
    plan = small_plan(branching, invariants, ())
    rows = as_table(plan, branching).facts
    facts = TableFacts(
        cells=rows.cells,
        invariants=rows.invariants,
        values=tuple(sum(row[c] for c in data) for row in rows.invariants),
        records=len(data),
    )
    assert adjacency(plan) == semi_adjacency(facts)


def brute_force_secret(plan: HierarchicalPlan, table: TablePlan, branching: tuple[int, ...], secret: Secret) -> float:
    """Every relabelling of one or two records that keeps what is public, the first as the secret says."""
    cells = list(product(tree_paths(branching), product(*(range(size) for _, size in plan.attributes))))
    matrix = np.array(table.facts.invariants).reshape(-1, len(cells))
    stays = -1 if secret.within is None else plan.depth(secret.within)

    def allowed(before: int, after: int) -> bool:
        (place, values), (other_place, other_values) = cells[before], cells[after]
        if place[: stays + 1] != other_place[: stays + 1]:
            return False
        changed = {n for (n, _), v, w in zip(plan.attributes, values, other_values, strict=True) if v != w}
        return secret.attributes is None or changed <= secret.attributes

    nets = set()
    for c, y in product(range(len(cells)), repeat=2):
        if c == y or not allowed(c, y):
            continue
        shift = matrix[:, y] - matrix[:, c]
        net = np.zeros(len(cells), dtype=int)
        net[c] -= 1
        net[y] += 1
        if not shift.any():
            nets.add(tuple(net))
            continue
        for d, z in product(range(len(cells)), repeat=2):
            if not (shift + matrix[:, z] - matrix[:, d]).any():
                both = net.copy()
                both[d] -= 1
                both[z] += 1
                nets.add(tuple(both))
    return largest_cost(table, np.array(sorted(nets)).reshape(len(nets), len(cells)))


@pytest.mark.parametrize(("branching", "invariants"), [b for b in NESTED if math.prod(b[0]) <= 3 or b[0] == (2, 2)])
@pytest.mark.parametrize(
    "secret",
    [
        Secret(name="sex", attributes=frozenset({"sex"}), within="b"),
        Secret(name="age", attributes=frozenset({"age"}), within="b"),
        Secret(name="place", attributes=frozenset()),
        Secret(name="place in a", attributes=frozenset(), within="a"),
    ],
)
def test_secrets_are_bounded_by_every_relabelling(branching, invariants, secret) -> None:
    plan = small_plan(branching, invariants, gaussians("ab", ("total", "sex", "age", "detailed")))
    table = as_table(plan, branching)
    exact = brute_force_secret(plan, table, branching, secret)
    got = secret_guarantee(plan, secret, DELTA)
    assert float(got.rho) >= exact * (1 - 1e-12)
    if got.move is None or got.move.records == 1:
        assert float(got.rho) == pytest.approx(exact)


@st.composite
def random_plans(draw: st.DrawFn) -> tuple[HierarchicalPlan, tuple[int, ...]]:
    branching = draw(st.sampled_from([(1, 2), (2, 1), (2, 2), (1, 1, 2), (3,)]))
    levels = "abc"[: len(branching)]
    pairs = st.tuples(st.sampled_from(levels), st.sampled_from(sorted(QUERIES)))
    invariants = tuple(draw(st.lists(pairs, max_size=2)))
    measured = draw(st.lists(st.tuples(pairs, st.integers(1, 9)), min_size=1, max_size=4))
    events = tuple(GaussianEvent(level=lv, query=q, sigma2=Fraction(s)) for (lv, q), s in measured)
    return small_plan(branching, invariants, events), branching


@pytest.mark.slow
@settings(max_examples=60)
@given(random_plans())
def test_random_plans_never_undercount(drawn: tuple[HierarchicalPlan, tuple[int, ...]]) -> None:
    plan, branching = drawn
    table = as_table(plan, branching)
    nearest = guarantee(plan, "nearest", DELTA)
    if nearest.status == "not supported":
        assert isinstance(finest_invariant(plan), NotSupported)
        assert not len(net_moves(table.facts, 1))
        return
    assert float(nearest.rho) == pytest.approx(largest_cost(table, net_moves(table.facts, 1)))
    a = adjacency(plan)
    if isinstance(a, NotSupported):
        assert guarantee(plan, "semi", DELTA).status == "not supported"
        return
    assert float(guarantee(plan, "semi", DELTA).rho) == pytest.approx(largest_cost(table, net_moves(table.facts, a)))
    irreducible = float(guarantee(plan, "irreducible", DELTA).rho)
    assert irreducible >= largest_cost(table, irreducible_moves(table.facts, a)) * (1 - 1e-12)
    for pair in determined_queries(plan):
        assert not np.any(net_moves(table.facts, a) @ np.array(table.workloads[pair]).T)
    vacuous = len(net_moves(table.facts, 2)) == 0
    assert (nearest.status == "VACUOUS - data determined by invariants") == vacuous


def test_max_of_sums_is_less_than_sum_of_maxes() -> None:
    events = (
        GaussianEvent(level="a", query="sex", sigma2=Fraction(1)),
        GaussianEvent(level="a", query="age", sigma2=Fraction(1)),
    )
    # a change of sex excludes a change of age, so no move pays for both
    shape = np.zeros((2, 3), dtype=bool)
    shape[0, 0] = shape[1, 0] = shape[0, 1] = True
    apart = HierarchicalPlan(
        levels=("a",), units=(1,), attributes=(("sex", 2), ("age", 3)), queries=QUERIES, events=events,
        invariants=(("a", "adult"),), possible=shape,
    )  # fmt: skip
    assert attribute_changes(apart, keep=frozenset({"adult"})) == (frozenset({"sex", "detailed"}),)
    assert guarantee(apart, "nearest", DELTA).rho == 1


def test_structural_zeros_remove_moves() -> None:
    events = gaussians("a", ("sex", "age"))
    diagonal = np.zeros((2, 3), dtype=bool)
    diagonal[0, 0] = diagonal[0, 1] = diagonal[1, 1] = True
    plan = HierarchicalPlan(
        levels=("a",),
        units=(1,),
        attributes=(("sex", 2), ("age", 3)),
        queries=QUERIES,
        events=events,
        possible=diagonal,
    )
    flat = [i for i, p in enumerate(diagonal.ravel()) if not p]
    whole = as_table(plan, (1,))
    table = TablePlan(facts=TableFacts(cells=6, zeros=frozenset(flat)), workloads=whole.workloads, events=events)
    assert float(guarantee(plan, "nearest", DELTA).rho) == pytest.approx(largest_cost(table, net_moves(table.facts, 1)))


# --- the 2020 Census

CENSUS_TABLE = [
    # policy, split, rho, epsilon at 1e-10
    ("unconstrained", False, 2.5562, 17.144),
    ("nearest", False, 1.7292, 13.679),
    ("nearest", True, 2.5562, 17.144),
    ("irreducible", False, 3.5882, 20.929),
    ("irreducible", True, 5.2422, 26.279),
    ("semi", False, 6.9169, 31.145),
    ("semi", True, 10.2249, 39.785),
]


@pytest.mark.parametrize(("policy", "split", "rho", "epsilon"), CENSUS_TABLE)
def test_census_table(census_plan, policy, split, rho, epsilon) -> None:
    plan, delta = census_plan("pl94_person_US", split=split)
    got = guarantee(plan, policy, delta)
    assert float(got.rho) == pytest.approx(rho, abs=5e-5)
    assert got.epsilon == pytest.approx(epsilon, abs=5e-4)
    assert got.status == "proved"
    assert got.assumptions
    if policy == "semi":
        assert got.adjacency == 2


def test_nominal_rho_is_the_published_rational(census_plan) -> None:
    plan, delta = census_plan("pl94_person_US")
    assert guarantee(plan, "unconstrained", delta).rho == Fraction(542, 339) ** 2


def test_within_block_change(census_plan) -> None:
    plan, delta = census_plan("pl94_person_US")
    got = secret_guarantee(plan, Secret(name="anything but the block", within="Block"), delta)
    assert float(got.rho) == pytest.approx(1.0269, abs=5e-5)
    assert got.epsilon == pytest.approx(10.185, abs=5e-4)


def test_radius_three_is_nine_rho(census_plan) -> None:
    plan, delta = census_plan("pl94_person_US", split=True)
    rho = guarantee(plan, "unconstrained", delta).rho
    assert epsilon_upper(9 * rho, delta) == pytest.approx(67.647, abs=5e-4)


def test_only_the_state_total_is_public(census_plan) -> None:
    plan, _ = census_plan("pl94_person_US")
    assert determined_queries(plan) == (("State", "total"),)
    split, _ = census_plan("pl94_person_US", split=True)
    assert determined_queries(split) == ()


CERTIFICATES = {
    "pl94_person_US": ([7.24, 7.57, 10.04, 10.08], [2.93, 9.38, 11.70, 13.05, 16.89]),
    "pl94_person_PR": ([8.69, 9.49, 11.65, 11.69], [2.93, 11.18, 13.51, 15.41]),
    "pl94_unit_US": ([2.47], [0.82, 1.81, 2.35, 2.46, 2.47]),
}


@pytest.mark.parametrize("product_name", sorted(CERTIFICATES))
def test_certificates(census_plan, product_name) -> None:
    plan, delta = census_plan(product_name)
    attributes, geographies = CERTIFICATES[product_name]
    for secrets, expected in ((attribute_secrets(plan), attributes), (geography_secrets(plan), geographies)):
        got = [nominal_secret_guarantee(plan, secret, delta).epsilon for secret in secrets]
        assert [round(epsilon, 2) for epsilon in got] == expected


@pytest.mark.parametrize(
    ("product_name", "rho", "epsilon"),
    [("dhc_person_US", Fraction(24811, 5000), 25.42), ("pl94_unit_US", Fraction(11417641, 152349649), 2.47)],
)
def test_other_products(census_plan, product_name, rho, epsilon) -> None:
    plan, delta = census_plan(product_name)
    got = guarantee(plan, "unconstrained", delta)
    assert got.rho == rho
    assert got.epsilon == pytest.approx(epsilon, abs=5e-3)
    assert guarantee(plan, "semi", delta).rho == 4 * rho


# --- composition, vacuity, and what is not known


def test_composition_recomputes_on_the_joint_moves() -> None:
    first = small_plan((2, 2), (("a", "total"),), gaussians("ab", ("total", "sex")))
    second = small_plan((2, 2), (("b", "sex"),), gaussians("ab", ("age",)))
    both = compose(first, second)
    assert finest_invariant(both) == ("b", "sex")
    apart = [guarantee(plan, "nearest", DELTA).rho for plan in (first, second)]
    joint = guarantee(both, "nearest", DELTA).rho
    table = as_table(both, (2, 2))
    assert float(joint) == pytest.approx(largest_cost(table, net_moves(table.facts, 1)))
    assert joint < sum(apart)
    # and it can be larger than what either release says alone, because more must change together
    assert guarantee(both, "semi", DELTA).adjacency == 2


def test_composition_needs_one_frame() -> None:
    with pytest.raises(ConfigError, match="different spines"):
        compose(small_plan((2, 2), (), ()), small_plan((2, 1), (), ()))


def test_determined_data_is_vacuous_never_epsilon_zero() -> None:
    plan = small_plan((2,), (("a", "detailed"),), gaussians("a", ("detailed",)))
    for policy in ("semi", "irreducible", "nearest"):
        got = guarantee(plan, policy, DELTA)
        assert got.status == "VACUOUS - data determined by invariants"
        assert got.epsilon is None
    assert guarantee(plan, "unconstrained", DELTA).epsilon > 0


def test_unknown_is_not_supported_and_exact_is_infinite() -> None:
    unknown = UnknownEvent(level="a", query="sex", description="a mechanism of another system")
    plan = small_plan((2, 2), (("a", "sex"),), (unknown,))
    for policy in ("semi", "irreducible", "nearest", "unconstrained"):
        got = guarantee(plan, policy, DELTA)
        assert got.status == "not supported"
        assert got.epsilon is None
        assert isinstance(got.rho, NotSupported)
    exact = small_plan((2, 2), (("a", "total"),), (ExactEvent(level="a", query="sex"),))
    assert guarantee(exact, "semi", DELTA).epsilon == math.inf
    fixed = small_plan((2, 2), (("a", "sex"),), (ExactEvent(level="a", query="sex"),))
    assert guarantee(fixed, "semi", DELTA).epsilon == 0.0


def test_crossing_invariants_are_not_supported_on_hierarchies_and_are_as_tables() -> None:
    plan = small_plan((2,), (("a", "sex"), ("a", "age")), gaussians("a", ("detailed",)))
    assert guarantee(plan, "semi", DELTA).status == "not supported"
    one = small_plan((1,), (("a", "sex"), ("a", "age")), gaussians("a", ("detailed",)))
    table = as_table(one, (1,))
    facts = TableFacts(cells=6, invariants=table.facts.invariants, values=(2, 1, 1, 1, 1), records=3)
    plan = TablePlan(facts=facts, workloads=table.workloads, events=table.events)
    assert guarantee(plan, "semi", DELTA).adjacency == 3
    assert guarantee(plan, "nearest", DELTA).rho <= guarantee(plan, "irreducible", DELTA).rho
    assert guarantee(plan, "irreducible", DELTA).rho <= guarantee(plan, "semi", DELTA).rho
    assert secret_guarantee(plan, (0, 4), DELTA).rho <= guarantee(plan, "semi", DELTA).rho
    moves, _ = policy_moves(plan, "unconstrained")
    assert {move.records for move in moves} == {1}


def test_bad_plans_name_all_problems() -> None:
    with pytest.raises(ConfigError) as caught:
        HierarchicalPlan(
            levels=("a", "b"), units=(3, 2), attributes=(("sex", 2),), queries={"sex": ((0, 1, 2),)},
            events=(ExactEvent(level="c", query="age"),),
        )  # fmt: skip
    assert len(caught.value.problems) == 4
    with pytest.raises(ConfigError, match="empty"):
        HierarchicalPlan(
            levels=("a",), units=(1,), attributes=(("sex", 2),), queries={}, events=(), possible=np.zeros(2, dtype=bool)
        )
    with pytest.raises(ConfigError, match="delta"):
        guarantee(small_plan((2,), (), ()), "semi", Fraction(2))
