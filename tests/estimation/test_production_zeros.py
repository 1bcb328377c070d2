"""The production persons plan on a small state, against generalised least squares with the structural zero exact.

Everything here but the numbers under test is dense linear algebra: one unknown for every possible cell of every block.
This is what a linear stage such as BlueDown's computes; ours is to equal it to 1e-6.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from das.estimation.linear.basis import Basis
from das.estimation.linear.blue import Exact
from das.estimation.linear.covariances import LevelFacts, sweep_covariances
from das.estimation.linear.estimates import SweptEstimates
from das.estimation.linear.exact_zeros import known_zeros
from das.plan import presets
from das.schema.query import parse_query
from das.schema.schema import Attribute, Schema, StructuralZero
from geography import Spine

Floats = NDArray[np.float64]
PRESET = presets.read("pl94-2020-persons-us")
LEVELS = ("state", "county", "tract", "block_group", "block")
RACES = ("white", "black", "other")
"""Three of the 63 combinations, so that a dense covariance of the whole tree fits."""


def production_schema(races: tuple[str, ...]) -> Schema:
    attributes = []
    for attribute in PRESET["schema"]["attribute"]:
        labels = races if attribute["name"] == "cenrace" else tuple(attribute["labels"])
        attributes.append(Attribute(attribute["name"], labels, attribute.get("recodes", {})))
    zeros = [StructuralZero(zero["name"], zero["labels"]) for zero in PRESET["schema"]["structural_zero"]]
    return Schema(tuple(attributes), tuple(zeros))


def production_variances(level: str) -> dict[str, float]:
    """Variance of each query's answers: one changed record changes two of them by one, so rho = 1 / sigma2."""
    strategy = PRESET["strategy"]
    rho = Fraction(PRESET["privacy"]["rho"]) * Fraction(strategy["geolevels"][level])
    return {name: float(1 / (rho * Fraction(share))) for name, share in strategy["queries"][level].items()}


class SmallState:
    """Two counties, three tracts, five block groups and nine blocks, with measured numbers."""

    def __init__(self, seed: int) -> None:
        self.schema = production_schema(RACES)
        paths = ["0", "0", "0", "0", "0", "1", "1", "1", "1"], [0, 0, 0, 1, 1, 2, 2, 2, 2], [0, 0, 1, 2, 2, 3, 3, 4, 4]
        county, tract, group = (np.array(each).astype(str) for each in paths)
        columns = [np.full(9, "s"), county, tract, group, np.arange(9).astype(str)]
        self.spine = Spine.from_paths(LEVELS, columns)
        rng = np.random.default_rng(seed)
        leaves = rng.poisson(3.0, (9, self.schema.size)) * self.schema.possible
        self.truth = {level: np.asarray(self.spine.tabulate(level, leaves)) for level in LEVELS}
        self.queries = {
            level: [
                (parse_query(self.schema, name), variance) for name, variance in production_variances(level).items()
            ]
            for level in LEVELS
        }
        self.noisy = {
            (level, query.name): query.answer(self.truth[level])
            + rng.normal(0.0, variance**0.5, (self.spine.size(level), query.size))
            for level in LEVELS
            for query, variance in self.queries[level]
        }

    def up(self, level: str) -> Floats:
        """Which blocks each geounit of a level holds: geounits x blocks."""
        ranges = self.spine.leaf_ranges(level)
        blocks = np.arange(9)
        return np.array(
            [(blocks >= ranges[i]) & (blocks < ranges[i + 1]) for i in range(self.spine.size(level))], float
        )

    def measured(self) -> Iterator[tuple[Floats, Floats, float]]:
        """Rows over all cells of all blocks, their noisy values and their variance."""
        for level in LEVELS:
            for query, variance in self.queries[level]:
                matrix = np.zeros((query.size, self.schema.size))
                matrix[query.index, np.arange(self.schema.size)] = 1.0
                yield np.kron(self.up(level), matrix), self.noisy[level, query.name].reshape(-1), variance

    def least_squares(self) -> tuple[Floats, Floats]:
        """Mean and covariance of all cells of all blocks: impossible cells are no unknowns, and the total is exact."""
        size = 9 * self.schema.size
        information, vector = np.zeros((size, size)), np.zeros(size)
        for rows, values, variance in self.measured():
            information += rows.T @ rows / variance
            vector += rows.T @ values / variance
        kept = np.flatnonzero(np.tile(self.schema.possible, 9))
        covariance = np.linalg.inv(information[np.ix_(kept, kept)])
        mean = covariance @ vector[kept]
        gain = covariance.sum(axis=1) / covariance.sum()
        mean += gain * (self.truth["state"].sum() - mean.sum())
        covariance -= np.outer(gain, covariance.sum(axis=0))
        whole_mean, whole = np.zeros(size), np.zeros((size, size))
        whole_mean[kept], whole[np.ix_(kept, kept)] = mean, covariance
        return whole_mean, whole


def test_estimates_of_every_level_are_least_squares_with_the_structural_zero() -> None:
    state = SmallState(1)
    schema, spine = state.schema, state.spine
    assert not schema.possible.all()
    names = [query for query, _ in state.queries["county"]]
    basis = Basis.of(schema, names)
    facts = {
        level: LevelFacts(
            measured=state.queries[level],
            exact=[Exact(names[0], names[0].answer(state.truth[level]))] if level == "state" else [],
            zeros=known_zeros(basis, [], spine.size(level)),
        )
        for level in LEVELS
    }
    covariances = sweep_covariances(basis, spine, facts)
    sweep = SweptEstimates(
        covariances,
        facts,
        lambda level: [slice(0, spine.size(level))],
        lambda level, piece: [state.noisy[level, query.name][piece] for query, _ in state.queries[level]],
    )
    mean, covariance = state.least_squares()
    assert "hhgq" in [query.name for query in names]
    for level in LEVELS:
        units = spine.size(level)
        up = np.kron(state.up(level), np.eye(schema.size))
        found = basis.to_cells(sweep.final(level, np.arange(units)))
        np.testing.assert_allclose(found, (up @ mean).reshape(units, -1), atol=1e-6)
        assert np.abs(found[:, ~schema.possible]).max() < 1e-9
        kind_of, blocks = covariances.final(level)
        spread = (up @ covariance @ up.T).reshape(units, schema.size, units, schema.size)
        for query in names:
            matrix = np.zeros((query.size, schema.size))
            matrix[query.index, np.arange(schema.size)] = 1.0
            expected = [np.diag(matrix @ spread[i, :, i] @ matrix.T) for i in range(units)]
            np.testing.assert_allclose(basis.variances(query, blocks)[kind_of], expected, atol=1e-6)


def test_leaving_the_zero_out_is_noticed() -> None:
    """Without the structural zero the nursing count of the state is less certain: the test above can fail."""
    state = SmallState(1)
    _, covariance = state.least_squares()
    nursing = np.tile(parse_query(state.schema, "hhgq").index == 3, 9).astype(float)
    conditioned = nursing @ covariance @ nursing
    state.schema = Schema(state.schema.attributes)
    state.queries = {
        level: [(parse_query(state.schema, query.name), variance) for query, variance in found]
        for level, found in state.queries.items()
    }
    _, covariance = state.least_squares()
    assert nursing @ covariance @ nursing > conditioned * 1.01


@pytest.mark.parametrize("level", LEVELS)
def test_variances_are_those_of_the_shares(level: str) -> None:
    assert sum(1 / v for v in production_variances(level).values()) == pytest.approx(
        float(Fraction(PRESET["privacy"]["rho"]) * Fraction(PRESET["strategy"]["geolevels"][level]))
    )
