"""Structural zeros in the sweeps of a whole small tree, against least squares without the cells in which nobody is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from das.estimation.assemble import Family
from das.estimation.linear.basis import Basis
from das.estimation.linear.blue import LinearEstimate, update_from_parent
from das.estimation.problem import Measured
from das.facts.fact import Fact
from das.schema.limits import NO_LIMIT
from das.schema.query import Query, parse_query
from das.schema.schema import Attribute, Schema, StructuralZero

KINDS = ("home", "barracks", "prison", "ward")
AGES = ("0-5", "6-17", "18-30", "31-64", "65+")
ATTRIBUTES = (
    Attribute("kind", KINDS, {"gq": {"no": ["home"], "yes": ["barracks", "prison", "ward"]}}),
    Attribute("age", AGES, {"grown": {"minor": ["0-5", "6-17"], "adult": ["18-30", "31-64", "65+"]}}),
    Attribute("sex", ("f", "m")),
)
NAMES = ("total", "gq", "kind * sex", "grown", "gq * grown", "detailed")
STRATEGY = (("total", "gq * grown"), ("gq", "detailed"), ("kind * sex", "detailed", "total"))
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

    def up(self, depth: int, unit: int) -> NDArray[np.float64]:
        leaf = (
            np.ones(len(self.into))
            if depth == 0
            else 1.0 * ((self.into if depth == 1 else np.arange(len(self.into))) == unit)
        )
        return np.kron(leaf[None, :], np.eye(self.schema.size))

    def brute_force(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and covariance of all cells of all leaves: least squares in the cells that are not empty alone."""
        size = self.empty.size
        information, vector = np.zeros((size, size)), np.zeros(size)
        for depth, measured in enumerate(self.measured):
            for m in measured:
                for unit in range(len(m.values)):
                    w = dense(m.query) @ self.up(depth, unit)
                    information += w.T @ w / m.variance
                    vector += w.T @ m.values[unit] / m.variance
        kept = np.flatnonzero(~self.empty.reshape(-1))
        covariance = np.linalg.inv(information[np.ix_(kept, kept)])
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
