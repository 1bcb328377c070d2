"""How levels are cut into files: whole families, in order, the same on every runner."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from das.storage.shards import NUMBERS_PER_SHARD, Shard, families, parquet_bytes, shards_of
from geography import Spine, from_geocodes

LEVELS = [("state", 1), ("county", 1), ("block", 2)]


@st.composite
def spines(draw: st.DrawFn) -> Spine:
    codes = draw(st.sets(st.text(alphabet="012", min_size=4, max_size=4), min_size=1, max_size=30))
    return from_geocodes(sorted(codes), LEVELS)


def parent_of(spine: Spine, level: str, unit: int) -> str:
    """The parent's geocode, from the code itself."""
    width = {"state": 0, "county": 1, "block": 2}[level]
    return str(spine.geocodes(level)[unit])[:width]


@settings(max_examples=60)
@given(spines(), st.sampled_from(["state", "county", "block"]), st.integers(1, 40))
def test_parts_are_whole_families_in_order_and_no_larger_than_they_must_be(spine: Spine, level: str, most: int) -> None:
    """``most`` geounits fill a shard."""
    shards = shards_of(spine, level, NUMBERS_PER_SHARD // most)
    size = spine.size(level)
    assert [unit for shard in shards for unit in range(shard.start, shard.stop)] == list(range(size))
    assert [(shard.level, shard.index, shard.of) for shard in shards] == [
        (level, i, len(shards)) for i in range(len(shards))
    ]
    for shard in shards:
        assert shard.start < shard.stop
        for cut in (shard.start, shard.stop):
            inside = 0 < cut < size
            assert not inside or parent_of(spine, level, cut - 1) != parent_of(spine, level, cut), "a family is split"
        several = len({parent_of(spine, level, unit) for unit in range(shard.start, shard.stop)}) > 1
        assert shard.stop - shard.start <= most or not several
    for one, two in pairwise(shards):
        family = next(b for a, b in pairwise(families(spine, level).tolist()) if a == two.start)
        assert family - one.start > most, "the next family would have fitted"


def test_a_nation_has_thousands_of_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many numbers a geounit has; below that number of shards nothing changes."""
    spine = from_geocodes([f"{unit:04d}" for unit in range(0, 10_000, 5)], LEVELS)
    few = shards_of(spine, "block", NUMBERS_PER_SHARD)
    assert len(few) == 100, "a family each"
    monkeypatch.setattr("das.storage.shards.MOST_SHARDS", 10)
    shards = shards_of(spine, "block", NUMBERS_PER_SHARD)
    assert [(shard.start, shard.stop) for shard in shards] == [(start, start + 200) for start in range(0, 2000, 200)]
    assert shards_of(spine, "county", 1) == shards_of(spine, "county", 2), "few numbers are one shard as before"


@settings(max_examples=60)
@given(spines(), st.sampled_from(["state", "county", "block"]))
def test_families_are_the_runs_of_one_parent(spine: Spine, level: str) -> None:
    offsets = families(spine, level).tolist()
    assert offsets[0] == 0
    assert offsets[-1] == spine.size(level)
    runs = [{parent_of(spine, level, unit) for unit in range(a, b)} for a, b in pairwise(offsets)]
    assert all(len(run) == 1 for run in runs)
    assert len(set.union(*runs)) == len(runs)


def test_a_small_level_is_one_file_and_a_large_one_a_folder() -> None:
    spine = from_geocodes([f"{i:04d}" for i in range(0, 1000, 9)], LEVELS)
    (whole,) = shards_of(spine, "block", 10)
    assert whole.path(Path("m")) == Path("m/block.parquet")
    cut = shards_of(spine, "block", NUMBERS_PER_SHARD // 30)
    assert len(cut) > 1
    assert cut[1].path(Path("m")) == Path(f"m/block.parquet/part-00001-of-{len(cut):05d}.parquet")
    assert len({shard.path(Path("m")) for shard in cut}) == len(cut)


def test_a_family_that_is_too_large_is_still_one_part() -> None:
    spine = from_geocodes([f"00{i:02d}" for i in range(50)] + ["0101"], LEVELS)
    shards = shards_of(spine, "block", NUMBERS_PER_SHARD // 10)
    assert [(shard.start, shard.stop) for shard in shards] == [(0, 50), (50, 51)]
    assert len(shards_of(spine, "block", 0)) == 1, "a level on which nothing is measured has files too"


def test_the_same_table_gives_the_same_bytes() -> None:
    table = pa.table({"a": [1, 2, 3], "b": ["x", None, "z"]})
    again = pa.table({"a": pa.chunked_array([[1], [2, 3]]), "b": ["x", None, "z"]}).combine_chunks()
    assert parquet_bytes(table) == parquet_bytes(again)
    assert parquet_bytes(table) != parquet_bytes(table.slice(1))
    assert parquet_bytes(table)[:4] == b"PAR1"


def test_a_part_is_a_value() -> None:
    assert Shard("block", 0, 1, 0, 4) == Shard("block", 0, 1, 0, 4)
    with pytest.raises(AttributeError):
        Shard("block", 0, 1, 0, 4).start = 2  # type: ignore[misc]
