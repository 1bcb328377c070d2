"""Random walks on a graph with integer weights, drawn exactly: from 32-bit words, and from further bits on ties.

Each choice of a *node* is an amount, with an integer weight and the node that follows. A step takes an amount with
probability weight over sum, exactly: a word decides unless it equals a threshold, and then further bits decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from das.compiled import compiled
from das.noise.stream import Bits, Bundle

__all__ = ["Choice", "Walks", "choose", "draw_tables", "flatten", "words"]

WORD_BITS = 32
GUIDE_BITS = 8
LARGEST_WORD = (1 << WORD_BITS) - 1
UNDECIDED = np.int16(-1)
LARGEST_AMOUNT = (1 << 15) - 1
_LANES_PER_WORD = 2
_SHIFT = WORD_BITS - GUIDE_BITS
_TILE = 128  # tables drawn together, so that the choices of one step stay in the cache


@dataclass(frozen=True, slots=True)
class Choice:
    """The choices of one node, largest weight first: amounts, integer weights, and the following nodes."""

    amounts: tuple[int, ...]
    weights: tuple[int, ...]
    following: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Walks:
    """All nodes as flat arrays; the choices of node v are at ``first[v]`` to ``first[v + 1]``.

    ``threshold`` is ``floor(2^32 (weights up to and with this one) / sum)``, and for the last choice the largest word.
    ``guide[v, word >> 24]`` is the amount if all words with these leading bits lead to it, else ``UNDECIDED``.
    """

    first: NDArray[np.int32]
    threshold: NDArray[np.uint32]
    amount: NDArray[np.int32]
    following: NDArray[np.int32]
    guide: NDArray[np.int16]


def flatten(choices: Iterable[Choice]) -> Walks:
    """Store the choices of all nodes in flat arrays.

    Examples
    --------
    >>> walks = flatten([Choice((5, 7), (3, 1), (0, 0))])
    >>> int(walks.threshold[0]) / 2**32, walks.amount.tolist(), walks.guide[0, [0, 191, 192, 193]].tolist()
    (0.75, [5, 7], [5, 5, -1, 7])
    """
    edges = np.arange((1 << GUIDE_BITS) + 1, dtype=np.int64) << (WORD_BITS - GUIDE_BITS)
    first, guides = [0], []
    threshold: list[int] = []
    amount: list[int] = []
    following: list[int] = []
    for choice in choices:
        total, reached = sum(choice.weights), 0
        for weight in choice.weights[:-1]:
            reached += weight
            threshold.append((reached << WORD_BITS) // total)
        bounds = np.array(threshold[first[-1] :], dtype=np.int64)
        # all words from one edge to the next mean choice i if they lie above threshold i - 1 and below threshold i
        least, most = np.searchsorted(bounds, edges[:-1]), np.searchsorted(bounds, edges[1:])
        guides.append(np.where(least == most, np.array(choice.amounts, dtype=np.int16)[least], UNDECIDED))
        threshold.append(LARGEST_WORD)
        amount.extend(choice.amounts)
        following.extend(choice.following)
        first.append(len(amount))
    return Walks(
        np.array(first, dtype=np.int32),
        np.array(threshold, dtype=np.uint32),
        np.array(amount, dtype=np.int32),
        np.array(following, dtype=np.int32),
        np.array(guides, dtype=np.int16).reshape(-1, 1 << GUIDE_BITS),
    )


def words(bundle: Bundle, n: int) -> NDArray[np.uint32]:
    """Return n uniform 32-bit words of each stream, two lanes each.

    Examples
    --------
    >>> from das.noise.stream import RunKey
    >>> words(RunKey.for_testing("doc").streams(b"").bundle([("", "", "", "")]), 3).shape
    (1, 3)
    """
    lanes = np.empty(bundle.count * n * _LANES_PER_WORD, dtype="<u2")
    for start, run in bundle.lanes(n * _LANES_PER_WORD):
        lanes[start : start + run.size] = run
    return lanes.view("<u4").reshape(bundle.count, n)


def choose(weights: Sequence[int], word: int, more: Callable[[], Bits]) -> int:
    """Return place i with probability ``weights[i] / sum(weights)`` exactly, from a word and the bits that follow it.

    The word and further bits are the binary digits of a point of [0, 1); digits are taken until its interval lies
    within one share. What a word decides alone is what the thresholds of :func:`flatten` decide.

    Examples
    --------
    >>> from das.noise.stream import RunKey
    >>> bits = RunKey.for_testing("doc").streams(b"").bits(("", "", "", ""))
    >>> choose((3, 1), 2**31, lambda: bits), choose((3, 1), 2**32 - 1, lambda: bits)
    (0, 1)
    """
    total, digits, point = sum(weights), WORD_BITS, word
    source: Bits | None = None
    while True:
        low, high = point * total, (point + 1) * total  # the point lies in [low, high) / (total 2^digits)
        reached = 0
        for place, weight in enumerate(weights):
            below = reached << digits
            reached += weight
            if below <= low and high <= reached << digits:
                return place
        source = source or more()
        point = (point << WORD_BITS) | source.take(WORD_BITS)
        digits += WORD_BITS


@compiled
def draw_tables(
    first: NDArray[np.int32],
    threshold: NDArray[np.uint32],
    amount: NDArray[np.int32],
    following: NDArray[np.int32],
    guide: NDArray[np.int16],
    entry: NDArray[np.int64],
    tops: NDArray[np.int64],
    member_first: NDArray[np.int64],
    members: NDArray[np.int64],
    uniform: NDArray[np.uint32],
    tables: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Fill each table: first the totals of the classes along the walk from node 0, then each class member by member.

    Class k has ``members[member_first[k] : member_first[k + 1]]``. The walk inside it starts at node
    ``entry[k] + total``; each member has ``tops[k] + 1`` nodes, by what is left; the last member takes what is left.
    Word w of a row of `uniform` belongs to the w-th step, forced or not.

    Returns
    -------
    array of bool
        False where a word fell on a threshold; that table has to be decided with more bits.
    """
    classes = len(entry)
    totals = np.empty((classes, _TILE), dtype=np.int64)
    node = np.empty(_TILE, dtype=np.int64)
    decided = np.ones(len(tables), dtype=np.bool_)
    for begin in range(0, len(tables), _TILE):
        size = min(_TILE, len(tables) - begin)
        node[:] = 0
        step = 0
        for k in range(classes):
            for i in range(size):
                word, place = uniform[begin + i, step], first[node[i]]
                while word > threshold[place]:
                    place += 1
                if word == threshold[place]:
                    decided[begin + i] = False
                totals[k, i] = amount[place]
                node[i] = following[place]
            step += 1
        for k in range(classes):
            left, base = totals[k], entry[k]
            for member in range(member_first[k], member_first[k + 1] - 1):
                cell = members[member]
                for i in range(size):
                    word, at = uniform[begin + i, step], base + left[i]
                    taken = np.int64(guide[at, word >> _SHIFT])
                    if taken == UNDECIDED:
                        place = first[at]
                        while word > threshold[place]:
                            place += 1
                        if word == threshold[place]:
                            decided[begin + i] = False
                        taken = np.int64(amount[place])
                    tables[begin + i, cell] = taken
                    left[i] -= taken
                step += 1
                base += tops[k] + 1
            cell = members[member_first[k + 1] - 1]
            for i in range(size):
                tables[begin + i, cell] = left[i]
    return decided
