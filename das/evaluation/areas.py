"""Published and true counts of areas off the spine, added up from the leaves; confidential."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from das.evaluation.truth import Compared, Truth
from das.plan.plan import Plan
from das.schema.query import Query
from das.storage.counts import read_counts
from das.storage.layout import ReleaseFolder
from geography import Areas, Spine
from geography.areas import read_areas

__all__ = ["areas_of", "compare_areas", "compared_in"]


def areas_of(plan: Plan, spine: Spine, release: ReleaseFolder) -> dict[str, Areas]:
    """Read the members of each kind of area that the release publishes."""
    kinds = [area.name for area in plan.settings.geography.areas]
    paths = {kind: release.area_members / f"{kind}.parquet" for kind in kinds}
    return {kind: read_areas(path, spine) for kind, path in paths.items() if path.exists()}


def compare_areas(
    plan: Plan, spine: Spine, truth: Truth, release: ReleaseFolder, areas: Mapping[str, Areas], queries: Iterable[Query]
) -> Iterator[Compared]:
    """Compare every query for every kind of area; the kind's name stands where a level's does."""
    leaf, queries = plan.levels[-1], tuple(queries)
    if not areas:
        return
    published = read_counts(spine, leaf, release.counts / f"{leaf}.parquet")
    for kind, members in areas.items():
        for query in queries:
            yield compared_in(kind, members, query, published, truth[leaf])


def compared_in(kind: str, areas: Areas, query: Query, published: Any, true: Any) -> Compared:
    """Add the sparse counts of leaves up to areas, both sides; an area may share leaves with others.

    Examples
    --------
    >>> from das.schema.counts import ProtectedCounts
    >>> from das.schema.query import parse_query
    >>> from das.schema.schema import Attribute, Schema
    >>> total = parse_query(Schema((Attribute("sex", ("f", "m")),)), "total")
    >>> areas = Areas(np.array(["A", "B"]), np.array(["", ""]), np.array([[1, 1, 0], [0, 1, 1]]))
    >>> counts = [ProtectedCounts(*np.array([[0, 1, 1], [0, 0, 1], each])) for each in ([1, 2, 3], [1, 2, 5])]
    >>> found = compared_in("place", areas, total, *counts)
    >>> found.published.tolist(), found.true.tolist()
    ([6.0, 5.0], [8.0, 7.0])
    """
    sides = [_keyed(areas, query, counts) for counts in (published, true)]
    key, place = np.unique(np.concatenate([keys for keys, _ in sides]), return_inverse=True)
    cut = len(sides[0][0])
    shown, real = (
        np.bincount(where, counts, minlength=len(key)).astype(np.float64)
        for where, (_, counts) in zip((place[:cut], place[cut:]), sides, strict=True)
    )
    return Compared(level=kind, query=query, cells=len(areas.codes) * query.size, key=key, published=shown, true=real)


def _keyed(areas: Areas, query: Query, counts: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    shape = (areas.membership.shape[1], query.size)
    leaves = sparse.csr_array((counts.count, (counts.unit, query.group_of(counts.cell))), shape=shape)
    found = (areas.membership.astype(np.int64) @ leaves).tocoo()
    return found.row.astype(np.int64) * query.size + found.col, found.data
