"""Coverage of the published confidence intervals: how many contain the true answers.

The best linear unbiased estimates are published with the standard deviation of each answer, so that anybody can make
an interval. How many of them cover the truth is known on the confidential side alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from das.evaluation.truth import Truth
from das.plan.plan import Plan, numbers_per_unit
from das.storage.layout import ReleaseFolder
from das.storage.shards import shards_of
from geography import Spine

__all__ = ["WIDTH", "Covered", "covered"]

WIDTH = 1.96
"""Standard deviations to either side of an estimate that make an interval of 95 % if its error is normal."""


@dataclass(frozen=True, slots=True)
class Covered:
    """How many intervals there are, and how many of them hold the truth; confidential.

    Examples
    --------
    >>> (Covered(100, 94) + Covered(100, 96)).share
    0.95
    """

    intervals: int
    hold: int

    @property
    def share(self) -> float:
        """Share of the intervals that hold the truth."""
        return self.hold / self.intervals if self.intervals else float("nan")

    def __add__(self, other: Covered) -> Covered:
        return Covered(self.intervals + other.intervals, self.hold + other.hold)


def covered(plan: Plan, spine: Spine, truth: Truth, release: ReleaseFolder) -> dict[tuple[str, str], Covered]:
    """Count, by level and query, the intervals that hold the truth; one shard is in memory at a time.

    What is known exactly has no interval and is not counted. Empty where no estimates were published, as with
    ``information = "level"``.
    """
    found: dict[tuple[str, str], Covered] = {}
    if plan.settings.estimate.information != "full" or not release.estimates.exists():
        return found
    for level in plan.levels:
        real, here = spine.real(level), truth[level]
        queries = [measurement.query for measurement in plan.at(level)]
        for shard in shards_of(spine, level, numbers_per_unit(plan.at(level))):
            estimates, deviations = _read(shard.path(release.estimates), shard.stop - shard.start)
            local = here.within(shard.start, shard.stop)
            shown, at = real[shard.start : shard.stop], 0
            for query in queries:
                columns = slice(at, at + query.size)
                error = np.abs(estimates[:, columns] - local.answers(query, shard.stop - shard.start))[shown]
                deviation = deviations[:, columns][shown]
                uncertain = deviation > 0
                now = Covered(int(uncertain.sum()), int((error <= WIDTH * deviation)[uncertain].sum()))
                found[level, query.name] = found.get((level, query.name), Covered(0, 0)) + now
                at += query.size
    return found


def _read(path: Path, units: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Read a shard's estimates and standard deviations: each geounits x numbers, queries side by side."""
    table = pq.read_table(path, columns=["estimate", "std_dev"])
    columns = (table[name].combine_chunks().flatten().to_numpy(zero_copy_only=False) for name in table.column_names)
    estimates, deviations = (column.reshape(units, -1) for column in columns)
    return estimates, deviations
