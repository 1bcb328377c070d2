"""Does the release keep what it declares? Recomputed from the published files, and from nothing else."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from das.errors import Problem
from das.facts.fact import limits_of
from das.facts.file import read_facts
from das.plan.plan import Plan, numbers_per_unit
from das.schema.counts import ProtectedCounts
from das.storage.counts import read_counts
from das.storage.layout import ReleaseFolder
from das.storage.shards import Shard, shards_of
from geography import Spine

__all__ = ["conformance_problems"]


def conformance_problems(plan: Plan, release: ReleaseFolder) -> Iterator[Problem]:
    """Name each broken promise about the counts: negative ones, impossible cells, sums, invariants and bounds.

    Shard by shard, each file once or twice: what is held at a time does not grow with the release.
    """
    spine = Spine.load(release.facts / "spine.parquet")
    nowhere, broken, sums = list[Problem](), dict[Problem, None](), dict[Problem, None]()
    parents: list[Shard] = []
    for above, level in zip([None, *plan.levels], plan.levels, strict=False):
        shards = shards_of(spine, level, numbers_per_unit(plan.at(level)))
        of_parents = lru_cache(maxsize=2)(partial(_shard_counts, spine, release))  # shards ascend, and so do parents
        for shard in shards:
            here = _shard_counts(spine, release, shard)
            outside = (here.unit < shard.start) | (here.unit >= shard.stop)
            if (outside | (here.cell < 0) | (here.cell >= plan.schema.size)).any():
                nowhere.append(Problem(f"counts at {level}", "name a geounit or a cell that does not exist"))
                break
            if (here.count < 0).any():
                broken[Problem(f"counts at {level}", "are not all nonnegative")] = None
            if not plan.schema.possible[here.cell].all():
                broken[Problem(f"counts at {level}", "stand in structural zeros")] = None
            broken |= dict.fromkeys(_limits(plan, release, shard, here))
            if above and not nowhere and not _adds_up(plan, spine, shard, here, parents, of_parents):
                sums[Problem(f"counts at {level}", f"do not sum to those at {above}")] = None
        parents = shards
    yield from nowhere or [*broken, *sums]


def _shard_counts(spine: Spine, release: ReleaseFolder, shard: Shard) -> ProtectedCounts:
    return read_counts(spine, shard.level, shard.path(release.counts))


def _limits(plan: Plan, release: ReleaseFolder, shard: Shard, counts: ProtectedCounts) -> Iterator[Problem]:
    below = plan.levels[plan.levels.index(shard.level) :]
    known = any(fact.level in below for facts in (plan.invariants, plan.bounds, plan.published) for fact in facts)
    path = shard.path(release.facts)
    if not path.exists():
        if known:
            yield Problem(f"facts at {shard.level}", "are missing, so that nobody can check them")
        return
    local = replace(counts, unit=counts.unit - shard.start)
    for limit in limits_of(read_facts(plan, path), slice(None)):
        answers = local.answers(limit.query, shard.stop - shard.start)
        if ((answers < limit.lower) | (answers > limit.upper)).any():
            yield Problem(f"counts at {shard.level}", f"break an invariant or a bound on {limit.query.name!r}")


def _adds_up(
    plan: Plan,
    spine: Spine,
    shard: Shard,
    counts: ProtectedCounts,
    parents: list[Shard],
    of_parents: Callable[[Shard], ProtectedCounts],
) -> bool:
    """Whether the families of a shard, which are whole, sum to their parents."""
    parent = spine.parent(shard.level)
    first, last = int(parent[shard.start]), int(parent[shard.stop - 1]) + 1
    summed = _matrix(parent[counts.unit] - first, counts, last - first, plan)
    begin, end = (bisect_right(parents, unit, key=lambda each: each.start) for unit in (first, last - 1))
    stated = sparse.csr_array((last - first, plan.schema.size), dtype=np.int64)
    for each in parents[begin - 1 : end]:
        theirs = of_parents(each)
        inside = (theirs.unit >= first) & (theirs.unit < last)
        part = ProtectedCounts(theirs.unit[inside], theirs.cell[inside], theirs.count[inside])
        stated = stated + _matrix(part.unit - first, part, last - first, plan)
    return not (summed != stated).nnz


def _matrix(unit: NDArray[np.int64], counts: ProtectedCounts, units: int, plan: Plan) -> sparse.csr_array:
    matrix = sparse.csr_array((counts.count, (unit, counts.cell)), shape=(units, plan.schema.size))
    matrix.sum_duplicates()
    return matrix
