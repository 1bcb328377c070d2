"""Placing records: against plain counting, and every row that does not fit named without its count."""

from __future__ import annotations

import gzip
from collections import Counter
from decimal import Decimal
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from das.checks import check
from das.errors import InputError, ProblemsFound
from das.plan.geography import spine_of
from das.plan.plan import Plan
from das.records.encode import encode
from das.records.read import chunks, read
from das.schema.counts import TrueCounts

Country = Any
UNITS = ("01001", "01002", "02001", "02003", "11001")
SEX = ("f", "m")
AGE = ("0-17", "18-64", "65+")
CELLS = [(sex, age) for sex in SEX for age in AGE]
POSSIBLE = CELLS[:-1]  # no old men
LONG = {"histograms": "counts.csv"}
each_time = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])


def place(plan: Plan) -> tuple[Counter[tuple[str, str, str]], list[str]]:
    """Counts by geocode and labels, and the problems."""
    spine = spine_of(plan)
    parts, found = [], []
    for chunk in chunks(plan):
        for batch in read(chunk, plan):
            counts, problems = encode(batch, plan, spine, chunk.name)
            parts.append(counts)
            found += [str(problem) for problem in problems]
    whole = TrueCounts.sum_of(parts, plan.schema.size)
    pairs = list(zip(whole.unit.tolist(), whole.cell.tolist(), strict=True))
    assert pairs == sorted(set(pairs)), "ascending, each pair once"
    assert (whole.count > 0).all()
    spelled = {
        (UNITS[unit], *CELLS[cell]): count for (unit, cell), count in zip(pairs, whole.count.tolist(), strict=True)
    }
    return Counter(spelled), found


def problems_of(plan: Plan) -> list[str]:
    """Everything that is said of an input, whoever says it."""
    try:
        return place(plan)[1]
    except ProblemsFound as error:
        return [str(problem) for problem in error.problems]


def csv(header: str, rows: list[tuple[Any, ...]]) -> str:
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"


# -- against plain counting --------------------------------------------------------------------------------------------

people = st.lists(st.tuples(st.sampled_from(UNITS), st.sampled_from(POSSIBLE)), max_size=40)


@each_time
@given(people=people, split=st.integers(0, 40))
def test_records_are_counted(country: Country, people: list[tuple[str, tuple[str, str]]], split: int) -> None:
    rows = [(code, *cell) for code, cell in people]
    country.file("a.csv", csv("geocode,sex,age", rows[:split]))
    country.file("b.csv.gz", gzip.compress(csv("age,geocode,sex", [(a, g, s) for g, s, a in rows[split:]]).encode()))
    assert place(country.plan(input={"microdata": ["a.csv", "*.gz"]})) == (Counter(rows), [])


@each_time
@given(
    people=people,
    group=st.integers(1, 10),
    stored=st.sampled_from(["string", "large_string", "dictionary"]),
)
def test_records_of_parquet_are_counted(
    country: Country, people: list[tuple[str, tuple[str, str]]], group: int, stored: str
) -> None:
    rows = [(code, *cell) for code, cell in people]
    kind = {"string": pa.string(), "large_string": pa.large_string()}
    columns = {}
    for i, name in enumerate(("geocode", "sex", "age")):
        column = pa.array([row[i] for row in rows], pa.string())
        columns[name] = column.dictionary_encode() if stored == "dictionary" else column.cast(kind[stored])
    pq.write_table(pa.table(columns), country.folder / "p.parquet", row_group_size=group)
    assert place(country.plan(input={"microdata": "p.parquet"})) == (Counter(rows), [])


@each_time
@given(
    counts=st.lists(st.tuples(st.sampled_from(UNITS), st.sampled_from(CELLS), st.integers(0, 10**6)), max_size=30),
    spelled=st.sampled_from(["{}", "{}.0", " {} ", "+{}", "{}."]),
)
def test_long_histograms_are_added_up(
    country: Country, counts: list[tuple[str, tuple[str, str], int]], spelled: str
) -> None:
    counts = [(code, cell, 0 if cell == ("m", "65+") else n) for code, cell, n in counts]  # zero of a zero is fine
    country.file("counts.csv", csv("geocode,sex,age,count", [(g, *c, spelled.format(n)) for g, c, n in counts]))
    expected: Counter[tuple[str, str, str]] = Counter()
    for code, cell, n in counts:
        expected[(code, *cell)] += n
    assert place(country.plan(input=LONG)) == (+expected, [])


WIDE = {
    "histograms": "counts.csv",
    "cell": [
        {"column": "girls", "labels": {"sex": "f", "age": "0-17"}},
        {"column": "women", "minus": "girls", "labels": {"sex": "f", "age": "18-64"}},
        {"column": "boys", "labels": {"sex": "m", "age": "0-17"}},
        {"column": "grandfathers", "labels": {"sex": "m", "age": "65+"}},
    ],
}


@each_time
@given(rows=st.lists(st.tuples(st.sampled_from(UNITS), *[st.integers(0, 99)] * 3), max_size=10))
def test_wide_counts_are_taken_apart(country: Country, rows: list[tuple[str, int, int, int]]) -> None:
    """``women`` counts the girls too, and they are taken off."""
    lines = [(g, girls, girls + women, boys, 0) for g, girls, women, boys in rows]
    country.file("counts.csv", csv("geocode,girls,women,boys,grandfathers", lines))
    expected: Counter[tuple[str, str, str]] = Counter()
    for code, girls, women, boys in rows:
        expected[code, "f", "0-17"] += girls
        expected[code, "f", "18-64"] += women
        expected[code, "m", "0-17"] += boys
    assert place(country.plan(input=WIDE)) == (+expected, [])


def test_several_geocode_columns_are_joined_and_codes_translated(country: Country) -> None:
    translated = {
        "microdata": "p.parquet",
        "geocode": ["S", "C", "B"],
        "columns": {"sex": "SX"},
        "values": {"sex": {"1": "m", "2": "f"}, "age": {"7": "0-17", "8": "18-64", "9": "18-64"}},
    }
    table = {
        "S": pa.array(["0", "0", "1"], pa.large_string()),
        "C": pa.array(["1", "1", "1"]).dictionary_encode(),
        "B": ["001", "002", "001"],
        "SX": pa.array([2, 1, 2], pa.int8()),
        "age": ["7", "8", "9"],
    }
    country.file("p.parquet", pa.table(table))
    assert place(country.plan(input=translated)) == (
        Counter([("01001", "f", "0-17"), ("01002", "m", "18-64"), ("11001", "f", "18-64")]),
        [],
    )
    country.file("p.parquet", pa.table(table | {"age": ["7", "0-17", "9"]}))
    counts, found = place(country.plan(input=translated))
    assert counts.total() == 2
    assert found == ["p.parquet, row 2: 'age' has an unknown value; known: '7', '8', '9'"]


@settings(max_examples=50)
@given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 5)), max_size=8), max_size=4))
def test_merging_adds_sparse_counts(parts: list[list[tuple[int, int, int]]]) -> None:
    encoded = [TrueCounts(*(np.array([row[i] for row in part], dtype=np.int64) for i in range(3))) for part in parts]
    found = TrueCounts.sum_of(encoded, cells=5)
    expected: Counter[tuple[int, int]] = Counter()
    for part in parts:
        for unit, cell, count in part:
            expected[unit, cell] += count
    pairs = list(zip(found.unit.tolist(), found.cell.tolist(), strict=True))
    assert pairs == sorted(+expected)
    assert dict(zip(pairs, found.count.tolist(), strict=True)) == +expected


def test_true_counts_do_not_show_themselves() -> None:
    assert "4711" not in repr(TrueCounts(np.array([0]), np.array([0]), np.array([4711])))


# -- rows that do not fit ----------------------------------------------------------------------------------------------

AS_TEXT = "write and read the geocode column as text, so that leading zeros survive"
BAD_ROWS: dict[str, tuple[str, str]] = {
    "unknown label": ("01001,femal,0-17", "'sex' has an unknown value; known: 'f', 'm'"),
    "label with a near one": ("01001,f,0-71", "'age' has an unknown value; known: '0-17', '18-64', '65+'"),
    "blank label": ("01001,,0-17", "'sex' is blank; known: 'f', 'm'"),
    "several fields in one": ('01001,"f,0-17,73819264",0-17', "'sex' has an unknown value; known: 'f', 'm'"),
    "a count in the place of a label": ("01001,f,73819264", "'age' has an unknown value"),
    "geocode with a NUL": ("01001\0,f,0-17", "the geocode has 6 characters, not 5"),
    "long geocode without end": ("0" * 100_000 + ",f,0-17", "the geocode has 100000 characters, not 5"),
    "label of another case": ("01001,F,0-17", "'sex' has an unknown value"),
    "lost zero": ("1001,f,0-17", f"the geocode has lost its leading zeros; {AS_TEXT}"),
    "short geocode": ("0100,f,0-17", f"the geocode has 4 characters, not 5; {AS_TEXT}"),
    "long geocode": ("010010,f,0-17", "the geocode has 6 characters, not 5"),
    "number with a point": ("1001.0,f,0-17", "the geocode has 6 characters, not 5"),
    "absent geocode": ("09001,f,0-17", "the geocode is not on the spine; add it to the geography file"),
    "padded geocode": (" 1001,f,0-17", "the geocode is not on the spine"),
    "blank geocode": (",f,0-17", "the geocode is blank; give each record its leaf"),
    "structural zero": ("01001,m,65+", "lies in a cell that structural zero 'no old men' excludes"),
}


@pytest.mark.parametrize("kind", BAD_ROWS)
def test_a_record_that_does_not_fit_is_named_with_its_row(country: Country, kind: str) -> None:
    row, expected = BAD_ROWS[kind]
    country.file("people.csv", f"geocode,sex,age\n01001,f,0-17\n{row}\n11001,m,18-64\n")
    counts, found = place(country.plan())
    assert counts == Counter([("01001", "f", "0-17"), ("11001", "m", "18-64")])
    assert len(found) == 1
    assert found[0].startswith(f"people.csv, row 3: {expected}")


def test_zeros_that_the_geography_lost_are_said_once(country: Country) -> None:
    country.file("people.csv", "geocode,sex,age\n" + "0011001,f,0-17\n" * 30)
    _, found = place(country.plan())
    (said,) = found
    reason = "the geocode has leading zeros that the geography file has lost, and 29 more geocodes of this file too"
    assert said == f"people.csv, row 2: {reason}; write the geography file again, with its codes as text"


def test_rows_of_a_later_row_group_keep_their_numbers(country: Country) -> None:
    table = pa.table({"geocode": ["01001"] * 5, "sex": ["f", "f", "f", "f", "x"], "age": ["0-17"] * 5})
    pq.write_table(table, country.folder / "p.parquet", row_group_size=2)
    _, found = place(country.plan(input={"microdata": "p.parquet"}))
    assert found == ["p.parquet, row 5: 'sex' has an unknown value; known: 'f', 'm'"]


def test_rows_after_an_empty_line_keep_their_numbers(country: Country) -> None:
    country.file("people.csv", "geocode,sex,age\n01001,f,0-17\n\n01001,x,0-17\n")
    _, found = place(country.plan())
    assert "people.csv, row 3: the geocode is blank; give each record its leaf" in found
    assert "people.csv, row 4: 'sex' has an unknown value; known: 'f', 'm'" in found


def test_many_problems_are_counted_rather_than_listed(country: Country) -> None:
    country.file("people.csv", "geocode,sex,age\n" + "01001,x,0-17\n" * 50)
    _, found = place(country.plan())
    assert len(found) == 21
    assert found[-1] == "people.csv: and 30 more of this kind"


TYPES: dict[str, tuple[str, pa.Array, str]] = {
    "numeric geocode": ("geocode", pa.array([1001]), f"column 'geocode': holds int64, not text; {AS_TEXT}"),
    "fractional geocode": ("geocode", pa.array([1001.0]), "column 'geocode': holds double, not text"),
    "numbers in a dictionary": ("geocode", pa.array([1001]).dictionary_encode(), "column 'geocode': holds int64"),
    "bytes": ("geocode", pa.array([b"01001"]), "column 'geocode': holds binary, not text"),
    "missing geocode": ("geocode", pa.array([None], pa.string()), "row 1: the geocode is blank"),
    "list of labels": ("sex", pa.array([["f"]]), "column of 'sex': holds list<"),
    "bytes as label": ("sex", pa.array([b"f"]), "column of 'sex': holds binary, not labels"),
    "missing label": ("sex", pa.array([None], pa.string()), "row 1: 'sex' is blank"),
    "number as label": ("sex", pa.array([1]), "row 1: 'sex' has an unknown value"),
}


@pytest.mark.parametrize("kind", TYPES)
def test_a_column_of_another_type_is_named(country: Country, kind: str) -> None:
    name, column, expected = TYPES[kind]
    good = {"geocode": pa.array(["01001"]), "sex": pa.array(["f"]), "age": pa.array(["0-17"])}
    country.file("p.parquet", pa.table(good | {name: column}))
    counts, found = place(country.plan(input={"microdata": "p.parquet"}))
    assert not counts
    assert len(found) == 1
    assert found[0].startswith(f"p.parquet, {expected}")


# -- counts that are none ----------------------------------------------------------------------------------------------

MISSING, NEGATIVE = "'count' is missing or not a number", "'count' is negative"
PART, HUGE = "'count' is not a whole number", "'count' is too large to be a count"
BAD_COUNTS = {
    "-5": NEGATIVE,
    "-0.5": NEGATIVE,
    "5.5": PART,
    "": MISSING,
    "   ": MISSING,
    "many": MISSING,
    "NaN": MISSING,
    "inf": MISSING,
    "1e3": MISSING,
    "0x1f": MISSING,
    "1099511627776": HUGE,
    "9007199254740993": HUGE,
    "9" * 30: HUGE,
    "9" * 400: MISSING,
}


@pytest.mark.parametrize("text", BAD_COUNTS)
def test_a_count_that_is_none_is_named_with_its_row(country: Country, text: str) -> None:
    country.file("counts.csv", f'geocode,sex,age,count\n01001,f,0-17,3\n01002,f,0-17,"{text}"\n')
    counts, found = place(country.plan(input=LONG))
    assert counts == Counter({("01001", "f", "0-17"): 3})
    assert found == [f"counts.csv, row 3: {BAD_COUNTS[text]}; counts are whole and not negative"]


NUMBERS: dict[str, tuple[pa.Array, int | str]] = {
    "int8": (pa.array([5], pa.int8()), 5),
    "uint64": (pa.array([5], pa.uint64()), 5),
    "double": (pa.array([5.0]), 5),
    "decimal": (pa.array([Decimal(5)]), 5),
    "text": (pa.array(["5"]), 5),
    "large text": (pa.array(["5"], pa.large_string()), 5),
    "dictionary of text": (pa.array(["5"]).dictionary_encode(), 5),
    "dictionary of numbers": (pa.array([5]).dictionary_encode(), 5),
    "negative": (pa.array([-5]), f"row 1: {NEGATIVE}"),
    "null": (pa.array([None], pa.int64()), f"row 1: {MISSING}"),
    "only nulls": (pa.array([None]), f"row 1: {MISSING}"),
    "not a number": (pa.array([float("nan")]), f"row 1: {MISSING}"),
    "half": (pa.array([0.5]), f"row 1: {PART}"),
    "huge": (pa.array([2**53 + 1]), f"row 1: {HUGE}"),
    "huge unsigned": (pa.array([2**64 - 1], pa.uint64()), f"row 1: {HUGE}"),
    "words in a dictionary": (pa.array(["73819264x"]).dictionary_encode(), f"row 1: {MISSING}"),
    "bytes": (pa.array([b"73819264"]), "column 'count': holds binary, not counts"),
    "list": (pa.array([[73819264]]), "column 'count': holds list<"),
    "boolean": (pa.array([True]), "column 'count': holds bool, not counts"),
    "time": (pa.array([73819264], pa.timestamp("us")), "column 'count': holds timestamp[us], not counts"),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_counts_of_every_type(country: Country, kind: str) -> None:
    column, expected = NUMBERS[kind]
    country.file("counts.parquet", pa.table({"geocode": ["01001"], "sex": ["f"], "age": ["0-17"], "count": column}))
    counts, found = place(country.plan(input={"histograms": "counts.parquet"}))
    if isinstance(expected, int):
        assert (counts, found) == (Counter({("01001", "f", "0-17"): expected}), [])
    else:
        assert not counts
        assert len(found) == 1
        assert found[0].startswith(f"counts.parquet, {expected}")
        assert "73819264" not in found[0]


def test_a_part_that_exceeds_its_whole_is_named(country: Country) -> None:
    country.file("counts.csv", "geocode,girls,women,boys,grandfathers\n01001,5,9,1,0\n01002,5,4,1,0\n02001,5,9,1,2\n")
    _, found = place(country.plan(input=WIDE))
    assert found == [
        "counts.csv, row 3: 'women - girls' is negative; a part cannot exceed its whole",
        "counts.csv, row 4: lies in a cell that structural zero 'no old men' excludes; mend the record or the zero",
    ]


secrets = st.integers(10**7, 10**11)


@each_time
@given(secret=secrets, form=st.sampled_from(["-{}", "{}.5", "{}x", "{}e2", "x{}", "{0}{0}", "{} {}", "NA{}"]))
def test_no_message_shows_a_count(country: Country, secret: int, form: str) -> None:
    """Whatever is wrong with it, and whatever else is wrong around it."""
    text = form.replace("{}", str(secret)).replace("{0}", str(secret))
    country.file(
        "counts.csv", f"geocode,sex,age,count\n01001,f,0-17,{text}\n1001,f,0-17,{secret}\n01001,m,65+,{secret}\n"
    )
    country.file(
        "wide.csv", f"geocode,girls,women,boys,grandfathers\n01001,{secret},1,{text},{secret}\n9,{secret},,,\n"
    )
    said = problems_of(country.plan(input=LONG)) + problems_of(country.plan(input=WIDE | {"histograms": "wide.csv"}))
    assert len(said) >= 6
    assert str(secret) not in "\n".join(said)


@each_time
@given(secret=secrets, broken=st.sampled_from(["ragged", "headless", "latin", "cut", "column", "label", "place"]))
def test_no_message_about_a_file_shows_a_count(country: Country, secret: int, broken: str) -> None:
    whole = f"geocode,sex,age,count\n01001,f,0-17,{secret}\n"
    content = {
        "ragged": (whole + f"01001,{secret}\n").encode(),
        "headless": f"01001,f,0-17,{secret}\n".encode(),
        "latin": whole.encode() + f"01001,\xe9,0-17,{secret}\n".encode("latin-1"),
        "cut": gzip.compress(whole.encode())[:-6],
        "column": whole.replace("count", "coun").encode(),
        "label": (whole + f'01001,f,"0-17,{secret}\n01002,f,0-17",1\n').encode(),  # a quote swallows a count
        "place": (whole + f'"01001,f,0-17,{secret}\n01002",f,0-17,1\n').encode(),
    }[broken]
    name = "counts.csv.gz" if broken == "cut" else "counts.csv"
    country.file(name, content)
    said = problems_of(country.plan(input={"histograms": name}))
    assert said
    assert str(secret) not in "\n".join(said)


def test_check_reports_every_problem_of_all_files_at_once(country: Country) -> None:
    country.file("a.csv", "geocode,sex,age\n01001,x,0-17\n1001,f,0-17\n")
    country.file("b.csv", "geocode,sex,age\n01001,m,65+\n")
    with pytest.raises(InputError) as refused:
        check(country.plan(input={"microdata": ["a.csv", "b.csv"]}))
    assert [str(p).split(":")[0] for p in refused.value.problems] == ["a.csv, row 3", "a.csv, row 2", "b.csv, row 2"]


def test_cells_are_numbered_as_this_file_thinks() -> None:
    assert list(product(SEX, AGE)) == CELLS
