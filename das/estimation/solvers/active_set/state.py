"""State of the active-set solve as named arrays, which are changed in place. Compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from das.compiled import compiled_part
from das.estimation.solvers.active_set.face import Face
from das.estimation.solvers.active_set.layout import Bools, Floats, Ints, Numbers
from das.estimation.solvers.active_set.setup import Constraints, Objective

__all__ = ["Result", "State", "Tolerances", "Vectors", "Workspace", "new_workspace", "vectors_on"]


class Result(NamedTuple):
    """A table, the multipliers that go with it, the number of Hessian products, and whether it is the optimum."""

    x: Floats  # cells x children
    cell_multipliers: Floats  # empty at the top of the spine
    limit_multipliers: Floats  # children x rows
    products: int
    solved: bool


class State(NamedTuple):
    """The iterate and the active set. The arrays are changed in place."""

    x: Floats  # cells x children
    half_gradient: Floats  # cells x children
    positive: Bools  # cells x children
    binding: Ints  # children x rows: 1 at the upper bound, -1 at the lower, 0 for neither
    cell_multipliers: Floats
    limit_multipliers: Floats  # children x rows


class Tolerances(NamedTuple):
    """Persons within which a count is zero and a limit is met; half gradient at which a face is solved."""

    near: float
    fine: float


class Workspace(NamedTuple):
    """Arrays that are as large as the largest face and are used again on each."""

    face: Face
    block_entry: Numbers
    block_start: Numbers
    tied: Ints
    vectors: Floats  # five vectors on the face
    move: Floats  # cells x children
    sums: Floats  # nodes x children
    row: Floats  # one for each cell


class Vectors(NamedTuple):
    """Vectors on one face, and multipliers by the number of the limit or stiff total."""

    descent: Floats  # minus the half gradient, up to multipliers
    step: Floats  # the descent, projected
    direction: Floats
    product: Floats  # the Hessian times the direction
    moved: Floats  # the sum of all moves
    cells: Floats  # multipliers of cells
    limits: Floats  # multipliers of limits
    limits_step: Floats  # those of the last projection


@compiled_part
def new_workspace(objective: Objective, constraints: Constraints) -> Workspace:
    """Allocate for the largest face that a family has."""
    m, n = constraints.free.shape
    rows, size, most_terms = constraints.lower.shape[1], n * m, n * (len(constraints.row_cell) + m) + 1
    face = Face(
        np.empty(m + 1, dtype=np.uint32),
        np.empty(size, dtype=np.uint32),
        np.empty(size, dtype=np.uint32),
        np.empty(size, dtype=np.uint32),
        np.empty(len(constraints.parent)),
        np.empty((rows + 1, n), dtype=np.int64),
        np.empty((most_terms, 2), dtype=np.uint32),
        0,
        0,
    )
    return Workspace(
        face,
        np.empty(size, dtype=np.uint32),
        np.empty(n + 1, dtype=np.uint32),
        np.empty(n * (rows + 1), dtype=np.int64),
        np.empty((5, size)),
        np.empty((m, n)),
        np.empty((len(objective.weights), n)),
        np.empty(m),
    )


@compiled_part
def vectors_on(face: Face, space: Floats, cell_multipliers: Floats) -> Vectors:
    """Cut vectors as long as the face out of the workspace."""
    size = len(face.cell)
    return Vectors(
        space[0][:size],
        space[1][:size],
        space[2][:size],
        space[3][:size],
        space[4][:size],
        cell_multipliers,
        np.empty(face.numbered),
        np.empty(face.numbered),
    )
