"""The objective of a table, and a lower bound on the objective of every feasible table. Compiled."""

from __future__ import annotations

import numpy as np

from das.compiled import compiled_part
from das.estimation.solvers.active_set.layout import Floats
from das.estimation.solvers.active_set.setup import Constraints, Objective, hessian_product

__all__ = ["value_and_bound"]


@compiled_part
def _less_limits(bound: float, constraints: Constraints, multipliers: Floats) -> float:
    """Subtract twice the limits' multipliers times the bounds on their side; where there is no bound, the term is 0."""
    lower, upper = constraints.lower, constraints.upper
    for c in range(lower.shape[0]):
        for r in range(lower.shape[1]):
            if multipliers[c, r] > 0.0 and upper[c, r] < np.inf:
                bound -= 2.0 * multipliers[c, r] * upper[c, r]
            elif multipliers[c, r] < 0.0:
                bound -= 2.0 * multipliers[c, r] * lower[c, r]
    return bound


@compiled_part
def value_and_bound(
    objective: Objective, constraints: Constraints, x: Floats, cell_multipliers: Floats, limit_multipliers: Floats
) -> tuple[float, float]:
    """Return the objective of a point, and a lower bound on that of all feasible tables.

    The bound holds for every point x and all multipliers, optimal or not. With r the reference, a table z has

        objective(z) = constant - 2 linear.(z - r) + (z - r)'H (z - r)

    1. Split H = modulus I + R, where R is positive semidefinite. A convex quadratic lies above its tangents; that of R
       at w = x - r gives  (z - r)'R (z - r) >= 2 (z - r).R w - w'R w.
    2. Let p be the cells' multipliers and l the limits', with B z the limited sums. For a feasible z the sums of cells
       equal the parent, and l.B z <= l.b if b is the upper bound where l > 0 and the lower where l < 0 (a multiplier
       without a bound on its side counts as zero). So  2 q.z - 2 p.parent - 2 l.b <= 0  for q = p + B'l, and adding
       this to the objective leaves a lower bound.
    3. Together, with g = linear - R w, every feasible z has

        objective(z) >= constant - w'R w - 2 p.parent - 2 l.b + [modulus |z - r|^2 - 2 g.(z - r) + 2 q.z]

       and the bracket is at least its minimum over the box 0 <= z <= parent, z = 0 where not free, which contains all
       feasible tables. It is a sum over entries; each has its minimum at r + (g - q) / modulus, moved into the box.

    This is Fenchel's dual with a strongly convex part (Rockafellar 1970, section 31). At the optimum and its
    multipliers the bound is tight; near it, it is off by the square of the distance. Without a modulus the minimum is
    at an end of the box: the bound is off by the distance itself and, at the top of the spine, minus infinity.
    """
    m, n = x.shape
    parent, upper = constraints.parent, constraints.upper
    modulus, reference = objective.modulus, objective.reference
    cell_start, cell_row = constraints.cell_start, constraints.cell_row
    free, linear_terms = constraints.free, objective.linear
    step = np.empty((m, n))
    for i in range(m):
        for c in range(n):
            step[i, c] = x[i, c] - reference[i, c]
    product = hessian_product(objective, step)
    value, bound = objective.constant, _less_limits(objective.constant, constraints, limit_multipliers)
    for i in range(m):
        most = parent[i] if len(parent) > 0 else np.inf
        cell_multiplier = cell_multipliers[i] if len(parent) > 0 else 0.0
        if len(parent) > 0:
            bound -= 2.0 * cell_multiplier * parent[i]
        for c in range(n):
            q = cell_multiplier
            for k in range(cell_start[i], cell_start[i + 1]):
                r = cell_row[k]
                if limit_multipliers[c, r] < 0.0 or upper[c, r] < np.inf:
                    q += limit_multipliers[c, r]
            linear = linear_terms[i, c]
            rest = product[i, c] - modulus * step[i, c]
            g = linear - rest
            z = 0.0
            if free[i, c] and modulus > 0.0:
                z = min(max(reference[i, c] + (g - q) / modulus, 0.0), most)
            elif free[i, c] and g > q:
                z = most
            s = z - reference[i, c]
            value += step[i, c] * (product[i, c] - 2.0 * linear)
            bound += s * (modulus * s - 2.0 * g) + 2.0 * q * z - step[i, c] * rest
    if modulus <= 0.0 and len(parent) == 0:
        bound = -np.inf
    return value, bound
