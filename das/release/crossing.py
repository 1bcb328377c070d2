"""Facts that cross: a(t) from the published numbers, where they decide it (``das/accounting/bounds.md``)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from das.accounting.bounds import crossing_facts
from das.accounting.hierarchy import HierarchicalPlan
from das.accounting.small_table.dataspace import TableFacts, data_space, semi_adjacency
from das.plan.plan import Plan
from das.release.audit import facts_at
from das.schema.limits import NO_LIMIT
from das.schema.query import Query
from das.storage.layout import ReleaseFolder
from geography import Spine

__all__ = ["adjacency_of_facts"]

LISTED = 20_000  # histograms that are looked at
COMPARED = 400  # data sets whose distances are compared
Known = tuple[Query, str, NDArray[np.int64]]


def adjacency_of_facts(plan: Plan, whole: HierarchicalPlan, spine: Spine, release: ReleaseFolder) -> int | None:
    """Give a(t) where facts were declared that cross, if the published numbers decide it; None otherwise.

    Facts of which only those cross that cannot bind nest after all: 2. Otherwise all data sets of a small world are
    listed. Where neither can be done, the account keeps its condition.
    """
    pairs = crossing_facts(whole)
    if not pairs:
        return None
    facts = {level: facts_at(plan, spine, level, release) for level in plan.levels}
    if not any(_cross(plan, spine, facts, one, two) for one, two in pairs):
        return 2
    return _listed(plan, spine, facts)


def _binding(facts: dict[str, list[Known]], pair: tuple[str, str]) -> tuple[Query, NDArray[np.bool_]] | None:
    """Which answers of a fact, in which geounits, can hold a record in place or keep one out.

    A set that is known to be empty says that each of its cells is, and single cells cross nothing.
    """
    bound: NDArray[np.bool_] | None = None
    query = None
    for found, sign, values in facts[pair[0]]:
        if found.name == pair[1]:
            binds = (values > 0) & ((values < NO_LIMIT) if sign == "<=" else np.True_)
            bound, query = (binds if bound is None else bound | binds), found
    return None if bound is None or query is None else (query, bound)


def _cross(plan: Plan, spine: Spine, facts: dict[str, list[Known]], one: tuple[str, str], two: tuple[str, str]) -> bool:
    upper, lower = sorted((one, two), key=lambda pair: plan.levels.index(pair[0]))
    above, below = _binding(facts, upper), _binding(facts, lower)
    if above is None or below is None:
        return False
    together = np.zeros((above[0].size, below[0].size), dtype=np.int64)
    possible = plan.schema.possible.reshape(-1)
    np.add.at(together, (above[0].index[possible], below[0].index[possible]), 1)
    whole_below = together.sum(axis=0)
    crosses = (together > 0) & (together < whole_below)
    if upper[0] == lower[0]:
        crosses &= together < together.sum(axis=1)[:, None]
    first = spine.leaf_ranges(lower[0])[:-1]
    parent = np.searchsorted(spine.leaf_ranges(upper[0]), first, side="right") - 1
    reached = (above[1].astype(np.int64) @ crosses.astype(np.int64))[parent] > 0
    return bool((reached & below[1]).any())


def _listed(plan: Plan, spine: Spine, facts: dict[str, list[Known]]) -> int | None:
    """List all data sets of a small world whose number of records is public."""
    top = next((values for query, sign, values in facts[plan.levels[0]] if query.size == 1 and sign == "="), None)
    leaves, possible = spine.size(plan.levels[-1]), plan.schema.possible.reshape(-1)
    cells = leaves * int(possible.sum())
    if top is None or math.comb(int(top.sum()) + cells - 1, cells - 1) > LISTED:
        return None
    rows: list[tuple[tuple[int, ...], int, int]] = []
    for level in plan.levels:
        ranges = spine.leaf_ranges(level)
        for query, sign, values in facts[level]:
            for unit, answer in np.argwhere(values < NO_LIMIT):
                inside = np.zeros((leaves, plan.schema.size), dtype=np.int64)
                inside[ranges[unit] : ranges[unit + 1], query.index == answer] = 1
                value = int(values[unit, answer])
                low, high = (0 if sign == "<=" else value), (int(top.sum()) if sign == ">=" else value)
                rows.append((tuple(inside[:, possible].reshape(-1).tolist()), low, max(low, high)))
    known = TableFacts(cells=cells, values=(), records=int(top.sum()), bounds=tuple(rows))
    return semi_adjacency(known) if len(data_space(known)) <= COMPARED else None
