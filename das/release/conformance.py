"""Does the release keep what it declares? Recomputed from the published files, and from nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

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
from das.storage.shards import shards_of
from geography import Spine

__all__ = ["conformance_problems"]


def conformance_problems(plan: Plan, release: ReleaseFolder) -> Iterator[Problem]:
    """Name each broken promise about the counts: negative ones, impossible cells, sums, invariants and bounds."""
    spine = Spine.load(release.facts / "spine.parquet")
    counts = {level: read_counts(spine, level, release.counts / f"{level}.parquet") for level in plan.levels}
    nowhere = [
        Problem(f"counts at {level}", "name a geounit or a cell that does not exist")
        for level, here in counts.items()
        if ((here.unit < 0) | (here.cell < 0) | (here.cell >= plan.schema.size)).any()
    ]
    if nowhere:
        yield from nowhere
        return
    for level, here in counts.items():
        if (here.count < 0).any():
            yield Problem(f"counts at {level}", "are not all nonnegative")
        if not plan.schema.possible[here.cell].all():
            yield Problem(f"counts at {level}", "stand in structural zeros")
        yield from _limits(plan, release, spine, level, here)
    for above, below in pairwise(plan.levels):
        summed = _matrix(spine.parent(below)[counts[below].unit], counts[below], spine.size(above), plan)
        stated = _matrix(counts[above].unit, counts[above], spine.size(above), plan)
        if (summed != stated).nnz:
            yield Problem(f"counts at {below}", f"do not sum to those at {above}")


def _limits(plan: Plan, release: ReleaseFolder, spine: Spine, level: str, counts: ProtectedCounts) -> Iterator[Problem]:
    below = plan.levels[plan.levels.index(level) :]
    known = any(fact.level in below for facts in (plan.invariants, plan.bounds, plan.published) for fact in facts)
    for shard in shards_of(spine, level, numbers_per_unit(plan.at(level))):
        path = shard.path(release.facts)
        if not path.exists():
            if known:
                yield Problem(f"facts at {level}", "are missing, so that nobody can check them")
            continue
        local = counts.within(shard.start, shard.stop)
        for limit in limits_of(read_facts(plan, path), slice(None)):
            answers = local.answers(limit.query, shard.stop - shard.start)
            if ((answers < limit.lower) | (answers > limit.upper)).any():
                yield Problem(f"counts at {level}", f"break an invariant or a bound on {limit.query.name!r}")


def _matrix(unit: NDArray[np.int64], counts: ProtectedCounts, units: int, plan: Plan) -> sparse.csr_array:
    matrix = sparse.csr_array((counts.count, (unit, counts.cell)), shape=(units, plan.schema.size))
    matrix.sum_duplicates()
    return matrix
