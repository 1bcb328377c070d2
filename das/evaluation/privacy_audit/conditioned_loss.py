"""Exact privacy loss between two data sets of noise on a tree of counts that is conditioned on the public facts.

The loss of a draw s is a sum over the measured counts v that the two data sets differ in,
``log p_v(s_v - x_v) - log p_v(s_v - x'_v)``, plus ``log Z(x') / Z(x)``, the log-ratio of the probabilities that each
data set plus noise keeps the facts. Both are computed here by sums over the tree that share no code with the sampler;
the law of the loss by carrying its characteristic function along. Losses are rounded down to a grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from das.congenial.family import into
from das.congenial.tree import UNBOUNDED, Tree
from das.evaluation.privacy_audit.exact_loss import Floats, Losses, epsilon_lower
from das.evaluation.privacy_audit.mechanism_runs import Facts
from das.evaluation.privacy_audit.small_world import Counts, SmallWorld
from das.noise.two_sided import TwoSidedNoise
from das.plan.tree_of_counts import tree_of

__all__ = ["conditioned_epsilon_lower", "log_normalizer", "tree_of_world"]

REACH_BITS = 160
"""Counts further from the truth than where the noise has fallen by so many bits are left out."""
POINTS = 2**13
Spectrum = NDArray[np.complex128]


def tree_of_world(world: SmallWorld, facts: Facts) -> Tree:
    """Arrange the counts of a world as one tree, an unmeasured root above its top level; leaves in column order."""
    layers, spine, levels = tree_of(world.plan), world.spine, world.plan.levels
    parents: list[int] = [-1]
    noise: list[TwoSidedNoise | None] = [None]
    lower, upper = [0], [UNBOUNDED]
    above: dict[tuple[int, int], int] = {}
    for depth, level in enumerate(levels):
        parent_unit = spine.parent(level).tolist()
        for number, layer in enumerate(layers[level]):
            coarser = layers[level][number - 1] if number else layers[levels[depth - 1]][-1] if depth else None
            within = None if coarser is None else into(coarser, layer)
            known = facts.get((level, layer.query.name))
            here: dict[tuple[int, int], int] = {}
            for unit in range(spine.size(level)):
                for answer in np.flatnonzero(layer.reached).tolist():
                    at = unit if number else parent_unit[unit]
                    here[unit, answer] = len(parents)
                    parents.append(0 if within is None else above[at, int(within[answer])])
                    noise.append(layer.noise)
                    lower.append(0 if known is None else int(known[0][unit, answer]))
                    upper.append(UNBOUNDED if known is None else min(UNBOUNDED, int(known[1][unit, answer])))
            above = here
    return Tree(parents=tuple(parents), noise=tuple(noise), lower=tuple(lower), upper=tuple(upper))


def conditioned_epsilon_lower(tree: Tree, one: Counts, other: Counts, delta: Fraction) -> float:
    """Epsilon at delta of the conditioned draws for two data sets, rounded down; the larger of both directions."""
    logs = {which: log_normalizer(tree, data) for which, data in enumerate((one, other))}
    pairs = ((one, other, logs[1] - logs[0]), (other, one, logs[0] - logs[1]))
    if all(noise is None or not noise.weights.quadratic for noise in tree.noise):
        # Every term of the loss is largest at the draw s = x, which keeps the facts: the loss there is the largest.
        change = np.abs(tree.counts(one) - tree.counts(other))
        most = math.fsum(
            float(noise.weights.linear) * int(size) for noise, size in zip(tree.noise, change, strict=True) if noise
        )
        return max(0.0, (most + max(ratio for *_, ratio in pairs)) * (1 - 1e-9) - 1e-9)
    return max(epsilon_lower(_losses(tree, x, y, ratio), delta) for x, y, ratio in pairs)


def log_normalizer(tree: Tree, data: Counts) -> float:
    """Log of the probability that a data set plus noise keeps the facts, by sums over the tree."""
    message = _swept(tree, tree.counts(data), {}, 1)
    return message.log_scale + math.log(float(np.abs(message.values[:, 0]).sum()))


@dataclass(frozen=True, slots=True)
class _Message:
    """A function of a count, from `first` on, times exp(log_scale): its values, or their spectra along the loss."""

    first: int
    values: Spectrum
    log_scale: float


def _losses(tree: Tree, one: Counts, other: Counts, ratio: float) -> Losses:
    """Law of the loss under the first data set."""
    x, y = tree.counts(one), tree.counts(other)
    windows = {v: _window(tree, v, int(x[v])) for v, noise in enumerate(tree.noise) if noise and x[v] != y[v]}
    terms = {}
    for v, (low, high) in windows.items():
        s, noise = np.arange(low, high + 1), tree.noise[v]
        if noise is not None:
            terms[v] = noise.log_pmf(s - x[v]) - noise.log_pmf(s - y[v])
    least = math.fsum(float(term.min()) for term in terms.values())
    most = math.fsum(float(term.max()) for term in terms.values())
    step = (most - least) / (POINTS - 1 - len(terms)) or 1.0
    places = {v: np.floor((term - term.min()) / step) for v, term in terms.items()}
    message = _swept(tree, x, places, POINTS // 2 + 1)
    summed = message.values.sum(axis=0)
    masses = np.maximum(np.fft.irfft(summed, POINTS), 0.0) / float(summed[0].real)
    return Losses(step, least + ratio, masses)


def _swept(tree: Tree, x: Counts, places: dict[int, Floats], width: int) -> _Message:
    """Sum over everything below the root; `places` are the losses, in steps, of the counts that differ."""
    frequencies = 2j * np.pi * np.arange(width) / POINTS
    messages: dict[int, _Message] = {}
    low, high = tree.box
    for v in reversed(range(len(tree.parents))):
        below = [messages.pop(child) for child in tree.children[v]]
        noise = tree.noise[v]
        if below:
            found = _summed(below)
            first, last = found.first, found.first + len(found.values) - 1
            start, stop = max(first, int(low[v])), min(last, int(high[v]))
            if noise is not None:
                window = _window(tree, v, int(x[v]))
                start, stop = max(start, window[0]), min(stop, window[1])
            found = _Message(start, found.values[start - first : stop - first + 1], found.log_scale)
        else:
            start, stop = _window(tree, v, int(x[v]))
            found = _Message(start, np.ones((stop - start + 1, 1), dtype=np.complex128), 0.0)
        values = found.values
        if noise is not None:
            values = values * np.exp(noise.log_pmf(np.arange(start, stop + 1) - x[v]))[:, None]
        if v in places:
            begins = _window(tree, v, int(x[v]))[0]
            values = values * np.exp(-np.outer(places[v][start - begins : stop - begins + 1], frequencies))
        scale = float(np.abs(values[:, 0]).max())
        messages[v] = _Message(start, values / scale, found.log_scale + math.log(scale))
    return messages[0]


def _summed(below: list[_Message]) -> _Message:
    """Convolve messages: those without a loss first."""
    plain, *more = sorted(below, key=lambda message: message.values.shape[1])
    for message in more:
        values = _convolved(message.values, plain.values)
        scale = float(np.abs(values[:, 0]).max())
        plain = _Message(
            plain.first + message.first, values / scale, plain.log_scale + message.log_scale + math.log(scale)
        )
    return plain


def _convolved(one: Spectrum, other: Spectrum) -> Spectrum:
    """Convolve along the counts, frequency by frequency: sums of products, never a transform along the counts."""
    if other.shape[1] == 1:
        if one.shape[1] == 1:
            return np.convolve(one[:, 0].real, other[:, 0].real)[:, None].astype(np.complex128)
        padded = np.zeros(len(one) + len(other) - 1 + len(one) - 1, dtype=np.float64)
        padded[len(one) - 1 : len(one) - 1 + len(other)] = other[:, 0].real
        return np.asarray(sliding_window_view(padded, len(one))[:, ::-1] @ one)
    out = np.zeros((len(one) + len(other) - 1, one.shape[1]), dtype=np.complex128)
    for at, row in enumerate(one):
        out[at : at + len(other)] += row * other
    return out


def _window(tree: Tree, v: int, true: int) -> tuple[int, int]:
    """Counts of a node that are summed over: around the truth where it is measured, within its limits."""
    low, high = int(tree.box[0][v]), int(tree.box[1][v])
    noise = tree.noise[v]
    if noise is None:
        return low, high
    reach = noise.weights.reach(REACH_BITS)
    return max(low, true - reach), min(high, true + reach)
