"""One compiled call for many families: presolve, active-set solve, certificate, and a check of all constraints."""

from __future__ import annotations

import numpy as np

from das.compiled import compiled, compiled_part
from das.estimation.solvers.active_set.certificate import value_and_bound
from das.estimation.solvers.active_set.iterate import solve_active_set
from das.estimation.solvers.active_set.layout import Families, Floats, Ints, LimitArrays, MeasurementArrays
from das.estimation.solvers.active_set.setup import (
    Objective,
    constraints_on_cells,
    fix_determined_cells,
    objective_from_estimates,
    objective_from_measurements,
)

__all__ = ["solve_all"]


@compiled_part
def _clean(parent: Floats, x: Floats) -> None:
    """Make what holds up to a solver's tolerance hold up to rounding: no negative count, sums equal to the parent."""
    m, n = x.shape
    for i in range(m):
        total = 0.0
        for c in range(n):
            x[i, c] = max(x[i, c], 0.0)
            total += x[i, c]
        if len(parent) > 0 and total > 0.0:
            for c in range(n):
                x[i, c] *= parent[i] / total


@compiled_part
def _largest_violation(limits: LimitArrays, x: Floats) -> float:
    """Largest violation of a sum or a limit, in persons."""
    parent, index, columns = limits.parent, limits.column_of, limits.columns
    lower, upper = limits.lower, limits.upper
    m, n = x.shape
    worst, sums = 0.0, np.zeros(lower.shape)
    for i in range(m):
        total = 0.0
        for c in range(n):
            total += x[i, c]
        if len(parent) > 0:
            worst = max(worst, abs(total - parent[i]))
    for query in range(len(index)):
        for i in range(m):
            column = columns[query] + index[query, i]
            for c in range(n):
                sums[c, column] += x[i, c]
    for c in range(n):
        for column in range(lower.shape[1]):
            worst = max(worst, lower[c, column] - sums[c, column], sums[c, column] - upper[c, column])
    return worst


@compiled_part
def _limits_of(families: Families, family: int) -> LimitArrays:
    """Limits of one of the families."""
    parent, index, columns = families.limits.parent, families.limits.column_of, families.limits.columns
    lower, upper = families.limits.lower, families.limits.upper
    first, last = families.child_start[family], families.child_start[family + 1]
    start, stop = families.cell_start[family], families.cell_start[family + 1]
    people = parent[start:stop] if len(parent) > 0 else parent
    return LimitArrays(people, index[:, start:stop].copy(), columns, lower[first:last], upper[first:last])


@compiled_part
def _objective_of(families: Families, family: int, fixed: Floats, left: Ints, group_of: Ints) -> Objective:
    """Objective of one of the families, in the cells that are left."""
    index, finer, precision = (
        families.measurements.column_of,
        families.measurements.finer,
        families.measurements.precision,
    )
    columns, values = families.measurements.columns, families.measurements.values
    if len(finer) > 0:
        first, last = families.child_start[family], families.child_start[family + 1]
        start, stop = families.cell_start[family], families.cell_start[family + 1]
        own = MeasurementArrays(index[:, start:stop].copy(), finer, precision, columns, values[first:last])
        objective: Objective = objective_from_measurements(own, fixed, left, group_of)
    else:
        objective = objective_from_estimates(families.estimates, fixed, left)
    return objective


@compiled_part
def _solve_one(limits: LimitArrays, families: Families, family: int, group_of: Ints, report: Floats) -> Floats:
    """Solve one family; return its table, cells x children, and fill in its row of the report."""
    children = limits.lower.shape[0]
    cells = families.cell_start[family + 1] - families.cell_start[family]
    free, table = np.empty((cells, children), dtype=np.bool_), np.zeros((cells, children))
    ready, left = fix_determined_cells(limits, free, table)
    if not ready:
        return table
    constraints = constraints_on_cells(limits, free, table, left)
    objective = _objective_of(families, family, table, left, group_of)
    x, cell_multipliers, limit_multipliers, products, solved = solve_active_set(objective, constraints)
    for j in range(len(left)):
        for c in range(children):
            table[left[j], c] = x[j, c]
    _clean(limits.parent, table)
    for j in range(len(left)):
        for c in range(children):
            x[j, c] = table[left[j], c]
    value, bound = value_and_bound(objective, constraints, x, cell_multipliers, limit_multipliers)
    report[0] = 1.0 if solved else 0.0
    report[1] = (value - bound) / max(value, 1.0)
    report[2] = _largest_violation(limits, table)
    report[3] = products
    return table


@compiled
def solve_all(families: Families, x: Floats, report: Floats) -> None:
    """Solve families, the children and the cells of which lie one after the other.

    ``x`` is filled with tables, children x cells, one after the other. A row of ``report`` holds whether the family was
    solved, the relative gap, the largest violation, and the number of Hessian products. A family that is not solved
    here goes to another solver, which explains why if there is no solution.
    """
    columns, widest, position = families.measurements.columns, 0, 0
    for query in range(len(columns) - 1):
        widest = max(widest, columns[query + 1] - columns[query])
    group_of = np.full(widest, -1)
    for family in range(len(families.child_start) - 1):
        table = _solve_one(_limits_of(families, family), families, family, group_of, report[family])
        for c in range(table.shape[1]):
            for i in range(table.shape[0]):
                x[position] = table[i, c]
                position += 1
