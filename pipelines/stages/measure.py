"""Measure as a Beam step: read true counts, add noise, write measurements and public facts. This is the wall."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from das.facts.collect import TrueAnswers
from das.facts.fact import Facts
from das.facts.file import table_of_facts
from das.noise.measure import noisy_answers
from das.noise.stream import Streams
from das.plan.plan import numbers_per_unit
from das.release.measurements import table_of_measurements
from das.schema.query import Query
from das.storage.files import write_atomically
from das.storage.key_file import read_key
from das.storage.shards import Shard, parquet_bytes, parquet_of_row_groups
from pipelines.elements.context import WorkerContext
from pipelines.stages.tabulate import read_histogram
from pipelines.workers.errors import reporting_errors
from pipelines.workers.step_timer import count, timed

__all__ = ["MeasureShard", "true_answers_of", "write_facts"]


class MeasureShard(beam.DoFn):
    """Measure every geounit of a shard, the empty ones too.

    Noise is a function of (run key, plan, level, geocode, query), so a bundle that runs twice writes the same bytes.
    The key is read from the confidential folder by each worker, for this run, and never travels with the pipeline.
    """

    streams: Streams

    def __init__(self, work: WorkerContext, histograms: Path, key: Path) -> None:
        self.work, self.histograms, self.key = work, histograms, key

    def setup(self) -> None:
        """Read the key; nothing that outlives this step may hold it, or a second run would draw the same noise."""
        with reporting_errors(self.work.partial):
            self.streams = read_key(self.key).streams(self.work.plan.digest.encode())

    def teardown(self) -> None:
        """Overwrite what was derived from the key."""
        self.streams.wipe()

    @timed(lambda self, element: f"measure {element.level}")
    def process(self, shard: Shard) -> Iterator[str]:
        """Yield the file's name."""
        plan = self.work.plan
        path = shard.path(self.work.partial)
        if path.exists():  # of a run that was interrupted: a second draw would be the same
            yield path.name
            return
        geocodes = self.work.spine.geocodes(shard.level)[shard.start : shard.stop]
        with reporting_errors(self.work.partial):
            truth = read_histogram(shard, self.histograms)

            def measured(start: int, stop: int) -> pa.Table:
                here = geocodes[start - shard.start : stop - shard.start]
                values = noisy_answers(plan.at(shard.level), here, truth.within(start, stop), self.streams)
                return table_of_measurements(plan, shard.level, here, values)

            path.parent.mkdir(parents=True, exist_ok=True)
            pieces = shard.pieces(numbers_per_unit(plan.at(shard.level)))
            content = parquet_of_row_groups(measured(start, stop) for start, stop in pieces)
            write_atomically(path, content)
        count(f"shards measured, {shard.level}")
        yield path.name


def true_answers_of(work: WorkerContext, histograms: Path) -> TrueAnswers:
    """Exact answers for invariants, and for checking that the data obey the declared bounds."""

    def answers(level: str, query: Query) -> NDArray[np.int64]:
        out = np.zeros((work.spine.size(level), query.size), dtype=np.int64)
        for shard in work.shards(level):
            counts = read_histogram(shard, histograms)
            out[shard.start : shard.stop] += counts.within(shard.start, shard.stop).answers(
                query, shard.stop - shard.start
            )
        return out

    return answers


def write_facts(work: WorkerContext, facts: Facts) -> None:
    """Write the public facts: the spine, and for each level a file cut like its measurements."""
    spine = work.spine
    write_atomically(work.partial / "spine.parquet", parquet_bytes(spine.to_table()))
    for level, at_level in facts.items():
        for shard in work.shards(level) if at_level else ():
            units = slice(shard.start, shard.stop)
            here = tuple(type(fact)(fact.query, fact.sign, fact.values[units]) for fact in at_level)
            path = shard.path(work.partial)
            path.parent.mkdir(parents=True, exist_ok=True)
            table = table_of_facts(work.plan, spine.geocodes(level)[units], here)
            write_atomically(path, parquet_bytes(table))
