"""Repeat the mechanism of a plan on generated data sets, each time under another testing key.

These are the functions that a release calls: `das.noise.measure.noisy_answers` on the keyed streams of the plan's
digest, or the families of the congenial sampler. The counts are those of a generated world and of nobody; the keys are
testing keys, so nothing here could be a release.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from das.congenial.family import Box, Family, SentMessages
from das.congenial.messages import WindowTooSmall
from das.errors import Problem, UsageError
from das.evaluation.privacy_audit.small_world import Counts, SmallWorld
from das.noise.measure import noisy_answers
from das.noise.stream import RunKey, Streams
from das.plan.constraint import Bound, Invariant
from das.plan.tree_of_counts import TreeOfCounts, tree_of
from das.schema.counts import TrueCounts
from das.storage.shards import families

__all__ = ["Conditioned", "Facts", "Measuring", "Mechanism", "Runs", "facts_between", "keys"]

REACHES = (20.0, 40.0, 80.0, 160.0, 320.0)
Facts = Mapping[tuple[str, str], tuple[Counts, Counts]]
"""Lower and upper limits of each limited query at its level, units x answers."""


@dataclass(frozen=True, slots=True)
class Runs:
    """What came of several runs on one data set: the released answers of each, and how many released nothing."""

    answers: Counts
    refused: int

    @property
    def count(self) -> int:
        """How many runs there were."""
        return len(self.answers) + self.refused


def keys(seed: str, number: int) -> Iterator[RunKey]:
    """Testing keys, one a run: a function of the seed, of the number of the run, and of nothing else."""
    return (RunKey.for_testing(f"{seed}, run {run}") for run in range(number))


def facts_between(world: SmallWorld, one: Counts, other: Counts) -> Facts:
    """Public facts that two data sets both keep: their common invariants, and bounds as narrow as both allow."""
    plan = world.plan
    found: dict[tuple[str, str], tuple[Counts, Counts]] = {}
    every: tuple[Invariant | Bound, ...] = (*plan.invariants, *plan.bounds)
    for fact in every:
        rows = world.answers(fact.level, fact.query)
        low, high = found.get((fact.level, fact.query.name)) or (
            np.zeros(rows.shape[:2], dtype=np.int64),
            Box.open((rows.shape[0], rows.shape[1])).upper,
        )
        answers = rows @ one, rows @ other
        sense = fact.sense if isinstance(fact, Bound) else "="
        if sense in ("=", ">="):
            low = np.minimum(*answers)
        if sense in ("=", "<="):
            high = np.maximum(*answers)
        found[fact.level, fact.query.name] = low, high
    return found


Release = Callable[[Streams], Counts]
"""Releases the answers of one data set, in the order of the world's rows, with the noise of these streams."""


class Mechanism(ABC):
    """The mechanism of a plan on a world, which can be run again and again."""

    world: SmallWorld

    @abstractmethod
    def prepare(self, data: Counts, facts: Facts) -> Release:
        """Do what depends on the data alone, once; either this or the release itself may refuse."""

    def runs(self, data: Counts, facts: Facts, under: Iterable[RunKey], told: Callable[[], None] | None = None) -> Runs:
        """Collect the releases under several keys. Whatever is raised counts as a refusal: that too is an output."""
        context = self.world.plan.digest.encode()
        made: list[Counts] = []
        refused, release = 0, None
        for key in under:
            streams = key.streams(context)
            try:
                release = release or self.prepare(data, facts)
                made.append(release(streams))
            except Exception:  # an error that depends on the data tells as much as a message
                refused += 1
            streams.wipe()
            if told:
                told()
        rows = len(self.world.rows)
        return Runs(np.array(made, dtype=np.int64).reshape(len(made), rows), refused)


@dataclass(frozen=True)
class Measuring(Mechanism):
    """Independent noise on every answer: the measurements of a release."""

    world: SmallWorld

    def prepare(self, data: Counts, facts: Facts) -> Release:
        """Tabulate the data set at every level."""
        levels = self.world.plan.levels
        truth = {level: _sparse(self.world.histogram(data, level)) for level in levels}

        def release(streams: Streams) -> Counts:
            plan, spine = self.world.plan, self.world.spine
            found = [
                noisy_answers(plan.at(level), spine.geocodes(level), truth[level], streams).reshape(-1)
                for level in levels
                if plan.at(level)
            ]
            return np.concatenate(found)

        return release


@dataclass(frozen=True)
class Conditioned(Mechanism):
    """Conforming counts, drawn by the congenial sampler family by family as a release does, without Beam."""

    world: SmallWorld

    def prepare(self, data: Counts, facts: Facts) -> Release:
        """Make the forward pass, in doubles, at the first reach that holds; it is a function of the data alone."""
        layers = tree_of(self.world.plan)
        for reach in REACHES:
            try:
                swept = _forward(self.world, layers, data, facts, reach)
                swept[self.world.plan.levels[0], 0].roots(RunKey.for_testing("does it hold").streams(b""))
                break
            except WindowTooSmall:
                continue
        else:
            problem = Problem("strategy", "doubles do not hold the messages of this world", "audit a smaller budget")
            raise UsageError(problem)

        finest = layers[self.world.plan.levels[-1]][-1].query.index[self.world.cells]
        rows = self.world.rows

        def release(streams: Streams) -> Counts:
            above: dict[int, Counts] = {}
            for level in self.world.plan.levels:
                offsets = families(self.world.spine, level)
                drawn: dict[int, Counts] = {}
                for parent in range(len(offsets) - 1):
                    found = swept[level, parent].drawn(above.get(parent), streams)
                    drawn |= {int(offsets[parent]) + child: row for child, row in enumerate(found)}
                above = drawn
            leaves = np.stack([above[leaf][finest] for leaf in range(len(above))])
            return np.asarray(rows @ leaves.reshape(-1))

        return release


@dataclass(frozen=True)
class _Swept:
    """A family after the forward pass."""

    family: Family
    weighed: tuple[Any, ...]

    def roots(self, streams: Streams) -> Counts:
        return self.family.draw_roots(self.weighed, streams)

    def drawn(self, above: Counts | None, streams: Streams) -> Counts:
        coarsest = self.roots(streams) if above is None else self.family.draw(self.weighed, above, streams)
        return self.family.refine(self.weighed, coarsest, streams)


def _forward(
    world: SmallWorld, layers: TreeOfCounts, data: Counts, facts: Facts, reach: float
) -> dict[tuple[str, int], _Swept]:
    """Forward pass over the spine, leaves first."""
    spine, levels = world.spine, world.plan.levels
    swept: dict[tuple[str, int], _Swept] = {}
    below: dict[int, SentMessages] = {}
    for depth in reversed(range(len(levels))):
        level, offsets, sent = levels[depth], families(spine, levels[depth]), {}
        histogram = world.histogram(data, level)
        truth = [layer.query.answer(histogram) for layer in layers[level]]
        limits = [
            facts.get((level, layer.query.name)) or (np.zeros_like(true), Box.open((len(true), true.shape[1])).upper)
            for layer, true in zip(layers[level], truth, strict=True)
        ]
        for parent in range(len(offsets) - 1):
            here = slice(int(offsets[parent]), int(offsets[parent + 1]))
            family = Family(
                layers=layers[level],
                geocodes=tuple(spine.geocodes(level)[here].tolist()),
                parent=str(spine.geocodes(levels[depth - 1])[parent]) if depth else "",
                truth=tuple(true[here] for true in truth),
                boxes=tuple(Box(low[here], high[here]) for low, high in limits),
                reach=reach,
                splits=layers.splits(spine),
            )
            received = [below[child] for child in range(here.start, here.stop)] if below else None
            swept[level, parent] = _Swept(family, family.forward_pass(received))
            if depth:
                above = layers[levels[depth - 1]][-1]
                sent[parent] = family.send_up(swept[level, parent].weighed, above)
        below = sent
    return swept


def _sparse(histogram: Counts) -> TrueCounts:
    unit, cell = np.nonzero(histogram)
    return TrueCounts(unit, cell, histogram[unit, cell])
