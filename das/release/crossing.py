"""Facts that cross: a(t) from the published numbers, where they decide it (``das/accounting/bounds.md``)."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from das.accounting.bounds import crossing_facts
from das.accounting.small_table.dataspace import TableFacts, data_space, semi_adjacency
from das.facts.fact import Fact
from das.release.published_shards import PublishedShards
from das.schema.limits import NO_LIMIT
from das.schema.query import Query
from das.storage.shards import Shard

__all__ = ["adjacency_of_facts", "crossed_in"]

LISTED = 20_000  # histograms that are looked at
COMPARED = 400  # data sets whose distances are compared


def adjacency_of_facts(published: PublishedShards, *, crossed: bool) -> int | None:
    """Give a(t) where facts were declared that cross, if the published numbers decide it; None otherwise.

    Facts of which only those cross that cannot bind nest after all: 2. Otherwise all data sets of a small world are
    listed. Where neither can be done, the account keeps its condition. ``crossed`` is what :func:`crossed_in` says of
    any shard.
    """
    if not crossing_facts(published.whole):
        return None
    return _listed(published) if crossed else 2


def crossed_in(published: PublishedShards, shard: Shard) -> bool:
    """Whether facts cross, and bind, in a shard of the lower one's level."""
    return any(_cross(published, shard, one, two) for one, two in crossing_facts(published.whole))


def _binding(facts: Iterable[Fact], name: str) -> tuple[Query, NDArray[np.bool_]] | None:
    """Which answers of a fact, in which geounits, can hold a record in place or keep one out.

    A set that is known to be empty says that each of its cells is, and single cells cross nothing.
    """
    bound: NDArray[np.bool_] | None = None
    query = None
    for fact in facts:
        if fact.query.name == name:
            binds = (fact.values > 0) & ((fact.values < NO_LIMIT) if fact.sign == "<=" else np.True_)
            bound, query = (binds if bound is None else bound | binds), fact.query
    return None if bound is None or query is None else (query, bound)


def _cross(published: PublishedShards, shard: Shard, one: tuple[str, str], two: tuple[str, str]) -> bool:
    plan = published.plan
    upper, lower = sorted((one, two), key=lambda pair: plan.levels.index(pair[0]))
    if lower[0] != shard.level:
        return False
    parent = published.ancestors(shard.level, shard.start, shard.stop)[upper[0]]
    first = int(parent[0])
    above = _binding(published.facts_within(upper[0], first, int(parent[-1]) + 1), upper[1])
    below = _binding(published.facts(shard), lower[1])
    if above is None or below is None:
        return False
    together = np.zeros((above[0].size, below[0].size), dtype=np.int64)
    possible = plan.schema.possible.reshape(-1)
    np.add.at(together, (above[0].index[possible], below[0].index[possible]), 1)
    whole_below = together.sum(axis=0)
    crosses = (together > 0) & (together < whole_below)
    if upper[0] == lower[0]:
        crosses &= together < together.sum(axis=1)[:, None]
    reached = (above[1].astype(np.int64) @ crosses.astype(np.int64))[parent - first] > 0
    return bool((reached & below[1]).any())


def _listed(published: PublishedShards) -> int | None:
    """List all data sets of a small world whose number of records is public."""
    plan, spine = published.plan, published.spine
    at_top = published.facts_within(plan.levels[0], 0, spine.size(plan.levels[0]))
    top = next((fact.values for fact in at_top if fact.query.size == 1 and fact.sign == "="), None)
    leaves, possible = spine.size(plan.levels[-1]), plan.schema.possible.reshape(-1)
    cells = leaves * int(possible.sum())
    # More cells than that have more histograms, and their number takes long to work out.
    if top is None or cells > LISTED or math.comb(int(top.sum()) + cells - 1, cells - 1) > LISTED:
        return None
    rows: list[tuple[tuple[int, ...], int, int]] = []
    for level in plan.levels:
        ranges = spine.leaf_ranges(level)
        for fact in published.facts_within(level, 0, spine.size(level)):
            for unit, answer in np.argwhere(fact.values < NO_LIMIT):
                inside = np.zeros((leaves, plan.schema.size), dtype=np.int64)
                inside[ranges[unit] : ranges[unit + 1], fact.query.index == answer] = 1
                value = int(fact.values[unit, answer])
                low, high = (0 if fact.sign == "<=" else value), (int(top.sum()) if fact.sign == ">=" else value)
                rows.append((tuple(inside[:, possible].reshape(-1).tolist()), low, max(low, high)))
    known = TableFacts(cells=cells, values=(), records=int(top.sum()), bounds=tuple(rows))
    return semi_adjacency(known) if len(data_space(known)) <= COMPARED else None
