"""Coverage by simulation: on a small tree, and of intervals with a wrong scale; on a real state."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import das.bench.coverage_intervals as coverage
from das.bench.coverage_intervals import draw, rows
from das.bench.replications import Row, pool_of_processes
from das.estimation.linear.basis import Basis
from das.estimation.linear.blue import Exact
from das.estimation.linear.covariances import LevelFacts, sweep_covariances
from das.estimation.linear.estimates import SweptEstimates
from das.estimation.linear.selected import Factors, selected_covariances
from das.estimation.linear.unions import Union, coarsest, covariances_of_unions
from das.noise import DiscreteGaussian
from das.schema.query import parse_query
from das.schema.schema import Attribute, Schema
from geography import Spine, from_geocodes


def in_threads(replications: int, seed: int) -> list[Row]:
    """In this process, so that a patch is seen."""
    with ThreadPoolExecutor(1) as pool:
        return rows(replications, seed, pool, lambda row: None)


def test_intervals_cover_and_those_with_a_wrong_scale_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {row["name"]: row["coverage"] for row in in_threads(20, 3)}
    trees = [share for name, share in found.items() if "Feldman" not in name and "one measurement" not in name]
    assert len(trees) == 12
    assert abs(np.mean(trees) - 0.95) < 0.025
    exact = coverage.selected_covariances

    def too_small(*given: object) -> object:
        return 0.6 * exact(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(coverage, "selected_covariances", too_small)
    wrong = {row["name"]: row["coverage"] for row in in_threads(20, 3)}
    assert np.mean([wrong[name] for name in found if "Feldman" not in name and "one measurement" not in name]) < 0.9


@pytest.mark.slow
def test_every_row_of_the_benchmark_covers() -> None:
    with pool_of_processes() as pool:
        found = rows(1000, 2, pool, lambda row: None)
    for row in found:
        assert 0.94 <= row["coverage"] <= 0.96, row


RACES = ("hisp", "white", "black", "aian", "asian", "nhpi", "other", "two")
SHARES = {"state": 1440, "county": 447, "tract": 687, "block_group": 1256, "block": 165}  # of 3995, production's
QUERIES = {"total": Fraction(1, 5), "votingage": Fraction(1, 10), "race": Fraction(1, 5), "detailed": Fraction(1, 2)}
RHO = Fraction(293764, 114921)


@pytest.mark.slow
def test_noisy_runs_of_rhode_island_are_covered(rhode_island: Path) -> None:
    """Twenty runs: every level and query, and two hundred random areas with random selections of labels."""
    table = pd.read_csv(rhode_island, dtype={"GEOID": str}).sort_values("GEOID")
    adults = table[[f"vap_{race}" for race in RACES]].to_numpy()
    minors = table[[f"pop_{race}" for race in RACES]].to_numpy() - adults
    leaves = np.concatenate([minors, adults], axis=1)
    levels = [("state", 2), ("county", 3), ("tract", 6), ("block_group", 1), ("block", 3)]
    spine = from_geocodes(table["GEOID"].to_numpy(dtype=str), levels)
    schema = Schema((Attribute("votingage", ("0-17", "18+")), Attribute("race", RACES)))
    queries = [parse_query(schema, name) for name in QUERIES]
    truth = {level: np.asarray(spine.tabulate(level, leaves)) for level in spine.levels}
    basis = Basis.of(schema, queries)
    noise = {
        (level, name): DiscreteGaussian(Fraction(3995, SHARES[level]) / (share * RHO))
        for level in spine.levels
        for name, share in QUERIES.items()
    }
    facts = {
        level: LevelFacts(
            measured=[(query, noise[level, query.name].variance()) for query in queries],
            exact=[Exact(queries[0], queries[0].answer(truth[level]))] if level == "state" else [],
            zeros=np.zeros((spine.size(level), 1), dtype=bool),
        )
        for level in spine.levels
    }
    covariances = sweep_covariances(basis, spine, facts)
    rng = np.random.default_rng(5)
    areas, recodes = _areas(spine, rng, 200), [_recode(rng) for _ in range(200)]
    blocks = covariances_of_unions(covariances, [[area] for area in areas])
    widths = np.array(
        [selected_covariances(basis, f, f, [b[i : i + 1] for b in blocks])[0, 0] for i, f in enumerate(recodes)]
    )
    held: dict[tuple[str, str], list[float]] = {}
    of_areas: list[np.ndarray] = []
    for _ in range(20):
        noisy = {
            level: [
                q.answer(truth[level]) + draw(noise[level, q.name], rng, (spine.size(level), q.size)) for q in queries
            ]
            for level in spine.levels
        }
        sweep = SweptEstimates(
            covariances,
            facts,
            lambda level: [slice(0, spine.size(level))],
            lambda level, piece, noisy=noisy: [v[piece].astype(float) for v in noisy[level]],  # type: ignore[misc]
        )
        cells = {level: basis.to_cells(sweep.final(level, np.arange(spine.size(level)))) for level in spine.levels}
        for level in spine.levels:
            kind_of, final = covariances.final(level)
            for query in queries:
                deviation = np.sqrt(np.maximum(basis.variances(query, final), 0.0))[kind_of]
                if level == "state" and query.name == "total":
                    continue
                inside = np.abs(query.answer(cells[level] - truth[level])) <= 1.959964 * deviation
                held.setdefault((level, query.name), []).append(float(inside.mean()))
        error = np.zeros(len(areas))
        for i, (area, factors) in enumerate(zip(areas, recodes, strict=True)):
            weight = np.kron(factors[0][0], factors[1][0])
            for level, members in area.items():
                error[i] += ((cells[level] - truth[level])[members.units] @ weight).sum()
        of_areas.append(np.abs(error) <= 1.959964 * np.sqrt(widths))
    for (level, name), shares in held.items():
        if spine.size(level) >= 200:  # few geounits give few intervals: those are taken together below
            assert 0.94 < np.mean(shares) < 0.96, (level, name, np.mean(shares))
    few = [share for (level, _), shares in held.items() if spine.size(level) < 200 for share in shares]
    assert 0.92 < np.mean(few) < 0.98
    assert 0.94 < np.mean(of_areas) < 0.96


def _areas(spine: Spine, rng: np.random.Generator, n: int) -> list[Union]:
    """Off the spine: a run of neighbouring blocks, less a third of them."""
    out = []
    for _ in range(n):
        size = int(rng.integers(5, 900))
        start = int(rng.integers(0, len(spine.leaves) - size))
        out.append(coarsest(spine, start + np.flatnonzero(rng.random(size) < 0.67)))
    return out


def _recode(rng: np.random.Generator) -> Factors:
    """A random selection of labels of both attributes, never none."""
    out = []
    for size in (2, 8):
        row = (rng.random(size) < 0.5).astype(float)
        row[rng.integers(size)] = 1.0
        out.append(row[None, :])
    return out
