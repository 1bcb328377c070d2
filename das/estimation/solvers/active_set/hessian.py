"""Loops over chained sums: build the chain, sum up it, hand forces down it. Compiled; the same on every machine.

Sums are nodes x children: children lie side by side, and loops over them are fast. The first nodes are the cells.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from das.compiled import compiled

__all__ = ["bend_chain", "bend_kinds", "link", "misfits"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Numbers = NDArray[np.uint32]
"""Places in arrays, which are never negative: a compiled loop need not ask."""


@compiled
def link(
    keys: Ints,
    finer: Ints,
    group_of: Ints,
    seen: Ints,
    node_of: Ints,
    group_node: Ints,
    group_key: Ints,
    group_start: Ints,
    edges: Numbers,
) -> tuple[int, int]:
    """Chain partitions of the cells: each group is summed from the groups of a finer partition, or from cells.

    ``keys`` says for each partition which key each cell has; a partition's ``finer`` is an earlier one, or -1. A group
    of one part is that part's node. Filled in are each group's node and key, where each partition's groups start, and
    the edges (part, whole), in an order in which sums are complete before they are used; returned are the numbers of
    nodes and edges. ``group_of`` and ``seen`` come filled with -1.
    """
    partitions, m = keys.shape
    parts = np.empty(m, dtype=np.int64)
    groups, used, nodes = 0, 0, m
    for q in range(partitions):
        first = groups
        for i in range(m):
            part = i if finer[q] < 0 else node_of[finer[q], i]
            group = group_of[keys[q, i]]
            if group < 0:
                group = groups
                group_of[keys[q, i]] = group
                group_node[group] = part
                group_key[group] = keys[q, i]
                parts[group - first] = 0
                groups += 1
            if seen[part] != q:
                seen[part] = q
                parts[group - first] += 1
        for group in range(first, groups):
            if parts[group - first] > 1:
                group_node[group] = nodes
                nodes += 1
        for i in range(m):
            part = i if finer[q] < 0 else node_of[finer[q], i]
            group = group_of[keys[q, i]]
            node_of[q, i] = group_node[group]
            if parts[group - first] > 1 and seen[part] == q:
                seen[part] = -1
                edges[used, 0] = part
                edges[used, 1] = group_node[group]
                used += 1
        for group in range(first, groups):
            group_of[group_key[group]] = -1
        group_start[q + 1] = groups
    return nodes, used


@compiled
def gather(edges: Numbers, sums: Floats) -> None:
    """Complete the sums of all nodes from those of the cells, in place."""
    for e in range(len(edges)):
        part, whole = sums[edges[e, 0]], sums[edges[e, 1]]
        for c in range(len(whole)):
            whole[c] += part[c]


@compiled
def scatter(edges: Numbers, forces: Floats) -> None:
    """Hand each node's force on to its parts, in place: the transpose."""
    for e in range(len(edges) - 1, -1, -1):
        part, whole = forces[edges[e, 0]], forces[edges[e, 1]]
        for c in range(len(whole)):
            part[c] += whole[c]


@compiled
def bend_chain(edges: Numbers, weights: Floats, cells: int, sums: Floats) -> None:
    """Multiply columns, in the first rows of ``sums``, by the curvature: sum up the chain, weigh, and sum back down."""
    sums[cells:] = 0.0
    gather(edges, sums)
    for i in range(len(sums)):
        row, weight = sums[i], weights[i]
        for c in range(len(row)):
            row[c] *= weight
    scatter(edges, sums)


@compiled
def bend_kinds(table: Floats, kinds: Ints, step: Floats, out: Floats) -> None:
    """Add to ``out`` each child's column times its curvature, which is an entry of ``table`` for each pair of cells.

    Pairs are of few kinds, and children have a row of the table each, or one for all.
    """
    m, n = step.shape
    result = np.empty(m)
    for c in range(n):
        own = table[c % len(table)]
        for j in range(m):
            result[j] = out[j, c]
        for i in range(m):
            by = step[i, c]
            if by != 0.0:
                row = kinds[i]
                for j in range(m):
                    result[j] += own[row[j]] * by
        for j in range(m):
            out[j, c] = result[j]


@compiled
def misfits(
    values: Floats,
    group_node: Ints,
    group_weight: Floats,
    edges: Numbers,
    reference: Floats,
    sums: Floats,
    forces: Floats,
    linear: Floats,
) -> float:
    """Write weighted squared misfits of the groups' sums as a quadratic around a reference: fill in its pull.

    Values are groups x children. Returned is the constant; ``sums`` and ``forces`` are scratch, the latter zero.
    """
    m, n = reference.shape
    for i in range(m):
        for c in range(n):
            sums[i, c] = reference[i, c]
    sums[m:] = 0.0
    gather(edges, sums)
    constant = 0.0
    for g in range(len(group_node)):
        node, weight = group_node[g], group_weight[g]
        for c in range(n):
            off = values[g, c] - sums[node, c]
            forces[node, c] += weight * off
            constant += weight * off * off
    scatter(edges, forces)
    for i in range(m):
        for c in range(n):
            linear[i, c] = forces[i, c]
    return constant
