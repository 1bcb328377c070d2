"""A map of a generated state: where its blocks would lie, the same every time, without any file.

Leaves are strung along a Hilbert curve in the order of their geocodes, so that neighbours in the list are neighbours on
the map and every unit of every level is one piece of land. Each leaf gets its Voronoi cell, and a unit the union of the
cells of its leaves. The coast is an outline with bays. Nothing of it is real, and it says so where it is shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import Voronoi

__all__ = ["made_up_shapes"]

Floats = NDArray[np.float64]
Rings = list[Floats]

SEED = 1790
JITTER = 0.32
"""How far a point lies from the middle of its square at most, in squares."""
SPARE = 3
"""Squares of the grid per leaf, at least: so that the coast is finer than a leaf."""


def made_up_shapes(unit_of_leaf: NDArray[np.int64], units: int) -> list[Rings]:
    """Draw units as rings of points in the unit square, y upwards; a unit without leaves has none.

    Parameters
    ----------
    unit_of_leaf : ndarray of int
        The unit of each leaf, leaves in the order of their geocodes.
    units : int
        How many units there are.

    Examples
    --------
    >>> shapes = made_up_shapes(np.repeat([0, 1, 2], 40), 3)
    >>> [len(rings) >= 1 for rings in shapes]
    [True, True, True]
    """
    leaves = len(unit_of_leaf)
    if not leaves:
        return [[] for _ in range(units)]
    side = 2 ** max(3, math.ceil(math.log2(math.sqrt(SPARE * leaves / 0.6))))
    land, sea = _squares(side)
    chosen = land[(np.arange(leaves) * len(land)) // leaves]
    rng = np.random.Generator(np.random.PCG64(SEED))
    points = np.concatenate([chosen, sea]) + 0.5
    points = points + rng.uniform(-JITTER, JITTER, points.shape)
    owner = np.concatenate([unit_of_leaf, np.full(len(sea), -1)])
    voronoi = Voronoi(points)
    one, two = (owner[voronoi.ridge_points[:, side_of]] for side_of in (0, 1))
    border = np.flatnonzero(one != two)
    edges: list[list[tuple[int, int]]] = [[] for _ in range(units)]
    for ridge in border.tolist():
        start, end = voronoi.ridge_vertices[ridge]
        for unit in (int(one[ridge]), int(two[ridge])):
            if unit >= 0 and start >= 0:
                edges[unit].append((start, end))
    corners = voronoi.vertices / side
    return [[corners[ring] for ring in _rings(mine)] for mine in edges]


def _squares(side: int) -> tuple[Floats, Floats]:
    """Squares of land in the order of a Hilbert curve, and squares of the sea around."""
    at = _hilbert(side)
    x, y = ((at + 0.5) / side - 0.5).T
    angle = np.arctan2(y, x)
    coast = 0.40 + 0.035 * np.sin(3 * angle + 1.0) + 0.025 * np.sin(5 * angle) + 0.015 * np.sin(11 * angle + 2.0)
    inside = np.hypot(x, y * 1.12) < coast
    return at[inside].astype(np.float64), at[~inside].astype(np.float64)


def _hilbert(side: int) -> NDArray[np.int64]:
    """Squares of a grid in the order of the Hilbert curve (Hilbert 1891), by the usual bit loop over all at once."""
    t = np.arange(side * side)
    x, y = np.zeros_like(t), np.zeros_like(t)
    scale = 1
    while scale < side:
        right = (t // 2) & 1
        up = (t ^ right) & 1
        flip = (up == 0) & (right == 1)
        x, y = np.where(flip, scale - 1 - x, x), np.where(flip, scale - 1 - y, y)
        x, y = np.where(up == 0, y, x), np.where(up == 0, x, y)
        x, y = x + scale * right, y + scale * up
        t //= 4
        scale *= 2
    return np.stack([x, y], axis=1)


def _rings(edges: list[tuple[int, int]]) -> Iterator[list[int]]:
    """Chain undirected edges into closed rings; every corner has an even number of them."""
    beside: dict[int, list[int]] = {}
    for start, end in edges:
        beside.setdefault(start, []).append(end)
        beside.setdefault(end, []).append(start)
    while beside:
        start = at = next(iter(beside))
        ring = []
        while True:
            ring.append(at)
            following = beside[at].pop()
            beside[following].remove(at)
            for corner in (at, following):
                if not beside.get(corner, [0]):
                    del beside[corner]
            at = following
            if at == start:
                break
        yield ring
