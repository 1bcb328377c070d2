"""The certificate: the bound is below the objective at every feasible table, whatever the multipliers, and near it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from das.estimation.certificate import lower_bound, relative_gap
from das.estimation.linear.basis import Basis
from das.estimation.linear.blue import distance, update
from das.estimation.problem import FamilyProblem
from das.estimation.solvers.first_order import solve_first_order
from das.estimation.solvers.reference import _SOLVERS, solve
from das.estimation.solvers.separable import solve_separable
from das.estimation.support import free_cells, limits_on_support
from das.estimation.verify import half_gradient, objective, residual

LIMITED = [(), ("total",), ("quarters",), ("total", "quarters"), ("kind", "kind * age"), ("quarters", "kind")]
DETAILED = ("total", "kind", "age * sex", "detailed")
COARSE = ("total", "kind * age")
Build = Callable[..., FamilyProblem]


def correlated(family: FamilyProblem) -> FamilyProblem:
    """Return the same family with the distance to linear estimates as its objective."""
    basis = Basis.of(family.measured[0].query.schema, [m.query for m in family.measured])
    known = update(basis, family.measured, None, len(family.geocodes), "")
    return replace(family, correlated=distance(basis, known, family.cells))


def feasible_tables(family: FamilyProblem, rng: np.random.Generator, count: int) -> list[np.ndarray]:
    """Tables that keep every constraint: optima for other measurements, and mixtures of them."""
    tables = []
    for _ in range(count):
        noise = [rng.integers(-9, 10, m.values.shape) for m in family.measured]
        measured = [replace(m, values=m.values + shift) for m, shift in zip(family.measured, noise, strict=True)]
        tables.append(solve(replace(family, measured=tuple(measured), correlated=None)).x)
    share = rng.dirichlet(np.ones(count))
    return [*tables, np.einsum("k,kij->ij", share, np.stack(tables))]


options = {
    "seed": st.integers(0, 2**32),
    "children": st.integers(1, 6),
    "exact": st.sampled_from(LIMITED),
    "facility": st.sampled_from(LIMITED),
    "queries": st.sampled_from([DETAILED, COARSE]),
    "top": st.booleans(),
    "mean": st.sampled_from([2.0, 300.0]),
}


@settings(max_examples=15)
@given(**options, solver=st.integers(0, 1))
def test_the_reference_certifies_its_solution(
    small_family: Build, seed: int, children: int, solver: int, **how: object
) -> None:
    found = solve(small_family(seed, children, **how), _SOLVERS[solver : solver + 1])
    assert 0.0 <= found.gap < 1e-6


@settings(max_examples=6)
@given(seed=st.integers(0, 2**32), children=st.integers(1, 6), exact=st.sampled_from(LIMITED[:3]), top=st.booleans())
def test_the_reference_certifies_solutions_near_linear_estimates(
    small_family: Build, seed: int, children: int, exact: tuple[str, ...], top: bool
) -> None:
    found = solve(correlated(small_family(seed, children, queries=DETAILED, exact=exact, top=top)))
    assert 0.0 <= found.gap < 1e-6


@settings(max_examples=6)
@given(**options, near_linear=st.booleans())
def test_no_feasible_table_is_below_the_bound_whatever_point_and_multipliers(
    small_family: Build, seed: int, children: int, near_linear: bool, **how: object
) -> None:
    rng, family = np.random.default_rng(seed), small_family(seed, children, **how)
    if near_linear and how["queries"] == DETAILED:
        family = correlated(family)
    known = limits_on_support(family)
    free = free_cells(family, known)
    tables = feasible_tables(family, rng, 3)
    least = min(objective(family, table) for table in tables)
    best = solve(family).x
    for point in (best, *tables, np.where(free, rng.uniform(0, 20, best.shape), 0.0)):
        for size in (0.0, 1e-3, 1.0):
            multipliers = tuple(size * rng.normal(size=facts.lower.shape) for facts in known)
            bound = lower_bound(family, known, free, point, multipliers)
            slack = sum(np.abs(m).sum() for m in multipliers) * max(residual(family, known, t) for t in tables)
            assert bound <= least * (1 + 1e-9) + 2 * slack + 1e-6


def test_a_worse_table_has_a_larger_gap(small_family: Build) -> None:
    family = small_family(5, 4, queries=DETAILED)
    best = solve(family).x
    other = np.broadcast_to(family.parent / 4, best.shape)
    bound = lower_bound(family, (), np.ones(best.shape, bool), best, ())
    assert relative_gap(objective(family, best), bound) < 1e-8 < 1e-3 < relative_gap(objective(family, other), bound)


def test_the_half_gradient_is_half_the_derivative(small_family: Build) -> None:
    rng = np.random.default_rng(2)
    for family in (small_family(2, 3, queries=COARSE), correlated(small_family(2, 3, queries=DETAILED))):
        x, step = rng.uniform(0, 5, family.shape), rng.normal(size=family.shape)
        change = objective(family, x + step / 2) - objective(family, x - step / 2)  # exact for a quadratic
        assert change == pytest.approx(2 * float((half_gradient(family, x) * step).sum()), rel=1e-9)


@pytest.mark.parametrize("near_linear", [False, True])
def test_independent_cells_and_large_families_are_certified_too(small_family: Build, near_linear: bool) -> None:
    family = small_family(8, 5, queries=("detailed",))
    family = correlated(family) if near_linear else family
    found = solve_separable(family)
    assert found is not None
    assert 0.0 <= found.gap < 1e-9
    if not near_linear:
        assert 0.0 <= solve_first_order(small_family(8, 5, queries=DETAILED, exact=("total",))).gap <= 1e-6
