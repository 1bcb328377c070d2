"""Totals held: the shares against a quadratic program, and the distance against its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize

from das.estimation.linear.basis import Basis
from das.estimation.linear.blue import distance, update
from das.estimation.prior.totals import penalise_totals, share_out
from das.estimation.problem import Measured
from das.schema.query import parse_query
from das.schema.schema import Attribute, Schema

SCHEMA = Schema((Attribute("sex", ("f", "m")), Attribute("race", tuple("abcdefghijkl"))))


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), children=st.integers(1, 6), total=st.integers(0, 40))
def test_shares_are_the_nearest_numbers(seed: int, children: int, total: int) -> None:
    rng = np.random.default_rng(seed)
    estimates, variances = rng.normal(3.0, 6.0, children), rng.uniform(0.2, 4.0, children)
    found = share_out(estimates, variances, float(total))
    assert found.sum() == pytest.approx(total, abs=1e-9)
    assert (found >= 0).all()
    best = minimize(
        lambda x: float((((x - estimates) ** 2) / variances).sum()),
        np.full(children, total / children),
        jac=lambda x: 2 * (x - estimates) / variances,
        bounds=[(0, None)] * children,
        constraints={"type": "eq", "fun": lambda x: x.sum() - total, "jac": lambda x: np.ones(children)},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(found, best.x, atol=1e-5)


def test_numbers_known_exactly_do_not_give_way() -> None:
    assert share_out(np.array([5.0, 2.0, 2.0]), np.array([0.0, 1.0, 1.0]), 11.0).tolist() == [5.0, 3.0, 3.0]
    assert share_out(np.array([5.0, 2.0]), np.zeros(2), 7.0).tolist() == [5.0, 2.0]


def family(
    rng: np.random.Generator, names: tuple[tuple[str, float], ...], children: int
) -> tuple[NDArray[np.int64], tuple[Measured, ...], Basis]:
    truth = rng.poisson(rng.choice([0.2, 40.0], SCHEMA.size), (children, SCHEMA.size))
    measured = tuple(
        Measured(
            query=(query := parse_query(SCHEMA, name)),
            values=np.rint(query.answer(truth) + rng.normal(0, np.sqrt(v), (children, query.size))).astype(np.int64),
            variance=v,
        )
        for name, v in names
    )
    return truth, measured, Basis.of(SCHEMA, [m.query for m in measured])


@pytest.mark.parametrize("top", [False, True])
def test_the_distance_grows_by_the_misfit_of_each_total(top: bool) -> None:
    rng = np.random.default_rng(3)
    truth, measured, basis = family(rng, (("total", 2.0), ("detailed", 25.0)), 1 if top else 3)
    known = update(basis, measured, None, len(truth), "leaf")
    cells = np.flatnonzero(truth.sum(axis=0))
    parent = None if top else truth.sum(axis=0)[cells]
    plain = distance(basis, known, cells)
    held = penalise_totals(plain, basis, known, cells, parent)
    variance = basis.variances(parse_query(SCHEMA, "total"), known.covariance)[:, 0]
    alone = basis.variances(parse_query(SCHEMA, "detailed"), known.covariance)[:, cells]
    of_cells = (alone if top else np.minimum(alone, parent**2 / 12)).sum(axis=1)
    weight = 10 * (1 / variance - 10 / of_cells)
    assert (weight > 0).all()
    totals = basis.to_cells(known.mean).sum(axis=1)
    aim = np.maximum(totals, 0) if top else share_out(totals, variance, truth.sum())
    for _ in range(5):
        x = rng.poisson(1.0, (len(truth), len(cells))).astype(float)
        more = float((weight * (x.sum(axis=1) - aim) ** 2).sum())
        assert held.value(x) == pytest.approx(plain.value(x) + more, rel=1e-9)


@pytest.mark.parametrize("measured", [(("detailed", 4.0),), (("total", 20.0), ("detailed", 4.0))])
def test_where_totals_are_hardly_better_known_than_cells_nothing_is_added(
    measured: tuple[tuple[str, float], ...],
) -> None:
    truth, noisy, basis = family(np.random.default_rng(1), measured, 3)
    known, cells = update(basis, noisy, None, 3, "leaf"), np.arange(SCHEMA.size)
    plain = distance(basis, known, cells)
    held = penalise_totals(plain, basis, known, cells, truth.sum(axis=0))
    np.testing.assert_array_equal(held.hessian, plain.hessian)
    np.testing.assert_array_equal(held.linear, plain.linear)
