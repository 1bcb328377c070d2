"""The messages and the draw of one family of geounits in extended-range arithmetic: for data that doubles do not hold.

It does what `das.congenial.family` does, in four passes over the tree instead of two: up and down to place the windows
(`das.congenial.placement`), then the forward pass up and backward sampling down. The law and the random words are the
same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log2

import numpy as np
from numpy.typing import NDArray

from das.congenial.extended_messages import MARGIN, roots_extended, split_totals, sums_extended
from das.congenial.extended_range import ExtendedFunctions, joined, leaves_extended, times_extended
from das.congenial.family import Counts, Family, answers_of, distinct, equal_members, into
from das.congenial.function_store import Floats
from das.congenial.placement import (
    TILTS,
    Windows,
    capped,
    leaf_cumulants,
    node_cumulants,
    passed_tilts,
    windows_at,
)
from das.noise.interval_arithmetic import Weights
from das.noise.stream import Streams
from das.plan.tree_of_counts import Layer

__all__ = ["Cumulants", "ExtendedFamily", "FromAbove", "Placed", "SentFunctions"]


@dataclass(frozen=True)
class Cumulants:
    """Cumulant generating functions of one layer, children x answers x tilts: of the sum below, and with the noise."""

    summed: Floats
    own: Floats


@dataclass(frozen=True)
class FromAbove:
    """What a geounit passes down to the family of its children: for each answer of its finest layer.

    Parameters
    ----------
    tilt : array of float
        The tilt that the rest of the tree puts on the sum of the children's counts.
    windows : Windows
        The windows of these sums.
    margin : float
        Nats by which their edges lie below the largest values.
    """

    tilt: Floats
    windows: Windows
    margin: float


@dataclass(frozen=True)
class Placed:
    """The windows of a family: of each layer, children x answers, and of the sums that it sends up."""

    layers: tuple[Windows, ...]
    above: Windows | None

    @property
    def sums(self) -> Windows:
        """The windows of the sums that are sent up."""
        if self.above is None:
            raise ValueError("nothing is sent up from the top of the tree")
        return self.above


@dataclass(frozen=True)
class SentFunctions:
    """The messages that a family sends up to its parent: one index per answer of a query; -1 at structural zeros."""

    ids: NDArray[np.int64]
    functions: ExtendedFunctions


@dataclass(frozen=True)
class _LayerFunctions:
    layer: Layer
    ids: NDArray[np.int64]
    functions: ExtendedFunctions


@dataclass(frozen=True)
class ExtendedFamily:
    """A family of geounits with the margin of its windows; ``factor`` widens them all."""

    family: Family
    factor: float = 1.0

    # First the windows.

    def cumulants(self, below: Sequence[Floats] | None) -> tuple[Cumulants, ...]:
        """Return the cumulants of every layer; ``below`` are those sent to the children, None for leaves."""
        layers = self.family.layers
        found: list[Cumulants] = []
        for depth in reversed(range(len(layers))):
            truth, (least, most) = self.family.truth[depth], self._room(depth)
            if found:
                summed = np.zeros((*truth.shape, len(TILTS)))
                for answer, members in answers_of(into(layers[depth], layers[depth + 1]), truth.shape[1]):
                    summed[:, answer] = found[0].own[:, members].sum(axis=1)
            elif below is not None:
                summed = np.stack(below)
            else:
                found.insert(0, self._leaf_cumulants(least, most))
                continue
            own = np.zeros_like(summed)
            cells = np.nonzero(np.broadcast_to(layers[depth].reached, truth.shape))
            own[cells] = node_cumulants(summed[cells], _weights(layers[depth]), least[cells], most[cells])
            found.insert(0, Cumulants(summed, own))
        return tuple(found)

    def place(self, cumulants: tuple[Cumulants, ...], above: FromAbove | None) -> tuple[Placed, list[FromAbove]]:
        """Return the windows of the family, and what each child passes down to its own children."""
        family, step = self.family, MARGIN * self.factor
        shape = family.truth[0].shape
        margin, windows = step, None
        tilts = passed = np.zeros(shape)
        parent, group = None, np.broadcast_to(np.arange(shape[1]), shape)
        if above is not None:
            tilts = np.broadcast_to(above.tilt, shape)
            margin, parent = above.margin + step * (1 + log2(shape[0])), above.windows
        placed: list[Windows] = []
        for depth, layer in enumerate(family.layers):
            truth, (least, most) = family.truth[depth], self._room(depth)
            if depth:
                index = into(family.layers[depth - 1], layer)
                fanned = np.maximum(index, 0)
                size = family.truth[depth - 1].shape[1]
                tilts = passed[:, fanned]
                margin += step * (1 + log2(max(1, np.bincount(fanned).max())))
                group = np.arange(len(truth))[:, None] * size + fanned
                parent = Windows(windows.first.reshape(-1), windows.last.reshape(-1)) if windows else None
            cells = np.nonzero(np.broadcast_to(layer.reached, truth.shape))
            own, summed = cumulants[depth].own[cells], cumulants[depth].summed[cells]
            room = least[cells], most[cells]
            here = windows_at(own, tilts[cells], truth[cells], room, np.full(len(cells[0]), margin))
            if parent is not None:
                here = capped(here, group[cells], parent)
            windows = Windows(truth.copy(), truth.copy())
            windows.first[cells], windows.last[cells] = here.first, here.last
            placed.append(windows)
            passed = np.zeros(truth.shape)
            if layer is not family.layers[-1] or cumulants[depth].summed.any():
                passed[cells] = passed_tilts(summed, _weights(layer), *room, tilts[cells])
        finest = placed[-1]
        down = [FromAbove(passed[k], Windows(finest.first[k], finest.last[k]), margin) for k in range(shape[0])]
        return Placed(tuple(placed), None if above is None else above.windows), down

    # Then the messages, and the draw.

    def forward_pass(self, placed: Placed, below: Sequence[SentFunctions] | None) -> tuple[_LayerFunctions, ...]:
        """Forward pass: messages of every layer on their windows."""
        finest = len(self.family.layers) - 1
        if below is None:
            weighed = [self._leaves(placed.layers[-1])]
        else:
            starts = np.cumsum([0, *(len(sent.functions) for sent in below)])
            pairs = zip(below, starts, strict=False)
            ids = np.stack([np.where(sent.ids >= 0, sent.ids + start, -1) for sent, start in pairs])
            weighed = [self._own(finest, ids, joined([sent.functions for sent in below]))]
        for depth in range(finest - 1, -1, -1):
            weighed.insert(0, self._coarser(depth, weighed[0], placed.layers[depth]))
        return tuple(weighed)

    def send_up(self, weighed: tuple[_LayerFunctions, ...], windows: Windows) -> SentFunctions:
        """Convolve the children's messages of each answer and send them up, to the parent's finest layer."""
        top = weighed[0]
        possible = np.flatnonzero(top.layer.reached)
        functions, place = self._summed(top, top.ids[:, possible].T, windows.first[possible], windows.last[possible])
        ids = np.full(top.layer.query.size, -1, dtype=np.int64)
        ids[possible] = place
        return SentFunctions(ids, functions)

    def draw_roots(self, weighed: tuple[_LayerFunctions, ...], streams: Streams) -> Counts:
        """Draw the coarsest counts of a family without a parent."""
        top = weighed[0]
        out = np.zeros(top.ids.shape, dtype=np.int64)
        child, answer = np.nonzero(top.ids >= 0)
        words = self.family.root_words(streams, child, answer)
        out[child, answer] = roots_extended(top.functions.pick(top.ids[child, answer]), words)
        return out

    def draw(self, weighed: tuple[_LayerFunctions, ...], parent: Counts, streams: Streams) -> Counts:
        """Backward sampling: split the parent's count of each answer among the children."""
        top = weighed[0]
        answers = np.flatnonzero(parent)
        out = np.zeros(top.ids.shape, dtype=np.int64)
        words = self.family.words_among(streams, answers)
        out[:, answers] = _split(top.functions, top.ids[:, answers].T, parent[answers], words).T
        return out

    def refine(self, weighed: tuple[_LayerFunctions, ...], counts: Counts, streams: Streams) -> Counts:
        """Backward sampling within each child: split its counts from the coarsest to the finest layer."""
        for coarse, fine in pairwise(weighed):
            out = np.zeros(fine.ids.shape, dtype=np.int64)
            for answer, members in answers_of(into(coarse.layer, fine.layer), coarse.layer.query.size):
                child = np.flatnonzero(counts[:, answer])
                if len(child):
                    words = self.family.words_within(streams, coarse.layer, fine.layer, child, members)
                    rows = fine.ids[np.ix_(child, members)]
                    out[np.ix_(child, members)] = _split(fine.functions, rows, counts[child, answer], words)
            counts = out
        return counts

    def _room(self, depth: int) -> tuple[Floats, Floats]:
        truth, box = self.family.truth[depth], self.family.boxes[depth]
        return (truth - box.lower).astype(np.float64), (box.upper - truth).astype(np.float64)

    def _leaf_cumulants(self, least: Floats, most: Floats) -> Cumulants:
        layer = self.family.layers[-1]
        weights = _weights(layer)
        own = np.zeros((*least.shape, len(TILTS)))
        cells = np.nonzero(np.broadcast_to(layer.reached, least.shape))
        if weights is not None:
            kinds, place = distinct(least[cells].astype(np.int64), most[cells].astype(np.int64))
            own[cells] = leaf_cumulants(weights, *kinds)[place]
        return Cumulants(np.zeros_like(own), own)

    def _leaves(self, windows: Windows) -> _LayerFunctions:
        layer, truth, box = self.family.layers[-1], self.family.truth[-1], self.family.boxes[-1]
        ids = np.full(truth.shape, -1, dtype=np.int64)
        cells = np.nonzero(np.broadcast_to(layer.reached, truth.shape))
        edges = windows.first[cells], windows.last[cells]
        kinds, ids[cells] = distinct(truth[cells], box.lower[cells], box.upper[cells], *edges)
        weights = _weights(layer)
        if weights is None:
            raise TypeError("the leaves of a tree of counts are measured")
        return _LayerFunctions(layer, ids, leaves_extended(kinds[0], weights, *kinds[1:]))

    def _own(self, depth: int, ids: NDArray[np.int64], functions: ExtendedFunctions) -> _LayerFunctions:
        """Multiply summed messages by the noise of their layer around its true counts, and restrict to its limits."""
        layer, truth, box = self.family.layers[depth], self.family.truth[depth], self.family.boxes[depth]
        cells = np.nonzero(ids >= 0)
        kinds, place = distinct(ids[cells], truth[cells], box.lower[cells], box.upper[cells])
        out = np.full(ids.shape, -1, dtype=np.int64)
        out[cells] = place
        own = times_extended(functions.pick(kinds[0]), kinds[1], _weights(layer), kinds[2], kinds[3])
        return _LayerFunctions(layer, out, own)

    def _coarser(self, depth: int, fine: _LayerFunctions, windows: Windows) -> _LayerFunctions:
        """Sum the messages of the next finer layer into those of the layer at this depth."""
        coarse = self.family.layers[depth]
        parts, ids, count = [], np.full(self.family.truth[depth].shape, -1, dtype=np.int64), 0
        for answer, members in answers_of(into(coarse, fine.layer), coarse.query.size):
            edges = windows.first[:, answer], windows.last[:, answer]
            functions, place = self._summed(fine, fine.ids[:, members], *edges)
            parts.append(functions)
            ids[:, answer] = place + count
            count += len(functions)
        return self._own(depth, ids, joined(parts))

    def _summed(
        self, members: _LayerFunctions, rows: NDArray[np.int64], first: Counts, last: Counts
    ) -> tuple[ExtendedFunctions, NDArray[np.int64]]:
        """Sum the members of each row on its window; equal rows are computed once."""
        kinds, which = np.unique(np.sort(rows, axis=1), axis=0, return_inverse=True)
        (group, start, stop), place = distinct(which.reshape(-1), first, last)
        margin = MARGIN * self.factor
        return sums_extended(members.functions, equal_members(kinds[group]), start, stop, margin), place


def _weights(layer: Layer) -> Weights | None:
    return None if layer.noise is None else layer.noise.weights


def _split(functions: ExtendedFunctions, rows: NDArray[np.int64], totals: Counts, words: NDArray[np.uint64]) -> Counts:
    """Split the total of each row among its members; members with equal messages are sorted together first."""
    order = np.argsort(rows, axis=1, kind="stable")
    groups = equal_members(np.take_along_axis(rows, order, axis=1))
    ordered = np.take_along_axis(words, order[:, :, None], axis=1).reshape(-1, 4)
    draws = split_totals(functions, groups, totals, ordered)
    out = np.empty_like(rows)
    np.put_along_axis(out, order, draws.reshape(rows.shape), axis=1)
    return out
