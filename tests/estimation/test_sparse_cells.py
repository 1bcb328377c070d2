"""What is expected before looking: the distance against its definition, and counts against the truth."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from das.estimation.linear.basis import Basis
from das.estimation.linear.blue import Exact, LinearEstimate, condition, distance, update
from das.estimation.linear.exact_zeros import condition_on_zeros, known_zeros
from das.estimation.prior.dirichlet_multinomial import ShareEstimate, fit_shares
from das.estimation.prior.exponential import NOBODY, fit_means
from das.estimation.prior.sparse_cells import add_sharing_prior, add_size_prior, other_people
from das.estimation.problem import FamilyProblem, Measured, Quadratic
from das.estimation.solvers.active_set import solve_fast
from das.estimation.solvers.reference import solve
from das.schema.limits import NO_LIMIT, Limits
from das.schema.query import parse_query
from das.schema.schema import Attribute, Schema

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


def known_of(rng: np.random.Generator, truth: NDArray[np.int64], campless: list[int]) -> LinearEstimate:
    """What is known of children of which some cannot have a camp."""
    known = update(BASIS, measured(rng, truth, total=4.0, detailed=9.0), None, len(truth), "leaf")
    upper = np.full((len(truth), 2), NO_LIMIT)
    upper[campless, 1] = 0
    none = Limits(query=HOME, lower=np.zeros_like(upper), upper=upper)
    return condition_on_zeros(BASIS, known, known_zeros(BASIS, [none], len(truth)))


def others(known: LinearEstimate, cells: NDArray[np.int64], name: str) -> NDArray[np.float64]:
    """How many others each child allowed have in the group of each cell, cell by cell; and the variance of that."""
    counts, query = BASIS.to_cells(known.mean), parse_query(SCHEMA, name)
    variance = BASIS.variances(query, known.covariance)
    found = np.empty((2, len(counts), len(cells)))
    for child, (at, cell) in product(range(len(counts)), enumerate(cells)):
        together = [other for other in range(SCHEMA.size) if query.index[other] == query.index[cell] and other != cell]
        found[1, child, at] = variance[child, query.index[cell]]
        found[0, child, at] = max(counts[child, together].sum(), 0.0) + np.sqrt(found[1, child, at]) + NOBODY
    return found


@pytest.mark.parametrize("campless", [[], [1], [0, 2], [0, 1, 2]])
@pytest.mark.parametrize("cells", [np.arange(16), np.array([0, 3, 9])])
def test_the_distance_grows_by_the_sharing_prior(campless: list[int], cells: NDArray[np.int64]) -> None:
    rng = np.random.default_rng(5)
    truth = rng.poisson(3.0, (3, SCHEMA.size))
    truth[campless, 8:] = 0
    known, parent = known_of(rng, truth, campless), np.maximum(truth.sum(axis=0)[cells], 1)
    plain = distance(BASIS, known, cells)
    more = add_sharing_prior(plain, BASIS, known, cells, parent)
    allowed = np.array([[cell < 8 or child not in campless for cell in cells] for child in range(3)])
    some = allowed.sum(axis=0) > 1
    variance = BASIS.variances(parse_query(SCHEMA, "detailed"), known.covariance)[:, cells]
    candidates = []
    for name in ("total", "home", "race"):
        people, doubt = others(known, cells, name)[:, :, some]
        every = np.where(allowed[:, some], people, 0.0).sum(axis=0)
        share = np.where(allowed[:, some], people, 0.0) / every
        candidates.append(ShareEstimate(share, share / every + np.where(allowed[:, some], doubt, 0.0) / every**2))
    mean, spread = fit_shares(
        plain.reference[:, some], np.where(allowed, variance, 0.0)[:, some], parent[some].astype(float), candidates
    )
    # Two standard deviations above the prior mean: an enclave, which the prior leaves alone with its people.
    reference = plain.reference[:, some]
    enclave = allowed[:, some] & (reference > mean + 2 * np.sqrt(np.where(allowed, variance, 0.0)[:, some]))
    for cell in np.flatnonzero(enclave.any(axis=0)):
        apart = enclave[:, cell]
        left = max(parent[some][cell] - reference[apart, cell].sum(), 0.0)
        mean[~apart, cell] *= left / (parent[some][cell] - mean[apart, cell].sum())
    own = np.array([plain.block(child, np.arange(len(cells))).diagonal() for child in range(3)])[:, some]
    weight = np.where(allowed[:, some], np.minimum(1.0 / np.where(allowed[:, some], spread, 1.0), 4.0 * own), 0.0)
    weight[enclave] = 0.0
    for _ in range(5):
        x = rng.poisson(2.0, (3, len(cells))).astype(float)
        expected = (weight * (x[:, some] - mean) ** 2).sum()
        assert more.value(x) == pytest.approx(plain.value(x) + expected, rel=1e-9)


def test_predictions_are_leave_one_out() -> None:
    rng = np.random.default_rng(7)
    known, cells = known_of(rng, rng.poisson(3.0, (3, SCHEMA.size)), []), np.arange(16)
    names = ("total", "home", "race")
    before = list(other_people(BASIS, known, cells, names))
    for each, name in zip(before, names, strict=True):
        np.testing.assert_allclose(each, others(known, cells, name))
    counts = BASIS.to_cells(known.mean)
    counts[1, 3] += 50.0
    after = list(other_people(BASIS, replace(known, mean=BASIS.to_coefficients(counts)), cells, names))
    for (one, _), (other, _), name in zip(before, after, names, strict=True):
        np.testing.assert_allclose(one[:, 3], other[:, 3])
        query = parse_query(SCHEMA, name)
        together = (query.index == query.index[3]) & (np.arange(16) != 3)
        assert (other[1, together] > one[1, together]).all()


def test_people_known_exactly_are_not_predicted_elsewhere() -> None:
    """The 900 of the first child can only be women in houses; the others share what the parent has besides."""
    schema = Schema((Attribute("home", ("house", "camp")), Attribute("sex", ("f", "m"))))
    total, home, sex, detailed = (parse_query(schema, name) for name in ("total", "home", "sex", "detailed"))
    basis, rng = Basis.of(schema, [total, home, sex, detailed], [home, sex]), np.random.default_rng(0)
    truth = np.array([[900, 0, 0, 0], [10, 20, 20, 20], [5, 30, 20, 20], [3, 30, 20, 20]])
    noisy = tuple(
        Measured(query=query, values=query.answer(truth) + rng.integers(-9, 10, (4, query.size)), variance=100.0)
        for query in (total, detailed)
    )
    upper = np.full((4, 2), NO_LIMIT)
    upper[0, 1] = 0
    only = [Limits(query=query, lower=np.zeros_like(upper), upper=upper) for query in (home, sex)]
    known = condition(basis, update(basis, noisy, None, 4, "leaf"), (Exact(total, total.answer(truth)),))
    known = condition_on_zeros(basis, known, known_zeros(basis, only, 4))
    cells, parent = np.arange(4), truth.sum(axis=0)
    plain = distance(basis, known, cells)
    more = add_sharing_prior(plain, basis, known, cells, parent)
    weight = np.array([(more.block(c, cells) - plain.block(c, cells)).diagonal() for c in range(4)])
    assert weight[0, 0] == 0
    expected = plain.reference[1:, 0] + (more.linear - plain.linear)[1:, 0] / weight[1:, 0]
    assert expected.sum() == pytest.approx(18)


def test_no_table_is_excluded() -> None:
    """Not even those that leave a child without anybody, though its total is known to be nothing but that."""
    rng = np.random.default_rng(9)
    truth = rng.poisson(5.0, (3, SCHEMA.size))
    truth[2] = 0
    known = condition(
        BASIS, known_of(rng, truth, []), (Exact(parse_query(SCHEMA, "total"), truth.sum(axis=1)[:, None]),)
    )
    cells, parent = np.arange(16), truth.sum(axis=0) + 1
    below = add_sharing_prior(distance(BASIS, known, cells), BASIS, known, cells, parent)
    top = add_size_prior(distance(BASIS, known, cells), BASIS, known, cells)
    for child in range(3):
        x = np.zeros((3, 16))
        x[child] = parent
        for each in (below, top):
            assert np.isfinite(each.value(x))
            assert np.isfinite(each.half_gradient(x)).all()


def test_children_that_share_one_hessian_and_children_that_do_not_agree() -> None:
    rng = np.random.default_rng(8)
    truth = rng.poisson(2.0, (4, SCHEMA.size))
    known, cells, parent = known_of(rng, truth, []), np.arange(16), truth.sum(axis=0) + 1
    shared = distance(BASIS, known, cells)
    assert shared.kinds is None
    pairs = np.arange(16 * 16).reshape(16, 16)
    apart = replace(shared, kinds=pairs, hessian=np.tile(shared.hessian.reshape(1, -1), (4, 1)))
    one, other = (add_sharing_prior(each, BASIS, known, cells, parent) for each in (shared, apart))
    for child in range(4):
        np.testing.assert_allclose(one.block(child, cells), other.block(child, cells), rtol=1e-12)
    np.testing.assert_array_equal(one.linear, other.linear)


def test_the_size_prior_is_exponential_around_independent_attributes() -> None:
    rng = np.random.default_rng(2)
    known, cells = known_of(rng, rng.poisson(2.0, (1, SCHEMA.size)), [0]), np.arange(16)
    plain = distance(BASIS, known, cells)
    more = add_size_prior(plain, BASIS, known, cells)
    people = BASIS.to_cells(known.mean).sum()
    shares = [np.minimum(others(known, cells, name)[0] / people, 1.0) for name in ("home", "race")]
    deviation = np.sqrt(BASIS.variances(parse_query(SCHEMA, "detailed"), known.covariance)[0, :8])
    mean = fit_means(plain.reference[0, :8], deviation, people * (shares[0] * shares[1])[0, :8])
    for _ in range(5):
        x = rng.poisson(2.0, (1, 16)).astype(float)
        # Camps are known to be empty: nothing is expected of them.
        assert more.value(x) == pytest.approx(plain.value(x) + 2 * float((x[0, :8] / mean).sum()), rel=1e-9)


def test_fast_and_reference_solver_find_the_same_counts() -> None:
    rng = np.random.default_rng(4)
    truth = rng.poisson(rng.choice([0.3, 30.0], SCHEMA.size), (5, SCHEMA.size))
    known, cells = known_of(rng, truth, []), np.flatnonzero(truth.sum(axis=0))
    parent = truth.sum(axis=0)[cells]
    family = family_of(add_sharing_prior(distance(BASIS, known, cells), BASIS, known, cells, parent), cells, parent)
    fast = solve_fast(family)
    assert fast.solver == "fast"
    np.testing.assert_allclose(fast.x, solve(family).x, atol=1e-3)


def family_of(to: Quadratic, cells: NDArray[np.int64], parent: NDArray[np.int64] | None) -> FamilyProblem:
    geocodes = tuple(str(child) for child in range(len(to.linear)))
    return FamilyProblem(
        level="tract", geocodes=geocodes, cells=cells, parent=parent, measured=(), limits=(), correlated=to
    )


def test_sparse_cells_come_out_nearer_to_the_truth_and_large_ones_no_farther() -> None:
    rng = np.random.default_rng(6)
    few, many = [], []
    for _ in range(120):
        # Shares of each race differ from child to child far more than sampling variation explains.
        rates = rng.gamma(1.0, np.repeat([[1.0, 400.0]], 8, axis=0).T.reshape(1, -1), (4, SCHEMA.size))
        truth = rng.poisson(rates)
        cells = np.flatnonzero(truth.sum(axis=0))
        known, parent = known_of(rng, truth, []), truth.sum(axis=0)[cells]
        plain = distance(BASIS, known, cells)
        off = [
            np.abs(solve_fast(family_of(to, cells, parent)).x - truth[:, cells])
            for to in (plain, add_sharing_prior(plain, BASIS, known, cells, parent))
        ]
        few.append([float(each[:, cells < 8].sum()) for each in off])
        many.append([float(each[:, cells >= 8].sum()) for each in off])
    fewer, of_many = (np.diff(each, axis=1)[:, 0] for each in (np.array(few), np.array(many)))
    assert fewer.mean() < -3 * fewer.std() / np.sqrt(len(fewer))
    assert of_many.mean() < 3 * of_many.std() / np.sqrt(len(of_many))


def test_people_in_camps_are_found_where_others_of_their_race_live() -> None:
    """A race has its places, and lives there in houses and in camps alike."""
    rng = np.random.default_rng(11)
    gain, by_size = [], []
    for _ in range(40):
        where = rng.dirichlet(np.full(5, 0.5), 8).T
        truth = rng.poisson(np.concatenate([300.0 * where, 3.0 * where], axis=1))
        cells = np.flatnonzero(truth.sum(axis=0))
        known, parent = known_of(rng, truth, []), truth.sum(axis=0)[cells]
        plain = distance(BASIS, known, cells)
        off = [
            float(np.abs(solve_fast(family_of(to, cells, parent)).x - truth[:, cells])[:, cells >= 8].sum())
            for to in (plain, add_sharing_prior(plain, BASIS, known, cells, parent))
        ]
        size = truth.sum(axis=1) / truth.sum()
        by_size.append(float(np.abs(np.outer(size, parent) - truth[:, cells])[:, cells >= 8].sum()))
        gain.append(off)
    plain_off, off = np.array(gain).mean(axis=0)
    # Neither the estimates alone nor the children's sizes alone come near.
    assert off < 0.75 * plain_off
    assert off < 0.75 * np.mean(by_size)


def test_a_sparse_table_at_the_top_comes_out_nearer_to_the_truth() -> None:
    rng = np.random.default_rng(12)
    schema = Schema((Attribute("home", tuple("abcd")), Attribute("race", tuple("abcdefghij"))))
    query = parse_query(schema, "detailed")
    basis, cells = Basis.of(schema, [query]), np.arange(schema.size)
    found = []
    for _ in range(40):
        # Most homes are of one kind and most people of one race; the two have a little to do with one another.
        apart = 2000.0 * np.outer([1.0, 0.05, 0.02, 0.01], 0.4 ** np.arange(10)).ravel()
        truth = rng.poisson(apart * rng.lognormal(0, 1, schema.size))[None, :]
        noisy = np.rint(truth + rng.normal(0, 3, truth.shape)).astype(np.int64)
        known = update(basis, (Measured(query=query, values=noisy, variance=9.0),), None, 1, "top")
        plain = distance(basis, known, cells)
        family = [family_of(to, cells, None) for to in (plain, add_size_prior(plain, basis, known, cells))]
        found.append([float(np.abs(solve_fast(each).x - truth).sum()) for each in family])
    plain_off, off = np.array(found).mean(axis=0)
    assert off < 0.83 * plain_off


def enclave_losses() -> NDArray[np.float64]:
    """What the prior changes in the count of an enclave: 14 people in one of six children, noise of three people."""
    rng, changes = np.random.default_rng(14), []
    for _ in range(60):
        truth = rng.poisson(np.where(np.arange(16) < 8, 60.0, 0.4), (6, SCHEMA.size))
        truth[2, 11] = 14
        cells = np.flatnonzero(truth.sum(axis=0))
        known, parent = known_of(rng, truth, []), truth.sum(axis=0)[cells]
        plain = distance(BASIS, known, cells)
        at = int(np.flatnonzero(cells == 11)[0])
        one, other = (
            float(solve_fast(family_of(to, cells, parent)).x[2, at])
            for to in (plain, add_sharing_prior(plain, BASIS, known, cells, parent))
        )
        changes.append(other - one)
    return np.array(changes)


def test_an_enclave_keeps_its_people(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more is lost than without a prior; and a prior that knows no enclaves is found out by the same test."""
    kept = enclave_losses()
    assert kept.mean() > -3 * kept.std() / np.sqrt(len(kept)) - 0.1
    monkeypatch.setattr("das.estimation.prior.sparse_cells._SIGNIFICANT", np.inf)
    lost = enclave_losses()
    assert lost.mean() < -3 * lost.std() / np.sqrt(len(lost)) - 0.1
