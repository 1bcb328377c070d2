"""The tables a family's counts are among, and a bound on how near any of them can come."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from das.estimation.distance import Distance
from das.estimation.known import Known
from das.estimation.problem import NO_LIMIT

__all__ = ["Multipliers", "Tables", "value_and_bound"]

Floats = NDArray[np.float64]
Numbers = NDArray[np.uint32]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Tables:
    """Cells x children: not negative, zero where not free, sums of cells and of limited groups as they must be.

    A limit is a row: the cells that it sums (``row_cell`` from ``row_start`` on), and bounds for each child. The same
    incidence is kept by cell.
    """

    free: Bools  # cells x children
    parent: Floats  # one for each cell; none at the top of the spine
    row_start: Numbers
    row_cell: Numbers
    cell_start: Numbers
    cell_row: Numbers
    lower: Floats  # children x rows
    upper: Floats  # children x rows, infinite where nothing is known

    @classmethod
    def of(
        cls,
        parent: Floats,
        free: Bools,
        known: tuple[Known, ...],
        left: NDArray[np.int64] | None = None,
        x: Floats | None = None,
    ) -> Tables:
        """Collect the limits that exclude more than cells which are not free (children x cells).

        If some cells are left over, the others are settled: what they are in ``x``, which is zero where cells are left,
        is taken off the limits.
        """
        n, m = free.shape
        members = [np.zeros((0, m), dtype=bool)]
        lower: list[Floats] = [np.zeros((n, 0))]
        upper: list[Floats] = [np.zeros((n, 0))]
        for facts in known:
            limited = facts.upper < NO_LIMIT
            says = np.flatnonzero(((facts.lower > 0) | ((facts.upper > 0) & limited)).any(axis=0))
            members.append(facts.grouping.index == says[:, None])
            lower.append(facts.lower[:, says].astype(np.float64))
            upper.append(np.where(limited[:, says], facts.upper[:, says], np.inf))
        sums, low, high = np.concatenate(members), np.concatenate(lower, axis=1), np.concatenate(upper, axis=1)
        if left is not None and x is not None:
            # Cells that are not left are settled, and hold nobody else's people.
            taken = x @ sums.T.astype(np.float64)
            low, high, sums = np.maximum(low - taken, 0.0), high - taken, sums[:, left]
            some = sums.any(axis=1)
            if not some.all():
                low, high, sums = low[:, some], high[:, some], sums[some]
            free, parent = free[:, left], parent[left] if len(parent) else parent
        free = np.ascontiguousarray(free.T)
        return cls(
            free, parent, *_listed(sums), *_listed(sums.T), np.ascontiguousarray(low), np.ascontiguousarray(high)
        )

    @property
    def rows(self) -> int:
        """How many limits there are."""
        return int(self.lower.shape[1])


@dataclass(frozen=True, slots=True)
class Multipliers:
    """Prices of cells and tolls of limits, positive where people are one too many."""

    prices: Floats  # one for each cell; none at the top of the spine
    tolls: Floats  # children x rows


def value_and_bound(distance: Distance, tables: Tables, at: Floats, multipliers: Multipliers) -> tuple[float, float]:
    """Return the distance of a point and one that no table is nearer than, whatever point and multipliers are.

    Split the curvature into modulus times identity plus a rest R that is positive semidefinite. Replace the rest by its
    tangent at a point w, and sums and limits by a Lagrangian with prices p and tolls l: for tables y, as steps from the
    reference,

        distance(y) >= constant + min over y of [modulus |y|^2 + 2 y.(R w - pull + p + B'l)] - w'R w - 2 (p, l).(bounds)

    and the minimum over 0 <= y <= parent is taken cell by cell (Fenchel's dual with a strongly convex part,
    Rockafellar 1970, section 31). The bound is off by the square of the distance to the optimum, and tight there.
    Without a modulus it is off by the distance itself and, at the top of the spine, says nothing.
    """
    from das.estimation.settle_kernels import dual_value

    step = at - distance.reference
    bent = distance.bend(step)
    value = distance.constant + float((step * (bent - 2.0 * distance.pull)).sum())
    if distance.modulus <= 0 and not len(tables.parent):
        return value, -np.inf
    dual = dual_value(
        step,
        bent,
        distance.reference,
        distance.pull,
        distance.modulus,
        tables.parent,
        tables.free,
        tables.cell_start,
        tables.cell_row,
        tables.lower,
        tables.upper,
        multipliers.prices,
        multipliers.tolls,
    )
    return value, distance.constant + float(dual)


def _listed(members: Bools) -> tuple[Numbers, Numbers]:
    """List the columns in which each row is true: where each one's list starts, and the lists."""
    start = np.zeros(len(members) + 1, dtype=np.uint32)
    start[1:] = members.sum(axis=1).cumsum()
    return start, members.nonzero()[1].astype(np.uint32)
