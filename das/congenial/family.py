"""The messages of one family of geounits (forward pass), and the draw of its counts (backward sampling).

A family is a parent geounit and its children. The forward pass computes the messages of the children's layers, from the
finest to the coarsest, with the children's true counts and noise. The answers of the coarsest layer are those of the
parent's finest one; there the children's messages are convolved and sent up to the parent. Backward sampling splits the
parent's draw among the children, and each child's draw among its finer answers.

Counts with the same message are stored once, with a multiplicity: almost all cells of almost all geounits are empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from das.accounting.conditioned_tree import PROMISED
from das.congenial.messages import Groups, Messages, WindowTooSmall, concat, leaves, roots, split, sums, times
from das.noise.stream import Streams
from das.plan.tree_of_counts import Layer
from das.schema.limits import NO_LIMIT

__all__ = ["Box", "Counts", "Family", "SentMessages", "answers_of", "distinct", "equal_members", "into"]

Counts = NDArray[np.int64]
MECHANISM = "conditioned"
_LOST, _ROUNDED = float(PROMISED.total_variation), float(PROMISED.log_ratio)
_SPLITS_LOST, _SPLITS_ROUNDED = _LOST / 4, _ROUNDED / 8  # of all splits in doubles; tree.md adds up the rest


@dataclass(frozen=True)
class SentMessages:
    """The messages that a family sends up to its parent: one index per answer of a query; -1 at structural zeros."""

    ids: NDArray[np.int64]
    messages: Messages


@dataclass(frozen=True)
class Box:
    """Public limits on the answers of one query; arrays of children x answers."""

    lower: Counts
    upper: Counts

    @classmethod
    def open(cls, shape: tuple[int, int]) -> Box:
        """Return the box whose only limit is that counts are not negative."""
        return cls(np.zeros(shape, dtype=np.int64), np.full(shape, NO_LIMIT, dtype=np.int64))


@dataclass(frozen=True)
class _LayerMessages:
    """The messages of one layer of all children, each summed over everything below it."""

    layer: Layer
    ids: NDArray[np.int64]  # index of the message of each answer, children x answers; -1 at structural zeros
    messages: Messages


@dataclass(frozen=True, kw_only=True)
class Family:
    """The children of one parent, with their true counts and public limits.

    Parameters
    ----------
    layers : tuple of Layer
        Layers of the children's level, coarse to fine.
    geocodes : tuple of str
        Geocodes of the children.
    parent : str
        Geocode of the parent, empty above the top level.
    truth : tuple of arrays
        True counts of each layer, children x answers.
    boxes : tuple of Box
        Public limits of each layer.
    reach : float
        Half the width of the windows, in standard deviations.
    splits : int
        Number of counts of the whole tree that are split. They share half of the promised sampler error equally; the
        roots have the other half.
    """

    layers: tuple[Layer, ...]
    geocodes: tuple[str, ...]
    parent: str
    truth: tuple[Counts, ...]
    boxes: tuple[Box, ...]
    reach: float
    splits: int

    def forward_pass(self, below: Sequence[SentMessages] | None) -> tuple[_LayerMessages, ...]:
        """Forward pass: messages of every layer; ``below`` are the messages sent to the children, None for leaves."""
        finest = len(self.layers) - 1
        weighed = [self._leaves() if below is None else self._own(finest, _joined(below))]
        for depth in range(finest - 1, -1, -1):
            weighed.insert(0, self._coarser(depth, weighed[0]))
        return tuple(weighed)

    def send_up(self, weighed: tuple[_LayerMessages, ...], above: Layer) -> SentMessages:
        """Convolve the children's messages of each answer and send them up, to the parent's finest layer."""
        top = weighed[0]
        possible = np.flatnonzero(top.layer.reached)
        centre = self.truth[0].sum(axis=0)[possible]
        anywhere = np.zeros_like(centre), np.full_like(centre, NO_LIMIT)
        messages, place = self._summed(top, top.ids[:, possible].T, centre, above, anywhere)
        ids = np.full(top.layer.query.size, -1, dtype=np.int64)
        ids[possible] = place
        return SentMessages(ids, messages)

    def draw_roots(self, weighed: tuple[_LayerMessages, ...], streams: Streams) -> Counts:
        """Draw the coarsest counts of a family without a parent; the roots have half of the promised sampler error."""
        top = weighed[0]
        out = np.zeros(top.ids.shape, dtype=np.int64)
        child, answer = np.nonzero(top.ids >= 0)
        messages = top.messages.pick(top.ids[child, answer])
        words = self.root_words(streams, child, answer)
        drawn = roots(messages, words, allowance=_LOST / (2 * len(messages)))
        # None of these numbers depends on the random words, so neither does the decision to widen the windows.
        if drawn.lost.sum() > _LOST / 2 or 2 * messages.error.sum() + drawn.error.sum() > _ROUNDED / 2:
            raise WindowTooSmall("the errors of the roots exceed the promised error")
        out[child, answer] = drawn.draws
        return out

    def draw(self, weighed: tuple[_LayerMessages, ...], parent: Counts, streams: Streams) -> Counts:
        """Backward sampling: split the parent's count of each answer among the children."""
        top = weighed[0]
        answers = np.flatnonzero(parent)
        rows = top.ids[:, answers].T
        out = np.zeros(top.ids.shape, dtype=np.int64)
        out[:, answers] = self._split(top.messages, rows, parent[answers], self.words_among(streams, answers)).T
        return out

    def refine(self, weighed: tuple[_LayerMessages, ...], counts: Counts, streams: Streams) -> Counts:
        """Backward sampling within each child: split its counts from the coarsest to the finest layer."""
        for coarse, fine in pairwise(weighed):
            counts = self._refined(coarse, fine, counts, streams)
        return counts

    def _refined(self, coarse: _LayerMessages, fine: _LayerMessages, counts: Counts, streams: Streams) -> Counts:
        out = np.zeros(fine.ids.shape, dtype=np.int64)
        for answer, members in answers_of(into(coarse.layer, fine.layer), coarse.layer.query.size):
            child = np.flatnonzero(counts[:, answer])
            if len(child):
                words = self.words_within(streams, coarse.layer, fine.layer, child, members)
                rows = fine.ids[np.ix_(child, members)]
                out[np.ix_(child, members)] = self._split(fine.messages, rows, counts[child, answer], words)
        return out

    def root_words(self, streams: Streams, child: Counts, answer: Counts) -> NDArray[np.uint64]:
        """Return the 256 bits of each root, as four words."""
        layer = self.layers[0]
        return _words(streams, layer.level, self.geocodes, f"root {layer.query.name}", child, answer)

    def words_among(self, streams: Streams, answers: Counts) -> NDArray[np.uint64]:
        """Return the bits that split the parent's answers among the children, answers x children x 4."""
        layer, n = self.layers[0], len(self.geocodes)
        at = (answers[:, None] * n + np.arange(n)).reshape(-1)
        name = f"among {layer.query.name}"
        return _words(streams, layer.level, (self.parent,), name, np.zeros_like(at), at).reshape(len(answers), n, 4)

    def words_within(
        self, streams: Streams, coarse: Layer, fine: Layer, child: Counts, members: Counts
    ) -> NDArray[np.uint64]:
        """Return the bits that split one coarse answer of these children, children x fine answers x 4."""
        at = np.repeat(child, len(members)), np.tile(members, len(child))
        name = f"within {coarse.query.name}: {fine.query.name}"
        return _words(streams, fine.level, self.geocodes, name, *at).reshape(len(child), len(members), 4)

    def _split(self, messages: Messages, rows: NDArray[np.int64], totals: Counts, words: NDArray[np.uint64]) -> Counts:
        """Split the total of each row among its members; members with equal messages are sorted together first."""
        order = np.argsort(rows, axis=1, kind="stable")
        groups = equal_members(np.take_along_axis(rows, order, axis=1))
        ordered = np.take_along_axis(words, order[:, :, None], axis=1).reshape(-1, 4)
        lost, rounded = _SPLITS_LOST / self.splits, _SPLITS_ROUNDED / self.splits
        drawn = split(messages, groups, totals, ordered, allowance=lost, rounding_allowance=rounded)
        out = np.empty_like(rows)
        np.put_along_axis(out, order, drawn.draws.reshape(rows.shape), axis=1)
        return out

    def _leaves(self) -> _LayerMessages:
        layer, truth, box = self.layers[-1], self.truth[-1], self.boxes[-1]
        ids = np.full(truth.shape, -1, dtype=np.int64)
        cells = np.nonzero(np.broadcast_to(layer.reached, truth.shape))
        messages, ids[cells] = leaves(truth[cells], layer.noise, box.lower[cells], box.upper[cells], self._half(layer))
        return _LayerMessages(layer, ids, messages)

    def _own(self, depth: int, received: SentMessages) -> _LayerMessages:
        """Multiply summed messages by the noise of their layer around its true counts, and restrict to its limits."""
        layer, truth, box = self.layers[depth], self.truth[depth], self.boxes[depth]
        cells = np.nonzero(received.ids >= 0)
        key, place = distinct(received.ids[cells], truth[cells], box.lower[cells], box.upper[cells])
        ids = np.full(received.ids.shape, -1, dtype=np.int64)
        ids[cells] = place
        messages = times(received.messages.pick(key[0]), key[1], layer.noise, key[2], key[3])
        return _LayerMessages(layer, ids, messages)

    def _coarser(self, depth: int, fine: _LayerMessages) -> _LayerMessages:
        """Sum the messages of the next finer layer into those of the layer at this depth."""
        coarse, truth, box = self.layers[depth], self.truth[depth], self.boxes[depth]
        shape = (len(self.geocodes), coarse.query.size)
        summed, ids, count = [], np.full(shape, -1, dtype=np.int64), 0
        for answer, members in answers_of(into(coarse, fine.layer), coarse.query.size):
            limits = box.lower[:, answer], box.upper[:, answer]
            messages, place = self._summed(fine, fine.ids[:, members], truth[:, answer], coarse, limits)
            summed.append(messages)
            ids[:, answer] = place + count
            count += len(messages)
        return self._own(depth, SentMessages(ids, concat(summed)))

    def _summed(
        self, members: _LayerMessages, rows: NDArray[np.int64], centre: Counts, layer: Layer, box: tuple[Counts, Counts]
    ) -> tuple[Messages, NDArray[np.int64]]:
        """Sum the members of each row on a window around the row's true sum; equal rows are computed once."""
        kinds, which = np.unique(np.sort(rows, axis=1), axis=0, return_inverse=True)
        (group, true, lower, upper), place = distinct(which.reshape(-1), centre, *box)
        chosen = kinds[group]
        first, last = self._window(members.messages, chosen, true, layer)
        within = np.maximum(first, lower), np.minimum(last, upper)
        return sums(members.messages, equal_members(chosen), *within), place

    def _half(self, layer: Layer) -> int:
        """Half the width of a window around a measured count."""
        return 0 if layer.noise is None else int(np.ceil(self.reach * np.sqrt(layer.noise.variance())))

    def _window(
        self, messages: Messages, rows: NDArray[np.int64], centre: Counts, layer: Layer
    ) -> tuple[Counts, Counts]:
        """Window of a sum around its true value, from the noise of its layer or else from its members' windows."""
        if layer.noise is not None:
            return centre - self._half(layer), centre + self._half(layer)
        width = (messages.last - messages.first)[rows].astype(np.float64)
        half = np.ceil(np.sqrt((width**2).sum(axis=1)))
        drift = np.ceil(width.sum(axis=1) / self.reach)  # members that cannot be negative raise the sum
        return centre - half.astype(np.int64), centre + (half + drift).astype(np.int64)


def _words(
    streams: Streams, level: str, geocodes: tuple[str, ...], name: str, stream: Counts, position: Counts
) -> NDArray[np.uint64]:
    """Return 256 bits for each (geocode, position): two words that are always read, and two where those are too few."""
    names = (name, f"{name}, more bits")
    bundles = [streams.bundle([(level, geocode, each, MECHANISM) for geocode in geocodes]) for each in names]
    return np.concatenate([bundle.words(stream, position) for bundle in bundles], axis=1)


def _joined(below: Sequence[SentMessages]) -> SentMessages:
    starts = np.cumsum([0, *(len(sent.messages) for sent in below)])
    ids = np.stack([np.where(sent.ids >= 0, sent.ids + start, -1) for sent, start in zip(below, starts, strict=False)])
    return SentMessages(ids, concat([sent.messages for sent in below]))


def into(coarse: Layer, fine: Layer) -> NDArray[np.int64]:
    """The coarse answer that contains each fine answer; -1 at structural zeros."""
    out = np.full(fine.query.size, -1, dtype=np.int64)
    possible = np.flatnonzero(fine.query.schema.possible)
    out[fine.query.index[possible]] = coarse.query.index[possible]
    return out


def answers_of(into: NDArray[np.int64], answers: int) -> list[tuple[int, NDArray[np.int64]]]:
    """For each coarse answer that is not a structural zero, its fine answers, ascending."""
    order = np.argsort(into, kind="stable")
    cuts = np.searchsorted(into[order], np.arange(answers + 1))
    return [(a, order[cuts[a] : cuts[a + 1]]) for a in range(answers) if cuts[a + 1] > cuts[a]]


def distinct(*columns: NDArray[np.int64]) -> tuple[tuple[NDArray[np.int64], ...], NDArray[np.int64]]:
    """Distinct rows of these columns, and the index of the distinct row for each row."""
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        if len(column) and (column != column[0]).any():
            values, inverse = np.unique(column, return_inverse=True)
            _, code = np.unique(code * len(values) + inverse, return_inverse=True)
    _, first = np.unique(code, return_index=True)
    return tuple(column[first] for column in columns), code


def equal_members(rows: NDArray[np.int64]) -> Groups:
    """Turn rows of sorted message indices into groups: each distinct index once, with its multiplicity."""
    starts = np.ones(rows.shape, dtype=np.bool_)
    starts[:, 1:] = rows[:, 1:] != rows[:, :-1]
    entries = np.flatnonzero(starts)
    multiplicity = np.diff(np.append(entries, rows.size))
    offset = np.concatenate([[0], np.cumsum(starts.sum(axis=1))])
    return Groups(offset, rows.reshape(-1)[entries], multiplicity)
