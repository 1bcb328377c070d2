"""True counts beside the published ones, cell by cell; confidential, and never written to a file here.

Both sides are sparse. A pair of arrays lists the cells in which either is positive; all others are zero on both sides
and are counted, not listed, so that a schema of a million cells costs what its people cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from das.plan.plan import Plan, numbers_per_unit
from das.release.measurements import read_measurements
from das.schema.counts import ProtectedCounts, TrueCounts
from das.schema.query import Query, parse_query
from das.storage.counts import read_counts
from das.storage.layout import ReleaseFolder
from das.storage.shards import shards_of
from geography import Spine

__all__ = ["Compared", "Truth", "compare_counts", "measured_rmse", "queries_of", "read_truth"]

Truth = Mapping[str, TrueCounts]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Compared:
    """One query at one level, published and true; confidential.

    Parameters
    ----------
    level : str
        The level.
    query : Query
        The query.
    cells : int
        Geounits times answers; a placeholder, where a branch skips a level, is not a geounit.
    key : ndarray of int
        Geounit times number of answers plus answer, ascending: where either number is positive.
    published, true : ndarray of float
        The numbers there.
    """

    level: str
    query: Query
    cells: int
    key: NDArray[np.int64]
    published: NDArray[np.float64]
    true: NDArray[np.float64]

    @property
    def unlisted(self) -> int:
        """How many cells are zero on both sides."""
        return self.cells - len(self.key)


def read_truth(plan: Plan, histograms: Path) -> dict[str, TrueCounts]:
    """Read the true histograms of every level; where there is no file, there is nobody."""
    truth = {}
    for level in plan.levels:
        path = histograms / f"{level}.parquet"
        columns = ("unit", "cell", "count")
        if path.exists():
            table = pq.read_table(path, columns=list(columns))
            truth[level] = TrueCounts(*(np.asarray(table[name], dtype=np.int64) for name in columns))
        else:
            truth[level] = TrueCounts.nobody()
    return truth


def queries_of(plan: Plan) -> tuple[Query, ...]:
    """Each query that is measured at any level or tabulated, once."""
    tabulated = (parse_query(plan.schema, name) for name in plan.settings.output.tables or ())
    found: dict[tuple[str, ...], Query] = {}
    for query in (*(m.query for m in plan.measurements), *tabulated):
        found.setdefault(tuple(query.axes.values()), query)  # the same query may be spelt in another order
    return tuple(found.values())


def compare_counts(
    plan: Plan, spine: Spine, truth: Truth, release: ReleaseFolder, queries: Iterable[Query]
) -> Iterator[Compared]:
    """Compare the protected counts with the truth, for every level and query."""
    queries = tuple(queries)
    for level in plan.levels:
        real = spine.real(level)
        published = read_counts(spine, level, release.counts / f"{level}.parquet")
        for query in queries:
            yield _compared(level, query, real, truth[level], published)


def measured_rmse(plan: Plan, spine: Spine, truth: Truth, release: ReleaseFolder) -> dict[tuple[str, str], float]:
    """Root mean squared error of the noisy measurements by level and query; one shard is in memory at a time."""
    squares: dict[tuple[str, str], float] = {}
    for level in plan.levels:
        real, here = spine.real(level), truth[level]
        for shard in shards_of(spine, level, numbers_per_unit(plan.at(level))):
            values, at = read_measurements(plan, level, shard.path(release.measurements)), 0
            local = here.within(shard.start, shard.stop)
            for measurement in plan.at(level):
                query = measurement.query
                noise = values[:, at : at + query.size] - local.answers(query, shard.stop - shard.start)
                shown = noise[real[shard.start : shard.stop]].astype(np.float64)
                name = level, query.name
                squares[name] = squares.get(name, 0.0) + float((shown * shown).sum())
                at += query.size
    sizes = {(m.level, m.query.name): int(spine.real(m.level).sum()) * m.query.size for m in plan.measurements}
    return {name: float(np.sqrt(total / sizes[name])) for name, total in squares.items() if sizes[name]}


def _compared(
    level: str, query: Query, real: NDArray[np.bool_], truth: TrueCounts, published: ProtectedCounts
) -> Compared:
    (true_key, true_count), (shown_key, shown_count) = (_keyed(query, real, side) for side in (truth, published))
    key, place = np.unique(np.concatenate([true_key, shown_key]), return_inverse=True)
    true, shown = place[: len(true_key)], place[len(true_key) :]
    return Compared(
        level=level,
        query=query,
        cells=int(real.sum()) * query.size,
        key=key,
        published=np.bincount(shown, shown_count, minlength=len(key)).astype(np.float64),
        true=np.bincount(true, true_count, minlength=len(key)).astype(np.float64),
    )


def _keyed(
    query: Query, real: NDArray[np.bool_], counts: TrueCounts | ProtectedCounts
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    shown = real[counts.unit]
    key = counts.unit[shown] * query.size + query.group_of(counts.cell[shown])
    return key, counts.count[shown]
