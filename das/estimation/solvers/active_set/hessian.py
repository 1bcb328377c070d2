"""Products with the Hessian: sums along a chain of groups, or a table of values by kind of pair. Compiled.

Sums are nodes x children: children lie side by side, and loops over them are fast. The first nodes are the cells. The
order of all sums is fixed, so results are the same on every machine.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from das.compiled import compiled_part
from das.estimation.solvers.active_set.layout import Floats, Ints, Numbers

__all__ = ["Groups", "add_kinds_product", "chain_product", "link_groups", "residuals"]


class Groups(NamedTuple):
    """Groups of cells that have a measured answer each, query by query, and the chain that sums them."""

    node: Ints  # of each group, the node whose sum is the group's
    key: Ints  # of each group, its column among the query's answers
    start: Ints  # where each query's groups start
    edges: Numbers  # (part, whole): the part's sum is added to the whole's, in this order
    nodes: int


@compiled_part
def link_groups(keys: Ints, finer: Ints, group_of: Ints) -> Groups:
    """Chain partitions of the cells: each group is summed from the groups of a finer partition, or from cells.

    ``keys`` holds, for each partition, the key of each cell; a partition's ``finer`` is an earlier one, or -1. A group
    that consists of one finer group shares its node. Edges are ordered so that sums are complete before they are used.
    ``group_of`` is scratch: it comes filled with -1 and is left so.
    """
    partitions, m = keys.shape
    seen, node_of = np.full((partitions + 1) * m, -1), np.empty((partitions, m), dtype=np.int64)
    group_node, group_key = np.empty(partitions * m, dtype=np.int64), np.empty(partitions * m, dtype=np.int64)
    group_start, edges = np.zeros(partitions + 1, dtype=np.int64), np.empty((partitions * m, 2), dtype=np.uint32)
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
    return Groups(group_node[:groups], group_key[:groups], group_start, edges[:used], nodes)


@compiled_part
def sum_up(edges: Numbers, sums: Floats) -> None:
    """Complete the sums of all nodes from those of the cells, in place."""
    for e in range(len(edges)):
        part, whole = sums[edges[e, 0]], sums[edges[e, 1]]
        for c in range(len(whole)):
            whole[c] += part[c]


@compiled_part
def sum_down(edges: Numbers, values: Floats) -> None:
    """Add each node's value to those of its parts, in place: the transpose of :func:`sum_up`."""
    for e in range(len(edges) - 1, -1, -1):
        part, whole = values[edges[e, 0]], values[edges[e, 1]]
        for c in range(len(whole)):
            part[c] += whole[c]


@compiled_part
def chain_product(edges: Numbers, weights: Floats, cells: int, sums: Floats) -> None:
    """Multiply columns, in the first rows of ``sums``, by the Hessian: sum up the chain, weigh, and sum back down."""
    for i in range(cells, len(sums)):
        row = sums[i]
        for c in range(len(row)):
            row[c] = 0.0
    sum_up(edges, sums)
    for i in range(len(sums)):
        row, weight = sums[i], weights[i]
        for c in range(len(row)):
            row[c] *= weight
    sum_down(edges, sums)


@compiled_part
def add_kinds_product(table: Floats, kinds: Ints, step: Floats, out: Floats) -> None:
    """Add to ``out`` each child's column times its Hessian, which has an entry of ``table`` for each pair of cells.

    Pairs are of few kinds, and children have a row of the table each, or one for all.
    """
    m, n = step.shape
    result = np.empty(m)
    for c in range(n):
        own = table[c % len(table)]
        for j in range(m):
            result[j] = out[j, c]
        for i in range(m):
            factor = step[i, c]
            if factor != 0.0:
                row = kinds[i]
                for j in range(m):
                    result[j] += own[row[j]] * factor
        for j in range(m):
            out[j, c] = result[j]


@compiled_part
def residuals(values: Floats, weight: Floats, groups: Groups, reference: Floats) -> tuple[float, Floats]:
    """Write weighted squared residuals of the groups' sums as a quadratic around a reference.

    Values are groups x children. Returned are the quadratic's constant and its linear term, cells x children.
    """
    node_of, edges = groups.node, groups.edges
    m, n = reference.shape
    sums, weighted = np.empty((groups.nodes, n)), np.zeros((groups.nodes, n))
    for i in range(groups.nodes):
        for c in range(n):
            sums[i, c] = reference[i, c] if i < m else 0.0
    sum_up(edges, sums)
    constant = 0.0
    for g in range(len(node_of)):
        node = node_of[g]
        for c in range(n):
            residual = values[g, c] - sums[node, c]
            weighted[node, c] += weight[g] * residual
            constant += weight[g] * residual * residual
    sum_down(edges, weighted)
    linear = np.empty((m, n))
    for i in range(m):
        for c in range(n):
            linear[i, c] = weighted[i, c]
    return constant, linear
