"""Active-set solve: assume which entries are positive and which limits bind, minimise on that face, correct the set.

A primal-dual active-set method (Hintermüller, Ito and Kunisch 2003), which is a semismooth Newton method: after a few
faces it ends with the optimum itself. Given the positive entries F and the binding limits, the optimum on the face has

    H (x_c - reference_c) + p + B'l_c = linear_c  on F,   x_c = 0 off F,   sum over c of x_c = parent,   B x_c = bound_c

for each child c, with the Hessian H, a multiplier p for each cell and multipliers l_c for the child's limits. It is
found by conjugate gradients that stay within the face (Gould, Hribar and Nocedal 2001): subtracting the mean of each
cell's entries and solving a small system for the multipliers of limits keeps the sums. While the active set still
changes, the gradients are stopped early. The first iterate is the table nearest to the reference.

Faces and their entries are those of :mod:`das.estimation.solvers.active_set.face`; tables are cells x children.
"""

from __future__ import annotations

import numpy as np

from das.compiled import compiled_part
from das.estimation.solvers.active_set.descent import (
    EXTRA_STEPS,
    Progress,
    descend,
    project_onto_face,
    start_descent,
)
from das.estimation.solvers.active_set.face import Face, factorise, hessian_blocks, list_face, share_out
from das.estimation.solvers.active_set.hessian import add_kinds_product, chain_product
from das.estimation.solvers.active_set.layout import Floats
from das.estimation.solvers.active_set.setup import Constraints, Objective, hessian_product
from das.estimation.solvers.active_set.state import Result, State, Tolerances, Workspace, new_workspace, vectors_on

__all__ = ["solve_active_set"]

_FACES = 60
_FINE = 1e-4
"""Half gradient at which a face is solved, in persons times the modulus. The error of the objective is its square, 1e-8
of what one more person in one cell would cost; the certificate decides."""
_FINEST = 1e-10
"""The same where there is no modulus: the certificate is off by the gradient that is left, not by its square."""
_NEAR = 1e-9
"""Counts this near zero, in persons, are zero; the rounding of the largest count is added to it."""
_ROUNDING = 1e-13
_STIFF = 4.0
"""A child's total whose stiffness is so many times its cells' slows the descent down unless it is preconditioned."""
_STIFF_CHILDREN = 256
_LIMITS = 1500
"""With more binding limits than this the small system is no longer small."""


@compiled_part
def _stiff_totals(objective: Objective, constraints: Constraints) -> Floats:
    """Stiffness of each child's total against its cells; zero where it matters little or a limit fixes the total."""
    cells, children = constraints.free.shape
    row_start, lower, upper = constraints.row_start, constraints.lower, constraints.upper
    stiffness = objective.stiffness.copy()
    for c in range(children):
        for row in range(lower.shape[1]):
            whole = row_start[row + 1] - row_start[row] == cells
            if whole and lower[c, row] == upper[c, row]:
                stiffness[c] = 0.0
        if stiffness[c] * cells < _STIFF or children > _STIFF_CHILDREN:
            stiffness[c] = 0.0
    return stiffness


@compiled_part
def _first_state(objective: Objective, constraints: Constraints) -> tuple[State, Tolerances]:
    """Start from the table nearest to the reference, with equalities as binding limits."""
    parent, lower = constraints.parent, constraints.lower
    upper, reference = constraints.upper, objective.reference
    x, positive, linear = reference.copy(), constraints.free.copy(), objective.linear
    share_out(parent, positive, x)
    m, n = x.shape
    move, largest = np.empty((m, n)), 1.0
    for i in range(m):
        largest = max(largest, parent[i] if len(parent) > 0 else 0.0)
        for c in range(n):
            move[i, c] = x[i, c] - reference[i, c]
            largest = max(largest, x[i, c])
    half_gradient = hessian_product(objective, move)
    for i in range(m):
        for c in range(n):
            half_gradient[i, c] -= linear[i, c]
    binding = np.zeros(lower.shape, dtype=np.int64)
    for c in range(n):
        for r in range(lower.shape[1]):
            if lower[c, r] == upper[c, r] and upper[c, r] > 0.0:
                binding[c, r] = 1
    near = _NEAR + _ROUNDING * largest
    fine = _FINE * objective.modulus if objective.modulus > 0.0 else _FINEST * objective.scale
    state = State(x, half_gradient, positive, binding, np.zeros(len(parent)), np.zeros(lower.shape))
    return state, Tolerances(near, fine)


@compiled_part
def _move(objective: Objective, sums: Floats, move: Floats, x: Floats, half_gradient: Floats) -> None:
    """Move a table, and its half gradient by the Hessian product of the move; ``sums`` is scratch."""
    m, n = x.shape
    if len(objective.weights) > 0:
        for i in range(m):
            row = sums[i]
            for c in range(n):
                row[c] = move[i, c]
        chain_product(objective.edges, objective.weights, m, sums)
        for i in range(m):
            for c in range(n):
                half_gradient[i, c] += sums[i, c]
    else:
        add_kinds_product(objective.table, objective.kinds, move, half_gradient)
    for i in range(m):
        for c in range(n):
            x[i, c] += move[i, c]


@compiled_part
def _correct_entries(constraints: Constraints, tolerances: Tolerances, state: State) -> int:
    """Drop entries that are negative, add free ones whose reduced gradient is; return the number of changes."""
    x, half_gradient, positive = state.x, state.half_gradient, state.positive
    cell_multipliers, limit_multipliers = state.cell_multipliers, state.limit_multipliers
    free, cell_start, cell_row = constraints.free, constraints.cell_start, constraints.cell_row
    near, little = tolerances.near, 4.0 * tolerances.fine
    m, n = x.shape
    changes = 0
    for i in range(m):
        multiplier = cell_multipliers[i] if len(cell_multipliers) > 0 else 0.0
        for c in range(n):
            if positive[i, c]:
                if x[i, c] < -near:
                    positive[i, c] = False
                    changes += 1
            elif free[i, c]:
                reduced = half_gradient[i, c] + multiplier
                for k in range(cell_start[i], cell_start[i + 1]):
                    reduced += limit_multipliers[c, cell_row[k]]
                if reduced < -little:
                    positive[i, c] = True
                    changes += 1
    return changes


@compiled_part
def _correct_limits(constraints: Constraints, tolerances: Tolerances, state: State) -> int:
    """Release limits whose multiplier has the wrong sign, bind those that are violated; return the number of both."""
    x, binding, multipliers = state.x, state.binding, state.limit_multipliers
    row_start, row_cell = constraints.row_start, constraints.row_cell
    lower, upper = constraints.lower, constraints.upper
    near, little = tolerances.near, 4.0 * tolerances.fine
    n = x.shape[1]
    changes, total = 0, np.empty(n)
    for r in range(binding.shape[1]):
        for c in range(n):
            total[c] = 0.0
        for k in range(row_start[r], row_start[r + 1]):
            row = x[row_cell[k]]
            for c in range(n):
                total[c] += row[c]
        for c in range(n):
            if binding[c, r] != 0:
                if lower[c, r] < upper[c, r] and binding[c, r] * multipliers[c, r] < -little:
                    binding[c, r] = 0
                    changes += 1
            elif upper[c, r] > 0.0:
                if total[c] > upper[c, r] + near:
                    binding[c, r] = 1
                    changes += 1
                elif total[c] < lower[c, r] - near:
                    binding[c, r] = -1
                    changes += 1
    return changes


@compiled_part
def _correct(face: Face, limits: Floats, constraints: Constraints, tolerances: Tolerances, state: State) -> int:
    """Correct the active set; return the number of changes. ``limits`` are the face's multipliers, by number."""
    number, multipliers = face.number, state.limit_multipliers
    for c in range(multipliers.shape[0]):
        for r in range(multipliers.shape[1]):
            multipliers[c, r] = limits[number[r, c]] if number[r, c] >= 0 else 0.0
    changes: int = _correct_entries(constraints, tolerances, state) + _correct_limits(constraints, tolerances, state)
    return changes


@compiled_part
def _solve_face(
    objective: Objective,
    constraints: Constraints,
    face: Face,
    factor: Floats,
    tolerances: Tolerances,
    space: Workspace,
    state: State,
) -> tuple[int, bool, bool]:
    """Minimise on a face and correct the active set; return products, whether it is final, and feasible.

    The descent first goes far enough to see what is wrong with the face; if nothing is, on to the face's optimum.
    """
    cell, child, move = face.cell, face.child, space.move
    vectors = vectors_on(face, space.vectors, state.cell_multipliers)
    x, half_gradient, moved = state.x, state.half_gradient, vectors.moved
    missed, worst = project_onto_face(face, factor, constraints, state, vectors)
    feasible = worst <= tolerances.near
    m, n = move.shape
    for i in range(m):
        for c in range(n):
            move[i, c] = -x[i, c]
    for j in range(len(cell)):
        move[cell[j], child[j]] += moved[j]
    _move(objective, space.sums, move, x, half_gradient)
    blocks = hessian_blocks(objective, face, space.block_entry, space.block_start)
    start_descent(face, missed, not feasible, state, vectors)
    progress, solved = Progress(0.0, 0, 0, np.inf, -1.0), tolerances.fine * tolerances.fine
    while True:
        progress = descend(objective, face, factor, blocks, vectors, space, tolerances.fine, progress)
        for i in range(m):
            for c in range(n):
                move[i, c] = 0.0
        for j in range(len(cell)):
            move[cell[j], child[j]] = moved[j]
            moved[j] = 0.0
        _move(objective, space.sums, move, x, half_gradient)
        if _correct(face, vectors.limits, constraints, tolerances, state) > 0:
            return progress.products, False, feasible
        if progress.squared <= solved or progress.steps >= EXTRA_STEPS + len(cell):
            return progress.products, True, feasible
        progress = Progress(progress.energy, progress.steps, progress.products, progress.squared, solved)


@compiled_part
def solve_active_set(objective: Objective, constraints: Constraints) -> Result:
    """Find the optimal table and its multipliers; it counts as solved if the last face was final and feasible."""
    stiffness, space = _stiff_totals(objective, constraints), new_workspace(objective, constraints)
    state, tolerances = _first_state(objective, constraints)
    products, final, feasible = 0, False, False
    for _ in range(_FACES):
        face = list_face(state.positive, state.binding, constraints, stiffness, space.face)
        if face.numbered > _LIMITS:
            break
        factor = factorise(face, constraints, stiffness, space.tied)
        taken, final, feasible = _solve_face(objective, constraints, face, factor, tolerances, space, state)
        products += taken
        if final:
            break
    return Result(state.x, state.cell_multipliers, state.limit_multipliers, products, final and feasible)
