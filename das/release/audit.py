"""Read back the noise that published files state, and count the cells that public facts determine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from das.accounting.events import Event, NotSupported
from das.accounting.hierarchy import HierarchicalPlan, finest_invariant
from das.accounting.vacuity import nested_vacuity
from das.errors import BudgetError, Problem
from das.facts.fact import Fact
from das.facts.file import read_facts
from das.noise.mechanisms import MECHANISMS, mechanism_of
from das.plan.plan import Plan, numbers_per_unit
from das.schema.query import Query, parse_query
from das.storage.counts import stated_noise
from das.storage.layout import ReleaseFolder
from das.storage.shards import shards_of
from geography import Spine

__all__ = ["facts_at", "known_cells", "measured_events", "vacuity_of"]


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
    rows: dict[tuple[str, ...], None] = {}
    for file in [path] if path.is_file() else sorted(path.iterdir()):
        columns = [name for name in pq.read_schema(file).names if name in MECHANISMS]
        if len(columns) != 1:
            reason = f"states {' and '.join(columns) or 'no parameter'} of a known mechanism, and must state one"
            raise BudgetError(Problem(path.name, reason, "do not publish; find out what ran"))
        stated = pq.read_table(file, columns=["query", *columns])  # one shard at a time, and of it what differs
        for found in stated.group_by(stated.column_names, use_threads=False).aggregate([]).to_pylist():
            rows[columns[0], found["query"], found[columns[0]]] = None
    return [[level, query, column, parameter] for column, query, parameter in rows]


_STATED: dict[str, Callable[[str, Path], list[list[str]]]] = {
    "measurements": _stated_by_column,
    "counts": lambda level, path: stated_noise(path),
}
"""How the files of a mechanism's folder state their noise."""


def vacuity_of(plan: Plan, whole: HierarchicalPlan, spine: Spine, release: ReleaseFolder) -> dict[str, Any]:
    """Say whether exact facts determine the data, and how many classes of people have nobody to be confused with.

    A class is one answer of the finest invariant in one geounit. It holds as many cells as the geounit has leaves,
    times the attribute cells of the answer; with a single cell, or with nobody, it is disclosed exactly.
    """
    finest = finest_invariant(whole)
    if finest is None:
        return {"vacuous": False, "unprotected_secrets": []}
    if isinstance(finest, NotSupported):
        return {"vacuous": False, "unprotected_secrets": ["not supported: " + finest.reason]}
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
    secrets = [f"being counted in {len(found.unprotected)} of {reachable.sum()} classes: nobody is there, publicly"]
    return {
        "vacuous": found.vacuous,
        "coverage": float(found.coverage),
        "unprotected_secrets": secrets if found.unprotected else [],
    }


def known_cells(plan: Plan, whole: HierarchicalPlan, spine: Spine, release: ReleaseFolder) -> dict[str, int]:
    """Count the cells of leaves whose counts readers know: by definition, or from the public facts.

    Returns
    -------
    dict
        ``of``: all cells; ``structural``: structural zeros; ``empty``: other cells that a published zero empties, an
        exact one or an upper bound, at the leaf or above it; ``exact``: the only cell that is left of a published total
        that is not zero.
    """
    zeros, columns = [], []
    for level in plan.levels:
        leaves = np.diff(spine.leaf_ranges(level))
        for asked, sign, values in facts_at(plan, spine, level, release):
            if sign in ("=", "<="):
                zeros.append(np.repeat(values == 0, leaves, axis=0))
                columns.append(asked)
    leaves_all, possible = spine.size(plan.levels[-1]), plan.schema.possible.reshape(-1)
    patterns, which = _patterns(zeros, leaves_all)
    finest = finest_invariant(whole)
    query = parse_query(plan.schema, finest[1]) if isinstance(finest, tuple) else None
    emptied, left = [], []
    for row in patterns:
        mask, start = np.zeros(plan.schema.size, dtype=np.bool_), 0
        for fact in columns:
            mask |= row[start : start + fact.size][fact.index]
            start += fact.size
        emptied.append(int((mask & possible).sum()))
        if query is not None:
            left.append(np.bincount(query.index[possible & ~mask], minlength=query.size))
    exact = 0
    if isinstance(finest, tuple) and query is not None:
        ranges = spine.leaf_ranges(finest[0])
        remaining = np.add.reduceat(np.array(left)[which], ranges[:-1], axis=0)
        totals = next(
            v for q, sign, v in facts_at(plan, spine, finest[0], release) if q.name == query.name and sign == "="
        )
        exact = int(((remaining == 1) & (totals > 0)).sum())
    return {
        "of": leaves_all * plan.schema.size,
        "structural": leaves_all * int((~possible).sum()),
        "empty": int(np.array(emptied)[which].sum()),
        "exact": exact,
    }


def facts_at(
    plan: Plan, spine: Spine, level: str, release: ReleaseFolder
) -> list[tuple[Query, str, NDArray[np.int64]]]:
    """Read all facts of a level, their shards put together."""
    parts: dict[tuple[str, str], list[Fact]] = {}
    for shard in shards_of(spine, level, numbers_per_unit(plan.at(level))):
        path = shard.path(release.facts)
        for fact in read_facts(plan, path) if path.exists() else ():
            parts.setdefault((fact.query.name, fact.sign), []).append(fact)
    return [
        (found[0].query, sign, np.concatenate([fact.values for fact in found])) for (_, sign), found in parts.items()
    ]


def _patterns(zeros: list[NDArray[np.bool_]], leaves: int) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Different rows of what is known to be zero, and which of them each leaf has; there are few of them."""
    if not zeros:
        return np.zeros((1, 0), dtype=np.bool_), np.zeros(leaves, dtype=np.intp)
    rows, which = np.unique(np.concatenate(zeros, axis=1), axis=0, return_inverse=True)
    return rows, which.reshape(-1)
