"""Loops over one face of the tables: its entries, the projection onto it, and products with the curvature on it.

A face is a list of entries, cell by cell: ``start`` says where each cell's begin, ``cell`` and ``child`` whose they
are. Vectors on the face are as long as that list. Here tables are cells x children: children lie side by
side, where loops over them are fast.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from das.compiled import compiled
from das.estimation.solvers.active_set.hessian import Numbers, bend_chain

__all__ = [
    "bend_blocks",
    "bend_face",
    "blocks_size",
    "dot",
    "factorise",
    "open_face",
    "project",
    "share_out",
    "take_blocks",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_ZERO = 1e-9
"""A pivot below this share of its diagonal is that of a limit which says what others say already."""


@compiled
def share_out(parent: Floats, positive: Bools, x: Floats) -> None:
    """Take as much off the positive entries of each cell as leaves the parent's count; those made negative drop out.

    What is left is the nearest table, if all that may be positive began as such (Michelot 1986).
    """
    m, n = x.shape
    for i in range(m):
        off = -np.inf if len(parent) > 0 else 0.0
        before, count = n + 2, n + 1
        while len(parent) > 0 and count < before:
            before, count, total = count, 0, -parent[i]
            for c in range(n):
                if positive[i, c]:
                    if x[i, c] > off:
                        total += x[i, c]
                        count += 1
                    else:
                        positive[i, c] = False
            off = total / max(count, 1)
        for c in range(n):
            x[i, c] = max(x[i, c] - off, 0.0) if positive[i, c] else 0.0
            positive[i, c] = x[i, c] > 0.0


@compiled
def open_face(
    positive: Bools,
    free: Bools,
    binding: Ints,
    row_start: Numbers,
    row_cell: Numbers,
    start: Numbers,
    cell: Numbers,
    child: Numbers,
    share: Floats,
    firm: Floats,
    at: Ints,
    held: Numbers,
) -> tuple[int, int, int]:
    """List the face of a guess; number the binding limits and firm totals, and list the terms (entry, limit) of them.

    Returned are how many limits bind, how many there are with firm totals, and the number of terms. A child's total is
    firm if it has a number in ``firm``; it comes as one more limit, after all others.

    A binding limit or a cell with nobody to meet it opens all that may. ``share`` comes with one number for each cell
    whose children share a parent, or none, and becomes one over the children that are on the face.
    """
    m, n = positive.shape
    for c in range(n):
        for r in range(binding.shape[1]):
            if binding[c, r] != 0:
                met = False
                for k in range(row_start[r], row_start[r + 1]):
                    met = met or positive[row_cell[k], c]
                if not met:
                    for k in range(row_start[r], row_start[r + 1]):
                        positive[row_cell[k], c] = free[row_cell[k], c]
    found = 0
    for i in range(m):
        start[i] = found
        for again in range(2):
            for c in range(n):
                if positive[i, c]:
                    cell[found] = i
                    child[found] = c
                    found += 1
            if found > start[i] or len(share) == 0 or again > 0:
                break
            for c in range(n):
                positive[i, c] = free[i, c]
        if len(share) > 0:
            share[i] = 1.0 / max(found - start[i], 1)
    start[m] = found
    rows, count = binding.shape[1], 0
    for r in range(rows):
        for c in range(n):
            at[r, c] = -1
            if binding[c, r] != 0:
                at[r, c] = count
                count += 1
    bound = count
    for c in range(n):
        at[rows, c] = -1
        if firm[c] > 0.0:
            at[rows, c] = count
            count += 1
    terms = 0
    for r in range(rows if bound > 0 else 0):
        for k in range(row_start[r], row_start[r + 1]):
            for j in range(start[row_cell[k]], start[row_cell[k] + 1]):
                held[terms, 0] = j
                held[terms, 1] = at[r, child[j]]
                terms += at[r, child[j]] >= 0
    for j in range(found if count > bound else 0):
        held[terms, 0] = j
        held[terms, 1] = at[rows, child[j]]
        terms += at[rows, child[j]] >= 0
    return bound, count, terms


@compiled
def factorise(
    start: Numbers,
    child: Numbers,
    share: Floats,
    cell_start: Numbers,
    cell_row: Numbers,
    firm: Floats,
    at: Ints,
    tie: Ints,
    gram: Floats,
) -> None:
    """Add up the Gram matrix of the binding limits on the face, given the cells' sums, and factor it (Cholesky).

    A firm total gives way: one over its firmness is added to its diagonal. The factor and its transpose share the
    array; the row of a limit that says nothing new has a pivot of zero.
    """
    count, last = len(gram), at.shape[0] - 1
    taken = np.zeros(count)
    for c in range(at.shape[1]):
        if at[last, c] >= 0:
            gram[at[last, c], at[last, c]] = 1.0 / firm[c]
    for i in range(len(start) - 1):
        found = 0
        for j in range(start[i], start[i + 1]):
            first = found
            for k in range(cell_start[i], cell_start[i + 1]):
                b = at[cell_row[k], child[j]]
                if b >= 0:
                    tie[found] = b
                    found += 1
            if at[last, child[j]] >= 0:
                tie[found] = at[last, child[j]]
                found += 1
            for u in range(first, found):
                for v in range(u, found):
                    gram[min(tie[u], tie[v]), max(tie[u], tie[v])] += 1.0
        if len(share) > 0 and count <= 4 * found:  # most limits have a part in the cell: whole rows are faster
            for u in range(found):
                taken[tie[u]] += share[i]
            for u in range(found):
                row = gram[tie[u]]
                for b in range(count):
                    row[b] -= taken[b]
            for u in range(found):
                taken[tie[u]] = 0.0
        elif len(share) > 0:
            for u in range(found):
                row = gram[tie[u]]
                for v in range(found):
                    row[tie[v]] -= share[i]
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
            other, by = gram[i], row[i]
            if by != 0.0:
                for j in range(i, count):
                    other[j] -= by * row[j]


@compiled
def _centre(start: Numbers, share: Floats, vector: Floats, price: Floats) -> None:
    """Take the mean off each cell's entries, less what the sum should be instead, and add it to the price."""
    for i in range(len(share)):
        total = 0.0
        for j in range(start[i], start[i + 1]):
            total += vector[j]
        total *= share[i]
        price[i] += total
        for j in range(start[i], start[i + 1]):
            vector[j] -= total


@compiled
def project(
    start: Numbers, share: Floats, held: Numbers, factor: Floats, vector: Floats, price: Floats, toll: Floats
) -> None:
    """Take off a vector on the face the prices of cells and tolls of limits that make its sums zero.

    What the sums of limits should be instead comes in ``toll``, negative; the tolls taken off come out. Prices come as
    zeros.
    """
    count = len(toll)
    _centre(start, share, vector, price)
    if count == 0:
        return
    for t in range(len(held)):
        toll[held[t, 1]] += vector[held[t, 0]]
    for b in range(count):
        row = factor[b]
        by = toll[b] / row[b] if row[b] > 0.0 else 0.0
        toll[b] = by
        for j in range(b + 1, count):
            toll[j] -= by * row[j]
    for b in range(count - 1, -1, -1):
        row = factor[b]
        by = toll[b] / row[b] if row[b] > 0.0 else 0.0
        toll[b] = by
        for j in range(b):
            toll[j] -= by * row[j]
    for t in range(len(held)):
        vector[held[t, 0]] -= toll[held[t, 1]]
    _centre(start, share, vector, price)


@compiled
def bend_face(
    place: Numbers, edges: Numbers, weights: Floats, cells: int, sums: Floats, vector: Floats, out: Floats
) -> None:
    """Multiply a vector on the face by the curvature, along the chain; ``sums`` is scratch.

    ``place`` says where in a table, row after row, each entry of the face is.
    """
    flat = sums.reshape(sums.size)
    for i in range(cells * sums.shape[1]):
        flat[i] = 0.0
    for j in range(len(place)):
        flat[place[j]] = vector[j]
    bend_chain(edges, weights, cells, sums)
    for j in range(len(place)):
        out[j] = flat[place[j]]


@compiled
def bend_blocks(
    of_child: Numbers, child_start: Numbers, blocks: Floats, given: Floats, vector: Floats, out: Floats
) -> None:
    """Multiply a vector on the face by the curvature, given each child's block of it; ``given`` is scratch."""
    at = 0
    for c in range(len(child_start) - 1):
        entries = of_child[child_start[c] : child_start[c + 1]]
        size = len(entries)
        result = given[:size]
        for i in range(size):
            result[i] = 0.0
        for i in range(size):
            row, by = blocks[at : at + size], vector[entries[i]]
            for j in range(size):
                result[j] += row[j] * by
            at += size
        for i in range(size):
            out[entries[i]] = result[i]


@compiled
def blocks_size(child: Numbers, n: int) -> int:
    """Count the entries of all children's blocks."""
    counts = np.zeros(n, dtype=np.int64)
    for j in range(len(child)):
        counts[child[j]] += 1
    return int((counts * counts).sum())


@compiled
def take_blocks(
    cell: Numbers, child: Numbers, table: Floats, kinds: Ints, of_child: Numbers, child_start: Numbers, blocks: Floats
) -> None:
    """List the entries of each child, and copy its curvature on the face, one block after the other."""
    n = len(child_start) - 1
    child_start[:] = 0
    for j in range(len(child)):
        child_start[child[j] + 1] += 1
    for c in range(n):
        child_start[c + 1] += child_start[c]
    for j in range(len(child)):
        of_child[child_start[child[j]]] = j
        child_start[child[j]] += 1
    for c in range(n, 0, -1):
        child_start[c] = child_start[c - 1]
    child_start[0] = 0
    at = 0
    for c in range(n):
        entries, own = of_child[child_start[c] : child_start[c + 1]], table[c % len(table)]
        for j in range(len(entries)):
            out, row = blocks[at : at + len(entries)], kinds[cell[entries[j]]]
            for k in range(len(entries)):
                out[k] = own[row[cell[entries[k]]]]
            at += len(entries)


@compiled
def dot(left: Floats, right: Floats) -> float:
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
