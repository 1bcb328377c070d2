"""What is expected before looking: the laws against their enumeration, and the distance against its definition."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from das.estimation.blocks import Basis
from das.estimation.emptiness import empty_cells, without
from das.estimation.expected import expect_sharing, expect_sizes
from das.estimation.families import solve_fast
from das.estimation.learning import Knowledge, distance, learn
from das.estimation.nonnegative import solve
from das.estimation.problem import NO_LIMIT, FamilyProblem, Limits, Measured, Quadratic
from das.estimation.totals import Totals
from das.query import parse_query
from das.schema import Attribute, Schema

SCHEMA = Schema((Attribute("home", ("house", "camp")), Attribute("race", tuple("abcdefgh"))))
HOME = parse_query(SCHEMA, "home")
BASIS = Basis.of(SCHEMA, [parse_query(SCHEMA, name) for name in ("total", "home", "detailed")], [HOME])


def measured(rng: np.random.Generator, truth: NDArray[np.int64], **variances: float) -> tuple[Measured, ...]:
    found = []
    for name, variance in variances.items():
        query = parse_query(SCHEMA, name)
        noise = rng.normal(0, np.sqrt(variance), (len(truth), query.size))
        values = np.rint(query.answer(truth) + noise).astype(np.int64)
        found.append(Measured(query=query, values=values, variance=variance))
    return tuple(found)


def known_of(rng: np.random.Generator, truth: NDArray[np.int64], campless: list[int]) -> Knowledge:
    """What is known of children of which some cannot have a camp."""
    known = learn(BASIS, measured(rng, truth, total=4.0, detailed=9.0), None, len(truth), "leaf")
    upper = np.full((len(truth), 2), NO_LIMIT)
    upper[campless, 1] = 0
    none = Limits(query=HOME, lower=np.zeros_like(upper), upper=upper)
    return without(BASIS, known, empty_cells(BASIS, [none], len(truth)))


@pytest.mark.parametrize("campless", [[], [1], [0, 2], [0, 1, 2]])
@pytest.mark.parametrize("cells", [np.arange(16), np.array([0, 3, 9])])
def test_the_distance_grows_by_the_misfit_of_the_shares(campless: list[int], cells: NDArray[np.int64]) -> None:
    rng = np.random.default_rng(5)
    truth = rng.poisson(3.0, (3, SCHEMA.size))
    truth[campless, 8:] = 0
    known, parent = known_of(rng, truth, campless), np.maximum(truth.sum(axis=0)[cells], 1)
    plain = distance(BASIS, known, cells)
    more = expect_sharing(plain, BASIS, known, cells, parent)
    totals = Totals.of(BASIS, known)
    size = totals.aims(parent) + np.sqrt(totals.variance)
    for _ in range(5):
        x = rng.poisson(2.0, (3, len(cells))).astype(float)
        expected = 0.0
        for at, cell in enumerate(cells):
            may = [child for child in range(3) if cell < 8 or child not in campless]
            p = float(parent[at])
            for child in may if len(may) > 1 else ():
                share = size[child] / size[may].sum()
                expected += 2 * (x[child, at] - p * share) ** 2 / (share * p * (p + 1))
        assert more.value(x) == pytest.approx(plain.value(x) + expected, rel=1e-9)


def test_children_that_share_one_curvature_and_children_that_do_not_agree() -> None:
    rng = np.random.default_rng(8)
    truth = rng.poisson(2.0, (4, SCHEMA.size))
    known, cells, parent = known_of(rng, truth, []), np.arange(16), truth.sum(axis=0) + 1
    shared = distance(BASIS, known, cells)
    assert shared.kinds is None
    pairs = np.arange(16 * 16).reshape(16, 16)
    apart = replace(shared, kinds=pairs, curvature=np.tile(shared.curvature.reshape(1, -1), (4, 1)))
    one, other = (expect_sharing(each, BASIS, known, cells, parent) for each in (shared, apart))
    for child in range(4):
        np.testing.assert_allclose(one.block(child, cells), other.block(child, cells), rtol=1e-12)
    np.testing.assert_array_equal(one.pull, other.pull)


@pytest.mark.parametrize("people", [1, 2, 5])
def test_children_of_one_size_share_people_as_polyas_urn_does(people: int) -> None:
    """Every order in which people can come, each after those before it; three children, a weight of one together."""
    ways = np.array([np.bincount(came, minlength=3) for came in product(range(3), repeat=people)], dtype=float)
    chance = np.ones(len(ways))
    for at, came in enumerate(product(range(3), repeat=people)):
        for number, child in enumerate(came):
            chance[at] *= (came[:number].count(child) + 1 / 3) / (number + 1)
    assert chance.sum() == pytest.approx(1)
    cell, parent = np.array([2]), np.array([people])
    known = known_of(np.random.default_rng(1), np.full((3, SCHEMA.size), 2), [])
    known = replace(known, mean=np.tile(known.mean[:1], (3, 1)))
    plain = distance(BASIS, known, cell)
    more = expect_sharing(plain, BASIS, known, cell, parent)
    weight = np.diag([more.block(child, np.array([0]))[0, 0] for child in range(3)]) - plain.curvature[0, 0] * np.eye(3)
    sum_zero = np.eye(3) - 1 / 3
    np.testing.assert_allclose(
        np.linalg.pinv(sum_zero @ weight @ sum_zero), np.cov(ways.T, bias=True, aweights=chance), atol=1e-9
    )
    centre = (chance @ ways)[:, None]
    np.testing.assert_allclose(more.slope(centre), plain.slope(centre), atol=1e-9)


def test_sizes_at_the_top_are_expected_to_be_exponential() -> None:
    rng = np.random.default_rng(2)
    known, cells = known_of(rng, rng.poisson(2.0, (1, SCHEMA.size)), [0]), np.arange(16)
    plain = distance(BASIS, known, cells)
    more = expect_sizes(plain, BASIS, known, cells)
    deviation = np.sqrt(BASIS.variances(parse_query(SCHEMA, "detailed"), known.covariance)[0, :8])
    mean = np.maximum(plain.reference[0, :8], 0) + deviation
    for _ in range(5):
        x = rng.poisson(2.0, (1, 16)).astype(float)
        # Camps are known to be empty: nothing is expected of them.
        assert more.value(x) == pytest.approx(plain.value(x) + 2 * float((x[0, :8] / mean).sum()), rel=1e-9)


def test_fast_and_reference_solver_find_the_same_counts() -> None:
    rng = np.random.default_rng(4)
    truth = rng.poisson(rng.choice([0.3, 30.0], SCHEMA.size), (5, SCHEMA.size))
    known, cells = known_of(rng, truth, []), np.flatnonzero(truth.sum(axis=0))
    parent = truth.sum(axis=0)[cells]
    family = family_of(expect_sharing(distance(BASIS, known, cells), BASIS, known, cells, parent), cells, parent)
    fast = solve_fast(family)
    assert fast.solver == "fast"
    np.testing.assert_allclose(fast.x, solve(family).x, atol=1e-3)


def family_of(to: Quadratic, cells: NDArray[np.int64], parent: NDArray[np.int64]) -> FamilyProblem:
    geocodes = tuple(str(child) for child in range(len(to.pull)))
    return FamilyProblem(
        level="tract", geocodes=geocodes, cells=cells, parent=parent, measured=(), limits=(), correlated=to
    )


def test_sparse_cells_come_out_nearer_to_the_truth_and_large_ones_no_farther() -> None:
    rng = np.random.default_rng(6)
    few, many = [], []
    for _ in range(60):
        # Shares of each race differ from child to child far more than chance would have it.
        rates = rng.gamma(1.0, np.repeat([[1.0, 400.0]], 8, axis=0).T.reshape(1, -1), (4, SCHEMA.size))
        truth = rng.poisson(rates)
        cells = np.flatnonzero(truth.sum(axis=0))
        known, parent = known_of(rng, truth, []), truth.sum(axis=0)[cells]
        plain = distance(BASIS, known, cells)
        off = [
            np.abs(solve_fast(family_of(to, cells, parent)).x - truth[:, cells])
            for to in (plain, expect_sharing(plain, BASIS, known, cells, parent))
        ]
        few.append([float(each[:, cells < 8].sum()) for each in off])
        many.append([float(each[:, cells >= 8].sum()) for each in off])
    fewer, of_many = (np.diff(each, axis=1)[:, 0] for each in (np.array(few), np.array(many)))
    assert fewer.mean() < -3 * fewer.std() / np.sqrt(len(fewer))
    assert of_many.mean() < 3 * of_many.std() / np.sqrt(len(of_many))
