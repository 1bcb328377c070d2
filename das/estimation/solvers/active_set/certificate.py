"""How far a table is from what was measured, and a bound on how near any other can come. Compiled."""

from __future__ import annotations

import numpy as np

from das.compiled import compiled
from das.estimation.solvers.active_set.hessian import Floats
from das.estimation.solvers.active_set.setup import Distance, Tables, hessian_product

__all__ = ["value_and_bound"]


@compiled
def value_and_bound(
    distance: Distance, tables: Tables, at: Floats, prices: Floats, toll: Floats
) -> tuple[float, float]:
    """Return the distance of a point and one that no table is nearer than, whatever point and multipliers are.

    Split the curvature into modulus times identity plus a rest R that is positive semidefinite. Replace the rest by its
    tangent at a point w, and sums and limits by a Lagrangian with prices p and tolls l: for tables y, as steps from the
    reference,

        distance(y) >= constant + min over y of [modulus |y|^2 + 2 y.(R w - pull + p + B'l)] - w'R w - 2 (p, l).(bounds)

    and the minimum over 0 <= y <= parent is taken cell by cell (Fenchel's dual with a strongly convex part,
    Rockafellar 1970, section 31). The bound is off by the square of the distance to the optimum, and tight there.
    Without a modulus it is off by the distance itself and, at the top of the spine, says nothing.
    """
    m, n = at.shape
    parent, upper, lower, modulus = tables.parent, tables.upper, tables.lower, distance.modulus
    step = np.empty((m, n))
    for i in range(m):
        for c in range(n):
            step[i, c] = at[i, c] - distance.reference[i, c]
    bent = hessian_product(distance, step)
    value, bound = distance.constant, distance.constant
    for c in range(n):
        for r in range(lower.shape[1]):
            if toll[c, r] > 0.0 and upper[c, r] < np.inf:
                bound -= 2.0 * toll[c, r] * upper[c, r]
            elif toll[c, r] < 0.0:
                bound -= 2.0 * toll[c, r] * lower[c, r]
    for i in range(m):
        most = parent[i] if len(parent) > 0 else np.inf
        price = prices[i] if len(parent) > 0 else 0.0
        if len(parent) > 0:
            bound -= 2.0 * price * parent[i]
        for c in range(n):
            charge = price
            for k in range(tables.cell_start[i], tables.cell_start[i + 1]):
                r = tables.cell_row[k]
                if toll[c, r] < 0.0 or upper[c, r] < np.inf:
                    charge += toll[c, r]
            linear = distance.linear[i, c]
            rest = bent[i, c] - modulus * step[i, c]
            force = linear - rest
            y = 0.0
            if tables.free[i, c] and modulus > 0.0:
                y = min(max(distance.reference[i, c] + (force - charge) / modulus, 0.0), most)
            elif tables.free[i, c] and force > charge:
                y = most
            s = y - distance.reference[i, c]
            value += step[i, c] * (bent[i, c] - 2.0 * linear)
            bound += s * (modulus * s - 2.0 * force) + 2.0 * charge * y - step[i, c] * rest
    if modulus <= 0.0 and len(parent) == 0:
        bound = -np.inf
    return value, bound
