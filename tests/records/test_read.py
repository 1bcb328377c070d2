"""Input files: what is read, in which pieces, and what is said of files that cannot be read, without showing them."""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from das.errors import InputError
from das.exact import digest_of_input
from das.plan.plan import Plan
from das.records import read as reading
from das.records.read import chunks, fingerprints, input_files, read

Country = Any
HEADER = "geocode,sex,age\n"
PEOPLE = HEADER + "01001,f,0-17\n01002,m,18-64\n11001,f,65+\n"
TABLE = pa.table({"geocode": ["01001", "01002", "11001"], "sex": ["f", "m", "f"], "age": ["0-17", "18-64", "65+"]})


def plan_of(country: Country, *files: str, **settings: Any) -> Plan:
    return country.plan(input={"microdata": list(files), **settings})


def rows(plan: Plan) -> list[dict[str, Any]]:
    return [row for chunk in chunks(plan) for batch in read(chunk, plan) for row in batch.table.to_pylist()]


def problems_of(plan: Plan) -> list[str]:
    with pytest.raises(InputError) as refused:
        rows(plan)
    assert refused.value.exit_code == 3
    return [str(problem) for problem in refused.value.problems]


def parquet(table: pa.Table = TABLE, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


# -- reading -----------------------------------------------------------------------------------------------------------

KINDS: dict[str, tuple[str, bytes]] = {
    "csv": ("people.csv", PEOPLE.encode()),
    "csv with a byte order mark": ("people.csv", b"\xef\xbb\xbf" + PEOPLE.encode()),
    "csv with other line ends": ("people.csv", PEOPLE.replace("\n", "\r\n").encode()),
    "csv without a last line end": ("people.csv", PEOPLE.rstrip("\n").encode()),
    "csv with quotes": ("people.csv", b'"geocode","sex","age"\n"01001","f","0-17"\n01002,m,18-64\n11001,f,65+\n'),
    "csv.gz": ("people.csv.gz", gzip.compress(PEOPLE.encode())),
    "csv.gz of two members": (
        "people.csv.gz",
        gzip.compress(PEOPLE[:40].encode()) + gzip.compress(PEOPLE[40:].encode()),
    ),
    "parquet": ("people.parquet", parquet()),
    "parquet in row groups": ("people.parquet", parquet(row_group_size=2)),
    "parquet with more columns": ("people.parquet", parquet(TABLE.append_column("income", [[1, 2, 3]]))),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_file_gives_the_same_rows(country: Country, kind: str) -> None:
    name, content = KINDS[kind]
    country.file(name, content)
    assert rows(plan_of(country, name)) == TABLE.to_pylist()


def test_row_groups_are_gathered_into_pieces_that_know_their_first_row(
    country: Country, monkeypatch: pytest.MonkeyPatch
) -> None:
    country.file("people.parquet", parquet(pa.concat_tables([TABLE] * 3), row_group_size=2))  # 2, 2, 2, 2, 1 rows
    plan = plan_of(country, "people.parquet")
    monkeypatch.setattr(reading, "CHUNK_ROWS", 4)
    found = chunks(plan)
    assert [(chunk.name, chunk.groups, chunk.first_row) for chunk in found] == [
        ("people.parquet", (0, 1), 1),
        ("people.parquet", (2, 3), 5),
        ("people.parquet", (4,), 9),
    ]
    batches = [batch for chunk in found for batch in read(chunk, plan)]
    starts = [batch.first_row for batch in batches]
    assert starts[0] == 1
    assert all(b - a == batch.table.num_rows for a, b, batch in zip(starts, starts[1:], batches, strict=False))
    assert pa.concat_tables(batch.table for batch in batches).to_pylist() == TABLE.to_pylist() * 3


def test_thousands_of_row_groups_are_read_through_one_opening(
    country: Country, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = pa.concat_tables([TABLE] * 1000)
    country.file("people.parquet", parquet(many, row_group_size=1))
    opened = []
    plain = pq.ParquetFile

    def opening(*arguments: Any, **options: Any) -> pq.ParquetFile:
        opened.append(arguments)
        return plain(*arguments, **options)

    monkeypatch.setattr(pq, "ParquetFile", opening)
    assert rows(plan_of(country, "people.parquet")) == many.to_pylist()
    assert len(opened) == 1


def test_text_stays_text(country: Country) -> None:
    country.file("people.csv", HEADER + "01001,1,NA\n01002,,null\n")
    assert rows(plan_of(country, "people.csv")) == [
        {"geocode": "01001", "sex": "1", "age": "NA"},
        {"geocode": "01002", "sex": "", "age": "null"},
    ]


def test_only_the_columns_that_the_config_names_are_read(country: Country) -> None:
    country.file("c.csv", "ST,BLK,income,sx,age,N\n01,001,12,f,65+,3\n")
    plan = country.plan(input={"histograms": "c.csv", "geocode": ["ST", "BLK"], "columns": {"sex": "sx"}, "count": "N"})
    assert rows(plan) == [{"ST": "01", "BLK": "001", "sx": "f", "age": "65+", "N": "3"}]
    labels = {"sex": "f", "age": "65+"}
    cells = [{"column": "a", "minus": "b", "labels": labels}, {"column": "b", "labels": labels}]
    country.file("w.csv", "geocode,b,x,a\n01001,1,2,3\n")
    assert rows(country.plan(input={"histograms": "w.csv", "cell": cells})) == [
        {"geocode": "01001", "a": "3", "b": "1"}
    ]


# -- finding files -----------------------------------------------------------------------------------------------------


def test_patterns_are_relative_to_the_config_and_sorted(country: Country) -> None:
    (country.folder / "data").mkdir()
    for name in ("data/b.csv", "data/a.csv", "data/c.parquet", "data/notes.txt"):
        country.file(name, PEOPLE)
    found = input_files(plan_of(country, "data/*.parquet", "data/*.csv"))
    assert [path.name for path in found] == ["a.csv", "b.csv", "c.parquet"]


def test_an_absolute_pattern_is_a_pattern_too(country: Country, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for name in ("a.csv", "b.csv"):
        (elsewhere / name).write_text(PEOPLE)
    assert [path.name for path in input_files(plan_of(country, f"{elsewhere}/*.csv"))] == ["a.csv", "b.csv"]
    assert [path.name for path in input_files(plan_of(country, f"{elsewhere}/a.csv"))] == ["a.csv"]


def test_a_file_that_is_named_twice_is_read_once(country: Country) -> None:
    country.file("people.csv", PEOPLE)
    (country.folder / "other").mkdir()
    (country.folder / "other" / "link.csv").symlink_to(country.folder / "people.csv")
    plan = plan_of(country, "people.csv", "p*.csv", "./people.csv", "other/../people.csv", "other/link.csv")
    assert len(rows(plan)) == 3


def test_a_missing_file_is_named_with_the_nearest(country: Country) -> None:
    country.file("people.csv", PEOPLE)
    assert problems_of(plan_of(country, "poeple.csv", "zzz/*.parquet")) == [
        "poeple.csv: no such file; did you mean 'people.csv'?",
        "zzz/*.parquet: no such file; paths are relative to the config file",
    ]


def test_another_kind_of_file_is_refused(country: Country) -> None:
    country.file("people.xlsx", b"PK")
    assert problems_of(plan_of(country, "people.xlsx")) == [
        "people.xlsx: is a spreadsheet; save its sheet as CSV (UTF-8, separated by commas)"
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04rest", "is a spreadsheet or another zip archive, whatever its name; save its sheet as CSV"),
        (b"PAR1rest", "is a Parquet file, whatever its name; rename it to .parquet"),
        (b"\x1f\x8brest", "is compressed by gzip, whatever its name; rename it to .csv.gz"),
        (b"geocode;sex;age\n01001;f;0-17\n", "separates its columns by semicolons, not by commas; write it again"),
        (b"geocode,sex,age\n01001,f\xe9,0-17\n", "is not UTF-8 text); save it as UTF-8; it may be Latin-1"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_named_for_what_it_is(
    content: bytes, message: str, country: Country
) -> None:
    country.file("people.csv", content)
    (problem,) = problems_of(plan_of(country, "people.csv"))
    assert message in problem


def test_the_digest_is_of_the_contents(country: Country) -> None:
    one, two = country.file("a.csv", PEOPLE), country.file("b.csv", PEOPLE + "01001,f,65+\n")
    (country.folder / "moved").mkdir()
    moved = Path(shutil.copy(one, country.folder / "moved" / "z.csv"))

    def digest(*files: Path) -> str:
        return digest_of_input(fingerprints(list(files)))

    assert digest(one, two) == digest(two, moved)
    assert digest(one) != digest(two)
    assert digest(one, one) != digest(one)
    assert fingerprints([one]) == [{"name": "a.csv", "sha256": hashlib.sha256(PEOPLE.encode()).hexdigest()}]


# -- what cannot be read -----------------------------------------------------------------------------------------------

SECRET = "73819264"
LONG = HEADER + f"01001,f,{SECRET}\n" * 3000
DAMAGED: dict[str, tuple[str, bytes, list[str]]] = {
    "empty csv": ("f.csv", b"", ["f.csv: is empty; write the file again"]),
    "empty gz": ("f.csv.gz", b"", ["f.csv.gz: is empty; write the file again"]),
    "empty parquet": ("f.parquet", b"", ["f.parquet: is empty; write the file again"]),
    "no gz": ("f.csv.gz", LONG.encode(), ["f.csv.gz: cannot be read as"]),
    "truncated gz": ("f.csv.gz", gzip.compress(LONG.encode())[:-30], ["f.csv.gz: cannot be read as"]),
    "gz without its end": ("f.csv.gz", gzip.compress(LONG.encode())[:-8], ["f.csv.gz: cannot be read as"]),
    "gz with a broken sum": (
        "f.csv.gz",
        gzip.compress(LONG.encode())[:-8] + b"\0" * 8,
        ["f.csv.gz: cannot be read as"],
    ),
    "truncated parquet": ("f.parquet", parquet()[:-30], ["f.parquet: cannot be read as Parquet"]),
    "beheaded parquet": ("f.parquet", parquet()[100:], ["f.parquet: cannot be read as Parquet"]),
    "parquet with a hole": (
        "f.parquet",
        parquet()[:8] + b"\xff" * 60 + parquet()[68:],
        ["f.parquet: cannot be read as Parquet"],
    ),
    "csv called parquet": ("f.parquet", LONG.encode(), ["f.parquet: cannot be read as Parquet"]),
    "no utf-8": ("f.csv", HEADER.encode() + b"01001,\xe9,0-17\n", ["f.csv: cannot be read as"]),
    "no utf-8, far down": ("f.csv", LONG.encode() + b"01001,\xe9,0-17\n", ["f.csv: cannot be read as"]),
    "header of no utf-8": ("f.csv", b"geocode,sex,age,\xe9\n01001,f,0-17,1\n", ["f.csv: cannot be read as"]),
    "column twice": ("f.csv", b"geocode,sex,age,sex\n01001,f,0-17,m\n", ["f.csv: column 'sex' appears twice"]),
    "column twice in parquet": (
        "f.parquet",
        parquet(pa.Table.from_arrays([pa.array(["01001"])] * 4, names=["geocode", "sex", "age", "sex"])),
        ["f.parquet: column 'sex' appears twice"],
    ),
    "short row": (
        "f.csv",
        f"{HEADER}01001,f,0-17\n01001,{SECRET}\n01001,f,0-17\n".encode(),
        ["f.csv, row 3: has another number of fields than the header"],
    ),
    "long rows": (
        "f.csv",
        f"{HEADER}01001,f,0-17,{SECRET}\n01001,f,0-17\n01001,f,{SECRET},0-17\n".encode(),
        [f"f.csv, row {row}: has another number of fields than the header" for row in (2, 4)],
    ),
    "row cut off at the end": ("f.csv", f"{LONG}01001".encode(), ["f.csv, row 3002: has another number of fields"]),
    "many ragged rows": (
        "f.csv",
        (HEADER + "x\n" * 50).encode(),
        [*(f"f.csv, row {row}: has another" for row in range(2, 22)), "f.csv: and 30 more of this kind"],
    ),
    "unknown column": (
        "f.csv",
        b"geocode,sexx,age\n01001,f,0-17\n",
        ["f.csv: has no column 'sex'; did you mean 'sexx'?"],
    ),
    "unknown column in parquet": (
        "f.parquet",
        parquet(TABLE.rename_columns(["geocode", "sex", "aeg"])),
        ["f.parquet: has no column 'age'; did you mean 'aeg'?"],
    ),
    "no header": (
        "f.csv",
        f"01001,f,{SECRET}\n".encode(),
        [f"f.csv: has no column {name!r}; its first row must name its columns" for name in ("geocode", "sex", "age")],
    ),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_what_cannot_be_read_is_named_and_not_shown(country: Country, kind: str) -> None:
    name, content, expected = DAMAGED[kind]
    country.file(name, content)
    found = problems_of(plan_of(country, name))
    assert len(found) == len(expected)
    for line, start in zip(found, expected, strict=True):
        assert line.startswith(start)
        assert SECRET not in line
        assert str(country.folder) not in line


def test_a_count_in_the_place_of_a_name_is_not_suggested(country: Country) -> None:
    """A column called 2020, and a file without a header whose first count is 2021."""
    country.file("counts.csv", "01001,f,0-17,2021\n")
    found = problems_of(country.plan(input={"histograms": "counts.csv", "count": "2020"}))
    assert len(found) == 4
    assert "2021" not in "\n".join(found)


def test_the_problems_of_all_files_come_at_once(country: Country) -> None:
    country.file("a.csv", "geocode,age\n01001,0-17\n")
    country.file("b.csv", "")
    country.file("c.parquet", b"PAR1")
    country.file("d.csv", PEOPLE)
    found = problems_of(plan_of(country, "*.csv", "*.parquet"))
    assert [line.split(":")[0] for line in found] == ["a.csv", "b.csv", "c.parquet", "units.csv", "units.csv"]


def test_an_empty_line_keeps_its_number(country: Country) -> None:
    """Arrow would skip it, and every later row would be called by a wrong number."""
    country.file("people.csv", HEADER + "01001,f,0-17\n\n01002,m,18-64\n")
    found = rows(plan_of(country, "people.csv"))
    assert found[1] == {"geocode": "", "sex": "", "age": ""}
    assert found[2]["geocode"] == "01002"


def pieces(plan: Plan) -> list[tuple[int, dict[str, Any]]]:
    """Every row with its number."""
    return [
        (batch.first_row + at, row)
        for chunk in chunks(plan)
        for batch in read(chunk, plan)
        for at, row in enumerate(batch.table.to_pylist())
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("length", [1, 20, 47, 500])
def test_a_csv_file_is_cut_at_line_ends(
    country: Country, monkeypatch: pytest.MonkeyPatch, end: str, length: int
) -> None:
    """The same rows with the same numbers, however long the spans are; each row in one of them."""
    text = HEADER + "".join(f"{i:05d},{'fm'[i % 2]},{'x' * (i % 7)}\n" for i in range(50))
    country.file("people.csv", "\ufeff" + text.replace("\n", end).removesuffix(end))
    plan = plan_of(country, "people.csv")
    expected = pieces(plan)
    assert len(chunks(plan)) == 1
    monkeypatch.setattr(reading, "SPAN_BYTES", length)
    assert pieces(plan) == expected
    assert [number for number, _ in expected] == list(range(2, 52))
    cut = chunks(plan)
    assert len(cut) > 1
    assert len({chunk.part for chunk in cut}) == len(cut)


@pytest.mark.parametrize("line", ['01001,"f\nm",0-17\n', '01001,"f",0-17\n', "01001,f,0-17\r01002,m,18-64\n"])
def test_a_csv_file_with_quotes_or_other_line_ends_is_not_cut(
    country: Country, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    country.file("people.csv", HEADER + "01001,f,0-17\n" * 5 + line + "01002,m,65+\n" * 5)
    plan = plan_of(country, "people.csv")
    expected = pieces(plan)
    monkeypatch.setattr(reading, "SPAN_BYTES", 20)
    (whole,) = chunks(plan)
    assert whole.part is None, "it may be of any length: nothing of it is kept in memory"
    assert pieces(plan) == expected


def test_an_uneven_row_of_a_span_has_its_number_in_the_file(country: Country, monkeypatch: pytest.MonkeyPatch) -> None:
    country.file("people.csv", HEADER + "01001,f,0-17\n" * 30 + "01001,f\n" + "01001,f,0-17\n" * 30)
    plan = plan_of(country, "people.csv")
    expected = problems_of(plan)
    monkeypatch.setattr(reading, "SPAN_BYTES", 50)
    assert problems_of(plan) == expected
    assert "row 32" in expected[0]
