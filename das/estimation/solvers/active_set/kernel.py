"""One compiled call for many families: open each, find its optimum, certify it, and check what it promised to keep."""

from __future__ import annotations

import numpy as np

from das.compiled import compiled
from das.estimation.solvers.active_set.certificate import value_and_bound
from das.estimation.solvers.active_set.hessian import Floats, Ints
from das.estimation.solvers.active_set.iterate import settle
from das.estimation.solvers.active_set.setup import choices, distance_from_estimates, distance_from_measured, tables_of

__all__ = ["solve_all"]


@compiled
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


@compiled
def _missed(parent: Floats, answers: Ints, columns: Ints, lower: Ints, upper: Ints, x: Floats) -> float:
    """Largest violation of a sum or a limit, in persons."""
    m, n = x.shape
    worst, sums = 0.0, np.zeros(lower.shape)
    for i in range(m):
        total = 0.0
        for c in range(n):
            total += x[i, c]
        if len(parent) > 0:
            worst = max(worst, abs(total - parent[i]))
    for query in range(len(answers)):
        for i in range(m):
            column = columns[query] + answers[query, i]
            for c in range(n):
                sums[c, column] += x[i, c]
    for c in range(n):
        for column in range(lower.shape[1]):
            worst = max(worst, lower[c, column] - sums[c, column], sums[c, column] - upper[c, column])
    return worst


@compiled
def solve_all(
    child_start: Ints,
    cell_start: Ints,
    parent: Floats,
    answers: Ints,
    finer: Ints,
    precision: Floats,
    columns: Ints,
    measured: Ints,
    limited: Ints,
    limit_columns: Ints,
    lower: Ints,
    upper: Ints,
    table: Floats,
    kinds: Ints,
    reference: Floats,
    linear: Floats,
    constant: float,
    modulus: float,
    x: Floats,
    found: Floats,
) -> None:
    """Solve families, the children and the cells of which lie one after the other; see :mod:`das.estimation.solvers.active_set.batch`.

    ``x`` is filled with tables, children x cells, one after the other. A row of ``found`` says of a family whether it
    was solved, the relative gap, the largest violation, and the products with the curvature; what is not solved here
    is for others to explain.
    """
    widest, at = 0, 0
    for query in range(len(finer)):
        widest = max(widest, columns[query + 1] - columns[query])
    group_of = np.full(widest, -1)
    for family in range(len(child_start) - 1):
        first, last = child_start[family], child_start[family + 1]
        start, stop = cell_start[family], cell_start[family + 1]
        n, m = last - first, stop - start
        people = parent[start:stop] if len(parent) > 0 else parent
        limit_of, low, high = limited[:, start:stop].copy(), lower[first:last], upper[first:last]
        free, whole = np.empty((m, n), dtype=np.bool_), np.zeros((m, n))
        ready, left = choices(people, limit_of, limit_columns, low, high, free, whole)
        if ready:
            room = tables_of(people, limit_of, limit_columns, low, high, free, whole, left)
            if len(finer) > 0:
                distance = distance_from_measured(
                    answers[:, start:stop].copy(),
                    finer,
                    precision,
                    columns,
                    measured[first:last],
                    whole,
                    left,
                    group_of,
                )
            else:
                distance = distance_from_estimates(table, kinds, reference, linear, constant, modulus, whole, left)
            best, prices, toll, products, stands = settle(distance, room)
            for j in range(len(left)):
                for c in range(n):
                    whole[left[j], c] = best[j, c]
            _clean(people, whole)
            for j in range(len(left)):
                for c in range(n):
                    best[j, c] = whole[left[j], c]
            value, bound = value_and_bound(distance, room, best, prices, toll)
            found[family, 0] = 1.0 if stands else 0.0
            found[family, 1] = (value - bound) / max(value, 1.0)
            found[family, 2] = _missed(people, limit_of, limit_columns, low, high, whole)
            found[family, 3] = products
        for c in range(n):
            for i in range(m):
                x[at] = whole[i, c]
                at += 1
