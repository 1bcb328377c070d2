"""The congenial mechanism in extended-range arithmetic as Beam steps, for data that doubles do not hold.

Four passes over the spine in place of two: up and down to place the windows, then messages up and draws down. Every
element but the draws is confidential.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np

from das.congenial.extended_family import ExtendedFamily, FromAbove, Placed, SentFunctions
from das.congenial.extended_range import ExtendedFunctions
from das.congenial.placement import Windows
from das.storage.shards import families
from pipelines.elements.arrays import Arrays, Join, Joined
from pipelines.elements.context import WorkerContext
from pipelines.elements.kept import keeping
from pipelines.stages.congenial import (
    DrawFamily,
    Drawing,
    Keyed,
    OfFamily,
    SendDown,
    asking_for_wider,
    counts_above,
)
from pipelines.workers.errors import reporting_errors
from pipelines.workers.step_timer import timed

__all__ = ["CongenialExtended"]


class CongenialExtended(Drawing):
    """True histograms and public facts to conforming draws of every level, whatever the counts are.

    ``factor`` widens all windows; some factor is enough for every data set (``das/congenial/tree.md``).
    """

    def __init__(self, work: WorkerContext, histograms: Path, facts: Path, key: Path, factor: float) -> None:
        super().__init__(work, histograms, facts, key)
        self.factor = factor

    def expand(self, start: beam.pvalue.PBegin) -> beam.PCollection[str]:
        """Build the steps: cumulants up, windows down, messages up, draws down."""
        work, levels, truth = self.work, self.work.plan.levels, self.truth(start)
        top = start | "above the top" >> beam.Create([(0, Arrays({}))]).with_output_types(Keyed)
        cumulants: dict[str, beam.PCollection[Keyed]] = {}
        for above, level in reversed(list(pairwise(levels))):
            step = SendCumulants(work, level, self.factor)
            cumulants[above] = (
                _with(truth[level], cumulants.get(level), {})
                | f"join {level} with the cumulants below" >> Join()
                | f"send cumulants up to {above}" >> beam.ParDo(step).with_output_types(Keyed)
            )
        placed: dict[str, beam.PCollection[Keyed]] = {}
        passed = top
        for level in levels:
            step = Place(work, level, self.factor)
            both = (
                _with(truth[level], cumulants.get(level), {"above": passed})
                | f"join {level} with what is passed down" >> Join()
                | f"place windows of {level}" >> beam.ParDo(step).with_outputs("down", main="placed")
            )
            placed[level] = both.placed | f"windows of {level}" >> beam.Map(_same).with_output_types(Keyed)
            passed = both.down | f"passed down from {level}" >> beam.Map(_same).with_output_types(Keyed)
        below: dict[str, beam.PCollection[Keyed]] = {}
        for above, level in reversed(list(pairwise(levels))):
            step = SendFunctions(work, level, self.factor)
            below[above] = (
                _with(truth[level], below.get(level), {"windows": placed[level]})
                | f"join {level} with its children" >> Join()
                | f"send up to {above}" >> beam.ParDo(step).with_output_types(Keyed)
            )
        parents = top
        for level in levels:
            draw = DrawExtended(work, level, self.factor, self.key)
            drawn = (
                _with(truth[level], below.get(level), {"windows": placed[level], "parent": parents})
                | f"join {level} with its parents" >> Join()
                | f"draw {level}" >> beam.ParDo(draw).with_output_types(Keyed)
            )
            if level != levels[-1]:
                parents = drawn | f"send {level} down" >> beam.ParDo(SendDown(level)).with_output_types(Keyed)
        return self.written(start, drawn)


def _with(
    truth: beam.PCollection[Keyed],
    below: beam.PCollection[Keyed] | None,
    others: dict[str, beam.PCollection[Keyed]],
) -> dict[str, beam.PCollection[Keyed]]:
    """Name the collections that a step joins."""
    return {"family": truth} | ({} if below is None else {"below": below}) | others


def _same(element: Keyed) -> Keyed:
    return element


class SendCumulants(OfFamily):
    """Add a family's cumulants up and send them to the family in which its parent is a child."""

    @timed(lambda self, element: f"send cumulants up from {self.level}")
    @keeping
    def process(self, element: Joined) -> Iterator[Keyed]:
        """Yield the grandparent's position and the parent's cumulants."""
        parent, joined = element
        with reporting_errors(self.work.partial):
            found = ExtendedFamily(self.family(parent, joined), self.reach).cumulants(_cumulants(self.below(joined)))
        yield self.sent_up(parent, Arrays({"cumulants": found[0].own.sum(axis=0)}))


class Place(OfFamily):
    """Place the windows of a family, and pass the tilts of its children down."""

    @timed(lambda self, element: f"place {self.level}")
    def process(self, element: Joined) -> Iterator[Any]:
        """Yield the family's windows; and, for each child, what its own family needs to know."""
        parent, joined = element
        (above,) = joined["above"]
        with reporting_errors(self.work.partial):
            family = ExtendedFamily(self.family(parent, joined), self.reach)
            placed, down = family.place(family.cumulants(_cumulants(self.below(joined))), _from_above(above))
        named = {f"{edge} {k}": getattr(w, edge) for k, w in enumerate(placed.layers) for edge in ("first", "last")}
        if placed.above is not None:
            named |= {"first above": placed.above.first, "last above": placed.above.last}
        yield parent, Arrays(named)
        first = int(families(self.work.spine, self.level)[parent])
        for child, passed in enumerate(down):
            arrays = {"tilt": passed.tilt, "first": passed.windows.first, "last": passed.windows.last}
            yield beam.pvalue.TaggedOutput(
                "down", (first + child, Arrays({**arrays, "margin": np.array([passed.margin])}))
            )


class SendFunctions(OfFamily):
    """Sum a family's messages on the parent's windows and send them up."""

    @timed(lambda self, element: f"send up from {self.level}")
    @keeping
    def process(self, element: Joined) -> Iterator[Keyed]:
        """Yield the grandparent's position and the parent's messages."""
        parent, joined = element
        placed = _placed(joined["windows"])
        with reporting_errors(self.work.partial), asking_for_wider():
            family = ExtendedFamily(self.family(parent, joined), self.reach)
            weighed = family.forward_pass(placed, _functions(self.below(joined)))
            sent = family.send_up(weighed, placed.sums)
        named = {field.name: getattr(sent.functions, field.name) for field in fields(ExtendedFunctions)}
        yield self.sent_up(parent, Arrays({"ids": sent.ids, **named}))


class DrawExtended(DrawFamily):
    """Split the parent's draw among the children, and each child's among its finer answers."""

    @timed(lambda self, element: f"draw {self.level}")
    @keeping
    def process(self, element: Joined) -> Iterator[Keyed]:
        """Yield the parent's position and the children's draws in their finest layer."""
        parent, joined = element
        (above,) = joined["parent"]
        with reporting_errors(self.work.partial):
            family = ExtendedFamily(self.family(parent, joined), self.reach)
            with asking_for_wider():  # whether the roots hold is decided before anything is drawn
                weighed = family.forward_pass(_placed(joined["windows"]), _functions(self.below(joined)))
                coarsest = None if "answer" in above else family.draw_roots(weighed, self.streams)
            if coarsest is None:
                coarsest = family.draw(weighed, counts_above(family.family, above), self.streams)
            drawn = family.refine(weighed, coarsest, self.streams)
        yield self.drawn(parent, drawn)


def _cumulants(below: list[Arrays] | None) -> list[Any] | None:
    return None if below is None else [np.asarray(sent["cumulants"]) for sent in below]


def _functions(below: list[Arrays] | None) -> list[SentFunctions] | None:
    if below is None:
        return None
    names = [field.name for field in fields(ExtendedFunctions)]
    named: list[dict[str, Any]] = [{name: sent[name] for name in names} for sent in below]
    return [
        SentFunctions(np.asarray(sent["ids"], dtype=np.int64), ExtendedFunctions(**arrays))
        for sent, arrays in zip(below, named, strict=True)
    ]


def _from_above(arrays: Arrays) -> FromAbove | None:
    if "tilt" not in arrays:
        return None
    tilt: Any = arrays["tilt"]
    return FromAbove(tilt, _windows(arrays, "first", "last"), float(np.asarray(arrays["margin"])[0]))


def _windows(arrays: Arrays, first: str, last: str) -> Windows:
    return Windows(np.asarray(arrays[first], dtype=np.int64), np.asarray(arrays[last], dtype=np.int64))


def _placed(found: Iterable[Arrays]) -> Placed:
    (arrays,) = found
    layers = sum(1 for name in arrays if name.startswith("first ") and name != "first above")
    above = _windows(arrays, "first above", "last above") if "first above" in arrays else None
    return Placed(tuple(_windows(arrays, f"first {k}", f"last {k}") for k in range(layers)), above)
