"""ShareEstimate which cells are positive and which limits bind, minimise on that face, correct the guess.

A primal-dual active-set method (Hintermüller, Ito and Kunisch 2003), which is a semismooth Newton method: after a few
faces it ends with the optimum itself. Given the positive cells F and the binding limits, the optimum on the face obeys

    curvature x_c + price + B'toll = linear  on F,   x_c = 0 off F,   sum over c of x_c = parent,   B x_c = bound

and is found by conjugate gradients that stay within it (Gould, Hribar and Nocedal 2001): taking the mean off each
cell's entries and solving a small system for the tolls keeps the sums. While the guess is still changing the gradients
need not go far. The first guess is the table nearest to what was measured.

Faces and their entries are those of :mod:`das.estimation.solvers.active_set.face`; tables are cells x children.
"""

from __future__ import annotations

import numpy as np

from das.compiled import compiled
from das.estimation.solvers.active_set.face import (
    Bools,
    Floats,
    Ints,
    bend_blocks,
    bend_face,
    blocks_size,
    dot,
    factorise,
    open_face,
    project,
    share_out,
    take_blocks,
)
from das.estimation.solvers.active_set.hessian import Numbers, bend_chain, bend_kinds
from das.estimation.solvers.active_set.setup import Distance, Tables, hessian_product

__all__ = ["settle"]

_FACES = 60
_ROUGH = 0.15
"""How far the slope on a face must fall, as a share, while the guess is still changing."""
_FINE = 1e-4
"""How far it must have fallen at the end, in persons: as far as the curvature's modulus makes of this. What is lost is
its square, 1e-8 of what one person more in one cell would cost; the certificate has the last word."""
_FINEST = 1e-10
"""The same where there is no modulus: the certificate is off by the slope that is left, not by its square."""
_NEAR = 1e-9
"""So near zero, in persons, is zero; and as much more as the rounding of the largest count makes of it."""
_ROUNDING = 1e-13
_FIRM = 4.0
"""A child's total whose curvature is so many times its cells' slows the gradients down unless they know of it."""
_FIRM_CHILDREN = 256
_LIMITS = 1500
"""With more binding limits than this the small system is no longer small."""

_FARKAS = 1e6
"""How hard a limit that a face cannot meet presses on the cells beside the face."""


@compiled
def _correct(
    at: Ints,
    row_start: Numbers,
    row_cell: Numbers,
    cell_start: Numbers,
    cell_row: Numbers,
    lower: Floats,
    upper: Floats,
    free: Bools,
    x: Floats,
    half_gradient: Floats,
    prices: Floats,
    tolls: Floats,
    near: float,
    little: float,
    positive: Bools,
    binding: Ints,
    toll: Floats,
) -> int:
    """Correct the guess; return the number of changes. ``toll`` becomes the tolls by child and limit.

    Cells leave that are below zero by more than ``near`` and enter that press by more than ``little``; limits likewise.
    """
    m, n = x.shape
    changes = 0
    for c in range(n):
        for r in range(binding.shape[1]):
            toll[c, r] = tolls[at[r, c]] if at[r, c] >= 0 else 0.0
    for i in range(m):
        price = prices[i] if len(prices) > 0 else 0.0
        for c in range(n):
            if positive[i, c]:
                if x[i, c] < -near:
                    positive[i, c] = False
                    changes += 1
            elif free[i, c]:
                pressing = half_gradient[i, c] + price
                for k in range(cell_start[i], cell_start[i + 1]):
                    pressing += toll[c, cell_row[k]]
                if pressing < -little:
                    positive[i, c] = True
                    changes += 1
    total = np.empty(n)
    for r in range(binding.shape[1]):
        total[:] = 0.0
        for k in range(row_start[r], row_start[r + 1]):
            row = x[row_cell[k]]
            for c in range(n):
                total[c] += row[c]
        for c in range(n):
            if binding[c, r] != 0:
                if lower[c, r] < upper[c, r] and binding[c, r] * toll[c, r] < -little:
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


@compiled
def _follow(
    edges: Numbers,
    weights: Floats,
    table: Floats,
    kinds: Ints,
    sums: Floats,
    move: Floats,
    x: Floats,
    half_gradient: Floats,
) -> None:
    """Move a table, and the slope with it."""
    m, n = x.shape
    if len(weights) > 0:
        for i in range(m):
            row = sums[i]
            for c in range(n):
                row[c] = move[i, c]
        bend_chain(edges, weights, m, sums)
        for i in range(m):
            for c in range(n):
                half_gradient[i, c] += sums[i, c]
    else:
        bend_kinds(table, kinds, move, half_gradient)
    for i in range(m):
        for c in range(n):
            x[i, c] += move[i, c]


@compiled
def _descend(
    edges: Numbers,
    weights: Floats,
    blocks: Floats,
    start: Numbers,
    place: Numbers,
    child: Numbers,
    of_child: Numbers,
    child_start: Numbers,
    share: Floats,
    held: Numbers,
    factor: Floats,
    firm_at: Ints,
    bound: int,
    sums: Floats,
    result: Floats,
    one_toll: Floats,
    down: Floats,
    along: Floats,
    bent: Floats,
    descent: Floats,
    moved: Floats,
    prices: Floats,
    tolls: Floats,
    state: Floats,
    enough: float,
    fine: float,
    ratio: float,
    most_tried: int,
) -> float:
    """Go down by conjugate gradients until what is left to go, squared, is ``enough``; return it.

    ``state`` holds the energy of the last step, the steps tried, and the products taken, so that one can go on.
    """
    size, count = len(place), len(one_toll)
    while True:
        for b in range(count):
            one_toll[b] = 0.0
        for j in range(size):
            down[j] = descent[j]
        project(start, share, held, factor, down, prices, one_toll)
        for b in range(bound):
            tolls[b] += one_toll[b]
        length: float = dot(down, down)
        energy = length
        # What the firm totals took off is still to be descended; the rest is gone for good.
        for j in range(size):
            descent[j] = down[j]
        if count > bound:
            for j in range(size):
                if firm_at[child[j]] >= 0:
                    descent[j] += one_toll[firm_at[child[j]]]
            energy = dot(descent, down)
        if enough < 0.0:
            enough = max(fine * fine, ratio * ratio * length)
        if length <= enough or state[1] >= most_tried:
            return length
        keep = energy / state[0] if state[1] > 0.0 else 0.0
        state[0] = energy
        for j in range(size):
            along[j] = down[j] + keep * along[j]
        if len(weights) > 0:
            bend_face(place, edges, weights, len(start) - 1, sums, along, bent)
        else:
            bend_blocks(of_child, child_start, blocks, result, along, bent)
        state[1] += 1.0
        state[2] += 1.0
        stiffness = dot(along, bent)
        if stiffness <= 0.0:  # flat up to rounding
            state[1] = most_tried
            continue
        go = energy / stiffness
        for j in range(size):
            moved[j] += go * along[j]
            descent[j] -= go * bent[j]


@compiled
def _firm(distance: Distance, tables: Tables) -> Floats:
    """Say how much firmer than its cells each child's total is; zero where it matters little or is held by a limit."""
    cells, children = tables.free.shape
    firm = distance.firmness.copy()
    for c in range(children):
        for row in range(tables.lower.shape[1]):
            whole = tables.row_start[row + 1] - tables.row_start[row] == cells
            if whole and tables.lower[c, row] == tables.upper[c, row]:
                firm[c] = 0.0
        if firm[c] * cells < _FIRM or children > _FIRM_CHILDREN:
            firm[c] = 0.0
    return firm


@compiled
def settle(distance: Distance, tables: Tables) -> tuple[Floats, Floats, Floats, int, bool]:
    """Find the table that is nearest, prices of cells and tolls of limits (children x rows).

    Returned are also the products with the curvature, and whether the last face stood.
    """
    parent, free, row_start, row_cell, cell_start, cell_row, lower, upper = tables
    edges, weights, table, kinds = distance.edges, distance.weights, distance.table, distance.kinds
    x, positive, firm = distance.reference.copy(), free.copy(), _firm(distance, tables)
    share_out(parent, positive, x)
    m, n = x.shape
    move, largest = np.empty((m, n)), 1.0
    for i in range(m):
        largest = max(largest, parent[i] if len(parent) > 0 else 0.0)
        for c in range(n):
            move[i, c] = x[i, c] - distance.reference[i, c]
            largest = max(largest, x[i, c])
    half_gradient = hessian_product(distance, move)
    for i in range(m):
        for c in range(n):
            half_gradient[i, c] -= distance.linear[i, c]
    near, fine = (
        _NEAR + _ROUNDING * largest,
        _FINE * distance.modulus if distance.modulus > 0.0 else _FINEST * distance.scale,
    )
    prices, toll = np.zeros(len(parent)), np.zeros(lower.shape)
    rows = lower.shape[1]
    binding, at = np.zeros((n, rows), dtype=np.int64), np.empty((rows + 1, n), dtype=np.int64)
    for c in range(n):
        for r in range(rows):
            if lower[c, r] == upper[c, r] and upper[c, r] > 0.0:
                binding[c, r] = 1
    start, tie = np.empty(m + 1, dtype=np.uint32), np.empty(n * (rows + 1), dtype=np.int64)
    cells, children = np.empty(n * m, dtype=np.uint32), np.empty(n * m, dtype=np.uint32)
    places = np.empty(n * m, dtype=np.uint32)
    share = np.empty(len(parent))
    terms_of = np.empty((n * (len(row_cell) + m) + 1, 2), dtype=np.uint32)
    sums, blocks = np.empty((len(weights), n)), np.empty(0)
    of_child, child_start = np.empty(n * m, dtype=np.uint32), np.empty(n + 1, dtype=np.uint32)
    descents, alongs, bents, moves = np.empty(n * m), np.empty(n * m), np.empty(n * m), np.empty(n * m)
    steps = np.empty(n * m)
    result = np.empty(m)
    products = 0
    for _ in range(_FACES):
        bound, count, terms = open_face(
            positive, free, binding, row_start, row_cell, start, cells, children, share, firm, at, terms_of
        )
        if count > _LIMITS:
            break
        size = int(start[m])
        cell, child, place, held = cells[:size], children[:size], places[:size], terms_of[:terms]
        for j in range(size):
            place[j] = cell[j] * n + child[j]
        factor = np.zeros((count, count))
        if count > 0:
            factorise(start, child, share, cell_start, cell_row, firm, at, tie, factor)
        goal, missed, tolls, one_toll = np.empty(bound), np.empty(bound), np.empty(count), np.empty(count)
        for c in range(n):
            for r in range(rows):
                if at[r, c] >= 0:
                    goal[at[r, c]] = upper[c, r] if binding[c, r] > 0 else lower[c, r]
        descent, along, bent, moved = descents[:size], alongs[:size], bents[:size], moves[:size]
        down = steps[:size]

        # Onto the affine hull of the face; the second time mends the rounding of the first.
        # Seen from where each cell's entries are equal and sum to the parent.
        for j in range(size):
            even = parent[cell[j]] * share[cell[j]] if len(parent) > 0 else 0.0
            moved[j] = x[cell[j], child[j]] - even
            down[j] = even
        for _again in range(2):
            for b in range(count):
                one_toll[b] = -goal[b] if b < bound else 0.0
            for t in range(terms):
                one_toll[held[t, 1]] += down[held[t, 0]] if held[t, 1] < bound else -moved[held[t, 0]]
            project(start, share, held, factor, moved, prices, one_toll)
        for j in range(size):
            moved[j] += down[j]
        worst = 0.0
        for b in range(bound):
            missed[b] = -goal[b]
        for t in range(terms):
            if held[t, 1] < bound:
                missed[held[t, 1]] += moved[held[t, 0]]
        for b in range(bound):
            worst = max(worst, abs(missed[b]))
        for i in range(m):
            for c in range(n):
                move[i, c] = -x[i, c]
        for j in range(size):
            move[cell[j], child[j]] += moved[j]
        _follow(edges, weights, table, kinds, sums, move, x, half_gradient)
        if len(weights) == 0:
            blocks = np.empty(blocks_size(child, n))
            take_blocks(cell, child, table, kinds, of_child, child_start, blocks)

        # Conjugate gradients. What is missed presses: the face's own cells cancel that out, and others cannot.
        for j in range(size):
            descent[j] = -half_gradient[cell[j], child[j]]
            along[j] = 0.0
            moved[j] = 0.0
        for i in range(len(parent)):
            prices[i] = 0.0
        for b in range(count):
            tolls[b] = _FARKAS * missed[b] if worst > near and b < bound else 0.0
        for t in range(terms if worst > near else 0):
            descent[held[t, 0]] -= tolls[held[t, 1]]
        state = np.array([0.0, 0.0, 0.0])
        enough, most_tried = -1.0, 50 + size
        while True:
            length = _descend(
                edges, weights, blocks, start, place, child, of_child, child_start, share, held, factor, at[rows],
                bound, sums, result, one_toll, down, along, bent, descent, moved, prices, tolls,
                state, enough, fine, _ROUGH, most_tried,
            )  # fmt: skip
            # Far enough to see what is wrong with the face; if nothing is, on to its very optimum.
            for i in range(m):
                for c in range(n):
                    move[i, c] = 0.0
            for j in range(size):
                move[cell[j], child[j]] = moved[j]
                moved[j] = 0.0
            _follow(edges, weights, table, kinds, sums, move, x, half_gradient)
            changes = _correct(
                at, row_start, row_cell, cell_start, cell_row, lower, upper, free, x, half_gradient, prices, tolls,
                near, 4.0 * fine, positive, binding, toll,
            )  # fmt: skip
            if changes > 0:
                break
            if length <= fine * fine or state[1] >= most_tried:
                return x, prices, toll, products + int(state[2]), worst <= near
            enough = fine * fine
        products += int(state[2])
    return x, prices, toll, products, False
