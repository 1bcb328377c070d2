"""Linear estimates of what is asked: from the estimate files, or from the measurements where there are none."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from das.errors import Problem, UsageError
from das.estimation.linear.estimates import SweptEstimates
from das.inference.intervals.asked import Asked
from das.inference.intervals.public_files import PublicFiles
from das.release.measurements import read_measurements
from das.schema.counts import ProtectedCounts
from das.storage.counts import read_counts
from geography.summation import sum_ranges

__all__ = ["Estimates", "counts_of"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Estimates:
    """Linear estimates of any geounits.

    The published files hold those of every measured query, and so of everything that one of them refines. Where
    estimation used the measurements of each level alone there are no such files; then both sweeps are done here.
    """

    files: PublicFiles

    def answers(self, level: str, units: Indices, asked: Asked) -> Floats:
        """Estimates of some geounits of a level: geounits x answers."""
        if not self.files.folder.estimates.exists():
            return self._swept(level, units, asked)
        finer = [m.query for m in self.files.measured(level) if asked.seen_by(m.query)]
        if finer:
            query = min(finer, key=lambda query: query.size)
            return asked.of_answers(query, self.files.estimates(level, units, query))
        return self._of_children(level, units, asked)

    def _of_children(self, level: str, units: Indices, asked: Asked) -> Floats:
        """Sums over the children, of which more is published."""
        spine = self.files.spine
        first = spine.first_child(level)
        below = spine.levels[spine.levels.index(level) + 1]
        children = np.concatenate([np.arange(first[unit], first[unit + 1]) for unit in units.tolist()])
        offsets = np.append(0, np.cumsum(first[units + 1] - first[units]))
        return np.asarray(sum_ranges(self.answers(below, children, asked), offsets))

    def _swept(self, level: str, units: Indices, asked: Asked) -> Floats:
        """Answers from both sweeps, a shard at a time."""
        out = np.zeros((len(units), asked.size))
        for _, at in self.files.touched(level, units):
            out[at] = asked.of_cells(self.files.basis.to_cells(self._sweep.final(level, units[at])))
        return out

    @cached_property
    def _sweep(self) -> SweptEstimates:
        files, plan = self.files, self.files.plan
        if not files.folder.measurements.exists():
            reason = "has neither linear estimates nor measurements to make them of"
            raise UsageError(Problem(str(files.folder.path), reason, "ask a release that published its measurements"))

        def values(level: str, piece: slice) -> list[Floats]:
            shard = next(shard for shard in files.shards(level) if shard.start == piece.start)
            numbers = read_measurements(plan, level, shard.path(files.folder.measurements)).astype(np.float64)
            return np.split(numbers, np.cumsum([m.query.size for m in plan.at(level)])[:-1], axis=1)

        return SweptEstimates(
            files.covariances,
            {level: files.level_facts(level) for level in plan.levels},
            lambda level: [slice(shard.start, shard.stop) for shard in files.shards(level)],
            values,
        )


def counts_of(files: PublicFiles, level: str, units: Indices, asked: Asked) -> Indices:
    """Published counts of what is asked: geounits x answers."""
    out = np.zeros((len(units), asked.size), dtype=np.int64)
    for shard, at in files.touched(level, units):
        counts: ProtectedCounts = read_counts(files.spine, level, shard.path(files.folder.counts))
        answer = asked.group_of(counts.cell)
        inside = answer >= 0
        table = np.zeros((shard.stop - shard.start, asked.size), dtype=np.int64)
        np.add.at(table, (counts.unit[inside] - shard.start, answer[inside]), counts.count[inside])
        out[at] = table[units[at] - shard.start]
    return out
