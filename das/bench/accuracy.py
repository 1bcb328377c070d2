"""Accuracy from the same measurements: of all levels against one alone, of a prior against none, and of peers.

The generated states have the shape of the one on which BlueDown (google-research/census-bluedown, arXiv:2603.10099) was
measured: about 5 counties, 40 tracts, 126 block groups, 3,131 blocks, the redistricting schema, production's budget. It
needs a solver that cannot be shipped and minutes a run, so its gains over the Bureau's TopDown, measured once on
measurement files of such a state, are quoted beside ours and not computed in the run. CensusDP's estimate has a closed
form (:mod:`das.bench.closed_form`), which is computed. A generator must not be the judge of a prior that its author
knows: ``--counts FILE`` measures the same on the block counts of a real state, and enclaves are planted into both.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from das.bench.closed_form import closed_form
from das.bench.emptiness import emptiness_rows, off_spine_rows
from das.bench.enclaves import Enclave, enclave_rows, plant, plant_in_counts, priors_compared
from das.bench.real_geography import PRODUCTION_QUERIES, groups_of, read_blocks, write_world
from das.demo import generate
from das.evaluation.repeat import World, for_testing
from das.evaluation.simulate import compare
from das.plan import presets
from das.plan.load import load
from das.plan.plan import Plan
from das.schema.query import parse_query
from das.storage.layout import Layout

__all__ = ["BLUEDOWN", "gain_rows", "rows"]

BLOCKS, PEOPLE_PER_BLOCK = 3_131, 40
BLOCKS_PER_GROUP, TRACTS_PER_COUNTY = 24.85, 8
LEVELS = ("tract", "block_group")
BLUEDOWN = {
    ("tract", "total"): 23,
    ("tract", "hispanic * cenrace"): 18,
    ("tract", "detailed"): 25,
    ("block_group", "total"): 10,
    ("block_group", "hispanic * cenrace"): 10,
    ("block_group", "detailed"): 14,
}
"""By how many percent its mean error was below its TopDown's: the same measurement files of a generated state of this
shape (39 tracts, 126 block groups), three keys, with open solvers in the place of Gurobi."""


@dataclass(frozen=True)
class Generated:
    """A generated state."""

    blocks: int
    seed: int
    name: str = "generated"
    group_query: str = "cenrace"

    def write(
        self, folder: Path, *, enclaves: bool = False, only_detailed: bool = False
    ) -> tuple[Plan, tuple[Enclave, ...]]:
        """Write the state and the demo's config; with the detailed query alone, without the demo's bounds."""
        shape = {"blocks_per_group": BLOCKS_PER_GROUP, "tracts_per_county": TRACTS_PER_COUNTY}
        state = generate(blocks=self.blocks, people=PEOPLE_PER_BLOCK * self.blocks, seed=self.seed, **shape)
        state, planted = plant(state) if enclaves else (state, ())
        state.write(folder)
        text = (presets.folder() / "demo.toml").read_text(encoding="utf-8")
        if only_detailed:
            before, rest = text.split("[strategy]\n")
            shares, facts = rest[rest.index("[strategy.geolevels]") :].split("[[bound]]", 1)
            output = facts[facts.index("[output]") :]
            text = f'{before}[strategy.queries.all]\ndetailed = "1"\n\n{shares}{output}'
        (folder / "demo.toml").write_text(text, encoding="utf-8")
        return load(folder / "demo.toml"), planted


@dataclass(frozen=True, eq=False)
class Real:
    """Block counts of a real state."""

    blocks: pd.DataFrame
    name: str = "real geography"
    group_query: str = "race"

    def write(
        self, folder: Path, *, enclaves: bool = False, only_detailed: bool = False
    ) -> tuple[Plan, tuple[Enclave, ...]]:
        """Write the counts and a config with production's shares of the levels."""
        blocks, planted = plant_in_counts(self.blocks, groups_of(self.blocks)) if enclaves else (self.blocks, ())
        return load(write_world(folder, blocks, {"detailed": "1"} if only_detailed else PRODUCTION_QUERIES)), planted


Data = Generated | Real


def rows(
    *, blocks: int = BLOCKS, states: Sequence[int] = (1, 2, 3, 4, 5), runs: int = 2, counts: Path | None = None
) -> list[dict[str, Any]]:
    """Return rows of three kinds, on generated states or, with ``counts``, on a real one.

    A row for each level and query says what full information gains over one level's; rows of the detailed query alone
    compare with CensusDP's closed form; rows about the sharing prior compare it with none, for enclaves and for groups
    by size. On a real one, rows about empty blocks and about areas off the spine say what was tried against bias.

    Parameters
    ----------
    blocks : int
        Size of a generated state.
    states : sequence of int
        The seeds of the states on which information is compared; the first alone serves for peers and priors.
    runs : int
        How often each is measured.
    counts : Path, optional
        Block counts of a real state (:mod:`das.bench.real_geography`).
    """
    if counts is not None:
        real = Real(read_blocks(counts))
        gains = _gains_on(real, ("total", "race", "detailed"), runs)
        studies = [*emptiness_rows(real.blocks, real.name, runs), *off_spine_rows(real.blocks, real.name, runs)]
        return [*gains, *_peer_rows(real, runs), *_prior_rows(real, runs), *studies]
    first = Generated(blocks, states[0])
    return [*gain_rows(blocks, states, runs), *_peer_rows(first, runs), *_prior_rows(first, runs)]


def gain_rows(blocks: int, states: Sequence[int], runs: int) -> list[dict[str, Any]]:
    """Return a row for each level and query: what full information gains over several generated states."""
    errors = [_errors(Generated(blocks, seed), list(BLUEDOWN), runs) for seed in states]
    return [_gain(level, query, [one[level, query] for one in errors], runs) for level, query in BLUEDOWN]


def _compared(data: Data, runs: int) -> dict[str, Any]:
    """Simulate level and full information on one state, from the same measurements."""
    with TemporaryDirectory(prefix="das-bench-accuracy-") as folder:
        plan, _ = data.write(Path(folder))
        plans = {information: plan.with_information(information) for information in ("level", "full")}
        return compare(plans, runs, workdir=Path(folder))


def _errors(data: Data, wanted: Sequence[tuple[str, str]], runs: int) -> dict[tuple[str, str], tuple[float, float]]:
    """Mean absolute errors of level and of full information on one state."""
    errors = {
        information: {(row["level"], row["query"]): row["mae"] for row in result["levels"]}
        for information, result in _compared(data, runs)["plans"].items()
    }
    return {where: (errors["level"][where], errors["full"][where]) for where in wanted}


def _gain(level: str, query: str, errors: list[tuple[float, float]], runs: int) -> dict[str, Any]:
    peer, ours = (mean(each) for each in zip(*errors, strict=True))
    gains = [100.0 * (1.0 - full / alone) for alone, full in errors]
    return {
        **_row(f"{level} {query}", ours, peer, "mean absolute error, full information against one level"),
        "checked": f"the same measurements, {runs} of each of {len(errors)} states",
        "level": level,
        "query": query,
        "method": "nonnegative-l2",
        "prior": "none",
        "gain_percent": 100.0 * (1.0 - ours / peer),
        "gain_percent_se": stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else None,
        "bluedown_gain_percent": BLUEDOWN[level, query],
    }


def _gains_on(data: Data, queries: Sequence[str], runs: int) -> list[dict[str, Any]]:
    """What full information gains on one state, with the standard error over runs."""
    result = _compared(data, runs)
    errors = {
        (information, row["level"], row["query"]): row["mae"]
        for information, found in result["plans"].items()
        for row in found["levels"]
    }
    return [
        {
            **_row(
                f"{data.name} {change['level']} {change['query']}",
                errors["full", change["level"], change["query"]],
                errors["level", change["level"], change["query"]],
                "mean absolute error, full information against one level",
            ),
            "checked": f"the same measurements, {runs} runs",
            "level": change["level"],
            "query": change["query"],
            "method": "nonnegative-l2",
            "prior": "none",
            "data": data.name,
            "gain_percent": -change["mae"],
            "gain_percent_se": change["mae_se"],
        }
        for change in result["changes"]
        if change["level"] in LEVELS and change["query"] in queries
    ]


def _peer_rows(data: Data, runs: int) -> list[dict[str, Any]]:
    """One detailed query a node: our estimates beside CensusDP's closed form, from the same measurements."""
    scores: dict[tuple[str, str, str], list[float]] = {}
    with TemporaryDirectory(prefix="das-bench-accuracy-") as folder:
        home = Path(folder)
        plan, _ = data.write(home, only_detailed=True)
        plans = {kind: for_testing(plan.with_information(kind), home / "ledger.sqlite") for kind in ("level", "full")}
        world = World.tabulate(plans, home, ())
        queries = [parse_query(plan.schema, name) for name in ("total", data.group_query, "detailed")]
        total = int(world.truth[plan.levels[0]].count.sum())
        for run in range(runs):
            place = home / f"run-{run}"
            for kind in plans:
                world.run(kind, place, f"peer-{run}", ())
                for compared in world.compared(kind, place, queries):
                    error = float(np.abs(compared.published - compared.true).sum() / compared.cells)
                    scores.setdefault((kind, compared.level, compared.query.name), []).append(error)
            theirs = closed_form(plan, world.spine, Layout(place).release, total, run)
            for level in LEVELS:
                for query in queries:
                    true = world.truth[level].answers(query, world.spine.size(level))
                    error = float(np.abs(query.answer(theirs[level]) - true).mean())
                    scores.setdefault(("closed form", level, query.name), []).append(error)
            shutil.rmtree(place)
    return [
        {
            **_row(
                f"{data.name} {level} {query.name} CensusDP",
                mean(scores["full", level, query.name]),
                mean(scores["closed form", level, query.name]),
                "mean absolute error, full information against CensusDP's closed form",
            ),
            "checked": f"the same measurements, the detailed query alone, {runs} runs",
            "level": level,
            "query": query.name,
            "prior": "none",
            "data": data.name,
            "one_level": mean(scores["level", level, query.name]),
        }
        for level in LEVELS
        for query in queries
    ]


def _prior_rows(data: Data, runs: int) -> list[dict[str, Any]]:
    with TemporaryDirectory(prefix="das-bench-accuracy-") as folder:
        plan, enclaves = data.write(Path(folder), enclaves=True)
        scores = priors_compared(plan, enclaves, data.group_query, runs=runs, workdir=Path(folder))
    return enclave_rows(scores, data.name)


def _row(name: str, ours: float, peer: float, unit: str) -> dict[str, Any]:
    ratio = peer / ours if ours else None  # none, where nothing was wrong
    return {"name": f"accuracy {name}", "ours": ours, "peer": peer, "ratio": ratio, "unit": unit}
