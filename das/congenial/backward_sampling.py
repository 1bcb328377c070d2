"""Backward sampling: draw the members of a group given their total, down the binary tree of its partial sums.

``tree.md`` has the proofs.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# The compiler infers the types of what it compiles.

from __future__ import annotations

import numpy as np

from das.compiled import compiled, compiled_part
from das.congenial.convolution_kernels import UNIT, add_up, bounded_exp, retilt
from das.congenial.extended_choice import CHOICE_ERROR, choose_extended
from das.congenial.tilts import LN2, dyadic_tilt, log_missing, rounding_margin
from das.congenial.windows import plan

_TRIES = 6
_RESOLUTION = 2.0**-127  # twice that of a word of 128 bits: one for each end of an outcome
_FINE_RESOLUTION = 2.0**-255  # the same for 256 bits


@compiled_part
def unit_interval(high, low):
    """Return (high 2^64 + low) / 2^128 with full relative accuracy."""
    return float(high) * 2.0**-64 + float(low) * 2.0**-128


@compiled_part
def choose(values, word):
    """Return the index drawn in proportion to log-concave values, and a bound on the relative error of any outcome.

    Both sides of the largest value are cumulated from their far ends, so a small value is added to small ones only.
    The index is -1 if all values are zero.
    """
    mode = 0
    for k in range(len(values)):
        if values[k] > values[mode]:
            mode = k
    left = right = 0.0
    for k in range(mode):
        left += values[k]
    for k in range(len(values) - 1, mode - 1, -1):
        right += values[k]
    total = left + right
    if not total > 0.0:
        return -1, np.inf
    error = (9.0 * total / values[mode] + 5.0) * UNIT
    reached = 0.0
    aim = unit_interval(word[0], word[1]) * total
    if aim < left:
        for k in range(mode):
            reached += values[k]
            if aim < reached:
                return k, error
        return mode - 1, error
    aim = unit_interval(~word[0], ~word[1]) * total
    for k in range(len(values) - 1, mode, -1):
        reached += values[k]
        if aim < reached:
            return k, error
    return mode, error


@compiled
def split_groups(functions, errors, groups, rows_each, totals, visits, allowance, limits, words, draws):
    """Split each group's total among its members, once for every visit. See `messages.split`.

    A visit is one draw of a group, as (row, place): where its rows of random words begin and where its draws go.
    `rows_each` is the number of rows that a member takes. Returns per visit the bound on the total variation, infinite
    for a group that is not proved, and the bound on the rounding error. Whether a group is proved, and whether one of
    its choices needs 256 bits in place of 128, depends on the group and its totals; no random word enters. `limits` has
    a row for each group: what the windows may lose and, again, all words together; and likewise for rounding.
    """
    group_offset, members, multiplicity = groups
    visit_offset, visit_row, visit_place = visits
    first, offset = functions.first, functions.offset
    lost = np.zeros(len(visit_row))
    rounding = np.zeros(len(visit_row))
    for g in range(len(group_offset) - 1):
        most_lost, most_rounded = limits[g]
        own = members[group_offset[g] : group_offset[g + 1]]
        times = multiplicity[group_offset[g] : group_offset[g + 1]]
        rows = rows_each[group_offset[g] : group_offset[g + 1]]
        total = totals[g]
        log_share = np.log(allowance) - 10.0 - np.log(times.sum())  # one share for each of about as many windows
        for _ in range(_TRIES):  # wider windows until the bound is small enough
            tilts, cuts, pieces = plan(functions, own, times, total, total, log_share)
            change = dyadic_tilt(functions, own, times, tilts, total, total)
            arena, starts, exponents, error, flushed = add_up(functions, errors, own, pieces, change)
            root = len(pieces) - 1
            value = arena[starts[root]]
            margin = rounding_margin(own, times, offset, tilts)
            log_lost = log_missing(tilts, cuts, log_share, total, margin)
            share = flushed[root] + bounded_exp(log_lost - (exponents[root] + change * total) * LN2)
            share = share / value * (1.0 + 1e-9) if value > 0.0 else np.inf
            if share <= most_lost:
                break
            log_share -= 20.0
        share = share if share <= most_lost and error[root] <= most_rounded else np.inf
        choices = max(1, times.sum() - 1)
        row_count, leaf_count = _counts(pieces, rows)
        stack = np.empty((64 + len(pieces), 4), dtype=np.int64)
        buffer = np.empty(1)
        for v in range(visit_offset[g], visit_offset[g + 1]):
            place = visit_place[v]
            for e in range(len(own)):
                for _ in range(times[e]):
                    draws[place] = first[own[e]]
                    place += 1
            rounding[v] = error[root]
            lost[v] = share
            if share == np.inf:
                continue
            depth = 1
            stack[0] = (root, total, visit_row[v], visit_place[v])
            while depth:
                depth -= 1
                p, remains, row, place = stack[depth]
                left, right = pieces[p, 0], pieces[p, 1]
                if left < 0:
                    draws[place] += remains
                    continue
                if remains == 0:
                    continue
                least = max(pieces[left, 4], remains - pieces[right, 5])
                largest = min(pieces[left, 5], remains - pieces[right, 4])
                width = largest - least + 1
                if width <= 0:
                    lost[v] = np.inf
                    break
                if width > len(buffer):
                    buffer = np.empty(2 * width)
                a, b = starts[left] - pieces[left, 4], starts[right] - pieces[right, 4]
                for k in range(width):
                    buffer[k] = arena[a + least + k] * arena[b + remains - least - k]
                word = words[row + row_count[left]]
                taken, rounded = choose(buffer[:width], word)
                if taken < 0:
                    lost[v] = np.inf
                    break
                if width > 1:
                    resolution = width * _RESOLUTION
                    if rounded * choices > most_rounded or resolution * choices > most_lost:
                        taken = choose_extended(buffer[:width], word)
                        rounded, resolution = CHOICE_ERROR, width * _FINE_RESOLUTION
                    rounding[v] += rounded
                    lost[v] += resolution
                taken += least
                stack[depth] = (left, taken, row, place)
                stack[depth + 1] = (right, remains - taken, row + row_count[left], place + leaf_count[left])
                depth += 2
    return lost, rounding


@compiled_part
def _counts(pieces, rows):
    """Return the number of rows of words, and of draws, below each piece."""
    row_count = np.empty(len(pieces), dtype=np.int64)
    leaf_count = np.empty(len(pieces), dtype=np.int64)
    for p in range(len(pieces)):
        if pieces[p, 2] >= 0:
            row_count[p] = pieces[p, 3] * rows[pieces[p, 2]]
            leaf_count[p] = pieces[p, 3]
        else:
            row_count[p] = row_count[pieces[p, 0]] + row_count[pieces[p, 1]]
            leaf_count[p] = leaf_count[pieces[p, 0]] + leaf_count[pieces[p, 1]]
    return row_count, leaf_count


@compiled
def draw_roots(functions, words):
    """Draw one value of each function; return the draws, the total variation without windows, and rounding errors."""
    first, offset, weight, tilt = functions.first, functions.offset, functions.weight, functions.tilt
    draws = np.empty(len(first), dtype=np.int64)
    lost = np.zeros(len(first))
    rounding = np.zeros(len(first))
    for i in range(len(first)):
        width = offset[i + 1] - offset[i]
        values = np.empty(width)
        _, flushed = retilt(weight[offset[i] : offset[i + 1]], tilt[i], values)
        taken, rounded = choose(values, words[i])
        draws[i] = first[i] + max(taken, 0)
        lost[i] = width * (2.0 * flushed + (_RESOLUTION if width > 1 else 0.0)) if taken >= 0 else np.inf
        rounding[i] = rounded if width > 1 else 0.0
    return draws, lost, rounding
