"""Repetitions against releases made one by one, and what they must leave alone."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

import das
from das import cli
from das.demo.starter import write_starter
from das.errors import UsageError
from das.evaluation import repeat as module
from das.evaluation.evaluate import evaluate
from das.evaluation.simulate import compare, comparison_text, simulate, simulation_text
from das.evaluation.simulated_people import people_of
from das.plan.load import load
from das.runner import find_runner
from das.storage.ledger_access import ledger_path

pytestmark = pytest.mark.slow

RUNS = 2


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Path:
    """The starter without its middle level, because each level costs a pipeline its time."""
    whole = write_starter(tmp_path_factory.mktemp("simulated") / "input")
    levels = ('{ name = "district" }, ', ""), ('district = "1/4"\n', ""), ('village = "1/2"', 'village = "3/4"')
    return changed(whole, "two-levels", *levels)


def changed(config: Path, name: str, *changes: tuple[str, str]) -> Path:
    text = config.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = config.with_name(f"{name}.toml")
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def comparison(config, tmp_path_factory) -> tuple[dict, Counter, list[tuple[int, int]]]:
    """The starter, the same under another name, and one with ten times the budget; and what the runner was asked."""
    plans = {
        "starter": load(config),
        "renamed": load(changed(config, "renamed", ('name = "example"', 'name = "other"'))),
        "generous": load(changed(config, "generous", ('epsilon = "2"', 'epsilon = "20"'))),
    }
    asked: Counter = Counter()
    reported = []

    class Recording:
        def run(self, plan, out, **options):
            asked[options["upto"]] += 1
            find_runner().run(plan, out, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "find_runner", Recording)
        workdir = tmp_path_factory.mktemp("work")
        found = compare(plans, RUNS, workdir=workdir, progress=lambda stage, done, of: reported.append((done, of)))
    assert list(workdir.iterdir()) == []
    return found, asked, reported


def test_plans_that_measure_the_same_share_the_measurements(comparison):
    found, asked, _ = comparison
    assert found["plans"]["renamed"]["levels"] == found["plans"]["starter"]["levels"]
    assert asked == {"tabulate": 3, "measure": 2 * RUNS, "estimate": 3 * RUNS}


def test_changes_are_against_the_first_plan(comparison):
    found = comparison[0]
    assert {(c["plan"], c["against"]) for c in found["changes"]} == {("renamed", "starter"), ("generous", "starter")}
    for change in found["changes"]:
        if change["level"] == "province" and change["query"] == "total":
            assert change["mae"] is None  # an invariant has no error
        elif change["plan"] == "renamed":
            assert change["mae"] == change["mae_se"] == 0
        elif change["level"] == "village":
            assert change["mae"] < -50


def test_it_says_that_it_is_a_simulation(comparison):
    found = comparison[0]
    assert found["simulation"].startswith("SIMULATION")
    assert "nothing here is a release" in found["simulation"]
    text = comparison_text(found)
    assert text.startswith("SIMULATION")
    assert "generous" in text
    json.dumps(found, allow_nan=False)


def test_the_ledger_of_the_data_is_not_touched(config, comparison):
    assert not (config.parent / "ledger.sqlite").exists()


def test_progress_is_reported_run_by_run(comparison):
    assert comparison[2] == [(3 * done, 3 * RUNS) for done in range(RUNS + 1)]


def test_a_run_is_that_of_a_release_with_the_same_key(config, tmp_path):
    found = simulate(load(config), 1, workdir=tmp_path / "made" / "here")
    assert list((tmp_path / "made" / "here").iterdir()) == []
    assert found["simulation"].startswith("SIMULATION: 1 run")
    assert found["release"] == "example"
    assert simulation_text(found).startswith("SIMULATION")
    named = ('name = "example"', 'name = "simulation"')
    booked = ('geocode = "village"', 'geocode = "village"\ndataset = "simulation"\nledger = "own.sqlite"')
    das.run(load(changed(config, "alone", named, booked)), out=tmp_path / "alone", testing_key="simulate-0")
    for row, alone in zip(found["levels"], evaluate(tmp_path / "alone")["levels"], strict=True):
        assert row["mae_se"] is None
        assert row["jason_b"] is None
        for name in ("level", "query", "cells", "noise_std_dev", "bias", "mae", "rmse"):
            assert row[name] == alone[name]


def test_plans_about_other_people_are_not_compared(config, tmp_path):
    people = (config.parent / "people.csv").read_text().splitlines()
    (config.parent / "fewer.csv").write_text("\n".join(people[:-1]) + "\n")
    fewer = changed(config, "fewer", ('"people.csv"', '"fewer.csv"'))
    with pytest.raises(UsageError, match="'fewer': is not about the same data"):
        compare({"all": load(config), "fewer": load(fewer)}, 1, workdir=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_there_must_be_something_to_run(config, tmp_path):
    for plans, runs in (({}, 1), ({"one": load(config)}, 0)):
        with pytest.raises(UsageError, match="at least one"):
            compare(plans, runs, workdir=tmp_path)


def test_runs_side_by_side_are_the_same_and_are_kept(config, comparison, tmp_path):
    """Two processes and a folder that is kept: the numbers of one process; the next call adds what is missing."""
    plans = {"starter": load(config)}
    kept = tmp_path / "kept"
    found = compare(plans, RUNS, workdir=tmp_path, workers=2, keep=kept)
    assert found["plans"]["starter"]["levels"] == comparison[0]["plans"]["starter"]["levels"]
    assert kept.stat().st_mode & 0o777 == 0o700
    first = (kept / "run-0.npz").stat().st_mtime_ns
    (kept / "run-1.npz").unlink()  # as if a kill had come before it
    (kept / "run-1-0").mkdir()
    again = compare(plans, RUNS, workdir=tmp_path, workers=2, keep=kept)
    assert again["plans"]["starter"]["levels"] == found["plans"]["starter"]["levels"]
    assert (kept / "run-0.npz").stat().st_mtime_ns == first
    assert sorted(path.name for path in kept.iterdir() if "run" in path.name) == ["run-0.npz", "run-1.npz"]
    other = load(changed(config, "generous", ('epsilon = "2"', 'epsilon = "20"')))
    with pytest.raises(UsageError, match="runs of other plans"):
        compare({"starter": other}, RUNS, workdir=tmp_path, keep=kept)


def test_people_are_generated_unless_somebody_says_otherwise(config, tmp_path):
    secret = changed(config, "secret", ('data = "generated"', 'data = "confidential"'), ('"people.csv"', '"no.csv"'))
    ran = CliRunner().invoke(cli.das, ["simulate", str(secret), "--runs", "1", "--workers", "1", "--json"])
    found = json.loads(ran.stdout)
    assert found["data"] == "generated"
    assert "generated people, seed 2020, about nobody; no record was read" in found["simulation"]
    with pytest.raises(UsageError, match="data are confidential"):
        people_of({"secret": load(secret)}, "public", tmp_path, seed=1, margins=None)
    plans, words = people_of({"secret": load(secret)}, "confidential", tmp_path, seed=1, margins=None)
    assert words.startswith("CONFIDENTIAL")
    assert plans["secret"].settings.input.data == "confidential"
    assert "generated" in people_of({"own": load(config)}, "public", tmp_path, seed=1, margins=None)[1]


def test_a_folder_is_named_from_where_the_command_is_typed(config: Path, monkeypatch, tmp_path: Path) -> None:
    """And not from the config's folder, to which paths in a config are relative."""
    monkeypatch.chdir(tmp_path)
    testing = module.for_testing(load(config), Path("runs") / "ledger.sqlite")
    assert ledger_path(testing) == tmp_path / "runs" / "ledger.sqlite"
    assert testing.folder != tmp_path
