"""The account of a folder of releases: what it holds, what of it can be accounted together, and what was charged."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from das import cli
from das.plan.geography import spine_of
from das.plan.load import load, to_toml
from das.storage.layout import Layout
from das.storage.ledger import Ledger
from das.storage.shards import parquet_bytes
from das.storage.single_release import NOT_RECORDED

TOTAL = {"query": "total", "level": "state", "reason": "seats"}
TREE = {
    "geolevels": {"state": "1/6", "county": "1/3", "block": "1/2"},
    "queries": {"all": {"total": "1"}, "block": {"sex": "1/2", "detailed": "1/2"}},
}


class Finished:
    """Folders as finished runs leave them: config, spine and manifest, and where their ledger is."""

    def __init__(self, country: Any, root: Path) -> None:
        self.country, self.root = country, root
        self.ledger = Ledger.open(country.folder / "ledger.sqlite")

    def charge(
        self, name: str, amount: Fraction, *, framework: str = "zcdp", input_digest: str = "i", note: str = ""
    ) -> None:
        self.ledger.reserve(
            dataset="data",
            framework=framework,
            total=Fraction(5),
            run_id=name,
            amount=amount,
            plan_digest="p",
            input_digest=input_digest,
            note=note or f"release {name}",
        )
        self.ledger.commit(name)

    def release(self, name: str, *, finished: bool = True, **sections: Any) -> None:
        plan = load(self.country.write(self.country.config(release={"name": name}, **sections), f"{name}.toml"))
        layout = Layout(self.root / name)
        layout.release.facts.mkdir(parents=True)
        layout.confidential.path.mkdir()
        layout.run.write_text("{}")
        origin = {"ledger": str(self.ledger.path), "dataset": plan.settings.input.dataset, "framework": plan.currency}
        layout.confidential.origin.write_text(json.dumps(origin))
        if finished:
            layout.release.config.write_text(to_toml(plan.settings))
            (layout.release.facts / "spine.parquet").write_bytes(parquet_bytes(spine_of(plan).to_table()))
            manifest = {"release": name, "ledger_entry": {"run_id": name}, "seeded": False}
            layout.release.manifest.write_text(json.dumps(manifest))
        self.charge(name, plan.budget)


@pytest.fixture
def finished(country: Any, tmp_path: Path) -> Finished:
    (tmp_path / "releases").mkdir()
    return Finished(country, tmp_path / "releases")


def das(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code: int | str | None = 0
    try:
        cli.main([str(argument) for argument in arguments])
    except SystemExit as ended:
        code = ended.code
    said = capsys.readouterr()
    return int(code or 0), said.out, said.err


def test_a_folder_is_accounted_together_beside_its_ledger(finished: Finished, capsys, tmp_path: Path) -> None:
    finished.release("measured", invariant=[TOTAL])
    finished.release("drawn", strategy=TREE, estimate={"method": "congenial"})
    shutil.copytree(finished.root / "drawn", finished.root / "copy of drawn")
    code, out, _ = das(capsys, "account", finished.root, "--json")
    found = json.loads(out)
    assert code == 0
    assert [row["release"] for row in found["releases"]] == ["drawn", "measured"]  # a copy is the same release
    assert {row["status"] for row in found["releases"]} == {"accounted together"}
    (book,) = found["ledgers"]
    assert (book["charged"], book["charged_here"], book["charged_elsewhere"], book["total"]) == ("1", "1", "0", "5")
    code, together, _ = das(capsys, "account", finished.root / "drawn", finished.root / "measured", "--json")
    assert json.loads(together)["effective"] == found["effective"]

    # a charge of a release that is not here, and one that is not finished
    finished.charge("elsewhere", Fraction(1, 4))
    finished.release("begun", finished=False)
    page = tmp_path / "page.html"
    code, out, _ = das(capsys, "account", finished.root, "--html", page)
    assert code == 0
    assert "drawn + measured" in out
    assert "rho = 7/4 of 5 was charged in all, by 4 runs." in out
    assert "Of this, 3/4 is NOT accounted here (2 runs, or lost entries)" in out
    assert "begun: not supported: it is not finished" in out
    for words in ("7/4 of 5 was charged in all", "3/4 is NOT accounted here", "it is not finished"):
        assert words in page.read_text()
    code, out, _ = das(capsys, "ledger", finished.root / "drawn")
    assert "effective numbers of all releases together: das account FOLDER" in out


def test_a_table_and_synthetic_records_are_in_the_sum_and_not_in_the_account(finished: Finished, capsys) -> None:
    finished.release("measured", invariant=[TOTAL])
    for run, note in (("t", "table sex by age by gaussian"), ("s", "synthetic records people by pairs")):
        finished.charge(run, Fraction(1, 8), input_digest=NOT_RECORDED, note=note)
    code, out, _ = das(capsys, "account", finished.root)
    assert code == 0
    assert "Of this, 1/4 is NOT accounted here (2 runs" in out
    words = " ".join(out.split())
    assert (
        "1/8 by table sex by age by gaussian; 1/8 by synthetic records people by pairs. Why: releases of one" in words
    )
    code, out, _ = das(capsys, "account", finished.root, "--json")
    (book,) = json.loads(out)["ledgers"]
    assert [row["charged"] for row in book["apart"]] == ["1/8", "1/8"]
    code, out, _ = das(capsys, "ledger", finished.root / "measured")
    assert "no theorem joins them" in out


def test_a_table_beside_runs_is_left_to_the_ledger(finished: Finished, capsys, tmp_path: Path, table_of_a_town) -> None:
    finished.release("measured", invariant=[TOTAL])
    config = table_of_a_town(tmp_path, total=3)
    assert das(capsys, "table", config, "--out", finished.root / "town", "--testing-key", "a")[0] == 0
    code, out, err = das(capsys, "account", finished.root, "--json")
    assert (code, err) == (0, "")
    assert [row["release"] for row in json.loads(out)["releases"]] == ["measured"]
    code, _, err = das(capsys, "account", finished.root / "town")
    assert code == 2
    assert "is a release of one table or of synthetic records, whose account is its own privacy.json" in err


def test_what_cannot_be_accounted_together_is_listed_with_the_reason(finished: Finished, capsys) -> None:
    finished.release("one")
    finished.release("two", invariant=[TOTAL])
    finished.country.file("elsewhere.csv", "geocode\n01001\n01002\n02001\n02004\n11001\n")
    moved = finished.country.config()["geography"] | {"units": "elsewhere.csv"}
    finished.release("moved", geography=moved)
    code, out, _ = das(capsys, "account", finished.root, "--json")
    assert code == 0
    found = json.loads(out)
    status = {row["release"]: row["status"] for row in found["releases"]}
    assert status["moved"] == "not supported: it and one have different geographies"
    assert status["one"] == status["two"] == "accounted together"
    assert found["nominal"]["rho"] == 1.0
    (book,) = found["ledgers"]
    assert (book["charged_elsewhere"], book["runs_elsewhere"]) == ("1/2", 1)


def test_releases_of_other_people_are_refused(finished: Finished, capsys) -> None:
    finished.release("one")
    finished.release("others", input={"microdata": "people.csv", "data": "generated", "dataset": "others"})
    code, _, err = das(capsys, "account", finished.root)
    assert code == 2
    assert "holds releases of different data sets (data, others)" in err


def test_a_ledger_that_cannot_be_read_is_said_and_not_zero(finished: Finished, capsys) -> None:
    finished.release("one")
    finished.release("two")
    shutil.rmtree(finished.root / "two" / "confidential")
    finished.ledger.path.rename(finished.ledger.path.with_suffix(".gone"))
    code, out, _ = das(capsys, "account", finished.root)
    assert code == 0
    assert out.count("What else was charged is not known here.") == 2


def test_a_folder_without_releases_is_no_source(tmp_path: Path, capsys) -> None:
    code, _, err = das(capsys, "account", tmp_path)
    assert code == 2
    assert "holds no finished release" in err
