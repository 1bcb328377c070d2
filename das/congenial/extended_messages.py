"""Messages in extended-range arithmetic: sums in the forward pass, roots and splits in backward sampling.

Every error is known beforehand, from the number of counts alone (``tree.md``): a window either holds what it must, or
`WindowTooSmall` is raised in the forward pass, before anything is drawn.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from das.congenial.extended_choice import CHOICE_ERROR, choose_extended, scale_products
from das.congenial.extended_convolution import CONVOLUTION_ERROR, LOST_IN_A_STEP, has_fallen
from das.congenial.extended_range import ExtendedFunctions, from_messages
from das.congenial.extended_sums import add_pieces, split_extended
from das.congenial.extended_windows import profiles
from das.congenial.function_store import Groups, Integers, Messages, WindowTooSmall, offsets

__all__ = ["MARGIN", "roots_extended", "split_alone", "split_totals", "sums_extended"]

MARGIN = 105.0
"""Nats by which a window's edges should lie below its largest values: somewhat more than the proof asks for."""


def sums_extended(
    functions: ExtendedFunctions, groups: Groups, first: Integers, last: Integers, margin: float = MARGIN
) -> ExtendedFunctions:
    """Return the convolution of each group's members on the part of [first, last] that their windows determine.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from das.congenial.extended_range import leaves_extended
    >>> from das.noise.interval_arithmetic import Weights
    >>> leaf = leaves_extended([0], Weights(Fraction(0), Fraction(2000)), [0], [10**9], [0], [9])
    >>> two = sums_extended(leaf, Groups.of([[(0, 2)]]), np.array([0]), np.array([9]))
    >>> [round(float(x / 2000 * np.log(2))) for x in two.log2]  # (t + 1) e^(-2000 t)
    [0, -1, -2, -3, -4, -5, -6, -7, -8, -9]
    """
    values, shape, profile = _arrays(functions)
    base = groups.add(functions.first)
    top = groups.add(functions.last)
    low, high = np.maximum(first, base) - base, np.minimum(last, top) - base
    parts = []
    for g in range(len(groups)):
        members, multiplicity = _own(groups, g)
        holds = low[g] <= high[g]
        if holds:
            holds, pieces, starts, arena, closed, error = add_pieces(
                values, shape, profile, members, multiplicity, low[g], high[g], margin
            )
        if not holds:
            raise WindowTooSmall("the members' windows do not determine their sum", g)
        at = slice(starts[-2], starts[-2] + pieces[-1, 5] - pieces[-1, 4] + 1)
        parts.append((base[g] + pieces[-1, 4], arena[0][at], arena[1][at], error, closed[-1]))
    return ExtendedFunctions(
        first=np.array([part[0] for part in parts], dtype=np.int64),
        offset=offsets(np.array([len(part[1]) for part in parts], dtype=np.int64)),
        mantissa=np.concatenate([part[1] for part in parts]),
        exponent=np.concatenate([part[2] for part in parts]),
        error=np.array([part[3] for part in parts]),
        ends=np.array([part[4] for part in parts]).reshape(-1, 2),
    )


def roots_extended(functions: ExtendedFunctions, words: NDArray[np.uint64]) -> Integers:
    """Draw one value of each function, in proportion to it, with 256 bits each.

    Raises
    ------
    WindowTooSmall
        The window of a function may leave out more than a negligible part of it; decided before anything is drawn.
    """
    log2, draws = functions.log2, np.empty(len(functions), dtype=np.int64)
    for i in range(len(functions)):
        values = log2[functions.offset[i] : functions.offset[i + 1]]
        mode = int(values.argmax())
        for end, edge in ((functions.ends[i, 0], 0), (functions.ends[i, 1], len(values) - 1)):
            if not end and not has_fallen(values[edge], values[mode], abs(edge - mode)):
                raise WindowTooSmall("the window of a root leaves out too much mass", i)
    one = np.array([0.5]), np.array([1], dtype=np.int64)
    for i in range(len(functions)):
        own = slice(functions.offset[i], functions.offset[i + 1])
        # The products of the values with a second function that is one at every point.
        count = own.stop - own.start
        mantissa = np.concatenate([functions.mantissa[own], np.repeat(one[0], count)])
        exponent = np.concatenate([functions.exponent[own], np.repeat(one[1], count)])
        scaled = np.empty(count)
        scale_products(mantissa, exponent, 0, len(mantissa) - 1, scaled)
        draws[i] = functions.first[i] + choose_extended(scaled, words[i])
    return draws


def split_totals(functions: ExtendedFunctions, groups: Groups, totals: Integers, words: NDArray[np.uint64]) -> Integers:
    """Draw the members of each group given its total; equal groups with equal totals share their sums.

    Parameters and draws are as in `das.congenial.convolution.split`.
    """
    values, shape, profile = _arrays(functions)
    relative = totals - groups.add(functions.first)
    starts = groups.expanded
    draws = np.repeat(functions.first[groups.member], groups.multiplicity)
    kinds: dict[tuple[bytes, bytes, int], list[int]] = {}
    for g, total in enumerate(relative.tolist()):
        members, multiplicity = _own(groups, g)
        if total:
            kinds.setdefault((members.tobytes(), multiplicity.tobytes(), total), []).append(g)
    for (_, _, total), same in kinds.items():
        members, multiplicity = _own(groups, same[0])
        rows = starts[same][:, None] + np.arange(starts[same[0] + 1] - starts[same[0]])
        found = np.empty(rows.shape, dtype=np.int64)
        own = np.ascontiguousarray(words[rows])
        if not split_extended(values, shape, profile, members, multiplicity, total, MARGIN, own, found):
            raise ArithmeticError("a total that was drawn lies outside the windows of its members")
        draws[rows] += found
    return draws


def split_alone(
    stored: Messages, group: Groups, total: int, words: NDArray[np.uint64]
) -> tuple[Integers, float, float]:
    """Split one group of stored messages, taken as exact; return also the bounds on total variation and log-ratio."""
    ids, member = np.unique(group.member, return_inverse=True)
    again = Groups(group.offset, member.reshape(-1).astype(np.int64), group.multiplicity)
    draws = split_totals(from_messages(stored, ids), again, np.array([total]), words)
    steps = len(draws) - 1
    return draws, steps * 2 * LOST_IN_A_STEP, steps * (CONVOLUTION_ERROR + CHOICE_ERROR)


def _arrays(
    functions: ExtendedFunctions,
) -> tuple[tuple[NDArray[np.generic], ...], tuple[NDArray[np.generic], ...], tuple[NDArray[np.generic], ...]]:
    """Return the arrays that the compiled loops read: values, shapes, and the profiles that windows are planned by."""
    log2 = functions.log2
    values = functions.mantissa, functions.exponent, _frozen(log2)
    return values, (functions.offset, functions.ends, functions.error), profiles(functions.offset, values[2])


def _own(groups: Groups, g: int) -> tuple[Integers, Integers]:
    own = slice(groups.offset[g], groups.offset[g + 1])
    return groups.member[own], groups.multiplicity[own]


def _frozen(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the array read-only, so that the kernels are compiled for one type."""
    array.flags.writeable = False
    return array
