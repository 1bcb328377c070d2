"""The estimation problem of one family: pooling, the terms of the objective, and the support."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from das.estimation.assemble import Family, Prior, measured_by_query
from das.estimation.linear.basis import Basis
from das.estimation.linear.blue import LinearEstimate, condition, distance, pool, update
from das.estimation.linear.exact_zeros import condition_on_zeros
from das.estimation.prior.sparse_cells import add_sharing_prior, add_size_prior
from das.estimation.prior.totals import penalise_totals
from das.estimation.problem import Measured, Quadratic
from das.facts.fact import Fact
from das.noise.discrete_gaussian import DiscreteGaussian
from das.plan.plan import Measurement
from das.schema.limits import NO_LIMIT
from das.schema.query import parse_query
from das.schema.schema import Attribute, Schema

SCHEMA = Schema((Attribute("kind", ("home", "school", "prison")), Attribute("age", ("0-17", "18-64", "65+"))))
QUERIES = tuple(parse_query(SCHEMA, name) for name in ("total", "kind", "detailed"))
KIND = QUERIES[1]
BASIS = Basis.of(SCHEMA, QUERIES, [KIND])
GEOCODES = tuple("abcdef")


def family(seed: int, *, exact_total: bool = False) -> tuple[Family, np.ndarray]:
    """Six leaves of which some have no school or no prison, as public upper bounds say; and their true counts."""
    rng = np.random.default_rng(seed)
    has = np.column_stack([np.ones(6, bool), rng.random((6, 2)) < 0.5])
    truth = rng.poisson(3.0, (6, 3, 3)) * has[:, :, None]
    truth = truth.reshape(6, -1)
    measured = []
    for query, variance in zip(QUERIES, (1.0, 9.0, 25.0), strict=True):
        noise = np.rint(rng.normal(0.0, np.sqrt(variance), (6, query.size))).astype(np.int64)
        measured.append(Measured(query=query, values=query.answer(truth) + noise, variance=variance))
    facts = [Fact(KIND, "<=", np.where(has, NO_LIMIT, 0))]
    if exact_total:
        facts.append(Fact(QUERIES[0], "=", QUERIES[0].answer(truth)))
    found = Family(basis=BASIS, level="block", children=6, measured=tuple(measured), facts=tuple(facts))
    return found, truth


def inner(seed: int) -> tuple[Family, np.ndarray]:
    """Six geounits that have linear estimates from below, and their true counts."""
    leaves, truth = family(seed)
    return replace(leaves, below=leaves.linear_estimate()), truth


@pytest.mark.parametrize("exact_total", [False, True])
def test_pooled_leaves_are_the_sum_of_each_leaf_updated_by_itself(exact_total: bool) -> None:
    leaves, _ = family(1, exact_total=exact_total)
    alone = []
    for leaf in range(6):
        row = slice(leaf, leaf + 1)
        measured = tuple(replace(query, values=query.values[row]) for query in leaves.measured)
        facts = tuple(Fact(fact.query, fact.sign, fact.values[row]) for fact in leaves.facts)
        alone.append(replace(leaves, children=1, measured=measured, facts=facts).linear_estimate())
    blocks = zip(*(estimate.covariance for estimate in alone), strict=True)
    wanted = pool(LinearEstimate(np.concatenate([e.mean for e in alone]), [np.concatenate(block) for block in blocks]))
    pooled = leaves.pooled()
    np.testing.assert_allclose(pooled.mean, wanted.mean, rtol=1e-9, atol=1e-9)
    for block, expected in zip(pooled.covariance, wanted.covariance, strict=True):
        np.testing.assert_allclose(block, expected, rtol=1e-9, atol=1e-9)
    assert pooled.mean.shape[0] == 1


def test_above_the_leaves_pooling_adds_up_the_linear_estimates() -> None:
    units, _ = inner(2)
    np.testing.assert_array_equal(units.pooled().mean, pool(units.linear_estimate()).mean)


def test_a_linear_estimate_is_updated_then_conditioned_on_facts_and_zeros() -> None:
    leaves, truth = family(3, exact_total=True)
    known = leaves.linear_estimate()
    zeros = np.repeat(leaves.facts[0].values == 0, 3, axis=1)
    cells = BASIS.to_cells(known.mean)
    np.testing.assert_allclose(cells[zeros], 0.0, atol=1e-9)
    np.testing.assert_allclose(cells.sum(axis=1), truth.sum(axis=1), rtol=1e-9)
    updated = update(BASIS, leaves.measured, None, 6, "")
    conditioned = condition(BASIS, updated, leaves._exact())
    again = condition_on_zeros(BASIS, conditioned, leaves._zeros())
    np.testing.assert_array_equal(known.mean, again.mean)


def same(one: Quadratic | None, other: Quadratic) -> None:
    assert one is not None
    for field in ("hessian", "kinds", "reference", "linear", "constant", "modulus"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field))


@pytest.mark.parametrize("prior", ["sharing", "none"])
@pytest.mark.parametrize("top", [False, True])
def test_the_objective_has_every_term_and_no_prior_if_none_is_wanted(prior: Prior, top: bool) -> None:
    units, truth = inner(4)
    known = units.linear_estimate()
    cells = np.arange(SCHEMA.size) if top else np.flatnonzero(truth.sum(axis=0))
    parent = None if top else truth.sum(axis=0)[cells]
    problem = units.problem(GEOCODES, None if parent is None else (cells, parent), known, prior)
    held = penalise_totals(distance(BASIS, known, cells), BASIS, known, cells, parent)
    if prior == "none":
        same(problem.correlated, held)
    else:
        with_prior = (
            add_size_prior(held, BASIS, known, cells)
            if parent is None
            else add_sharing_prior(held, BASIS, known, cells, parent)
        )
        same(problem.correlated, with_prior)
        assert not np.array_equal(with_prior.linear, held.linear)
    assert problem.geocodes == GEOCODES
    np.testing.assert_array_equal(problem.cells, cells)
    (limits,) = problem.limits
    np.testing.assert_array_equal(limits.upper, units.facts[0].values)


def test_at_the_top_every_possible_cell_is_in_the_support() -> None:
    problem = inner(5)[0].problem(GEOCODES, None, None, "sharing")
    np.testing.assert_array_equal(problem.cells, np.flatnonzero(SCHEMA.possible))
    assert problem.parent is None


def test_the_distance_is_that_to_the_measurements_for_leaves_one_level_and_empty_parents() -> None:
    leaves, truth = family(6)
    cells = np.flatnonzero(truth.sum(axis=0))
    above = cells, truth.sum(axis=0)[cells]
    assert leaves.problem(GEOCODES, above, leaves.linear_estimate(), "sharing").correlated is None
    units, _ = inner(6)
    assert units.problem(GEOCODES, above, None, "sharing").correlated is None
    empty = np.zeros(0, np.int64)
    assert units.problem(GEOCODES, (empty, empty), units.linear_estimate(), "sharing").correlated is None


def test_noisy_numbers_are_cut_by_query_in_the_order_of_the_measurements() -> None:
    noise = DiscreteGaussian(Fraction(9))
    measurements = [Measurement("block", query, Fraction(1, 2), Fraction(1), noise) for query in QUERIES[:2]]
    measured = measured_by_query(measurements, np.arange(8).reshape(2, 4))
    assert [query.query.name for query in measured] == ["total", "kind"]
    assert [query.values.tolist() for query in measured] == [[[0], [4]], [[1, 2, 3], [5, 6, 7]]]
    assert {query.variance for query in measured} == {noise.variance()}
