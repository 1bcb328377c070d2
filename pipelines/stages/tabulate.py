"""Records to true counts of every level: encode, add up, sum along the spine. All of it is confidential."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Generic

import apache_beam as beam
import numpy as np
import pyarrow as pa

from das.errors import InputError, Problem
from das.records.encode import encode
from das.records.read import Chunk, read
from das.schema.counts import ProtectedCounts, TrueCounts
from das.storage.files import write_atomically
from das.storage.handles import read_within
from das.storage.shards import Shard, parquet_bytes, read_parquet
from pipelines.elements.arrays import Arrays, ArraysCoder, Counts, sparse_arrays, sparse_counts
from pipelines.elements.context import WorkerContext
from pipelines.elements.kept import recall, remember
from pipelines.workers.errors import report_error, reporting_errors
from pipelines.workers.step_timer import timed

__all__ = ["AddUp", "CarryUp", "Tabulate", "read_histogram"]

Keyed = tuple[int, Arrays]


class Tabulate(beam.PTransform):
    """Chunks of input files to one file of true counts per shard of each level."""

    def __init__(self, work: WorkerContext) -> None:
        super().__init__()
        self.work = work

    def expand(self, chunks: beam.PCollection[Chunk]) -> beam.PCollection[str]:
        """Build the steps, from the leaves to the top."""
        levels = self.work.plan.levels
        counts = chunks | "place records" >> beam.ParDo(PlaceRecords(self.work)).with_output_types(Keyed)
        written = []
        for position in reversed(range(len(levels))):
            level = levels[position]
            if position == len(levels) - 1:  # what was placed lies in files, and is read by whoever adds it up
                together = counts | "collect what was placed" >> beam.GroupByKey()
                counts = together | f"add up {level}" >> beam.ParDo(SumPlaced(self.work)).with_output_types(Keyed)
            else:
                adding = AddUp(TrueCounts, self.work.plan.schema.size)
                counts = counts | f"add up {level}" >> beam.CombinePerKey(adding)
            written.append(
                counts | f"write {level}" >> beam.ParDo(WriteHistogram(self.work, level)).with_output_types(str)
            )
            if position:
                counts = counts | f"carry {level} up" >> beam.ParDo(
                    CarryUp(TrueCounts, self.work, level, levels[position - 1])
                ).with_output_types(Keyed)
        return written | beam.Flatten()


class PlaceRecords(beam.DoFn):
    """Read a chunk and split its counts by the shard of the leaf level that they belong to."""

    def __init__(self, work: WorkerContext) -> None:
        self.work = work

    @timed(lambda self, element: "place records")
    def process(self, chunk: Chunk) -> Iterator[Keyed]:
        """Yield a shard's number and the chunk's counts in it."""
        if chunk.part is None:  # of any length
            yield from self.placed(chunk, [])
            return
        kept = recall(self.work.partial, chunk.part)
        if kept is None:
            problems: list[Problem] = []
            kept = list(self.placed(chunk, problems))
            if not problems:  # a run that continues has to name them again
                with reporting_errors(self.work.partial):
                    kept = remember(self.work.partial, chunk.part, kept)
        yield from kept

    def placed(self, chunk: Chunk, problems: list[Problem]) -> Iterator[Keyed]:
        """Read the chunk; report rows that do not fit, and add them to the problems."""
        plan, spine = self.work.plan, self.work.spine
        with reporting_errors(self.work.partial):
            for batch in read(chunk, plan):
                counts, found = encode(batch, plan, spine, chunk.name)
                if found:
                    report_error(self.work.partial, InputError(found))
                    problems += found
                yield from _by_shard(counts, self.work.shards(plan.levels[-1]))


class SumPlaced(beam.DoFn):
    """Add up what the chunks hold for one shard of the leaves."""

    def __init__(self, work: WorkerContext) -> None:
        self.work = work

    @timed(lambda self, element: "add up placed records")
    def process(self, element: tuple[int, Iterable[Arrays]]) -> Iterator[Keyed]:
        """Yield the shard's number and its counts."""
        index, placed = element
        found = [sparse_counts(TrueCounts, arrays) for arrays in placed]
        yield index, sparse_arrays(TrueCounts.sum_of(found, self.work.plan.schema.size))


@beam.typehints.with_input_types(Arrays)
@beam.typehints.with_output_types(Arrays)
class AddUp(beam.CombineFn, Generic[Counts]):
    """Sum of sparse counts; partial sums travel as raw bytes too, where Beam would pickle what it has no type for."""

    kind: type[Counts]

    def __init__(self, kind: type[Counts], cells: int) -> None:
        self.kind, self.cells = kind, cells

    def get_accumulator_coder(self) -> ArraysCoder:
        """Raw bytes."""
        return ArraysCoder()

    def create_accumulator(self) -> Arrays:
        """Nothing counted yet."""
        return sparse_arrays(self.kind.nobody())

    def add_input(self, accumulator: Arrays, element: Arrays) -> Arrays:
        """Add one contribution."""
        return self.merge_accumulators([accumulator, element])

    def merge_accumulators(self, accumulators: Iterable[Arrays]) -> Arrays:
        """Add several contributions."""
        counts = [sparse_counts(self.kind, accumulator) for accumulator in accumulators]
        return sparse_arrays(self.kind.sum_of(counts, self.cells))

    def extract_output(self, accumulator: Arrays) -> Arrays:
        """The sum."""
        return accumulator


class CarryUp(beam.DoFn, Generic[Counts]):
    """Replace each geounit by its parent, and split by the shards of the level above."""

    kind: type[Counts]

    def __init__(self, kind: type[Counts], work: WorkerContext, level: str, above: str) -> None:
        self.kind, self.work, self.level, self.above = kind, work, level, above

    @timed(lambda self, element: f"carry up {self.level}")
    def process(self, element: Keyed) -> Iterator[Keyed]:
        """Yield the number of a shard above and what this shard adds to it."""
        counts = sparse_counts(self.kind, element[1])
        raised = replace(counts, unit=self.work.spine.parent(self.level)[counts.unit])
        yield from _by_shard(self.kind.sum_of([raised], self.work.plan.schema.size), self.work.shards(self.above))


class WriteHistogram(beam.DoFn):
    """Write one shard's true counts into the confidential folder."""

    def __init__(self, work: WorkerContext, level: str) -> None:
        self.work, self.level = work, level

    @timed(lambda self, element: f"write {self.level}")
    def process(self, element: Keyed) -> Iterator[str]:
        """Yield the file's name."""
        index, arrays = element
        counts = sparse_counts(TrueCounts, arrays)
        path = self.work.shards(self.level)[index].path(self.work.partial)
        path.parent.mkdir(parents=True, exist_ok=True)
        table = pa.table({"unit": counts.unit, "cell": counts.cell, "count": counts.count})
        with reporting_errors(self.work.partial):
            write_atomically(path, parquet_bytes(table))
        yield path.name


def read_histogram(shard: Shard, folder: Path) -> TrueCounts:
    """Read a shard's true counts; a shard without a file has nobody in it."""
    try:
        content = read_within(folder.parent, shard.path(Path(folder.name)))
    except FileNotFoundError:
        return TrueCounts.nobody()
    table = read_parquet(pa.BufferReader(content))
    return TrueCounts(*(np.asarray(table[name]) for name in ("unit", "cell", "count")))


def _by_shard(counts: TrueCounts | ProtectedCounts, shards: tuple[Shard, ...]) -> Iterator[Keyed]:
    starts = np.array([shard.start for shard in shards] + [shards[-1].stop], dtype=np.int64)
    cuts = np.searchsorted(counts.unit, starts)
    for index in range(len(shards)):
        here = slice(cuts[index], cuts[index + 1])
        if cuts[index + 1] > cuts[index]:
            yield index, sparse_arrays(counts.rows(here))
