"""Presolve of a family: fix the cells that are determined, and write constraints and objective for the others.

Tables are cells x children. A cell that only one child can fill is not a variable: its counts are fixed, and the family
becomes a problem in the cells that are left. Compiled; the same on every machine.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from das.compiled import compiled_part
from das.estimation.solvers.active_set.hessian import (
    Groups,
    add_kinds_product,
    chain_product,
    link_groups,
    residuals,
)
from das.estimation.solvers.active_set.layout import (
    Bools,
    EstimateArrays,
    Floats,
    Ints,
    LimitArrays,
    MeasurementArrays,
    Numbers,
)
from das.schema.limits import NO_LIMIT

__all__ = [
    "Constraints",
    "Objective",
    "constraints_on_cells",
    "fix_determined_cells",
    "hessian_product",
    "objective_from_estimates",
    "objective_from_measurements",
]

_NO_LIMIT = int(NO_LIMIT)


class Constraints(NamedTuple):
    """Constraints of one family: counts not negative, zero where not free, cells sum to the parent, limits hold.

    A limit is a row: the cells that it sums (``row_cell`` from ``row_start`` on), and bounds for each child. The same
    incidence is kept by cell.
    """

    parent: Floats  # one for each cell; empty at the top of the spine
    free: Bools  # cells x children
    row_start: Numbers
    row_cell: Numbers
    cell_start: Numbers
    cell_row: Numbers
    lower: Floats  # children x rows
    upper: Floats  # children x rows, infinite where nothing is known


class Objective(NamedTuple):
    """A quadratic in the children's counts, around a reference, whose Hessian is a chain of sums or a table of kinds.

    See :class:`das.estimation.problem.Quadratic`, which says the same with a matrix. Measurements of a level give all
    children one Hessian, a sum of groups' indicators over variances. It is never written out: a product with it sums
    cells into groups, finer groups into coarser ones, weighs, and goes back the same way.
    """

    # A chain: edges (part, whole) between nodes, of which cells are the first, and the weights of nodes;
    edges: Numbers
    weights: Floats
    # or, without weights, a table as in EstimateArrays.
    table: Floats
    kinds: Ints
    reference: Floats  # cells x children
    linear: Floats  # cells x children
    constant: float
    modulus: float  # every Hessian is at least this times the identity
    scale: float  # Hessian entry of a typical cell
    stiffness: Floats  # for each child: the Hessian's value common to all pairs of cells, over a cell's value beyond it


@compiled_part
def _find_free(limits: LimitArrays, free: Bools) -> bool:
    """Fill in which entries can be positive; return whether no limit contradicts itself or the cells there are."""
    parent, index, columns = limits.parent, limits.column_of, limits.columns
    lower, upper = limits.lower, limits.upper
    m, n = free.shape
    for i in range(m):
        for c in range(n):
            free[i, c] = len(parent) == 0 or parent[i] > 0.0
    reached = np.zeros(lower.shape[1], dtype=np.bool_)
    for query in range(len(index)):
        for i in range(m):
            column = columns[query] + index[query, i]
            reached[column] = True
            for c in range(n):
                if upper[c, column] <= 0:
                    free[i, c] = False
    consistent = True
    for c in range(n):
        for column in range(lower.shape[1]):
            least = max(lower[c, column], 0)
            if least > upper[c, column] or (least > 0 and not reached[column]):
                consistent = False
    return consistent


@compiled_part
def fix_determined_cells(limits: LimitArrays, free: Bools, fixed: Floats) -> tuple[bool, Ints]:
    """Find which entries are free, fix the cells that one child alone can fill; return the cells that are left.

    Returned is first whether there is a problem to solve. There is none if no cell is left, if a cell has people and no
    child that can have them, or if a limit contradicts itself or needs people in cells that the family does not have.
    """
    m, n = free.shape
    parent, top = limits.parent, len(limits.parent) == 0
    consistent = _find_free(limits, free)
    left, count, any_free = np.empty(m, dtype=np.int64), 0, False
    for i in range(m):
        options = 0
        for c in range(n):
            options += free[i, c]
        any_free = any_free or options > 0
        if top or options > 1:
            left[count] = i
            count += 1
        elif options == 0 and parent[i] > 0.0:
            consistent = False
        elif consistent:
            for c in range(n):
                fixed[i, c] = parent[i] if free[i, c] else 0.0
    return consistent and any_free and count > 0, left[:count]


@compiled_part
def _rows_of_columns(limits: LimitArrays, left: Ints, size: Ints) -> Ints:
    """Number the columns whose limits exclude more than entries that are not free; -1 for all others.

    ``size`` comes as zeros and becomes the number of cells of each such column.
    """
    index, columns = limits.column_of, limits.columns
    lower, upper = limits.lower, limits.upper
    width = lower.shape[1]
    row_of = np.full(width, -1)
    for c in range(lower.shape[0]):
        for column in range(width):
            if lower[c, column] > 0 or 0 < upper[c, column] < _NO_LIMIT:
                row_of[column] = -2
    for query in range(len(index)):
        for j in range(len(left)):
            column = columns[query] + index[query, left[j]]
            if row_of[column] != -1:
                size[column] += 1
    rows = 0
    for column in range(width):
        row_of[column] = rows if size[column] > 0 else -1
        rows += size[column] > 0
    return row_of


@compiled_part
def _row_bounds(
    limits: LimitArrays, row_of: Ints, row_start: Numbers, fixed: Floats, left: Ints
) -> tuple[Floats, Floats]:
    """Bounds of each row, children x rows, less the counts of fixed cells."""
    index, columns = limits.column_of, limits.columns
    lower, upper = limits.lower, limits.upper
    n, rows = lower.shape[0], len(row_start) - 1
    low, high = np.zeros((n, rows)), np.full((n, rows), np.inf)
    for column in range(lower.shape[1]):
        row = row_of[column]
        if row >= 0:
            for c in range(n):
                low[c, row] = max(lower[c, column], 0)
                if upper[c, column] < _NO_LIMIT:
                    high[c, row] = upper[c, column]
    if len(left) < len(fixed):
        for query in range(len(index)):
            for i in range(len(fixed)):  # zero where cells are left
                row = row_of[columns[query] + index[query, i]]
                if row >= 0:
                    for c in range(n):
                        low[c, row] -= fixed[i, c]
                        high[c, row] -= fixed[i, c]
        for c in range(n):
            for row in range(rows):
                low[c, row] = max(low[c, row], 0.0)
    return low, high


@compiled_part
def constraints_on_cells(limits: LimitArrays, free: Bools, fixed: Floats, left: Ints) -> Constraints:
    """Write the constraints on the cells that are left: the sums to the parent, and the limits as rows."""
    parent, index, columns = limits.parent, limits.column_of, limits.columns
    n, k, width = free.shape[1], len(left), limits.lower.shape[1]
    size = np.zeros(width, dtype=np.int64)
    row_of = _rows_of_columns(limits, left, size)
    rows, incidence = 0, 0
    for column in range(width):
        rows += size[column] > 0
        incidence += size[column]
    row_start, row_cell = np.zeros(rows + 1, dtype=np.uint32), np.empty(incidence, dtype=np.uint32)
    cell_start, cell_row = np.zeros(k + 1, dtype=np.uint32), np.empty(incidence, dtype=np.uint32)
    for column in range(width):
        row = row_of[column]
        if row >= 0:
            row_start[row + 1] = row_start[row] + size[column]
            size[column] = row_start[row]  # from here on: the position of the row's next cell
    position = 0
    for j in range(k):
        for query in range(len(index)):
            column = columns[query] + index[query, left[j]]
            if row_of[column] >= 0:
                row_cell[size[column]] = j
                size[column] += 1
                cell_row[position] = row_of[column]
                position += 1
        cell_start[j + 1] = position
    low, high = _row_bounds(limits, row_of, row_start, fixed, left)
    people, free_left = np.empty(k if len(parent) > 0 else 0), np.empty((k, n), dtype=np.bool_)
    for j in range(len(people)):
        people[j] = parent[left[j]]
    for j in range(k):
        for c in range(n):
            free_left[j, c] = free[left[j], c]
    return Constraints(people, free_left, row_start, row_cell, cell_start, cell_row, low, high)


@compiled_part
def _values_of_groups(
    measurements: MeasurementArrays, groups: Groups, fixed: Floats, left: Ints, group_of: Ints
) -> Floats:
    """Measured values of the groups, groups x children, less the counts of fixed cells."""
    key, start = groups.key, groups.start
    index, columns, measured = measurements.column_of, measurements.columns, measurements.values
    n = fixed.shape[1]
    values = np.empty((len(groups.node), n))
    for query in range(len(index)):
        for g in range(start[query], start[query + 1]):
            for c in range(n):
                values[g, c] = measured[c, columns[query] + key[g]]
    if len(left) == len(fixed):
        return values
    is_fixed = np.ones(len(fixed), dtype=np.bool_)
    for j in range(len(left)):
        is_fixed[left[j]] = False
    for query in range(len(index)):
        for g in range(start[query], start[query + 1]):
            group_of[key[g]] = g
        for i in range(len(fixed)):
            if is_fixed[i] and group_of[index[query, i]] >= 0:
                g = group_of[index[query, i]]
                for c in range(n):
                    values[g, c] -= fixed[i, c]
        for g in range(start[query], start[query + 1]):
            group_of[key[g]] = -1
    return values


@compiled_part
def objective_from_measurements(
    measurements: MeasurementArrays, fixed: Floats, left: Ints, group_of: Ints
) -> Objective:
    """Write the weighted squared residuals of what was measured as a function of the cells that are left.

    Answers that none of these cells reaches are constants and left out. The modulus is the precision of queries that
    measure every cell by itself; what others add to the Hessian is positive semidefinite. ``group_of`` is scratch,
    filled with -1, and left so.
    """
    index, precision = measurements.column_of, measurements.precision
    q, k, n = len(index), len(left), fixed.shape[1]
    keys = np.empty((q, k), dtype=np.int64)
    for query in range(q):
        for j in range(k):
            keys[query, j] = index[query, left[j]]
    groups = link_groups(keys, measurements.finer, group_of)
    values = _values_of_groups(measurements, groups, fixed, left, group_of)
    node, start = groups.node, groups.start

    weight, weights = np.empty(len(node)), np.zeros(groups.nodes)
    modulus, common, beyond, detailed = 0.0, 0.0, 0.0, -1
    for query in range(q):
        size = start[query + 1] - start[query]
        for g in range(start[query], start[query + 1]):
            weight[g] = precision[query]
            weights[node[g]] += precision[query]
        if size == k:
            modulus += precision[query]
            detailed = query
        if size == 1:
            common += precision[query]
        else:
            beyond += precision[query]
    reference = np.zeros((k, n))
    if detailed >= 0:
        for g in range(start[detailed], start[detailed + 1]):
            for c in range(n):
                reference[node[g], c] = values[g, c]
    constant, linear = residuals(values, weight, groups, reference)
    scale, stiffness = 0.0, np.empty(n)
    for each in range(groups.nodes):
        scale = max(scale, weights[each])
    for c in range(n):
        stiffness[c] = common / beyond if beyond > 0.0 else common
    no_table, no_kinds = np.empty((1, 0)), np.empty((0, 0), dtype=np.int64)
    return Objective(groups.edges, weights, no_table, no_kinds, reference, linear, constant, modulus, scale, stiffness)


@compiled_part
def _stiffness_of_table(table: Floats, kinds: Ints, children: int) -> Floats:
    """Find for each child the Hessian's value common to all pairs of cells, over a cell's value beyond it."""
    k = len(kinds)
    common, beyond = np.empty(len(table)), 0.0
    for row in range(len(table)):
        least = np.inf
        for i in range(k):  # over the pairs that there are: the table can have other kinds
            for j in range(i + 1):
                least = min(least, table[row, kinds[i, j]])
        common[row] = max(least, 0.0)
        for i in range(k):
            beyond += (table[row, kinds[i, i]] - common[row]) / (k * len(table))
    stiffness = np.zeros(children)
    for c in range(children):
        stiffness[c] = common[c % len(table)] / beyond if k > 1 and beyond > 0.0 else 0.0
    return stiffness


@compiled_part
def objective_from_estimates(estimates: EstimateArrays, fixed: Floats, left: Ints) -> Objective:
    """Write a quadratic around linear estimates, given children x cells, as a function of the cells that are left."""
    table, kinds, reference = estimates.table, estimates.kinds, estimates.reference
    linear, constant, modulus = estimates.linear, estimates.constant, estimates.modulus
    m, n = fixed.shape
    k = len(left)
    reference_left, linear_left = np.empty((k, n)), np.empty((k, n))
    for j in range(k):
        for c in range(n):
            reference_left[j, c] = reference[c, left[j]]
            linear_left[j, c] = linear[c, left[j]]
    if k < m:
        step, product = np.empty((m, n)), np.zeros((m, n))
        for i in range(m):
            for c in range(n):
                step[i, c] = fixed[i, c] - reference[c, i]
        for j in range(k):
            for c in range(n):
                step[left[j], c] = 0.0
        add_kinds_product(table, kinds, step, product)
        for i in range(m):
            for c in range(n):
                constant += step[i, c] * (product[i, c] - 2.0 * linear[c, i])
        for j in range(k):
            for c in range(n):
                linear_left[j, c] -= product[left[j], c]
        kinds_left = np.empty((k, k), dtype=np.int64)
        for i in range(k):
            for j in range(k):
                kinds_left[i, j] = kinds[left[i], left[j]]
        kinds = kinds_left
    stiffness, scale = _stiffness_of_table(table, kinds, n), table[0, kinds[0, 0]]
    no_edges, no_weights = np.empty((0, 2), dtype=np.uint32), np.empty(0)
    return Objective(
        no_edges, no_weights, table, kinds, reference_left, linear_left, constant, modulus, scale, stiffness
    )


@compiled_part
def hessian_product(objective: Objective, step: Floats) -> Floats:
    """Multiply each child's column by its Hessian."""
    m, n = step.shape
    if len(objective.weights) > 0:
        sums = np.empty((len(objective.weights), n))
        for i in range(m):
            for c in range(n):
                sums[i, c] = step[i, c]
        chain_product(objective.edges, objective.weights, m, sums)
        return sums[:m]
    out = np.zeros((m, n))
    add_kinds_product(objective.table, objective.kinds, step, out)
    return out
