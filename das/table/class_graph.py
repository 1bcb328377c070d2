"""The graph of class totals: classes of cells with equal columns in the public facts, and their feasible totals.

A state is the partial sum of each fact over the classes visited so far. Classes are ordered so that facts are completed
early, the fact with the fewest classes left first; a completed fact leaves the state.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from das.accounting.small_table.dataspace import TableFacts
from das.errors import InfeasibleError, Problem
from das.table.systems import facts_rows, no_exact_sampler

__all__ = ["ClassGraph", "class_graph"]

EDGE_LIMIT = 1_000_000

Edges = list[list[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class ClassGraph:
    """Which class totals can follow which; public.

    Parameters
    ----------
    cells : tuple of tuples
        The cells of each class, classes in the order of the walk.
    tops : tuple of int
        The largest total of each class.
    edges : tuple of lists
        For each class and node before it: (total of the class, node after it). Node 0 of the first class is the start.
    """

    cells: tuple[tuple[int, ...], ...]
    tops: tuple[int, ...]
    edges: tuple[Edges, ...]

    @property
    def size(self) -> int:
        """How many nodes there are."""
        return sum(map(len, self.edges))


def class_graph(facts: TableFacts) -> ClassGraph:
    """Group the cells and find every feasible walk; refuse if there is none, or if there are too many steps.

    Examples
    --------
    >>> graph = class_graph(TableFacts(cells=4, invariants=((1, 1, 0, 0),), values=(3,), records=5))
    >>> graph.cells, graph.tops
    (((0, 1), (2, 3)), (3, 2))
    """
    rows, low, high = facts_rows(facts)
    grouped: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for cell in facts.allowed:
        grouped[tuple(rows[:, cell].tolist())].append(cell)
    order = _order(grouped)
    silent = ~rows[:, list(facts.allowed)].any(axis=1)  # facts about structural zeros alone
    impossible = bool(np.any(silent & ((low > 0) | (high < 0))))
    edges = () if impossible else _alive(_walk(order, low.tolist(), high.tolist(), int(high[0]), facts))
    if not edges or not edges[0]:
        reason, remedy = "no table agrees with all of them", "check the invariants and bounds against each other"
        raise InfeasibleError(Problem("facts", reason, remedy))
    tops = tuple(max(amount for node in level for amount, _ in node) for level in edges)
    return ClassGraph(tuple(tuple(grouped[column]) for column in order), tops, edges)


def _order(grouped: dict[tuple[int, ...], list[int]]) -> list[tuple[int, ...]]:
    """Visit next a class of the fact with the fewest classes left, so that facts are completed one after the other."""
    left, order = list(grouped), []
    while left:
        open_classes = np.count_nonzero(np.array(left), axis=0)
        tightest = min((count, fact) for fact, count in enumerate(open_classes.tolist()) if count)[1]
        chosen = next(column for column in left if column[tightest])
        order.append(chosen)
        left.remove(chosen)
    return order


def _walk(
    order: list[tuple[int, ...]], low: list[int], high: list[int], records: int, facts: TableFacts
) -> list[Edges]:
    """Enumerate all walks forwards; some may not reach the end."""
    facts_count = len(low)
    states: dict[tuple[int, ...], int] = {(0,) * facts_count: 0}
    levels: list[Edges] = []
    steps = 0
    for position, column in enumerate(order):
        rest = order[position + 1 :]
        least = [records * min(0, *(c[f] for c in rest)) if rest else 0 for f in range(facts_count)]
        most = [records * max(0, *(c[f] for c in rest)) if rest else 0 for f in range(facts_count)]
        is_open = [any(c[f] for c in rest) for f in range(facts_count)]
        following: dict[tuple[int, ...], int] = {}
        level: Edges = []
        for state in states:
            bottom, top = 0, records
            for f, weight in enumerate(column):
                # low <= state + weight * amount + (what the rest can add) <= high
                lacking, room = low[f] - state[f] - most[f], high[f] - state[f] - least[f]
                if weight > 0:
                    bottom, top = max(bottom, -(-lacking // weight)), min(top, room // weight)
                elif weight < 0:
                    bottom, top = max(bottom, -(room // -weight)), min(top, -lacking // -weight)
                elif is_open[f] and (lacking > 0 or room < 0):
                    top = -1
            offers = []
            for amount in range(bottom, top + 1):
                reached = tuple(state[f] + weight * amount if is_open[f] else 0 for f, weight in enumerate(column))
                offers.append((amount, following.setdefault(reached, len(following))))
            level.append(offers)
            steps += len(offers)
            if steps > EDGE_LIMIT:
                raise no_exact_sampler(facts, f"more than {EDGE_LIMIT:,} steps between class totals")
        levels.append(level)
        states = following
    return levels


def _alive(levels: list[Edges]) -> tuple[Edges, ...]:
    """Remove nodes from which the end cannot be reached, and renumber the others."""
    kept: list[Edges] = []
    numbers: dict[int, int] | None = None
    for level in reversed(levels):
        pruned = [
            [(a, n if numbers is None else numbers[n]) for a, n in node if numbers is None or n in numbers]
            for node in level
        ]
        numbers = {}
        for old, node in enumerate(pruned):
            if node:
                numbers[old] = len(numbers)
        kept.insert(0, [node for node in pruned if node])
    return tuple(kept)
