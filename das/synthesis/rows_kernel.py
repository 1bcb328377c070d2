"""Move single rows to neighbouring cells while that brings marginals closer to their goals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from das.compiled import compiled

__all__ = ["improve"]

_CLOSED = 1e15
"""The residual of a cell in which nobody can be: no move leads there."""


def improve(
    rows: NDArray[np.int64],
    shape: tuple[int, ...],
    marginals: Sequence[tuple[int, ...]],
    goals: Sequence[NDArray[np.float64]],
    closed: Sequence[NDArray[np.bool_]],
    free: NDArray[np.int64],
    order: NDArray[np.int64],
    *,
    sweeps: int,
) -> NDArray[np.int64]:
    """Return rows whose marginals are nearer to the goals, in squared distance summed over all marginals.

    Parameters
    ----------
    rows : ndarray of int
        Label positions, a row a record.
    shape : tuple of int
        Labels of each attribute.
    marginals : sequence of tuple of int
        Axes of each marginal.
    goals : sequence of ndarray
        Real-valued counts of each marginal.
    closed : sequence of ndarray of bool
        Cells in which nobody can be.
    free : ndarray of int
        Axes that may change.
    order : ndarray of int
        In which order rows are visited.
    sweeps : int
        The most visits of each row; it ends earlier when nothing moves.

    Examples
    --------
    >>> start = np.zeros((4, 1), dtype=np.int64)
    >>> moved = improve(start, (2,), [(0,)], [np.array([1.0, 3.0])], [np.zeros(2, bool)], np.array([0]), np.arange(4),
    ...                 sweeps=3)
    >>> np.bincount(moved[:, 0]).tolist()
    [1, 3]
    """
    offsets = np.concatenate([[0], np.cumsum([goal.size for goal in goals])]).astype(np.int64)
    strides = np.zeros((len(marginals), len(shape)), dtype=np.int64)
    residuals = np.empty(int(offsets[-1]))
    for number, axes in enumerate(marginals):
        sizes = [shape[axis] for axis in axes]
        strides[number, list(axes)] = np.append(np.cumprod(sizes[:0:-1])[::-1], 1)
        cells = rows @ strides[number]
        counts = np.bincount(cells, minlength=goals[number].size).astype(np.float64)
        residual = np.where(closed[number].reshape(-1), _CLOSED, counts - goals[number].reshape(-1))
        residuals[offsets[number] : offsets[number + 1]] = residual
    holding = [np.flatnonzero(strides[:, axis]) for axis in free]
    starts = np.concatenate([[0], np.cumsum([len(each) for each in holding])]).astype(np.int64)
    moved = rows.copy()
    _sweep(
        moved,
        np.array(shape, dtype=np.int64),
        strides,
        offsets,
        residuals,
        free,
        np.concatenate(holding).astype(np.int64),
        starts,
        order,
        sweeps,
    )
    return moved


@compiled
def _sweep(rows, shape, strides, offsets, residuals, free, holding, starts, order, sweeps):  # type: ignore[no-untyped-def]
    """Give each attribute of each row the label that lowers the squared distance most, one row after the other."""
    base = np.empty(strides.shape[0], dtype=np.int64)
    for _ in range(sweeps):
        moves = 0
        for row in order:
            for place in range(len(free)):
                axis = free[place]
                old = rows[row, axis]
                leaving = 0.0
                for k in range(starts[place], starts[place + 1]):
                    marginal = holding[k]
                    cell = offsets[marginal]
                    for other in range(strides.shape[1]):
                        cell += rows[row, other] * strides[marginal, other]
                    base[marginal] = cell - old * strides[marginal, axis]
                    leaving += residuals[cell] - 1.0
                best, label = leaving - 1e-9, old
                for new in range(shape[axis]):
                    if new == old:
                        continue
                    entering = 0.0
                    for k in range(starts[place], starts[place + 1]):
                        marginal = holding[k]
                        entering += residuals[base[marginal] + new * strides[marginal, axis]]
                        if entering > 1e12:
                            break
                    if entering < best:
                        best, label = entering, new
                if label != old:
                    moves += 1
                    rows[row, axis] = label
                    for k in range(starts[place], starts[place + 1]):
                        marginal = holding[k]
                        residuals[base[marginal] + old * strides[marginal, axis]] -= 1.0
                        residuals[base[marginal] + label * strides[marginal, axis]] += 1.0
        if moves * 1000 < len(order):
            return
