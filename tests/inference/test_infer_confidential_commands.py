"""`das infer udp`, `sample-aggregate` and `density` on files: results, charges, and refusals with their exit codes."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from das.commands.infer_confidential import METHODS
from das.demo.starter import write_starter
from das.errors import ProblemsFound
from das.plan.load import load
from das.storage.ledger import Ledger
from das.storage.ledger_access import ledger_path

INFER = click.Group("infer", commands={str(command.name): command for command in METHODS})
PARTS = ("--bounds", "0", "10", "--parts", "50", "--workers", "1")
CHARGED = ("--ledger", "ledger.sqlite", "--dataset", "people", "--total", "1")
TEST = ("--testing-key", "k", "--data", "generated")


@pytest.fixture(autouse=True)
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    x = rng.normal(5, 2, 1000).round(3)
    y = (1 + 0.5 * x + rng.normal(0, 1, 1000)).round(3)
    Path("people.csv").write_text("x,y\n" + "".join(f"{a},{b}\n" for a, b in zip(x, y, strict=True)))
    pq.write_table(pa.table({"x": x, "y": y, "poor": x < 4}), "people.parquet")
    return tmp_path


def infer(*arguments: str) -> None:
    INFER.main(args=list(arguments), standalone_mode=False)


def document(capsys: pytest.CaptureFixture[str]) -> dict:
    return json.loads(capsys.readouterr().out)


def test_udp_charges_the_ledger_and_prints_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    infer("udp", "people.csv", "--column", "x", "--statistic", "mean", *PARTS, "--rho", "1/4", *CHARGED, "--json")
    found = document(capsys)
    assert found["estimate"] == pytest.approx(5, abs=1)
    assert found["privacy"]["rho"] == "1/4"
    assert Ledger(Path("ledger.sqlite").resolve()).spent("people") == Fraction(1, 4)
    assert list(Path().glob(".das-witness-*"))


@pytest.mark.parametrize("file", ["people.csv", "people.parquet"])
def test_both_kinds_of_files_give_the_same(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    columns = ("--column", "y", "--column", "x")
    infer("udp", file, *columns, "--statistic", "ols", "--bounds", "-1", "2", "--parts", "50", "--epsilon", "4", *TEST,
          "--json")  # fmt: skip
    assert document(capsys)["estimate"] == pytest.approx(0.5, abs=0.2)


def test_text_says_what_a_person_needs(capsys: pytest.CaptureFixture[str]) -> None:
    infer("udp", "people.csv", "--column", "x", "--statistic", "median", *PARTS, "--rho", "1/4", *TEST)
    text = capsys.readouterr().out
    assert "95% interval" in text
    assert "of parts below" in text
    assert "not charged; a test" in text
    infer("sample-aggregate", "people.parquet", "--column", "poor", "--statistic", "proportion", "--bounds", "0", "1",
          "--parts", "50", "--rho", "1/4", "--spread-share", "0", *TEST)  # fmt: skip
    assert "its largest possible value is taken" in capsys.readouterr().out
    infer("density", "people.csv", "--column", "x", "--bounds", "0", "10", "--bins", "5", "--rho", "1", *CHARGED)
    text = capsys.readouterr().out
    assert text.count("\n") == 7
    assert "charged to data set 'people'" in text


def test_a_statistic_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine_for_infer.py").write_text("def both(rows, weights):\n    return [rows.mean(), rows.std()]\n")
    infer("sample-aggregate", "people.csv", "--column", "x", "--statistic", "mine_for_infer:both",
          "--bounds", "0", "10", "--bounds", "0", "5", "--parts", "50", "--rho", "1", *TEST, "--json")  # fmt: skip
    assert document(capsys)["estimate"] == pytest.approx([5, 2], abs=0.7)


def test_add_remove_needs_a_public_number_of_rows(capsys: pytest.CaptureFixture[str]) -> None:
    line = ("density", "people.csv", "--column", "x", "--bounds", "0", "10", "--epsilon", "1", *TEST)
    infer(*line, "--neighbours", "add-remove", "--rows", "900", "--json")
    assert document(capsys)["rows"] == 900
    with pytest.raises(ProblemsFound, match="confidential"):
        infer(*line, "--neighbours", "add-remove")


UDP = ("udp", "people.csv", "--column", "x", "--statistic", "mean")


@pytest.mark.parametrize(
    ("line", "code", "match"),
    [
        ((*UDP, *PARTS, "--rho", "1/4", "--epsilon", "1", *CHARGED), 2, "one of the two"),
        ((*UDP, *PARTS, "--rho", "a", *CHARGED), 2, "not a rational"),
        ((*UDP, *PARTS, "--rho", "2", *CHARGED), 5, "needs more"),
        ((*UDP, *PARTS, "--rho", "1/4"), 2, "must be charged"),
        ((*UDP, *PARTS, "--rho", "1/4", "--testing-key", "k"), 2, "whoever guesses"),
        ((*UDP, *PARTS, "--rho", "1/4", "--share", "2", *CHARGED), 2, "share"),
        ((*UDP, *PARTS, "--rho", "1/4", "--share", "x", *CHARGED), 2, "not a fraction"),
        ((*UDP, "--bounds", "9", "1", "--parts", "50", "--rho", "1/4", *CHARGED), 2, "not below"),
        ((*UDP, "--bounds", "0", "9", "--parts", "5000", "--rho", "1/4", *CHARGED), 3, "than rows"),
        ((*UDP, *PARTS, "--bounds", "0", "1", "--rho", "1/4", *CHARGED), 2, "more than once"),
        (("udp", "people.csv", "--column", "xx", "--statistic", "mean", *PARTS, "--rho", "1/4", *CHARGED), 3,
         "did you mean 'x'"),
        (("udp", "peple.csv", "--column", "x", "--statistic", "mean", *PARTS, "--rho", "1/4", *CHARGED), 3,
         "people.csv"),
        (("udp", "people.csv", "--column", "x", "--statistic", "meen", *PARTS, "--rho", "1/4", *CHARGED), 2,
         "did you mean 'mean'"),
        (("udp", "people.csv", "--column", "x", "--statistic", "no_such:f", *PARTS, "--rho", "1/4", *CHARGED), 2,
         "cannot be imported"),
        (("udp", "holes.csv", "--column", "x", "--statistic", "mean", *PARTS, "--rho", "1/4", *CHARGED), 3,
         "holes.csv, row 3: column 'x' is missing"),
        (("density", "people.csv", "--column", "x", "--bounds", "0", "9", "--bins", "many", "--rho", "1", *CHARGED), 2,
         "not a number of bins"),
        (("sample-aggregate", "people.csv", "--column", "x", "--statistic", "fail_for_infer:f", *PARTS, "--rho", "1/4",
          *CHARGED), 3, "failed on every part"),
    ],
)  # fmt: skip
def test_bad_input_is_named_and_spends_nothing(line: tuple[str, ...], code: int, match: str) -> None:
    Path("holes.csv").write_text("x\n1\n\n2\nsecret\n".replace("\n\n", '\n""\n'))
    Path("fail_for_infer.py").write_text("def f(rows, weights):\n    raise ValueError(str(rows))\n")
    with pytest.raises(ProblemsFound, match=match) as error:
        infer(*line)
    assert error.value.exit_code == code
    assert "secret" not in str(error.value)
    assert not Path("ledger.sqlite").exists()


def test_a_config_names_ledger_and_data_set(capsys: pytest.CaptureFixture[str]) -> None:
    config = write_starter(Path("study"))
    infer(*UDP, *PARTS, "--rho", "1/8", "--config", str(config), "--json")
    found = document(capsys)
    plan = load(config)
    assert found["privacy"]["dataset"] == plan.settings.input.dataset
    assert Ledger(ledger_path(plan).resolve()).spent(plan.settings.input.dataset) == Fraction(1, 8)
