"""The tables a family's counts are among, the nearest of them to a point, and a bound on how near any can come."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from das.estimation.known import Known
from das.estimation.problem import NO_LIMIT, FamilyProblem, Quadratic

__all__ = ["Rows", "Shares", "lower_bound"]

_FORBIDDEN = -1e12
"""Added where a child's cell can only be zero: far below any count, and still finite."""
_SHORT = 64


@dataclass(frozen=True, slots=True)
class Shares:
    """Tables, cells x children, that are not negative, zero where not free, and sum to the parent in each cell.

    Without a parent the sums are free.
    """

    parent: NDArray[np.float64] | None
    offset: NDArray[np.float64]  # cells x children: zero, or forbidding
    weights: NDArray[np.float64] | None  # averages of the largest 1, 2, ... of sorted numbers, as a matrix
    spread: NDArray[np.float64] | None  # the parent over 1, 2, ...

    @classmethod
    def of(cls, parent: NDArray[np.int64] | None, free: NDArray[np.bool_]) -> Shares:
        """Prepare for a parent's counts and the cells x children that may be positive."""
        offset = np.where(free, 0.0, _FORBIDDEN)
        if parent is None:
            return cls(None, offset, None, None)
        n = free.shape[1]
        count = np.arange(n, 0, -1.0)
        weights = np.tril(np.ones((n, n))) / count if n <= _SHORT else None
        return cls(parent.astype(np.float64), offset, weights, parent[:, None] / count)

    def nearest(self, point: NDArray[np.float64]) -> NDArray[np.float64]:
        """Project onto the set.

        A cell's nearest share is max(point - t, 0), with t the largest over k of (sum of the k largest - parent) / k
        (Held, Wolfe and Crowder 1974).

        Examples
        --------
        >>> shares = Shares.of(np.array([3]), np.array([[True, True, True]]))
        >>> shares.nearest(np.array([[2.0, 1.5, -4.0]])).tolist()
        [[1.75, 1.25, 0.0]]
        """
        return self.settle(point + self.offset, np.empty_like(point), np.empty_like(point))

    def settle(
        self, point: NDArray[np.float64], ordered: NDArray[np.float64], averages: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Project a point that carries the offset already, in place; the other two arrays are scratch."""
        if self.spread is None:
            return np.maximum(point, 0.0, out=point)
        np.copyto(ordered, point)
        ordered.sort(axis=1)
        if self.weights is not None:
            np.matmul(ordered, self.weights, out=averages)
        else:
            np.cumsum(ordered[:, ::-1], axis=1, out=averages[:, ::-1])
            averages /= np.arange(ordered.shape[1], 0, -1.0)
        averages -= self.spread
        point -= np.maximum.reduce(averages, axis=1)[:, None]
        return np.maximum(point, 0.0, out=point)


@dataclass(frozen=True, slots=True)
class Rows:
    """Limits as rows: which cells each one sums, and its bounds for each child."""

    members: NDArray[np.float64]  # rows x cells
    lower: NDArray[np.float64]  # rows x children
    upper: NDArray[np.float64]  # rows x children, infinite where nothing is known

    @classmethod
    def of(cls, problem: FamilyProblem, known: tuple[Known, ...]) -> Rows:
        """Collect the limits that exclude more than cells which are left out anyway."""
        n, m = problem.shape
        members, lower, upper = [np.zeros((0, m))], [np.zeros((0, n))], [np.zeros((0, n))]
        for facts in known:
            says_more = ((facts.lower > 0) | ((facts.upper > 0) & (facts.upper < NO_LIMIT))).any(axis=0)
            members.append((facts.grouping.index == np.flatnonzero(says_more)[:, None]).astype(np.float64))
            lower.append(facts.lower.T[says_more].astype(np.float64))
            upper.append(np.where(facts.upper < NO_LIMIT, facts.upper, np.inf).T[says_more])
        return cls(np.concatenate(members), np.concatenate(lower), np.concatenate(upper))

    def __len__(self) -> int:
        return len(self.members)

    @property
    def exact(self) -> NDArray[np.bool_]:
        """Which rows leave which child no choice."""
        return np.asarray(self.lower == self.upper)

    def given(self, table: NDArray[np.float64], settled: NDArray[np.bool_]) -> Rows:
        """Return the rows of the cells that are not settled, with what the settled ones leave."""
        taken = self.members[:, settled] @ table[settled]
        left = Rows(self.members[:, ~settled], np.maximum(self.lower - taken, 0.0), self.upper - taken)
        return left.pick(np.asarray(left.members.any(axis=1)))

    def pick(self, which: NDArray[np.bool_]) -> Rows:
        """Return some of the rows."""
        return Rows(self.members[which], self.lower[which], self.upper[which])


def lower_bound(
    distance: Quadratic,
    shares: Shares,
    rows: Rows,
    at: NDArray[np.float64],
    multiplier: NDArray[np.float64],
) -> float:
    """Return a number that no table of the set has a smaller distance than, whatever ``at`` and ``multiplier`` are.

    Split the curvature into modulus times identity plus a rest R that is positive semidefinite. Replace the rest by its
    tangent at a point w, and the limits by a Lagrangian with multipliers l: for tables y, as steps from the reference,

        distance(y) >= constant + min over y of [modulus |y|^2 + 2 y.(R w - pull + B'l)] - w'R w - 2 (l bounds)

    and the minimum is one projection (Fenchel's dual with a strongly convex part, Rockafellar 1970, section 31). The
    bound is off by the square of the distance of w to the optimum, and tight there.
    """
    step = at - distance.reference.T
    bent = distance.bend(np.ascontiguousarray(step.T)).T - distance.modulus * step
    multiplier = np.where(np.isfinite(rows.upper), multiplier, np.minimum(multiplier, 0.0))
    bounds = np.where(multiplier > 0, rows.upper, rows.lower)
    bounds = np.where(multiplier == 0, 0.0, bounds - rows.members @ distance.reference.T)
    force = distance.pull.T - bent - rows.members.T @ multiplier
    nearest = shares.nearest(distance.reference.T + force / distance.modulus) - distance.reference.T
    return (
        distance.constant
        + float((nearest * (distance.modulus * nearest - 2.0 * force)).sum())
        - float((step * bent).sum())
        - 2.0 * float((multiplier * bounds).sum())
    )
