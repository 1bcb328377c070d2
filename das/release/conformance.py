"""Does the release keep what it declares? Recomputed from the published files, and from nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from das.errors import Problem
from das.facts.fact import limits_of
from das.plan.plan import Plan
from das.release.published_shards import PublishedShards
from das.schema.counts import ProtectedCounts
from das.storage.shards import Shard

__all__ = ["Broken", "broken_in", "problems_of"]


@dataclass(frozen=True, slots=True)
class Broken:
    """Promises about the counts that a shard breaks, each named once for its level.

    ``nowhere``: counts of a geounit or a cell that does not exist, beside which nothing else can be said; ``within``:
    negative counts, impossible cells, invariants and bounds; ``sums``: children that do not sum to their parents.
    """

    nowhere: tuple[Problem, ...] = ()
    within: tuple[Problem, ...] = ()
    sums: tuple[Problem, ...] = ()


def broken_in(published: PublishedShards, shard: Shard) -> Broken:
    """Check the counts of one shard: in themselves, and against those of its parents."""
    plan, level = published.plan, shard.level
    where, here = f"counts at {level}", published.counts(shard)
    if not _exist(plan, shard, here):
        return Broken(nowhere=(Problem(where, "name a geounit or a cell that does not exist"),))
    within = []
    if (here.count < 0).any():
        within.append(Problem(where, "are not all nonnegative"))
    if not plan.schema.possible[here.cell].all():
        within.append(Problem(where, "stand in structural zeros"))
    within += _limits(published, shard, here)
    position = plan.levels.index(level)
    if not position or _adds_up(published, shard, here):
        return Broken(within=tuple(within))
    sums = Problem(where, f"do not sum to those at {plan.levels[position - 1]}")
    return Broken(within=tuple(within), sums=(sums,))


def problems_of(found: Iterable[Broken]) -> list[Problem]:
    """Name each broken promise of a release once; shards come level by level."""
    nowhere, within, sums = dict[Problem, None](), dict[Problem, None](), dict[Problem, None]()
    for each in found:
        nowhere |= dict.fromkeys(each.nowhere)
        within |= dict.fromkeys(each.within)
        sums |= dict.fromkeys(each.sums)
    return list(nowhere or within | sums)


def _exist(plan: Plan, shard: Shard, counts: ProtectedCounts) -> bool:
    outside = (counts.unit < shard.start) | (counts.unit >= shard.stop)
    return not (outside | (counts.cell < 0) | (counts.cell >= plan.schema.size)).any()


def _limits(published: PublishedShards, shard: Shard, counts: ProtectedCounts) -> Iterator[Problem]:
    plan = published.plan
    below = plan.levels[plan.levels.index(shard.level) :]
    known = any(fact.level in below for facts in (plan.invariants, plan.bounds, plan.published) for fact in facts)
    if not shard.path(published.release.facts).exists():
        if known:
            yield Problem(f"facts at {shard.level}", "are missing, so that nobody can check them")
        return
    local = replace(counts, unit=counts.unit - shard.start)
    for limit in limits_of(published.facts(shard), slice(None)):
        answers = local.answers(limit.query, shard.stop - shard.start)
        if ((answers < limit.lower) | (answers > limit.upper)).any():
            yield Problem(f"counts at {shard.level}", f"break an invariant or a bound on {limit.query.name!r}")


def _adds_up(published: PublishedShards, shard: Shard, counts: ProtectedCounts) -> bool:
    """Whether the families of a shard, which are whole, sum to their parents."""
    plan = published.plan
    above = plan.levels[plan.levels.index(shard.level) - 1]
    parent = published.spine.parent(shard.level)
    first, last = int(parent[shard.start]), int(parent[shard.stop - 1]) + 1
    summed = _matrix(parent[counts.unit] - first, counts, last - first, plan)
    stated = sparse.csr_array((last - first, plan.schema.size), dtype=np.int64)
    for each in published.overlapping(above, first, last):
        theirs = published.counts(each)
        if not _exist(plan, each, theirs):  # their own shard says so
            return True
        inside = (theirs.unit >= first) & (theirs.unit < last)
        part = ProtectedCounts(theirs.unit[inside], theirs.cell[inside], theirs.count[inside])
        stated = stated + _matrix(part.unit - first, part, last - first, plan)
    return not (summed != stated).nnz


def _matrix(unit: NDArray[np.int64], counts: ProtectedCounts, units: int, plan: Plan) -> sparse.csr_array:
    matrix = sparse.csr_array((counts.count, (unit, counts.cell)), shape=(units, plan.schema.size))
    matrix.sum_duplicates()
    return matrix
