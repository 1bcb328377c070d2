"""Minimum-cost flow on arcs with integer bounds and a convex cost: the squared distance to a real value."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from ortools.graph.python import min_cost_flow

__all__ = ["TIE_BITS", "Network", "fixed_cost", "unit_steps"]

TIE_BITS = 12
_FRACTION_BITS = 16
"""A fractional part counts to 2^-16, coarser than a solver's error, so that equal parts are ties; ties have 12 bits."""


def unit_steps(
    value: NDArray[np.float64], low: NDArray[np.int64], high: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Cut each range from ``low`` to ``high`` into steps of one; say whose step it is and what it adds to the cost.

    The cost is the squared distance to the value, so the step from k to k + 1 costs 2 (k - value) + 1: convex, so that
    steps are taken in order.

    Examples
    --------
    >>> unit_steps(np.array([0.25, 3.0]), np.array([0, 2]), np.array([1, 4]))
    (array([0, 1, 1]), array([ 0.5, -1. ,  1. ]))
    """
    width = high - low
    owner = np.repeat(np.arange(len(value)), width)
    step = np.arange(len(owner)) - np.repeat(np.cumsum(width) - width, width) + low[owner]
    return owner, 2.0 * (step - value[owner]) + 1.0


def fixed_cost(cost: NDArray[np.float64], tie: NDArray[np.int64]) -> NDArray[np.int64]:
    """Write costs as whole numbers whose last bits break ties."""
    return np.asarray((np.rint(cost * 2**_FRACTION_BITS).astype(np.int64) << TIE_BITS) + tie)


@dataclass(slots=True)
class Network:
    """A network under construction: nodes are numbers, arcs are added in arrays.

    Examples
    --------
    >>> network = Network()
    >>> start, end = network.nodes(1), network.nodes(1)
    >>> network.supply(start, np.array([3])), network.supply(end, np.array([-3]))
    (None, None)
    >>> both = network.arcs(np.repeat(start, 2), np.repeat(end, 2), np.array([0.7, 2.3]), np.zeros(2, np.int64),
    ...                     np.full(2, 3))
    >>> network.solve()[both].tolist()
    [1, 2]
    """

    _nodes: int = 0
    _arcs: int = 0
    _supply: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = field(default_factory=list)
    _low: list[NDArray[np.int64]] = field(default_factory=list)
    _unit: list[tuple[NDArray[np.int64], ...]] = field(default_factory=list)

    def nodes(self, count: int) -> NDArray[np.int64]:
        """Add nodes and return their numbers."""
        self._nodes += count
        return np.arange(self._nodes - count, self._nodes)

    def supply(self, nodes: NDArray[np.int64], amount: NDArray[np.int64]) -> None:
        """Let people enter (or, negative, leave) at nodes."""
        self._supply.append((nodes, amount))

    def arcs(
        self,
        tail: NDArray[np.int64],
        head: NDArray[np.int64],
        value: NDArray[np.float64],
        low: NDArray[np.int64],
        high: NDArray[np.int64],
        tie: NDArray[np.int64] | None = None,
    ) -> slice:
        """Add arcs that carry between ``low`` and ``high`` people, preferably ``value``; return where they stand."""
        owner, cost = unit_steps(value, low, high)
        fixed = fixed_cost(cost, np.zeros_like(owner) if tie is None else tie[owner])
        self._unit.append((tail[owner], head[owner], np.ones_like(owner), fixed, owner + self._arcs))
        # A lower bound is a flow that has already happened.
        self.supply(tail, -low)
        self.supply(head, low)
        self._low.append(low)
        self._arcs += len(low)
        return slice(self._arcs - len(low), self._arcs)

    def channel(self, tail: NDArray[np.int64], head: NDArray[np.int64], capacity: int) -> None:
        """Add an arc that carries any number of people up to a capacity at no cost."""
        self._unit.append((tail, head, np.full(1, capacity), np.zeros(1, np.int64), np.full(1, -1)))

    def solve(self) -> NDArray[np.int64] | None:
        """Return the flow of each arc, or ``None`` if there is none within the bounds."""
        tail, head, capacity, cost, owner = (np.concatenate(part) for part in zip(*self._unit, strict=True))
        supply = np.zeros(self._nodes, dtype=np.int64)
        for nodes, amount in self._supply:
            np.add.at(supply, nodes, amount)
        task = min_cost_flow.SimpleMinCostFlow()
        numbers = task.add_arcs_with_capacity_and_unit_cost(tail, head, capacity, cost)
        task.set_nodes_supplies(np.arange(self._nodes), supply)
        if task.solve() != task.OPTIMAL:
            return None
        flow = np.concatenate(self._low)
        real = owner >= 0
        np.add.at(flow, owner[real], np.asarray(task.flows(numbers), dtype=np.int64)[real])
        return flow
