"""One face of the feasible tables: its entries, the projection onto it, and products with the Hessian on it. Compiled.

A face is given by the entries that can be positive, all others being zero, and by the limits that bind. Vectors on the
face have one number for each entry, cell by cell. Tables are cells x children: children lie side by side, where loops
over them are fast.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from das.compiled import compiled_part
from das.estimation.solvers.active_set.hessian import chain_product
from das.estimation.solvers.active_set.layout import Bools, Floats, Ints, Numbers
from das.estimation.solvers.active_set.setup import Constraints, Objective

__all__ = [
    "Blocks",
    "Face",
    "blocks_product",
    "chain_product_on_face",
    "factorise",
    "hessian_blocks",
    "list_face",
    "project",
    "share_out",
]

_ZERO = 1e-9
"""A pivot below this share of its diagonal belongs to a limit that depends linearly on others."""


class Face(NamedTuple):
    """Entries of a face, and the linear constraints on them: binding limits, and totals that are stiff.

    A stiff total is not a constraint of the problem: it preconditions the descent, see :func:`factorise`.
    """

    start: Numbers  # where each cell's entries start
    cell: Numbers  # of each entry
    child: Numbers  # of each entry
    place: Numbers  # of each entry, in a table written row after row
    share: Floats  # one over the number of each cell's entries; empty without a parent
    number: Ints  # rows x children: the number of a binding limit, or -1; in one more row, that of a stiff total
    terms: Numbers  # (entry, number): the entry counts towards the limit or total
    binding: int  # binding limits, numbered first
    numbered: int  # binding limits and stiff totals


class Blocks(NamedTuple):
    """Hessian of each child on its entries of a face, one block after the other; empty if the Hessian is a chain."""

    entry: Numbers  # child by child
    start: Numbers  # where each child's entries start
    values: Floats


@compiled_part
def share_out(parent: Floats, positive: Bools, x: Floats) -> None:
    """Subtract from the positive entries of each cell what leaves the parent's count; negative ones drop out.

    The result is the nearest table, if all entries that are free began as positive (Michelot 1986).
    """
    m, n = x.shape
    for i in range(m):
        excess = -np.inf if len(parent) > 0 else 0.0
        before, count = n + 2, n + 1
        while len(parent) > 0 and count < before:
            before, count, total = count, 0, -parent[i]
            for c in range(n):
                if positive[i, c]:
                    if x[i, c] > excess:
                        total += x[i, c]
                        count += 1
                    else:
                        positive[i, c] = False
            excess = total / max(count, 1)
        for c in range(n):
            x[i, c] = max(x[i, c] - excess, 0.0) if positive[i, c] else 0.0
            positive[i, c] = x[i, c] > 0.0


@compiled_part
def _open_unmet_limits(positive: Bools, binding: Ints, constraints: Constraints) -> None:
    """Make all free entries of a binding limit positive if none of them is."""
    row_start, row_cell, free = constraints.row_start, constraints.row_cell, constraints.free
    for c in range(binding.shape[0]):
        for r in range(binding.shape[1]):
            if binding[c, r] != 0:
                met = False
                for k in range(row_start[r], row_start[r + 1]):
                    met = met or positive[row_cell[k], c]
                if not met:
                    for k in range(row_start[r], row_start[r + 1]):
                        positive[row_cell[k], c] = free[row_cell[k], c]


@compiled_part
def _list_entries(positive: Bools, free: Bools, face: Face) -> int:
    """List the positive entries, cell by cell; a cell of a parent that has none opens all that are free."""
    start, cell, child = face.start, face.cell, face.child
    place, share = face.place, face.share
    m, n = positive.shape
    size = 0
    for i in range(m):
        start[i] = size
        for attempt in range(2):
            for c in range(n):
                if positive[i, c]:
                    cell[size] = i
                    child[size] = c
                    place[size] = i * n + c
                    size += 1
            if size > start[i] or len(share) == 0 or attempt > 0:
                break
            for c in range(n):
                positive[i, c] = free[i, c]
        if len(share) > 0:
            share[i] = 1.0 / max(size - start[i], 1)
    start[m] = size
    return size


@compiled_part
def _number_limits(binding: Ints, stiffness: Floats, number: Ints) -> tuple[int, int]:
    """Number the binding limits, then the stiff totals; return the counts without and with the latter."""
    n, rows = binding.shape
    count = 0
    for r in range(rows):
        for c in range(n):
            number[r, c] = -1
            if binding[c, r] != 0:
                number[r, c] = count
                count += 1
    limits = count
    for c in range(n):
        number[rows, c] = -1
        if stiffness[c] > 0.0:
            number[rows, c] = count
            count += 1
    return limits, count


@compiled_part
def list_face(positive: Bools, binding: Ints, constraints: Constraints, stiffness: Floats, space: Face) -> Face:
    """List the face of an active set: entries, numbers of limits and stiff totals, and the terms of them.

    ``space`` is a face with room for all entries and terms. A total is stiff if its ``stiffness`` is positive.
    """
    row_start, row_cell = constraints.row_start, constraints.row_cell
    start, child = space.start, space.child
    number, terms = space.number, space.terms
    _open_unmet_limits(positive, binding, constraints)
    size = _list_entries(positive, constraints.free, space)
    limits, count = _number_limits(binding, stiffness, number)
    rows, used = binding.shape[1], 0
    for r in range(rows if limits > 0 else 0):
        for k in range(row_start[r], row_start[r + 1]):
            for j in range(start[row_cell[k]], start[row_cell[k] + 1]):
                terms[used, 0] = j
                terms[used, 1] = number[r, child[j]]
                used += number[r, child[j]] >= 0
    for j in range(size if count > limits else 0):
        terms[used, 0] = j
        terms[used, 1] = number[rows, child[j]]
        used += number[rows, child[j]] >= 0
    return Face(
        start,
        space.cell[:size],
        child[:size],
        space.place[:size],
        space.share,
        number,
        terms[:used],
        limits,
        count,
    )


@compiled_part
def _add_cell(gram: Floats, tied: Ints, share: float, taken: Floats) -> None:
    """Subtract from the Gram matrix what projecting out a cell's sum removes: share x (limits of its entries)^2."""
    count = len(gram)
    if count <= 4 * len(tied):  # most limits have a term in the cell: whole rows are faster
        for u in range(len(tied)):
            taken[tied[u]] += share
        for u in range(len(tied)):
            row = gram[tied[u]]
            for b in range(count):
                row[b] -= taken[b]
        for u in range(len(tied)):
            taken[tied[u]] = 0.0
    else:
        for u in range(len(tied)):
            row = gram[tied[u]]
            for v in range(len(tied)):
                row[tied[v]] -= share


@compiled_part
def _gram_matrix(face: Face, constraints: Constraints, stiffness: Floats, tied: Ints) -> Floats:
    """Inner products of the binding limits and stiff totals on the face, after the cells' sums are projected out."""
    start, child = face.start, face.child
    share, number = face.share, face.number
    cell_start, cell_row = constraints.cell_start, constraints.cell_row
    last = number.shape[0] - 1
    gram, taken = np.zeros((face.numbered, face.numbered)), np.zeros(face.numbered)
    for c in range(number.shape[1]):
        if number[last, c] >= 0:
            gram[number[last, c], number[last, c]] = 1.0 / stiffness[c]
    for i in range(len(start) - 1):
        used = 0
        for j in range(start[i], start[i + 1]):
            first = used
            for k in range(cell_start[i], cell_start[i + 1]):
                b = number[cell_row[k], child[j]]
                if b >= 0:
                    tied[used] = b
                    used += 1
            if number[last, child[j]] >= 0:
                tied[used] = number[last, child[j]]
                used += 1
            for u in range(first, used):
                for v in range(u, used):
                    gram[min(tied[u], tied[v]), max(tied[u], tied[v])] += 1.0
        if len(share) > 0:
            _add_cell(gram, tied[:used], share[i], taken)
    return gram


@compiled_part
def factorise(face: Face, constraints: Constraints, stiffness: Floats, tied: Ints) -> Floats:
    """Factor (Cholesky) the Gram matrix of the binding limits and stiff totals on the face, given the cells' sums.

    A stiff total is not held but damped: one over its stiffness is added to its diagonal (Sherman-Morrison-Woodbury).
    The factor and its transpose share the array; a limit that depends on others has a row of zeros. ``tied`` is
    scratch.
    """
    count = face.numbered
    if count == 0:
        return np.zeros((0, 0))
    gram: Floats = _gram_matrix(face, constraints, stiffness, tied)
    whole = np.empty(count)
    for k in range(count):
        whole[k] = gram[k, k]
    for k in range(count):
        if gram[k, k] <= _ZERO * whole[k]:
            for j in range(count):
                gram[k, j] = 0.0
                gram[j, k] = 0.0
            continue
        pivot = np.sqrt(gram[k, k])
        row = gram[k]
        row[k] = pivot
        for j in range(k + 1, count):
            row[j] /= pivot
            gram[j, k] = row[j]
        for i in range(k + 1, count):
            other, factor = gram[i], row[i]
            if factor != 0.0:
                for j in range(i, count):
                    other[j] -= factor * row[j]
    return gram


@compiled_part
def _centre(start: Numbers, share: Floats, vector: Floats, multipliers: Floats) -> None:
    """Subtract the mean from each cell's entries, and add it to the cell's multiplier."""
    for i in range(len(share)):
        total = 0.0
        for j in range(start[i], start[i + 1]):
            total += vector[j]
        total *= share[i]
        multipliers[i] += total
        for j in range(start[i], start[i + 1]):
            vector[j] -= total


@compiled_part
def project(
    start: Numbers,
    share: Floats,
    terms: Numbers,
    factor: Floats,
    vector: Floats,
    cell_multipliers: Floats,
    limit_multipliers: Floats,
) -> None:
    """Project a vector on the face: subtract the multipliers of cells and limits that make its sums zero.

    If sums of limits must have other values, these come in ``limit_multipliers``, negative. The multipliers that were
    subtracted come out: those of limits in place, those of cells added.
    """
    count = len(limit_multipliers)
    _centre(start, share, vector, cell_multipliers)
    if count == 0:
        return
    for t in range(len(terms)):
        limit_multipliers[terms[t, 1]] += vector[terms[t, 0]]
    for b in range(count):
        row = factor[b]
        value = limit_multipliers[b] / row[b] if row[b] > 0.0 else 0.0
        limit_multipliers[b] = value
        for j in range(b + 1, count):
            limit_multipliers[j] -= value * row[j]
    for b in range(count - 1, -1, -1):
        row = factor[b]
        value = limit_multipliers[b] / row[b] if row[b] > 0.0 else 0.0
        limit_multipliers[b] = value
        for j in range(b):
            limit_multipliers[j] -= value * row[j]
    for t in range(len(terms)):
        vector[terms[t, 0]] -= limit_multipliers[terms[t, 1]]
    _centre(start, share, vector, cell_multipliers)


@compiled_part
def chain_product_on_face(
    place: Numbers, edges: Numbers, weights: Floats, cells: int, sums: Floats, vector: Floats, out: Floats
) -> None:
    """Multiply a vector on the face by the Hessian, along the chain; ``sums`` is scratch."""
    flat = sums.reshape(sums.size)
    for i in range(cells * sums.shape[1]):
        flat[i] = 0.0
    for j in range(len(place)):
        flat[place[j]] = vector[j]
    chain_product(edges, weights, cells, sums)
    for j in range(len(place)):
        out[j] = flat[place[j]]


@compiled_part
def blocks_product(blocks: Blocks, scratch: Floats, vector: Floats, out: Floats) -> None:
    """Multiply a vector on the face by the Hessian, block by block; ``scratch`` has room for a child's entries."""
    entry, start, values = blocks.entry, blocks.start, blocks.values
    position = 0
    for c in range(len(start) - 1):
        entries = entry[start[c] : start[c + 1]]
        size = len(entries)
        result = scratch[:size]
        for i in range(size):
            result[i] = 0.0
        for i in range(size):
            row, factor = values[position : position + size], vector[entries[i]]
            for j in range(size):
                result[j] += row[j] * factor
            position += size
        for i in range(size):
            out[entries[i]] = result[i]


@compiled_part
def hessian_blocks(objective: Objective, face: Face, entry: Numbers, start: Numbers) -> Blocks:
    """List the entries of each child in ``entry`` and ``start``, and copy its Hessian on them."""
    cell, child = face.cell, face.child
    table, kinds = objective.table, objective.kinds
    n = len(start) - 1
    for c in range(n + 1):
        start[c] = 0
    if len(objective.weights) > 0:
        return Blocks(entry, start, np.empty(0))
    for j in range(len(child)):
        start[child[j] + 1] += 1
    total = np.int64(0)
    for c in range(n):
        size = np.int64(start[c + 1])
        total += size * size
        start[c + 1] += start[c]
    for j in range(len(child)):
        entry[start[child[j]]] = j
        start[child[j]] += 1
    for c in range(n, 0, -1):
        start[c] = start[c - 1]
    start[0] = 0
    values, position = np.empty(total), 0
    for c in range(n):
        entries, own = entry[start[c] : start[c + 1]], table[c % len(table)]
        for j in range(len(entries)):
            out, row = values[position : position + len(entries)], kinds[cell[entries[j]]]
            for k in range(len(entries)):
                out[k] = own[row[cell[entries[k]]]]
            position += len(entries)
    return Blocks(entry, start, values)
