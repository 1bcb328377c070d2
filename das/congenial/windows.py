"""Support windows of the partial sums of a group: a binary tree of partial sums, with a window for each.

A window comes from Chernoff's bound, under the tilts that put the mean of the sum at the ends of its own window.
``tree.md`` proves the bound on the mass that all windows together leave out.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# The compiler infers the types of what it compiles.

from __future__ import annotations

import math

import numpy as np

from das.compiled import compiled_part
from das.congenial.tilts import base_tilts, tilt_group


@compiled_part
def plan(functions, members, multiplicity, low, high, log_share):
    """Plan a group's sum on [low, high]. Returns (tilts, limits, pieces).

    A window leaves out at most e^log_share of its piece's mass on either side under every tilt in use (Chernoff at the
    outermost tilts, stochastic order at the others). A piece is (left, right, entry, size, low, high), -1 for none; its
    children come before it. The limits are: how many windows are cut below, and how many above (a piece that occurs
    several times counts as often); and the totals up to which the mass above a piece's window, and above a member's
    window, has no effect.
    """
    offset = functions.offset
    reach = expanded = np.int64(0)  # no literal, for which all that is called would be compiled twice
    members_hold = pieces_hold = high
    for e in range(len(members)):
        i = members[e]
        length = offset[i + 1] - offset[i]
        reach += multiplicity[e] * (length - 1)
        expanded += multiplicity[e]
        if functions.above[i, 0] > -np.inf:
            members_hold = min(members_hold, length - 1)
    tilts = base_tilts(functions, members, multiplicity, low, high, reach)
    away, log_each = _outer_tilts(functions, members, multiplicity, high, tilts, expanded, log_share)
    pieces, logs, widest = _pieces(functions, members, multiplicity, log_each)
    occurrences = _occurrences(pieces)

    cut_below = cut_above = 0
    for p in range(len(pieces) - 1):
        least = max(0, low - (reach - widest[p]))
        largest = min(widest[p], high)
        lowest, highest = -np.inf, np.inf
        for j in range(away.shape[1]):
            lowest = max(lowest, (logs[p, 0, 0] - logs[p, 0, j + 1] + log_share) / away[0, j])
            highest = min(highest, (logs[p, 1, j + 1] - logs[p, 1, 0] - log_share) / away[1, j])
        if lowest > least + 1:
            least = min(math.floor(lowest - 1e-6), largest)
            cut_below += occurrences[p]
        if highest < largest - 1:
            largest = max(math.ceil(highest + 1e-6), least)
            pieces_hold = min(pieces_hold, largest)
            cut_above += occurrences[p]
        pieces[p, 4], pieces[p, 5] = least, largest
    pieces[-1, 4], pieces[-1, 5] = low, high
    return tilts, (cut_below, cut_above, pieces_hold, members_hold), pieces


@compiled_part
def _outer_tilts(functions, members, multiplicity, high, tilts, expanded, log_share):
    """Return steps beyond the first and the last tilt, and each entry's log Z there; [side, 0] is without a step.

    The smallest step is nearly the best for the whole sum, the largest for a single one of as many equal members.
    """
    steps = 2 + math.ceil(0.5 * math.log2(expanded)) if expanded > 1 else 0
    away = np.empty((2, steps))
    log_each = np.empty((2, steps + 1, len(members)))
    for side in range(2):
        at = 0 if side == 0 else tilts.shape[1] - 1
        theta = tilts[0, at]
        tilt_group(functions, members, multiplicity, high, theta, log_each[side, 0])
        for j in range(steps):
            away[side, j] = 0.6 * math.sqrt(2.0 * -log_share) / max(tilts[1, at], 1e-3) * 2.0**j
            outer = theta - away[side, j] if side == 0 else theta + away[side, j]
            tilt_group(functions, members, multiplicity, high, outer, log_each[side, j + 1])
    return away, log_each


@compiled_part
def _occurrences(pieces):
    """Return how often each piece occurs in the whole tree of partial sums; each occurrence can leave its window."""
    occurrences = np.zeros(len(pieces), dtype=np.int64)
    occurrences[-1] = 1
    for p in range(len(pieces) - 1, -1, -1):
        if pieces[p, 0] >= 0:
            occurrences[pieces[p, 0]] += occurrences[p]
            occurrences[pieces[p, 1]] += occurrences[p]
    return occurrences


@compiled_part
def _pieces(functions, members, multiplicity, log_each):
    """Return the pieces (without windows), the log Z of each at the outer tilts, and the largest sum of each."""
    offset = functions.offset
    pieces = piece_tree(multiplicity)
    logs = np.empty((len(pieces), log_each.shape[0], log_each.shape[1]))
    widest = np.empty(len(pieces), dtype=np.int64)
    for p in range(len(pieces)):
        e, size = pieces[p, 2], pieces[p, 3]
        if e >= 0:
            logs[p] = size * log_each[:, :, e]
            widest[p] = size * (offset[members[e] + 1] - offset[members[e]] - 1)
        else:
            logs[p] = logs[pieces[p, 0]] + logs[pieces[p, 1]]
            widest[p] = widest[pieces[p, 0]] + widest[pieces[p, 1]]
    return pieces, logs, widest


@compiled_part
def piece_tree(multiplicity):
    """Return the binary tree of partial sums: pieces (left, right, entry, size, -1, -1), children before parents.

    An entry of multiplicity m is halved down to single members: one piece of each size floor(m / 2^h) and
    ceil(m / 2^h) is enough. The entries are then joined in pairs, neighbours first.
    """
    entries = len(multiplicity)
    most = entries
    for e in range(entries):
        most += 2 * math.ceil(math.log2(multiplicity[e]) + 1) + 2
    pieces = np.full((most, 6), -1, dtype=np.int64)
    level = np.empty(entries, dtype=np.int64)
    count = 0
    for e in range(entries):
        m = multiplicity[e]
        halvings = 0
        while (m + (1 << halvings) - 1) >> halvings > 1:
            halvings += 1
        small = large = -1
        for h in range(halvings, -1, -1):
            floor, ceiling = m >> h, (m + (1 << h) - 1) >> h
            new_small = new_large = -1
            for size in range(max(floor, 1), ceiling + 1):
                if size > 1:
                    half = size >> 1
                    pieces[count, 0] = small if half == m >> (h + 1) else large
                    pieces[count, 1] = small if size - half == m >> (h + 1) else large
                pieces[count, 2], pieces[count, 3] = e, size
                if size == floor:
                    new_small = count
                if size == ceiling:
                    new_large = count
                count += 1
            small, large = new_small, new_large
        level[e] = large
    alive = entries
    while alive > 1:
        for k in range(alive // 2):
            left, right = level[2 * k], level[2 * k + 1]
            pieces[count, 0], pieces[count, 1] = left, right
            pieces[count, 3] = pieces[left, 3] + pieces[right, 3]
            level[k] = count
            count += 1
        if alive % 2:
            level[alive // 2] = level[alive - 1]
        alive = (alive + 1) // 2
    return pieces[:count]
