"""What the published files themselves say was measured, and what their exact facts leave to hide."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from das.accounting.events import Event, GaussianEvent, LaplaceEvent, NotSupported
from das.accounting.hierarchy import HierarchicalPlan, finest_invariant
from das.accounting.vacuity import nested_vacuity
from das.facts.file import read_facts
from das.plan.plan import Plan, numbers_per_unit
from das.schema.query import parse_query
from das.storage.counts import stated_noise
from das.storage.layout import ReleaseFolder
from das.storage.shards import shards_of
from geography import Spine

__all__ = ["emptied_cells", "measured_events", "vacuity_of"]


def measured_events(plan: Plan, release: ReleaseFolder) -> list[Event]:
    """List each (level, query) with the exact noise parameter that its file states."""
    if plan.is_congenial:
        return _drawn_events(plan, release)
    events: list[Event] = []
    for level in plan.levels:
        folder = release.measurements / f"{level}.parquet"
        gaussian = "sigma2" in pq.ParquetDataset(folder).schema.names
        table = pq.read_table(folder, columns=["query", "sigma2" if gaussian else "scale"])
        for query, parameter in dict.fromkeys(zip(*(column.to_pylist() for column in table.columns), strict=True)):
            events.append(_event(level, query, "sigma2" if gaussian else "scale", parameter))
    return events


def _drawn_events(plan: Plan, release: ReleaseFolder) -> list[Event]:
    """What the workers wrote beside the counts of each level: the noise that they conditioned."""
    return [_event(*noise) for level in plan.levels for noise in stated_noise(release.counts / f"{level}.parquet")]


def _event(level: str, query: str, parameter: str, value: str) -> Event:
    if parameter == "sigma2":
        return GaussianEvent(level=level, query=query, sigma2=Fraction(value))
    return LaplaceEvent(level=level, query=query, scale=Fraction(value))


def vacuity_of(plan: Plan, whole: HierarchicalPlan, spine: Spine, release: ReleaseFolder) -> dict[str, Any]:
    """Say how many cells the exact facts pin, and how many classes of people have nobody to be confused with.

    A class is one answer of the finest invariant in one geounit. It holds as many cells as the geounit has leaves,
    times the attribute cells of the answer; with a single cell, or with nobody, it is disclosed exactly.
    """
    finest = finest_invariant(whole)
    if finest is None:
        return {"vacuous": False, "pinned_cells": 0, "unprotected_secrets": []}
    if isinstance(finest, NotSupported):
        return {
            "vacuous": False,
            "pinned_cells": "not supported",
            "unprotected_secrets": ["not supported: " + finest.reason],
        }
    level, name = finest
    query = parse_query(plan.schema, name)
    totals = [
        fact.values
        for shard in shards_of(spine, level, numbers_per_unit(plan.at(level)))
        for fact in read_facts(plan, shard.path(release.facts))
        if fact.query.name == name and fact.sign == "="
    ]
    leaves = np.diff(spine.leaf_ranges(level))
    per_answer = np.bincount(query.index[plan.schema.possible], minlength=query.size)
    cells = np.outer(leaves, per_answer).reshape(-1)
    counts = np.concatenate(totals).reshape(-1)
    reachable = cells > 0
    found = nested_vacuity(counts[reachable].tolist(), cells[reachable].tolist())
    pinned = cells[reachable][list(found.pinned)].sum() if found.pinned else 0
    secrets = [f"being counted in {len(found.unprotected)} of {reachable.sum()} classes: nobody is there, publicly"]
    return {
        "vacuous": found.vacuous,
        "pinned_cells": int(pinned),
        "coverage": float(found.coverage),
        "unprotected_secrets": secrets if found.unprotected else [],
    }


def emptied_cells(plan: Plan, spine: Spine, release: ReleaseFolder) -> int:
    """Count the cells of leaves that a public upper bound of zero empties: exactly known, like pinned ones."""
    leaf = plan.levels[-1]
    total = 0
    for shard in shards_of(spine, leaf, numbers_per_unit(plan.at(leaf))):
        path = shard.path(release.facts)
        for fact in read_facts(plan, path) if path.exists() else ():
            if fact.sign == "<=":
                per_answer = np.bincount(fact.query.index[plan.schema.possible], minlength=fact.query.size)
                total += int(((fact.values == 0) * per_answer).sum())
    return total
