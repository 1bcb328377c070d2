"""A large family as sums over groups of cells: the targets of its queries and its limits, fine and coarse."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from das.estimation.grouping import group_cells
from das.estimation.problem import FamilyProblem
from das.estimation.solvers.first_order.kernels import Floats, Index, group_sums, share_out, spread
from das.estimation.support import SupportLimits
from das.schema.limits import NO_LIMIT

__all__ = ["Groups", "Large"]

MOST_MULTIPLIERS = 800
"""Coarse groups of all children together, at most: the dual Newton method costs the cube of their number."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Sums by group and the interval each should be in: a single point for a measurement, a constraint for a limit."""

    index: Index  # queries x cells, groups numbered through
    weight: Floats  # groups; one over the variance, for a limit that of a penalty
    low: Floats  # children x groups
    high: Floats
    limit: NDArray[np.bool_]  # groups

    @classmethod
    def of(cls, terms: list[Groups], children: int, cells: int) -> Groups:
        """Several queries' groups as one."""
        starts = np.cumsum([0, *(len(term.weight) for term in terms)])
        rows = [term.index + start for term, start in zip(terms, starts[:-1], strict=True)]
        none = np.zeros((children, 0))
        return cls(
            np.concatenate([np.zeros((0, cells), np.int32), *rows]).astype(np.int32),
            np.concatenate([none[0], *(term.weight for term in terms)]),
            np.ascontiguousarray(np.concatenate([none, *(term.low for term in terms)], axis=1)),
            np.ascontiguousarray(np.concatenate([none, *(term.high for term in terms)], axis=1)),
            np.concatenate([none[0].astype(bool), *(term.limit for term in terms)]),
        )

    def sums(self, x: Floats) -> Floats:
        """Sums of a table."""
        out = np.empty(self.low.shape)
        group_sums(x, self.index, out)
        return out

    def outside(self, sums: Floats) -> Floats:
        """How far sums are outside their intervals."""
        return np.asarray(sums - np.clip(sums, self.low, self.high))

    def spread(self, values: Floats) -> Floats:
        """Sum of the values of each cell's groups."""
        out = np.empty((len(values), self.index.shape[1]))
        spread(values, self.index, out)
        return out

    def metric(self) -> Floats:
        """Diagonal of the metric: row sums of the Hessian, the weights of a cell's groups times their sizes."""
        members = np.bincount(self.index.reshape(-1), minlength=len(self.weight)) * self.weight
        return np.asarray(members[self.index].sum(axis=0))


@dataclass(frozen=True, slots=True)
class Large:
    """The problem of some children: fine and coarse groups, and the tables to choose from."""

    fine: Groups
    coarse: Groups
    parent: Floats  # empty at the top
    free: NDArray[np.bool_]
    modulus: float  # the Hessian is at least this times the identity

    @classmethod
    def of(
        cls, problem: FamilyProblem, known: tuple[SupportLimits, ...], free: NDArray[np.bool_], children: slice
    ) -> Large:
        """Collect the groups of a problem for some of its children, the smallest queries first among the coarse."""
        cells, terms, modulus = len(problem.cells), [], 0.0
        for measured in problem.measured:
            grouping = group_cells(measured.query, problem.cells)
            target = measured.values[children][:, grouping.answers].astype(np.float64)
            weight, none = np.full(grouping.size, 1.0 / measured.variance), np.zeros(grouping.size, dtype=bool)
            terms.append(Groups(grouping.index[None, :].astype(np.int32), weight, target, target, none))
            modulus += 1.0 / measured.variance if grouping.size == cells else 0.0
        sharpest = max((float(term.weight[0]) for term in terms), default=1.0)
        for facts in known:
            low = facts.lower[children].astype(np.float64)
            high = np.where(facts.upper < NO_LIMIT, facts.upper, np.inf)[children]
            index, every = facts.grouping.index[None, :].astype(np.int32), np.ones(facts.grouping.size, dtype=bool)
            terms.append(Groups(index, np.full(facts.grouping.size, sharpest), low, high, every))
        fine: list[Groups] = []
        coarse: list[Groups] = []
        room = MOST_MULTIPLIERS // len(free[children])
        for term in sorted(terms, key=lambda term: len(term.weight)):
            is_coarse = len(term.weight) <= room and len(term.weight) < cells
            (coarse if is_coarse else fine).append(term)
            room -= len(term.weight) if is_coarse else 0
        count = len(free[children])
        return cls(
            fine=Groups.of(fine, count, cells),
            coarse=Groups.of(coarse, count, cells),
            parent=np.zeros(0) if problem.parent is None else problem.parent.astype(np.float64),
            free=np.ascontiguousarray(free[children]),
            modulus=modulus,
        )

    def of_cells(self, cells: NDArray[np.int64]) -> Large:
        """Return the problem restricted to some cells, for its coarse groups."""
        coarse = replace(self.coarse, index=np.ascontiguousarray(self.coarse.index[:, cells]))
        return replace(self, coarse=coarse, free=np.ascontiguousarray(self.free[:, cells]))

    def nearest(self, point: Floats) -> Floats:
        """Nearest table to a point."""
        out = np.empty_like(point)
        share_out(point, self.parent, self.free, out)
        return out
