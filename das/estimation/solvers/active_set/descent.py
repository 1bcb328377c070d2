"""Minimise the objective on one face: project onto its affine hull, then descend by conjugate gradients. Compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from das.compiled import compiled_part
from das.estimation.solvers.active_set.face import (
    Blocks,
    Face,
    blocks_product,
    chain_product_on_face,
    project,
)
from das.estimation.solvers.active_set.layout import Floats
from das.estimation.solvers.active_set.setup import Constraints, Objective
from das.estimation.solvers.active_set.state import State, Vectors, Workspace

__all__ = ["EXTRA_STEPS", "Progress", "descend", "project_onto_face", "start_descent"]

EXTRA_STEPS = 50
"""Steps on a face beyond the number of its entries, after which the descent ends."""
_ROUGH = 0.15
"""How far the half gradient on a face must fall, as a share, while the active set still changes."""
_FARKAS = 1e6
"""Multiplier, for each person missed, of a limit that a face cannot meet: it draws in entries beside the face."""


class Progress(NamedTuple):
    """Conjugate gradients on a face so far, so that they can be continued."""

    energy: float  # of the last step
    steps: int
    products: int  # with the Hessian
    squared: float  # squared length of the projected gradient that is left
    target: float  # squared length at which to stop; negative: a share of that at the start


@compiled_part
def project_onto_face(
    face: Face, factor: Floats, constraints: Constraints, state: State, vectors: Vectors
) -> tuple[Floats, float]:
    """Project the iterate onto the affine hull of the face; fill in the point as ``moved``.

    Returned is by how much each binding limit is missed, if the face cannot meet all, and the largest such number.
    The point is seen from where each cell's entries are equal and sum to the parent.
    """
    start, share = face.start, face.share
    number, held = face.number, face.binding
    x, lower = state.x, constraints.lower
    upper, cells = constraints.upper, vectors.cells
    parent, cell = constraints.parent, face.cell
    child, terms = face.child, face.terms
    moved, even = vectors.moved, vectors.step
    limits, binding = vectors.limits_step, state.binding
    goal, missed, worst = np.empty(held), np.empty(held), 0.0
    for r in range(binding.shape[1]):
        for c in range(binding.shape[0]):
            if number[r, c] >= 0:
                goal[number[r, c]] = upper[c, r] if binding[c, r] > 0 else lower[c, r]
    for j in range(len(cell)):
        even[j] = parent[cell[j]] * share[cell[j]] if len(parent) > 0 else 0.0
        moved[j] = x[cell[j], child[j]] - even[j]
    for _ in range(2):  # the second time removes the rounding of the first
        for b in range(face.numbered):
            limits[b] = -goal[b] if b < held else 0.0
        for t in range(len(terms)):
            limits[terms[t, 1]] += even[terms[t, 0]] if terms[t, 1] < held else -moved[terms[t, 0]]
        project(start, share, terms, factor, moved, cells, limits)
    for j in range(len(cell)):
        moved[j] += even[j]
    for b in range(held):
        missed[b] = -goal[b]
    for t in range(len(terms)):
        if terms[t, 1] < held:
            missed[terms[t, 1]] += moved[terms[t, 0]]
    for b in range(held):
        worst = max(worst, abs(missed[b]))
    return missed, worst


@compiled_part
def start_descent(face: Face, missed: Floats, infeasible: bool, state: State, vectors: Vectors) -> None:
    """Set the descent to minus the half gradient, and all moves and multipliers to zero.

    If the face cannot meet its limits, those missed get large multipliers: on the entries of the face these cancel
    out, and entries beside it that could help become positive.
    """
    cell, child = face.cell, face.child
    terms, half_gradient = face.terms, state.half_gradient
    descent, direction, moved = vectors.descent, vectors.direction, vectors.moved
    cells, limits = vectors.cells, vectors.limits
    for j in range(len(cell)):
        descent[j] = -half_gradient[cell[j], child[j]]
        direction[j] = 0.0
        moved[j] = 0.0
    for i in range(len(cells)):
        cells[i] = 0.0
    for b in range(face.numbered):
        limits[b] = _FARKAS * missed[b] if infeasible and b < face.binding else 0.0
    for t in range(len(terms) if infeasible else 0):
        descent[terms[t, 0]] -= limits[terms[t, 1]]


@compiled_part
def _dot(left: Floats, right: Floats) -> float:
    """Inner product: four sums side by side, in an order that does not depend on the machine."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    size = len(left)
    for j in range(0, size - 3, 4):
        a += left[j] * right[j]
        b += left[j + 1] * right[j + 1]
        c += left[j + 2] * right[j + 2]
        d += left[j + 3] * right[j + 3]
    for j in range(size - size % 4, size):
        a += left[j] * right[j]
    return (a + b) + (c + d)


@compiled_part
def descend(
    objective: Objective,
    face: Face,
    factor: Floats,
    blocks: Blocks,
    vectors: Vectors,
    space: Workspace,
    fine: float,
    progress: Progress,
) -> Progress:
    """Continue conjugate gradients until the projected gradient is as short as ``progress`` asks for.

    ``fine`` is the length at which a face is solved: no target is below it.
    """
    descent, step, direction = vectors.descent, vectors.step, vectors.direction
    product, moved, cells = vectors.product, vectors.moved, vectors.cells
    limits, limits_step = vectors.limits, vectors.limits_step
    start, share, terms = face.start, face.share, face.terms
    child, stiff = face.child, face.number[-1]
    energy_before, steps = progress.energy, progress.steps
    products, target = progress.products, progress.target
    size, most = len(face.cell), EXTRA_STEPS + len(face.cell)
    binding, numbered = face.binding, face.numbered
    place, edges, weights = face.place, objective.edges, objective.weights
    sums, row = space.sums, space.row
    while True:
        for b in range(numbered):
            limits_step[b] = 0.0
        for j in range(size):
            step[j] = descent[j]
        project(start, share, terms, factor, step, cells, limits_step)
        for b in range(binding):
            limits[b] += limits_step[b]
        squared = _dot(step, step)
        energy = squared
        # What the stiff totals took is still to be descended; the rest is gone for good.
        for j in range(size):
            descent[j] = step[j]
        if numbered > binding:
            for j in range(size):
                if stiff[child[j]] >= 0:
                    descent[j] += limits_step[stiff[child[j]]]
            energy = _dot(descent, step)
        if target < 0.0:
            target = max(fine * fine, _ROUGH * _ROUGH * squared)
        if squared <= target or steps >= most:
            return Progress(energy_before, steps, products, squared, target)
        keep = energy / energy_before if steps > 0 else 0.0
        energy_before = energy
        for j in range(size):
            direction[j] = step[j] + keep * direction[j]
        if len(weights) > 0:
            chain_product_on_face(place, edges, weights, len(start) - 1, sums, direction, product)
        else:
            blocks_product(blocks, row, direction, product)
        steps += 1
        products += 1
        curvature = _dot(direction, product)
        if curvature <= 0.0:  # flat up to rounding
            steps = most
            continue
        length = energy / curvature
        for j in range(size):
            moved[j] += length * direction[j]
            descent[j] -= length * product[j]
