"""Loops that open a family: which tables it has to choose from, and how far each is from what was measured.

Tables are cells x children. A cell that one child alone may fill is no variable: it is settled, and the family is
opened as a function of the cells that are left. Compiled; the same on every machine.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from das.compiled import compiled
from das.estimation.solvers.active_set.hessian import Floats, Ints, Numbers, bend_chain, bend_kinds, link, misfits
from das.schema.limits import NO_LIMIT

__all__ = [
    "Bools",
    "Distance",
    "Tables",
    "choices",
    "distance_from_estimates",
    "distance_from_measured",
    "hessian_product",
    "tables_of",
]

Bools = NDArray[np.bool_]

_NO_LIMIT = int(NO_LIMIT)


class Tables(NamedTuple):
    """Not negative, zero where not free, sums of cells and of limited groups as they must be.

    A limit is a row: the cells that it sums (``row_cell`` from ``row_start`` on), and bounds for each child. The same
    incidence is kept by cell.
    """

    parent: Floats  # one for each cell; none at the top of the spine
    free: Bools  # cells x children
    row_start: Numbers
    row_cell: Numbers
    cell_start: Numbers
    cell_row: Numbers
    lower: Floats  # children x rows
    upper: Floats  # children x rows, infinite where nothing is known


class Distance(NamedTuple):
    """A quadratic in the children's counts, around a reference, whose curvature is a chain of sums or a table of kinds.

    See :class:`das.estimation.problem.Quadratic`, which says the same with a matrix. Measurements of a level give all
    children one curvature, a sum of groups' indicators over variances. It is never written out: a product with it sums
    cells into groups, finer groups into coarser ones, weighs, and goes back the same way.
    """

    # A chain: edges (part, whole) between nodes, of which cells are the first, and the weights of nodes;
    edges: Numbers
    weights: Floats
    # or a table, children (or one row for all) x kinds, and the kind of each pair of cells.
    table: Floats
    kinds: Ints
    reference: Floats  # cells x children
    linear: Floats  # cells x children
    constant: float
    modulus: float  # every curvature is at least this times the identity
    scale: float  # curvature of a typical cell
    firmness: (
        Floats  # for each child: what all pairs of its cells have in common, in units of what a cell has beyond it
    )


@compiled
def choices(
    parent: Floats, answers: Ints, columns: Ints, lower: Ints, upper: Ints, free: Bools, settled: Floats
) -> tuple[bool, Ints]:
    """Find the cells that are free and settle those that one child alone may fill; return what is left to choose.

    Limits are children x columns, one column for each answer of each limited query; ``answers`` says for each query
    and cell which of the query's columns, from where ``columns`` says, the cell counts towards. Returned is first
    whether there is a choice to make. It is not if nothing is left, if a cell has people and no child that may have
    them, or if a limit contradicts itself or asks for people in cells that the family does not have.
    """
    m, n = free.shape
    top = len(parent) == 0
    for i in range(m):
        for c in range(n):
            free[i, c] = top or parent[i] > 0.0
    reached = np.zeros(lower.shape[1], dtype=np.bool_)
    for query in range(len(answers)):
        for i in range(m):
            column = columns[query] + answers[query, i]
            reached[column] = True
            for c in range(n):
                if upper[c, column] <= 0:
                    free[i, c] = False
    for c in range(n):
        for column in range(lower.shape[1]):
            low = max(lower[c, column], 0)
            if low > upper[c, column] or (low > 0 and not reached[column]):
                return False, np.empty(0, dtype=np.int64)
    left, count, any_free = np.empty(m, dtype=np.int64), 0, False
    for i in range(m):
        may = 0
        for c in range(n):
            may += free[i, c]
        any_free = any_free or may > 0
        if top or may > 1:
            left[count] = i
            count += 1
        elif may == 0 and parent[i] > 0.0:
            return False, left[:0]
        else:
            for c in range(n):
                settled[i, c] = parent[i] if free[i, c] else 0.0
    return any_free and count > 0, left[:count]


@compiled
def tables_of(
    parent: Floats,
    answers: Ints,
    columns: Ints,
    lower: Ints,
    upper: Ints,
    free: Bools,
    settled: Floats,
    left: Ints,
) -> Tables:
    """Collect the limits that exclude more than cells which are not free, less what settled cells have of them."""
    n, k, width = free.shape[1], len(left), lower.shape[1]
    row_of = np.full(width, -1)
    for c in range(n):
        for column in range(width):
            if lower[c, column] > 0 or 0 < upper[c, column] < _NO_LIMIT:
                row_of[column] = -2
    size = np.zeros(width, dtype=np.int64)
    incidence = 0
    for query in range(len(answers)):
        for j in range(k):
            column = columns[query] + answers[query, left[j]]
            if row_of[column] != -1:
                size[column] += 1
                incidence += 1
    rows = 0
    for column in range(width):
        row_of[column] = rows if size[column] > 0 else -1
        rows += size[column] > 0
    row_start, row_cell = np.zeros(rows + 1, dtype=np.uint32), np.empty(incidence, dtype=np.uint32)
    cell_start, cell_row = np.zeros(k + 1, dtype=np.uint32), np.empty(incidence, dtype=np.uint32)
    low, high = np.zeros((n, rows)), np.full((n, rows), np.inf)
    for column in range(width):
        row = row_of[column]
        if row >= 0:
            row_start[row + 1] = row_start[row] + size[column]
            size[column] = row_start[row]  # from here on: where the row's next cell goes
            for c in range(n):
                low[c, row] = max(lower[c, column], 0)
                if upper[c, column] < _NO_LIMIT:
                    high[c, row] = upper[c, column]
    found = 0
    for j in range(k):
        for query in range(len(answers)):
            column = columns[query] + answers[query, left[j]]
            if row_of[column] >= 0:
                row_cell[size[column]] = j
                size[column] += 1
                cell_row[found] = row_of[column]
                found += 1
        cell_start[j + 1] = found
    if k < len(settled):
        for query in range(len(answers)):
            for i in range(len(settled)):  # zero where cells are left
                row = row_of[columns[query] + answers[query, i]]
                if row >= 0:
                    for c in range(n):
                        low[c, row] -= settled[i, c]
                        high[c, row] -= settled[i, c]
        for c in range(n):
            for row in range(rows):
                low[c, row] = max(low[c, row], 0.0)
    people, may = np.empty(k if len(parent) > 0 else 0), np.empty((k, n), dtype=np.bool_)
    for j in range(len(people)):
        people[j] = parent[left[j]]
    for j in range(k):
        for c in range(n):
            may[j, c] = free[left[j], c]
    return Tables(people, may, row_start, row_cell, cell_start, cell_row, low, high)


@compiled
def distance_from_measured(
    answers: Ints,
    finer: Ints,
    precision: Floats,
    columns: Ints,
    measured: Ints,
    settled: Floats,
    left: Ints,
    group_of: Ints,
) -> Distance:
    """Write the distance from what was measured as a function of the cells that are left.

    Queries come with the finest first, each with an earlier one that it can be summed from (``finer``, or -1), and
    their noisy answers as columns. Answers that none of the cells reaches are constants and left out. The modulus is
    the precision of queries that see every cell by itself; what others add to the curvature is positive semidefinite.
    ``group_of`` is scratch, filled with -1, and left so.
    """
    q, k, n = len(answers), len(left), settled.shape[1]
    keys = np.empty((q, k), dtype=np.int64)
    for query in range(q):
        for j in range(k):
            keys[query, j] = answers[query, left[j]]
    seen, node_of = np.full((q + 1) * k, -1), np.empty((q, k), dtype=np.int64)
    node, key, start = np.empty(q * k, dtype=np.int64), np.empty(q * k, dtype=np.int64), np.zeros(q + 1, dtype=np.int64)
    edges = np.empty((q * k, 2), dtype=np.uint32)
    nodes, used = link(keys, finer, group_of, seen, node_of, node, key, start, edges)
    groups = start[q]

    values, weight, weights = np.empty((groups, n)), np.empty(groups), np.zeros(nodes)
    for query in range(q):
        for g in range(start[query], start[query + 1]):
            weight[g] = precision[query]
            weights[node[g]] += precision[query]
            for c in range(n):
                values[g, c] = measured[c, columns[query] + key[g]]
    if k < len(settled):
        there = np.ones(len(settled), dtype=np.bool_)
        for j in range(k):
            there[left[j]] = False
        for query in range(q):
            for g in range(start[query], start[query + 1]):
                group_of[key[g]] = g
            for i in range(len(settled)):
                if there[i] and group_of[answers[query, i]] >= 0:
                    g = group_of[answers[query, i]]
                    for c in range(n):
                        values[g, c] -= settled[i, c]
            for g in range(start[query], start[query + 1]):
                group_of[key[g]] = -1

    reference, modulus, common, own, detailed = np.zeros((k, n)), 0.0, 0.0, 0.0, -1
    for query in range(q):
        size = start[query + 1] - start[query]
        if size == k:
            modulus += precision[query]
            detailed = query
        if size == 1:
            common += precision[query]
        else:
            own += precision[query]
    if detailed >= 0:
        for g in range(start[detailed], start[detailed + 1]):
            for c in range(n):
                reference[node[g], c] = values[g, c]
    linear, sums, forces = np.empty((k, n)), np.empty((nodes, n)), np.zeros((nodes, n))
    chain = edges[:used]
    constant = misfits(values, node[:groups], weight, chain, reference, sums, forces, linear)
    scale, firmness = 0.0, np.empty(n)
    for at in range(nodes):
        scale = max(scale, weights[at])
    for c in range(n):
        firmness[c] = common / own if own > 0.0 else common
    none, no_kinds = np.empty((1, 0)), np.empty((0, 0), dtype=np.int64)
    return Distance(chain, weights, none, no_kinds, reference, linear, constant, modulus, scale, firmness)


@compiled
def distance_from_estimates(
    table: Floats,
    kinds: Ints,
    reference: Floats,
    linear: Floats,
    constant: float,
    modulus: float,
    settled: Floats,
    left: Ints,
) -> Distance:
    """Write a distance from linear estimates, given children x cells, as a function of the cells that are left."""
    m, n = settled.shape
    k = len(left)
    around, force = np.empty((k, n)), np.empty((k, n))
    for j in range(k):
        for c in range(n):
            around[j, c] = reference[c, left[j]]
            force[j, c] = linear[c, left[j]]
    if k < m:
        step, bent = np.empty((m, n)), np.zeros((m, n))
        for i in range(m):
            for c in range(n):
                step[i, c] = settled[i, c] - reference[c, i]
        for j in range(k):
            for c in range(n):
                step[left[j], c] = 0.0
        bend_kinds(table, kinds, step, bent)
        for i in range(m):
            for c in range(n):
                constant += step[i, c] * (bent[i, c] - 2.0 * linear[c, i])
        for j in range(k):
            for c in range(n):
                force[j, c] -= bent[left[j], c]
        rest = np.empty((k, k), dtype=np.int64)
        for i in range(k):
            for j in range(k):
                rest[i, j] = kinds[left[i], left[j]]
        kinds = rest
    common, beyond = np.empty(len(table)), 0.0
    for row in range(len(table)):
        least = np.inf
        for i in range(k):  # of the pairs that there are: the table may know of others
            for j in range(i + 1):
                least = min(least, table[row, kinds[i, j]])
        common[row] = max(least, 0.0)
        for i in range(k):
            beyond += (table[row, kinds[i, i]] - common[row]) / (k * len(table))
    firmness = np.zeros(n)
    for c in range(n):
        firmness[c] = common[c % len(table)] / beyond if k > 1 and beyond > 0.0 else 0.0
    no_edges = np.empty((0, 2), dtype=np.uint32)
    scale = table[0, kinds[0, 0]]
    return Distance(no_edges, np.empty(0), table, kinds, around, force, constant, modulus, scale, firmness)


@compiled
def hessian_product(distance: Distance, step: Floats) -> Floats:
    """Multiply each child's column by its curvature."""
    m, n = step.shape
    if len(distance.weights) > 0:
        sums = np.empty((len(distance.weights), n))
        for i in range(m):
            for c in range(n):
                sums[i, c] = step[i, c]
        bend_chain(distance.edges, distance.weights, m, sums)
        return sums[:m]
    out = np.zeros((m, n))
    bend_kinds(distance.table, distance.kinds, step, out)
    return out
