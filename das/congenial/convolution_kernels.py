"""Direct convolution of groups on their support windows, with bounds on the error; ``tree.md`` has the proofs."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# The compiler infers the types of what it compiles.

from __future__ import annotations

import math

import numpy as np

from das.compiled import compiled, compiled_part
from das.congenial.tilts import (
    LN2,
    dyadic_tilt,
    log_geometric,
    log_missing,
    log_tilted_upper,
    rounding_margin,
    tilted_sums,
)
from das.congenial.windows import plan

UNIT = 2.0**-53 * (1 + 2.0**-20)  # the relative rounding error of one operation, with a margin for products of errors
TINY = 2.0**-900  # a smaller weight is flushed to zero and counted as missing
SMALLEST_SUM = 2.0**-960  # sums of products below it may have lost accuracy to underflow


@compiled_part
def convolve(a, b, skip, out):
    """Write out[t] = sum of a[i] b[t + skip - i]; return a bound on the relative rounding error.

    All terms are positive, so the relative error is at most the number of roundings of one term: one product, three
    additions within a row of eight, and one addition for each such row. Rows of eight also let the loop be vectorised.
    """
    if len(a) > len(b):
        a, b = b, a
    padded = np.zeros(len(b) + 14)
    padded[7 : 7 + len(b)] = b
    out[:] = 0.0
    row = np.empty(8)
    for i in range(0, len(a), 8):
        for k in range(8):
            row[k] = a[i + k] if i + k < len(a) else 0.0
        shift = i - skip  # a[i + k] b[j - k] goes to out[shift + j]
        start, stop = max(0, -shift), min(len(b) + 7, len(out) - shift)
        if stop > start:
            target = out[start + shift : stop + shift]
            source = padded[start : stop + 7]
            a0, a1, a2, a3, a4, a5, a6, a7 = row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7]
            for j in range(len(target)):
                target[j] += ((a0 * source[j + 7] + a1 * source[j + 6]) + (a2 * source[j + 5] + a3 * source[j + 4])) + (
                    (a4 * source[j + 3] + a5 * source[j + 2]) + (a6 * source[j + 1] + a7 * source[j])
                )
    return (4 + (len(a) + 7) // 8) * UNIT


@compiled_part
def _normalise(values):
    """Scale by a power of two so that the largest is in [1/2, 1), flush tiny values; return exponent and loss."""
    largest = values.max() if len(values) else 0.0
    if not largest > 0.0:
        return 0, 0.0
    _, exponent = math.frexp(largest)
    # Two steps: the scale itself may be out of range where every scaled value is in it.
    half = exponent // 2
    one, two = math.ldexp(1.0, -half), math.ldexp(1.0, half - exponent)
    lost = 0.0
    for k in range(len(values)):
        raw = values[k]
        values[k] = raw * one * two
        if raw < SMALLEST_SUM or values[k] < TINY:
            values[k] = 0.0
            lost = 2.0 * max(TINY, SMALLEST_SUM * one * two)
    return exponent, lost


@compiled_part
def retilt(weight, change, out):
    """Write weight[k] 2^(change k), scaled by a power of two and exact; return the exponent taken out and the loss."""
    if change == 0:
        out[:] = weight
        return _normalise(out)
    top = -(1 << 60)
    for k in range(len(weight)):
        if weight[k] > 0.0:
            top = max(top, math.frexp(weight[k])[1] + change * k)
    if top == -(1 << 60):
        out[:] = 0.0
        return 0, 0.0
    lost = 0.0
    for k in range(len(weight)):
        out[k] = math.ldexp(weight[k], max(change * k - top, -2000))
        if out[k] < TINY:
            lost = 2.0 * TINY
            out[k] = 0.0
    return top, lost


@compiled_part
def add_up(functions, errors, members, pieces, change):
    """Convolve the pieces of a plan, all under the tilt 2^-change.

    Returns the buffer of all values with its offsets, and per piece: its binary exponent, its relative rounding error,
    and a bound on what flushing tiny values to zero has taken from any of its values.
    """
    offset, weight, tilt = functions.offset, functions.weight, functions.tilt
    count = len(pieces)
    starts = np.zeros(count + 1, dtype=np.int64)
    for p in range(count):
        starts[p + 1] = starts[p] + max(0, pieces[p, 5] - pieces[p, 4] + 1)
    arena = np.empty(starts[count])
    exponents = np.zeros(count, dtype=np.int64)
    error = np.zeros(count)
    flushed = np.zeros(count)
    for p in range(count):
        out = arena[starts[p] : starts[p + 1]]
        left, right = pieces[p, 0], pieces[p, 1]
        if left < 0:
            i = members[pieces[p, 2]]
            from_, to = offset[i] + pieces[p, 4], offset[i] + pieces[p, 5] + 1
            move = tilt[i] - change
            exponent, flushed[p] = retilt(weight[from_:to], move, out)
            exponents[p] = exponent + move * pieces[p, 4]
            error[p] = errors[i]
        else:
            a, b = arena[starts[left] : starts[left + 1]], arena[starts[right] : starts[right + 1]]
            rounded = convolve(a, b, pieces[p, 4] - pieces[left, 4] - pieces[right, 4], out)
            exponent, lost = _normalise(out)
            exponents[p] = exponents[left] + exponents[right] + exponent
            error[p] = error[left] + error[right] + rounded
            if flushed[left] > 0.0 or flushed[right] > 0.0:
                carried = min(len(a), len(b)) * (flushed[left] + flushed[right] + flushed[left] * flushed[right])
                flushed[p] = carried * math.ldexp(1.0, -max(exponent, -900))
            flushed[p] += lost if exponent > -900 else np.inf
    return arena, starts, exponents, error, flushed


@compiled_part
def bounded_exp(log_value):
    """Return e^log_value, rounded up where a double cannot hold it; 0 for minus infinity alone."""
    if log_value == -np.inf:
        return 0.0
    return math.exp(max(log_value, -690.0)) if log_value < 690.0 else np.inf


@compiled
def sum_groups(functions, errors, groups, low, high, log_share, out_offset, out_weight, out_missing):
    """Convolve every group on [low, high] (relative): weights, missing mass, envelopes. See `messages.sums`."""
    group_offset, members, multiplicity = groups
    offset, missing, tilt = functions.offset, functions.missing, functions.tilt
    count = len(group_offset) - 1
    out_tilt = np.zeros(count, dtype=np.int64)
    out_exponent = np.zeros(count, dtype=np.int64)
    out_error = np.zeros(count)
    out_below = np.full((count, 2), -np.inf)
    out_above = np.full((count, 2), -np.inf)
    for g in range(count):
        own = members[group_offset[g] : group_offset[g + 1]]
        times = multiplicity[group_offset[g] : group_offset[g + 1]]
        tilts, limits, pieces = plan(functions, own, times, low[g], high[g], log_share)
        alone = len(pieces) == 1
        change = tilt[own[0]] if alone else dyadic_tilt(functions, own, times, tilts, low[g], high[g])
        arena, starts, exponents, error, flushed = add_up(functions, errors, own, pieces, change)
        root = len(pieces) - 1
        values = arena[starts[root] : starts[root + 1]]
        out_weight[out_offset[g] : out_offset[g + 1]] = values
        out_tilt[g] = change
        out_exponent[g] = exponents[root]
        out_error[g] = error[root]
        margin = rounding_margin(own, times, offset, tilts)
        for k in range(len(values)):
            at = low[g] + k
            lost = flushed[root]
            if alone:
                lost += missing[offset[own[0]] + at] * math.ldexp(1.0, -exponents[root])
            else:
                log_lost = log_missing(tilts, limits, log_share, at, margin)
                lost += bounded_exp(log_lost - (exponents[root] + change * at) * LN2)
            out_missing[out_offset[g] + k] = lost
        _envelope(functions, own, times, low[g], high[g], tilts, margin, out_below[g], out_above[g])
        for k in range(2):  # from the members' scale to the scale of what is stored
            edge, out = (low[g] - 1, out_below[g]) if k == 0 else (high[g] + 1, out_above[g])
            if out[0] > -np.inf:
                out[0] -= (exponents[root] + change * edge) * LN2
                out[1] += change * LN2 if k == 0 else -change * LN2
    return out_tilt, out_exponent, out_error, out_below, out_above


@compiled_part
def _envelope(functions, members, multiplicity, low, high, tilts, margin, below, above):
    """Write the exponential bounds e^(log Z - theta t) on the sum outside [low, high], each the best at its edge."""
    offset = functions.offset
    reach = 0
    open_below, open_above = low > 0, False
    for e in range(len(members)):
        i = members[e]
        reach += multiplicity[e] * (offset[i + 1] - offset[i] - 1)
        open_below = open_below or functions.below[i, 0] > -np.inf
        open_above = open_above or functions.above[i, 0] > -np.inf
    open_above = open_above or high < reach
    for side in range(2):
        if not (open_below if side == 0 else open_above):
            continue
        edge, out = (low - 1, below) if side == 0 else (high + 1, above)
        out[0] = out[1] = np.inf
        for b in range(tilts.shape[1]):
            value = tilts[3, b] - tilts[0, b] * edge + margin
            if value < out[0]:
                out[0] = value
                out[1] = tilts[0, b] if side == 0 else -tilts[0, b]


@compiled
def entry_windows(functions, groups, low, high, log_share):
    """Return the window of each entry of each group within the group's sum, which a shared power must cover."""
    group_offset, members, multiplicity = groups
    windows = np.empty((len(members), 2), dtype=np.int64)
    for g in range(len(group_offset) - 1):
        start, stop = group_offset[g], group_offset[g + 1]
        _, _, pieces = plan(functions, members[start:stop], multiplicity[start:stop], low[g], high[g], log_share)
        for p in range(len(pieces)):
            e = pieces[p, 2]
            if e >= 0 and pieces[p, 3] == multiplicity[start + e]:
                windows[start + e] = pieces[p, 4:6]
    return windows


@compiled
def totals(functions):
    """Return the log of each function's sum over its window, and of a bound on the mass missing there or outside."""
    offset, tilt, below, above = functions.offset, functions.tilt, functions.below, functions.above
    inside = np.empty(len(tilt))
    extra = np.empty(len(tilt))
    for i in range(len(tilt)):
        start, stop = offset[i], offset[i + 1]
        step = tilt[i] * LN2
        inside[i], _, _ = tilted_sums(functions.weight[start:stop], step)
        log_lost = log_tilted_upper(functions.missing[start:stop], step)
        under = log_geometric(below[i, 0] - step, below[i, 1] - step)
        over = log_geometric(above[i, 0] + step * (stop - start), above[i, 1] + step)
        extra[i] = np.logaddexp(np.logaddexp(log_lost, under), over)
    return inside, extra
