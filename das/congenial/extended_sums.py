"""Sums of groups, and splits of their totals, in extended-range arithmetic; ``tree.md`` has the proofs."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# The compiler infers the types of what it compiles.

from __future__ import annotations

import numpy as np

from das.compiled import compiled
from das.congenial.extended_choice import choose_extended, scale_products
from das.congenial.extended_convolution import CONVOLUTION_ERROR, convolve_extended, longest_run, spans
from das.congenial.extended_windows import place_pieces
from das.congenial.windows import piece_tree


@compiled
def add_pieces(values, shape, profile, members, multiplicity, low, high, margin):
    """Convolve the pieces of a group for totals from low to high, relative to the sum of its members' least values.

    `values` is (mantissa, exponent, log2) of all functions, `shape` their (offset, ends, error). Each piece keeps the
    longest run of totals at which its own members' windows hold all terms that matter. Returns whether there is one
    for every piece; the pieces with these windows, the position of each in the arena, the arena, whether each piece
    ends at its edges, and the relative error of the sum.
    """
    offset, ends, error = shape
    lengths = np.diff(offset)
    pieces = piece_tree(multiplicity)
    place_pieces(profile[0], profile[1], lengths, members, multiplicity, pieces, low, high, margin)
    count = len(pieces)
    starts = np.zeros(count + 1, dtype=np.int64)
    for p in range(count):
        starts[p + 1] = starts[p] + pieces[p, 5] - pieces[p, 4] + 1
    mantissa, log2 = np.empty(starts[count]), np.empty(starts[count])
    exponent = np.empty(starts[count], dtype=np.int64)
    closed = np.zeros((count, 2), dtype=np.bool_)
    rounded = np.zeros(count)
    for p in range(count):
        left, right = pieces[p, 0], pieces[p, 1]
        start, first, last = starts[p], pieces[p, 4], pieces[p, 5]
        if left < 0:
            i = members[pieces[p, 2]]
            closed[p, 0], closed[p, 1] = ends[i, 0] and first == 0, ends[i, 1] and last == lengths[i] - 1
            rounded[p] = error[i]
            from_, to = offset[i] + first, offset[i] + last + 1
            stop = start + to - from_
            mantissa[start:stop] = values[0][from_:to]
            exponent[start:stop] = values[1][from_:to]
            log2[start:stop] = values[2][from_:to]
            continue
        a_low, b_low = pieces[left, 4], pieces[right, 4]
        first = max(first, a_low + b_low)
        last = min(last, pieces[left, 5] + pieces[right, 5])
        if first > last:
            return False, pieces, starts, (mantissa, exponent, log2), closed, np.inf
        a_stop = starts[left] + pieces[left, 5] - a_low + 1
        b_stop = starts[right] + pieces[right, 5] - b_low + 1
        a = (mantissa[starts[left] : a_stop], exponent[starts[left] : a_stop], log2[starts[left] : a_stop])
        b = (mantissa[starts[right] : b_stop], exponent[starts[right] : b_stop], log2[starts[right] : b_stop])
        found, valid = spans(a[2], b[2], a_low, b_low, closed[left], closed[right], first, last)
        run_first, run_last = longest_run(valid)
        if run_first > run_last:
            return False, pieces, starts, (mantissa, exponent, log2), closed, np.inf
        bottom = closed[left, 0] and closed[right, 0] and first + run_first == a_low + b_low
        top = closed[left, 1] and closed[right, 1] and first + run_last == pieces[left, 5] + pieces[right, 5]
        closed[p, 0], closed[p, 1] = bottom, top
        first, last = first + run_first, first + run_last
        pieces[p, 4], pieces[p, 5] = first, last
        stop = start + last - first + 1
        kept = found[:, run_first : run_last + 1]
        convolve_extended(a, b, a_low, b_low, first, kept, mantissa[start:stop], exponent[start:stop])
        for k in range(start, stop):
            log2[k] = np.log2(mantissa[k]) + exponent[k]
        rounded[p] = rounded[left] + rounded[right] + CONVOLUTION_ERROR
    return True, pieces, starts, (mantissa, exponent, log2), closed, rounded[-1]


@compiled
def split_extended(values, shape, profile, members, multiplicity, total, margin, words, draws):
    """Split a total among the members of a group, once for each row of `draws`; `words` is (visits, members, 4).

    The tree of partial sums, and the row of words that decides each split, are those of `backward_sampling`. The margin
    is doubled until the windows hold the total; an infinite one always does. All of this is a function of the members
    and the total: no random word enters.
    """
    while True:
        holds, pieces, starts, arena, _, _ = add_pieces(
            values, shape, profile, members, multiplicity, total, total, margin
        )
        if holds or margin == np.inf:
            break
        margin = 2.0 * margin if margin < 1e4 else np.inf
    if not holds:
        return False
    root = len(pieces) - 1
    leaf_count = pieces[:, 3]
    stack = np.empty((64 + len(pieces), 3), dtype=np.int64)
    buffer = np.empty(1)
    for v in range(len(draws)):
        draws[v] = 0
        depth = 1
        stack[0] = (root, total, 0)
        while depth:
            depth -= 1
            p, remains, place = stack[depth]
            left, right = pieces[p, 0], pieces[p, 1]
            if left < 0:
                draws[v, place] = remains
                continue
            if remains == 0:
                continue
            least = max(pieces[left, 4], remains - pieces[right, 5])
            largest = min(pieces[left, 5], remains - pieces[right, 4])
            width = largest - least + 1
            if width > len(buffer):
                buffer = np.empty(2 * width)
            a = starts[left] + least - pieces[left, 4]
            b = starts[right] + remains - least - pieces[right, 4]
            scale_products(arena[0], arena[1], a, b, buffer[:width])
            taken = least + choose_extended(buffer[:width], words[v, place + leaf_count[left]])
            stack[depth] = (left, taken, place)
            stack[depth + 1] = (right, remains - taken, place + leaf_count[left])
            depth += 2
    return True
