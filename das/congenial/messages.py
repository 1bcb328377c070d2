"""Messages of belief propagation on a tree of counts: made at leaves, multiplied at nodes, convolved and split.

The message of a subtree is a function of its total t: the sum of the weights of all tables of the subtree with that
total. It is stored on a window of the integers, with proved bounds on the rounding error of each value, on the mass
missing from it, and on the mass outside the window. ``tree.md`` has the theory.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from das.congenial.convolution import Split, roots, split, sums
from das.congenial.convolution_kernels import SMALLEST_SUM, TINY, UNIT
from das.congenial.function_store import Floats, Groups, Integers, Messages, WindowTooSmall, concat, offsets
from das.congenial.noise_weights import FACTOR_ERROR, factor_table
from das.congenial.tilts import LN2
from das.noise.two_sided import TwoSidedNoise

__all__ = [
    "Groups",
    "Messages",
    "Split",
    "WindowTooSmall",
    "concat",
    "leaves",
    "roots",
    "split",
    "sums",
    "times",
]

_BEYOND_TABLE = 2.0**-999


def leaves(
    counts: npt.ArrayLike,
    noise: TwoSidedNoise | None,
    lower: npt.ArrayLike,
    upper: npt.ArrayLike,
    reach: npt.ArrayLike,
) -> tuple[Messages, Integers]:
    """Return the distinct messages of leaves, and the index of each leaf's message.

    Parameters
    ----------
    counts : array of int
        True counts x.
    noise : TwoSidedNoise or None
        F(t) = p(t - x); None for an unmeasured leaf, F(t) = 1 on its box.
    lower, upper : array of int
        The interval of each leaf; lower is at least 0 for counts.
    reach : array of int
        A window is x - reach to x + reach, intersected with the box.
    """
    keys = np.stack(
        np.broadcast_arrays(*(np.asarray(a, dtype=np.int64) for a in (counts, lower, upper, reach))), axis=1
    )
    if noise is None:
        keys[:, 0], keys[:, 3] = 0, 0
    keys, ids = np.unique(keys, axis=0, return_inverse=True)
    centre, low, high, half = keys.T
    if noise is None:
        first, last = low, high
    else:
        half = np.minimum(half, len(factor_table(noise.weights)) - 1)
        first, last = np.maximum(low, centre - half), np.minimum(high, centre + half)
    if (first > last).any():
        raise WindowTooSmall("a leaf's box lies outside its window", (first > last)[ids].nonzero()[0])
    offset = offsets(last - first + 1)
    none = np.zeros(len(keys))
    flat = Messages(
        first=first,
        offset=offset,
        weight=np.ones(offset[-1]),
        missing=np.zeros(offset[-1]),
        tilt=np.zeros(len(keys), dtype=np.int64),
        log_scale=none,
        error=none,
        below=np.stack([np.where(first > low, 0.0, -np.inf), none], axis=1),
        above=np.stack([np.where(last < high, 0.0, -np.inf), none], axis=1),
    )
    return times(flat, centre, noise, low, high), ids.reshape(-1)


def times(
    messages: Messages,
    centres: npt.ArrayLike,
    noise: TwoSidedNoise | None,
    lower: npt.ArrayLike,
    upper: npt.ArrayLike,
) -> Messages:
    """Multiply each message by its node's noise factor p(t - centre) and restrict it to the node's interval.

    Parameters
    ----------
    messages : Messages
        One for each node.
    centres : array of int
        True counts of the nodes.
    noise : TwoSidedNoise or None
        None where the nodes are not measured.
    lower, upper : array of int
        The nodes' intervals; equal ends where a node is fixed.

    Examples
    --------
    >>> from das.noise import DiscreteGaussian
    >>> messages, _ = leaves([3], DiscreteGaussian(4), lower=0, upper=10**6, reach=30)
    >>> fixed = times(messages, [3], None, lower=3, upper=3)
    >>> round(float(np.exp(fixed.log_total()[0])), 6) == round(DiscreteGaussian(4).pmf(0), 6)
    True
    """
    count = len(messages)
    old_first, old_last = messages.first, messages.last
    low, high = (np.broadcast_to(np.asarray(a, dtype=np.int64), count) for a in (lower, upper))
    centre = np.broadcast_to(np.asarray(centres, dtype=np.int64), count)
    first, last = np.maximum(old_first, low), np.minimum(old_last, high)
    if (first > last).any():
        raise WindowTooSmall("a node's box lies outside its window", (first > last).nonzero()[0])
    lengths = last - first + 1
    offset = offsets(lengths)
    place = np.arange(offset[-1]) - np.repeat(offset[:-1], lengths)
    index = np.repeat(messages.offset[:-1] + first - old_first, lengths) + place
    weight, missing = messages.weight[index], messages.missing[index]
    below = np.where((low >= old_first)[:, None], -np.inf, messages.below)
    above = np.where((high <= old_last)[:, None], -np.inf, messages.above)
    error, log_scale = messages.error, messages.log_scale + messages.tilt * (first - old_first) * LN2
    if noise is not None:
        table = factor_table(noise.weights)
        away = np.abs(np.repeat(first - centre, lengths) + place)
        factor = np.where(away < len(table), table[np.minimum(away, len(table) - 1)], 0.0)
        kept = np.maximum(missing * np.maximum(factor, _BEYOND_TABLE) * (1 + 1e-15), 1e-300)
        missing = np.where(missing > 0, kept, 0.0)
        missing += np.where(factor > 0, 0.0, weight * _BEYOND_TABLE)
        weight = weight * factor
        error = error + (FACTOR_ERROR + UNIT)
        log_scale = log_scale + np.log(noise.pmf(0))
        below = below + _edge(noise, first - 1 - centre, -1)
        above = above + _edge(noise, last + 1 - centre, 1)
    largest = np.maximum.reduceat(weight, offset[:-1]) if count else weight[:0]
    if (largest < SMALLEST_SUM).any():
        raise WindowTooSmall("a node's true count is too far from its window", (largest < SMALLEST_SUM).nonzero()[0])
    exponent = np.frexp(largest)[1].astype(np.int64)
    small = weight < SMALLEST_SUM
    with np.errstate(over="ignore"):  # an infinite bound is one
        missing = np.ldexp(missing + np.where(small, 2 * SMALLEST_SUM, 0.0), -np.repeat(exponent, lengths))
    weight = np.ldexp(np.where(small, 0.0, weight), -np.repeat(exponent, lengths))
    flushed = ~small & (weight < TINY)
    shift = np.stack([exponent * LN2, np.zeros(count)], axis=1)
    return Messages(
        first=first,
        offset=offset,
        weight=np.where(flushed, 0.0, weight),
        missing=missing + np.where(flushed, 2 * TINY, 0.0),
        tilt=messages.tilt.copy(),
        log_scale=log_scale + exponent * LN2,
        error=error.copy(),
        below=below - shift,
        above=above - shift,
    )


def _edge(noise: TwoSidedNoise, away: Integers, step: int) -> Floats:
    """Return log w at a distance, and the log of the first ratio of neighbours beyond it, which is the largest."""
    quadratic, linear = float(noise.weights.quadratic), float(noise.weights.linear)

    def log_weight(k: Integers) -> Floats:
        size = np.abs(k).astype(np.float64)
        return -(quadratic * size * size + linear * size)

    log_value = log_weight(away)
    return np.stack([log_value, log_weight(away + step) - log_value], axis=1)
