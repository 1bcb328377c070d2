"""The files of a release: they come back as they were, have the published layouts, and do not hide tampering."""

from __future__ import annotations

import csv
import hashlib
import hmac
import io
import json
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import das
from das.facts.collect import facts_of
from das.facts.fact import Fact
from das.facts.file import read_facts, table_of_facts
from das.plan.geography import spine_of
from das.plan.plan import Plan, numbers_per_unit
from das.release.conformance import broken_in, problems_of
from das.release.manifest import files_of, verify_release
from das.release.measurements import read_measurements, table_of_measurements
from das.release.microdata import comment_of, table_of_records
from das.release.published_shards import PublishedShards
from das.release.tables import csv_bytes, table_of_answers
from das.schema.counts import ProtectedCounts
from das.schema.limits import NO_LIMIT
from das.schema.query import parse_query
from das.storage.counts import read_counts, table_of_counts
from das.storage.files import commitment, json_bytes
from das.storage.layout import ReleaseFolder
from das.storage.shards import parquet_bytes
from geography import Spine

ROOT = Path(__file__).resolve().parents[2]
Country = Any
each_time = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
numbers = st.integers(-(2**62), 2**62)

# -- noisy measurements ------------------------------------------------------------------------------------------------


@each_time
@given(data=st.data(), units=st.integers(1, 3))
def test_measurements_come_back(country: Country, data: st.DataObject, units: int) -> None:
    plan = country.plan()
    per_unit = numbers_per_unit(plan.at("block"))
    assert per_unit == 1 + 4 + 6
    drawn = data.draw(st.lists(numbers, min_size=units * per_unit, max_size=units * per_unit))
    values = np.array(drawn, dtype=np.int64).reshape(units, per_unit)
    codes = np.array(["01001", "01002", "02001"])[:units]
    path = country.file("block.parquet", table_of_measurements(plan, "block", codes, values))
    assert read_measurements(plan, "block", path).tolist() == values.tolist()


def test_measurements_have_the_layout_of_the_public_files(country: Country) -> None:
    """Columns as in the Bureau's DPQuery files: recode per axis or ``*``, shape without summed axes, integers."""
    plan = country.plan()
    values = np.arange(22).reshape(2, 11)
    table = table_of_measurements(plan, "county", np.array(["01", "02"]), values)
    assert table.column_names == ["geocode", "query", "sex", "age", "query_shape", "value", "variance", "sigma2"]
    assert table.schema.field("value").type == pa.list_(pa.int64())
    assert table.schema.field("variance").type == pa.float64()
    rows = table.to_pylist()
    assert [(r["geocode"], r["query"], r["sex"], r["age"], r["query_shape"], r["value"]) for r in rows[3:]] == [
        ("02", "total", "*", "*", [1], [11]),
        ("02", "sex * grown", "sex", "grown", [2, 2], [12, 13, 14, 15]),
        ("02", "detailed", "sex", "age", [2, 3], [16, 17, 18, 19, 20, 21]),
    ]
    for row, m in zip(rows, plan.at("county") * 2, strict=True):
        assert Fraction(row["sigma2"]) == 1 / m.cost  # replace: sigma2 = 2 / (2 rho)
        assert row["variance"] == m.mechanism.variance()


def test_a_pure_plan_states_its_scale(country: Country) -> None:
    plan = country.plan(privacy={"framework": "pure", "epsilon": "6"})
    table = table_of_measurements(plan, "block", np.array(["01001"]), np.zeros((1, 11), np.int64))
    assert table.column_names[-1] == "scale"
    assert table["scale"].to_pylist() == [str(2 / m.cost) for m in plan.at("block")]


# -- facts -------------------------------------------------------------------------------------------------------------


@each_time
@given(data=st.data(), units=st.integers(1, 3))
def test_facts_come_back(country: Country, data: st.DataObject, units: int) -> None:
    plan = country.plan()
    facts = []
    for name in data.draw(st.lists(st.sampled_from(["total", "sex", "sex * grown"]), unique=True)):
        query = parse_query(plan.schema, name)
        for sign in data.draw(st.lists(st.sampled_from(["=", ">=", "<="]), unique=True, min_size=1)):
            known = st.one_of(st.integers(0, 10**9), st.just(int(NO_LIMIT)))
            drawn = data.draw(st.lists(known, min_size=units * query.size, max_size=units * query.size))
            facts.append(Fact(query, sign, np.array(drawn).reshape(units, query.size)))
    codes = np.array(["01001", "01002", "02001"])[:units]
    table = table_of_facts(plan, codes, tuple(facts))
    back = read_facts(plan, country.file("block.parquet", table))
    assert [(f.query, f.sign, f.values.tolist()) for f in back] == [(f.query, f.sign, f.values.tolist()) for f in facts]
    assert table.column_names == ["geocode", "query", "sex", "age", "sign", "value"]


def test_what_no_fact_limits_is_null_in_the_file(country: Country) -> None:
    plan = country.plan()
    query = parse_query(plan.schema, "sex")
    table = table_of_facts(plan, np.array(["01001"]), (Fact(query, "<=", np.array([[int(NO_LIMIT), 4]])),))
    assert table.to_pylist() == [
        {"geocode": "01001", "query": "sex", "sex": "sex", "age": "*", "sign": "<=", "value": [None, 4]}
    ]


# -- counts, tables, records -------------------------------------------------------------------------------------------

sparse_counts = st.dictionaries(st.tuples(st.integers(0, 4), st.integers(0, 5)), st.integers(1, 6), max_size=12)


def encoded(counts: dict[tuple[int, int], int]) -> ProtectedCounts:
    pairs = sorted(counts)
    columns = ([u for u, _ in pairs], [c for _, c in pairs], [counts[pair] for pair in pairs])
    return ProtectedCounts(*(np.array(column, dtype=np.int64) for column in columns))


@each_time
@given(counts=sparse_counts)
def test_counts_come_back(country: Country, counts: dict[tuple[int, int], int]) -> None:
    plan = country.plan()
    spine = spine_of(plan)
    table = table_of_counts(plan.schema, spine.leaves, encoded(counts))
    assert table.column_names == ["geocode", "sex", "age", "cell", "count"]
    back = read_counts(spine, "block", country.file("block.parquet", table))
    found = zip(back.unit.tolist(), back.cell.tolist(), back.count.tolist(), strict=True)
    assert {(unit, cell): n for unit, cell, n in found} == counts
    cells = [(sex, age) for sex in ("f", "m") for age in ("0-17", "18-64", "65+")]
    for row in table.to_pylist():
        assert (row["sex"], row["age"]) == cells[row["cell"]]
        assert counts[spine.leaves.tolist().index(row["geocode"]), row["cell"]] == row["count"]


def test_counts_in_parts_come_back_in_order(country: Country) -> None:
    plan = country.plan()
    spine = spine_of(plan)
    folder = country.folder / "block.parquet"
    folder.mkdir()
    for index, (start, stop, counts) in enumerate([(0, 2, {(0, 1): 3}), (2, 5, {(0, 0): 1, (2, 5): 2})]):
        shard = table_of_counts(plan.schema, spine.leaves[start:stop], encoded(counts))
        (folder / f"part-{index:05d}-of-00002.parquet").write_bytes(parquet_bytes(shard))
    back = read_counts(spine, "block", folder)
    assert (back.unit.tolist(), back.cell.tolist(), back.count.tolist()) == ([0, 2, 4], [1, 0, 5], [3, 1, 2])


@each_time
@given(counts=sparse_counts, name=st.sampled_from(["total", "sex", "grown", "sex * age"]))
def test_tables_are_the_answers_of_the_dense_counts(
    country: Country, counts: dict[tuple[int, int], int], name: str
) -> None:
    plan = country.plan()
    query = parse_query(plan.schema, name)
    dense = np.zeros((5, 6), dtype=np.int64)
    for (unit, cell), n in counts.items():
        dense[unit, cell] = n
    answers = encoded(counts).answers(query, 5)
    assert answers.tolist() == query.answer(dense).tolist()
    table = table_of_answers(query, spine_of(plan).leaves, answers)
    assert table.column_names[0] == "GEOID"
    assert table["GEOID"].to_pylist() == ["01001", "01002", "02001", "02003", "11001"]
    assert [list(row.values())[1:] for row in table.to_pylist()] == answers.tolist()
    assert sum(map(sum, answers.tolist())) == sum(counts.values())


def test_table_columns_are_named_by_what_they_count(country: Country) -> None:
    query = parse_query(country.plan().schema, "sex * grown")
    table = table_of_answers(query, np.array(["01"]), np.array([[1, 2, 3, 4]]))
    assert table.column_names == ["GEOID", "f_by_minor", "f_by_adult", "m_by_minor", "m_by_adult"]


names = st.text(alphabet="ab,|\"'\n é#", max_size=6)
texts = st.text(alphabet="ab,|\"'\n\r é#", max_size=6)


@settings(max_examples=60)
@given(st.lists(st.tuples(texts, st.integers(-9, 9)), max_size=5), st.sampled_from([",", "|"]), names)
def test_csv_is_read_back_by_any_reader(rows: list[tuple[str, int]], delimiter: str, column: str) -> None:
    table = pa.table(
        {column: pa.array([t for t, _ in rows], pa.string()), "n": pa.array([n for _, n in rows], pa.int64())}
    )
    text = csv_bytes(table, delimiter=delimiter, comment="what this is").decode()
    assert text.startswith("# what this is\n")
    lines = list(csv.reader(io.StringIO(text.removeprefix("# what this is\n"), newline=""), delimiter=delimiter))
    assert lines[0] == [column, "n"]
    assert [tuple(line) for line in lines[1:]] == [(t, str(n)) for t, n in rows]


def test_csv_quotes_nothing_where_nothing_needs_it() -> None:
    table = pa.table({"GEOID": ["01001", "02"], "n": [1, 2]})
    assert csv_bytes(table) == b"GEOID,n\n01001,1\n02,2\n"
    assert csv_bytes(table, delimiter="|") == b"GEOID|n\n01001|1\n02|2\n"


# -- microdata ---------------------------------------------------------------------------------------------------------


@each_time
@given(counts=sparse_counts)
def test_records_are_as_many_as_are_counted(country: Country, counts: dict[tuple[int, int], int]) -> None:
    plan = country.plan()
    table = table_of_records(plan, spine_of(plan).leaves, encoded(counts))
    assert table.column_names == ["GEOID", "sex", "age"]
    cells = [(sex, age) for sex in ("f", "m") for age in ("0-17", "18-64", "65+")]
    leaves = ["01001", "01002", "02001", "02003", "11001"]
    expected = [(leaves[u], *cells[c]) for (u, c) in sorted(counts) for _ in range(counts[u, c])]
    assert [tuple(row.values()) for row in table.to_pylist()] == expected


def test_redistricting_records_have_the_published_columns_and_codes() -> None:
    """Census 2020 output formats: PL94 persons. GQTYPE_PL 0-7, VOTING_AGE 1/2, CENHISP 1/2, CENRACE 01-63."""
    plan = das.load(ROOT / "config" / "demo.toml")
    schema = plan.schema

    def cell(hhgq: int, votingage: int, hispanic: int, cenrace: int) -> int:
        return ((hhgq * 2 + votingage) * 2 + hispanic) * 63 + cenrace

    assert schema.size == cell(7, 1, 1, 62) + 1
    codes = np.array(["440070123451003", "440070123452017"])
    counts = {(0, cell(0, 0, 0, 0)): 2, (0, cell(5, 1, 1, 62)): 1, (1, cell(3, 1, 0, 9)): 1}
    table = table_of_records(plan, codes, encoded(counts))
    geography = ["TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK"]
    attributes = ["EPNUM", "RTYPE", "GQTYPE_PL", "VOTING_AGE", "CENHISP", "CENRACE"]
    assert table.column_names == ["SCHEMA_TYPE_CODE", "SCHEMA_BUILD_ID", *geography, *attributes]
    rows = [list(row.values())[2:] for row in table.to_pylist()]
    assert rows == [
        ["44", "007", "012345", "1", "1003", 1, "3", "0", "1", "1", "01"],
        ["44", "007", "012345", "1", "1003", 2, "3", "0", "1", "1", "01"],
        ["44", "007", "012345", "1", "1003", 3, "5", "5", "2", "2", "63"],
        ["44", "007", "012345", "2", "2017", 1, "5", "3", "2", "1", "10"],
    ]
    text = csv_bytes(table, delimiter="|", comment=comment_of(plan, seeded=False)).decode().splitlines()
    assert text[0].startswith("# ")
    assert plan.name in text[0]
    assert comment_of(plan, seeded=True).startswith("TEST RUN")
    assert text[1].split("|") == table.column_names
    assert text[2].endswith("|44|007|012345|1|1003|1|3|0|1|1|01")


# -- the manifest ------------------------------------------------------------------------------------------------------


def test_a_commitment_needs_the_salt_and_is_no_plain_hash() -> None:
    """Whoever guesses the records must not be able to check the guess."""
    plain = hashlib.sha256(b"abc").hexdigest()
    one, two = commitment(plain, b"1" * 32), commitment(plain, b"2" * 32)
    assert one == commitment(plain, b"1" * 32)
    assert len({one, two, plain, hashlib.sha256(plain.encode()).hexdigest()}) == 4
    assert one != hashlib.sha256(bytes.fromhex(plain)).hexdigest()
    assert one == hmac.new(b"1" * 32, bytes.fromhex(plain), hashlib.sha256).hexdigest()
    assert commitment(hashlib.sha256(b"abd").hexdigest(), b"1" * 32) != one


@pytest.fixture
def listed(tmp_path: Path) -> ReleaseFolder:
    release = ReleaseFolder(tmp_path / "release")
    release.tables.mkdir(parents=True)
    (release.tables / "a.csv").write_bytes(b"abc")
    release.config.write_bytes(b"x = 1\n")
    (release.path / ".partial").mkdir()
    (release.path / ".partial" / "b").write_bytes(b"unfinished")
    release.manifest.write_bytes(json_bytes({"outputs": files_of(release)}))
    return release


def test_the_manifest_lists_every_file_but_itself(listed: ReleaseFolder) -> None:
    outputs = json.loads(listed.manifest.read_bytes())["outputs"]
    assert list(outputs) == ["config.toml", "tables/a.csv"]
    # FIPS 180-2, appendix B.1
    assert outputs["tables/a.csv"]["sha256"] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert outputs["tables/a.csv"]["bytes"] == 3
    assert verify_release(listed) == []


def tampered(release: ReleaseFolder, change: Callable[[ReleaseFolder], object]) -> list[tuple[str, str]]:
    change(release)
    return [(Path(problem.where).name, problem.reason.split(":")[0]) for problem in verify_release(release)]


def test_every_change_of_a_file_shows(listed: ReleaseFolder) -> None:
    copy = ReleaseFolder(Path(shutil.copytree(listed.path, listed.path.parent / "copy")))
    assert tampered(copy, lambda r: (r.tables / "a.csv").write_bytes(b"abd")) == [
        ("a.csv", "has changed since the release")
    ]
    assert tampered(copy, lambda r: (r.tables / "a.csv").unlink()) == [("a.csv", "is missing")]
    assert tampered(copy, lambda r: (r.path / "new").write_bytes(b"")) == [
        ("new", "is not in the manifest"),
        ("a.csv", "is missing"),
    ]
    assert tampered(copy, lambda r: r.manifest.unlink()) == [("manifest.json", "is missing")]


# -- conformance -------------------------------------------------------------------------------------------------------

TRUE = {(0, 0): 3, (0, 4): 1, (1, 2): 2, (3, 1): 4, (4, 0): 5}  # (block, cell): count; block 02001 is empty
PARENTS = {"block": [0, 1, 2, 3, 4], "county": [0, 0, 1, 1, 2], "state": [0, 0, 0, 0, 1]}


def counts_at(level: str) -> ProtectedCounts:
    counts: dict[tuple[int, int], int] = {}
    for (block, cell), n in TRUE.items():
        key = (PARENTS[level][block], cell)
        counts[key] = counts.get(key, 0) + n
    return encoded(counts)


class Published:
    """A release that conforms, laid down by hand, and ways to spoil it."""

    def __init__(self, country: Country) -> None:
        country.file("beds.csv", "geocode,f\n01001,2\n")
        country.file("most.csv", "geocode,total\n01,9\n02,9\n11,9\n")
        self.plan: Plan = country.plan(
            invariant=[{"query": "total", "level": "state", "reason": "seats"}],
            bound=[
                {"query": "sex", "level": "block", "sense": ">=", "source": "beds.csv"},
                {"query": "total", "level": "county", "sense": "<=", "source": "most.csv"},
            ],
        )
        self.spine: Spine = spine_of(self.plan)
        self.release = ReleaseFolder(country.folder / "release")
        for folder in (self.release.facts, self.release.counts):
            folder.mkdir(parents=True)
        self.spine.save(self.release.facts / "spine.parquet")

        def truth(level: str, query: Any) -> Any:
            return counts_at(level).answers(query, self.spine.size(level))

        for level, facts in facts_of(self.plan, self.spine, truth).items():
            table = table_of_facts(self.plan, self.spine.geocodes(level), facts)
            pq.write_table(table, self.release.facts / f"{level}.parquet")
            table = table_of_counts(self.plan.schema, self.spine.geocodes(level), counts_at(level))
            pq.write_table(table, self.release.counts / f"{level}.parquet")

    def problems(self) -> list[str]:
        shards = PublishedShards(self.plan, self.release, self.spine)
        found = [broken_in(shards, shard) for level in self.plan.levels for shard in shards.of(level)]
        return [str(problem) for problem in problems_of(found)]

    def add(self, *changes: tuple[str, int, int, int]) -> None:
        """Add to (level, unit, cell) some people, or take them away."""
        for level in dict.fromkeys(level for level, *_ in changes):
            mine = [ProtectedCounts(*(np.array([v]) for v in change)) for at, *change in changes if at == level]
            counts = counts_at(level)
            whole = np.zeros((self.spine.size(level), 6), dtype=np.int64)
            for shard in (counts, *mine):
                np.add.at(whole, (shard.unit, shard.cell), shard.count)
            unit, cell = np.nonzero(whole)
            table = table_of_counts(
                self.plan.schema, self.spine.geocodes(level), ProtectedCounts(unit, cell, whole[unit, cell])
            )
            pq.write_table(table, self.release.counts / f"{level}.parquet")

    def replace(self, level: str, column: str, row: int, value: Any) -> None:
        path = self.release.counts / f"{level}.parquet"
        table = pq.read_table(path)
        values = table[column].to_pylist()
        values[row] = value
        at = table.column_names.index(column)
        pq.write_table(table.set_column(at, column, pa.array(values)), path)


@pytest.fixture
def published(country: Country) -> Published:
    return Published(country)


def test_a_release_that_conforms_has_no_problems(published: Published) -> None:
    assert published.problems() == []


def everywhere(unit: dict[str, int], cell: int, n: int) -> list[tuple[str, int, int, int]]:
    return [(level, at, cell, n) for level, at in unit.items()]


FIRST = {"block": 0, "county": 0, "state": 0}
EMPTY = {"block": 2, "county": 1, "state": 0}
LAST = {"block": 4, "county": 2, "state": 1}
TAMPERING: dict[str, tuple[list[tuple[str, int, int, int]], list[str]]] = {
    "one person more in a block": (
        [("block", 0, 0, 1)],
        ["counts at block: do not sum to those at county"],
    ),
    "one person more in a county": (
        [("county", 0, 0, 1)],
        ["counts at county: do not sum to those at state", "counts at block: do not sum to those at county"],
    ),
    "a move between blocks of two counties": (
        [("block", 0, 0, -1), ("block", 3, 0, 1)],
        ["counts at block: do not sum to those at county"],
    ),
    "a move between cells": (
        [("block", 4, 0, -1), ("block", 4, 1, 1)],
        ["counts at block: do not sum to those at county"],
    ),
    "a person more at every level": (
        everywhere(EMPTY, 0, 1),
        ["counts at state: break an invariant or a bound on 'total'"],
    ),
    "a bound broken, sums kept": (
        [*everywhere(FIRST, 0, -2), *everywhere(FIRST, 4, 2)],
        ["counts at block: break an invariant or a bound on 'sex'"],
    ),
    "more than the most": (
        [*everywhere(LAST, 0, 5), *everywhere(FIRST, 0, -3)],
        [
            "counts at state: break an invariant or a bound on 'total'",
            "counts at county: break an invariant or a bound on 'total'",
            "counts at block: break an invariant or a bound on 'sex'",
        ],
    ),
    "a person in a structural zero": (
        [*everywhere(FIRST, 4, -1), *everywhere(FIRST, 5, 1)],
        [f"counts at {level}: stand in structural zeros" for level in ("state", "county", "block")],
    ),
    "a negative count": (
        [*everywhere(EMPTY, 1, -1), *everywhere(EMPTY, 0, 1)],
        ["counts at block: are not all nonnegative"],
    ),
}


@pytest.mark.parametrize("kind", TAMPERING)
def test_every_kind_of_tampering_with_counts_is_found(published: Published, kind: str) -> None:
    changes, expected = TAMPERING[kind]
    published.add(*changes)
    assert sorted(published.problems()) == sorted(expected)


def test_counts_of_nowhere_are_found(published: Published) -> None:
    published.replace("block", "geocode", -1, "99999")  # the last: a careless reader would take it for the last block
    assert published.problems() == ["counts at block: name a geounit or a cell that does not exist"]


@pytest.mark.parametrize("cell", [-1, 6])
def test_cells_of_nowhere_are_found(published: Published, cell: int) -> None:
    published.replace("county", "cell", 0, cell)
    assert published.problems() == ["counts at county: name a geounit or a cell that does not exist"]


@pytest.mark.parametrize("level", ["state", "county", "block"])
def test_facts_that_are_gone_are_missed(published: Published, level: str) -> None:
    (published.release.facts / f"{level}.parquet").unlink()
    assert published.problems() == [f"facts at {level}: are missing, so that nobody can check them"]


def test_counts_split_over_two_rows_still_add_up(published: Published) -> None:
    path = published.release.counts / "block.parquet"
    table = pq.read_table(path)
    halves = table.set_column(4, "count", pa.array([n - 1 for n in table["count"].to_pylist()]))
    ones = table.set_column(4, "count", pa.array([1] * table.num_rows))
    pq.write_table(pa.concat_tables([halves, ones]), path)
    assert published.problems() == []
    assert (
        ProtectedCounts.sum_of([read_counts(published.spine, "block", path)], 6).count.tolist()
        == counts_at("block").count.tolist()
    )
