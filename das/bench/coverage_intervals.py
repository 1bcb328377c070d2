"""Coverage of the intervals that `das query` gives, by simulation on a small tree; rows of `das bench coverage`."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from das.bench.replications import Finished, Row, row, submitted
from das.estimation.linear.basis import Basis
from das.estimation.linear.blue import Exact
from das.estimation.linear.covariances import Covariances, LevelFacts, sweep_covariances
from das.estimation.linear.estimates import SweptEstimates
from das.estimation.linear.exact_zeros import known_zeros
from das.estimation.linear.selected import selected_covariances
from das.estimation.linear.unions import Members, Union, coarsest, covariances_of_unions
from das.inference.intervals.asked import Asked, ask
from das.inference.intervals.limits import feldman_cousins, fieller, half_width, normal_limits
from das.noise import DiscreteGaussian
from das.noise.two_sided import TwoSidedNoise
from das.schema.limits import NO_LIMIT, Limits
from das.schema.query import Query, parse_query
from das.schema.schema import Attribute, Schema, StructuralZero
from geography import Spine

__all__ = ["rows"]

Floats = NDArray[np.float64]
NOMINAL = 0.95
_CHUNK = 50
LEVELS = ("state", "county", "block")
SIGMA2 = {"state": 4, "county": 9, "block": 16}


def rows(replications: int, seed: int, pool: Executor, finished: Finished) -> list[Row]:
    """Share of the intervals that hold the truth.

    The tree has a structural zero, a bound that empties cells, and an exact total; selections are no recodes of the
    schema, and areas no geounits.
    """
    chunks = [(seed, range(at, min(at + _CHUNK, replications))) for at in range(0, replications, _CHUNK)]
    waiting = submitted(pool, _replicated, {"tree": chunks})["tree"]
    rng = np.random.default_rng([seed, replications])
    others = [pool.submit(study, rng, replications) for study in (_unified, _one)]
    covered: dict[str, list[float]] = {}
    for each in waiting:
        for name, shares in each.result().items():
            covered.setdefault(name, []).extend(shares)
    of_tree = [(name, float(np.mean(shares)), replications) for name, shares in covered.items()]
    found = []
    for name, share, runs in [*of_tree, *(each for study in others for each in study.result())]:
        found.append(row(f"intervals: {name}", share, runs, NOMINAL))
        finished(found[-1])
    return found


def _replicated(seed: int, replications: range) -> dict[str, list[float]]:
    """Shares of some replications by name; the world is that of the seed."""
    world = _World.drawn(np.random.default_rng(seed))
    covered: dict[str, list[float]] = {}
    for each in replications:
        for name, share in world.replicate(np.random.default_rng([seed, each])).items():
            covered.setdefault(name, []).append(share)
    return covered


def draw(noise: TwoSidedNoise, rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Noise of a simulation, by inversion of its distribution: no confidential data are near."""
    reach = int(12 * np.sqrt(noise.variance())) + 2
    k = np.arange(-reach, reach + 1)
    cumulative = np.cumsum(np.exp(noise.log_pmf(k)))
    return np.asarray(k[np.searchsorted(cumulative, rng.random(shape) * cumulative[-1])], dtype=np.int64)


@dataclass(frozen=True)
class _World:
    """A true population on a small tree, with covariances that depend on no noise."""

    truth: dict[str, NDArray[np.int64]]
    queries: tuple[Query, ...]
    facts: dict[str, LevelFacts]
    covariances: Covariances
    asked: tuple[Asked, ...]
    areas: tuple[Union, ...]

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> _World:
        ages = tuple(f"{start}-{start + 9}" for start in range(0, 60, 10))
        schema = Schema(
            (
                Attribute("kind", ("home", "school", "prison")),
                Attribute("age", ages, {"grown": {"minor": ages[:2], "adult": ages[2:]}}),
                Attribute("sex", ("f", "m")),
            ),
            (StructuralZero("no minors in prison", {"kind": ("prison",), "age": ages[:2]}),),
        )
        into = np.repeat(np.arange(4), [6, 3, 5, 4])
        spine = Spine.from_paths(
            LEVELS, [np.full(18, "s"), into.astype(str), np.array([f"{c}{i:02d}" for i, c in enumerate(into)])]
        )
        leaves = rng.poisson(4.0, (18, schema.size)) * schema.possible
        kind = parse_query(schema, "kind")
        absent = rng.random((18, 3)) < np.array([0.0, 0.5, 0.7])
        leaves *= ~absent[:, kind.index]
        truth = {level: np.asarray(spine.tabulate(level, leaves)) for level in LEVELS}
        queries = tuple(parse_query(schema, name) for name in ("total", "kind", "grown * sex", "detailed"))
        basis = Basis.of(schema, queries, [kind])
        limits = Limits(query=kind, lower=np.zeros((18, 3), np.int64), upper=np.where(absent, 0, NO_LIMIT))
        facts = {
            level: LevelFacts(
                measured=[(query, DiscreteGaussian(SIGMA2[level]).variance()) for query in queries],
                exact=[Exact(queries[0], queries[0].answer(truth[level]))] if level == "state" else [],
                zeros=known_zeros(basis, [limits] if level == "block" else [], len(truth[level])),
            )
            for level in LEVELS
        }
        asked = (
            ask(schema, "total"),
            ask(schema, "sex", {"age": ages[1:4]}),
            ask(schema, "kind", {"age": [ages[0], ages[5]], "sex": "f"}),
        )
        areas = tuple(
            coarsest(spine, rng.choice(18, size=int(size), replace=False)) for size in rng.integers(2, 14, 12)
        )
        return cls(truth, queries, facts, sweep_covariances(basis, spine, facts), asked, areas)

    def replicate(self, rng: np.random.Generator) -> dict[str, float]:
        """Measure once, and count the intervals that hold the truth."""
        noisy = {
            level: [
                q.answer(self.truth[level])
                + draw(DiscreteGaussian(SIGMA2[level]), rng, (len(self.truth[level]), q.size))
                for q in self.queries
            ]
            for level in LEVELS
        }
        sweep = SweptEstimates(
            self.covariances,
            self.facts,
            lambda level: [slice(0, len(self.truth[level]))],
            lambda level, piece: [values[piece].astype(np.float64) for values in noisy[level]],
        )
        basis = self.covariances.basis
        cells = {level: basis.to_cells(sweep.final(level, np.arange(len(self.truth[level])))) for level in LEVELS}
        out = {}
        for level in LEVELS:
            kind_of, blocks = self.covariances.final(level)
            for asked in self.asked:
                variance = selected_covariances(basis, asked.factors, asked.factors, blocks)[kind_of]
                name = f"{level}, {asked.text}"
                share = _share(asked.of_cells(cells[level]), variance, asked.of_cells(self.truth[level].astype(float)))
                if share is not None:
                    out[name] = share
        for asked in self.asked:
            estimate, truth = (
                np.stack([_summed(area, table, asked) for area in self.areas]) for table in (cells, self.truth)
            )
            out[f"areas, {asked.text}"] = _share(estimate, self._area_variances(asked), truth) or 0.0
        out["areas, ratio"] = self._ratios(cells)
        return out

    def _area_variances(self, asked: Asked) -> Floats:
        return selected_covariances(self.covariances.basis, asked.factors, asked.factors, self._area_blocks)

    @cached_property
    def _area_blocks(self) -> list[Floats]:
        return covariances_of_unions(self.covariances, [[area] for area in self.areas])

    def _ratios(self, cells: dict[str, Floats]) -> float:
        """Fieller's limits for the share of minors among women."""
        schema = self.covariances.basis.schema
        above, below = ask(schema, "total", {"sex": "f", "grown": "minor"}), ask(schema, "total", {"sex": "f"})
        pairs = [(above, above), (below, below), (above, below)]
        variances = [
            selected_covariances(self.covariances.basis, one.factors, two.factors, self._area_blocks)[:, 0]
            for one, two in pairs
        ]
        n, d = (np.array([_summed(area, cells, asked)[0] for area in self.areas]) for asked in (above, below))
        true = np.array(
            [_summed(area, self.truth, above)[0] / _summed(area, self.truth, below)[0] for area in self.areas]
        )
        low, high = fieller(n, d, (variances[0], variances[1], variances[2]), NOMINAL)
        return float(((low <= true) & (true <= high)).mean())


def _summed(area: Union, tables: dict[str, Any], asked: Asked) -> Floats:
    parts: list[tuple[str, Members]] = list(area.items())
    return np.asarray(
        sum(members.weights @ asked.of_cells(tables[level][members.units].astype(float)) for level, members in parts)
    )


def _share(estimate: Floats, variance: Floats, truth: Floats) -> float | None:
    """Share of the intervals that hold the truth, of numbers that are not known exactly."""
    free = variance > 1e-6
    if not free.any():
        return None
    low, high = normal_limits(estimate[free], np.sqrt(variance[free]), NOMINAL)
    return float(((low <= truth[free]) & (truth[free] <= high)).mean())


def _unified(rng: np.random.Generator, replications: int) -> list[tuple[str, float, int]]:
    out, runs = [], 100 * replications
    for mean in (0.0, 0.5, 2.0, 8.0):
        low, high = feldman_cousins(rng.normal(mean, 1.0, runs), np.ones(runs), NOMINAL)
        out.append((f"Feldman-Cousins, mean {mean:g}", float(((low <= mean + 1e-9) & (mean <= high)).mean()), runs))
    return out


def _one(rng: np.random.Generator, replications: int) -> list[tuple[str, float, int]]:
    noise, runs = DiscreteGaussian(400), 100 * replications
    held = np.abs(draw(noise, rng, (runs,))) <= half_width(noise, 1.0, NOMINAL)
    return [("one measurement, its own quantiles", float(held.mean()), runs)]
