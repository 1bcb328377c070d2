"""The comparison on a hierarchy: what is matched, what is measured, and where it may be written."""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import das
from das.cli import das as command
from das.demo.starter import write_starter
from das.errors import UsageError
from das.evaluation.compare import compare
from das.evaluation.compare.levels import RAW, SQUARES, compare_folder, compare_levels, levels_text
from das.evaluation.compare.matching import contenders_of, effective_epsilon, matched_budget_lower, why_not_congenial
from das.evaluation.compare.page import render_levels
from das.plan.geography import spine_of
from das.plan.plan import Plan
from das.promise.account import account

ROOT = Path(__file__).resolve().parents[2]
MIXED = 'total = "1/4"\n"sex * grown" = "1/4"\ndetailed = "1/2"\n'
GAUSSIAN = ('framework = "pure"', 'framework = "zcdp"'), ('epsilon = "2"', 'rho = "1/2"')
TWO_LEVELS = ('{ name = "district" }, ', ""), ('district = "1/4"\n', ""), ('village = "1/2"', 'village = "3/4"')
SAME = "congenial, same noise"
MATCHED = "congenial, matched"
RUNS = 2


def tree_of(folder: Path, *changes: tuple[str, str], queries: str = 'detailed = "1"\n') -> Path:
    """The starter's country with queries that form a tree; two levels, because each costs a pipeline its time."""
    whole = write_starter(folder)
    text = whole.read_text()
    for old, new in ((MIXED, queries), *TWO_LEVELS, *changes):
        assert old in text
        text = text.replace(old, new)
    (folder / "tree.toml").write_text(text)
    return folder / "tree.toml"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tree_of(tmp_path_factory.mktemp("compared") / "country", *GAUSSIAN)


@pytest.fixture(scope="module")
def laplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tree_of(tmp_path_factory.mktemp("laplace") / "country")


@pytest.fixture(scope="module")
def found(config: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    workdir, reported = tmp_path_factory.mktemp("work"), []
    result = compare_levels(
        das.load(config),
        runs=RUNS,
        workdir=workdir,
        progress=lambda stage, done, of: reported.append((stage, done, of)),
    )
    assert list(workdir.iterdir()) == []  # nothing is left of the runs
    assert reported == [("compare", done, 2 * RUNS) for done in range(2 * RUNS + 1)]
    return result


def promised(plan: Plan) -> float:
    """The number in the privacy report, from the account itself."""
    sections = account(plan, spine_of(plan)).sections
    return next(entry["epsilon"] for entry in sections["effective"] if entry["policy"] == "irreducible")


@pytest.mark.slow
@pytest.mark.parametrize("changes", [(), GAUSSIAN], ids=["laplace", "gaussian"])
def test_the_matched_plan_promises_no_more_and_hardly_less(
    tmp_path: Path, changes: tuple[tuple[str, str], ...]
) -> None:
    plan = das.load(tree_of(tmp_path / "country", *changes))
    by_name = {each.name: each for each in contenders_of(plan)}
    measured, matched = by_name["measured"], by_name[MATCHED]
    assert measured.plan == plan  # it is the config's own
    assert matched.plan.mechanism_stage.sampler
    assert measured.epsilon == promised(plan) == effective_epsilon(plan, spine_of(plan))
    assert matched.epsilon == promised(matched.plan) <= measured.epsilon
    more = matched.plan.with_budget(matched.plan.budget * Fraction(100_001, 100_000))
    assert promised(more) > measured.epsilon
    assert matched.plan.budget < plan.budget
    assert matched.matched["status"] == measured.matched["status"] == "proved"
    # Conditioning nearly doubles the epsilon of Laplace noise, and costs Gaussian noise the orders between integers.
    assert (SAME in by_name) == (plan.framework == "pure")
    shares = {(m.level, m.query.name): m.share for m in plan.measurements}
    assert {(m.level, m.query.name): m.cost for m in matched.plan.measurements} == {
        where: share * matched.plan.budget for where, share in shares.items()
    }


def test_an_epsilon_that_is_asked_for(laplace: Path) -> None:
    plan = das.load(laplace)
    measured, matched, _ = contenders_of(plan, Fraction(1))
    assert measured.plan.budget == Fraction(1, 2)  # two records of different provinces: twice the budget
    assert 0.99 < matched.epsilon <= 1
    assert matched_budget_lower(plan, Fraction(100)) > plan.budget
    with pytest.raises(UsageError, match="too small"):
        matched_budget_lower(plan, Fraction(1, 10**9))


@pytest.mark.slow
def test_a_plan_that_cannot_be_conditioned_is_compared_without_congenial_draws(tmp_path: Path) -> None:
    crossing = das.load(tree_of(tmp_path / "crossing", queries=MIXED))
    presence = das.load(tree_of(tmp_path / "presence", ('"replace"', '"add-remove"'), (TAIL, "")))
    for plan, reason in ((crossing, "not laminar"), (presence, "replaced records")):
        assert [each.name for each in contenders_of(plan)] == ["measured"]
        assert reason in str(why_not_congenial(plan))
    found = compare_levels(crossing, runs=2, workdir=tmp_path / "work")
    assert {row["name"] for level in found["levels"] for row in level["contenders"]} == {RAW, SQUARES}
    assert "left out: congenial: " in levels_text(found)
    assert "Left out: congenial: " in render_levels(found)


TAIL = """[[invariant]]                   # published exactly, and why
query = "total"
level = "province"
reason = "Seats in parliament follow the provinces' populations"
"""


def check(found: dict[str, Any], conditioned: list[str], runs: int) -> None:
    """What every comparison must show."""
    assert [(row["level"], row["query"], row["geounits"]) for row in found["levels"]] == [
        ("province", "detailed", 2),
        ("village", "detailed", 9),
    ]
    for level in found["levels"]:
        rows = {row["name"]: row for row in level["contenders"]}
        assert list(rows) == [RAW, SQUARES, *conditioned]
        assert all(row["runs"] == runs and 0 < row["l2"] <= row["l1"] for row in rows.values())
        assert rows[RAW]["negative"] > 0
        assert all(row["negative"] == 0 for name, row in rows.items() if name != RAW)
        assert rows[RAW]["epsilon"] == rows[SQUARES]["epsilon"] == found["epsilon"]
        assert 0.999 * found["epsilon"] < rows[MATCHED]["epsilon"] <= found["epsilon"]
    assert found["matched"]["status"] == {RAW: "proved", MATCHED: "proved"}
    assert not any("refuse" in words for words in found["contenders"][2]["assumptions"])
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_all_contenders_at_every_level(found: dict[str, Any]) -> None:
    check(found, [MATCHED], RUNS)


@pytest.mark.slow
def test_laplace_noise_pays_for_conditioning(laplace: Path, tmp_path: Path) -> None:
    found = compare_levels(das.load(laplace), runs=3, workdir=tmp_path)
    check(found, [MATCHED, SAME], 3)
    for level in found["levels"]:
        rows = {row["name"]: row for row in level["contenders"]}
        assert rows[RAW]["epsilon"] == 4.0 < rows[SAME]["epsilon"] < 8.001
        assert rows[SAME]["l1"] < rows[MATCHED]["l1"]
    assert "dashed bar" in render_levels(found)


def test_raw_noise_is_as_far_as_the_plan_says(found: dict[str, Any], config: Path) -> None:
    """Eight cells of a village have a mean absolute noise that the plan knows without any run."""
    noise = {m.level: m.expected_error for m in das.load(config).measurements}
    for level in found["levels"]:
        raw = level["contenders"][0]
        draws = 8 * level["geounits"] * RUNS
        assert raw["l1"] == pytest.approx(8 * noise[level["level"]], rel=5 / np.sqrt(draws))


@pytest.mark.slow
def test_distances_are_those_of_a_release_with_the_same_key(config: Path, tmp_path: Path) -> None:
    """Worked out from the published tables and the records, without any of the code that compares."""
    home = config.parent
    two = compare_levels(das.load(config), runs=2, workdir=tmp_path)
    truth = pd.read_csv(home / "people.csv", dtype=str)
    per_cell = truth.groupby(["village", "sex", "age"]).size()
    expected = []
    for run in range(2):
        text = config.read_text().replace('name = "example"', 'name = "simulation"')
        booked = 'geocode = "village"\ndataset = "simulation"\nledger = "own.sqlite"'
        (home / "again.toml").write_text(text.replace('geocode = "village"', booked))
        release = das.run(das.load(home / "again.toml"), out=tmp_path / f"run-{run}", testing_key=f"compare-{run}")
        shown = release.counts("village").set_index(["geocode", "sex", "age"])["count"]
        shown.index = shown.index.set_names(["village", "sex", "age"])
        away = shown.astype(float).sub(per_cell.astype(float), fill_value=0)
        expected.append(
            (away.abs().groupby("village").sum().sum() / 9, np.sqrt((away**2).groupby("village").sum()).sum() / 9)
        )
    row = next(row for row in two["levels"][1]["contenders"] if row["name"] == SQUARES)
    assert (row["l1"], row["l2"]) == pytest.approx(tuple(np.mean(expected, axis=0)))
    spread = np.std(expected, axis=0, ddof=1) / np.sqrt(2)
    assert (row["l1_error"], row["l2_error"]) == pytest.approx(tuple(spread))


def test_other_promises_stand_beside_each_other(found: dict[str, Any]) -> None:
    promises = {row["promise"]: row for row in found["promises"]}
    assert {"policy semi", "policy irreducible", "attributes within the same village", "attribute sex alone"} <= set(
        promises
    )
    matched = promises["policy irreducible"]["epsilon"]
    assert matched["raw noise, least squares"] == found["epsilon"]
    assert matched[MATCHED] <= found["epsilon"]


def test_page_and_text(found: dict[str, Any]) -> None:
    page, text = render_levels(found), levels_text(found)
    for forbidden in ("<script", "http:", "https:", "src=", "url("):
        assert forbidden not in page
    assert page.count('<svg class="chart"') == 4
    assert len(set(part.split('"')[0] for part in page.split(' id="')[1:])) == page.count(' id="')
    for words in ("as confidential as the data", "Privacy is matched", "policy irreducible", "proved", "sharper"):
        assert words in page
    assert "dashed bar" not in page
    assert text.startswith("COMPARISON: 2 runs")
    assert "congenial, matched: proved" in text


def test_no_ledger_is_touched(found: dict[str, Any], config: Path) -> None:
    assert not (config.parent / "ledger.sqlite").exists()


@pytest.mark.slow
def test_a_run_is_compared_on_its_confidential_side_alone(tmp_path: Path) -> None:
    config = tree_of(tmp_path / "country")
    out = tmp_path / "out"
    das.run(das.load(config), out=out)
    before = {path: path.read_bytes() for path in (out / "release").rglob("*") if path.is_file()}
    book = (config.parent / "ledger.sqlite").read_bytes()
    done = CliRunner().invoke(command, ["compare", str(out), "--runs", "2", "--json"])
    assert done.exit_code == 0, done.output
    inside = out / "confidential"
    assert json.loads((inside / "comparison.json").read_bytes()) == json.loads(done.stdout)
    for name in ("comparison.json", "comparison.html"):
        assert (inside / name).stat().st_mode & 0o777 == 0o600
    assert not list(inside.glob("comparison-*"))
    assert {path: path.read_bytes() for path in (out / "release").rglob("*") if path.is_file()} == before
    assert (config.parent / "ledger.sqlite").read_bytes() == book
    with pytest.raises(UsageError, match="confidential folder"):
        compare(out, out=tmp_path / "page.html")
    config.write_text(config.read_text().replace('epsilon = "2"', 'epsilon = "3"'))
    with pytest.raises(UsageError, match="not the plan of this run"):
        compare_folder(out)
    with pytest.raises(UsageError, match="holds no run"):
        compare_folder(tmp_path)


def test_a_single_run_has_no_average(config: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="fewer than two"):
        compare_levels(das.load(config), runs=1, workdir=tmp_path)


def test_the_verb_takes_a_config(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: dict[str, Any]
) -> None:
    asked: dict[str, Any] = {}

    def instead(plan: Plan, **given: Any) -> dict[str, Any]:
        asked.update(given, name=plan.name)
        return found

    monkeypatch.setattr("das.evaluation.compare.levels.compare_levels", instead)
    page = tmp_path / "page.html"
    done = CliRunner().invoke(command, ["compare", str(config), "--out", str(page), "--epsilon", "1/2", "--runs", "9"])
    assert done.exit_code == 0, done.output
    assert "raw noise" in done.stdout
    assert (asked["name"], asked["epsilon"], asked["runs"]) == ("example", "1/2", 9)
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_rhode_island(rhode_island: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every level measured by its sixteen cells, the state's total exact, the levels' shares of 2020."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "tests" / "pipeline"), *sys.path])
    from test_rhode_island import config_text

    text = config_text(rhode_island)
    start, end = text.index("[strategy.queries.all]"), text.index("[[invariant]]")
    (tmp_path / "ri.toml").write_text(text[:start] + '[strategy.queries.all]\ndetailed = "1"\n\n' + text[end:])
    found = compare_levels(das.load(tmp_path / "ri.toml"), runs=2, workdir=tmp_path / "work")
    assert found["matched"]["epsilon"] == pytest.approx(17.1436, abs=1e-4)
    assert set(found["matched"]["status"].values()) == {"proved"}
    assert [row["geounits"] for row in found["levels"]] == [1, 5, 244, 815, 25_181]
    for level in found["levels"]:
        raw, squares, congenial = level["contenders"]
        assert congenial["epsilon"] <= raw["epsilon"]
        if level["level"] in ("tract", "block_group", "block"):  # above them, too few counts for two runs to tell
            assert squares["l1"] < raw["l1"]
            assert congenial["l1"] < raw["l1"]
