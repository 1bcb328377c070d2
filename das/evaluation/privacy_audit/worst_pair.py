"""The two data sets of a world that are hardest to keep apart under a policy, found by search over its changes.

A change moves one record from a column to another. The loss of a change of the answers by c under noise with weights
exp(-(q k^2 + l |k|)) is measured by the sum of ``q c^2 + l |c|``: rho for the discrete Gaussian, epsilon for the
discrete Laplace. Every change of one record is tried. Of two records, every pair is tried where there are few enough;
otherwise each of the most costly first changes is paired with every second one, and the two are improved in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from das.evaluation.privacy_audit.claims import ADD_REMOVE
from das.evaluation.privacy_audit.small_world import Counts, SmallWorld
from das.noise.two_sided import TwoSidedNoise

__all__ = ["Pair", "Search", "cost_of", "worst_pair"]

FEW = 600
"""Up to so many first changes are each paired with every second one."""
STARTS = 24
ROUNDS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two data sets that a policy compares.

    Parameters
    ----------
    one, other : array
        Counts of the columns.
    cost : float
        Of the change, as the search measures it.
    words : str
        What changes.
    is_exhaustive : bool
        Whether every change of the policy was tried.
    """

    one: Counts
    other: Counts
    cost: float
    words: str
    is_exhaustive: bool


def cost_of(changes: Counts, noise: Sequence[TwoSidedNoise]) -> NDArray[np.float64]:
    """Cost of changes of the answers, rows along the last axis.

    Examples
    --------
    >>> from das.noise import DiscreteGaussian, DiscreteLaplace
    >>> cost_of(np.array([[1, -1], [2, 0]]), [DiscreteGaussian(2), DiscreteLaplace(4)]).tolist()
    [0.5, 1.0]
    """
    quadratic = np.array([float(each.weights.quadratic) for each in noise])
    linear = np.array([float(each.weights.linear) for each in noise])
    return np.asarray((changes.astype(np.float64) ** 2) @ quadratic + np.abs(changes) @ linear)


@dataclass(frozen=True)
class Search:
    """Changes of single records in a world: which keep what is published exactly, and what they cost."""

    world: SmallWorld

    @cached_property
    def changes(self) -> Counts:
        """All (from, to) pairs of columns."""
        columns = np.arange(self.world.columns)
        pairs = np.stack(np.meshgrid(columns, columns, indexing="ij"), axis=-1).reshape(-1, 2)
        return np.asarray(pairs[pairs[:, 0] != pairs[:, 1]])

    @cached_property
    def shifts(self) -> NDArray[np.int64]:
        """Number of the change of the invariants that each change makes; the opposite change has minus that number."""
        if not len(self.world.invariant_rows):
            return np.zeros(len(self.changes), dtype=np.int64)
        classes, which = np.unique(self.world.invariant_rows.T, axis=0, return_inverse=True)
        steps = classes[:, None] - classes[None, :]
        flat = steps.reshape(-1, steps.shape[-1])
        kinds, number = np.unique(np.concatenate([flat, -flat]), axis=0, return_inverse=True)
        zero = int(np.flatnonzero(~kinds.any(axis=1))[0])
        # rows are sorted and the set is symmetric, so the opposite of a row stands at the mirrored place
        table = (number.reshape(-1)[: len(flat)] - zero).reshape(len(classes), len(classes))
        which = which.reshape(-1)
        return np.asarray(table[which[self.changes[:, 1]], which[self.changes[:, 0]]])

    @cached_property
    def alone(self) -> NDArray[np.float64]:
        """Cost of each change of one record: every answer that it changes, it changes by one."""
        noise = self.world.mechanisms
        each = np.array([float(one.weights.quadratic + one.weights.linear) for one in noise])
        return self._changed(each)

    def of_one(self, *, within: bool) -> Counts:
        """Changes of one record, all of them or those that keep the invariants."""
        return np.flatnonzero(self.shifts == 0) if within else np.arange(len(self.changes))

    def answers(self, chosen: tuple[int, ...]) -> Counts:
        """How these changes show in the answers, together."""
        before, after = self.changes[list(chosen)].T
        rows = self.world.rows
        return np.asarray(rows[:, after].sum(axis=1) - rows[:, before].sum(axis=1))

    def cost(self, answers: Counts) -> NDArray[np.float64]:
        """Cost of changes of the answers."""
        return cost_of(answers, self.world.mechanisms)

    def worst_of_one(self, *, within: bool) -> tuple[tuple[int, ...], float]:
        """The costliest change of one record."""
        chosen = self.of_one(within=within)
        if not len(chosen):
            return (), 0.0
        costs = self.alone[chosen]
        return (int(chosen[costs.argmax()]),), float(costs.max())

    def worst_of_two(self, *, trading: bool) -> tuple[tuple[int, ...], float, bool]:
        """The costliest change of two records that keeps the invariants; `trading` if neither keeps them alone."""
        firsts = np.flatnonzero(self.shifts != 0) if trading else np.arange(len(self.changes))
        order = firsts[np.argsort(-self.alone[firsts], kind="stable")]
        exhaustive = len(order) <= FEW
        best: tuple[tuple[int, ...], float] = ((), 0.0)
        for start in (order if exhaustive else _spread(order, self.shifts, STARTS)).tolist():
            first, cost = start, -1.0
            for _ in range(ROUNDS):
                second, found = self._partner(first)
                if found <= cost * (1 + 1e-12):
                    break
                pair, first, cost = (first, second), second, found
            if cost > best[1] * (1 + 1e-12):
                best = pair, cost
        return *best, exhaustive

    def extended(self, chosen: tuple[int, ...]) -> tuple[tuple[int, ...], float]:
        """Let one more record change within its class, the costliest together with those that already do."""
        options = [(*chosen, int(more)) for more in self.of_one(within=True)] or [chosen]
        costs = [float(self.cost(self.answers(option))) for option in options]
        best = int(np.argmax(costs))
        return options[best], costs[best]

    def _partner(self, first: int) -> tuple[int, float]:
        """The costliest second change beside a first one.

        Entries a and b of single changes are -1, 0 or 1, so (a + b)^2 = |a| + |b| + 2ab and |a + b| = |a| + |b| + ab -
        |ab|: the cost of both is a sum over rows that is linear in the second change and in its absolute value.
        """
        fitting = np.flatnonzero(self.shifts == -self.shifts[first])
        noise, given = self.world.mechanisms, self.answers((first,)).astype(np.float64)
        quadratic = np.array([float(each.weights.quadratic) for each in noise])
        linear = np.array([float(each.weights.linear) for each in noise])
        before, after = self.changes.T
        column = (given * (2 * quadratic + linear)) @ self.world.rows
        costs = self.alone[first] + self.alone + column[after] - column[before]
        if linear.any():
            costs = costs - self._changed(linear * np.abs(given))
        costs = costs[fitting]
        return int(fitting[costs.argmax()]), float(costs.max())

    def _changed(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum of weights of the rows that each change of one record shows in."""
        rows = self.world.rows.astype(np.float64)
        both, column = (rows.T * weights) @ rows, weights @ rows
        before, after = self.changes.T
        return np.asarray(column[before] + column[after] - 2 * both[before, after])


def worst_pair(search: Search, policy: str, adjacency: int, *, crowd: int = 0) -> Pair | str:
    """Search the changes of a policy for the costliest; words where it has none, or where no search is known.

    Parameters
    ----------
    search : Search
        The changes of a world.
    policy : str
        A key of `das.accounting.policies.POLICIES`, or ``add-remove``.
    adjacency : int
        How many records change at most.
    crowd : int
        How many people who do not change are in each column of both data sets.
    """
    world = search.world
    exhaustive = True
    if policy == ADD_REMOVE:
        costs = search.cost(world.rows.T)
        column = int(costs.argmax())
        one = np.full(world.columns, crowd, dtype=np.int64)
        other = one + np.eye(world.columns, dtype=np.int64)[column]
        words = f"one record at {world.describe(column)}"
        return Pair(one=one, other=other, cost=float(costs.max()), words=words, is_exhaustive=True)
    if policy == "unconstrained":
        chosen, cost = search.worst_of_one(within=False)
    elif policy in ("semi", "irreducible", "nearest"):
        chosen, cost = search.worst_of_one(within=True)
        if adjacency > 1 and policy != "nearest":
            pair, both, exhaustive = search.worst_of_two(trading=policy == "irreducible")
            chosen, cost = (pair, both) if both > cost else (chosen, cost)
            for _ in range(2, adjacency if policy == "semi" and len(chosen) == 2 else 2):
                (chosen, cost), exhaustive = search.extended(chosen), False
    else:
        return "no search is known for the changes of this policy"
    if not chosen:
        return "no record of this world can change under this policy"
    moved = search.changes[list(chosen)]
    one = np.full(world.columns, crowd, dtype=np.int64)
    np.add.at(one, moved[:, 0], 1)
    other = one.copy()
    np.add.at(other, moved[:, 0], -1)
    np.add.at(other, moved[:, 1], 1)
    words = "; ".join(f"{world.describe(a)} becomes {world.describe(b)}" for a, b in moved.tolist())
    return Pair(one=one, other=other, cost=cost, words=words, is_exhaustive=exhaustive)


def _spread(order: Counts, shifts: NDArray[np.int64], starts: int) -> Counts:
    """The costliest changes of every kind of shift, so that no kind is left out."""
    kinds = np.unique(shifts[order])
    each = max(1, starts // len(kinds))
    return np.concatenate([order[shifts[order] == kind][:each] for kind in kinds])
