"""What the public facts of a release give away, counted from its files against a count cell by cell."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from das.accounting.small_table.dataspace import TableFacts, semi_adjacency
from das.facts.collect import facts_of
from das.facts.file import table_of_facts
from das.plan.geography import spine_of
from das.release.audit import KnownCells, known_cells_in
from das.release.crossing import adjacency_of_facts, crossed_in
from das.release.published_shards import PublishedShards
from das.storage.layout import ReleaseFolder
from das.storage.shards import Shard

TOTAL = {"query": "total", "level": "state", "reason": "seats"}
CELLS = 6  # two sexes, three ages; old men are a structural zero


def released(country: Any, counts: np.ndarray, **sections: Any) -> PublishedShards:
    """The facts of a release, laid down from true counts of (block, cell)."""
    plan = country.plan(**sections)
    spine = spine_of(plan)
    release = ReleaseFolder(country.folder / "release")
    release.facts.mkdir(parents=True)

    def truth(level: str, query: Any) -> np.ndarray:
        ranges = spine.leaf_ranges(level)
        return query.answer(np.stack([counts[a:b].sum(axis=0) for a, b in pairwise(ranges)]))

    for level, facts in facts_of(plan, spine, truth).items():
        pq.write_table(table_of_facts(plan, spine.geocodes(level), facts), release.facts / f"{level}.parquet")
    return PublishedShards(plan, release, spine)


def shards_of(published: PublishedShards) -> list[Shard]:
    return [shard for level in published.plan.levels for shard in published.of(level)]


def known_cells(published: PublishedShards) -> KnownCells:
    return KnownCells.of(known_cells_in(published, shard) for shard in shards_of(published))


def adjacency(published: PublishedShards) -> int | None:
    crossed = any(crossed_in(published, shard) for shard in shards_of(published))
    return adjacency_of_facts(published, crossed=crossed)


def test_counts_that_are_known_are_counted(country: Any) -> None:
    """Block 01002 has no beds for women, county 02 nobody at all; the state totals are public."""
    country.file("beds.csv", "geocode,f,m\n01001,9,9\n01002,0,9\n02001,9,9\n02003,9,9\n11001,9,9\n")
    country.file("most.csv", "geocode,total\n01,9\n02,0\n11,9\n")
    counts = np.zeros((5, CELLS), dtype=np.int64)
    counts[0, 0] = counts[1, 3] = 2
    counts[4, 1] = 1
    bounds = [
        {"query": "sex", "level": "block", "sense": "<=", "source": "beds.csv"},
        {"query": "total", "level": "county", "sense": "<=", "source": "most.csv"},
    ]
    published = released(country, counts, invariant=[TOTAL], bound=bounds)
    possible = published.plan.schema.possible.reshape(-1)
    empty = int(possible[:3].sum()) + 2 * int(possible.sum())  # women of one block, all of two blocks of county 02
    known = known_cells(published)
    assert (known.empty, known.exact) == (empty, 0)


def test_a_total_with_one_cell_left_is_known_exactly(country: Any) -> None:
    """County 11 is one block with beds for old women only, and its total is public."""
    country.file("beds.csv", "geocode,f * 0-17,f * 18-64,m * 0-17,m * 18-64\n11001,0,0,0,0\n")
    counts = np.zeros((5, CELLS), dtype=np.int64)
    counts[0, 0], counts[4, 2] = 2, 1
    bound = {"query": "sex * age", "level": "block", "sense": "<=", "source": "beds.csv", "missing": "unlimited"}
    found = released(country, counts, invariant=[{**TOTAL, "level": "county"}], bound=[bound])
    known = known_cells(found)
    assert known.exact == 1
    assert known.empty == 4 + 2 * 5  # and county 02 is publicly empty


SMALL = {
    "schema": {"attribute": [{"name": "a", "labels": ["0", "1"]}, {"name": "b", "labels": ["0", "1"]}]},
    "geography": {"units": "one.csv", "levels": [{"name": "state", "width": 1}, {"name": "block", "width": 1}]},
    "strategy": {
        "geolevels": {"state": "1/2", "block": "1/2"},
        "queries": {"all": {"detailed": "1"}},
    },
    "invariant": [TOTAL],
}


@pytest.mark.parametrize(
    ("rows", "columns", "expected"),
    [
        ("00,1,9", "00,1,9", 3),  # at most one in the first row, at most one in the first column: they cross and bind
        ("00,1,9", "00,9,9", None),
    ],
)
def test_bounds_that_cross_are_decided_from_the_numbers(
    country: Any, rows: str, columns: str, expected: int | None
) -> None:
    """The example of the note: cells A = (0, 1), B = (0, 0), D = (1, 0), C = (1, 1), three records."""
    country.file("one.csv", "geocode\n00\n")
    country.file("rows.csv", f"geocode,0,1\n{rows}\n")
    country.file("columns.csv", f"geocode,0,1\n{columns}\n")
    counts = np.array([[0, 1, 1, 1]])
    bounds = [
        {"query": q, "level": "block", "sense": "<=", "source": f} for q, f in (("a", "rows.csv"), ("b", "columns.csv"))
    ]
    found = adjacency(released(country, counts, bound=bounds, **SMALL))
    limits = [int(text) for text in (*rows.split(",")[1:], *columns.split(",")[1:])]
    sets = ((1, 1, 0, 0), (0, 0, 1, 1), (1, 0, 1, 0), (0, 1, 0, 1))
    facts = TableFacts(
        cells=4, values=(), records=3, bounds=tuple((row, 0, most) for row, most in zip(sets, limits, strict=True))
    )
    assert found == semi_adjacency(facts)
    assert expected is None or found == expected


def test_facts_of_which_none_cross_in_one_place_nest(country: Any) -> None:
    """A bound on sexes in one block and one on ages in another are declared to cross, and do not."""
    country.file("f.csv", "geocode,f\n01001,1\n")
    country.file("young.csv", "geocode,0-17\n11001,1\n")
    counts = np.zeros((5, CELLS), dtype=np.int64)
    counts[0, 0] = counts[4, 0] = 3
    bounds = [
        {"query": q, "level": "block", "sense": ">=", "source": f} for q, f in (("sex", "f.csv"), ("age", "young.csv"))
    ]
    assert adjacency(released(country, counts, bound=bounds)) == 2
