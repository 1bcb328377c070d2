"""Minimal contradictions on random systems: infeasible together, feasible without any one of them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from das.estimation.problem import FamilyProblem
from das.estimation.support import conflicts
from das.facts.irreducible import System, irreducible
from das.schema.limits import NO_LIMIT, Limits
from das.schema.query import parse_query
from das.schema.schema import Attribute, Schema

FAR = 30


@st.composite
def systems(draw: st.DrawFn) -> System:
    rows, cells = draw(st.integers(2, 8)), draw(st.integers(1, 5))
    members = np.array(draw(st.lists(st.integers(0, 1), min_size=rows * cells, max_size=rows * cells)))
    lower = np.array(draw(st.lists(st.sampled_from([0, 0, 1, 3, 7]), min_size=rows, max_size=rows)))
    upper = np.array(draw(st.lists(st.sampled_from([int(NO_LIMIT), 0, 2, 5, 9]), min_size=rows, max_size=rows)))
    given = None
    values = None
    if draw(st.booleans()):
        given, values = sparse.csr_array(np.ones((1, cells))), np.array([draw(st.integers(0, 9))])
    return System(sparse.csr_array(members.reshape(rows, cells)), lower, upper, given, values)


@settings(max_examples=60)
@given(systems())
def test_the_rows_named_contradict_one_another_and_each_is_needed(system: System) -> None:
    rows = irreducible(system)
    if not len(rows):
        assert system.holds()
        return
    assert not system.pick(rows).holds()
    for row in rows:
        assert system.pick(rows[rows != row]).holds()
    np.testing.assert_array_equal(rows, irreducible(system))


@settings(max_examples=40)
@given(systems())
def test_a_system_holds_if_and_only_if_enumeration_finds_a_solution(system: System) -> None:
    """Half-integers up to 9 decide systems of two cells or fewer; with more, tables that obey show that it holds."""
    members = system.members.toarray()
    tried = np.array(list(product(np.arange(0, 9.5, 0.5 if members.shape[1] < 3 else 3), repeat=members.shape[1])))
    sums = tried @ members.T
    obeys = ((sums >= system.lower) & (sums <= system.upper)).all(axis=1)
    if system.given is not None:
        obeys &= (tried @ system.given.toarray().T == system.given_values).all(axis=1)
    if obeys.any():
        assert system.holds()
    elif members.shape[1] < 3:
        assert not system.holds() or (system.lower > 9).any()


def test_a_long_chain_of_limits_needs_all_of_them() -> None:
    """Three hundred cells of at most one each, and 301 people: everything is needed."""
    members = sparse.vstack([sparse.eye_array(300), np.ones((1, 300))], format="csr")
    system = System(members, np.append(np.zeros(300, np.int64), 301), np.append(np.ones(300, np.int64), NO_LIMIT))
    assert irreducible(system).tolist() == list(range(301))


def test_large_numbers_and_a_gap_of_one() -> None:
    members = sparse.csr_array(np.array([[1, 0], [0, 1], [1, 1], [1, 0]]))
    lower, upper = np.array([10**9, 10**9 + 1, 0, 0]), np.array([NO_LIMIT, NO_LIMIT, 2 * 10**9, 10**11])
    assert irreducible(System(members, lower, upper)).tolist() == [0, 1, 2]


def test_limits_of_a_family_outside_the_conflict_are_not_named() -> None:
    schema = Schema((Attribute("sex", ("f", "m")), Attribute("age", ("young", "old"))))
    sex = Limits(query=parse_query(schema, "sex"), lower=np.array([[3, 1], [3, 0]]), upper=np.full((2, 2), 9))
    total = Limits(query=parse_query(schema, "total"), lower=np.array([[2], [2]]), upper=np.full((2, 1), 99))
    family = FamilyProblem(
        level="tract", geocodes=("1", "2"), cells=np.arange(4), parent=np.array([2, 2, 5, 5]), measured=(),
        limits=(total, sex),
    )  # fmt: skip
    assert [problem.where for problem in conflicts(family)] == [
        "tract 1, query 'sex', answer 'f'",
        "tract 2, query 'sex', answer 'f'",
    ]
    assert {problem.remedy for problem in conflicts(family)} == {"mend or drop any one of these"}


@pytest.mark.parametrize("lower", [0, 1])
def test_a_row_without_cells_stands_for_a_structural_zero(lower: int) -> None:
    system = System(sparse.csr_array((1, 3)), np.array([lower]), np.array([NO_LIMIT]))
    assert irreducible(system).tolist() == [0] * lower
