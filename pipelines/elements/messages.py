"""Messages between the shards of neighbouring levels, addressed to the shard that needs them.

Linear estimates of parents go up the spine; a geounit's counts and its linear estimate go down. A message holds several
geounits of one shard, so that there are few messages and none is large.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from das.estimation.linear.blue import LinearEstimate
from das.schema.counts import ProtectedCounts
from das.storage.shards import families
from pipelines.elements.arrays import Arrays
from pipelines.elements.context import WorkerContext
from pipelines.elements.kept import remember
from pipelines.elements.linear_estimates import estimate_arrays, estimate_of

__all__ = ["Keyed", "received_from_above", "received_from_below", "send_down", "send_up"]

Keyed = tuple[int, Arrays]
"""A shard's number in its level, and an element for it."""


def send_up(work: WorkerContext, level: str, unit: NDArray[np.int64], known: LinearEstimate) -> Iterator[Keyed]:
    """Address linear estimates of geounits of a level to the shards that these lie in."""
    for index, here in _runs(np.searchsorted(_starts(work, level), unit, side="right") - 1):
        yield index, estimate_arrays(known.units(here)).with_array("unit", unit[here])


def received_from_below(messages: Iterable[Arrays]) -> dict[int, LinearEstimate]:
    """Take messages from below apart: the linear estimate of each geounit."""
    found: dict[int, LinearEstimate] = {}
    for message in messages:
        if "unit" in message:
            known = estimate_of(message)
            found |= {unit: known.unit(at) for at, unit in enumerate(message["unit"].tolist())}
    return found


def send_down(
    work: WorkerContext, level: str, unit: NDArray[np.int64], counts: ProtectedCounts, best: LinearEstimate | None
) -> Iterator[Keyed]:
    """Address counts and linear estimates of consecutive geounits to the shards of ``level`` with their children."""
    yield from remember(work.partial, f"down-{level}-{unit[0]}", list(_down(work, level, unit, counts, best)))


def _down(
    work: WorkerContext, level: str, unit: NDArray[np.int64], counts: ProtectedCounts, best: LinearEstimate | None
) -> Iterator[Keyed]:
    part_of_child = np.searchsorted(_starts(work, level), families(work.spine, level)[unit], side="right") - 1
    cuts = np.searchsorted(counts.unit, np.append(unit, unit[-1] + 1))
    for index, here in _runs(part_of_child):
        mine = slice(cuts[here.start], cuts[here.stop])
        message = Arrays(
            {
                "unit": unit[here],
                "cuts": cuts[here.start : here.stop + 1] - cuts[here.start],
                "cell": counts.cell[mine],
                "count": counts.count[mine],
            }
        )
        yield index, message if best is None else message.with_arrays(estimate_arrays(best.units(here)))


ParentCounts = tuple[NDArray[np.int64], NDArray[np.int64]] | None
"""Cells of a parent in which somebody is counted, and the counts; none above the top."""


def received_from_above(messages: Iterable[Arrays]) -> dict[int, tuple[ParentCounts, LinearEstimate | None]]:
    """Take messages from above apart: each parent's counts, and its linear estimate if there is one.

    Above the top there is nobody: its only message is empty.
    """
    found: dict[int, tuple[ParentCounts, LinearEstimate | None]] = {}
    for message in messages:
        if "unit" not in message:
            found[0] = (None, None)
            continue
        best = estimate_of(message) if "mean" in message else None
        cuts = message["cuts"].tolist()
        for at, unit in enumerate(message["unit"].tolist()):
            mine = slice(cuts[at], cuts[at + 1])
            counts = np.asarray(message["cell"][mine], np.int64), np.asarray(message["count"][mine], np.int64)
            found[unit] = (counts, None if best is None else best.unit(at))
    return found


def _starts(work: WorkerContext, level: str) -> NDArray[np.int64]:
    return np.array([shard.start for shard in work.shards(level)], dtype=np.int64)


def _runs(index: NDArray[np.int64]) -> Iterator[tuple[int, slice]]:
    """Runs of equal numbers, and where they are."""
    cuts = [0, *(np.flatnonzero(np.diff(index)) + 1).tolist(), len(index)]
    for start, stop in pairwise(cuts):
        yield int(index[start]), slice(start, stop)
