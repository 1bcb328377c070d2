"""Irreducible infeasible subset: a minimal set of limits that cannot hold together.

If no x >= 0 satisfies all rows, some multipliers prove it (Farkas 1902): weights y that combine the rows into one that
nothing satisfies. The vertices of the set of such proofs are the irreducible infeasible subsets (Gleeson and Ryan
1990), so the simplex method finds one. A deletion filter (Chinneck and Dravnieks 1991) then confirms that no row of it
can be spared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from das.schema.limits import NO_LIMIT

__all__ = ["System", "irreducible"]

_TINY = 1e-9
"""Multipliers are simple fractions; what is smaller is the solver's."""
_FILTERED = 200
"""Above so many rows the filter is skipped, because it solves a program for each of them."""


@dataclass(frozen=True, slots=True)
class System:
    """Rows ``lower <= members @ x <= upper`` on x >= 0, and rows that are given and cannot be dropped."""

    members: sparse.csr_array  # rows x variables, zeros and ones
    lower: NDArray[np.int64]
    upper: NDArray[np.int64]  # NO_LIMIT where there is none
    given: sparse.csr_array | None = None
    given_values: NDArray[np.int64] | None = None

    def pick(self, rows: NDArray[np.int64]) -> System:
        """Return some of the rows, and all that are given."""
        return System(self.members[rows], self.lower[rows], self.upper[rows], self.given, self.given_values)

    def holds(self) -> bool:
        """Whether some x satisfies everything."""
        low, high = np.flatnonzero(self.lower > 0), np.flatnonzero(self.upper < self._enough())
        result = linprog(
            np.zeros(self.members.shape[1]),
            A_ub=sparse.vstack([-self.members[low], self.members[high]]),
            b_ub=np.concatenate([-self.lower[low], self.upper[high]]).astype(np.float64),
            A_eq=self.given,
            b_eq=self.given_values,
            method="highs",
        )
        return bool(result.status == 0)

    def _enough(self) -> int:
        """Upper bound on a smallest solution: each of its people counts towards a lower limit or a given row."""
        given = 0 if self.given_values is None else int(self.given_values.sum())
        return min(int(NO_LIMIT), int(np.maximum(self.lower, 0).sum()) + given)

    def proof(self) -> NDArray[np.int64] | None:
        """Return the rows with which a vertex of the proofs shows that nothing satisfies all of them, if so."""
        low, high = np.flatnonzero(self.lower > 0), np.flatnonzero(self.upper < self._enough())
        # minimise high.upper - low.lower + z.given  over weights with sum 1 that leave no variable a negative total
        columns = [-self.members[low], self.members[high]]
        value = [-self.lower[low].astype(np.float64), self.upper[high].astype(np.float64)]
        weighed = len(low) + len(high)
        if self.given is not None and self.given_values is not None:
            columns.append(self.given)
            value.append(self.given_values.astype(np.float64))
        objective = np.concatenate(value)
        matrix = sparse.vstack(columns, format="csr")
        ones = np.zeros((1, len(objective)))
        ones[0, :weighed] = 1.0
        bounds = np.full((len(objective), 2), [0.0, np.inf])
        bounds[weighed:] = -np.inf, np.inf
        result = linprog(
            objective / max(1.0, float(np.abs(objective).max(initial=0.0))),
            A_ub=-matrix.T,
            b_ub=np.zeros(matrix.shape[1]),
            A_eq=ones,
            b_eq=np.ones(1),
            bounds=bounds,
            method="highs-ds",
        )
        if result.x is None or float(objective @ result.x) > -_TINY:
            return None
        used: NDArray[np.int64] = np.unique(np.concatenate([low, high])[result.x[:weighed] > _TINY])
        return used


def irreducible(system: System) -> NDArray[np.int64]:
    """Return a minimal set of rows that cannot hold together; none if all can.

    Examples
    --------
    Two cells, at least 2 and at least 3, at most 4 together; a third is limited too, but not in conflict:

    >>> rows = sparse.csr_array(np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]]))
    >>> irreducible(System(rows, np.array([2, 3, 0, 1]), np.array([9, NO_LIMIT, 4, 1]))).tolist()
    [0, 1, 2]
    """
    if system.holds():
        return np.zeros(0, dtype=np.int64)
    rows = system.proof()
    if rows is None or system.pick(rows).holds():  # the proof is below floating-point precision
        rows = np.arange(len(system.lower))
    if len(rows) <= _FILTERED:
        for row in rows.tolist():
            without = rows[rows != row]
            if not system.pick(without).holds():
                rows = without
    return rows
