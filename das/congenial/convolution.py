"""Convolution of messages in the forward pass, and splits of totals in backward sampling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from das.congenial.backward_sampling import draw_roots, split_groups
from das.congenial.convolution_kernels import entry_windows, sum_groups
from das.congenial.extended_messages import split_alone
from das.congenial.function_store import Floats, Groups, Integers, Messages, WindowTooSmall, concat, offsets
from das.congenial.tilts import LN2

__all__ = ["Split", "roots", "split", "sums"]

SHARE = 2.0**-180
_BESIDE = 8


@dataclass(frozen=True, slots=True)
class Split:
    """Draws, with bounds per group (or root) on the distance of their law from the exact one.

    Parameters
    ----------
    draws : array of int
        One for each expanded member of each group, or for each root.
    lost : array of float
        Bound on the total variation that the step adds.
    error : array of float
        Bound on the log-ratio that the step's rounding adds.
    """

    draws: Integers
    lost: Floats
    error: Floats


def sums(
    messages: Messages, groups: Groups, first: npt.ArrayLike, last: npt.ArrayLike, *, share: float = SHARE
) -> Messages:
    """Return the function of each group's sum: the convolution of its members, kept on [first, last].

    Equal groups are computed once, and so are powers of one message that occur in several groups.

    Parameters
    ----------
    messages : Messages
        The messages that the groups refer to.
    groups : Groups
        The sums to compute.
    first, last : array of int
        The window of each sum; cut to what the members' windows can reach.
    share : float
        Bound on the share of tilted mass that the window of a partial sum leaves out on either side.

    Examples
    --------
    >>> from das.congenial.messages import leaves
    >>> dice, _ = leaves([0], None, lower=1, upper=6, reach=0)
    >>> two = sums(dice, Groups.of([[(0, 2)]]), 2, 12)
    >>> np.round(np.exp(two.log_scale[0]) * two.weight).tolist()
    [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]
    """
    count = len(groups)
    if not count:
        return messages.pick([])
    first, last = (np.broadcast_to(np.asarray(edge, dtype=np.int64), count) for edge in (first, last))
    chosen, inverse = _distinct(groups, first, last)
    groups, first, last = groups.pick(chosen), first[chosen], last[chosen]
    summed = _sum(*_with_powers(messages, groups, first, last, share), first, last, share)
    return summed.pick(inverse) if len(chosen) < count else summed


def split(
    messages: Messages,
    groups: Groups,
    total: npt.ArrayLike,
    words: NDArray[np.uint64],
    *,
    allowance: float = 2.0**-120,
    rounding_allowance: float = np.inf,
) -> Split:
    """Draw the members of each group given their total, in proportion to the product of their messages.

    A group whose bounds are not proved with doubles is split in extended-range arithmetic, which always ends
    (``tree.md``). Which groups are depends on them and their totals alone.

    Parameters
    ----------
    messages : Messages
        The messages that the groups refer to.
    groups : Groups
        Members, in the order of the draws: an entry of multiplicity m stands for m members in a row.
    total : array of int
        Total of each group.
    words : array (expanded members, 4) of uint64
        256 uniform bits for each expanded member, the first word the most significant; mostly two words are read. A
        group is split in two, and each half again; the row of a member decides the split just before it, so the row of
        a group's first member is never read. The draws are a function of the members, the total and the rows of their
        own group alone.
    allowance : float
        Bound on the total variation that the split of one group adds, if it is made with doubles.
    rounding_allowance : float
        Bound on the log-ratio that it adds.

    Examples
    --------
    >>> from das.congenial.messages import leaves
    >>> dice, _ = leaves([0], None, lower=1, upper=6, reach=0)
    >>> words = np.array([[0, 0, 0, 0], [2**63, 0, 0, 0], [2**62, 0, 0, 0]], dtype=np.uint64)
    >>> int(split(dice, Groups.of([[(0, 3)]]), 12, words).draws.sum())
    12
    """
    totals = np.broadcast_to(np.asarray(total, dtype=np.int64), len(groups))
    rows = offsets(groups.multiplicity)  # where each entry's rows and draws begin
    if words.shape != (rows[-1], 4):
        raise ValueError(f"{rows[-1]} members need as many rows of four words, not {words.shape}")
    words = _read_only(words)
    quarter = np.array([allowance, rounding_allowance]) / 4  # windows and words, of two steps each
    stored = messages.sealed()
    if ((totals < groups.add(stored.first)) | (totals > groups.add(stored.last))).any():
        outside = (totals < groups.add(stored.first)) | (totals > groups.add(stored.last))
        raise WindowTooSmall("the members' windows cannot reach a total", outside.nonzero()[0])
    lost, error = np.zeros(len(groups)), np.zeros(len(groups))

    # First the total of each entry, then the members of each entry with a multiplicity above one.
    least = groups.multiplicity * stored.first[groups.member]
    taken = least.copy()
    several = np.diff(groups.offset) > 1
    taken[groups.offset[:-1][~several]] = totals[~several]
    todo = (several & (totals > groups.add(stored.first))).nonzero()[0]
    if len(todo):
        chosen, kind = _distinct(groups.pick(todo), totals[todo], totals[todo])
        kinds, aim, starts = groups.pick(todo[chosen]), totals[todo[chosen]], groups.offset[todo]
        visits = kind, rows[starts], starts
        lost[todo], error[todo] = _among_entries(stored, kinds, aim, visits, allowance, quarter, words, taken)
    whole = ~np.isfinite(lost)  # not proved: these groups are split at once, below

    draws = np.repeat(stored.first[groups.member], groups.multiplicity)
    single = groups.multiplicity == 1
    draws[rows[:-1][single]] = taken[single]
    group_of = np.repeat(np.arange(len(groups)), np.diff(groups.offset))
    todo = (~single & (taken > least) & ~whole[group_of]).nonzero()[0]
    if len(todo):
        size = np.diff(groups.expanded)[group_of]
        keys = np.stack([groups.member, groups.multiplicity, taken, size], axis=1)[todo]
        keys, kind = np.unique(keys, axis=0, return_inverse=True)
        powers = Groups(np.arange(len(keys) + 1), keys[:, 0].copy(), keys[:, 1].copy())
        step = _Step(stored, powers, np.ones(len(keys), dtype=np.int64), keys[:, 2].copy())
        limits = quarter * (keys[:, 1] / keys[:, 3])[:, None]  # the entries of a group share its allowance
        more = step.visit(kind.reshape(-1), rows[todo], rows[todo], allowance, limits, words, draws)
        open_ = ~np.isfinite(more[0])
        for k, found in zip(np.flatnonzero(open_).tolist(), todo[open_].tolist(), strict=True):
            own = slice(rows[found], rows[found + 1])
            entry = powers.pick(kind.reshape(-1)[[k]])
            draws[own], more[0][k], more[1][k] = split_alone(stored, entry, int(taken[found]), words[own])
        np.add.at(lost, group_of[todo], more[0])
        np.add.at(error, group_of[todo], more[1])
    for g in np.flatnonzero(whole).tolist():
        own = slice(rows[groups.offset[g]], rows[groups.offset[g + 1]])
        draws[own], lost[g], error[g] = split_alone(stored, groups.pick([g]), int(totals[g]), words[own])
    return Split(draws, lost, error)


def _among_entries(
    stored: Messages,
    kinds: Groups,
    aim: Integers,
    visits: tuple[Integers, Integers, Integers],
    allowance: float,
    quarter: Floats,
    words: NDArray[np.uint64],
    taken: Integers,
) -> tuple[Floats, Floats]:
    """Split the total of each distinct group among its entries; the bounds are infinite where they are not proved."""
    try:
        step = _Step(*_with_powers(stored, kinds, aim, aim, allowance * 2.0**-48), kinds.multiplicity, aim)
        return step.visit(*visits, allowance, np.tile(quarter, (len(kinds), 1)), words, taken)
    except WindowTooSmall:
        # Windows of powers that cannot reach a total. Each group is tried by itself: its draw depends on it alone.
        lost, error = np.full(len(visits[0]), np.inf), np.full(len(visits[0]), np.inf)
        if len(kinds) > 1:
            for g in range(len(kinds)):
                mine = (visits[0] == g).nonzero()[0]
                alone = (np.zeros(len(mine), dtype=np.int64), visits[1][mine], visits[2][mine])
                lost[mine], error[mine] = _among_entries(
                    stored, kinds.pick([g]), aim[[g]], alone, allowance, quarter, words, taken
                )
        return lost, error


def roots(messages: Messages, words: NDArray[np.uint64], *, allowance: float = 2.0**-100) -> Split:
    """Draw one value of each function, in proportion to it.

    Parameters
    ----------
    messages : Messages
        The roots of trees.
    words : array of uint64, a row for each root
        128 uniform bits in the first two columns.
    allowance : float
        Bound on the share of mass outside all windows of a root's tree; `WindowTooSmall` if it is not proved.

    Examples
    --------
    >>> from das.congenial.messages import leaves
    >>> dice, _ = leaves([0], None, lower=1, upper=6, reach=0)
    >>> [int(roots(dice, np.array([[k << 60, 0]], dtype=np.uint64)).draws[0]) for k in (0, 9, 15)]
    [1, 4, 6]
    """
    if len(words) != len(messages):
        raise ValueError(f"{len(messages)} roots need as many rows of words, not {words.shape}")
    windows = messages.lost_upper()
    if (windows > allowance).any():
        raise WindowTooSmall("the windows of a tree leave out too much mass", (windows > allowance).nonzero()[0])
    draws, lost, error = draw_roots(messages.arrays, _read_only(words))
    return Split(draws, lost + windows, error)


def _distinct(groups: Groups, low: Integers, high: Integers) -> tuple[Integers, Integers]:
    """Return the first of each distinct group, and the index of the distinct group for each."""
    seen: dict[tuple[bytes, bytes, int, int], int] = {}
    chosen: list[int] = []
    inverse = np.empty(len(groups), dtype=np.int64)
    bounds = groups.offset.tolist()
    for g, (start, stop, a, b) in enumerate(zip(bounds[:-1], bounds[1:], low.tolist(), high.tolist(), strict=True)):
        key = (groups.member[start:stop].tobytes(), groups.multiplicity[start:stop].tobytes(), a, b)
        kind = seen.setdefault(key, len(seen))
        if kind == len(chosen):
            chosen.append(g)
        inverse[g] = kind
    return np.array(chosen, dtype=np.int64), inverse


def _with_powers(
    messages: Messages, groups: Groups, first: Integers, last: Integers, share: float
) -> tuple[Messages, Groups]:
    """Replace repeated members inside groups by messages of their sum, each computed once for all groups."""
    lengths = np.diff(groups.offset)
    inside = np.repeat(lengths > 1, lengths) & (groups.multiplicity > 1)
    if not inside.any():
        return messages, groups
    holders = np.unique(np.repeat(np.arange(len(groups)), lengths)[inside])
    holding = groups.pick(holders)
    low, high = _relative(messages, holding, first[holders], last[holders])
    windows = entry_windows(messages.arrays, _csr(holding), low, high, np.log(share))
    powers = holding.multiplicity > 1
    member, times = holding.member[powers], holding.multiplicity[powers]
    least, most = windows[powers].T
    # A window of one point does not bound the function beyond it; a few more points make the envelope finite.
    least, most = least - _BESIDE, most + _BESIDE
    # Rounded edges let groups share their powers; a window still depends on its own group alone.
    step = 1 << np.maximum(0, np.log2(most - least + 1).astype(np.int64) - 2)
    keys = np.stack([member, times, least // step * step, -(-most // step) * step], axis=1)
    keys, ids = np.unique(keys, axis=0, return_inverse=True)
    alone = Groups(np.arange(len(keys) + 1), keys[:, 0].copy(), keys[:, 1].copy())
    base = alone.add(messages.first)
    made = _sum(messages, alone, base + keys[:, 2], base + keys[:, 3], share)
    members, multiplicity = groups.member.copy(), groups.multiplicity.copy()
    members[inside] = len(messages) + ids.reshape(-1)
    multiplicity[inside] = 1
    return concat([messages, made]), Groups(groups.offset, members, multiplicity)


def _relative(messages: Messages, groups: Groups, first: Integers, last: Integers) -> tuple[Integers, Integers]:
    """Return windows relative to the least sum of each group, cut to what its members reach."""
    base, top = groups.add(messages.first), groups.add(messages.last)
    low, high = np.maximum(first, base) - base, np.minimum(last, top) - base
    if (low > high).any():
        raise WindowTooSmall("the members' windows cannot reach the sum's", (low > high).nonzero()[0])
    return low, high


def _csr(groups: Groups) -> tuple[Integers, Integers, Integers]:
    return groups.offset, groups.member, groups.multiplicity


def _read_only(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the words as a contiguous read-only array, so that the kernels are compiled for one type."""
    words = np.ascontiguousarray(words).view()
    words.flags.writeable = False
    return words


def _sum(messages: Messages, groups: Groups, first: Integers, last: Integers, share: float) -> Messages:
    """Convolve groups, each on its window."""
    low, high = _relative(messages, groups, first, last)
    offset = offsets(high - low + 1)
    weight, missing = np.empty(offset[-1]), np.empty(offset[-1])
    scale = np.add.reduceat(groups.multiplicity * messages.log_scale[groups.member], groups.offset[:-1])
    tilt, exponent, error, below, above = sum_groups(
        messages.arrays, messages.error, _csr(groups), low, high, np.log(share), offset, weight, missing
    )
    return Messages(
        first=groups.add(messages.first) + low,
        offset=offset,
        weight=weight,
        missing=missing,
        tilt=tilt,
        log_scale=scale + (exponent + tilt * low) * LN2,
        error=error,
        below=below,
        above=above,
    )


@dataclass(frozen=True, slots=True)
class _Step:
    """Distinct groups with the total of each; a member of an entry takes `rows` rows of words."""

    messages: Messages
    groups: Groups
    rows: Integers
    totals: Integers

    def visit(
        self,
        kind: Integers,
        row: Integers,
        place: Integers,
        allowance: float,
        limits: Floats,
        words: NDArray[np.uint64],
        draws: Integers,
    ) -> tuple[Floats, Floats]:
        """Draw one split per visit of a distinct group, reading words from its row on and writing from its place on."""
        aim, _ = _relative(self.messages, self.groups, self.totals, self.totals)
        order = np.argsort(kind, kind="stable")
        visits = offsets(np.bincount(kind, minlength=len(self.groups))), row[order], place[order]
        found = split_groups(
            self.messages.arrays,
            self.messages.error,
            _csr(self.groups),
            self.rows.copy(),
            aim,
            visits,
            allowance,
            limits,
            words,
            draws,
        )
        lost, error = np.empty(len(kind)), np.empty(len(kind))
        lost[order], error[order] = found
        return lost, error
