"""What happens to a release when its config, its files or its folder change after the fact."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pandas as pd
import pytest

import das
from das.errors import BudgetError, UsageError
from das.plan.settings import EstimateSettings
from das.release.manifest import verify_release
from das.storage.layout import Layout

Tree = Callable[[Path], dict[str, str]]


def alter(config: Path, old: str, new: str) -> None:
    text = config.read_text()
    assert text.count(old) == 1
    config.write_text(text.replace(old, new))


def other_information() -> str:
    kinds = get_args(EstimateSettings.model_fields["information"].annotation)
    return next(str(kind) for kind in kinds if kind != EstimateSettings().information)


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


@pytest.mark.slow
def test_a_finished_release_stays_as_it_is_and_what_changes_is_made_again_and_no_more(
    starter: Path, tmp_path: Path, tree: Tree
) -> None:
    out, release = tmp_path / "out", tmp_path / "out" / "release"

    def run() -> dict[str, str]:
        das.run(das.load(starter), out=out)
        assert verify_release(Layout(out).release) == []
        return tree(release)

    first = run()
    ledger = tree(starter.parent)["ledger.sqlite"]

    # The same command again changes nothing, not even a time in the manifest.
    times = {path: path.stat().st_mtime_ns for path in release.rglob("*")}
    assert run() == first
    assert {path: path.stat().st_mtime_ns for path in release.rglob("*")} == times

    # Another text in the config is recorded, and nothing else is touched.
    alter(starter, 'name = "example"', 'name = "example"\nproduct = "A tiny country"')
    second = run()
    assert changed(first, second) == {"config.toml", "manifest.json", "privacy.html"}
    assert json.loads((release / "manifest.json").read_bytes())["product"] == "A tiny country"

    # Other products are published from the same counts.
    starter.write_text(starter.read_text() + '\n[output]\ntables = ["sex"]\ncsv = false\n')
    third = run()
    redone = changed(second, third)
    assert {name.split("/")[0] for name in redone} == {"tables", "microdata", *{n for n in redone if "/" not in n}}
    assert sorted(path.name for path in (release / "tables").iterdir()) == [
        "_committed.json",
        *(f"{level}-sex{kind}.parquet" for level in ("district", "province", "village") for kind in ("", "_intervals")),
    ]
    assert not (release / "microdata" / "records.csv").exists()
    assert "microdata/records.parquet" not in redone

    # So are areas that are declared later, and again when their file changes.
    (starter.parent / "zones.csv").write_text("area,geocode\ncoast,N11\ncoast,S11\n")
    areas = '{ name = "village" }]\nareas = [{ name = "zone", file = "zones.csv" }]'
    alter(starter, '{ name = "village" }]', areas)
    run()
    zones = pd.read_parquet(release / "tables" / "zone-sex.parquet")
    assert list(zones["GEOID"]) == ["coast"]
    (starter.parent / "zones.csv").write_text("area,geocode\ncoast,N11\ncoast,S11\nhills,N22\n")
    last = run()
    assert list(pd.read_parquet(release / "tables" / "zone-sex.parquet")["GEOID"]) == ["coast", "hills"]

    assert not {name for name in changed(first, last) if name.startswith("counts/")}

    # Another way to estimate starts from the same measurements.
    starter.write_text(starter.read_text() + f'\n[estimate]\ninformation = "{other_information()}"\n')
    last = run()
    assert "counts/_committed.json" in changed(first, last)

    # Through all of it nothing was measured or charged again.
    kept = ("measurements/", "facts/", "privacy.json")
    assert not {name for name in changed(first, last) if name.startswith(kept)}
    assert tree(starter.parent)["ledger.sqlite"] == ledger


def test_another_plan_does_not_continue_a_release(starter: Path, tmp_path: Path, tree: Tree) -> None:
    out = tmp_path / "out"
    das.runner.find_runner().run(das.load(starter), out, upto="tabulate")
    before = tree(out)
    alter(starter, 'epsilon = "2"', 'epsilon = "3"')
    with pytest.raises(UsageError, match=r"holds another release \(example, plan [0-9a-f]{16}\); name another folder"):
        das.run(das.load(starter), out=out)
    assert tree(out) == before


def test_a_test_run_and_a_real_run_are_kept_apart(starter: Path, tmp_path: Path) -> None:
    out, plan, runner = tmp_path / "out", das.load(starter), das.runner.find_runner()
    runner.run(plan, out, upto="tabulate", testing_key="a")
    with pytest.raises(UsageError, match="holds a test run with a testing key"):
        das.run(plan, out=out)
    with pytest.raises(UsageError, match="holds a test run with another testing key"):
        das.run(plan, out=out, testing_key="b")
    runner.run(plan, tmp_path / "real", upto="tabulate")
    with pytest.raises(UsageError, match="holds a real run"):
        das.run(plan, out=tmp_path / "real", testing_key="a")


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.slow
def test_damage_is_named_and_never_taken_for_done(starter: Path, tmp_path: Path) -> None:
    """At each stage: what the one before made durable was truncated since."""
    out, plan, runner = tmp_path / "out", das.load(starter), das.runner.find_runner()
    steps = [
        ("tabulate", "../confidential/histograms/village.parquet", UsageError, "its contents have changed"),
        ("measure", "measurements/village.parquet", UsageError, "its contents have changed"),
        ("measure", "facts/province.parquet", BudgetError, "estimation may read only declared facts"),
        ("estimate", "counts/village.parquet", UsageError, "its contents have changed"),
        ("publish", "tables/village-total.csv", UsageError, "its contents have changed"),
        ("report", "tables/village-total.csv", UsageError, "has changed since the release"),
        ("report", "privacy.json", UsageError, "has changed since the release"),
    ]
    for stage, name, kind, reason in steps:
        runner.run(plan, out, upto=stage, testing_key="a")
        path = out / "release" / name
        whole = path.read_bytes()
        damage(path)
        with pytest.raises(kind, match=reason) as caught:
            das.run(plan, out=out, testing_key="a")
        assert name.removeprefix("../") in str(caught.value)
        path.write_bytes(whole)
    das.run(plan, out=out, testing_key="a")
