"""Compiled loops over the cells and groups of a large family, with the same results on every machine.

Tables are children x cells, sums are children x groups. ``index`` has a row for each query and says to which group each
cell counts; groups of all queries are numbered through. Nothing is summed in parallel, so that results do not depend on
the number of cores.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from das.compiled import compiled

__all__ = ["dual_hessian", "group_sums", "share_out", "spread"]

Floats = NDArray[np.float64]
Index = NDArray[np.int32]


@compiled
def group_sums(x: Floats, index: Index, out: Floats) -> None:
    """Sum the cells of each group, for each child."""
    out[:] = 0.0
    for child in range(x.shape[0]):
        for query in range(index.shape[0]):
            for cell in range(x.shape[1]):
                out[child, index[query, cell]] += x[child, cell]


@compiled
def spread(values: Floats, index: Index, out: Floats) -> None:
    """Sum over the queries the value of each cell's group, for each child: the transpose of :func:`group_sums`."""
    out[:] = 0.0
    for child in range(out.shape[0]):
        for query in range(index.shape[0]):
            for cell in range(out.shape[1]):
                out[child, cell] += values[child, index[query, cell]]


@compiled
def share_out(point: Floats, parent: Floats, free: NDArray[np.bool_], out: Floats) -> None:
    """Find the shares of each cell's people that are nearest to a point: not negative, and none where not free.

    They are max(point - t, 0), with t the largest over k of (sum of the k largest - parent) / k (Held, Wolfe and
    Crowder 1974). Without a parent (an empty array) the sums are free and the answer is max(point, 0).
    """
    children, cells = point.shape
    ordered = np.empty(children)
    bound = len(parent) > 0
    for cell in range(cells):
        level = 0.0
        if bound:
            count = 0
            for child in range(children):
                if free[child, cell]:
                    at = count
                    while at > 0 and ordered[at - 1] < point[child, cell]:
                        ordered[at] = ordered[at - 1]
                        at -= 1
                    ordered[at] = point[child, cell]
                    count += 1
            level, total = -np.inf, 0.0
            for k in range(count):
                total += ordered[k]
                level = max(level, (total - parent[cell]) / (k + 1))
        for child in range(children):
            out[child, cell] = max(point[child, cell] - level, 0.0) if free[child, cell] else 0.0


@compiled
def dual_hessian(x: Floats, index: Index, metric: Floats, shared: bool, out: Floats) -> None:
    """Hessian of the dual: minus the derivative of each child's sums by dual variable, (children x groups) squared.

    A dual variable moves the cells that are positive by 1 / ``metric``; where a parent's count is shared, siblings that
    are positive too take the opposite of it between them.
    """
    children, cells = x.shape
    queries, groups = index.shape[0], out.shape[0] // children
    out[:] = 0.0
    positive = np.empty(children, dtype=np.int64)
    for cell in range(cells):
        count = 0
        for child in range(children):
            if x[child, cell] > 0.0:
                positive[count] = child
                count += 1
        for i in range(count):
            for j in range(count):
                if not shared and i != j:
                    continue
                entry = ((1.0 if i == j else 0.0) - (1.0 / count if shared else 0.0)) / metric[cell]
                row, column = positive[i] * groups, positive[j] * groups
                for first in range(queries):
                    at = row + index[first, cell]
                    for second in range(queries):
                        out[at, column + index[second, cell]] += entry
