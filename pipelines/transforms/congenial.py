"""The congenial mechanism on PCollections: true counts and public facts to conforming draws."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np

from das.congenial.family import Family, SentMessages
from das.errors import Problem, UsageError
from das.facts.fact import limits_of
from das.noise.stream import Streams
from das.plan.plan import Plan
from das.plan.tree_of_counts import TreeOfCounts, tree_of
from das.schema.counts import ProtectedCounts, TrueCounts
from das.storage.key_file import read_key
from pipelines.elements.arrays import Arrays, sparse_arrays, sparse_counts
from pipelines.stages.congenial import (
    asking_for_wider,
    cells_of_answers,
    counts_above,
    laid_out,
    limit_arrays,
    message_arrays,
    messages_of,
)
from pipelines.transforms.elements import Geounit, Member, members, protected_counts
from pipelines.transforms.estimate import facts_of_members
from pipelines.transforms.measure import CountGeounits

__all__ = ["CongenialDraw"]

COUNTS, FACTS, BELOW, ABOVE = "counts", "facts", "below", "above"
Inputs = Mapping[str, beam.PCollection]
Draw = tuple[Geounit, Arrays]
REACH = 20.0
"""Half the width of the sampler's windows, in standard deviations, with which ``das run`` begins."""


@dataclass(frozen=True)
class _Sizes:
    """How many geounits each level has."""

    of: Mapping[str, int]

    def size(self, level: str) -> int:
        """Return the number of geounits of a level."""
        return self.of[level]


class CongenialDraw(beam.PTransform):
    """Draw conforming counts: noise that was conditioned on the public facts and on every count being an integer >= 0.

    Input is a mapping with ``"counts"``, a PCollection of ``(Geounit, TrueCounts)`` of every geounit
    (:class:`~pipelines.transforms.CountGeounits` makes one from the leaves), and optionally ``"facts"``, one of
    ``(Geounit, PublicFacts)``. Output: ``(Geounit, ProtectedCounts)`` of every geounit.

    **Who accounts.** The caller, as with :class:`~pipelines.transforms.MeasureGeounits`: one run spends :attr:`cost`,
    and what is public changes what that means (``docs/promise.md``). All that travels before the draws is confidential.

    Parameters
    ----------
    plan : Plan
        With ``method = "congenial"``; what it measures forms a tree of counts.
    key : Path
        A key file of this user alone, which every worker can read.
    geounits : mapping
        How many geounits each level has, which is public: the allowed sampler error is divided among all counts.
    reach : float
        Half the width of the windows. Where they do not hold, :class:`das.errors.WindowsTooNarrow` is raised before
        anything is drawn; run again with twice the reach. Data that no doubles hold are drawn by ``das run`` alone.
    """

    def __init__(self, plan: Plan, key: Path, geounits: Mapping[str, int], reach: float = REACH) -> None:
        super().__init__()
        if plan.mechanism_stage.sampler is None or geounits.keys() != set(plan.levels):
            reason = 'its method is not "congenial", or not every level has its number of geounits'
            raise UsageError(Problem("plan", reason, 'use plan.with_method("congenial"), and name each level'))
        self.plan, self.key, self.sizes, self.reach = plan, key, _Sizes(dict(geounits)), reach
        tree_of(plan)  # refuses what is no tree

    @property
    def cost(self) -> Fraction:
        """What one run spends, in the currency of the plan: rho or epsilon."""
        return sum((measured.cost for measured in self.plan.measurements), Fraction(0))

    def expand(self, inputs: Inputs) -> beam.PCollection:
        """Messages up, draws down, one grouping per level each; the leaves' draws are added up."""
        if not {COUNTS} <= inputs.keys() <= {COUNTS, FACTS}:
            raise UsageError(Problem("inputs", f"are named {sorted(inputs)}", "name them 'counts' and 'facts'"))
        below: dict[int, beam.PCollection] = {}
        deepest = len(self.plan.levels)
        for depth in range(deepest, 1, -1):
            step = beam.ParDo(_SendUp(self, depth)).with_output_types(Member)
            below[depth - 1] = self._families(inputs, below, depth, None, "up") | f"send up {depth}" >> step
        drawn: beam.PCollection | None = None
        for depth in range(1, deepest + 1):
            step = beam.ParDo(_Draw(self, depth)).with_output_types(Draw)
            drawn = self._families(inputs, below, depth, drawn, "down") | f"draw {depth}" >> step
        cell_of = cells_of_answers(tree_of(self.plan))

        def with_cells(element: Draw) -> tuple[Geounit, ProtectedCounts]:
            cell = cell_of[np.asarray(element[1]["answer"])]
            order = np.argsort(cell)
            return element[0], protected_counts(cell[order], np.asarray(element[1]["count"])[order])

        return (
            drawn
            | "cells" >> beam.Map(with_cells).with_output_types(tuple[Geounit, ProtectedCounts])
            | CountGeounits(self.plan, ProtectedCounts)
        )

    def _families(
        self,
        inputs: Inputs,
        below: Mapping[int, beam.PCollection],
        depth: int,
        drawn: beam.PCollection | None,
        way: str,
    ) -> beam.PCollection:
        """Group what is known of each family of a level."""
        known = [
            found
            | f"{way}: {name} of {depth}" >> beam.Filter(lambda element: element[0].depth == depth)
            | f"{way}: {name} by parent {depth}"
            >> members(name, sparse_arrays if name == COUNTS else lambda value: value.arrays())
            for name, found in inputs.items()
        ]
        if depth in below:
            known.append(below[depth])
        if drawn is not None:
            to_children = beam.Map(lambda element: (element[0], (ABOVE, element[0], element[1])))
            known.append(drawn | f"{way}: to children {depth}" >> to_children.with_output_types(Member))
        return known | f"{way}: gather {depth}" >> beam.Flatten() | f"{way}: families {depth}" >> beam.GroupByKey()


class _OfFamily(beam.DoFn):
    """A step on one family."""

    def __init__(self, draw: CongenialDraw, depth: int) -> None:
        self.plan, self.sizes, self.reach, self.depth = draw.plan, draw.sizes, draw.reach, depth

    def setup(self) -> None:
        """Build the tree of counts once per worker."""
        self.tree: TreeOfCounts = tree_of(self.plan)

    def family(
        self, parent: Geounit, said: Iterable[tuple[str, Geounit, Arrays]]
    ) -> tuple[list[Geounit], Family, list[SentMessages] | None, Arrays | None]:
        """The children in order, their family, what was sent to each from below, and the parent's draw."""
        named: dict[str, dict[Geounit, Arrays]] = {COUNTS: {}, FACTS: {}, BELOW: {}, ABOVE: {}}
        for name, geounit, arrays in said:
            named[name][geounit] = arrays
        children, layers = sorted(named[COUNTS]), self.tree[self.plan.levels[self.depth - 1]]
        sent = None if self.depth == len(self.plan.levels) else named[BELOW]
        for name, found in ((FACTS, named[FACTS]), (BELOW, sent)):
            if found is not None and (found or name == BELOW) and found.keys() != set(children):
                reason = f"its children are not the same in {name!r} and in 'counts'"
                where = f"geounit {parent.geocode!r}"
                raise UsageError(Problem(where, reason, "give one element for each geounit of every level"))
        facts = facts_of_members(self.plan, [named[FACTS][child] for child in children if child in named[FACTS]])
        counts = [sparse_counts(TrueCounts, named[COUNTS][child]) for child in children]
        together = TrueCounts(
            np.repeat(np.arange(len(counts)), [len(each.cell) for each in counts]),
            np.concatenate([each.cell for each in counts]),
            np.concatenate([each.count for each in counts]),
        )
        limits = limit_arrays(limits_of(facts, slice(None)), slice(None))
        truth, boxes = laid_out(layers, together, 0, len(children), limits)
        family = Family(
            layers=layers,
            geocodes=tuple(child.geocode for child in children),
            parent=parent.geocode,
            truth=truth,
            boxes=boxes,
            reach=self.reach,
            splits=self.tree.splits(self.sizes),
        )
        above = next(iter(named[ABOVE].values()), None)
        messages = None if sent is None else [messages_of(sent[child]) for child in children]
        return children, family, messages, above


class _SendUp(_OfFamily):
    """Sum a family's messages and send them to the family in which its parent is a child."""

    def process(self, element: tuple[Geounit, Any]) -> Iterator[Member]:
        """Yield the grandparent, and the parent's messages."""
        parent, said = element
        _, family, below, _ = self.family(parent, said)
        with asking_for_wider():
            above = self.tree[self.plan.levels[self.depth - 2]][-1]
            sent = family.send_up(family.forward_pass(below), above)
        yield parent.parent, (BELOW, parent, message_arrays(sent))


class _Draw(_OfFamily):
    """Split the parent's draw among the children, and each child's among its finer answers."""

    streams: Streams

    def __init__(self, draw: CongenialDraw, depth: int) -> None:
        super().__init__(draw, depth)
        self.key = draw.key

    def setup(self) -> None:
        """Read the key."""
        super().setup()
        self.streams = read_key(self.key).streams(self.plan.digest.encode())

    def teardown(self) -> None:
        """Overwrite what was derived from it."""
        self.streams.wipe()

    def process(self, element: tuple[Geounit, Any]) -> Iterator[Draw]:
        """Yield each child's draw in its finest layer."""
        parent, said = element
        children, family, below, above = self.family(parent, said)
        with asking_for_wider():  # whether the roots hold is decided before anything is drawn
            weighed = family.forward_pass(below)
            if above is None:
                coarsest = family.draw_roots(weighed, self.streams)
        if above is not None:
            coarsest = family.draw(weighed, counts_above(family, above), self.streams)
        drawn = family.refine(weighed, coarsest, self.streams)
        for child, counts in zip(children, drawn, strict=True):
            answer = np.flatnonzero(counts)
            yield child, Arrays({"answer": answer, "count": counts[answer]})
