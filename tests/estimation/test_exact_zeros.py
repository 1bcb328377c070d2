"""Known zeros in the sweeps, against generalised least squares with each of them as a constraint."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from das.estimation.linear.basis import Basis
from das.estimation.linear.blue import Exact, LinearEstimate, condition, pool, update, update_from_parent
from das.estimation.linear.exact_zeros import condition_on_zeros, known_zeros
from das.estimation.problem import Measured
from das.schema.limits import NO_LIMIT, Limits
from das.schema.query import Query, parse_query
from das.schema.schema import Attribute, Schema

SCHEMA = Schema(
    (
        Attribute("kind", ("home", "barracks", "prison"), {"gq": {"no": ["home"], "yes": ["barracks", "prison"]}}),
        Attribute("age", ("young", "old")),
        Attribute("race", ("a", "b", "c", "d")),
    )
)
QUERIES = {name: parse_query(SCHEMA, name) for name in ("total", "gq", "kind", "age", "gq * race", "detailed")}
STRATEGY = (("total", "detailed"), ("gq * race", "detailed", "total"))


def dense(query: Query) -> NDArray[np.float64]:
    matrix = np.zeros((query.size, SCHEMA.size))
    matrix[query.index, np.arange(SCHEMA.size)] = 1.0
    return matrix


def measure(rng: np.random.Generator, truth: NDArray[np.int64], names: tuple[str, ...]) -> tuple[Measured, ...]:
    return tuple(
        Measured(
            query=QUERIES[name],
            values=QUERIES[name].answer(truth) + rng.integers(-3, 4, (len(truth), QUERIES[name].size)),
            variance=float(rng.uniform(0.5, 5.0)),
        )
        for name in names
    )


def limits(truth: NDArray[np.int64], names: tuple[str, ...], rng: np.random.Generator) -> tuple[Limits, ...]:
    """Upper bounds that say of some zero answers that they are zero, and nothing of all others."""
    out = []
    for name in names:
        answers = QUERIES[name].answer(truth)
        declared = (answers == 0) & (rng.random(answers.shape) < 0.8)
        out.append(Limits(query=QUERIES[name], lower=0 * answers, upper=np.where(declared, 0, NO_LIMIT)))
    return tuple(out)


def brute_force(
    top: tuple[Measured, ...], leaf: tuple[Measured, ...], total: int, empty: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and covariance of all cells of all leaves, those that are not empty alone being variables."""
    children = len(empty)
    size = children * SCHEMA.size
    information, vector = np.zeros((size, size)), np.zeros(size)
    sum_up = np.kron(np.ones((1, children)), np.eye(SCHEMA.size))
    for m in top:
        w = dense(m.query) @ sum_up
        information += w.T @ w / m.variance
        vector += w.T @ m.values[0] / m.variance
    for m in leaf:
        for child in range(children):
            w = dense(m.query) @ np.kron(np.eye(children)[child][None, :], np.eye(SCHEMA.size))
            information += w.T @ w / m.variance
            vector += w.T @ m.values[child] / m.variance
    kept = np.flatnonzero(~empty.ravel())
    information, vector = information[np.ix_(kept, kept)], vector[kept]
    covariance = np.linalg.inv(information)
    mean = covariance @ vector
    ones = np.ones(len(kept))  # the total of all is exact
    gain = covariance @ ones / (ones @ covariance @ ones)
    mean, covariance = mean + gain * (total - mean.sum()), covariance - np.outer(gain, ones @ covariance)
    whole_mean, whole = np.zeros(size), np.zeros((size, size))
    whole_mean[kept] = mean
    whole[np.ix_(kept, kept)] = covariance
    return whole_mean.reshape(children, -1), whole


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    children=st.integers(1, 4),
    bounded=st.sampled_from([("kind",), ("gq",), ("kind", "age"), ("total", "kind")]),
)
def test_the_sweeps_condition_on_every_known_zero(seed: int, children: int, bounded: tuple[str, ...]) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.poisson(2.0, (children, *SCHEMA.shape)) * (rng.random((children, 3, 1, 1)) < 0.5)
    truth[:, :, 0] *= rng.random((children, 1, 1)) < 0.7
    truth = truth.reshape(children, -1)
    above = truth.sum(axis=0, keepdims=True)
    leaf, top = measure(rng, truth, STRATEGY[1]), measure(rng, above, STRATEGY[0])
    known_limits = limits(truth, bounded, rng)
    cells_empty = np.zeros(truth.shape, dtype=bool)
    for each in known_limits:
        cells_empty |= (each.upper == 0)[:, each.query.index]
    if (~cells_empty).sum() < 2:
        return

    basis = Basis.of(SCHEMA, list(QUERIES.values()), [each.query for each in known_limits])
    family = update(basis, leaf, None, children, "leaf")
    family = condition_on_zeros(basis, family, known_zeros(basis, known_limits, children))
    parent = condition(
        basis, update(basis, top, pool(family), 1, "top"), (Exact(QUERIES["total"], above.sum(keepdims=True)),)
    )
    best = update_from_parent(basis, family, parent)

    mean, covariance = brute_force(top, leaf, int(above.sum()), cells_empty)
    found = basis.to_cells(best.mean)
    np.testing.assert_allclose(found, mean, atol=1e-8)
    assert (found[cells_empty] == 0).all()
    for query in QUERIES.values():
        expected = [
            np.diag(dense(query) @ covariance[np.ix_(at, at)] @ dense(query).T)
            for at in np.arange(children * SCHEMA.size).reshape(children, -1)
        ]
        np.testing.assert_allclose(basis.variances(query, best.covariance), expected, atol=1e-8)
    exact = basis.variances(QUERIES["detailed"], best.covariance)[cells_empty]
    assert np.abs(exact).max(initial=0.0) < 1e-20  # so that nothing of it is published as a standard deviation


def test_a_query_that_keeps_too_much_is_left_to_the_constraints() -> None:
    """Forty combinations would make blocks of 40: the basis stays as it was, and says of such limits nothing."""
    schema = Schema((Attribute("a", tuple("01234567")), Attribute("b", tuple("01234"))))
    both = parse_query(schema, "detailed")
    basis = Basis.of(schema, [both], [both])
    assert basis.class_shape == (1, 1)
    assert not known_zeros(
        basis, [Limits(query=both, lower=0 * np.ones((1, 40), int), upper=np.zeros((1, 40), int))], 1
    ).any()


def test_without_known_zeros_nothing_changes() -> None:
    basis = Basis.of(SCHEMA, list(QUERIES.values()), [QUERIES["kind"]])
    known = LinearEstimate(np.zeros((2, SCHEMA.size)), [np.zeros((2, w.shape[1], w.shape[1])) for w in basis.where])
    assert condition_on_zeros(basis, known, np.zeros((2, 3), dtype=bool)) is known


@pytest.mark.parametrize("apart", [(), ("kind",), ("kind", "age")])
def test_a_basis_that_keeps_more_labels_separate_gives_the_same(apart: tuple[str, ...]) -> None:
    rng = np.random.default_rng(5)
    truth = rng.poisson(3.0, (2, SCHEMA.size))
    measured = measure(rng, truth, STRATEGY[1])
    plain = Basis.of(SCHEMA, list(QUERIES.values()))
    basis = Basis.of(SCHEMA, list(QUERIES.values()), [QUERIES[name] for name in apart])
    for ours in (update(basis, measured, None, 2, "leaf"),):
        theirs = update(plain, measured, None, 2, "leaf")
        np.testing.assert_allclose(basis.to_cells(ours.mean), plain.to_cells(theirs.mean), atol=1e-9)
        for query in QUERIES.values():
            np.testing.assert_allclose(
                basis.variances(query, ours.covariance), plain.variances(query, theirs.covariance), atol=1e-9
            )
