"""The solver of families that are too large for a matrix, against the cvxpy reference; and passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import das.estimation.families as estimation
import das.estimation.solvers.first_order as first_order
import das.estimation.solvers.first_order.groups as groups
from das.estimation import estimate_family
from das.estimation.passes import in_passes
from das.estimation.problem import FamilyProblem, Measured
from das.estimation.solvers.first_order import solve_first_order
from das.estimation.solvers.first_order.kernels import share_out
from das.estimation.solvers.reference import solve
from das.estimation.verify import objective
from das.schema.limits import Limits
from das.schema.query import parse_query
from das.schema.schema import Attribute, Schema

SCHEMA = Schema(
    (
        Attribute("a", tuple("012345"), {"a2": {"low": ["0", "1"], "high": ["2", "3", "4", "5"]}}),
        Attribute("b", tuple("01234"), {"b2": {"x": ["0", "1"], "y": ["2", "3", "4"]}}),
        Attribute("c", tuple("012")),
    )
)
QUERIES = {"total": 1.0, "a": 2.0, "b2 * c": 2.0, "a * b2": 2.5, "a * b * c": 3.0}


def family(children: int, *, parent: bool, limits: bool, seed: int) -> FamilyProblem:
    rng = np.random.default_rng(seed)
    truth = rng.poisson(0.7, (children, SCHEMA.size))
    cells = np.flatnonzero(truth.sum(axis=0) > 0) if parent else np.arange(SCHEMA.size)
    measured = []
    for name, deviation in QUERIES.items():
        query = parse_query(SCHEMA, name)
        noise = np.rint(rng.normal(0, deviation, (children, query.size))).astype(np.int64)
        measured.append(Measured(query=query, values=query.answer(truth) + noise, variance=deviation**2))
    known: tuple[Limits, ...] = ()
    if limits:
        kind, total = parse_query(SCHEMA, "a"), parse_query(SCHEMA, "total")
        answers, people = kind.answer(truth), total.answer(truth)
        most = np.where(answers > 0, 99_999, 0)
        known = (
            Limits(query=kind, lower=np.minimum(answers, 1), upper=most),
            Limits(query=total, lower=people, upper=people),
        )
    return FamilyProblem(
        level="block",
        geocodes=tuple(str(i) for i in range(children)),
        cells=cells,
        parent=truth.sum(axis=0)[cells] if parent else None,
        measured=tuple(measured),
        limits=known,
    )


@pytest.mark.parametrize("multipliers", [800, 20, 0], ids=["dual variables on all coarse groups", "on few", "on none"])
@pytest.mark.parametrize("limits", [False, True], ids=["free", "limited"])
@pytest.mark.parametrize("parent", [False, True], ids=["top", "below"])
@pytest.mark.parametrize("seed", [1, 2])
def test_it_finds_the_optimum_of_the_reference(
    parent: bool, limits: bool, multipliers: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Coarse groups by dual variables or small steps, limits by dual variables or augmented Lagrangian: one optimum."""
    monkeypatch.setattr(groups, "MOST_MULTIPLIERS", multipliers)
    problem = family(3, parent=parent, limits=limits, seed=seed)
    ours, theirs = solve_first_order(problem), solve(problem)
    best = objective(problem, theirs.x)
    assert ours.solver == "large"
    assert objective(problem, ours.x) == pytest.approx(best, rel=2e-6)
    assert ours.gap <= 2e-6
    assert ours.residual <= 1e-6
    # Strong convexity: a small gap is a small distance to the optimum.
    assert np.abs(ours.x - theirs.x).max() < 0.05


def test_a_certificate_never_exceeds_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = family(4, parent=True, limits=True, seed=5)
    least = objective(problem, solve(problem).x) / 2
    bounds = []

    def noted(*arguments: object) -> object:
        found = certify(*arguments)
        bounds.append(found.bound)
        return found

    certify = first_order._certify
    monkeypatch.setattr(first_order, "_certify", noted)
    monkeypatch.setattr(groups, "MOST_MULTIPLIERS", 0)
    solve_first_order(problem)
    assert len(bounds) > 3
    assert max(bounds) <= least * (1 + 1e-8)
    assert max(bounds) >= least * (1 - 2e-6)


def test_cells_that_can_only_be_empty_are_left_out() -> None:
    problem = family(1, parent=False, limits=False, seed=3)
    query = parse_query(SCHEMA, "a * b2")
    nobody = np.zeros((1, query.size), dtype=np.int64)
    most = np.full_like(nobody, 1000)
    most[0, ::2] = 0
    problem = replace(problem, limits=(Limits(query=query, lower=nobody, upper=most),))
    found, reference = solve_first_order(problem), solve(problem)
    closed = np.isin(query.group_of(problem.cells), np.arange(0, query.size, 2))
    assert not found.x[:, closed].any()
    assert objective(problem, found.x) == pytest.approx(objective(problem, reference.x), rel=1e-6)


def test_without_a_measurement_of_every_cell_the_reference_takes_over() -> None:
    problem = family(2, parent=True, limits=False, seed=4)
    problem = replace(problem, measured=problem.measured[:-1])
    assert solve_first_order(problem).solver == solve(problem).solver


@given(
    st.integers(1, 6),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
@settings(max_examples=60)
def test_shares_are_the_nearest(children: int, seed: int, bound: bool) -> None:
    rng = np.random.default_rng(seed)
    point, free = rng.normal(0, 3, (children, 7)), rng.random((children, 7)) < 0.8
    free[rng.integers(children)] = True
    parent = rng.integers(0, 9, 7) if bound else None
    out = np.empty_like(point)
    share_out(point, np.zeros(0) if parent is None else parent.astype(np.float64), free, out)
    for cell in range(7):
        here = point[free[:, cell], cell]
        low, high = (here.min() - 9.0, here.max()) if parent is not None else (0.0, 0.0)
        for _ in range(80):  # bisection for the level at which all of the parent's people are shared out
            middle = (low + high) / 2
            too_many = parent is not None and np.maximum(here - middle, 0).sum() > parent[cell]
            low, high = (middle, high) if too_many else (low, middle)
        assert np.allclose(out[free[:, cell], cell], np.maximum(here - high, 0), atol=1e-9)
        assert not out[~free[:, cell], cell].any()


def test_a_family_beyond_the_threshold_is_solved_large_and_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimation, "LARGE", 20)
    problem = family(3, parent=True, limits=True, seed=6)
    found = estimate_family(problem, solver="fast")
    assert found.diagnostics.solver == "large"
    assert np.array_equal(found.counts.sum(axis=0), problem.parent)
    for limits in problem.limits:
        index = limits.query.group_of(problem.cells)
        answers = np.stack([np.bincount(index, row, minlength=limits.query.size) for row in found.counts])
        assert (limits.lower <= answers).all()
        assert (answers <= limits.upper).all()


@pytest.mark.parametrize("parent", [False, True], ids=["top", "below"])
def test_what_a_pass_finds_is_kept_by_the_next(parent: bool) -> None:
    problem = family(3, parent=parent, limits=True, seed=7)
    passes = (("a", "a * b2"), ("b2 * c",), ("total", "a * b * c"))
    solved: list[FamilyProblem] = []

    def solver(one: FamilyProblem) -> object:
        solved.append(one)
        return estimate_family(one, solver="cvxpy")

    found = in_passes(problem, passes, solver)  # type: ignore[arg-type]
    assert [tuple(m.query.name for m in one.measured) for one in solved] == [*passes]
    assert [len(one.cells) for one in solved[:2]] == [12, 36], "one cell for all that a pass does not tell apart"
    first = estimate_family(solved[0], solver="cvxpy")
    query = parse_query(SCHEMA, "a * b2")
    whole = np.zeros((3, SCHEMA.size), dtype=np.int64)
    whole[:, problem.cells] = found.counts
    small = np.zeros_like(whole)
    small[:, solved[0].cells] = first.counts
    assert np.array_equal(query.answer(whole), query.answer(small))
    if parent:
        assert np.array_equal(found.counts.sum(axis=0), problem.parent)


def test_totals_first_are_those_of_the_totals_alone() -> None:
    """Totals measured well stay where they are, whatever the noise of the cells says of their sum."""
    problem = family(3, parent=True, limits=False, seed=8)
    total = problem.measured[0]
    found = estimate_family(problem, solver="cvxpy", passes=(("total",), tuple(QUERIES)[1:]))
    assert problem.parent is not None
    off = problem.parent.sum() - total.values.sum()
    nearest = total.values[:, 0] + off / 3
    assert np.abs(found.counts.sum(axis=1) - nearest).max() <= 1.0
