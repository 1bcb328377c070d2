"""What each verb prints where: help, tables for people, one JSON document for machines."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

import das as api
from das import cli
from das.plan import presets
from das.release.manifest import verify_release
from das.storage.layout import Layout

if TYPE_CHECKING:
    from conftest import Ended

Run = Callable[..., "Ended"]
VERBS = ("demo", "init", "check", "plan", "run", "tabulate", "measure", "estimate", "publish", "report", "ledger")


def files_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_every_promised_verb_is_there(run: Run) -> None:
    shown = run("--help")
    assert shown.code == 0
    assert all(f"\n  {verb} " in shown.stdout for verb in VERBS)
    assert set(VERBS) <= set(cli.das.commands)


@pytest.mark.parametrize("verb", sorted(cli.das.commands))
def test_every_verb_explains_itself(verb: str, run: Run) -> None:
    for flag in ("--help", "-h"):
        shown = run(verb, flag)
        assert (shown.code, shown.stderr) == (0, "")
        assert shown.stdout.startswith(f"Usage: das {verb} ")
    command = cli.das.commands[verb]
    assert command.help
    options = [o for o in command.params if isinstance(o, click.Option) and o.name not in ("help",)]
    assert all(option.help or option.show_default for option in options)


def test_version(run: Run) -> None:
    assert "0." in run("--version").stdout


def test_init_writes_what_check_accepts(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    begun = run("init", folder)
    assert begun.code == 0
    assert f"das check {folder}/config.toml && das run {folder}/config.toml --out {folder}/out" in begun.stdout
    before = files_in(tmp_path)
    checked = run("check", folder / "config.toml")
    assert (checked.code, checked.stderr) == (0, "")
    assert "nothing was spent" in checked.stdout
    found = json.loads(run("check", folder / "config.toml", "--json").stdout)
    assert found["ok"] is True
    assert found["geounits"] == {"province": 2, "district": 3, "village": 9}
    assert files_in(tmp_path) == before
    again = run("init", folder)
    assert again.code == 2
    assert "is already there; name another folder" in again.stderr


def test_init_like_another_example(run: Run, tmp_path: Path) -> None:
    assert run("init", tmp_path / "state", "--like", "pl94").code == 0
    found = json.loads(run("check", tmp_path / "state" / "config.toml", "--json").stdout)
    assert found["ok"] is True
    assert found["geounits"]["state"] == 1
    assert found["geounits"]["block"] == 400
    wrong = run("init", tmp_path / "other", "--like", "p194")
    assert wrong.code == 2
    assert "'p194' is not a starter; say small-country or pl94 or one-table" in wrong.stderr
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_init_like_one_table(run: Run, tmp_path: Path) -> None:
    begun = run("init", tmp_path / "town", "--like", "one-table")
    assert f"das table plan {tmp_path}/town/config.toml" in begun.stdout
    assert sum(int(line.split(",")[2]) for line in (tmp_path / "town" / "town.csv").read_text().splitlines()[1:]) == 266
    planned = run("table", "plan", tmp_path / "town" / "config.toml")
    assert (planned.code, planned.stderr) == (0, "")


def test_every_section_and_key_of_a_starter_is_explained() -> None:
    """A comment stands in each section, and beside or above what is not plain from its name."""
    from das.demo.starter import ONE_TABLE, PL94, STARTER

    for text in (STARTER, PL94, ONE_TABLE):
        sections = re.split(r"^(?=\[)", text, flags=re.MULTILINE)[1:]
        headings = {re.match(r"\[+[\w.]+", section).group() for section in sections}
        explained = {re.match(r"\[+[\w.]+", section).group() for section in sections if "#" in section}
        assert headings - explained <= {"[release", "[[invariant", "[output"}


def test_plan_reads_no_record(run: Run, config: Path) -> None:
    (config.parent / "people.csv").unlink()
    shown = run("plan", config)
    assert (shown.code, shown.stderr) == (0, "")
    assert "epsilon = 2" in shown.stdout
    planned = json.loads(run("plan", config, "--json").stdout)
    assert sum(Fraction(m["cost"]) for m in planned["measurements"]) == 2
    assert {(m["level"], m["query"]) for m in planned["measurements"]} == {
        (level, query)
        for level in ("province", "district", "village")
        for query in ("total", "sex * grown", "detailed")
    }
    # Discrete Laplace with scale b: variance 2 p / (1 - p)^2 for p = e^(-1/b); here b = 4, half of half of 2.
    detailed = next(m for m in planned["measurements"] if (m["level"], m["query"]) == ("village", "detailed"))
    assert detailed["std_dev"] ** 2 == pytest.approx(31.833854, rel=1e-6)


def test_run_says_the_statement_once_and_in_json_nothing_else(run: Run, released: Path) -> None:
    command = ("run", released / "input" / "config.toml", "--out", released / "out")
    before = files_in(released)
    shown = run(*command)
    assert shown.code == 0
    assert shown.stdout.startswith("Release example\n")
    assert "TEST RUN" not in shown.stdout
    (line,) = shown.stderr.splitlines()  # no stage had anything to do
    assert "this release was finished on " in line
    assert "its input has not changed" in line
    statement = json.loads(run(*command, "--json").stdout)
    assert statement == json.loads((released / "out" / "release" / "privacy.json").read_bytes())
    assert (statement["seeded"], statement["ledger_agrees"]) == (False, True)
    assert files_in(released) == before


def test_stage_by_stage(run: Run, config: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    made = {
        "tabulate": ("confidential/histograms", "measure"),
        "measure": ("release/measurements", "estimate"),
        "estimate": ("release/counts", "publish"),
        "publish": ("release/tables", "run"),
    }
    for stage, (path, following) in made.items():
        assert not (out / path).exists()
        ended = run(stage, config, "--out", out, "--testing-key", "a")
        assert (ended.code, ended.stdout) == (0, f"{stage}: done; next: das {following}\n"), ended.stderr
        said = [line.split()[0] for line in ended.stderr.splitlines()]
        assert [word for word in said if word != "compiling"] == [stage]  # a line for a log, not for a script
        assert (out / path / "_committed.json").exists()
    assert not (out / "release" / "manifest.json").exists()
    last = run("run", config, "--out", out, "--testing-key", "a", "--json")
    assert json.loads(last.stdout)["seeded"] is True
    assert [line.split()[0] for line in last.stderr.splitlines()] == ["report"]  # what was left to do
    assert "TEST RUN" in run("report", out).stdout
    assert verify_release(Layout(out).release) == []


@pytest.mark.slow
def test_demo_needs_no_files(run: Run, tmp_path: Path) -> None:
    command = ("demo", "--out", tmp_path / "out", "--blocks", 12, "--people", 40, "--testing-key", "a")
    shown = run(*command, "--json")
    assert shown.code == 0
    assert json.loads(shown.stdout)["release"] == "demo"
    assert api.open(tmp_path / "out").table("state", "total")["total"].tolist() == [40]
    assert run(*command).code == 0
    other = run("demo", "--out", tmp_path / "out", "--blocks", 13, "--people", 40, "--testing-key", "a")
    assert other.code == 2
    assert "holds a demo of 12 blocks and 40 people; ask for the same" in other.stderr


def test_report_is_written_again_and_the_manifest_stays_true(run: Run, released: Path, tmp_path: Path) -> None:
    out = shutil.copytree(released / "out", tmp_path / "out")
    page = out / "release" / "privacy.html"
    whole = page.read_bytes()
    page.write_bytes(b"an older page")
    shown = run("report", out)
    assert (shown.code, shown.stderr) == (0, "")
    assert shown.stdout.startswith("Release example\n")
    assert page.read_bytes() == whole
    assert verify_release(Layout(out).release) == []
    assert json.loads(run("report", out, "--json").stdout)["release"] == "example"

    (out / "release" / "tables" / "village-total.csv").write_text("GEOID,total\n")
    refused = run("report", out)
    assert refused.code == 2
    assert "tables/village-total.csv: has changed since the release; restore it" in refused.stderr

    (out / "release" / "manifest.json").unlink()
    assert "the release is not complete; run the same command again" in run("report", out).stderr


def test_presets_are_listed_with_their_source(run: Run) -> None:
    shown = run("presets")
    assert shown.code == 0
    lines = shown.stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(presets.names())
