"""Two-way tables whose row and column totals are public: squares, hexagons, and a(t) in closed form.

The moves that keep both margins are sums of even cycles of the complete bipartite graph of rows and columns. A cycle
through q rows and q columns needs q records: q = 2 is a square, q = 3 a hexagon (Diaconis and Sturmfels 1998).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, permutations, product

import numpy as np

from das.accounting.small_table.dataspace import Moves, Row
from das.errors import ConfigError, InfeasibleError, Problem

__all__ = ["cycle_moves", "margin_invariants", "two_way_adjacency"]


def cycle_moves(rows: int, columns: int, q: int) -> Moves:
    """All moves along one cycle through `q` rows and `q` columns, both directions, as flat tables.

    Examples
    --------
    >>> len(cycle_moves(3, 3, 2)), len(cycle_moves(3, 3, 3))
    (18, 12)
    """
    found: set[Row] = set()
    for some_rows in combinations(range(rows), q):
        for order in permutations(some_rows[1:]):
            for some_columns in permutations(range(columns), q):
                table = np.zeros((rows, columns), dtype=np.int64)
                around = (some_rows[0], *order)
                for step in range(q):
                    table[around[step], some_columns[step]] += 1
                    table[around[(step + 1) % q], some_columns[step]] -= 1
                found.add(tuple(table.ravel().tolist()))
    return np.array(sorted(found), dtype=np.int64).reshape(len(found), rows * columns)


def two_way_adjacency(row_totals: Sequence[int], column_totals: Sequence[int]) -> int:
    """The semi-adjacency parameter a(t) of a two-way table with public margins, exactly.

    It is 3 when somebody in row i and column j may have to become the only person of (l, k): some margins
    ``r_i, c_j, r_l, c_k >= 1`` with ``i != l``, ``j != k`` and ``r_l + c_k <= n - 1``; otherwise 2 when two rows or two
    columns are inhabited; otherwise 0, because nobody can be anything else.

    Examples
    --------
    >>> two_way_adjacency((2, 1), (2, 1)), two_way_adjacency((2, 2), (2, 2)), two_way_adjacency((3, 0), (3, 0))
    (3, 2, 0)
    """
    if any(total < 0 for total in (*row_totals, *column_totals)):
        raise ConfigError(Problem("margins", "a total is negative", "counts are at least 0"))
    n = sum(row_totals)
    if n != sum(column_totals):
        raise InfeasibleError(Problem("margins", "rows and columns have different sums", "both must add to one total"))
    rows = sorted(total for total in row_totals if total)
    columns = sorted(total for total in column_totals if total)
    if len(rows) > 1 and len(columns) > 1 and rows[0] + columns[0] <= n - 1:
        return 3
    return 2 if len(rows) > 1 or len(columns) > 1 else 0


def margin_invariants(shape: Sequence[int], kept: Sequence[Sequence[int]]) -> tuple[Row, ...]:
    """Rows of the invariants "these marginals are public", cells in C order.

    Examples
    --------
    >>> margin_invariants((2, 2), [(0,), (1,)])
    ((1, 1, 0, 0), (0, 0, 1, 1), (1, 0, 1, 0), (0, 1, 0, 1))
    """
    cells = list(product(*map(range, shape)))
    return tuple(
        tuple(int(all(cell[axis] == value for axis, value in zip(axes, values, strict=True))) for cell in cells)
        for axes in kept
        for values in product(*(range(shape[axis]) for axis in axes))
    )
