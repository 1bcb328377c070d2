"""The lattice of integer moves that linear equalities leave: a short basis, and its Gram-Schmidt form in rationals.

Moves are integer vectors v with A v = 0 that are zero on frozen cells (structural zeros and cells whose count is public
by implication). Everything here follows from public facts. Floating point chooses among bases of the same lattice and
decides nothing else: every step is a unimodular operation on integers, and the result is checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from das.accounting.small_table.dataspace import TableFacts
from das.errors import ConfigError, Problem
from das.table.systems import facts_rows

__all__ = ["LARGEST_RANK", "MoveLattice", "equality_rows", "move_lattice"]

LARGEST_RANK = 256
"""Beyond it the Gram-Schmidt form in rationals takes minutes."""
_LOVASZ = 0.99


@dataclass(frozen=True)
class MoveLattice:
    """All integer moves of a table, as combinations of the rows of `basis`.

    Examples
    --------
    >>> lattice = move_lattice(TableFacts(cells=3, values=(), records=9))
    >>> lattice.rank, lattice.basis.sum(axis=1).tolist(), lattice.lengths[0]
    (2, [0, 0], Fraction(2, 1))
    """

    cells: int
    basis: NDArray[np.int64]

    @property
    def rank(self) -> int:
        """The dimension of the lattice."""
        return len(self.basis)

    @cached_property
    def gram_schmidt(self) -> tuple[tuple[tuple[Fraction, ...], ...], tuple[Fraction, ...]]:
        """Coefficients mu[i][j], j < i, and squared lengths of the orthogonalised basis, exactly."""
        gram = (self.basis @ self.basis.T).tolist()
        mu: list[tuple[Fraction, ...]] = []
        lengths: list[Fraction] = []
        for i in range(self.rank):
            inner: list[Fraction] = []  # <b_i, b*_j>
            for j in range(i):
                pairs = zip(mu[j], inner, strict=True)
                inner.append(gram[i][j] - sum((m * r for m, r in pairs if m and r), Fraction(0)))
            coefficients = tuple(r / length for r, length in zip(inner, lengths, strict=True))
            pairs = zip(coefficients, inner, strict=True)
            lengths.append(gram[i][i] - sum((m * r for m, r in pairs if r), Fraction(0)))
            mu.append(coefficients)
        return tuple(mu), tuple(lengths)

    @property
    def lengths(self) -> tuple[Fraction, ...]:
        """Squared lengths of the orthogonalised basis vectors."""
        return self.gram_schmidt[1]

    @cached_property
    def components(self) -> tuple[NDArray[np.int64], ...]:
        """Groups of cells that no basis vector connects: the lattice is the direct sum of theirs."""
        label = np.arange(self.cells)
        for row in self.basis:
            touched = np.flatnonzero(row)
            label[np.isin(label, label[touched])] = label[touched[0]]
        used = np.flatnonzero(self.basis.any(axis=0))
        return tuple(used[label[used] == name] for name in dict.fromkeys(label[used].tolist()))


def equality_rows(facts: TableFacts) -> NDArray[np.int64]:
    """Return the weights of everything that is public exactly: the number of records, invariants, bounds that meet."""
    rows, low, high = facts_rows(facts)
    return np.asarray(rows[low == high])


def move_lattice(facts: TableFacts, frozen: Iterable[int] = ()) -> MoveLattice:
    """Return the lattice of moves that keep every equality and are zero on frozen cells.

    Raises
    ------
    ConfigError
        The lattice has too many dimensions.

    Examples
    --------
    >>> from das.accounting.small_table.margins import margin_invariants
    >>> facts = TableFacts(cells=9, invariants=margin_invariants((3, 3), [(0,), (1,)]), values=(3,) * 6, records=9)
    >>> move_lattice(facts).rank
    4
    """
    fixed = set(frozen)
    free = [cell for cell in facts.allowed if cell not in fixed]
    rows = equality_rows(facts)
    small = _kernel(rows[:, free].tolist())
    if len(small) > LARGEST_RANK:
        reason = f"the lattice of moves has {len(small)} dimensions, and exact draws are practical up to {LARGEST_RANK}"
        raise ConfigError(Problem("table", reason, "publish a coarser table, or use `das run`"))
    basis = np.zeros((len(small), facts.cells), dtype=np.int64)
    if len(small):
        basis[:, free] = _reduced(np.array(small, dtype=np.int64))
    if np.any(rows @ basis.T):
        raise ArithmeticError("the basis of the lattice does not keep the equalities")
    basis.setflags(write=False)
    return MoveLattice(facts.cells, basis)


def _kernel(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return a basis of the integer vectors v with rows v = 0, by Euclid's algorithm on the columns."""
    width = len(rows[0]) if rows else 0
    columns = [[row[c] for row in rows] for c in range(width)]
    unit = [[int(i == j) for j in range(width)] for i in range(width)]
    done = 0
    for r in range(len(rows)):
        while True:
            live = [c for c in range(done, width) if columns[c][r]]
            if len(live) < 2:
                break
            pivot = min(live, key=lambda c: (abs(columns[c][r]), sum(map(abs, unit[c]))))
            for c in live:
                if c != pivot and (times := columns[c][r] // columns[pivot][r]):
                    columns[c] = [a - times * b for a, b in zip(columns[c], columns[pivot], strict=True)]
                    unit[c] = [a - times * b for a, b in zip(unit[c], unit[pivot], strict=True)]
        if live:
            columns[done], columns[live[0]] = columns[live[0]], columns[done]
            unit[done], unit[live[0]] = unit[live[0]], unit[done]
            done += 1
    return unit[done:]


def _reduced(basis: NDArray[np.int64]) -> NDArray[np.int64]:
    """Shorten a basis (Lenstra, Lenstra and Lovasz 1982); doubles steer, the integer operations are unimodular."""
    rows = basis.copy()
    count, k, steps = len(rows), 1, 0
    while k < count and steps < 200 * count:
        steps += 1
        q = np.asarray(np.linalg.qr(rows[: k + 1].T.astype(np.float64), mode="r"))
        for j in range(k - 1, -1, -1):
            times = round(float(q[j, k] / q[j, j]))
            if times:
                rows[k] -= times * rows[j]
                q[:, k] -= times * q[:, j]
        if q[k, k] ** 2 >= (_LOVASZ - (q[k - 1, k] / q[k - 1, k - 1]) ** 2) * q[k - 1, k - 1] ** 2:
            k += 1
        else:
            rows[[k - 1, k]] = rows[[k, k - 1]]
            k = max(k - 1, 1)
    return rows
