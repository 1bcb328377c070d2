"""`das open` lists what can be read, and its examples read it; `das doctor` says what is here."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from click.testing import CliRunner

from das import cli
from das.runner import Finding, find_runner

if TYPE_CHECKING:
    from conftest import World


def printed(*arguments: object) -> str:
    done = CliRunner().invoke(cli.das, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_release_is_listed_with_its_rows(town: World) -> None:
    found = json.loads(printed("open", town.release.parent, "--json"))
    rows = {(file["folder"], file["name"]): file["rows"] for file in found["files"]}
    assert rows["tables", "block-total.parquet"] == 60
    assert rows["facts", "spine.parquet"] > 60
    listed = {"tables", "tables/areas", "microdata", "measurements", "estimates", "counts", "facts"}
    assert {folder for folder, _ in rows} == listed


def test_the_examples_read_the_same_table_and_the_same_records(town: World) -> None:
    text = printed("open", town.release.parent)
    examples = re.findall(r"pd\.read_\w+\(.*\)", text)
    table, table_as_text, records, records_as_text = (eval(example, {"pd": pd, "str": str}) for example in examples)
    assert table.equals(table_as_text.astype(table.dtypes))
    assert set(table["GEOID"].str.len()) == {15}
    assert records.astype(str).equals(records_as_text)


def test_a_folder_without_a_release_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["open", str(tmp_path)])
    assert ended.value.code == 2
    assert "holds no finished release" in capsys.readouterr().err


def test_the_doctor_says_what_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(printed("doctor", "--json"))
    assert {"das", "python", "cores", "memory", "apache-beam", "Landlock", "private network", "flink"} <= found.keys()
    monkeypatch.setattr(type(find_runner()), "findings", lambda self: [Finding("cable", "loose", "plug it in")])
    assert "loose (plug it in)" in printed("doctor")


def test_no_sentence_of_the_help_is_cut() -> None:
    assert "..." not in printed("--help").split("Commands:")[1].replace("preset = ...", "")
