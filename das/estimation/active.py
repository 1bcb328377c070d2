"""Guess which cells are positive and which limits bind, minimise on that face, correct the guess.

A primal-dual active-set method (Hintermüller, Ito and Kunisch 2003), which is a semismooth Newton method: after a few
faces it ends with the optimum itself. Given the positive cells F and the binding limits, the optimum on the face obeys

    curvature x_c + price + B'toll = linear  on F,   x_c = 0 off F,   sum over c of x_c = parent,   B x_c = bound

and is found by conjugate gradients that stay within it (Gould, Hribar and Nocedal 2001): taking the mean off each
cell's entries and solving a small system for the tolls keeps the sums. While the guess is still changing the gradients
need not go far. The first guess is the table nearest to what was measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from das.estimation.distance import Distance
from das.estimation.tables import Multipliers, Tables

__all__ = ["Settled", "settle"]

_FACES = 60
_ROUGH = 0.15
"""How far the slope on a face must fall, as a share, while the guess is still changing."""
_FINE = 1e-4
"""How far it must have fallen at the end, in persons: as far as the curvature's modulus makes of this. What is lost is
its square, 1e-8 of what one person more in one cell would cost; the certificate has the last word."""
_FINEST = 1e-10
"""The same where there is no modulus: the certificate is off by the slope that is left, not by its square."""
_ROUNDING = 1e-9
_FIRM = 4.0
"""A child's total whose curvature is so many times its cells' slows the gradients down unless they know of it."""
_FIRM_CHILDREN = 256
_LIMITS = 1500
"""With more binding limits than this the small system is no longer small."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The optimum of the last face, its multipliers, how many products with the curvature it took, and if it stands."""

    x: NDArray[np.float64]  # cells x children
    multipliers: Multipliers
    products: int
    stands: bool


def settle(distance: Distance, tables: Tables) -> Settled:
    """Find the table that is nearest.

    Examples
    --------
    Two children share three people in each of two cells; the first would rather have none of the second cell.

    >>> distance = Distance(table=np.array([[1.0, 0.0]]), kinds=np.array([[0, 1], [1, 0]]), modulus=1.0, constant=0.0,
    ...                     reference=np.array([[2.0, 1.0], [-3.0, 2.0]]), pull=np.zeros((2, 2)))
    >>> settled = settle(distance, Tables.of(np.array([3.0, 3.0]), np.ones((2, 2), dtype=bool), ()))
    >>> settled.x.round(9).tolist(), settled.stands
    ([[2.0, 1.0], [0.0, 3.0]], True)
    """
    from das.estimation import face_kernels, settle_kernels

    x, positive = distance.reference.copy(), tables.free.copy()
    face_kernels.share_out(tables.parent, positive, x)
    slope = distance.bend(x - distance.reference) - distance.pull
    largest = max(1.0, float(tables.parent.max(initial=0.0)), float(x.max(initial=0.0)))
    multipliers = Multipliers(np.zeros(len(tables.parent)), np.zeros(tables.lower.shape))
    _, products, stands = settle_kernels.settle(
        distance.edges,
        distance.weights,
        distance.table,
        distance.kinds,
        tables.parent,
        tables.free,
        tables.row_start,
        tables.row_cell,
        tables.cell_start,
        tables.cell_row,
        tables.lower,
        tables.upper,
        positive,
        x,
        slope,
        _firm(distance, tables),
        _ROUNDING * largest,
        _FINE * distance.modulus if distance.modulus > 0 else _FINEST * distance.scale,
        _ROUGH,
        _FACES,
        _LIMITS,
        multipliers.prices,
        multipliers.tolls,
    )
    return Settled(x, multipliers, int(products), bool(stands))


def _firm(distance: Distance, tables: Tables) -> NDArray[np.float64]:
    """Say how much firmer than its cells each child's total is; zero where it matters little or is held by a limit."""
    cells, children = tables.free.shape
    firm = distance.firmness
    whole = np.diff(tables.row_start) == cells
    firm[((tables.lower == tables.upper) & whole).any(axis=1)] = 0.0
    firm[firm * cells < _FIRM] = 0.0
    return firm if children <= _FIRM_CHILDREN else np.zeros(children)
