"""Rounding against enumeration of all integer tables, and against the exactness it promises."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from das.estimation import estimate_family
from das.estimation.grouping import group_cells
from das.estimation.problem import FamilyProblem
from das.estimation.rounding import round_family, tie_breaks
from das.estimation.support import limits_on_support
from das.estimation.verify import VerificationError, keeps, require_exact
from das.schema.limits import Limits
from das.schema.query import parse_query
from das.schema.schema import Attribute, Schema

SEX = Schema((Attribute("sex", ("f", "m")), Attribute("age", ("young", "old"))))
REFINING = [(), ("total",), ("quarters", "kind"), ("total", "kind * age")]
CROSSING = [("kind", "age"), ("kind * age", "age * sex")]


def tables(parent: np.ndarray, children: int):
    """All nonnegative integer tables with these column sums."""
    columns = [[c for c in product(range(p + 1), repeat=children) if sum(c) == p] for p in parent]
    for choice in product(*columns):
        yield np.array(choice).T


def cost(problem: FamilyProblem, x: np.ndarray, counts: np.ndarray) -> float:
    """Squared distance of the cells and of each child's total."""
    return float(((counts - x) ** 2).sum() + ((counts.sum(1) - x.sum(1)) ** 2).sum())


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("limited", [False, True])
def test_rounding_is_the_nearest_table_in_the_box(seed, limited):
    rng = np.random.default_rng(seed)
    children, parent = int(rng.integers(2, 4)), rng.integers(1, 4, 3)
    x = rng.dirichlet(np.full(children, 0.7), 3).T * parent
    query = parse_query(SEX, "total")
    lower, upper = np.floor(x.sum(1))[:, None].astype(np.int64), np.ceil(x.sum(1))[:, None].astype(np.int64)
    problem = FamilyProblem(
        level="tract",
        geocodes=tuple("abc"[:children]),
        cells=np.arange(3),
        parent=parent,
        measured=(),
        limits=(Limits(query=query, lower=lower, upper=upper),) if limited else (),
    )
    inside = [
        cost(problem, x, t)
        for t in tables(parent, children)
        if (t >= np.floor(x)).all()
        and (t <= np.ceil(x)).all()
        and (t.sum(1) >= np.floor(x.sum(1))).all()
        and (t.sum(1) <= np.ceil(x.sum(1))).all()
    ]
    found = round_family(problem, x)
    assert found.widened == 0
    assert cost(problem, x, found.counts) == pytest.approx(min(inside), abs=1e-3)
    assert found.distance == pytest.approx(np.abs(found.counts - x).sum())


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32),
    children=st.integers(1, 6),
    exact=st.sampled_from(REFINING),
    facility=st.sampled_from(REFINING),
    top=st.booleans(),
)
def test_refining_limits_are_kept_exactly(small_family, seed, children, exact, facility, top):
    family = small_family(seed, children, queries=("age", "kind", "detailed"), exact=exact, facility=facility, top=top)
    estimate = estimate_family(family)
    require_exact(family, limits_on_support(family), estimate.counts)
    assert estimate.diagnostics.widened <= 1
    assert estimate.diagnostics.residual <= 1e-6


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32), children=st.integers(2, 5), exact=st.sampled_from(CROSSING), top=st.booleans())
def test_crossing_limits_are_kept_exactly(small_family, seed, children, exact, top):
    family = small_family(seed, children, queries=("total", "detailed"), exact=exact, top=top)
    require_exact(family, limits_on_support(family), estimate_family(family).counts)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32), children=st.integers(2, 6))
def test_sums_stay_between_floor_and_ceiling(small_family, seed, children):
    family = small_family(seed, children, queries=("kind", "kind * age", "detailed"))
    x = np.random.default_rng(seed).dirichlet(np.ones(children), len(family.cells)).T * family.parent
    found = round_family(family, x)
    assert found.widened == 0
    for name in ("total", "kind", "kind * age"):
        grouping = group_cells(parse_query(family.measured[0].query.schema, name), family.cells)
        assert (np.abs(grouping.sums(found.counts) - grouping.sums(x)) < 1 + 1e-6).all()


@pytest.mark.parametrize("seed", range(5))
def test_limits_that_hold_by_themselves_leave_the_box_to_what_was_measured(small_family, seed):
    """Limits of kinds cross sums of age and sex; near the solution no table breaks them."""
    family = small_family(seed, 4, queries=("age * sex", "detailed"))
    x = np.random.default_rng(seed).dirichlet(np.ones(4), len(family.cells)).T * family.parent
    kind = parse_query(family.measured[0].query.schema, "kind")
    grouping = group_cells(kind, family.cells)
    upper = np.zeros((4, kind.size), dtype=np.int64)
    upper[:, grouping.answers] = np.ceil(grouping.sums(x)) + 5
    found = round_family(replace(family, limits=(Limits(query=kind, lower=0 * upper, upper=upper),)), x)
    for name in ("total", "age * sex"):
        measured = group_cells(parse_query(kind.schema, name), family.cells)
        assert (np.abs(measured.sums(found.counts) - measured.sums(x)) < 1 + 1e-6).all()


def test_the_top_keeps_its_total_at_the_nearest_integer():
    problem = FamilyProblem(level="us", geocodes=("1",), cells=np.arange(4), parent=None, measured=(), limits=())
    found = round_family(problem, np.array([[0.4, 0.4, 0.4, 10.45]]))
    assert found.counts.sum() == 12


def test_integers_are_left_alone(small_family):
    family = small_family(2, 3)
    counts = np.stack([family.parent, 0 * family.parent, 0 * family.parent])
    found = round_family(family, counts + 1e-9)
    np.testing.assert_array_equal(found.counts, counts)


def test_a_box_that_misses_a_limit_is_widened_and_counted():
    query = parse_query(SEX, "total")
    problem = FamilyProblem(
        level="tract",
        geocodes=("a", "b"),
        cells=np.arange(2),
        parent=np.array([4, 4]),
        measured=(),
        limits=(Limits(query=query, lower=np.array([[5], [3]]), upper=np.array([[5], [3]])),),
    )
    found = round_family(problem, np.array([[2.0, 2.0], [2.0, 2.0]]))
    assert found.widened == 1
    assert found.counts.sum(1).tolist() == [5, 3]


def test_limits_far_from_the_solution_are_kept_at_the_least_distance():
    query = parse_query(SEX, "total")
    problem = FamilyProblem(
        level="us",
        geocodes=("a", "b"),
        cells=np.arange(2),
        parent=None,
        measured=(),
        limits=(Limits(query=query, lower=np.array([[1000], [0]]), upper=np.array([[2000], [9]])),),
    )
    found = round_family(problem, np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert found.counts.sum(1).tolist() == [1000, 7]
    assert found.counts[1].tolist() == [3, 4]
    assert found.distance == pytest.approx(997.0)


@pytest.mark.parametrize("seed", range(12))
def test_crossing_limits_are_rounded_to_the_nearest_table_that_keeps_them(seed):
    """Against all tables in the box; the flow serves where its answer keeps the limits that it does not know."""
    rng = np.random.default_rng(seed)
    parent = rng.integers(1, 4, 4)
    x = rng.dirichlet(np.full(2, 0.7), 4).T * parent
    limits = []
    for name in ("sex", "age"):
        query = parse_query(SEX, name)
        sums = query.answer(x)
        limits.append(Limits(query=query, lower=np.floor(sums).astype(np.int64), upper=np.ceil(sums).astype(np.int64)))
    problem = FamilyProblem(
        level="tract", geocodes=("a", "b"), cells=np.arange(4), parent=parent, measured=(), limits=tuple(limits)
    )
    known = limits_on_support(problem)
    inside = [
        t
        for t in tables(parent, 2)
        if (t >= np.floor(x)).all() and (t <= np.ceil(x)).all() and keeps(known, t.astype(np.int64))
    ]
    found, again = round_family(problem, x), round_family(problem, x)
    np.testing.assert_array_equal(found.counts, again.counts)
    if found.widened == 0:
        assert any(np.array_equal(found.counts, t) for t in inside)
        # The program weighs cells alone, the flow the sums of its tree as well, each of which is off by less than one.
        nearest = min(((t - x) ** 2).sum() for t in inside)
        assert ((found.counts - x) ** 2).sum() <= nearest + 2 * 3


def test_equal_parts_are_given_to_no_child_in_particular():
    children, families = 4, 400
    won = np.zeros(children)
    for family in range(families):
        problem = FamilyProblem(
            level="block",
            geocodes=tuple(f"{family:05d}{c}" for c in range(children)),
            cells=np.array([7]),
            parent=np.array([1]),
            measured=(),
            limits=(),
        )
        won += round_family(problem, np.full((children, 1), 1 / children)).counts[:, 0]
    # Binomial(400, 1/4): standard deviation 8.7; five of them. First-come would give 400 and zeros.
    assert (np.abs(won - families / children) < 44).all()


def test_tie_breaks_look_uniform():
    draws = tie_breaks(tuple(f"{i:011d}" for i in range(100)), np.arange(100)) / 2**12
    assert draws.min() >= 0
    assert draws.max() < 1
    assert abs(draws.mean() - 0.5) < 5 / np.sqrt(12 * draws.size)
    for axis in (0, 1):
        assert np.abs(draws.mean(axis=axis) - 0.5).max() < 5 / np.sqrt(12 * 100)


def test_the_same_family_gives_the_same_bytes(redistricting_family):
    first, second = (
        estimate_family(redistricting_family(4, 8, facility=("hhgq",), exact=("total",))) for _ in range(2)
    )
    assert first.counts.tobytes() == second.counts.tobytes()
    assert first.diagnostics.rounding_distance == second.diagnostics.rounding_distance


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32))
def test_permuted_children_round_to_permuted_counts(small_family, reorder, seed):
    family = small_family(seed, 4)
    x = np.random.default_rng(seed).dirichlet(np.ones(4), len(family.cells)).T * family.parent
    order = np.random.default_rng(seed + 1).permutation(4)
    np.testing.assert_array_equal(
        round_family(reorder(family, order), x[order]).counts, round_family(family, x).counts[order]
    )


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        (np.array([[5, 0], [0, -1]]), "negative"),
        (np.array([[1, 1], [1, 1]]), "sum to their parent"),
        (np.array([[2, 4], [3, 0]]), "limit of 'total'"),
        (np.array([[2.0, 1.0], [3.0, 3.0]]), "integers"),
    ],
)
def test_wrong_counts_do_not_pass(counts, reason):
    total = np.array([[3], [6]])
    problem = FamilyProblem(
        level="tract",
        geocodes=("a", "b"),
        cells=np.arange(2),
        parent=np.array([5, 4]),
        measured=(),
        limits=(Limits(query=parse_query(SEX, "total"), lower=total, upper=total),),
    )
    with pytest.raises(VerificationError, match=reason):
        require_exact(problem, limits_on_support(problem), counts)
