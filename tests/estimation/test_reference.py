"""The cvxpy reference against enumeration of every active set, and against what must hold of any answer."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from das.errors import InfeasibleError
from das.estimation.grouping import group_cells
from das.estimation.problem import FamilyProblem, Measured
from das.estimation.solvers.reference import solve
from das.estimation.support import conflicts, limits_on_support
from das.estimation.verify import objective, residual
from das.schema.limits import NO_LIMIT, Limits
from das.schema.query import parse_query
from das.schema.schema import Attribute, Schema

SEX = Schema((Attribute("sex", ("f", "m")), Attribute("age", ("young", "old"))))
LAMINAR = [(), ("total",), ("quarters",), ("total", "quarters"), ("kind", "kind * age"), ("quarters", "kind")]


def smallest_by_enumeration(problem: FamilyProblem) -> float:
    """Least objective over all active sets: every subset of inequalities made equal, each KKT system solved densely."""
    n, m = problem.shape
    rows, right, weight = [], [], []
    for q in problem.measured:
        grouping = group_cells(q.query, problem.cells)
        for c, g in product(range(n), range(grouping.size)):
            row = np.zeros((n, m))
            row[c, grouping.index == g] = 1
            rows.append(row.ravel())
            right.append(q.values[c, grouping.answers[g]])
            weight.append(1 / q.variance)
    a, b, w = np.array(rows), np.array(right, dtype=float), np.array(weight)
    hessian, half_gradient = a.T @ (w[:, None] * a), a.T @ (w * b)
    equal = [np.tile(np.eye(m)[j], n) for j in range(m)]
    equal_to = [float(p) for p in problem.parent]
    unequal = [(np.eye(n * m)[i], 0.0) for i in range(n * m)]  # row @ x >= value
    for facts in limits_on_support(problem):
        for c, g in product(range(n), range(facts.grouping.size)):
            row = np.zeros((n, m))
            row[c, facts.grouping.index == g] = 1
            low, high = facts.lower[c, g], facts.upper[c, g]
            if low == high:
                equal.append(row.ravel())
                equal_to.append(float(low))
            else:
                unequal += [(row.ravel(), float(low))] if low > 0 else []
                unequal += [(-row.ravel(), -float(high))] if high < NO_LIMIT else []
    best = np.inf
    for active in product((False, True), repeat=len(unequal)):
        chosen = [u for u, on in zip(unequal, active, strict=True) if on]
        e = np.array(equal + [row for row, _ in chosen])
        d = np.array(equal_to + [value for _, value in chosen])
        kkt = np.block([[hessian, e.T], [e, np.zeros((len(e), len(e)))]])
        x = np.linalg.lstsq(kkt, np.concatenate([half_gradient, d]), rcond=None)[0][: n * m]
        if np.abs(e @ x - d).max() < 1e-7 and all(row @ x >= value - 1e-7 for row, value in unequal):
            best = min(best, objective(problem, x.reshape(n, m)))
    return best


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("bounds", ["none", "total", "range"])
def test_optimum_equals_enumeration_of_active_sets(seed, bounds):
    rng = np.random.default_rng(seed)
    truth = rng.poisson(1.5, (2, 4)) + 1
    measured = tuple(
        Measured(query=q, values=q.answer(truth) + rng.integers(-4, 5, (2, q.size)), variance=v)
        for q, v in (
            (parse_query(SEX, "total"), 1.0),
            (parse_query(SEX, "sex"), 3.0),
            (parse_query(SEX, "detailed"), 5.0),
        )
    )
    query = parse_query(SEX, "sex" if bounds == "range" else "total")
    answer = query.answer(truth)
    lower, upper = answer, answer
    if bounds == "range":  # one child only: the enumeration doubles with each inequality
        lower, upper = np.stack([answer[0] - 1, [0, 0]]), np.stack([answer[0] + 1, [NO_LIMIT, NO_LIMIT]])
    limits = () if bounds == "none" else (Limits(query=query, lower=lower, upper=upper),)
    family = FamilyProblem(
        level="tract", geocodes=("1", "2"), cells=np.arange(4), parent=truth.sum(0), measured=measured, limits=limits
    )
    found = solve(family)
    assert objective(family, found.x) == pytest.approx(smallest_by_enumeration(family), rel=1e-7, abs=1e-7)
    assert residual(family, limits_on_support(family), found.x) < 1e-6


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32),
    children=st.integers(1, 6),
    exact=st.sampled_from(LAMINAR),
    facility=st.sampled_from(LAMINAR),
    top=st.booleans(),
)
def test_what_the_truth_meets_is_met(small_family, seed, children, exact, facility, top):
    family = small_family(
        seed, children, queries=("total", "kind", "age * sex", "detailed"), exact=exact, facility=facility, top=top
    )
    found = solve(family)
    assert (found.x >= 0).all()
    assert residual(family, limits_on_support(family), found.x) <= 1e-6


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32), children=st.integers(2, 5))
def test_permuted_children_give_the_permuted_optimum(small_family, reorder, seed, children):
    family = small_family(seed, children, queries=("total", "detailed"), exact=("total",))
    order = np.random.default_rng(seed).permutation(children)
    np.testing.assert_allclose(solve(reorder(family, order)).x, solve(family).x[order], atol=1e-5)


def test_nothing_to_choose_is_answered_in_closed_form(small_family):
    alone = small_family(3, 1, exact=("total",))
    found = solve(alone)
    assert found.solver == "closed-form"
    np.testing.assert_array_equal(found.x, alone.parent[None])
    nobody = small_family(3, 4, mean=0.0)
    assert nobody.shape == (4, 0)
    assert solve(nobody).x.shape == (4, 0)


def test_a_parent_of_zeros_has_children_of_zeros(small_family):
    family = small_family(5, 3, top=True)
    empty = FamilyProblem(
        level="tract",
        geocodes=family.geocodes,
        cells=family.cells,
        parent=np.zeros(len(family.cells), np.int64),
        measured=family.measured,
        limits=(),
    )
    assert not solve(empty).x.any()


def test_answers_without_a_supported_cell_do_not_matter(small_family):
    family = small_family(8, 3, mean=0.3, queries=("detailed", "kind * age"))
    assert len(family.cells) < 12
    moved = []
    for q in family.measured:
        values = q.values.copy()
        unreached = np.setdiff1d(np.arange(q.query.size), q.query.group_of(family.cells))
        values[:, unreached] += 1000
        moved.append(Measured(query=q.query, values=values, variance=q.variance))
    other = FamilyProblem(
        level="tract",
        geocodes=family.geocodes,
        cells=family.cells,
        parent=family.parent,
        measured=tuple(moved),
        limits=(),
    )
    assert solve(other).x.tobytes() == solve(family).x.tobytes()


def test_a_state_of_millions_is_solved_to_a_fraction_of_a_person(redistricting_family):
    family = redistricting_family(1, 1, people=3e6, exact=("total",), top=True)
    found = solve(family)
    assert found.x.sum() > 1e5
    assert residual(family, limits_on_support(family), found.x) < 1e-5


def contradictory(lower, upper, name="sex"):
    query = parse_query(SEX, name)
    measured = Measured(query=parse_query(SEX, "detailed"), values=np.ones((2, 4), np.int64), variance=1.0)
    return FamilyProblem(
        level="tract",
        geocodes=("44001", "44003"),
        cells=np.array([0, 1, 2]),
        parent=np.array([2, 2, 2]),
        measured=(measured,),
        limits=(Limits(query=query, lower=np.array(lower), upper=np.array(upper)),),
    )


def test_limits_beyond_the_parent_are_named():
    with pytest.raises(InfeasibleError) as caught:
        solve(contradictory([[3, 0], [3, 0]], [[9, 9], [9, 9]]))
    assert caught.value.exit_code == 4
    assert "tract 4400" in str(caught.value)
    assert "query 'sex', answer 'f'" in str(caught.value)
    assert "lower limit" in str(caught.value)


def test_a_limit_on_a_cell_where_nobody_can_be_is_named():
    with pytest.raises(InfeasibleError, match="tract 44003, query 'detailed', answer 'm, old': somebody must be there"):
        solve(contradictory([[0] * 4, [0, 0, 0, 1]], [[9] * 4] * 2, "detailed"))


def test_a_limit_above_its_own_ceiling_is_named():
    with pytest.raises(InfeasibleError, match="tract 44001, query 'sex', answer 'm': the lower limit is above"):
        solve(contradictory([[0, 2], [0, 0]], [[9, 1], [9, 9]]))


def test_upper_limits_that_leave_people_over_are_named():
    with pytest.raises(InfeasibleError, match="query 'sex', answer 'm': the upper limit"):
        solve(contradictory([[0, 0], [0, 0]], [[9, 0], [9, 0]]))


def test_limits_that_agree_have_no_conflicts(small_family):
    assert conflicts(small_family(1, 4, exact=("total", "kind"), facility=("kind * sex",))) == ()
