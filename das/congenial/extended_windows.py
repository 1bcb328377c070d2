"""Windows of the partial sums of a group in extended-range arithmetic.

They come from Chernoff's bound on a few points of each function. This is an estimate and no proof: what a window leaves
out is checked, term by term, where two functions are convolved (`extended_convolution.spans`).
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# The compiler infers the types of what it compiles.

from __future__ import annotations

import math

import numpy as np

from das.compiled import compiled, compiled_part

_SIDE = 24
POINTS = 2 * _SIDE + 1
_STEPS = 16


@compiled
def profiles(offset, log2):
    """Return a few points of each function, denser around its largest value: positions, and logs of the mass there."""
    count = len(offset) - 1
    position = np.zeros((count, POINTS))
    log_mass = np.full((count, POINTS), -np.inf)
    for i in range(count):
        values = log2[offset[i] : offset[i + 1]]
        mode = int(np.argmax(values))
        places = np.empty(POINTS, dtype=np.int64)
        size = 0
        for side in (-1, 1):
            reach = mode if side == -1 else len(values) - 1 - mode
            start = size
            for k in range(_SIDE if side == -1 else _SIDE + 1):
                fraction = k / _SIDE if side == 1 else (k + 1) / _SIDE
                spaced = round((reach + 1.0) ** fraction) - 1
                away = min(max(spaced, k if side == 1 else k + 1), reach)
                if (size == start or away != abs(places[size - 1] - mode)) and (away > 0 or side == 1):
                    places[size] = mode + side * away
                    size += 1
        ordered = np.sort(places[:size])
        for k in range(size):
            before = ordered[k] - ordered[k - 1] if k else 1
            after = ordered[k + 1] - ordered[k] if k + 1 < size else 1
            position[i, k] = ordered[k]
            log_mass[i, k] = values[ordered[k]] * math.log(2.0) + math.log(0.5 * (before + after))
    return position, log_mass


@compiled_part
def _tilted(position, log_mass, theta):
    """Return the log of the tilted mass of a profile, its mean and its variance."""
    largest = -np.inf
    for k in range(POINTS):
        largest = max(largest, log_mass[k] + theta * position[k])
    total = mean = square = 0.0
    for k in range(POINTS):
        if log_mass[k] > -np.inf:
            mass = math.exp(log_mass[k] + theta * position[k] - largest)
            total += mass
            mean += mass * position[k]
    mean /= total
    for k in range(POINTS):
        if log_mass[k] > -np.inf:
            mass = math.exp(log_mass[k] + theta * position[k] - largest)
            square += mass * (position[k] - mean) ** 2
    return largest + math.log(total), mean, square / total


@compiled_part
def _group(position, log_mass, members, multiplicity, theta):
    """Return the mean and the variance of a tilted group."""
    mean = variance = 0.0
    for e in range(len(members)):
        _, mean_i, variance_i = _tilted(position[members[e]], log_mass[members[e]], theta)
        mean += multiplicity[e] * mean_i
        variance += multiplicity[e] * variance_i
    return mean, variance


@compiled_part
def _tilt_of(position, log_mass, members, multiplicity, target):
    """Return a tilt under which the group's mean is near the target, by bisection."""
    step = 1e-6
    while step < 1e6:
        below, _ = _group(position, log_mass, members, multiplicity, -step)
        above, _ = _group(position, log_mass, members, multiplicity, step)
        if below <= target <= above:
            break
        step *= 8.0
    least, most = -step, step
    for _ in range(40):
        theta = 0.5 * (least + most)
        mean, variance = _group(position, log_mass, members, multiplicity, theta)
        if abs(mean - target) <= 0.3 * math.sqrt(variance):
            break
        if mean < target:
            least = theta
        else:
            most = theta
    return theta, math.sqrt(max(variance, 1e-6))


@compiled_part
def place_pieces(position, log_mass, lengths, members, multiplicity, pieces, low, high, margin):
    """Write the window of each piece (relative to the sum of the least values), for totals from low to high.

    A piece that stands d steps below the sum leaves out e^-(margin (d + 1)) of its tilted mass: the terms at the edges
    of its own window must be right as well. An infinite margin cuts nothing but what no total can use.
    """
    count = len(pieces)
    depth = np.zeros(count, dtype=np.int64)
    widest = np.empty(count, dtype=np.int64)
    for p in range(count - 1, -1, -1):
        for side in range(2):
            if pieces[p, side] >= 0:
                depth[pieces[p, side]] = max(depth[pieces[p, side]], depth[p] + 1)
    for p in range(count):
        e = pieces[p, 2]
        if e >= 0:
            widest[p] = pieces[p, 3] * (lengths[members[e]] - 1)
        else:
            widest[p] = widest[pieces[p, 0]] + widest[pieces[p, 1]]
    reach = widest[-1]
    for p in range(count):
        pieces[p, 4], pieces[p, 5] = max(0, low - (reach - widest[p])), min(widest[p], high)
    if count == 1 or margin == np.inf:
        pieces[-1, 4], pieces[-1, 5] = low, high
        return
    for side in range(2):
        theta, deviation = _tilt_of(position, log_mass, members, multiplicity, low if side == 0 else high)
        logs = np.empty((_STEPS + 1, len(members)))
        steps = np.zeros(_STEPS + 1)
        for j in range(_STEPS + 1):
            if j:
                steps[j] = (-1.0 if side == 0 else 1.0) * 0.05 * 2.0**j / 8.0 * math.sqrt(margin) / deviation
            for e in range(len(members)):
                logs[j, e], _, _ = _tilted(position[members[e]], log_mass[members[e]], theta + steps[j])
        of_piece = np.empty((count, _STEPS + 1))
        for p in range(count):
            e = pieces[p, 2]
            of_piece[p] = pieces[p, 3] * logs[:, e] if e >= 0 else of_piece[pieces[p, 0]] + of_piece[pieces[p, 1]]
            best = -np.inf if side == 0 else np.inf
            for j in range(1, _STEPS + 1):
                edge = (of_piece[p, j] - of_piece[p, 0] + margin * (depth[p] + 1)) / steps[j]
                best = max(best, edge) if side == 0 else min(best, edge)
            if side == 0:
                pieces[p, 4] = min(max(pieces[p, 4], math.floor(best) - 1), pieces[p, 5])
            else:
                pieces[p, 5] = max(min(pieces[p, 5], math.ceil(best) + 1), pieces[p, 4])
    pieces[-1, 4], pieces[-1, 5] = low, high
