"""What an office and an analyst get: codebook, names, views, workbook, codes that stay text."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import das
from das.api import Release
from das.cli import main
from das.demo.starter import write_starter
from das.errors import UsageError
from das.release.formats import FORMATS, Style
from das.release.manifest import verify_release
from das.release.views import view_script

CALLED = {"N1": "Hill", "N2": "Lake, east", "S1": "Moor"}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The starter with names of districts and of catchments; the branch of S90 skips the level of districts."""
    folder = tmp_path_factory.mktemp("outputs")
    config = write_starter(folder / "input")
    with (folder / "input" / "places.csv").open() as file:
        rows = list(csv.DictReader(file))
    with (folder / "input" / "places.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], "called"])
        writer.writeheader()
        writer.writerows({**row, "called": CALLED.get(row["district"], "")} for row in rows)
    (folder / "input" / "areas.csv").write_text("area,geocode,area_name\n01,N11,First\n01,S90,First\n02,N21,\n")
    text = config.read_text().replace('{ name = "district" }', '{ name = "district", names = "called" }')
    areas = 'areas = [{ name = "catchment", file = "areas.csv", names = "area_name" }]\n'
    text = text.replace("\n[[schema.attribute]]", f"{areas}\n[[schema.attribute]]", 1)
    config.write_text(text + '\n[output]\ntables = ["total", "sex * age"]\ngeoid = "quoted"\n')
    return das.run(das.load(config), out=folder / "out", testing_key="outputs")


def problems_of_package(folder: Path) -> Iterator[str]:
    """Check a package by the rules of Data Package 2.0 and by its own data, without das."""
    package = json.loads((folder / "datapackage.json").read_bytes())
    names = [resource["name"] for resource in package["resources"]]
    if len(set(names)) < len(names) or not names:
        yield "resources need names of their own"
    for resource in package["resources"]:
        path = Path(resource["path"])
        if path.is_absolute() or ".." in path.parts or not (folder / path).is_file():
            yield f"{path}: is no file inside of the package"
            continue
        if not re.fullmatch(r"[a-z0-9._-]+", resource["name"]):
            yield f"{resource['name']}: is no name of a resource"
        rows = _rows(folder / path, resource)
        fields, key = resource["schema"]["fields"], resource["schema"].get("primaryKey", [])
        if [field["name"] for field in fields] != list(rows[0]):
            yield f"{path}: fields are not the columns"
        if not set(key) <= set(rows[0]) or (key and len({tuple(row[k] for k in key) for row in rows}) < len(rows)):
            yield f"{path}: {key} is no key"
        for field in fields:
            values = [row[field["name"]] for row in rows]
            kind, rules = field["type"], field.get("constraints", {})
            pattern = {"integer": r"-?\d+", "number": r"-?\d+(\.\d+)?(e-?\d+)?", "string": r"(?s).*"}[kind]
            if any(value != "" and not re.fullmatch(pattern, value) for value in values):
                yield f"{path}: {field['name']} is not of type {kind}"
            if rules.get("required") and "" in values:
                yield f"{path}: {field['name']} has blanks"
            if "enum" in rules and not set(values) <= set(rules["enum"]):
                yield f"{path}: {field['name']} has other values than its list"
            if "minimum" in rules and any(float(value) < rules["minimum"] for value in values):
                yield f"{path}: {field['name']} is below its minimum"
            if [each["value"] for each in field.get("categories", [])] not in ([], rules.get("enum")):
                yield f"{path}: the categories of {field['name']} are not its values"
            if not field.get("description"):
                yield f"{path}: {field['name']} is not described"


def _rows(path: Path, resource: dict) -> list[dict[str, str]]:
    if resource["format"] == "parquet":
        return pq.read_table(path).to_pylist()
    lines = path.read_text(encoding=resource["encoding"]).splitlines(keepends=True)
    comment = resource["dialect"].get("commentChar")
    if comment:
        lines = [line for line in lines if not line.startswith(comment)]
    return list(csv.DictReader(lines, delimiter=resource["dialect"]["delimiter"]))


def test_the_codebook_is_a_valid_data_package_of_all_tables_and_records(release: Release) -> None:
    folder = release.folder.path
    assert list(problems_of_package(folder)) == []
    package = json.loads(release.folder.codebook.read_bytes())
    described = {Path(resource["path"]).with_suffix("").as_posix() for resource in package["resources"]}
    files = {path.relative_to(folder).with_suffix("").as_posix() for path in folder.glob("[tm]*/**/*.parquet")}
    assert described == {name for name in files if not name.startswith("measurements")}
    by_name = {resource["name"]: resource["schema"]["fields"] for resource in package["resources"]}
    described = {field["name"]: field.get("description") for fields in by_name.values() for field in fields}
    assert all("the published count may lie outside" in described[end] for end in ("low", "high"))
    titles = {field["name"]: field.get("title") for field in by_name["district-sex_by_age"]}
    assert titles["f_by_age_0_14"] == "sex: f; age: 0-14"
    assert {field["unit"] for field in by_name["district-sex_by_age"][2:]} == {"person"}
    assert verify_release(release.folder) == []


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (lambda p: p["resources"][0]["schema"]["fields"].pop(), "fields are not the columns"),
        (lambda p: p["resources"][3]["schema"].update(primaryKey=["sex"]), "is no key"),
        (lambda p: p["resources"][0].update(path="../privacy.json"), "is no file"),
        (lambda p: p["resources"][0]["schema"]["fields"][0].update(type="integer"), "is not of type"),
    ],
)
def test_a_wrong_codebook_would_be_found(release: Release, tmp_path: Path, broken, expected: str) -> None:
    for path in release.folder.path.glob("[tm]*/*.csv"):
        target = tmp_path / path.relative_to(release.folder.path)
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(path.read_bytes())
    package = json.loads(release.folder.codebook.read_bytes())
    package["resources"] = [each for each in package["resources"] if each["format"] == "csv"]
    broken(package)
    (tmp_path / "datapackage.json").write_text(json.dumps(package))
    assert any(expected in problem for problem in problems_of_package(tmp_path))


def test_places_have_their_names_and_skipped_levels_no_row(release: Release) -> None:
    table = release.table("district", "total")
    assert table["NAME"].to_dict() == CALLED
    long = release.table("district", "sex * age", intervals=True)
    assert long.groupby(level=0)["NAME"].agg(set).to_dict() == {code: {name} for code, name in CALLED.items()}
    areas = release.table("catchment", "total")
    assert areas["NAME"].fillna("-").to_dict() == {"01": "First", "02": "-"}
    assert release.table("catchment", "sex * age", intervals=True).loc["01", "NAME"].unique().tolist() == ["First"]
    assert "NAME" not in release.table("village", "total")


def test_codes_stay_text_in_every_form(release: Release, tmp_path: Path) -> None:
    text = (release.folder.tables / "catchment-total.csv").read_text()
    assert text.splitlines()[:2] == [
        '"GEOID","NAME","total"',
        f'"01","First",{release.table("catchment", "total")["total"].iloc[0]}',
    ]
    with (release.folder.tables / "catchment-total.csv").open() as file:
        assert next(csv.DictReader(file, quoting=csv.QUOTE_NONNUMERIC))["GEOID"] == "01"
    assert pd.read_csv(release.folder.tables / "catchment-total.csv", dtype={"GEOID": str})["GEOID"].tolist() == [
        "01",
        "02",
    ]
    with (tmp_path / "excel.csv").open("wb") as file:
        FORMATS["csv"].open(file, Style(geoid="excel")).write(pa.table({"GEOID": ['0"1'], "total": [3]}))
    assert (tmp_path / "excel.csv").read_text() == 'GEOID,total\n"=""0""""1""",3\n'


def test_views_read_what_the_files_hold(release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.chdir(release.folder.path)
    for script in (release.folder.views.read_text(), view_script(release.folder, release.folder.path)):
        base = duckdb.connect()
        base.execute(script)
        assert base.execute("SELECT GEOID, NAME FROM district_total ORDER BY 1").fetchall() == sorted(CALLED.items())
        total = base.execute("SELECT sum(total) FROM province_total").fetchone()
        assert total == base.execute("SELECT count(*) FROM records").fetchone()
        assert base.execute("SELECT f_by_age_0_14 FROM district_sex_by_age").fetchall()
        codes = base.execute("SELECT DISTINCT geocode FROM estimates_district ORDER BY 1").fetchall()
        assert [code for (code,) in codes] == list(CALLED), "the placeholder of S90 is left out"
        assert base.execute("SELECT count(*) FROM areas_catchment").fetchone() == (3,)


def test_open_prints_how_to_read_and_the_views(release: Release, capsys: pytest.CaptureFixture[str]) -> None:
    out = release.folder.path.parent
    main(["open", str(out)])
    shown = capsys.readouterr().out
    for words in (
        "datapackage.json",
        "pd.read_csv",
        "readr::read_delim",
        "duckdb -init duckdb.sql",
        "district-sex_by_age",
    ):
        assert words in shown
    main(["open", str(out), "--duckdb"])
    assert capsys.readouterr().out == view_script(release.folder, release.folder.path)


def test_the_workbook_has_notes_counts_and_intervals(release: Release, tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    path = tmp_path / "out.xlsx"
    main(["workbook", str(release.folder.path.parent), "--table", "catchment-sex_by_age", "--out", str(path)])
    book = openpyxl.load_workbook(path)
    assert book.sheetnames == ["Notes", "catchment-sex_by_age"]
    head, first, _ = (list(row) for row in book["catchment-sex_by_age"].iter_rows(values_only=True))
    assert head[:5] == ["GEOID", "NAME", "f, 0-14", "f, 0-14: low", "f, 0-14: high"]
    assert first[:2] == ["01", "First"]
    long = release.table("catchment", "sex * age", intervals=True)
    assert first[2:] == long.loc["01", ["count", "low", "high"]].to_numpy().reshape(-1).tolist()
    assert book["catchment-sex_by_age"].cell(2, 1).data_type == "s"
    assert "intervals" in " ".join(str(row) for row in book["Notes"].iter_rows(values_only=True))


def test_a_formula_stays_text_in_a_workbook(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    from das.release.workbook import _texts

    book = openpyxl.Workbook()
    _texts(book.worksheets[0], ["=1+1", "-2"], [3])
    book.save(tmp_path / "a.xlsx")
    cells = next(openpyxl.load_workbook(tmp_path / "a.xlsx").worksheets[0].iter_rows())
    assert [(cell.value, cell.data_type) for cell in cells] == [("=1+1", "s"), ("-2", "s"), (3, "n")]


def test_a_table_that_is_not_there_is_named(release: Release, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not in tables/"):
        release.table("district", "sex")
    with pytest.raises(UsageError, match="did you mean 'sex'"):
        release.table("district", "sexx")
    pytest.importorskip("openpyxl")
    from das.release.workbook import write_workbook

    with pytest.raises(UsageError, match="did you mean 'district-total'"):
        write_workbook(release.folder, tmp_path / "a.xlsx", ["district-totals"])
