"""Properties of the spine on random trees, full and ragged, and an oracle of plain dictionaries."""

import hashlib
import pickle
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from geography import (
    ProblemsFound,
    Spine,
    Tier,
    from_edges,
    from_geocodes,
    from_wide,
    read_text_columns,
)

LEVELS = ("state", "county", "tract", "block")


@st.composite
def wide_rows(draw):
    """Rows of a wide crosswalk: random trees in which branches skip levels or end early.

    Codes are drawn at random and unique over the tree, so that neither sorting nor prefixes give the tree away.
    """
    serial = iter(draw(st.permutations(range(400))))
    rows = []

    def grow(path):
        depth = len(path)
        choice = draw(st.sampled_from(["unit", "unit", "skip", "end"])) if depth else "unit"
        if depth == len(LEVELS) or choice == "end":
            rows.append(tuple(path + [""] * (len(LEVELS) - depth)))
        elif choice == "skip" and depth < len(LEVELS) - 1:
            for _ in range(draw(st.integers(1, 2))):
                skipped = draw(st.integers(1, len(LEVELS) - depth - 1))
                grow([*path, *[""] * skipped, f"u{next(serial)}"])
        else:
            for _ in range(draw(st.integers(1, 3))):
                grow([*path, f"u{next(serial)}"])

    grow([])
    return rows


def spine_of(rows):
    return from_wide([np.array(column) for column in zip(*rows, strict=True)], LEVELS)


def filled(row):
    """The row with placeholders, cell by cell: the next unit below, or else the last unit above."""
    return tuple(
        code or next((c for c in row[k:] if c), None) or next(c for c in reversed(row[:k]) if c)
        for k, code in enumerate(row)
    )


@settings(max_examples=50)
@given(wide_rows())
def test_every_leaf_has_the_ancestors_of_the_oracle(rows):
    spine = spine_of(rows)
    paths = {path[-1]: path for path in map(filled, rows)}
    assert sorted(spine.leaves) == sorted(paths)
    for k, level in enumerate(LEVELS):
        ancestors = np.repeat(spine.geocodes(level), np.diff(spine.leaf_ranges(level)))
        assert [paths[leaf][k] for leaf in spine.leaves] == list(ancestors)
        real = {code for row in rows if (code := row[k])}
        assert set(spine.geocodes(level)[spine.real(level)]) == real


@settings(max_examples=50)
@given(wide_rows())
def test_children_are_sorted_slices_that_partition_the_level_below(rows):
    spine = spine_of(rows)
    children = defaultdict(set)
    for path in map(filled, rows):
        for k in range(len(LEVELS) - 1):
            children[k, path[k]].add(path[k + 1])
    for k, (level, below) in enumerate(pairwise(LEVELS)):
        position = 0
        for i, code in enumerate(spine.geocodes(level)):
            part = spine.children(level, i)
            assert part.start == position < part.stop
            assert list(spine.geocodes(below)[part]) == sorted(children[k, code])
            assert (spine.parent(below)[part] == i).all()
            position = part.stop
        assert position == spine.size(below)


@settings(max_examples=50)
@given(wide_rows(), st.data())
def test_tabulation_agrees_with_dictionaries_and_keeps_sums(rows, data):
    spine = spine_of(rows)
    n = len(spine.leaves)
    numbers = data.draw(st.lists(st.integers(-100, 100), min_size=2 * n, max_size=2 * n))
    values = np.array(numbers, dtype=np.int8).reshape(n, 2)
    for k, level in enumerate(LEVELS):
        expected = defaultdict(lambda: np.zeros(2, dtype=int))
        paths = {path[-1]: path for path in map(filled, rows)}
        for leaf, value in zip(spine.leaves, values, strict=True):
            expected[paths[leaf][k]] += value
        totals = spine.tabulate(level, values)
        assert [list(row) for row in totals] == [list(expected[code]) for code in spine.geocodes(level)]
        assert totals.sum() == values.sum(dtype=int)
        thin = spine.tabulate(level, sparse.csr_array(values))
        assert sparse.issparse(thin)
        assert np.array_equal(thin.toarray(), totals)


@settings(max_examples=50)
@given(wide_rows(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(rows, random):
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert spine_of(shuffled) == spine_of(rows)
    assert spine_of(shuffled).digest() == spine_of(rows).digest()
    assert hash(spine_of(shuffled)) == hash(spine_of(rows))


@settings(max_examples=50)
@given(wide_rows())
def test_edges_say_the_same_as_rows(rows):
    units = {}
    for row in rows:
        above = ""
        for level, code in zip(LEVELS, row, strict=True):
            if code:
                units[code] = (above, level)
                above = code
    parents, levels = zip(*units.values(), strict=True)
    edges = from_edges(np.array(list(units)), np.array(parents), np.array(levels), levels=LEVELS)
    assert edges == spine_of(rows)


@settings(max_examples=25)
@given(wide_rows())
def test_save_and_load_give_the_same_spine_and_bytes(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("spine")
    spine = spine_of(rows)
    spine.save(folder / "one.parquet")
    loaded = Spine.load(folder / "one.parquet")
    loaded.save(folder / "two.parquet")
    assert loaded == spine
    assert loaded.digest() == spine.digest()
    assert (folder / "one.parquet").read_bytes() == (folder / "two.parquet").read_bytes()
    assert pickle.loads(pickle.dumps(spine)) == spine


@settings(max_examples=25)
@given(wide_rows())
def test_a_mapped_spine_answers_like_the_one_that_was_written(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("spine") / "spine.arrow"
    spine = spine_of(rows)
    with path.open("wb") as file:
        spine.write_mapped(file)
    mapped = Spine.mapped(path)
    path.unlink()  # whoever has mapped it keeps it
    assert mapped == spine
    assert mapped.digest() == spine.digest()
    assert mapped.to_table().equals(spine.to_table())
    for level in LEVELS:
        assert mapped.leaf_ranges(level).tolist() == spine.leaf_ranges(level).tolist()
        codes = [*spine.geocodes(level).tolist(), "longer than any", ""]
        assert mapped.locate(level, codes).tolist() == [*range(spine.size(level)), -1, -1]
        assert not mapped.geocodes(level).flags.writeable


def test_a_mapped_spine_is_not_copied_into_memory(tmp_path):
    """Its arrays are parts of one mapping of the file: a process reads the pages that it looks at."""
    spine = Spine.from_paths(["x", "y"], [np.array(["a"] * 5000), np.arange(10_000, 15_000).astype(np.str_)])
    path = tmp_path / "spine.arrow"
    with path.open("wb") as file:
        spine.write_mapped(file)
    before = pa.total_allocated_bytes()
    mapped = Spine.mapped(path)
    assert pa.total_allocated_bytes() - before < 5000
    (line,) = {line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(str(path))}
    start, end = (int(bound, 16) for bound in line.split("-"))
    for array in (mapped.geocodes("y"), mapped.parent("y"), mapped.real("y"), mapped.first_child("x")):
        assert start <= array.__array_interface__["data"][0] < end


@pytest.mark.slow
def test_a_level_of_millions_is_written_as_any_other(tmp_path):
    """Arrow cuts long arrays of text by itself; a file of them is still one table."""
    leaves = np.arange(10**9, 10**9 + 1_700_000).astype("<U10")
    spine = Spine.from_paths(["x", "y"], [np.full(len(leaves), "a"), leaves])
    spine.save(tmp_path / "spine.parquet")
    assert Spine.load(tmp_path / "spine.parquet") == spine


@settings(max_examples=25)
@given(wide_rows())
def test_the_digest_is_that_of_its_definition(rows):
    """Each part with its length in front; geocodes separated by line."""
    spine, sha = spine_of(rows), hashlib.sha256()
    for level in LEVELS:
        for part in (
            level.encode(),
            "\n".join(spine.geocodes(level).tolist()).encode(),
            spine.parent(level).astype("<i8").tobytes(),
            spine.real(level).astype("u1").tobytes(),
        ):
            sha.update(len(part).to_bytes(8, "little") + part)
    assert spine.digest() == sha.hexdigest()


@settings(max_examples=50)
@given(wide_rows(), st.lists(st.text("u0123456789", max_size=5)))
def test_locate_finds_what_is_there_and_nothing_else(rows, strangers):
    spine = spine_of(rows)
    for level in LEVELS:
        codes = [*spine.geocodes(level).tolist(), *strangers]
        known = {code: i for i, code in enumerate(spine.geocodes(level).tolist())}
        assert spine.locate(level, np.array(codes, dtype=object)).tolist() == [known.get(code, -1) for code in codes]


def test_digest_sees_levels_parents_and_placeholders():
    paths = [np.array(["a", "b"]), np.array(["c", "d"])]
    digests = {
        Spine.from_paths(["x", "y"], paths).digest(),
        Spine.from_paths(["x", "z"], paths).digest(),
        Spine.from_paths(["x", "y"], [np.array(["a", "b"]), np.array(["d", "c"])]).digest(),
        Spine.from_paths(["x", "y"], paths, [np.array([True, True]), np.array([True, False])]).digest(),
    }
    assert len(digests) == 4


def test_sums_do_not_wrap_around_and_booleans_count():
    spine = Spine.from_paths(["x", "y"], [np.array(["a"] * 4), np.array(list("cdef"))])
    assert spine.tabulate("x", np.full(4, 200, dtype=np.uint8)).tolist() == [800]
    assert spine.tabulate("x", np.ones(4, dtype=bool)).tolist() == [4]
    assert spine.tabulate("x", sparse.csr_array(np.full((4, 1), 200, dtype=np.uint8))).toarray().tolist() == [[800]]
    with pytest.raises(ValueError, match="leading axis of 4 leaves"):
        spine.tabulate("x", np.zeros(3))


def test_arrays_are_read_only():
    spine = Spine.from_paths(["x"], [np.array(["a", "b"])])
    with pytest.raises(ValueError, match="read-only"):
        spine.geocodes("x")[0] = "z"


def tier(name, codes, parent):
    return Tier(name=name, geocodes=np.array(codes), parent=np.array(parent), real=np.ones(len(codes), dtype=bool))


@pytest.mark.parametrize(
    ("tiers", "reason"),
    [
        ([], "at least one level"),
        ([tier("x", ["a"], [-1]), tier("x", ["a"], [0])], "different names"),
        ([tier("x", ["b", "a"], [-1, -1])], "not sorted"),
        ([tier("x", ["a", "a"], [-1, -1])], "repeated geocode"),
        ([tier("x", ["a"], [0])], "is the top"),
        ([tier("x", ["a", "b"], [-1, -1]), tier("y", ["c", "d"], [1, 0])], "not ordered parent by parent"),
        ([tier("x", ["a", "b"], [-1, -1]), tier("y", ["c", "d"], [0, 0])], "a child for every parent"),
        ([tier("x", ["a\nb"], [-1])], "more than one line"),
    ],
)
def test_what_is_not_a_spine_is_refused(tiers, reason):
    with pytest.raises(ProblemsFound, match=reason):
        Spine(tuple(tiers))


def test_questions_a_spine_cannot_answer():
    spine = Spine.from_paths(["state", "county"], [np.array(["a"]), np.array(["b"])])
    with pytest.raises(ProblemsFound, match="did you mean 'county'"):
        spine.size("county_")
    with pytest.raises(ProblemsFound, match="has no children"):
        spine.children("county", 0)
    with pytest.raises(IndexError, match="no unit 1"):
        spine.children("state", 1)
    with pytest.raises(ProblemsFound, match="not all text"):
        spine.locate("county", np.array([1]))
    assert repr(spine) == "Spine(state 1, county 1)"


def test_a_damaged_file_is_named(tmp_path):
    spine = Spine.from_paths(["x", "y"], [np.array(["a", "b"]), np.array(["c", "d"])])
    path = tmp_path / "spine.parquet"
    pq.write_table(spine.to_table().slice(1), path)
    with pytest.raises(ProblemsFound, match=r"spine\.parquet: level 'y' is not ordered"):
        Spine.load(path)
    pq.write_table(pa.table({"level": [1], "geocode": [1], "parent": [1], "real": [True]}), path)
    with pytest.raises(ProblemsFound, match=r"spine\.parquet: is not a spine"):
        Spine.load(path)


def test_rhode_island(rhode_island):
    columns = read_text_columns(rhode_island, ["GEOID"])
    widths = [("state", 2), ("county", 3), ("tract", 6), ("block_group", 1), ("block", 3)]
    spine = from_geocodes(columns["GEOID"], widths)
    assert len(spine.leaves) == 25_181
    assert spine.geocodes("state").tolist() == ["44"]
    assert spine.size("county") == len({code[:5] for code in columns["GEOID"]}) == 5
    assert spine.size("block_group") == len({code[:12] for code in columns["GEOID"]})
    assert np.repeat(spine.geocodes("county"), np.diff(spine.leaf_ranges("county"))).tolist() == [
        code[:5] for code in spine.leaves
    ]
