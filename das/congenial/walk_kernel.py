"""The inner loop of exact table draws, compiled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from das.compiled import compiled
from das.congenial.walks import GUIDE_BITS, UNDECIDED, WORD_BITS

__all__ = ["draw_tables"]

_SHIFT = WORD_BITS - GUIDE_BITS
_TILE = 128  # tables drawn side by side: the choices of one step stay in the cache, and no table waits for another


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
