"""A plan as the accountant reads it: levels, queries as maps of labels, events, and what is public."""

from __future__ import annotations

import numpy as np

from das.accounting.hierarchy import HierarchicalPlan, Maps
from das.plan.plan import Plan
from das.schema.query import Query
from geography import Spine

__all__ = ["hierarchical_plan"]


def hierarchical_plan(plan: Plan, spine: Spine | None = None, *, several: list[str] | None = None) -> HierarchicalPlan:
    """Describe a plan to the accountant: levels, queries as maps of labels, events, and what is public."""
    units, counted = 1, []
    for level in plan.levels:
        units *= 1 if several is not None and level not in several else 2
        counted.append(spine.size(level) if spine else units)
    queries: dict[str, Query] = {m.query.name: m.query for m in plan.measurements}
    queries |= {query.name: query for query in plan.limited_queries}
    return HierarchicalPlan(
        levels=plan.levels,
        units=tuple(counted),
        attributes=tuple(zip(plan.schema.names, plan.schema.shape, strict=True)),
        queries={name: _maps(query) for name, query in queries.items()},
        events=tuple(m.mechanism.event(m.level, m.query.name) for m in plan.measurements),
        invariants=tuple((i.level, i.query.name) for i in plan.invariants),
        bounds=tuple(dict.fromkeys((b.level, b.query.name) for b in plan.bounds)),
        possible=np.asarray(plan.schema.possible).reshape(plan.schema.shape),
    )


def _maps(query: Query) -> Maps:
    return tuple(None if f.is_everything else tuple(f.group_of.tolist()) for f in query.factors)
