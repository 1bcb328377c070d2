"""Where the congenial method is chosen, its accuracy is said; and `das plan --compare-trees`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from das.plan.load import load
from das.plan.method_accuracy import FIGURES, SOURCE, accuracy_text
from das.promise.account import account
from das.promise.statement import statement_of
from das.report.privacy import render_privacy
from das.report.text import summary

METHODS = ("congenial", "nonnegative-l2")


def with_method(config: Path, method: str) -> Path:
    """The starter with cells measured at every level, and a method."""
    content = tomllib.loads(config.read_text(encoding="utf-8"))
    content["strategy"]["queries"] = {"all": {"detailed": "1"}}
    content["estimate"] = {"method": method}
    config.write_text(tomli_w.dumps(content), encoding="utf-8")
    return config


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_plan_and_check_say_it_for_the_congenial_method_alone(
    run: Callable[..., Any], config: Path, method: str
) -> None:
    path = with_method(config, method)
    said = {verb: run(verb, path) for verb in ("plan", "check")}
    for ended in said.values():
        assert ended.code == 0
        assert (accuracy_text() in " ".join(ended.stdout.split())) == (method == "congenial")
    content = json.loads(run("plan", path, "--json").stdout)
    assert ("accuracy" in content) == (method == "congenial")
    if method == "congenial":
        assert content["accuracy"]["source"] == SOURCE
        assert len(content["accuracy"]["figures"]) == len(FIGURES)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_the_report_says_it_for_the_congenial_method_alone(config: Path, method: str) -> None:
    plan = load(with_method(config, method))
    statement = statement_of(plan, account(plan), facts_digest=64 * "0", charged=plan.budget, seeded=False)
    page, text = render_privacy(statement, plan.to_json()), summary(statement, Path("out"))
    assert (accuracy_text().split(":")[0] in page) == (method == "congenial")
    assert (accuracy_text() in " ".join(text.split())) == (method == "congenial")


def test_the_paragraph_has_figures_with_their_source() -> None:
    said = accuracy_text()
    assert SOURCE in said
    for figure in FIGURES:
        assert f"{figure.congenial:.2f} against {figure.least_squares:.2f}" in said
    assert any(figure.congenial > figure.least_squares for figure in FIGURES)


@pytest.mark.slow
def test_trees_are_compared_on_generated_people(run: Callable[..., Any], config: Path) -> None:
    path = with_method(config, "congenial")
    (config.parent / "people.csv").unlink()  # the records need not even be there
    ended = run("plan", path, "--compare-trees", "--leaves", "6", "--seed", "4")
    assert ended.code == 0, ended.stderr
    assert "6 of 9 geounits of level village" in ended.stdout
    assert "times those of least squares" in ended.stdout
    assert "trees" in ended.stderr, "progress"
    strategy = tomllib.loads(ended.stdout[ended.stdout.index("[strategy.geolevels]") :])["strategy"]
    assert set(strategy["geolevels"]) == set(load(path).levels)
    content = json.loads(run("plan", path, "--compare-trees", "--leaves", "6", "--seed", "4", "--json").stdout)
    assert content["plan_digest"] == load(path).digest, "what `das plan --json` has, and one key more"
    assert tomllib.loads(content["trees"]["recommended"]["strategy"])["strategy"] == strategy


@pytest.mark.parametrize(("arguments", "word"), [(("--seed", "1"), "--seed"), (("--leaves", "5"), "--leaves")])
def test_options_of_the_comparison_need_it(
    run: Callable[..., Any], config: Path, arguments: tuple[str, ...], word: str
) -> None:
    ended = run("plan", config, *arguments)
    assert ended.code == 2
    assert word in ended.stderr
    assert "--compare-trees" in ended.stderr


def test_least_squares_has_no_trees_to_compare(run: Callable[..., Any], config: Path) -> None:
    ended = run("plan", with_method(config, "nonnegative-l2"), "--compare-trees")
    assert ended.code == 2
    assert "congenial" in ended.stderr
