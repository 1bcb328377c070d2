"""The fast solver against the cvxpy reference, and its certificate against tables that were never near the optimum."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from das.errors import InfeasibleError
from das.estimation import estimate_families, estimate_family
from das.estimation.linear.basis import Basis
from das.estimation.linear.blue import Exact, LinearEstimate, condition, distance, pool, update
from das.estimation.problem import FamilyProblem, Measured
from das.estimation.solvers import active_set
from das.estimation.solvers.active_set import solve_families, solve_fast
from das.estimation.solvers.active_set.batch import Batch
from das.estimation.solvers.active_set.certificate import value_and_bound
from das.estimation.solvers.active_set.face import share_out
from das.estimation.solvers.active_set.iterate import solve_active_set
from das.estimation.solvers.active_set.setup import (
    Constraints,
    Objective,
    constraints_on_cells,
    fix_determined_cells,
    objective_from_measurements,
)
from das.estimation.solvers.reference import solve
from das.estimation.support import limits_on_support
from das.estimation.verify import objective, require_exact, residual
from das.schema.limits import NO_LIMIT, Limits
from das.schema.query import parse_query
from das.schema.schema import Attribute, Schema

LIMITED = [(), ("total",), ("quarters",), ("total", "kind"), ("kind", "age"), ("kind * age",)]
QUERIES = ("total", "kind", "age * sex", "detailed")


FALLBACK = {"piqp", "clarabel"}


def presolved(problem: FamilyProblem) -> tuple[Objective, Constraints]:
    """Objective and constraints of a family, no cell of which is fixed beforehand."""
    families, (n, m) = Batch.of([problem]).families, problem.shape
    free, fixed, every = np.empty((m, n), dtype=bool), np.zeros((m, n)), np.arange(m)
    fix_determined_cells(families.limits, free, np.zeros((m, n)))
    group_of = np.full(problem.measured[0].query.schema.size, -1)
    objective = objective_from_measurements(families.measurements, fixed, every, group_of)
    return objective, constraints_on_cells(families.limits, free, fixed, every)


def agree(problem: FamilyProblem) -> None:
    fast, reference = solve_fast(problem), solve(problem)
    assert fast.gap <= 1e-6 or fast.solver in FALLBACK
    assert residual(problem, limits_on_support(problem), fast.x) <= 1e-6
    assert objective(problem, fast.x) == pytest.approx(objective(problem, reference.x), rel=1e-6, abs=1e-6)
    # An interior point stays inside: where a cell is zero with nothing pressing on it, by more than its tolerance.
    np.testing.assert_allclose(fast.x, reference.x, atol=1e-3)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    children=st.integers(1, 6),
    exact=st.sampled_from(LIMITED),
    facility=st.sampled_from(LIMITED),
    top=st.booleans(),
)
def test_the_optimum_is_that_of_cvxpy(small_family, seed, children, exact, facility, top):
    agree(small_family(seed, children, queries=QUERIES, exact=exact, facility=facility, top=top))


@pytest.mark.parametrize("children", [4, 16])
@pytest.mark.parametrize("limits", [{}, {"facility": ("hhgq",)}, {"facility": ("hhgq",), "exact": ("total",)}])
def test_redistricting_families_have_the_optimum_of_cvxpy(redistricting_family, children, limits):
    family = redistricting_family(children, children, **limits)
    agree(family)
    assert solve_fast(family).solver == "fast"


def with_linear_estimates(problem: FamilyProblem, seed: int) -> FamilyProblem:
    """Let each child have children of its own, as many as it likes, that were measured too."""
    rng = np.random.default_rng(seed)
    schema = problem.measured[0].query.schema
    basis = Basis.of(schema, [m.query for m in problem.measured] + [k.query for k in problem.limits])
    estimates = []
    for _ in problem.geocodes:
        count = int(rng.integers(1, 5))
        below = tuple(
            Measured(query=m.query, values=rng.integers(-3, 9, (count, m.query.size)), variance=2 * m.variance)
            for m in problem.measured
        )
        estimates.append(pool(update(basis, below, None, count, "below")))
    below = LinearEstimate(
        np.concatenate([k.mean for k in estimates]),
        [np.concatenate(blocks) for blocks in zip(*(k.covariance for k in estimates), strict=True)],
    )
    known = update(basis, problem.measured, below, len(problem.geocodes), "here")
    exact = tuple(Exact(k.query, k.lower) for k in problem.limits if np.array_equal(k.lower, k.upper))
    return FamilyProblem(
        level=problem.level,
        geocodes=problem.geocodes,
        cells=problem.cells,
        parent=problem.parent,
        measured=problem.measured,
        limits=problem.limits,
        correlated=distance(basis, condition(basis, known, exact), problem.cells),
    )


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32),
    children=st.integers(1, 5),
    exact=st.sampled_from([(), ("total",), ("quarters",)]),
    facility=st.sampled_from(LIMITED),
    top=st.booleans(),
)
def test_correlated_estimates_have_the_optimum_of_cvxpy(small_family, seed, children, exact, facility, top):
    family = small_family(seed, children, queries=QUERIES, exact=exact, facility=facility, top=top)
    family = with_linear_estimates(family, seed)
    agree(family)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    children=st.integers(2, 5),
    exact=st.sampled_from(LIMITED),
    facility=st.sampled_from(LIMITED),
    far=st.sampled_from([0.0, 1.0, 30.0]),
    queries=st.sampled_from([QUERIES, QUERIES[:-1]]),
)
def test_no_feasible_table_is_below_the_bound(small_family, seed, children, exact, facility, far, queries):
    """The hidden truth is feasible; so is the optimum; whatever point and multipliers the bound is taken at."""
    rng = np.random.default_rng(seed)
    family = small_family(seed, children, queries=queries, exact=exact, facility=facility)
    if not len(family.cells):
        return
    quadratic, constraints = presolved(family)
    best = solve(family)
    at = best.x.T + rng.normal(0, 1 + far, best.x.T.shape)
    multipliers = (rng.normal(0, far, len(family.cells)), rng.normal(0, far, constraints.lower.shape))
    _, bound = value_and_bound(quadratic, constraints, np.ascontiguousarray(at), *multipliers)
    value, _ = value_and_bound(quadratic, constraints, np.ascontiguousarray(best.x.T), *multipliers)
    assert bound <= value + 1e-6 * max(1.0, value)
    assert value == pytest.approx(objective(family, best.x), rel=1e-9)


@pytest.mark.slow  # it compiles the solver once more, by itself
def test_the_bound_is_tight_at_the_optimum_and_nowhere_else(redistricting_family):
    family = redistricting_family(2, 6)
    quadratic, constraints = presolved(family)
    best = solve_active_set(quadratic, constraints)
    assert best.solved
    multipliers = (best.cell_multipliers, best.limit_multipliers)
    value, bound = value_and_bound(quadratic, constraints, best.x, *multipliers)
    assert bound == pytest.approx(value, rel=1e-9)
    assert value_and_bound(quadratic, constraints, best.x + 0.1, *multipliers)[1] < value * (1 - 1e-6)
    assert value_and_bound(quadratic, constraints, best.x, multipliers[0] + 0.01, multipliers[1])[1] < value * (
        1 - 1e-6
    )


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32), cells=st.integers(1, 5), children=st.integers(1, 80))
def test_the_nearest_share_satisfies_its_variational_inequality(seed, cells, children):
    """y is nearest to v in a convex set if (v - y).(z - y) <= 0 for all z in it: for a simplex, for its corners."""
    rng = np.random.default_rng(seed)
    parent, point = rng.integers(0, 50, cells), rng.normal(0, 20, (cells, children))
    free = rng.random((cells, children)) < 0.7
    free[:, 0] = True
    nearest, positive = point.copy(), free.copy()
    share_out(parent.astype(np.float64), positive, nearest)
    assert (nearest >= 0).all()
    assert np.array_equal(nearest > 0, positive)
    assert not positive[~free].any()
    np.testing.assert_allclose(nearest.sum(axis=1), parent, atol=1e-9)
    away = point - nearest
    corners = np.where(free, away, -np.inf).max(axis=1) * parent
    assert (corners - (away * nearest).sum(axis=1) <= 1e-7).all()


def test_the_reference_is_seldom_needed(small_family):
    """Small families with crossing limits are the worst case: everything in them touches a bound."""
    solvers = [
        solve_fast(small_family(seed, 4, mean=0.5, queries=QUERIES, exact=("kind",), facility=("age * sex",))).solver
        for seed in range(200)
    ]
    assert sum(solver in FALLBACK for solver in solvers) <= 2


def test_a_nation_is_solved_as_well_as_a_village(redistricting_family):
    family = redistricting_family(3, 1, people=1e8, top=True)
    fast, reference = solve_fast(family), solve(family)
    assert fast.solver == "fast"
    assert fast.gap <= 1e-6
    assert objective(family, fast.x) == pytest.approx(objective(family, reference.x), rel=1e-6)


def test_a_limit_on_a_nation_is_kept_to_the_person() -> None:
    """What is near zero for a nation of 150 million people is not so for its limits, nor for the objective."""
    schema = Schema((Attribute("sex", ("f", "m")),))
    detailed, total = parse_query(schema, "detailed"), parse_query(schema, "total")
    truth, most = np.array([[75_000_000, 10]] * 2), np.array([[75_000_000, NO_LIMIT], [NO_LIMIT, NO_LIMIT]])
    answers = total.answer(truth) + np.array([[1], [-1]])
    family = FamilyProblem(
        level="state",
        geocodes=("1", "2"),
        cells=np.arange(2),
        parent=truth.sum(axis=0),
        measured=(
            Measured(query=detailed, values=truth, variance=1.0),
            Measured(query=total, values=answers, variance=8.0),
        ),
        limits=(Limits(query=detailed, lower=0 * truth, upper=most),),
    )
    found = solve_fast(family)
    assert found.solver == "fast"
    assert found.x[0, 0] <= 75_000_000 + 1e-4
    assert objective(family, found.x) == pytest.approx(2 / 9, rel=1e-4)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), children=st.integers(2, 5), exact=st.sampled_from(LIMITED))
def test_what_nobody_measured_in_detail_has_the_distance_of_cvxpy(small_family, seed, children, exact):
    """Several tables may be nearest; their distance is the same."""
    family = small_family(seed, children, queries=("total", "kind", "age * sex"), exact=exact)
    fast, reference = solve_fast(family), solve(family)
    assert fast.gap <= 1e-6 or fast.solver in FALLBACK
    assert residual(family, limits_on_support(family), fast.x) <= 1e-6
    assert objective(family, fast.x) == pytest.approx(objective(family, reference.x), rel=1e-6, abs=1e-5)


def test_what_nobody_measured_in_detail_seldom_needs_the_reference(small_family):
    solvers = [solve_fast(small_family(seed, 4, queries=("total", "kind", "age * sex"))).solver for seed in range(100)]
    assert sum(solver in FALLBACK for solver in solvers) <= 5
    assert solve_fast(small_family(4, 4, queries=("total", "kind"), top=True)).solver in FALLBACK


@pytest.mark.parametrize(
    "changed", [{0: 0.0}, {1: 1.0}, {2: 0.5}], ids=["not solved", "no certificate", "a limit missed"]
)
def test_what_is_not_solved_certified_and_feasible_goes_to_the_reference(small_family, monkeypatch, changed):
    family, solve_batch = small_family(4, 4, queries=QUERIES), Batch.solve
    assert solve_fast(family).solver == "fast"

    def doubtful(batch: Batch):
        tables, report = solve_batch(batch)
        for column, value in changed.items():
            report[:, column] = value
        return tables, report

    monkeypatch.setattr(Batch, "solve", doubtful)
    assert solve_fast(family).solver in FALLBACK


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), exact=st.sampled_from(LIMITED), facility=st.sampled_from(LIMITED))
def test_a_family_among_others_has_the_bytes_that_it_has_alone(small_family, seed, exact, facility):
    """Of all sizes, measured and limited alike or not, with nothing to choose or linear estimates among them."""
    group = [small_family(seed + k, 1 + k % 4, queries=QUERIES, exact=exact, facility=facility) for k in range(5)]
    group += [with_linear_estimates(group[1], seed), small_family(seed, 3, queries=QUERIES, top=True)]
    group += [small_family(seed, 2, queries=QUERIES[1:]), group[0]]
    for one, family in zip(solve_families(group), group, strict=True):
        alone = solve_fast(family)
        assert one.x.tobytes() == alone.x.tobytes()
        assert (one.solver, one.residual, one.gap) == (alone.solver, alone.residual, alone.gap) or np.isnan(one.gap)
    for one, family in zip(estimate_families(group, "fast"), group, strict=True):
        assert np.array_equal(one.counts, estimate_family(family, "fast").counts)


def test_contradictions_are_named_by_the_fast_solver_too(small_family):
    family = small_family(7, 3, queries=QUERIES)
    query = parse_query(family.measured[0].query.schema, "total")
    short = np.full((3, 1), int(family.parent.sum()) // 3 - 1)
    wrong = FamilyProblem(
        level="tract",
        geocodes=family.geocodes,
        cells=family.cells,
        parent=family.parent,
        measured=family.measured,
        limits=(Limits(query=query, lower=0 * short, upper=short),),
    )
    with pytest.raises(InfeasibleError, match="upper limit"):
        solve_fast(wrong)


def test_the_same_family_gives_the_same_bytes_twice(redistricting_family):
    family = redistricting_family(9, 8, facility=("hhgq",), exact=("total",))
    first, second = estimate_family(family, "fast"), estimate_family(family, "fast")
    assert first.counts.tobytes() == second.counts.tobytes()
    assert first.diagnostics == second.diagnostics
    require_exact(family, limits_on_support(family), first.counts)


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32), children=st.integers(2, 5))
def test_permuted_children_give_permuted_solutions(small_family, reorder, seed, children):
    family = small_family(seed, children, queries=QUERIES, facility=("kind",))
    order = np.random.default_rng(seed).permutation(children)
    np.testing.assert_allclose(solve_fast(reorder(family, order)).x, solve_fast(family).x[order], atol=1e-7)


def test_every_function_can_be_held_in_mind():
    """McCabe complexity at most 20 and at most 8 parameters, for every function of the solver."""
    folder = Path(active_set.__file__).parent
    limits = ["lint.mccabe.max-complexity=20", "lint.pylint.max-args=8"]
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "C901,PLR0913"]
    options = [word for limit in limits for word in ("--config", limit)]
    done = subprocess.run([*command, *options, str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
