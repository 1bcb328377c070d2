"""What the parts of neighbouring levels tell each other, addressed to the part that needs it.

Up the spine travels what a family knows of its parent; down the spine a geounit's counts and its best estimate. A
message speaks of some geounits of one part, so that there are few messages and none is large.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from das.estimation.linear.blue import Knowledge
from das.schema.counts import Encoded
from das.storage.shards import families
from pipelines.elements.arrays import Arrays
from pipelines.elements.context import Work
from pipelines.elements.knowledge import knowledge_arrays, knowledge_of

__all__ = ["Keyed", "handed_down", "handed_to", "told_by", "told_up"]

Keyed = tuple[int, Arrays]
"""A part's number in its level, and something for it."""


def told_up(work: Work, level: str, unit: NDArray[np.int64], known: Knowledge) -> Iterator[Keyed]:
    """Address what is known of some geounits of a level to the parts that these lie in."""
    for index, here in _runs(np.searchsorted(_starts(work, level), unit, side="right") - 1):
        yield index, knowledge_arrays(known.units(here)).with_array("unit", unit[here])


def told_by(messages: Iterable[Arrays]) -> dict[int, Knowledge]:
    """Take such messages apart: what is known of each geounit."""
    found = {}
    for message in messages:
        if "unit" in message:
            known = knowledge_of(message)
            found |= {unit: known.unit(at) for at, unit in enumerate(message["unit"].tolist())}
    return found


def handed_down(
    work: Work, level: str, unit: NDArray[np.int64], counts: Encoded, best: Knowledge | None
) -> Iterator[Keyed]:
    """Address the counts and best estimates of consecutive geounits to the parts of ``level`` with their children."""
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
        yield index, message if best is None else message.with_arrays(knowledge_arrays(best.units(here)))


def handed_to(messages: Iterable[Arrays]) -> dict[int, tuple[Arrays, Knowledge | None]]:
    """Take such messages apart: each parent's counts, and its best estimate if there is one.

    Above the top there is nobody: its only message is empty.
    """
    found: dict[int, tuple[Arrays, Knowledge | None]] = {}
    for message in messages:
        if "unit" not in message:
            found[0] = (message, None)
            continue
        best = knowledge_of(message) if "mean" in message else None
        cuts = message["cuts"].tolist()
        for at, unit in enumerate(message["unit"].tolist()):
            mine = slice(cuts[at], cuts[at + 1])
            counts = Arrays({"cell": message["cell"][mine], "count": message["count"][mine]})
            found[unit] = (counts, None if best is None else best.unit(at))
    return found


def _starts(work: Work, level: str) -> NDArray[np.int64]:
    return np.array([part.start for part in work.parts(level)], dtype=np.int64)


def _runs(index: NDArray[np.int64]) -> Iterator[tuple[int, slice]]:
    """Runs of equal numbers, and where they are."""
    cuts = [0, *(np.flatnonzero(np.diff(index)) + 1).tolist(), len(index)]
    for start, stop in pairwise(cuts):
        yield int(index[start]), slice(start, stop)
