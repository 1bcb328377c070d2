"""Noise on a tree of counts, conditioned on the public facts: normaliser, density and draws with proved errors.

With independent integer noise of law p_v at each measured node v, and x the true counts,

    p*(s | x)  is proportional to  product over v of p_v(s_v - x_v)    on S*,

S* = {children sum to their parent, leaves are not negative, l_v <= s_v <= u_v}: the congenial mechanism of Gong and
Meng (2020) for nested constraints. ``tree.md`` says how it is computed and what is proved. This module handles a whole
tree in memory; a census is drawn family by family with the same messages (`das.congenial.family`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from das.congenial.function_store import Floats, Integers
from das.congenial.messages import Groups, Messages, WindowTooSmall, concat, leaves, roots, split, sums, times
from das.errors import ConfigError, InfeasibleError, Problem
from das.noise.stream import Bundle
from das.noise.two_sided import TwoSidedNoise

__all__ = ["UNBOUNDED", "Tree", "TreeDraws"]

UNBOUNDED = 2**40
ALLOWANCE = 2.0**-100
_REACH_BITS = (160, 320, 640, 990)  # windows end where the weight of a node's noise has fallen by this many bits
_CHUNK = 2048
_MORE = 2**31  # positions of the words that are read only where 128 bits are too few


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeDraws:
    """Draws of all nodes, with proved bounds on the distance of their law from p*, the largest over the draws.

    Parameters
    ----------
    counts : array (draws, nodes) of int
        The drawn counts.
    total_variation : float
        Bound on the total variation distance, from windows and finite random words.
    log_ratio : float
        Bound on the log-ratio of each outcome's probability, from rounding.
    """

    counts: Integers
    total_variation: float
    log_ratio: float


@dataclass(frozen=True)
class Tree:
    """A tree of counts: the parent, the noise and the interval of each node.

    Parameters
    ----------
    parents : sequence of int
        The parent of each node, -1 for the root, which is node 0. Nodes without children are the leaves.
    noise : sequence of TwoSidedNoise or None
        None where a node is not measured.
    lower, upper : sequence of int
        Intervals; equal ends where a node is fixed. Leaves are never negative. An unmeasured leaf needs an upper bound,
        its own or one that follows from the nodes above it.

    Examples
    --------
    >>> from das.noise import DiscreteGaussian, RunKey
    >>> noise = DiscreteGaussian(4)
    >>> free = (99, 99, 99)
    >>> tree = Tree(parents=(-1, 0, 0, 0), noise=(None, *(noise,) * 3), lower=(20, 0, 0, 0), upper=(20, *free))
    >>> tree.leaves.tolist()
    [1, 2, 3]
    >>> bundle = RunKey.for_testing("doc").streams(b"").bundle([("tree", "", "cells", noise.name)])
    >>> drawn = tree.draw([12, 8, 0], bundle, 1000)
    >>> drawn.counts.shape, set(drawn.counts[:, 1:].sum(axis=1).tolist()), drawn.total_variation < 2**-100
    ((1000, 4), {20}, True)
    >>> round(float(tree.log_density([12, 7, 1], [12, 8, 0])), 6)
    -2.450292
    """

    parents: tuple[int, ...]
    noise: tuple[TwoSidedNoise | None, ...]
    lower: tuple[int, ...]
    upper: tuple[int, ...]

    def __post_init__(self) -> None:
        size = len(self.parents)
        for name in ("parents", "noise", "lower", "upper"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not size or not len(self.noise) == len(self.lower) == len(self.upper) == size:
            raise ConfigError(
                Problem("tree", "its arrays have different lengths, or none", "give one entry for each node")
            )
        for node, parent in enumerate(self.parents):
            if (parent != -1) if node == 0 else not 0 <= parent < node:
                raise ConfigError(
                    Problem(f"tree, node {node}", "its parent does not come before it", "list nodes top down")
                )
        self.box  # noqa: B018 - a tree without a feasible table is refused when it is made

    @classmethod
    def star(
        cls, cells: int, noise: TwoSidedNoise, *, total: int | None = None, total_noise: TwoSidedNoise | None = None
    ) -> Tree:
        """Return the tree of one total over cells with equal noise; the total is fixed, measured, or neither."""
        low, high = (0, UNBOUNDED) if total is None else (total, total)
        return cls(
            parents=(-1, *(0,) * cells),
            noise=(total_noise, *(noise,) * cells),
            lower=(low, *(0,) * cells),
            upper=(high, *(UNBOUNDED,) * cells),
        )

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """The children of each node, in order."""
        children: list[list[int]] = [[] for _ in self.parents]
        for node, parent in enumerate(self.parents[1:], start=1):
            children[parent].append(node)
        return tuple(tuple(nodes) for nodes in children)

    @cached_property
    def leaves(self) -> Integers:
        """The nodes without children: the cells of the table."""
        return np.array([node for node, nodes in enumerate(self.children) if not nodes], dtype=np.int64)

    @cached_property
    def box(self) -> tuple[Integers, Integers]:
        """The bounds of each node, tightened by the bounds of all other nodes."""
        low, high = list(self.lower), list(self.upper)
        for node in reversed(range(len(low))):
            below = self.children[node]
            low[node] = max(low[node], sum(low[child] for child in below) if below else 0)
            if below:
                high[node] = min(high[node], sum(high[child] for child in below))
        for node, below in enumerate(self.children):
            least, most = sum(low[child] for child in below), sum(high[child] for child in below)
            for child in below:
                low[child], high[child] = (
                    max(low[child], low[node] - (most - high[child])),
                    min(high[child], high[node] - (least - low[child])),
                )
        empty = [node for node in range(len(low)) if low[node] > high[node]]
        if empty:
            raise InfeasibleError(
                Problem(f"tree, node {node}", "no count satisfies the bounds", "look at those around it")
                for node in empty
            )
        return np.array(low, dtype=np.int64), np.array(high, dtype=np.int64)

    def counts(self, x: npt.ArrayLike) -> Integers:
        """Return the counts of all nodes (last axis) from those of the leaves."""
        at_leaves = np.asarray(x, dtype=np.int64)
        out = np.zeros((*at_leaves.shape[:-1], len(self.parents)), dtype=np.int64)
        out[..., self.leaves] = at_leaves
        for node in range(len(self.parents) - 1, 0, -1):
            out[..., self.parents[node]] += out[..., node]
        return out

    def log_normalizer(self, x: npt.ArrayLike) -> float:
        """Return log Z(x), Z(x) the probability (for unmeasured leaves: mass) that x plus noise lies in S*."""
        return float(self._upward(x)[0].log_total()[-1])

    def log_density(self, s: npt.ArrayLike, x: npt.ArrayLike) -> Floats:
        """Return log p*(s | x) for one table or many (leaves along the last axis), minus infinity outside S*."""
        drawn, true = self.counts(s), self.counts(x)
        logs = np.full(drawn.shape[:-1], -self.log_normalizer(x))
        for node, noise in enumerate(self.noise):
            if noise is not None:
                logs = logs + noise.log_pmf(drawn[..., node] - true[node])
        low, high = self.box
        inside: Floats = np.where(((drawn >= low) & (drawn <= high)).all(axis=-1), logs, -np.inf)
        return inside

    def draw(self, x: npt.ArrayLike, bundle: Bundle, n: int) -> TreeDraws:
        """Return n independent draws of all nodes.

        The random words of node v in draw i are at position i * nodes + v of the bundle's first stream. All draws share
        one forward pass, a function of x; the draws are functions of x and of these words alone.
        """
        size = len(self.parents)
        messages, ids = self._upward(x)
        counts = np.zeros((n, size), dtype=np.int64)
        lost, error = np.zeros(n), np.full(n, 2.0 * messages.error[-1])
        for start in range(0, n, _CHUNK):
            rows = np.arange(start, min(start + _CHUNK, n))

            def words(nodes: Integers, rows: Integers = rows) -> npt.NDArray[np.uint64]:
                positions = (rows[:, None] * size + nodes).reshape(-1)
                stream = np.zeros(len(positions), dtype=np.int64)
                return np.concatenate([bundle.words(stream, positions + at) for at in (0, _MORE)], axis=1)

            top = roots(messages.pick(np.full(len(rows), ids[0])), words(np.zeros(1, dtype=np.int64)))
            counts[rows, 0] = top.draws
            lost[rows] += top.lost
            error[rows] += top.error
            for node, below in enumerate(self.children):
                if below:
                    order, entries = _entries(ids, below)
                    parts = split(messages, Groups.of([entries] * len(rows)), counts[rows, node], words(order))
                    counts[np.ix_(rows, order)] = parts.draws.reshape(len(rows), -1)
                    lost[rows] += parts.lost
                    error[rows] += parts.error
        return TreeDraws(
            counts=counts, total_variation=float(lost.max(initial=0.0)), log_ratio=float(error.max(initial=0.0))
        )

    def _upward(self, x: npt.ArrayLike) -> tuple[Messages, Integers]:
        """Forward pass: return the messages of all nodes, the root's last, and the index of each node's message."""
        true = self.counts(x)
        for bits in _REACH_BITS[:-1]:
            try:
                return self._upward_within(true, bits)
            except WindowTooSmall:
                continue
        return self._upward_within(true, _REACH_BITS[-1])

    def _upward_within(self, true: Integers, bits: int) -> tuple[Messages, Integers]:
        low, high = self.box
        ids = np.full(len(self.parents), -1, dtype=np.int64)
        stores: list[Messages] = []
        made = 0
        for nodes in self._from_below():
            summed = None
            if self.children[nodes[0]]:
                store = stores[0] if len(stores) == 1 else concat(stores)
                stores = [store]
                groups = Groups.of([_entries(ids, self.children[node])[1] for node in nodes])
                first, last = groups.add(store.first), groups.add(store.last)
                half = np.array([_half(self.noise[node], bits) for node in nodes])
                summed = sums(
                    store,
                    groups,
                    np.maximum(np.maximum(first, low[nodes]), true[nodes] - half),
                    np.minimum(np.minimum(last, high[nodes]), true[nodes] + half),
                )
            for noise in dict.fromkeys(self.noise[node] for node in nodes):
                at = np.array([k for k, node in enumerate(nodes) if self.noise[node] == noise])
                those = np.array(nodes)[at]
                if summed is None:
                    if noise is None and (high[those] >= UNBOUNDED).any():
                        raise ConfigError(
                            Problem("tree", "a leaf is neither measured nor bounded", "give it an upper bound or noise")
                        )
                    store, place = leaves(true[those], noise, low[those], high[those], _half(noise, bits))
                    ids[those] = made + place
                else:
                    store = times(summed.pick(at), true[those], noise, low[those], high[those])
                    ids[those] = made + np.arange(len(those))
                stores.append(store)
                made += len(store)
        messages = concat(stores)
        if messages.pick([made - 1]).lost_upper()[0] > ALLOWANCE:
            raise WindowTooSmall("the windows of the tree leave out too much mass")
        return messages, ids

    def _from_below(self) -> Iterator[list[int]]:
        """Yield the nodes by height, leaves first, so that each comes after everything below it."""
        height = [0] * len(self.parents)
        for node in range(len(self.parents) - 1, 0, -1):
            height[self.parents[node]] = max(height[self.parents[node]], height[node] + 1)
        for level in range(height[0] + 1):
            yield [node for node, h in enumerate(height) if h == level]


def _entries(ids: Integers, below: Sequence[int]) -> tuple[Integers, list[tuple[int, int]]]:
    """Return the children sorted by message, and the distinct messages with their multiplicities."""
    order = np.array(below)[np.argsort(ids[list(below)], kind="stable")]
    values, counts = np.unique(ids[order], return_counts=True)
    return order, list(zip(values.tolist(), counts.tolist(), strict=True))


def _half(noise: TwoSidedNoise | None, bits: int) -> int:
    return UNBOUNDED if noise is None else noise.weights.reach(bits)
