"""Linear estimates of what is asked: from the estimate files, or from the measurements where there are none."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from das.errors import Problem, UsageError
from das.estimation.linear.basis import Blocks
from das.estimation.linear.estimates import SweptEstimates
from das.inference.intervals.asked import Asked
from das.inference.intervals.places import Place
from das.inference.intervals.public_files import PublicFiles
from das.release.measurements import read_measurements
from das.storage.counts import read_counts
from das.storage.shards import Shard
from geography.summation import sum_ranges

__all__ = ["Estimates"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Estimates:
    """Linear estimates and published counts of any geounits of a release.

    The published files hold estimates of every measured query, and so of everything that one of them refines. Where
    estimation used the measurements of each level alone there are no such files; then both sweeps are done here.

    Parameters
    ----------
    files
        The release.
    kept
        Questions that will be asked of many places: their answers are remembered when a file is read for one of them.
    """

    files: PublicFiles
    kept: tuple[Asked, ...] = ()

    def answers(self, level: str, units: Indices, asked: Asked) -> Floats:
        """Estimates of some geounits of a level: geounits x answers."""
        if not self.files.folder.estimates.exists():
            return self._swept(level, units, asked)
        if self._refining(level, asked) is None:
            return self._of_children(level, units, asked)
        return self._read("estimates", level, units, asked)

    def counts(self, level: str, units: Indices, asked: Asked) -> Floats:
        """Published counts of some geounits of a level: geounits x answers."""
        return self._read("counts", level, units, asked)

    def _read(self, what: Literal["estimates", "counts"], level: str, units: Indices, asked: Asked) -> Floats:
        out = np.zeros((len(units), asked.size))
        for shard, at in self.files.touched(level, units):
            out[at] = self._of_shard(what, shard, asked)[units[at] - shard.start]
        return out

    def _of_shard(self, what: Literal["estimates", "counts"], shard: Shard, asked: Asked) -> Floats:
        """Answers of all geounits of a shard; those of questions that are kept are remembered together."""
        key = (what, shard.level, shard.index, asked.text)
        if key in self._remembered:
            return self._remembered[key]
        wanted = self.kept if asked.text in {each.text for each in self.kept} else (asked,)
        found = self._estimates_of(shard, wanted) if what == "estimates" else self._counts_of(shard, wanted)
        if wanted is self.kept:
            for each, answers in zip(wanted, found, strict=True):
                self._remembered[what, shard.level, shard.index, each.text] = answers
        return found[[each.text for each in wanted].index(asked.text)]

    def _estimates_of(self, shard: Shard, wanted: tuple[Asked, ...]) -> list[Floats]:
        measured = [m.query for m in self.files.measured(shard.level)]
        numbers = self.files.estimates(shard)
        starts = np.append(0, np.cumsum([query.size for query in measured]))
        out = list[Floats]()
        for asked in wanted:
            at = self._refining(shard.level, asked)
            answers: Floats = np.zeros((shard.stop - shard.start, asked.size))
            if at is not None:
                answers = asked.of_answers(measured[at], numbers[:, starts[at] : starts[at + 1]].astype(np.float64))
            out.append(answers)
        return out

    def _refining(self, level: str, asked: Asked) -> int | None:
        """Position of the smallest measured query of a level from which the question can be answered."""
        key = level, asked.text
        if key not in self._best:
            measured = [m.query for m in self.files.measured(level)]
            finer = [at for at, query in enumerate(measured) if asked.seen_by(query)]
            self._best[key] = min(finer, key=lambda at: measured[at].size) if finer else None
        return self._best[key]

    @cached_property
    def _best(self) -> dict[tuple[str, str], int | None]:
        return {}

    def _counts_of(self, shard: Shard, wanted: tuple[Asked, ...]) -> list[Floats]:
        counts = read_counts(self.files.spine, shard.level, shard.path(self.files.folder.counts))
        out = list[Floats]()
        for asked in wanted:
            answer = asked.group_of(counts.cell)
            inside = answer >= 0
            table = np.zeros((shard.stop - shard.start, asked.size))
            np.add.at(table, (counts.unit[inside] - shard.start, answer[inside]), counts.count[inside])
            out.append(table)
        return out

    @cached_property
    def _remembered(self) -> dict[tuple[str, str, int, str], Floats]:
        return {}

    @cached_property
    def unions(self) -> dict[str, tuple[list[Place], Blocks]]:
        """Places of a kind with their covariances, as far as they were asked for: remembered by whoever asks."""
        return {}

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
