"""The congenial mechanism as Beam steps: messages up the spine, draws down; it stands on the confidential side.

Messages are functions of true counts. Only the draws are released; every other element here is confidential.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
from numpy.typing import NDArray

from das.congenial.family import Box, Family, SentMessages
from das.congenial.messages import Messages, WindowTooSmall
from das.errors import Problem, WindowsTooNarrow
from das.facts.fact import limits_of
from das.facts.file import read_facts
from das.noise.stream import Streams
from das.plan.tree_of_counts import Layer, TreeOfCounts, tree_of
from das.schema.counts import ProtectedCounts, TrueCounts
from das.schema.limits import Limits
from das.storage.counts import table_of_counts, with_noise_stated
from das.storage.files import write_atomically
from das.storage.key_file import read_key
from das.storage.shards import Shard, families, parquet_bytes
from pipelines.elements.arrays import Arrays, Join, Joined, sparse_arrays, sparse_counts
from pipelines.elements.context import WorkerContext
from pipelines.elements.kept import KeptElements, keeping
from pipelines.stages.tabulate import AddUp, CarryUp, read_histogram
from pipelines.workers.errors import reporting_errors
from pipelines.workers.step_timer import count, timed

__all__ = [
    "Congenial",
    "DrawFamily",
    "Drawing",
    "Keyed",
    "OfFamily",
    "SendDown",
    "asking_for_wider",
    "cells_of_answers",
    "counts_above",
    "laid_out",
    "limit_arrays",
    "message_arrays",
    "messages_of",
]

Keyed = tuple[int, Arrays]


class Drawing(beam.PTransform):
    """What both arithmetics share: reading true counts and limits, and writing the draws."""

    def __init__(self, work: WorkerContext, histograms: Path, facts: Path, key: Path) -> None:
        super().__init__()
        self.work, self.histograms, self.facts, self.key = work, histograms, facts, key

    def truth(self, start: beam.pvalue.PBegin) -> dict[str, beam.PCollection[Keyed]]:
        """Read the true counts and public limits of every level, by family."""
        work = self.work
        return {
            level: start
            | f"shards of {level}" >> beam.Create(list(work.shards(level)))
            | f"spread {level}" >> beam.Reshuffle()
            | f"read {level}" >> beam.ParDo(ReadTruth(work, self.histograms, self.facts)).with_output_types(Keyed)
            for level in work.plan.levels
        }

    def written(self, start: beam.pvalue.PBegin, drawn: beam.PCollection[Keyed]) -> beam.PCollection[str]:
        """Add the leaves' draws up and write every level. They are the whole draw: every other count is a sum."""
        work, levels = self.work, self.work.plan.levels
        counts, written = drawn | "cells" >> beam.ParDo(ToCells(work)).with_output_types(Keyed), []
        size = work.plan.schema.size
        for position in reversed(range(len(levels))):
            level = levels[position]
            nobody = [(shard.index, sparse_arrays(ProtectedCounts.nobody())) for shard in work.shards(level)]
            room = start | f"room for {level}" >> beam.Create(nobody).with_output_types(Keyed)
            counts = (
                (counts, room)
                | f"gather {level}" >> beam.Flatten()
                | f"add up {level}" >> beam.CombinePerKey(AddUp(ProtectedCounts, size))
            )
            written.append(counts | f"write {level}" >> beam.ParDo(WriteDraws(work, level)).with_output_types(str))
            if position:
                carry = CarryUp(ProtectedCounts, work, level, levels[position - 1])
                counts = counts | f"carry {level} up" >> beam.ParDo(carry).with_output_types(Keyed)
        return written | beam.Flatten()


class Congenial(Drawing):
    """True histograms and public facts to conforming draws of every level, in doubles on windows of this reach."""

    def __init__(self, work: WorkerContext, histograms: Path, facts: Path, key: Path, reach: float) -> None:
        super().__init__(work, histograms, facts, key)
        self.reach = reach

    def expand(self, start: beam.pvalue.PBegin) -> beam.PCollection[str]:
        """Build the steps: messages up, draws down, one join per level each."""
        work, levels, truth = self.work, self.work.plan.levels, self.truth(start)
        below: dict[str, beam.PCollection[Keyed]] = {}
        for above, level in reversed(list(pairwise(levels))):
            joined = {"family": truth[level]} | ({"below": below[level]} if level in below else {})
            below[above] = (
                joined
                | f"join {level} with its children" >> Join()
                | f"send up to {above}" >> beam.ParDo(SendUp(work, level, self.reach)).with_output_types(Keyed)
            )
        parents = start | "above the top" >> beam.Create([(0, Arrays({}))]).with_output_types(Keyed)
        for level in levels:
            joined = {"parent": parents, "family": truth[level]} | ({"below": below[level]} if level in below else {})
            drawn = (
                joined
                | f"join {level} with its parents" >> Join()
                | f"draw {level}" >> beam.ParDo(DrawFamily(work, level, self.reach, self.key)).with_output_types(Keyed)
            )
            if level != levels[-1]:
                parents = drawn | f"send {level} down" >> beam.ParDo(SendDown(level)).with_output_types(Keyed)
        return self.written(start, drawn)


class ReadTruth(beam.DoFn):
    """Read a shard's true counts and public limits, and split them by family."""

    def __init__(self, work: WorkerContext, histograms: Path, facts: Path) -> None:
        self.work, self.histograms, self.facts = work, histograms, facts

    @timed(lambda self, element: f"read {element.level}")
    def process(self, shard: Shard) -> Iterator[Keyed]:
        """Yield the parent's position, the children's true counts, and their limits."""
        counts = read_histogram(shard, self.histograms)
        path = shard.path(self.facts)
        limits = limits_of(read_facts(self.work.plan, path), slice(None)) if path.exists() else ()
        offsets = families(self.work.spine, shard.level)
        first, last = np.searchsorted(offsets, [shard.start, shard.stop])
        cuts = np.searchsorted(counts.unit, offsets[first : last + 1])
        for at, parent in enumerate(range(int(first), int(last))):
            mine = slice(cuts[at], cuts[at + 1])
            here = slice(int(offsets[parent]) - shard.start, int(offsets[parent + 1]) - shard.start)
            found = sparse_arrays(counts.rows(mine))
            yield parent, found.with_arrays(limit_arrays(limits, here))


def laid_out(
    layers: tuple[Layer, ...], counts: TrueCounts, first: int, children: int, limits: Arrays
) -> tuple[tuple[NDArray[np.int64], ...], tuple[Box, ...]]:
    """The true counts of each layer, children x answers, and the limits on them; ``first`` numbers the first child."""
    truth, boxes = [], []
    for layer in layers:
        dense = np.zeros((children, layer.query.size), dtype=np.int64)
        np.add.at(dense, (counts.unit - first, layer.query.group_of(counts.cell)), counts.count)
        truth.append(dense)
        lower, upper = f">= {layer.query.name}", f"<= {layer.query.name}"
        box = Box.open(dense.shape)
        if lower in limits:
            box = Box(np.asarray(limits[lower], np.int64), np.asarray(limits[upper], np.int64))
        boxes.append(box)
    return tuple(truth), tuple(boxes)


def limit_arrays(limits: tuple[Limits, ...], here: slice) -> Arrays:
    """Public limits of some geounits as named arrays."""
    named = {f">= {limit.query.name}": limit.lower[here] for limit in limits}
    return Arrays(named | {f"<= {limit.query.name}": limit.upper[here] for limit in limits})


class OfFamily(beam.DoFn):
    """A step on joined elements: it builds the family that :mod:`das.congenial.family` works on.

    What it works out is kept for a run that continues: in the confidential folder, because messages are of true counts.
    """

    kept: KeptElements | None

    def __init__(self, work: WorkerContext, level: str, reach: float) -> None:
        self.work, self.level, self.reach = work, level, reach

    def setup(self) -> None:
        """Build the tree of counts once per worker."""
        self.layers: TreeOfCounts = tree_of(self.work.plan)
        name = f"{type(self).__name__}-{self.level}-{self.reach}"
        self.kept = None if self.work.kept is None else KeptElements(self.work.kept / name)

    def finish_bundle(self) -> None:
        """Write what is kept of this bundle."""
        if self.kept is not None:
            with reporting_errors(self.work.partial):
                self.kept.write()

    def family(self, parent: int, joined: dict[str, Iterable[Arrays]]) -> Family:
        """Lay the true counts of a family out by layer."""
        spine = self.work.spine
        offsets = families(spine, self.level)
        first, stop = int(offsets[parent]), int(offsets[parent + 1])
        (found,) = joined["family"]
        layers = self.layers[self.level]
        truth, boxes = laid_out(layers, sparse_counts(TrueCounts, found), first, stop - first, found)
        depth = spine.levels.index(self.level)
        return Family(
            layers=layers,
            geocodes=tuple(spine.geocodes(self.level)[first:stop].tolist()),
            parent="" if depth == 0 else str(spine.geocodes(spine.levels[depth - 1])[parent]),
            truth=truth,
            boxes=boxes,
            reach=self.reach,
            splits=self.layers.splits(spine),
        )

    def below(self, joined: dict[str, Iterable[Arrays]]) -> list[Arrays] | None:
        """What the children were sent, in their order; None for leaves."""
        if self.level == self.work.plan.levels[-1]:
            return None
        return sorted(joined["below"], key=lambda sent: int(sent["child"][0]))

    def sent_up(self, parent: int, arrays: Arrays) -> Keyed:
        """Key what a family sends up by the family in which its parent is a child."""
        spine = self.work.spine
        above = spine.levels[spine.levels.index(self.level) - 1]
        return max(0, int(spine.parent(above)[parent])), arrays.with_array("child", np.array([parent]))

    def drawn(self, parent: int, counts: NDArray[np.int64]) -> Keyed:
        """Return the children's draws as an element: the sparse counts of their finest layer."""
        child, answer = np.nonzero(counts)
        first = int(families(self.work.spine, self.level)[parent])
        children = np.arange(first, first + len(counts), dtype=np.int64)
        named = {"unit": child + first, "answer": answer, "count": counts[child, answer], "children": children}
        return parent, Arrays(named)


class SendUp(OfFamily):
    """Sum a family's messages and send them to the family in which its parent is a child."""

    @timed(lambda self, element: f"send up from {self.level}")
    @keeping
    def process(self, element: Joined) -> Iterator[Keyed]:
        """Yield the grandparent's position and the parent's messages."""
        parent, joined = element
        spine = self.work.spine
        above = spine.levels[spine.levels.index(self.level) - 1]
        with reporting_errors(self.work.partial), asking_for_wider():
            family = self.family(parent, joined)
            sent = family.send_up(family.forward_pass(_messages(self.below(joined))), self.layers[above][-1])
        yield self.sent_up(parent, message_arrays(sent))


class DrawFamily(OfFamily):
    """Split the parent's draw among the children, and each child's among its finer answers."""

    streams: Streams

    def __init__(self, work: WorkerContext, level: str, reach: float, key: Path) -> None:
        super().__init__(work, level, reach)
        self.key = key

    def setup(self) -> None:
        """Read the key; nothing that outlives this step may hold it."""
        super().setup()
        with reporting_errors(self.work.partial):
            self.streams = read_key(self.key).streams(self.work.plan.digest.encode())

    def teardown(self) -> None:
        """Overwrite what was derived from the key."""
        self.streams.wipe()

    @timed(lambda self, element: f"draw {self.level}")
    @keeping
    def process(self, element: Joined) -> Iterator[Keyed]:
        """Yield the parent's position and the children's draws in their finest layer."""
        parent, joined = element
        (above,) = joined["parent"]
        with reporting_errors(self.work.partial):
            family = self.family(parent, joined)
            with asking_for_wider():  # whether the roots hold is decided before anything is drawn
                weighed = family.forward_pass(_messages(self.below(joined)))
                coarsest = None if "answer" in above else family.draw_roots(weighed, self.streams)
            if coarsest is None:
                coarsest = family.draw(weighed, counts_above(family, above), self.streams)
            drawn = family.refine(weighed, coarsest, self.streams)
        count(f"families drawn, {self.level}")
        yield self.drawn(parent, drawn)


def counts_above(family: Family, above: Arrays) -> NDArray[np.int64]:
    """Return the parent's draw, one count for each answer of the children's coarsest layer."""
    drawn = np.zeros(family.layers[0].query.size, dtype=np.int64)
    drawn[np.asarray(above["answer"])] = above["count"]
    return drawn


@contextmanager
def asking_for_wider() -> Iterator[None]:
    """Ask the driver for wider windows, without naming a place: which family asked depends on confidential counts."""
    try:
        yield
    except WindowTooSmall:
        raise WindowsTooNarrow(Problem("strategy", "the sampler's windows are too narrow for its proof")) from None


class SendDown(beam.DoFn):
    """Send each child its own draw: it is the parent of the next family."""

    def __init__(self, level: str) -> None:
        self.level = level

    @timed(lambda self, element: f"send down {self.level}")
    def process(self, element: Keyed) -> Iterator[Keyed]:
        """Yield each child's position and its sparse draw."""
        arrays = element[1]
        children = np.asarray(arrays["children"], dtype=np.int64)
        cuts = np.searchsorted(np.asarray(arrays["unit"]), np.append(children, children[-1] + 1))
        for at, child in enumerate(children.tolist()):
            mine = slice(cuts[at], cuts[at + 1])
            yield child, Arrays({"answer": arrays["answer"][mine], "count": arrays["count"][mine]})


def cells_of_answers(tree: TreeOfCounts) -> NDArray[np.int64]:
    """The cell of each answer of the leaves' finest query: a draw knows every cell."""
    finest = tree[tree.levels[-1]][-1].query
    out = np.zeros(finest.size, dtype=np.int64)
    possible = np.flatnonzero(finest.schema.possible)
    out[finest.index[possible]] = possible
    return out


class ToCells(beam.DoFn):
    """Find the cells of the leaves' draws, and key them by the shard that they are written to."""

    def __init__(self, work: WorkerContext) -> None:
        self.work = work

    def setup(self) -> None:
        """Find the cell of each answer of the finest query once per worker."""
        self.cell_of = cells_of_answers(tree_of(self.work.plan))

    @timed(lambda self, element: "name cells")
    def process(self, element: Keyed) -> Iterator[Keyed]:
        """Yield the shard's number and the family's counts."""
        arrays = element[1]
        starts = [shard.start for shard in self.work.shards(self.work.plan.levels[-1])]
        first = int(np.asarray(arrays["children"])[0])
        counts = ProtectedCounts(
            np.asarray(arrays["unit"], dtype=np.int64),
            self.cell_of[np.asarray(arrays["answer"])],
            np.asarray(arrays["count"], dtype=np.int64),
        )
        yield int(np.searchsorted(starts, first, side="right")) - 1, sparse_arrays(counts)


class WriteDraws(beam.DoFn):
    """Write a shard's drawn counts, and state the noise that was conditioned."""

    def __init__(self, work: WorkerContext, level: str) -> None:
        self.work, self.level = work, level

    @timed(lambda self, element: f"write {self.level}")
    def process(self, element: Keyed) -> Iterator[str]:
        """Yield the file's name."""
        index, arrays = element
        plan, shard, counts = (
            self.work.plan,
            self.work.shards(self.level)[index],
            sparse_counts(ProtectedCounts, arrays),
        )
        geocodes = self.work.spine.geocodes(self.level)[shard.start : shard.stop]
        local = counts.within(shard.start, shard.stop)
        path = shard.path(self.work.partial)
        with reporting_errors(self.work.partial):
            path.parent.mkdir(parents=True, exist_ok=True)
            table = with_noise_stated(table_of_counts(plan.schema, geocodes, local), plan.at(self.level))
            write_atomically(path, parquet_bytes(table))
        yield path.name


def message_arrays(sent: SentMessages) -> Arrays:
    """A geounit's messages as an element."""
    named = {field.name: getattr(sent.messages, field.name) for field in fields(Messages)}
    return Arrays({"ids": sent.ids, **named})


def _messages(below: list[Arrays] | None) -> list[SentMessages] | None:
    return None if below is None else [messages_of(sent) for sent in below]


def messages_of(arrays: Arrays) -> SentMessages:
    """A geounit's messages from an element."""
    named: dict[str, Any] = {field.name: arrays[field.name] for field in fields(Messages)}
    messages = Messages(**named)
    return SentMessages(np.asarray(arrays["ids"], dtype=np.int64), messages)
