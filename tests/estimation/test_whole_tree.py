"""A whole small tree against least squares without the cells in which nobody is: sweeps, covariances, unions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from das.estimation.assemble import Family
from das.estimation.linear.basis import Basis
from das.estimation.linear.blue import Exact, LinearEstimate, update_from_parent
from das.estimation.linear.covariances import Covariances, LevelFacts, sweep_covariances
from das.estimation.linear.exact_zeros import known_zeros
from das.estimation.linear.selected import Factors, sees_unseen, selected_covariances
from das.estimation.linear.unions import Members, Union, coarsest, covariances_of_unions
from das.estimation.problem import Measured
from das.facts.fact import Fact, limits_of
from das.schema.limits import NO_LIMIT
from das.schema.query import Query, parse_query
from das.schema.schema import Attribute, Schema, StructuralZero
from geography import Spine

KINDS = ("home", "barracks", "prison", "ward")
AGES = ("0-5", "6-17", "18-30", "31-64", "65+")
ATTRIBUTES = (
    Attribute("kind", KINDS, {"gq": {"no": ["home"], "yes": ["barracks", "prison", "ward"]}}),
    Attribute("age", AGES, {"grown": {"minor": ["0-5", "6-17"], "adult": ["18-30", "31-64", "65+"]}}),
    Attribute("sex", ("f", "m")),
)
NAMES = ("total", "gq", "kind * sex", "grown", "gq * grown", "detailed")
STRATEGY = (("total", "gq * grown"), ("gq", "detailed"), ("kind * sex", "detailed", "total"))
LEVELS = ("state", "county", "block")
ZEROS = (
    StructuralZero("no minors in barracks", {"kind": ("barracks",), "age": ("0-5", "6-17")}),
    StructuralZero("no old men in wards", {"kind": ("ward",), "age": ("65+",), "sex": ("m",)}),
    StructuralZero("no infants in prison", {"kind": ("prison", "barracks"), "age": ("0-5",)}),
    StructuralZero("no ward", {"kind": ("ward",)}),
)


def dense(query: Query) -> NDArray[np.float64]:
    matrix = np.zeros((query.size, query.schema.size))
    matrix[query.index, np.arange(query.schema.size)] = 1.0
    return matrix


def joined(estimates: list[LinearEstimate]) -> LinearEstimate:
    blocks = zip(*(each.covariance for each in estimates), strict=True)
    return LinearEstimate(np.concatenate([each.mean for each in estimates]), [np.concatenate(b) for b in blocks])


class SmallTree:
    """A root, its children and their children, with noisy answers at each, and bounds that some kinds are absent."""

    def __init__(self, schema: Schema, seed: int, branching: list[int], *, bounded: bool) -> None:
        rng = np.random.default_rng(seed)
        self.schema = schema
        self.queries = {name: parse_query(schema, name) for name in NAMES}
        self.into = np.repeat(np.arange(len(branching)), branching)
        leaves = rng.poisson(2.0, (len(self.into), schema.size)) * schema.possible
        self.absent = np.zeros((len(leaves), len(KINDS)), dtype=bool)
        kind = parse_query(schema, "kind")
        if bounded:
            self.absent[:, 1:] = rng.random((len(leaves), len(KINDS) - 1)) < 0.5
            leaves *= ~self.absent[:, kind.index]
        self.empty = self.absent[:, kind.index] | ~schema.possible
        middle = np.stack([leaves[self.into == p].sum(axis=0) for p in range(len(branching))])
        self.truth = [middle.sum(axis=0, keepdims=True), middle, leaves]
        self.measured = [
            tuple(
                Measured(
                    query=self.queries[name],
                    values=self.queries[name].answer(truth)
                    + rng.integers(-3, 4, (len(truth), self.queries[name].size)),
                    variance=float(rng.uniform(0.5, 5.0)),
                )
                for name in names
            )
            for truth, names in zip(self.truth, STRATEGY, strict=True)
        ]
        self.limits = Fact(kind, "<=", np.where(self.absent, 0, NO_LIMIT)) if bounded else None
        self.basis = Basis.of(schema, list(self.queries.values()), [kind] if bounded else [])

    def family(self, depth: int, children: NDArray[np.int64], below: LinearEstimate | None) -> Family:
        facts = [Fact(self.queries["total"], "=", self.truth[0].sum(keepdims=True))] if depth == 0 else []
        if depth == 2 and self.limits is not None:
            facts.append(Fact(self.limits.query, "<=", self.limits.values[children]))
        measured = tuple(
            Measured(query=m.query, values=m.values[children], variance=m.variance) for m in self.measured[depth]
        )
        return Family(
            basis=self.basis,
            level="any",
            children=len(children),
            measured=measured,
            facts=tuple(facts),
            below=below,
        )

    def sweep(self) -> list[LinearEstimate]:
        members = [np.flatnonzero(self.into == p) for p in range(len(self.truth[1]))]
        leaves = [self.family(2, each, None) for each in members]
        middle = self.family(1, np.arange(len(members)), joined([each.pooled() for each in leaves]))
        top = self.family(0, np.zeros(1, np.int64), middle.pooled()).linear_estimate()
        second = update_from_parent(self.basis, middle.linear_estimate(), top)
        third = [
            update_from_parent(self.basis, each.linear_estimate(), second.unit(p)) for p, each in enumerate(leaves)
        ]
        return [top, second, joined(third)]

    @property
    def spine(self) -> Spine:
        middle = np.array([f"{p}" for p in self.into])
        leaves = np.array([f"{p}{i:02d}" for i, p in enumerate(self.into)])
        return Spine.from_paths(LEVELS, [np.full(len(self.into), "x"), middle, leaves])

    def covariances(self) -> Covariances:
        facts = {}
        for depth, level in enumerate(LEVELS):
            known = self.family(depth, np.arange(len(self.truth[depth])), None).facts
            facts[level] = LevelFacts(
                measured=[(m.query, m.variance) for m in self.measured[depth]],
                exact=[Exact(fact.query, fact.values) for fact in known if fact.sign == "="],
                zeros=known_zeros(self.basis, limits_of(known, slice(None)), len(self.truth[depth])),
            )
        return sweep_covariances(self.basis, self.spine, facts)

    def up(self, depth: int, unit: int) -> NDArray[np.float64]:
        leaf = (
            np.ones(len(self.into))
            if depth == 0
            else 1.0 * ((self.into if depth == 1 else np.arange(len(self.into))) == unit)
        )
        return np.kron(leaf[None, :], np.eye(self.schema.size))

    def each_measured(self) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64], float]]:
        for depth, measured in enumerate(self.measured):
            for m in measured:
                for unit in range(len(m.values)):
                    yield dense(m.query) @ self.up(depth, unit), m.values[unit], m.variance

    def information(self) -> NDArray[np.float64]:
        return sum((w.T @ w / variance for w, _, variance in self.each_measured()), np.zeros((self.empty.size,) * 2))

    def brute_force(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and covariance of all cells of all leaves: least squares in the cells that are not empty alone."""
        size, information = self.empty.size, self.information()
        vector = sum((w.T @ values / variance for w, values, variance in self.each_measured()), np.zeros(size))
        kept = np.flatnonzero(~self.empty.reshape(-1))
        covariance = np.linalg.pinv(information[np.ix_(kept, kept)], hermitian=True)
        mean, ones = covariance @ vector[kept], np.ones(len(kept))
        gain = covariance @ ones / (ones @ covariance @ ones)  # the total of all is exact
        mean = mean + gain * (self.truth[0].sum() - mean.sum())
        whole_mean, whole = np.zeros(size), np.zeros((size, size))
        whole_mean[kept], whole[np.ix_(kept, kept)] = mean, covariance - np.outer(gain, ones @ covariance)
        return whole_mean, whole


@settings(max_examples=10)
@given(
    seed=st.integers(0, 10**6),
    branching=st.lists(st.integers(1, 2), min_size=1, max_size=2),
    zeros=st.sets(st.sampled_from(range(len(ZEROS))), min_size=1),
    bounded=st.booleans(),
)
def test_the_sweeps_are_least_squares_without_the_impossible_cells(
    seed: int, branching: list[int], zeros: set[int], bounded: bool
) -> None:
    tree = SmallTree(Schema(ATTRIBUTES, tuple(ZEROS[i] for i in sorted(zeros))), seed, branching, bounded=bounded)
    basis, (mean, covariance) = tree.basis, tree.brute_force()
    for depth, known in enumerate(tree.sweep()):
        cells = basis.to_cells(known.mean)
        for unit, found in enumerate(cells):
            up = tree.up(depth, unit)
            spread = up @ covariance @ up.T
            blocks = [block[unit] for block in known.covariance]
            np.testing.assert_allclose(found, up @ mean, atol=1e-9)
            np.testing.assert_allclose(basis.kernel(np.arange(basis.schema.size), blocks), spread, atol=1e-9)
            entries = basis.entries(blocks).take(basis.pair_of(np.arange(basis.schema.size)))
            np.testing.assert_allclose(entries, spread, atol=1e-9)
            assert np.abs(found[~basis.schema.possible]).max() < 1e-9
            for query in tree.queries.values():
                expected = np.diag(dense(query) @ spread @ dense(query).T)
                np.testing.assert_allclose(basis.variances(query, blocks), expected, atol=1e-9)


def test_zero_classes_are_no_finer_than_the_zeros_need() -> None:
    schema = Schema(ATTRIBUTES, ZEROS[:1])
    basis = Basis.of(schema, [parse_query(schema, name) for name in NAMES])
    assert basis.class_shape == (2, 2, 1)
    assert basis.impossible.tolist() == [False, False, True, False]
    sizes = [where.size for where in basis.where]
    assert sum(sizes) == schema.size
    assert len(basis.kinds) == 12  # kind in U or a contrast of the others; age in U or in either class; sex in U or not


@pytest.mark.parametrize("bounded", [False, True])
def test_leaving_a_structural_zero_out_gives_larger_variances(bounded: bool) -> None:
    """The test above could not fail if conditioning changed nothing."""
    with_zero = SmallTree(Schema(ATTRIBUTES, ZEROS[:1]), 3, [2, 1], bounded=bounded)
    without = SmallTree(Schema(ATTRIBUTES), 3, [2, 1], bounded=bounded)
    kind = with_zero.queries["kind * sex"]
    smaller, larger = (tree.basis.variances(kind, tree.sweep()[0].covariance)[0] for tree in (with_zero, without))
    assert (smaller < larger + 1e-9).all()
    assert smaller[2] < 0.9 * larger[2]


TREES = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10**6),
        "branching": st.lists(st.integers(1, 3), min_size=1, max_size=2),
        "zeros": st.sets(st.sampled_from(range(len(ZEROS)))),
        "bounded": st.booleans(),
    }
)


def tree_of(given_: dict[str, object]) -> SmallTree:
    zeros = tuple(ZEROS[i] for i in sorted(given_["zeros"]))  # type: ignore[call-overload]
    return SmallTree(Schema(ATTRIBUTES, zeros), given_["seed"], given_["branching"], bounded=given_["bounded"])  # type: ignore[arg-type]


def random_factors(rng: np.random.Generator, rows: int) -> Factors:
    """Any selections of labels: not recodes of the schema."""
    return [(rng.random((rows, len(a.labels))) < 0.6).astype(float) for a in ATTRIBUTES]


def weights_of(factors: Factors) -> NDArray[np.float64]:
    """Answers x cells."""
    out = np.ones((1, 1))
    for factor in factors:
        out = np.kron(out, factor)
    return out


@settings(max_examples=8)
@given(given_=TREES)
def test_covariances_are_swept_without_a_measured_value(given_: dict[str, object]) -> None:
    tree = tree_of(given_)
    covariances, (_, brute) = tree.covariances(), tree.brute_force()
    factors = random_factors(np.random.default_rng(1), 2)
    w = weights_of(factors)
    for depth, level in enumerate(LEVELS):
        kind_of, blocks = covariances.final(level)
        found = selected_covariances(tree.basis, factors, factors, blocks)[kind_of]
        for unit in range(len(kind_of)):
            up = tree.up(depth, unit)
            np.testing.assert_allclose(found[unit], np.diag(w @ up @ brute @ up.T @ w.T), atol=1e-9)


@settings(max_examples=12)
@given(given_=TREES, chosen=st.integers(0, 10**6))
def test_unions_of_geounits_have_the_covariances_of_least_squares(given_: dict[str, object], chosen: int) -> None:
    """Two weighted unions of geounits of any levels at once, with each other, for random selections of labels."""
    tree, rng = tree_of(given_), np.random.default_rng(chosen)
    _, brute = tree.brute_force()
    groups: list[list[Union]] = []
    for _ in range(3):
        pair: list[Union] = []
        for _ in range(2):
            union: Union = {}
            for depth, level in enumerate(LEVELS):
                units = np.flatnonzero(rng.random(len(tree.truth[depth])) < 0.5)
                if len(units):
                    union[level] = Members(units, rng.integers(-2, 3, len(units)).astype(float))
            pair.append(union or {"block": Members(np.array([0]), np.ones(1))})
        groups.append(pair)
    left, right = random_factors(rng, 2), random_factors(rng, 1)
    blocks = covariances_of_unions(tree.covariances(), groups)
    for at, pair in enumerate(groups):
        ups = [
            sum(
                w * tree.up(LEVELS.index(level), unit)
                for level, m in union.items()
                for unit, w in zip(m.units, m.weights, strict=True)
            )
            for union in pair
        ]
        for i, one in ((0, left), (1, right)):
            for j, two in ((0, left), (1, right)):
                if len(one[0]) < len(two[0]):
                    continue
                part = [b[at, i * (n := b.shape[-1] // 2) : (i + 1) * n, j * n : (j + 1) * n] for b in blocks]
                expected = weights_of(one) @ ups[i] @ brute @ ups[j].T @ weights_of(two).T
                wanted = np.diag(expected) if i == j else expected[:, 0]
                np.testing.assert_allclose(selected_covariances(tree.basis, one, two, part), wanted, atol=1e-8)


def test_a_union_written_coarsely_is_the_same_union() -> None:
    tree = SmallTree(Schema(ATTRIBUTES, ZEROS[:2]), 5, [3, 2], bounded=True)
    leaves = np.array([0, 1, 2, 4])
    short = coarsest(tree.spine, leaves)
    assert {level: m.units.tolist() for level, m in short.items()} == {"county": [0], "block": [4]}
    covariances = tree.covariances()
    both = covariances_of_unions(covariances, [[short], [{"block": Members(leaves, np.ones(4))}]])
    for block in both:
        np.testing.assert_allclose(block[0], block[1], atol=1e-10)


@settings(max_examples=6)
@given(
    given_=TREES,
    left_out=st.sets(st.sampled_from(["kind * sex", "detailed"]), min_size=1),
    above=st.booleans(),
)
def test_levels_that_measure_little_are_least_squares_too(
    given_: dict[str, object], left_out: set[str], above: bool
) -> None:
    """Leaves without the detailed query: what is estimable, and its variance, by a generalised inverse.

    No geounit is an only child: it would be its parent, which the sweeps do not look at.
    """
    tree = tree_of(given_ | {"bounded": False, "branching": [2, 3]})
    tree.measured[2] = tuple(m for m in tree.measured[2] if m.query.name not in left_out)
    if above:
        tree.measured[1] = tuple(m for m in tree.measured[1] if m.query.name != "detailed")
    _, brute = tree.brute_force()
    information = tree.information()
    kept = np.flatnonzero(~tree.empty.reshape(-1))
    seen_by_all = np.linalg.pinv(information[np.ix_(kept, kept)], hermitian=True) @ information[np.ix_(kept, kept)]
    covariances = tree.covariances()
    unit_answers = [*(query.name for query in tree.queries.values()), "age", "kind"]
    for depth, level in enumerate(LEVELS):
        kind_of, blocks = covariances.final(level)
        for name in unit_answers:
            query = parse_query(tree.schema, name)
            factors = [np.eye(len(p.groups))[p.group_of].T for p in query.factors]
            w = weights_of(factors) @ tree.up(depth, 0)
            estimable = np.allclose(w[:, kept] @ seen_by_all, w[:, kept], atol=1e-7)
            assert sees_unseen(tree.basis, factors, covariances.seen(level)) == (not estimable), (level, name)
            if estimable:
                found = selected_covariances(tree.basis, factors, factors, blocks)[kind_of[0]]
                np.testing.assert_allclose(found, np.diag(w @ brute @ w.T), atol=2e-5)


def test_what_no_level_determines_is_known_to_be_open() -> None:
    tree = SmallTree(Schema(ATTRIBUTES), 5, [2, 1], bounded=False)
    tree.measured[2] = tuple(m for m in tree.measured[2] if m.query.name == "total")
    covariances = tree.covariances()
    adults = [np.ones((1, 4)), np.array([[0.0, 0, 1, 1, 1]]), np.ones((1, 2))]
    assert not sees_unseen(tree.basis, adults, covariances.seen("county"))
    assert sees_unseen(tree.basis, adults, covariances.seen("block"))
    assert not sees_unseen(tree.basis, [np.ones((1, n)) for n in (4, 5, 2)], covariances.seen("block"))
