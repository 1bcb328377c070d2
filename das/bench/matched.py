"""Congenial draws against least squares at one effective epsilon, on block counts of a real state.

Every level is measured by all its cells with the shares of 2020 for the levels, the state's total is exact, and the
estimate has the default prior: none. Epsilon is that of the measured plan; the budget of the congenial plan is scaled
until it promises no more (`das compare`).
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from das.bench.real_geography import read_blocks, write_world
from das.errors import Problem, UsageError
from das.evaluation.compare.levels import RAW, SQUARES, compare_levels
from das.plan.load import load

__all__ = ["rows"]

RUNS = 5


def rows(*, counts: Path | None = None, runs: int = RUNS) -> list[dict[str, Any]]:
    """Return a row for each level: mean L1 distance of a geounit's table, congenial (ours) and least squares (peer).

    Raises
    ------
    UsageError
        No counts are given.
    """
    if counts is None:
        raise UsageError(Problem("--counts", "is missing", "give block counts of a state, as for `das bench accuracy`"))
    with TemporaryDirectory(prefix="das-bench-matched-") as folder:
        plan = load(write_world(Path(folder), read_blocks(counts), {"detailed": "1"}))
        found = compare_levels(plan, runs=runs, workdir=Path(folder) / "work")
        prior = plan.settings.estimate.prior
    promised = {each["name"]: each["epsilon"] for each in found["contenders"]}
    (congenial,) = promised.keys() - {RAW, SQUARES}
    out = []
    for level in found["levels"]:
        named = {each["name"]: each for each in level["contenders"]}
        ours, peer, raw = named[congenial], named[SQUARES], named[RAW]
        out.append(
            {
                "name": f"{level['level']} {level['query']}, congenial",
                "ours": ours["l1"],
                "peer": peer["l1"],
                "ratio": peer["l1"] / ours["l1"],
                "unit": "mean L1 distance of a geounit's table, against least squares at the same effective epsilon",
                "ours_se": ours["l1_error"],
                "peer_se": peer["l1_error"],
                "raw_noise": raw["l1"],
                "raw_noise_se": raw["l1_error"],
                "effective_epsilon": promised[RAW],
                "congenial_epsilon": promised[congenial],
                "promise": found["matched"]["promise"],
                "delta": found["matched"]["delta"],
                "prior": str(prior),
                "geounits": level["geounits"],
                "runs": runs,
            }
        )
    return out
