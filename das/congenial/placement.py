"""Where the counts of a family lie under the conditioned law, roughly: the windows of extended-range arithmetic.

Hundreds of thousands of empty cells that cannot be negative raise the sums above them, and a total that is known pushes
others down. So a count may lie far from its true value. A first pass up the tree estimates how each message behaves
under exponential tilting (its cumulant generating function), a pass down finds the tilt that the rest of the tree puts
on each count, and Chernoff's bound there gives a window. All of this is an estimate: what the windows leave out is
proved, or they are widened, when the messages are computed. No random word enters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from das.congenial.function_store import Floats, Integers
from das.noise.interval_arithmetic import Weights

__all__ = ["TILTS", "Windows", "capped", "leaf_cumulants", "node_cumulants", "passed_tilts", "windows_at"]

_POSITIVE = np.geomspace(1e-7, 3000.0, 120)
TILTS: Floats = np.concatenate([-_POSITIVE[::-1], [0.0], _POSITIVE])
"""Tilts at which cumulant generating functions are known; between them they are convex, and interpolated."""

_FAR = 1e300  # stands for an infinite value: it can be added, and compared
_SIDE = np.unique(np.concatenate([np.arange(9.0), np.round(np.geomspace(9, 2.0**41, 150))]))
_AWAY = np.concatenate([-_SIDE[:0:-1], _SIDE])


@dataclass(frozen=True, slots=True)
class Windows:
    """The first and the last count of each window; arrays of one shape."""

    first: Integers
    last: Integers


def _penalty(weights: Weights, away: Floats) -> Floats:
    size = np.abs(away)
    penalty: Floats = float(weights.quadratic) * size * size + float(weights.linear) * size
    return penalty


def leaf_cumulants(weights: Weights, below: npt.ArrayLike, above: npt.ArrayLike) -> Floats:
    """Return log of the sum over k of w(k) e^(theta k), -below <= k <= above, at every tilt; one row per leaf.

    Between a few dozen points the exponent is taken as linear, so the sum is one of geometric series.

    Examples
    --------
    >>> from fractions import Fraction
    >>> found = leaf_cumulants(Weights(Fraction(0), Fraction(1, 2)), [0], [10**12])[0]
    >>> exact = -np.log(-np.expm1(-0.5))  # 1 + e^-1/2 + e^-1 + ...
    >>> bool(abs(found[len(TILTS) // 2] - exact) < 1e-3)
    True
    """
    pairs = zip(np.asarray(below).tolist(), np.asarray(above).tolist(), strict=True)
    return np.stack([_leaf(weights, *pair) for pair in pairs]) if len(np.asarray(below)) else np.zeros((0, len(TILTS)))


@lru_cache(maxsize=8192)  # a handful of small counts are the same in every family
def _leaf(weights: Weights, below: int, above: int) -> Floats:
    points = np.unique(np.clip(_AWAY, -float(below), float(above)))
    left, right = points[:-1, None], points[1:, None]
    start, stop = TILTS * left - _penalty(weights, left), TILTS * right - _penalty(weights, right)
    # The sum of a geometric series of so many terms; start and stop are the logarithms of its ends.
    width = right - left
    slope = np.abs(stop - start) / width
    terms = np.where(slope * width < 1e-9, width, -np.expm1(-slope * width) / np.maximum(-np.expm1(-slope), 1e-300))
    logs = np.maximum(start, stop) - np.where(start < stop, slope, 0.0) + np.log(terms)
    last = TILTS * points[-1] - _penalty(weights, points[-1:])
    logs = np.concatenate([logs, last[None, :]])
    largest = logs.max(axis=0)
    found: Floats = largest + np.log(np.exp(logs - largest).sum(axis=0))
    return found


def _conjugate(weights: Weights | None, below: Floats, above: Floats, tilt: Floats) -> Floats:
    """Return the largest of tilt k - penalty(k) over -below <= k <= above: how a node answers to a tilt."""
    size = np.abs(tilt)
    room = np.where(tilt > 0, above, below)
    if weights is None:
        free: Floats = np.where(size > 0, np.minimum(size * room, _FAR), 0.0)
        return free
    quadratic, linear = float(weights.quadratic), float(weights.linear)
    best = np.where(size > linear, room, 0.0)
    if quadratic:
        best = np.minimum(room, np.maximum(size - linear, 0.0) / (2 * quadratic))
    value: Floats = np.minimum(size * best - quadratic * best * best - linear * best, _FAR)
    return value


def node_cumulants(summed: Floats, weights: Weights | None, below: Floats, above: Floats) -> Floats:
    """Return the cumulants of a sum's message times the noise and the interval of its node, to leading order.

    They are the infimal convolution of the sum's cumulants with the conjugate of the noise's exponent.

    Parameters
    ----------
    summed : array (nodes, tilts)
        Cumulants of the sums of what lies below.
    weights : Weights or None
        The noise of the nodes, None where they are not measured.
    below, above : array (nodes,)
        Room between the true count and the ends of the node's interval.
    """
    out = np.empty_like(summed)
    for k in range(len(summed)):
        out[k] = _through(summed[k], weights, below[k], above[k], TILTS)[0]
    return out


def _through(
    summed: Floats, weights: Weights | None, below: float, above: float, tilts: Floats
) -> tuple[Floats, Floats]:
    """Return the node's cumulants at these tilts, and the tilt that passes to what lies below it."""
    room = np.array(below), np.array(above)
    if weights is not None and weights.quadratic:
        values = summed + _conjugate(weights, *room, tilts[:, None] - TILTS)
        best = values.argmin(axis=1)
        return values[np.arange(len(tilts)), best], TILTS[best]
    # A fixed force takes that much of the tilt; at an end of the interval the node takes any tilt that is left.
    force = 0.0 if weights is None else float(weights.linear)
    slopes = np.diff(summed) / np.diff(TILTS)
    least = TILTS[:-1][slopes >= -below].min(initial=TILTS[-1])
    most = TILTS[1:][slopes <= above].max(initial=TILTS[0])
    inner = np.clip(np.clip(TILTS[int(summed.argmin())], tilts - force, tilts + force), least, max(least, most))
    return np.interp(inner, TILTS, summed) + _conjugate(weights, *room, tilts - inner), inner


def passed_tilts(summed: Floats, weights: Weights | None, below: Floats, above: Floats, tilts: Floats) -> Floats:
    """Return the tilt that each node passes down, given the one that the rest of the tree puts on it."""
    parts = [_through(summed[k], weights, below[k], above[k], tilts[k : k + 1])[1][0] for k in range(len(summed))]
    return np.array(parts, dtype=np.float64)


def windows_at(
    cumulants: Floats, tilts: Floats, centre: Integers, room: tuple[Floats, Floats], margin: Floats
) -> Windows:
    """Return windows around the mean under each node's tilt, with edges that many nats below: Chernoff's bound.

    Examples
    --------
    >>> from fractions import Fraction
    >>> cumulants = leaf_cumulants(Weights(Fraction(1, 8), Fraction(0)), [10], [10**9])
    >>> room = np.array([10.0]), np.array([1e9])
    >>> found = windows_at(cumulants, np.zeros(1), np.array([10]), room, np.array([100.0]))
    >>> int(found.first[0]), 45 < int(found.last[0]) < 50  # sigma2 = 4: 14 deviations, and 8
    (0, True)
    """
    first, last = np.empty_like(centre), np.empty_like(centre)
    for k in range(len(cumulants)):
        here = np.interp(tilts[k], TILTS, cumulants[k])
        away = TILTS - tilts[k]
        rise = cumulants[k] - here + margin[k]
        up, down = away > 1e-8, away < -1e-8
        most = (rise[up] / away[up]).min(initial=room[1][k])
        least = (rise[down] / -away[down]).min(initial=room[0][k])
        # A window has a few more points than it needs, and is never empty.
        first[k] = centre[k] - int(np.clip(max(np.ceil(least), -most) + 8, -room[1][k], room[0][k]))
        last[k] = centre[k] + int(np.clip(max(np.ceil(most), -least) + 8, -room[0][k], room[1][k]))
    return Windows(first, last)


def capped(windows: Windows, group: NDArray[np.int64], parent: Windows) -> Windows:
    """Cut windows above at what the parents' windows leave when all other members are at their least."""
    least = np.zeros(len(parent.first), dtype=np.int64)
    np.add.at(least, group, windows.first)
    most = parent.last[group] - (least[group] - windows.first)
    return Windows(windows.first, np.maximum(windows.first, np.minimum(windows.last, most)))
