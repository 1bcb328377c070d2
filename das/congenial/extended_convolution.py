"""Convolution of log-concave functions in extended-range arithmetic: each value has a binary exponent of its own.

A double alone holds values down to 2^-1022. Here a value is ``mantissa 2^exponent`` with an integer exponent, so
nothing underflows (Smith, Olver and Lozier 1981). All functions are log-concave; this is what bounds the terms that are
left out. ``tree.md`` has the proofs.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# The compiler infers the types of what it compiles.

from __future__ import annotations

import math

import numpy as np

from das.compiled import compiled, compiled_part
from das.congenial.convolution_kernels import UNIT, convolve

CONVOLUTION_ERROR = 16 * UNIT
LOST_IN_A_STEP = 2.0**-128
"""Bound on the relative loss of one convolution, or split, to terms beyond the windows of its two functions."""

_TERMS = 100.0  # terms below 2^-100 of the largest are not added
_FALLEN = 131.0  # an edge of a window must lie this many bits, and log2 of its distance, below the largest term
_BLOCK, _CHUNK = 256, 64
_RANGE = 900.0  # bits that the products of a block may span without underflow


@compiled
def has_fallen(edge, largest, distance):
    """Whether the terms beyond an edge are negligible: log-concave terms fall at least geometrically from there on."""
    return edge <= largest - _FALLEN - math.log2(distance + 1.0)


@compiled_part
def spans(a, b, a_low, b_low, a_ends, b_ends, low, high):
    """Find, for each total t in [low, high], the terms that matter and whether the windows hold them.

    Parameters are the log2 of two functions, the positions of their first values, whether each ends at its lower and
    upper edge, and the totals. Returns arrays over t: the largest term's position, the first and the last position
    within 2^-100 of it, and whether the terms beyond the windows are negligible. All three positions rise with t.
    """
    count = high - low + 1
    found = np.empty((3, count), dtype=np.int64)
    valid = np.empty(count, dtype=np.bool_)
    a_high, b_high = a_low + len(a) - 1, b_low + len(b) - 1
    mode = first = last = a_low
    for k in range(count):
        t = low + k
        least, most = max(a_low, t - b_high), min(a_high, t - b_low)
        mode = max(mode, least)
        while mode < most and a[mode + 1 - a_low] + b[t - mode - 1 - b_low] >= a[mode - a_low] + b[t - mode - b_low]:
            mode += 1
        largest = a[mode - a_low] + b[t - mode - b_low]
        first = max(first, least)
        while first < mode and a[first - a_low] + b[t - first - b_low] < largest - _TERMS:
            first += 1
        last = max(last, mode)
        while last < most and a[last + 1 - a_low] + b[t - last - 1 - b_low] >= largest - _TERMS:
            last += 1
        found[0, k], found[1, k], found[2, k] = mode, first, last
        # The lower end of the terms is the lower edge of one function or the upper edge of the other.
        closed = (least == a_low and a_ends[0]) or (least == t - b_high and b_ends[1])
        bottom = closed or has_fallen(a[least - a_low] + b[t - least - b_low], largest, mode - least)
        closed = (most == a_high and a_ends[1]) or (most == t - b_low and b_ends[0])
        valid[k] = bottom and (closed or has_fallen(a[most - a_low] + b[t - most - b_low], largest, most - mode))
    return found, valid


@compiled_part
def longest_run(valid):
    """Return the first and the last index of the longest run of true values; (0, -1) if there is none."""
    best_first, best_last, first = 0, -1, 0
    for k in range(len(valid)):
        if not valid[k]:
            first = k + 1
        elif k - first > best_last - best_first:
            best_first, best_last = first, k
    return best_first, best_last


@compiled_part
def convolve_extended(a, b, a_low, b_low, low, found, mantissa, exponent):
    """Write the convolution of two functions at the totals from `low` on; `found` is what `spans` returned for them.

    A function is (mantissa, exponent, log2). Blocks of totals and chunks of terms are brought to one scale by powers of
    two: exactly, and so that no product underflows. Within a chunk the convolution is that of doubles; chunks are added
    with compensation (Neumaier 1974). So the relative error is at most (4 + 8) u within a chunk and 3 u for the sum of
    chunks, whatever their number.
    """
    count = found.shape[1]
    start = 0
    while start < count:
        stop = min(count, start + _BLOCK)
        block, chunk = _BLOCK, _CHUNK
        while block > 1 and not _fits(a[2], b[2], a_low, b_low, low, found, start, stop, block, chunk):
            block, chunk = max(1, block // 4), max(1, chunk // 4)
        if block == 1:
            chunk = 1
        for part in range(start, stop, block):
            _add_block(a, b, a_low, b_low, low, found, part, min(stop, part + block), chunk, mantissa, exponent)
        start = stop


@compiled_part
def _segment(b_size, b_low, first_total, last_total, from_, to):
    """Return the part of b that meets the terms [from_, to) of a at these totals, as indices; it may be empty."""
    return max(0, first_total - (to - 1) - b_low), min(b_size, last_total - from_ - b_low + 1)


@compiled_part
def _slope(values, from_, to):
    return round((values[to - 1] - values[from_]) / (to - 1 - from_)) if to - from_ > 1 else 0


@compiled_part
def _spread(values, from_, to, slope):
    """Return the span in bits of log-concave values after a tilt, and the largest: the least is at an end."""
    largest = -np.inf
    for k in range(from_, to):
        largest = max(largest, values[k] - slope * (k - from_))
    return largest - min(values[from_], values[to - 1] - slope * (to - 1 - from_)), largest


@compiled_part
def _fits(a, b, a_low, b_low, low, found, start, stop, block, chunk):
    """Whether the products of every block and chunk span few enough bits."""
    for part in range(start, stop, block):
        end = min(stop, part + block)
        for from_ in range(found[1, part], found[2, end - 1] + 1, chunk):
            to = min(found[2, end - 1] + 1, from_ + chunk)
            left, right = _segment(len(b), b_low, low + part, low + end - 1, from_, to)
            if left < right:
                slope = _slope(a, from_ - a_low, to - a_low)
                one, _ = _spread(a, from_ - a_low, to - a_low, slope)
                two, _ = _spread(b, left, right, slope)
                if one + two > _RANGE:
                    return False
    return True


@compiled_part
def _power(exponent):
    """Return 2^exponent; 0 where a double cannot hold it."""
    return math.ldexp(1.0, max(exponent, -1100))


@compiled_part
def _add_block(a, b, a_low, b_low, low, found, start, stop, chunk, mantissa, exponent):
    a_mantissa, a_exponent, a_log = a
    b_mantissa, b_exponent, b_log = b
    size = stop - start
    total, rest, out = np.zeros(size), np.zeros(size), np.empty(size)
    scaled_a, scaled_b = np.empty(chunk), np.empty(chunk + size)
    reference = np.empty(size, dtype=np.int64)
    for k in range(size):
        mode = found[0, start + k]
        reference[k] = a_exponent[mode - a_low] + b_exponent[low + start + k - mode - b_low]
    for from_ in range(found[1, start], found[2, stop - 1] + 1, chunk):
        to = min(found[2, stop - 1] + 1, from_ + chunk)
        left, right = _segment(len(b_log), b_low, low + start, low + stop - 1, from_, to)
        if left >= right:
            continue
        slope = _slope(a_log, from_ - a_low, to - a_low)
        _, top = _spread(a_log, from_ - a_low, to - a_low, slope)
        a_scale = math.ceil(top)
        _, top = _spread(b_log, left, right, slope)
        b_scale = math.ceil(top)
        for k in range(to - from_):
            at = from_ - a_low + k
            scaled_a[k] = a_mantissa[at] * _power(a_exponent[at] - slope * k - a_scale)
        for k in range(right - left):
            at = left + k
            scaled_b[k] = b_mantissa[at] * _power(b_exponent[at] - slope * k - b_scale)
        skip = low + start - from_ - (left + b_low)
        convolve(scaled_a[: to - from_], scaled_b[: right - left], skip, out)
        for k in range(size):
            if out[k] > 0.0:
                shift = a_scale + b_scale + slope * (skip + k) - reference[k]
                term = math.ldexp(out[k], int(max(shift, -2000)))
                new = total[k] + term
                rest[k] += (total[k] - new) + term if total[k] >= term else (term - new) + total[k]
                total[k] = new
    for k in range(size):
        mantissa[start + k], more = math.frexp(total[k] + rest[k])
        exponent[start + k] = reference[k] + more
