"""Cells that have nothing to do with one another, against the reference solver."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from das.estimation import estimate_family
from das.estimation.linear.basis import Basis
from das.estimation.linear.blue import LinearEstimate, distance
from das.estimation.problem import FamilyProblem, Measured
from das.estimation.solvers.separable import share_cells, solve_separable
from das.estimation.verify import objective
from das.schema.limits import Limits
from das.schema.query import parse_query
from das.schema.schema import Attribute, Schema

SCHEMA = Schema((Attribute("sex", ("f", "m")), Attribute("age", ("0-17", "18-64", "65+"))))
DETAILED = parse_query(SCHEMA, "detailed")


def family(seed: int, children: int, *, estimated: bool) -> FamilyProblem:
    rng = np.random.default_rng(seed)
    truth = rng.poisson(2.0, (children, SCHEMA.size)) * (rng.random(SCHEMA.size) < 0.8)
    noisy = truth + rng.integers(-4, 5, truth.shape)
    measured = (
        Measured(query=DETAILED, values=noisy, variance=3.0),
        Measured(query=DETAILED, values=truth + rng.integers(-2, 3, truth.shape), variance=5.0),
    )
    basis = Basis.of(SCHEMA, [DETAILED])
    spread = rng.uniform(0.5, 4.0, children)
    known = LinearEstimate(
        basis.to_coefficients(noisy.astype(float)),
        [spread[:, None, None] * np.eye(where.shape[1]) for where in basis.where],
    )
    cells = np.arange(SCHEMA.size)
    return FamilyProblem(
        level="tract",
        geocodes=tuple("abcdefgh"[:children]),
        cells=cells,
        parent=truth.sum(axis=0),
        measured=measured,
        limits=(),
        correlated=distance(basis, known, cells) if estimated else None,
    )


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), children=st.integers(1, 5), estimated=st.booleans())
def test_it_is_the_optimum(seed: int, children: int, estimated: bool) -> None:
    problem = family(seed, children, estimated=estimated)
    found = solve_separable(problem)
    assert found is not None
    assert found.residual < 1e-9
    assert (found.x >= 0).all()
    # No exchange of a little between two children makes it better: the first-order conditions of a convex problem.
    here = objective(problem, found.x)
    for cell in range(SCHEMA.size):
        for a in range(children):
            for b in range(children):
                step = min(1e-4, found.x[a, cell])
                moved = found.x.copy()
                moved[a, cell] -= step
                moved[b, cell] += step
                assert objective(problem, moved) >= here - 1e-10


@pytest.mark.parametrize("estimated", [False, True])
def test_it_gives_the_counts_of_the_reference(estimated: bool) -> None:
    for seed in range(3):
        problem = family(seed, 4, estimated=estimated)
        ours, reference = estimate_family(problem, "fast"), estimate_family(problem, "cvxpy")
        assert ours.diagnostics.solver == "separable"
        np.testing.assert_array_equal(ours.counts, reference.counts)


def test_cells_that_meet_in_a_query_or_a_limit_are_left_to_others() -> None:
    problem = family(1, 3, estimated=False)
    total = parse_query(SCHEMA, "total")
    sums = Measured(query=total, values=np.array([[5], [6], [7]]), variance=2.0)
    limit = Limits(query=total, lower=np.zeros((3, 1), int), upper=np.full((3, 1), 40))
    assert solve_separable(problem) is not None
    assert solve_separable(FamilyProblem(**_fields(problem) | {"measured": (*problem.measured, sums)})) is None
    assert solve_separable(FamilyProblem(**_fields(problem) | {"limits": (limit,)})) is None
    basis = Basis.of(SCHEMA, [total, DETAILED])
    blocks = [np.tile(np.eye(w.shape[1]) * (1.0 + at), (3, 1, 1)) for at, w in enumerate(basis.where)]
    known = LinearEstimate(np.zeros((3, SCHEMA.size)), blocks)
    correlated = distance(basis, known, problem.cells)
    assert solve_separable(FamilyProblem(**_fields(problem) | {"correlated": correlated})) is None


def test_a_cell_without_people_stays_empty() -> None:
    x, _ = share_cells(np.array([[4.0, 1.0], [2.0, 3.0]]), np.ones((2, 2)), np.array([0.0, 6.0]))
    assert x.tolist() == [[0.0, 2.0], [0.0, 4.0]]


def _fields(problem: FamilyProblem) -> dict[str, object]:
    return {name: getattr(problem, name) for name in problem.__slots__}
