"""One family of the tree of counts: what its children tell their parent, and how the parent's draw comes down to them.

A family is a parent geounit and its children. The children's layers, from the finest to the coarsest, are weighed with
the children's true counts and noise; the coarsest of them is the partition in which the parent ended, and the
children's messages in it are convolved into what the parent is told. On the way down the parent's draw is split among
the children, and each child's draw is split among its finer answers.

Counts that have the same message come once, with a multiplicity: almost all cells of almost all places are empty.
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

__all__ = ["Box", "Family", "SentMessages"]

Counts = NDArray[np.int64]
MECHANISM = "conditioned"
_LOST, _ROUNDED = float(PROMISED.total_variation), float(PROMISED.log_ratio)


@dataclass(frozen=True)
class SentMessages:
    """What one geounit tells its parent: for each answer of a query, which message; -1 where nobody can be."""

    ids: NDArray[np.int64]
    messages: Messages


@dataclass(frozen=True)
class Box:
    """Public limits on the answers of one query: children x answers."""

    lower: Counts
    upper: Counts

    @classmethod
    def open(cls, shape: tuple[int, int]) -> Box:
        """No limits but that counts are not negative."""
        return cls(np.zeros(shape, dtype=np.int64), np.full(shape, NO_LIMIT, dtype=np.int64))


@dataclass(frozen=True)
class _Weighed:
    """A layer of all children with everything below it summed in: which message stands for which answer."""

    layer: Layer
    ids: NDArray[np.int64]  # children x answers, -1 where nobody can be
    messages: Messages


@dataclass(frozen=True, kw_only=True)
class Family:
    """The children of one parent.

    Parameters
    ----------
    layers : tuple of Layer
        Of the children's level, coarse to fine.
    geocodes : tuple of str
        Of the children.
    parent : str
        The parent's geocode, empty above the top.
    truth : tuple of arrays
        For each layer the true counts, children x answers.
    boxes : tuple of Box
        For each layer the public limits.
    reach : float
        Half the width of the windows, in standard deviations.
    splits : int
        How many counts of the whole tree are split: the other half of the promised errors is shared among them.
    """

    layers: tuple[Layer, ...]
    geocodes: tuple[str, ...]
    parent: str
    truth: tuple[Counts, ...]
    boxes: tuple[Box, ...]
    reach: float
    splits: int

    def weigh(self, below: Sequence[SentMessages] | None) -> tuple[_Weighed, ...]:
        """Weigh every layer, the finest first; ``below`` is what the children were told, none for leaves."""
        finest = len(self.layers) - 1
        weighed = [self._leaves() if below is None else self._own(finest, _joined(below))]
        for at in range(finest - 1, -1, -1):
            weighed.insert(0, self._coarser(at, weighed[0]))
        return tuple(weighed)

    def tell(self, weighed: tuple[_Weighed, ...], above: Layer) -> SentMessages:
        """Sum the children's messages of each answer: what the parent is told about its finest layer."""
        top = weighed[0]
        possible = np.flatnonzero(top.layer.reached)
        centre = self.truth[0].sum(axis=0)[possible]
        anywhere = np.zeros_like(centre), np.full_like(centre, NO_LIMIT)
        messages, place = self._summed(top, top.ids[:, possible].T, centre, above, anywhere)
        ids = np.full(top.layer.query.size, -1, dtype=np.int64)
        ids[possible] = place
        return SentMessages(ids, messages)

    def draw_roots(self, weighed: tuple[_Weighed, ...], streams: Streams) -> Counts:
        """Draw the children's coarsest counts where there is no parent: half of the promised errors is theirs."""
        top = weighed[0]
        out = np.zeros(top.ids.shape, dtype=np.int64)
        child, answer = np.nonzero(top.ids >= 0)
        level, name = top.layer.level, f"root {top.layer.query.name}"
        bundle = streams.bundle([(level, geocode, name, MECHANISM) for geocode in self.geocodes])
        messages = top.messages.pick(top.ids[child, answer])
        drawn = roots(messages, bundle.words(child, answer), allowance=_LOST / (2 * len(messages)))
        # None of these numbers depends on the words: whether the windows are widened does not depend on the draw.
        if drawn.lost.sum() > _LOST / 2 or 2 * messages.error.sum() + drawn.error.sum() > _ROUNDED / 2:
            raise WindowTooSmall("errors of the roots exceed what is promised")
        out[child, answer] = drawn.draws
        return out

    def draw(self, weighed: tuple[_Weighed, ...], parent: Counts, streams: Streams) -> Counts:
        """Split the parent's counts of each answer among the children."""
        top = weighed[0]
        answers = np.flatnonzero(parent)
        rows = top.ids[:, answers].T
        stream = streams.bundle([(top.layer.level, self.parent, f"among {top.layer.query.name}", MECHANISM)])
        n = len(self.geocodes)
        positions = answers[:, None] * n + np.arange(n)
        words = stream.words(np.zeros(positions.size, dtype=np.int64), positions.reshape(-1))
        out = np.zeros(top.ids.shape, dtype=np.int64)
        out[:, answers] = self._split(top.messages, rows, parent[answers], words.reshape(*positions.shape, 2)).T
        return out

    def refine(self, weighed: tuple[_Weighed, ...], counts: Counts, streams: Streams) -> Counts:
        """Carry each child's counts from its coarsest to its finest layer."""
        for coarse, fine in pairwise(weighed):
            counts = self._refined(coarse, fine, counts, streams)
        return counts

    def _refined(self, coarse: _Weighed, fine: _Weighed, counts: Counts, streams: Streams) -> Counts:
        out = np.zeros(fine.ids.shape, dtype=np.int64)
        name = f"within {coarse.layer.query.name}: {fine.layer.query.name}"
        bundle = streams.bundle([(fine.layer.level, geocode, name, MECHANISM) for geocode in self.geocodes])
        into = _into(coarse.layer, fine.layer)
        for answer, members in _members(into, coarse.layer.query.size):
            child = np.flatnonzero(counts[:, answer])
            if len(child):
                shape = (len(child), len(members))
                words = bundle.words(np.repeat(child, len(members)), np.tile(members, len(child)))
                rows = fine.ids[np.ix_(child, members)]
                drawn = self._split(fine.messages, rows, counts[child, answer], words.reshape(*shape, 2))
                out[np.ix_(child, members)] = drawn
        return out

    def _split(self, messages: Messages, rows: NDArray[np.int64], totals: Counts, words: NDArray[np.uint64]) -> Counts:
        """Split each row's total among its members; equal members stand side by side while that is done."""
        order = np.argsort(rows, axis=1, kind="stable")
        groups = _groups(np.take_along_axis(rows, order, axis=1))
        ordered = np.take_along_axis(words, order[:, :, None], axis=1).reshape(-1, 2)
        lost, rounded = _LOST / (2 * self.splits), _ROUNDED / (2 * self.splits)
        drawn = split(messages, groups, totals, ordered, allowance=lost / 2)
        if (drawn.lost > lost).any() or (drawn.error > rounded).any():
            raise WindowTooSmall("errors of a split exceed its part of what is promised")
        out = np.empty_like(rows)
        np.put_along_axis(out, order, drawn.draws.reshape(rows.shape), axis=1)
        return out

    def _leaves(self) -> _Weighed:
        layer, truth, box = self.layers[-1], self.truth[-1], self.boxes[-1]
        ids = np.full(truth.shape, -1, dtype=np.int64)
        here = np.nonzero(np.broadcast_to(layer.reached, truth.shape))
        messages, ids[here] = leaves(truth[here], layer.noise, box.lower[here], box.upper[here], self._half(layer))
        return _Weighed(layer, ids, messages)

    def _own(self, at: int, told: SentMessages) -> _Weighed:
        """Multiply summed messages by the layer's own noise around its true counts, within its limits."""
        layer, truth, box = self.layers[at], self.truth[at], self.boxes[at]
        here = np.nonzero(told.ids >= 0)
        key, place = _distinct(told.ids[here], truth[here], box.lower[here], box.upper[here])
        ids = np.full(told.ids.shape, -1, dtype=np.int64)
        ids[here] = place
        return _Weighed(layer, ids, times(told.messages.pick(key[0]), key[1], layer.noise, key[2], key[3]))

    def _coarser(self, at: int, fine: _Weighed) -> _Weighed:
        coarse = self.layers[at]
        shape = (len(self.geocodes), coarse.query.size)
        told, ids, made = [], np.full(shape, -1, dtype=np.int64), 0
        for answer, members in _members(_into(coarse, fine.layer), coarse.query.size):
            box = self.boxes[at].lower[:, answer], self.boxes[at].upper[:, answer]
            messages, place = self._summed(fine, fine.ids[:, members], self.truth[at][:, answer], coarse, box)
            told.append(messages)
            ids[:, answer] = place + made
            made += len(messages)
        return self._own(at, SentMessages(ids, concat(told)))

    def _summed(
        self, members: _Weighed, rows: NDArray[np.int64], centre: Counts, layer: Layer, box: tuple[Counts, Counts]
    ) -> tuple[Messages, NDArray[np.int64]]:
        """Sum the members of each row around the row's true sum, within its limits; rows that are alike share it."""
        distinct, which = np.unique(np.sort(rows, axis=1), axis=0, return_inverse=True)
        (group, true, lower, upper), place = _distinct(which.reshape(-1), centre, *box)
        chosen = distinct[group]
        first, last = self._window(members.messages, chosen, true, layer)
        within = np.maximum(first, lower), np.minimum(last, upper)
        return sums(members.messages, _groups(chosen), *within), place

    def _half(self, layer: Layer) -> int:
        """Half the width of a window around a measured count."""
        return 0 if layer.noise is None else int(np.ceil(self.reach * np.sqrt(layer.noise.variance())))

    def _window(
        self, messages: Messages, rows: NDArray[np.int64], centre: Counts, layer: Layer
    ) -> tuple[Counts, Counts]:
        """Where a sum can matter: around its true value by the noise of its own layer, or by that of its members."""
        if layer.noise is not None:
            return centre - self._half(layer), centre + self._half(layer)
        width = (messages.last - messages.first)[rows].astype(np.float64)
        half = np.ceil(np.sqrt((width**2).sum(axis=1)))
        drift = np.ceil(width.sum(axis=1) / self.reach)  # members that cannot be negative pull the sum up
        return centre - half.astype(np.int64), centre + (half + drift).astype(np.int64)


def _joined(below: Sequence[SentMessages]) -> SentMessages:
    sizes = np.cumsum([0, *(len(told.messages) for told in below)])
    ids = np.stack([np.where(told.ids >= 0, told.ids + start, -1) for told, start in zip(below, sizes, strict=False)])
    return SentMessages(ids, concat([told.messages for told in below]))


def _into(coarse: Layer, fine: Layer) -> NDArray[np.int64]:
    """The coarse answer that holds each fine one; -1 where nobody can be."""
    out = np.full(fine.query.size, -1, dtype=np.int64)
    possible = np.flatnonzero(fine.query.schema.possible)
    out[fine.query.index[possible]] = coarse.query.index[possible]
    return out


def _members(into: NDArray[np.int64], answers: int) -> list[tuple[int, NDArray[np.int64]]]:
    """For each coarse answer that somebody can be in, its fine answers, ascending."""
    order = np.argsort(into, kind="stable")
    cuts = np.searchsorted(into[order], np.arange(answers + 1))
    return [(a, order[cuts[a] : cuts[a + 1]]) for a in range(answers) if cuts[a + 1] > cuts[a]]


def _distinct(*columns: NDArray[np.int64]) -> tuple[tuple[NDArray[np.int64], ...], NDArray[np.int64]]:
    """Distinct rows of the columns side by side, and which of them each row is."""
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        if len(column) and (column != column[0]).any():
            values, inverse = np.unique(column, return_inverse=True)
            _, code = np.unique(code * len(values) + inverse, return_inverse=True)
    _, first = np.unique(code, return_index=True)
    return tuple(column[first] for column in columns), code


def _groups(rows: NDArray[np.int64]) -> Groups:
    """Rows of sorted message ids as groups: each distinct id once, with its multiplicity."""
    starts = np.ones(rows.shape, dtype=np.bool_)
    starts[:, 1:] = rows[:, 1:] != rows[:, :-1]
    at = np.flatnonzero(starts)
    multiplicity = np.diff(np.append(at, rows.size))
    offset = np.concatenate([[0], np.cumsum(starts.sum(axis=1))])
    return Groups(offset, rows.reshape(-1)[at], multiplicity)
