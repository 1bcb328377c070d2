"""Read back the noise that published files state, and count the cells that exact facts determine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from das.accounting.events import Event, NotSupported
from das.accounting.hierarchy import HierarchicalPlan, finest_invariant
from das.accounting.vacuity import nested_vacuity
from das.errors import BudgetError, Problem
from das.facts.file import read_facts
from das.noise.mechanisms import MECHANISMS, mechanism_of
from das.plan.plan import Plan, numbers_per_unit
from das.schema.query import parse_query
from das.storage.counts import stated_noise
from das.storage.layout import ReleaseFolder
from das.storage.shards import shards_of
from geography import Spine

__all__ = ["emptied_cells", "measured_events", "vacuity_of"]


def measured_events(plan: Plan, release: ReleaseFolder) -> list[Event]:
    """List each (level, query) with the exact noise parameter that its file states."""
    stated = _STATED[plan.mechanism_stage.folder]
    return [
        mechanism_of(column, value).event(*measured)
        for level in plan.levels
        for *measured, column, value in stated(level, release.mechanism(plan) / f"{level}.parquet")
    ]


def _stated_by_column(level: str, path: Path) -> list[list[str]]:
    """Level, query, column and parameter of each query, as the rows of a measurement file state them."""
    columns = [name for name in pq.ParquetDataset(path).schema.names if name in MECHANISMS]
    if len(columns) != 1:
        reason = f"states {' and '.join(columns) or 'no parameter'} of a known mechanism, and must state one"
        raise BudgetError(Problem(path.name, reason, "do not publish; find out what ran"))
    table = pq.read_table(path, columns=["query", *columns])
    rows = dict.fromkeys(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return [[level, query, columns[0], parameter] for query, parameter in rows]


_STATED: dict[str, Callable[[str, Path], list[list[str]]]] = {
    "measurements": _stated_by_column,
    "counts": lambda level, path: stated_noise(path),
}
"""How the files of a mechanism's folder state their noise."""


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
