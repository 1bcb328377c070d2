"""Gain in accuracy when estimates use the measurements of all levels instead of one level's alone.

The states have the shape of the one on which BlueDown (google-research/census-bluedown, arXiv:2603.10099) was measured
against the Bureau's TopDown: about 5 counties, 40 tracts, 126 block groups, 3,131 blocks, the redistricting schema,
production's budget. Its own population is not at hand, so its gains are quoted beside ours and not computed in the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from typing import Any

from das.demo import generate
from das.evaluation.simulate import compare
from das.plan import presets
from das.plan.load import load

__all__ = ["rows"]

BLOCKS, PEOPLE_PER_BLOCK = 3_131, 40
BLOCKS_PER_GROUP, TRACTS_PER_COUNTY = 24.85, 8
BLUEDOWN = {
    ("tract", "total"): 24,
    ("tract", "hispanic * cenrace"): 29,
    ("tract", "detailed"): 29,
    ("block_group", "total"): 7,
    ("block_group", "hispanic * cenrace"): 20,
    ("block_group", "detailed"): 19,
}
"""By how many percent its mean error was below TopDown's: three runs on a synthetic state."""


def rows(*, blocks: int = BLOCKS, states: Sequence[int] = (1, 2, 3, 4, 5), runs: int = 2) -> list[dict[str, Any]]:
    """Return a row for each level and query: mean absolute errors over several generated states, each measured anew.

    Parameters
    ----------
    blocks : int
        Size of a state.
    states : sequence of int
        The seeds of the states.
    runs : int
        How often each is measured.
    """
    errors = [_errors(blocks, seed, runs) for seed in states]
    return [_row(level, query, [state[level, query] for state in errors], runs) for level, query in BLUEDOWN]


def _errors(blocks: int, seed: int, runs: int) -> dict[tuple[str, str], tuple[float, float]]:
    """Mean absolute errors of level and of full information on one state."""
    with TemporaryDirectory(prefix="das-bench-accuracy-") as folder:
        home = Path(folder)
        shape = {"blocks_per_group": BLOCKS_PER_GROUP, "tracts_per_county": TRACTS_PER_COUNTY}
        generate(blocks=blocks, people=PEOPLE_PER_BLOCK * blocks, seed=seed, **shape).write(home)
        (home / "demo.toml").write_bytes((presets.folder() / "demo.toml").read_bytes())
        plan = load(home / "demo.toml")
        plans = {information: plan.with_information(information) for information in ("level", "full")}
        by_plan = compare(plans, runs, workdir=home)["plans"]
    errors = {
        information: {(row["level"], row["query"]): row["mae"] for row in result["levels"]}
        for information, result in by_plan.items()
    }
    return {where: (errors["level"][where], errors["full"][where]) for where in BLUEDOWN}


def _row(level: str, query: str, errors: list[tuple[float, float]], runs: int) -> dict[str, Any]:
    peer, ours = (mean(each) for each in zip(*errors, strict=True))
    gains = [100.0 * (1.0 - full / alone) for alone, full in errors]
    return {
        "name": f"accuracy {level} {query}",
        "ours": ours,
        "peer": peer,
        "ratio": peer / ours if ours else None,  # none, where nothing was wrong
        "unit": "mean absolute error, full information against one level",
        "checked": f"the same measurements, {runs} of each of {len(errors)} states",
        "level": level,
        "query": query,
        "method": "nonnegative-l2",
        "gain_percent": 100.0 * (1.0 - ours / peer),
        "gain_percent_se": stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else None,
        "bluedown_gain_percent": BLUEDOWN[level, query],
    }
