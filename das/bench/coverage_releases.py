"""Coverage of the intervals of whole releases: block counts of a real state, released again and again.

Each release is run end to end with a testing key, from the counts to its public files; intervals are read from these
files as `das query` reads them, and compared with the counts, which are taken for the truth.

Intervals are cut at zero when they are given, so an empty cell is missed from above alone, and they hold the truth more
often where many cells are empty. ``coverage`` is that of the uncut intervals, ``coverage_cut`` of those that are given.
"""

from __future__ import annotations

from pathlib import Path
from statistics import NormalDist
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from das.bench.real_geography import PRODUCTION_QUERIES, groups_of, read_blocks, write_world
from das.inference.intervals.asked import Asked, ask
from das.inference.intervals.estimates import Estimates
from das.inference.intervals.public_files import PublicFiles
from das.inference.intervals.query import level_intervals
from das.plan.load import load
from das.plan.plan import Plan
from das.runner import find_runner
from das.schema.schema import Schema
from das.storage.layout import Layout
from geography import Areas, Spine

__all__ = ["rows"]

NOMINAL = 0.95
RUNS = 20
AREAS = 200
RECODES = 10
AREA = "random area"
FEW = 200
"""Levels of fewer geounits give few intervals; they are taken together in one more row."""

Counts = NDArray[np.int64]


def rows(counts: Path, *, runs: int = RUNS, seed: int = 2020) -> list[dict[str, Any]]:
    """Return a row for each level and measured query, and one for random areas under random selections of labels.

    An interval counts only where something is uncertain: the state's total is exact.
    """
    rng = np.random.default_rng(seed)
    blocks = read_blocks(counts).sort_values("GEOID")
    names = groups_of(blocks)
    adults = blocks[[f"vap_{name}" for name in names]].to_numpy()
    leaves = np.concatenate([blocks[[f"pop_{name}" for name in names]].to_numpy() - adults, adults], axis=1)
    held: dict[str, list[_Held]] = {}
    with TemporaryDirectory(prefix="das-bench-coverage-") as folder:
        plan = load(write_world(Path(folder), blocks, PRODUCTION_QUERIES))
        questions: list[tuple[str, Asked]] = []
        areas: Areas | None = None
        unions: dict[str, Any] = {}
        for run in range(runs):
            out = Path(folder) / f"run-{run}"
            find_runner().run(plan, out, testing_key=f"coverage {seed} {run}")
            files = PublicFiles(Layout(out).release)
            if areas is None:
                areas = _areas(files.spine, rng)
                questions = _questions(plan, rng)
            known = Estimates(files)
            known.unions.update(unions)
            for name, share in _shares(known, questions, areas, leaves.astype(np.int64)):
                held.setdefault(name, []).append(share)
            unions = dict(known.unions)
        few = [
            name for level in plan.levels if files.spine.size(level) < FEW for name in held if name.startswith(level)
        ]
    found = [_row(name, shares, runs) for name, shares in held.items()]
    return [*found, _row("levels of few geounits together", [share for name in few for share in held[name]], runs)]


class _Held(NamedTuple):
    """Shares of some intervals of one release that hold the truth, and how many intervals there are."""

    uncut: float
    cut: float
    intervals: int


def _row(name: str, shares: list[_Held], runs: int) -> dict[str, Any]:
    weights = [share.intervals for share in shares]
    uncut = [share.uncut for share in shares]
    return {
        "name": f"releases: {name}",
        "coverage": float(np.average(uncut, weights=weights)),
        "coverage_cut": float(np.average([share.cut for share in shares], weights=weights)),
        "replications": sum(weights),
        "nominal": NOMINAL,
        "releases": runs,
        "simulation_error": float(np.std(uncut) / max(len(shares) - 1, 1) ** 0.5),
    }


def _shares(
    known: Estimates, questions: list[tuple[str, Asked]], areas: Areas, leaves: Counts
) -> list[tuple[str, _Held]]:
    """For each question the share of its intervals that hold the truth."""
    spine, out = known.files.spine, list[tuple[str, _Held]]()
    of_areas: list[NDArray[np.bool_]] = []
    z = NormalDist().inv_cdf((1.0 + NOMINAL) / 2.0)
    for place, asked in questions:
        _, numbers = level_intervals(known, place, asked, areas if place == AREA else None)
        true = asked.of_cells(leaves.astype(np.float64))
        true = np.asarray(areas.tabulate(true) if place == AREA else spine.tabulate(place, true))
        free = numbers["std_dev"] > 1e-6
        cut = (numbers["low"] <= true) & (true <= numbers["high"])
        uncut = np.abs(numbers["estimate"] - true) <= z * numbers["std_dev"]
        inside = np.stack([uncut[free], cut[free]])
        if place == AREA:
            of_areas.append(inside)
        elif inside.size:
            out.append((f"{place}, {asked.text}", _held(inside)))
    return [*out, (f"{AREAS} areas off the spine, {RECODES} selections", _held(np.concatenate(of_areas, axis=1)))]


def _held(inside: NDArray[np.bool_]) -> _Held:
    uncut, cut = inside.mean(axis=1).tolist()
    return _Held(uncut, cut, inside.shape[1])


def _questions(plan: Plan, rng: np.random.Generator) -> list[tuple[str, Asked]]:
    """Every measured query at every level, and random selections of labels of the areas."""
    measured = [(level, ask(plan.schema, m.query.name)) for level in plan.levels for m in plan.at(level)]
    return [*measured, *((AREA, ask(plan.schema, "total", _selection(plan.schema, rng))) for _ in range(RECODES))]


def _selection(schema: Schema, rng: np.random.Generator) -> dict[str, list[str]]:
    chosen = {}
    for attribute in schema.attributes:
        kept = rng.random(len(attribute.labels)) < 0.5
        kept[rng.integers(len(kept))] = True
        chosen[attribute.name] = [label for label, keep in zip(attribute.labels, kept, strict=True) if keep]
    return chosen


def _areas(spine: Spine, rng: np.random.Generator) -> Areas:
    """Off the spine: each a run of neighbouring blocks, less a third of them."""
    n = len(spine.leaves)
    membership = np.zeros((AREAS, n), dtype=np.int8)
    for row in membership:
        size = int(rng.integers(5, min(900, n)))
        start = int(rng.integers(0, n - size + 1))
        row[start : start + size] = rng.random(size) < 0.67
        row[start] = 1
    codes = np.array([f"{number:04d}" for number in range(AREAS)])
    return Areas(codes, np.full(AREAS, ""), sparse.csr_array(membership))
