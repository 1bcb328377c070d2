"""Counts of leaves to counts of every geounit, and true counts to noisy answers."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Generic

import apache_beam as beam
import numpy as np

from das.noise.measure import noisy_answers
from das.noise.stream import Streams
from das.plan.plan import Plan
from das.schema.counts import TrueCounts
from das.storage.key_file import read_key
from pipelines.elements.arrays import Arrays, Counts, sparse_arrays, sparse_counts
from pipelines.stages.tabulate import AddUp
from pipelines.transforms.elements import Answers, Geounit, level_of

__all__ = ["CountGeounits", "MeasureGeounits"]

BATCH = 512
"""The most geounits that are measured in one call; how they are cut changes no number."""


class CountGeounits(beam.PTransform, Generic[Counts]):
    """Add the counts of leaves up the spine: ``(Geounit, TrueCounts)`` of leaves to the same of every level.

    ``kind`` is the type of the counts, ``TrueCounts`` or ``ProtectedCounts``.

    Every leaf must have an element, an empty one too (``true_counts([], [])``): a geounit without an element is not
    measured, and who is missing then tells where nobody lives. Several elements of one leaf are added up.
    """

    kind: type[Counts]

    def __init__(self, plan: Plan, kind: type[Counts]) -> None:
        super().__init__()
        self.plan, self.kind = plan, kind

    def expand(self, leaves: beam.PCollection) -> beam.PCollection:
        """Address each leaf's counts to its ancestors, and add them up."""
        kind, levels = self.kind, self.plan.levels

        def addressed(element: tuple[Geounit, Counts]) -> Iterator[tuple[Geounit, Arrays]]:
            geounit, counts = element
            level_of(levels, geounit)
            arrays = sparse_arrays(counts)
            yield from ((holder, arrays) for holder in geounit.with_ancestors())

        return (
            leaves
            | "to ancestors" >> beam.FlatMap(addressed).with_output_types(tuple[Geounit, Arrays])
            | "add up" >> beam.CombinePerKey(AddUp(kind, self.plan.schema.size))
            | "as counts"
            >> beam.MapTuple(lambda geounit, arrays: (geounit, sparse_counts(kind, arrays))).with_output_types(
                tuple[Geounit, kind]  # type: ignore[valid-type]
            )
        )


class MeasureGeounits(beam.PTransform):
    """Add a plan's noise: ``(Geounit, TrueCounts)`` to ``(Geounit, Answers)``, of any levels.

    The noise of a number is a function of key, plan, level, geocode and query: a bundle that runs twice gives the same
    numbers, and so does ``das run`` with the same key and plan.

    **Who accounts.** The caller. Running this once on one data set spends :attr:`cost`; nothing is charged to a
    ledger. The same key with other data, or another plan of the same digest, gives the same noise twice, and the
    difference of the two outputs is exact: make a key for each data set (``RunKey.generate``), and destroy it
    (``destroy_key``) when the answers are durable. What the other pipeline logs, spills and caches before this step is
    as confidential as the counts.

    Parameters
    ----------
    plan : Plan
        What :func:`das.load` gives; its measurements, levels and digest are used.
    key : Path
        A key file of this user alone (``das.storage.key_file.write_key``), which every worker can read; the key itself
        never travels with the pipeline.
    """

    def __init__(self, plan: Plan, key: Path) -> None:
        super().__init__()
        self.plan, self.key = plan, key

    @property
    def cost(self) -> Fraction:
        """What one run spends, in the currency of the plan: rho or epsilon."""
        return sum((measured.cost for measured in self.plan.measurements), Fraction(0))

    def expand(self, counts: beam.PCollection) -> beam.PCollection:
        """Measure batches of geounits."""
        return (
            counts
            | "batch" >> beam.BatchElements(min_batch_size=1, max_batch_size=BATCH)
            | "measure" >> beam.ParDo(_Measure(self.plan, self.key)).with_output_types(tuple[Geounit, Answers])
        )


class _Measure(beam.DoFn):
    """Measure a batch of geounits, level by level."""

    streams: Streams

    def __init__(self, plan: Plan, key: Path) -> None:
        self.plan, self.key = plan, key

    def setup(self) -> None:
        """Read the key."""
        self.streams = read_key(self.key).streams(self.plan.digest.encode())

    def teardown(self) -> None:
        """Overwrite what was derived from it."""
        self.streams.wipe()

    def process(self, batch: list[tuple[Geounit, TrueCounts]]) -> Iterator[tuple[Geounit, Answers]]:
        """Yield the answers of each geounit."""
        by_level: dict[str, list[tuple[Geounit, TrueCounts]]] = {}
        for element in batch:
            by_level.setdefault(level_of(self.plan.levels, element[0]), []).append(element)
        for level, found in by_level.items():
            geocodes = np.array([geounit.geocode for geounit, _ in found])
            truth = TrueCounts(
                np.repeat(np.arange(len(found)), [len(counts.cell) for _, counts in found]),
                np.concatenate([counts.cell for _, counts in found]),
                np.concatenate([counts.count for _, counts in found]),
            )
            values = noisy_answers(self.plan.at(level), geocodes, truth, self.streams)
            for (geounit, _), row in zip(found, values, strict=True):
                yield geounit, Answers(row)
