"""Exponential tilting of sums of functions: moments of a sum, and Chernoff bounds on the mass outside a window.

A function F on integers is stored as F(first + k) = 2^(tilt k) weight[k] times a scale. A group is a sum of independent
members; it is computed along a binary tree of partial sums (pieces), each stored on a window. Positions are relative: 0
is the least stored value of a member, and for a piece the sum of its members' least values. ``tree.md`` has the
proofs.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# The compiler infers the types of what it compiles.

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from das.compiled import compiled_part

LN2 = math.log(2.0)
_LEAST = 1e-299  # about e^-690
_NEGLIGIBLE = 668.0  # e^-668 is negligible beside 2^-900, the smallest weight that is stored
_LARGEST_TILT = 300.0
_MOST_TILTS = 48
_MOST_FALL = 450.0  # a window should hold values down to e^-450 of the largest


class FunctionArrays(NamedTuple):
    """The arrays of `das.congenial.function_store.Messages` that the compiled loops read."""

    first: NDArray[np.int64]
    offset: NDArray[np.int64]
    weight: NDArray[np.float64]
    missing: NDArray[np.float64]
    tilt: NDArray[np.int64]
    below: NDArray[np.float64]
    above: NDArray[np.float64]


@compiled_part
def tilted_sums(weight, step):
    """Return log Z, mean and variance of weight[k] e^(step k).

    The sum starts where the tilt is largest, at the first weight there that is not zero and so at least 2^-900, with a
    factor that is one and falls. So nothing overflows, and what is left out at the end is negligible beside that
    weight. A tilt beyond the largest allowed one returns an infinite sum, a valid bound that is never the best.
    """
    if abs(step) > _LARGEST_TILT:
        return np.inf, 0.0, 0.0
    start, stop = 0, len(weight) - 1
    while start < stop and weight[start] == 0.0:
        start += 1
    while stop > start and weight[stop] == 0.0:
        stop -= 1
    from_, way = (stop, -1) if step > 0.0 else (start, 1)
    count = stop - start + 1
    if abs(step) * count > _NEGLIGIBLE:
        count = int(_NEGLIGIBLE / abs(step)) + 1
    fall = math.exp(-abs(step))
    factor, position, at = 1.0, 0.0, from_
    total = first_moment = second_moment = 0.0
    for _ in range(count):
        term = weight[at] * factor
        total += term
        term *= position
        first_moment += term
        second_moment += term * position
        factor *= fall
        position += 1.0
        at += way
    if total <= 0.0:
        return -np.inf, 0.0, 0.0
    mean = first_moment / total
    variance = max(second_moment / total - mean * mean, 0.0)
    return math.log(total) + step * from_, from_ + way * mean, variance


@compiled_part
def log_tilted_upper(missing, step):
    """Return the log of the sum of missing[k] e^(step k), rounded up."""
    largest = missing.max()
    if largest == 0.0:
        return -np.inf
    if abs(step) > _LARGEST_TILT or largest == np.inf:
        return np.inf
    from_, way = (len(missing) - 1, -1) if step > 0.0 else (0, 1)
    fall = math.exp(-abs(step))
    factor, total, at = 1.0 / largest, 0.0, from_
    # Below the least factor a term is counted with the least: a bound, and no arithmetic with subnormal numbers.
    count = len(missing) if abs(step) * len(missing) < 690.0 else int(690.0 / abs(step))
    for _ in range(count):
        total += missing[at] * factor
        factor *= fall
        at += way
    return math.log(total + len(missing) * _LEAST) + math.log(largest) + step * from_


@compiled_part
def log_geometric(log_value, log_ratio):
    """Return the log of value (1 + ratio + ratio^2 + ...), infinite where it diverges."""
    if log_value == -np.inf:
        return -np.inf
    if log_ratio > -1e-9:
        return np.inf
    return log_value - math.log(-math.expm1(log_ratio))


@compiled_part
def tilt_group(functions, members, multiplicity, high, theta, log_each):
    """Return eight numbers about a group tilted by e^(theta s), and write each member's log Z to `log_each`.

    They are log Z, mean and variance of the sum of what is stored; log Z with all that is missing or outside, for every
    total and for totals up to `high` with no member below its window; and the logs of three sums of members' shares:
    of what is below a window in the former, of what is missing in it and of what is above it in the latter. While no
    member is below its window none can be above the total, so a window as long as `high` has nothing above it.
    """
    offset, weight, missing, tilt, below, above = (
        functions.offset,
        functions.weight,
        functions.missing,
        functions.tilt,
        functions.below,
        functions.above,
    )
    log_z = mean = variance = log_full = log_near = under = within = over = 0.0
    for e in range(len(members)):
        i, m = members[e], multiplicity[e]
        start, stop = offset[i], offset[i + 1]
        step = theta + tilt[i] * LN2
        log_each[e], mean_i, variance_i = tilted_sums(weight[start:stop], step)
        log_lost = log_tilted_upper(missing[start:stop], step)
        log_z += m * log_each[e]
        mean += m * mean_i
        variance += m * variance_i
        log_below = log_geometric(below[i, 0] - step, below[i, 1] - step)
        log_above = log_geometric(above[i, 0] + step * (stop - start), above[i, 1] + step)
        log_near_i = np.logaddexp(log_each[e], log_lost)
        log_full_i = np.logaddexp(np.logaddexp(log_near_i, log_below), log_above)
        if stop - start <= high:
            log_near_i = np.logaddexp(log_near_i, log_above)
            over += m * _share(log_above, log_near_i)
        log_full += m * log_full_i
        log_near += m * log_near_i
        under += m * _share(log_below, log_full_i)
        within += m * _share(log_lost, log_near_i)
    return log_z, mean, variance, log_full, log_near, np.log(under), np.log(within), np.log(over)


@compiled_part
def _share(log_part, log_whole):
    if log_part == -np.inf:
        return 0.0
    return math.exp(log_part - log_whole) if log_whole < np.inf else 1.0


@compiled_part
def _usable_tilts(functions, members):
    """Return the interval of tilts at which every member's envelope converges, well inside."""
    tilt, below, above = functions.tilt, functions.below, functions.above
    least, most = -np.inf, np.inf
    for i in members:
        least = max(least, -_LARGEST_TILT - tilt[i] * LN2)
        most = min(most, _LARGEST_TILT - tilt[i] * LN2)
        if below[i, 0] > -np.inf:
            least = max(least, below[i, 1] + 0.03 * max(abs(below[i, 1]), 1e-6) - tilt[i] * LN2)
        if above[i, 0] > -np.inf:
            most = min(most, -above[i, 1] - 0.03 * max(abs(above[i, 1]), 1e-6) - tilt[i] * LN2)
    return least, max(least, most)


@compiled_part
def _solve_tilt(functions, members, multiplicity, target, initial, log_each):
    """Return a theta whose tilted mean is near the target. Every theta gives a valid bound; this one is sharp."""
    lowest, highest = _usable_tilts(functions, members)
    least, most, theta = -np.inf, np.inf, min(max(initial, lowest), highest)
    for _ in range(80):
        _, mean, variance, _, _, _, _, _ = tilt_group(functions, members, multiplicity, 0, theta, log_each)
        away = mean - target
        if abs(away) <= 0.5 * math.sqrt(variance) + 0.02:
            break
        if away > 0:
            most = theta
        else:
            least = theta
        longest = max(1.0, abs(theta))
        proposal = theta + min(max(-away / max(variance, 1e-12), -longest), longest)
        if not least < proposal < most:
            proposal = 0.5 * (least + most)
        proposal = min(max(proposal, lowest), highest)
        if proposal == theta:
            break
        theta = proposal
    return theta


@compiled_part
def base_tilts(functions, members, multiplicity, low, high, reach):
    """Return base tilts, whose means go from low to high in steps of a few standard deviations, with their sums.

    Rows: theta, the standard deviation, log Z of what is stored, then the last five numbers of `tilt_group`.
    """
    log_each = np.empty(len(members))
    rows = np.empty((8, _MOST_TILTS))
    margin = min(0.3, 0.3 * reach)  # a mean at an end of its range would need an infinite tilt
    start, stop = min(max(low, margin), reach - margin), min(max(high, margin), reach - margin)
    theta = _solve_tilt(functions, members, multiplicity, start, 0.0, log_each)
    last = theta
    if start < stop:
        last = max(theta, _solve_tilt(functions, members, multiplicity, stop, theta, log_each))
    moments = tilt_group(functions, members, multiplicity, high, theta, log_each)
    count = 0
    while True:
        mean, deviation = moments[1], math.sqrt(moments[2])
        rows[:, count] = (theta, deviation, moments[0], moments[3], moments[4], moments[5], moments[6], moments[7])
        count += 1
        if theta >= last or count == _MOST_TILTS:
            return rows[:, :count]
        step = 4.0 / max(deviation, 1e-3)
        for _ in range(30):
            proposal = min(theta + step, last) if count < _MOST_TILTS - 1 else last
            moments = tilt_group(functions, members, multiplicity, high, proposal, log_each)
            if moments[1] - mean <= 3.0 * (deviation + math.sqrt(moments[2])) + 2.0:
                break
            step *= 0.5
        theta = proposal


@compiled_part
def dyadic_tilt(functions, members, multiplicity, tilts, low, high):
    """Return the integer c for which the group's sum over its window, divided by 2^(c t), is nearly flat.

    The line through the logarithms of the sum at both ends is best. Where the sum rises too far above that line (in a
    window much wider than the members can reach), the values around its maximum must be represented.
    """
    last = tilts.shape[1] - 1
    rate = -0.5 * (tilts[0, 0] + tilts[0, last])
    if low < high:
        left, right = tilts[2, 0] - tilts[0, 0] * low, tilts[2, last] - tilts[0, last] * high
        rate = (right - left) / (high - low)
        moments = tilt_group(functions, members, multiplicity, high, -rate, np.empty(len(members)))
        if not moments[0] - (left - rate * low) < _MOST_FALL:
            rate = -min(max(0.0, tilts[0, 0]), tilts[0, last])
    return round(rate / LN2)


@compiled_part
def log_missing(tilts, limits, log_share, position, margin):
    """Return the log of a bound on the mass missing from the sum at a total: the best over the base tilts."""
    cut_below, cut_above, pieces_hold, members_hold = limits
    cuts = cut_below + (cut_above if position > pieces_hold else 0)
    best = np.inf
    for b in range(tilts.shape[1]):
        lost = tilts[3, b] + tilts[5, b] if tilts[5, b] > -np.inf else -np.inf
        share = np.logaddexp(tilts[6, b], tilts[7, b]) if position > members_hold else tilts[6, b]
        if share > -np.inf:
            lost = np.logaddexp(lost, tilts[4, b] + share)
        if cuts > 0:
            lost = np.logaddexp(lost, tilts[2, b] + math.log(cuts) + log_share)
        best = min(best, lost - tilts[0, b] * position)
    return best + margin


@compiled_part
def rounding_margin(members, multiplicity, offset, tilts):
    """Return an upper bound on the rounding error of any logarithm that a plan computes."""
    size = longest = 0
    for e in range(len(members)):
        size += multiplicity[e]
        longest = max(longest, offset[members[e] + 1] - offset[members[e]])
    largest = 0.0
    for b in range(tilts.shape[1]):
        largest = max(largest, abs(tilts[2, b]) + abs(tilts[0, b]) * longest * size)
    return 1e-6 + 1e-14 * size * longest + 1e-12 * largest
