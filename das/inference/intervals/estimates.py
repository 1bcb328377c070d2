"""Linear estimates of what is asked: from the estimate files, or from the measurements where there are none."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from das.errors import Problem, UsageError
from das.estimation.linear.blue import LinearEstimate
from das.estimation.linear.covariances import known_at, nothing_seen
from das.inference.intervals.asked import Asked
from das.inference.intervals.public_files import PublicFiles
from das.release.measurements import read_measurements
from das.schema.counts import ProtectedCounts
from das.storage.counts import read_counts
from das.storage.shards import Shard
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
        basis = self.files.basis
        out = np.zeros((len(units), asked.size))
        for shard, at in self.files.touched(level, units):
            final = self._final(level, shard)
            out[at] = asked.of_cells(basis.to_cells(final[units[at] - shard.start]))
        return out

    @cached_property
    def _above(self) -> dict[str, LinearEstimate]:
        """Up-sweep: the sums of the children of every geounit above the leaves."""
        files, spine, found = self.files, self.files.spine, dict[str, LinearEstimate]()
        if not files.folder.measurements.exists():
            reason = "has neither linear estimates nor measurements to make them of"
            raise UsageError(Problem(str(files.folder.path), reason, "ask a release that published its measurements"))
        for at in reversed(range(1, len(spine.levels))):
            level, above = spine.levels[at], spine.levels[at - 1]
            mean = np.zeros((spine.size(above), files.basis.schema.size))
            for shard in files.shards(level):
                np.add.at(mean, spine.parent(level)[shard.start : shard.stop], self._known(level, shard, found).mean)
            swept = files.covariances.levels[above]
            found[above] = LinearEstimate(mean, [block[swept.kind_of] for block in swept.below or []])
        return found

    def _known(self, level: str, shard: Shard, sums: dict[str, LinearEstimate]) -> LinearEstimate:
        """Estimates of a shard's geounits from their level and all below it."""
        files, rows = self.files, slice(shard.start, shard.stop)
        here = files.level_facts(level)
        values = read_measurements(files.plan, level, shard.path(files.folder.measurements)).astype(np.float64)
        cuts = np.cumsum([query.size for query, _ in here.measured])[:-1]
        below = sums.get(level)
        levels = files.plan.levels
        seen = files.covariances.seen(levels[levels.index(level) + 1]) if below else nothing_seen(files.basis)
        known, _ = known_at(
            files.basis,
            here,
            below and below.units(rows),
            seen,
            here.zeros[rows] | files.basis.impossible,
            values=np.split(values, cuts, axis=1) if len(here.measured) else [],
            rows=rows,
        )
        return known

    @cached_property
    def _finals(self) -> dict[tuple[str, int], Floats]:
        return {}

    def _final(self, level: str, shard: Shard) -> Floats:
        """Down-sweep for a shard: b = m + V S^+ (b of the parent - sum of m)."""
        files, spine = self.files, self.files.spine
        if (level, shard.index) in self._finals:
            return self._finals[level, shard.index]
        known = self._known(level, shard, self._above)
        final = known.mean
        at = spine.levels.index(level)
        if at:
            above = spine.levels[at - 1]
            parents = spine.parent(level)[shard.start : shard.stop]
            families, family = np.unique(parents, return_inverse=True)
            innovation = (self._final_of(above, families) - self._above[above].mean[families])[family.reshape(-1)]
            inverse = files.covariances.levels[above]
            final = final.copy()
            kinds = zip(files.basis.where, known.covariance, inverse.inverse_below, strict=True)
            for where, block, pseudo in kinds:
                share = block @ pseudo[inverse.kind_of[parents]]
                final[:, where] += innovation[:, where] @ np.swapaxes(share, -1, -2)
        if level != spine.levels[-1]:  # leaves are too many to be kept
            self._finals[level, shard.index] = final
        return final

    def _final_of(self, level: str, units: Indices) -> Floats:
        out = np.zeros((len(units), self.files.basis.schema.size))
        for shard, at in self.files.touched(level, units):
            out[at] = self._final(level, shard)[units[at] - shard.start]
        return out


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
