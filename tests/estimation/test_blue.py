"""The two sweeps against generalised least squares by brute force: one dense system for a whole small tree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from das.errors import ConfigError
from das.estimation.linear.basis import Basis
from das.estimation.linear.blue import Exact, LinearEstimate, condition, distance, pool, update, update_from_parent
from das.estimation.problem import Measured
from das.schema.query import Query, parse_query
from das.schema.schema import Attribute, Schema

SCHEMA = Schema(
    (
        Attribute(
            "a",
            ("1", "2", "3", "4"),
            {"g": {"x": ["1"], "y": ["2", "3", "4"]}, "h": {"p": ["1", "2"], "q": ["3", "4"]}},
        ),
        Attribute("b", ("u", "v", "w")),
    )
)
QUERIES = {name: parse_query(SCHEMA, name) for name in ("total", "g", "h * b", "a", "b", "g * b", "detailed")}


def dense(query: Query) -> np.ndarray:
    matrix = np.zeros((query.size, SCHEMA.size))
    matrix[query.index, np.arange(SCHEMA.size)] = 1.0
    return matrix


class World:
    """A tree of three levels with random measurements, and its normal equations over the leaves."""

    def __init__(self, seed: int, branching: list[int], exact: str | None, at: int, strategy: list[list[str]]) -> None:
        rng = np.random.default_rng(seed)
        self.parents = [
            np.zeros(1, int),
            np.zeros(len(branching), int),
            np.repeat(np.arange(len(branching)), branching),
        ]
        self.truth = [np.zeros(0)] * 3
        self.truth[2] = rng.integers(0, 9, (sum(branching), SCHEMA.size))
        self.truth[1] = np.stack([self.truth[2][self.parents[2] == p].sum(axis=0) for p in range(len(branching))])
        self.truth[0] = self.truth[1].sum(axis=0, keepdims=True)
        self.measured = [
            tuple(
                Measured(
                    query=QUERIES[name],
                    values=self.truth[depth] @ dense(QUERIES[name]).T.astype(int)
                    + rng.integers(-3, 4, (len(self.truth[depth]), QUERIES[name].size)),
                    variance=float(rng.uniform(0.5, 5.0)),
                )
                for name in names
            )
            for depth, names in enumerate(strategy)
        ]
        self.facts: list[tuple[Exact, ...]] = [(), (), ()]
        if exact:
            for depth in range(at + 1):  # what is exact below is exact above
                answers = self.truth[depth] @ dense(QUERIES[exact]).T.astype(int)
                self.facts[depth] = (Exact(QUERIES[exact], answers),)

    def to_leaves(self, depth: int, unit: int) -> np.ndarray:
        leaves = np.ones(len(self.parents[2]), bool)
        if depth == 1:
            leaves = self.parents[2] == unit
        elif depth == 2:
            leaves = np.arange(len(self.parents[2])) == unit
        return np.kron(leaves.astype(float)[None, :], np.eye(SCHEMA.size))

    def brute_force(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of all leaf cells: least squares with equality constraints by a null space."""
        size = len(self.parents[2]) * SCHEMA.size
        information, vector, rows, sides = np.zeros((size, size)), np.zeros(size), [], []
        for depth in range(3):
            for unit in range(len(self.truth[depth])):
                up = self.to_leaves(depth, unit)
                for m in self.measured[depth]:
                    w = dense(m.query) @ up
                    information += w.T @ w / m.variance
                    vector += w.T @ m.values[unit] / m.variance
                for fact in self.facts[depth]:
                    rows.append(dense(fact.query) @ up)
                    sides.append(fact.values[unit])
        if not rows:
            covariance = np.linalg.inv(information)
            return covariance @ vector, covariance
        a, t = np.vstack(rows), np.concatenate(sides).astype(float)
        particular = np.linalg.lstsq(a, t, rcond=None)[0]
        _, s, v = np.linalg.svd(a)
        free = v[(s > 1e-9).sum() :].T
        reduced = np.linalg.inv(free.T @ information @ free)
        covariance = free @ reduced @ free.T
        return particular + covariance @ (vector - information @ particular), covariance

    def sweep(self, basis: Basis) -> list[LinearEstimate]:
        known: list[LinearEstimate] = []
        below: LinearEstimate | None = None
        for depth in (2, 1, 0):
            here = update(basis, self.measured[depth], below, len(self.truth[depth]), "leaf")
            here = condition(basis, here, self.facts[depth])
            known.insert(0, here)
            if depth:
                groups = [np.flatnonzero(self.parents[depth] == p) for p in range(len(self.truth[depth - 1]))]
                pooled = [pool(LinearEstimate(here.mean[g], [b[g] for b in here.covariance])) for g in groups]
                below = LinearEstimate(
                    np.concatenate([p.mean for p in pooled]),
                    [np.concatenate(blocks) for blocks in zip(*(p.covariance for p in pooled), strict=True)],
                )
        down = [known[0]]
        for depth in (1, 2):
            parts = []
            for p in range(len(self.truth[depth - 1])):
                g = np.flatnonzero(self.parents[depth] == p)
                family = LinearEstimate(known[depth].mean[g], [b[g] for b in known[depth].covariance])
                parts.append(update_from_parent(basis, family, down[depth - 1].unit(p)))
            down.append(
                LinearEstimate(
                    np.concatenate([p.mean for p in parts]),
                    [np.concatenate(blocks) for blocks in zip(*(p.covariance for p in parts), strict=True)],
                )
            )
        return down


STRATEGIES = [
    [["total", "detailed"], ["total", "g * b", "detailed"], ["h * b", "detailed"]],
    [["total"], ["g", "a"], ["detailed", "b"]],  # levels above that do not measure every cell
    [[], ["detailed"], ["g * b", "detailed", "total"]],  # a level that measures nothing
]


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    branching=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    exact=st.sampled_from([None, "total", "g", "b", "h * b"]),
    at=st.integers(0, 2),
    strategy=st.sampled_from(STRATEGIES),
)
def test_the_sweeps_are_generalised_least_squares(
    seed: int, branching: list[int], exact: str | None, at: int, strategy: list[list[str]]
) -> None:
    world = World(seed, branching, exact, at, strategy)
    basis = Basis.of(SCHEMA, list(QUERIES.values()))
    mean, covariance = world.brute_force()
    for depth, known in enumerate(world.sweep(basis)):
        estimates = basis.to_cells(known.mean)
        for unit in range(len(estimates)):
            up = world.to_leaves(depth, unit)
            assert np.allclose(estimates[unit], up @ mean, atol=1e-8)
            spread = up @ covariance @ up.T
            blocks = [block[unit] for block in known.covariance]
            assert np.allclose(basis.kernel(np.arange(SCHEMA.size), blocks), spread, atol=1e-9)
            for query in QUERIES.values():
                expected = np.diag(dense(query) @ spread @ dense(query).T)
                assert np.allclose(basis.variances(query, blocks), expected, atol=1e-9)


def test_the_distance_is_the_mahalanobis_distance_with_empty_cells_outside() -> None:
    world = World(3, [2, 1], None, 0, STRATEGIES[0])
    basis = Basis.of(SCHEMA, list(QUERIES.values()))
    known = update(basis, world.measured[2], None, 3, "leaf")
    cells = np.array([0, 2, 3, 7, 11])
    found = distance(basis, known, cells)
    assert found.hessian.ndim == 2  # leaves share one covariance
    x = np.random.default_rng(1).uniform(0, 9, (3, len(cells)))
    whole = np.zeros((3, SCHEMA.size))
    whole[:, cells] = x
    information = sum(dense(m.query).T @ dense(m.query) / m.variance for m in world.measured[2])
    step = whole - basis.to_cells(known.mean)
    assert found.value(x) == pytest.approx(float(((step @ information) * step).sum()), rel=1e-10)
    assert 0 < found.modulus <= np.linalg.eigvalsh(information)[0] + 1e-12


def test_leaves_without_a_detailed_measurement_are_refused_by_name() -> None:
    world = World(3, [2], None, 0, [["total"], ["detailed"], ["g"]])
    basis = Basis.of(SCHEMA, list(QUERIES.values()))
    with pytest.raises(ConfigError, match=r"strategy of block.*detailed"):
        update(basis, world.measured[2], None, 2, "strategy of block")
