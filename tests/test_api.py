"""The verbs as Python functions: the same findings as the command line, as values that print as text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import das
from das.cli import das as command
from das.demo.starter import write_starter
from das.errors import InputError, UsageError


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_starter(tmp_path_factory.mktemp("country"))


@pytest.fixture(scope="module")
def release(config: Path, tmp_path_factory: pytest.TempPathFactory) -> das.Release:
    return das.run(das.load(config), out=tmp_path_factory.mktemp("run") / "out", testing_key="api")


def printed(*arguments: object) -> str:
    return CliRunner().invoke(command, [*map(str, arguments)], catch_exceptions=False).stdout


def test_check_says_what_the_command_says(config: Path) -> None:
    found = das.check(das.load(config))
    assert found["ok"] is True
    assert repr(found) + "\n" == printed("check", config)


def test_check_raises_every_problem(tmp_path: Path) -> None:
    config = write_starter(tmp_path / "country")
    (tmp_path / "country" / "people.csv").write_text("village,sex,age\nN99,f,0-14\nN11,x,0-14\n")
    with pytest.raises(InputError, match="not on the spine") as raised:
        das.check(das.load(config))
    assert len(raised.value.problems) == 2


def test_account_says_what_the_command_says(config: Path) -> None:
    found = das.account(config)
    assert dict(found) == json.loads(printed("account", config, "--json"))
    assert repr(found) + "\n" == printed("account", config)
    assert found._repr_html_().startswith("<pre>")
    assert "<b" not in found._repr_html_()


def test_account_takes_plans_and_releases(config: Path, release: das.Release) -> None:
    assert dict(das.account(das.load(config))) == dict(das.account(config))
    assert dict(das.account(release)) == dict(das.account(release.folder.path.parent))


def test_completion_finds_the_verbs() -> None:
    assert {"account", "check", "evaluate", "load", "open", "run", "simulate", "tune"} <= set(dir(das))


def test_a_folder_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere: there is no such folder"):
        das.open(tmp_path / "nowhere")


def test_a_release_says_what_it_is(release: das.Release) -> None:
    assert repr(release) == f"Release 'example' of plan {release.plan.digest[:16]} in {release.folder.path}"
    assert "district-total.parquet" in release._repr_html_()
    assert release.query()._repr_html_().startswith("<pre>total; 95 % intervals")
    digest = release.plan.digest[:16]
    assert repr(release.plan) == f"Plan 'example': pure, budget 2, 9 measurements at 3 levels; digest {digest}"
    assert release.plan._repr_html_().startswith("<pre>")


def test_a_level_that_is_not_there_is_named_with_the_nearest_one(release: das.Release) -> None:
    with pytest.raises(UsageError, match="distrct: is not in estimates/ of this release; did you mean 'district'"):
        release.estimates("distrct")


def test_evaluate_writes_the_page_and_returns_the_errors(release: das.Release) -> None:
    out = release.folder.path.parent
    found = das.evaluate(out)
    assert {row["level"] for row in found["levels"]} == {"province", "district", "village"}
    assert (out / "confidential" / "accuracy.html").exists()
    assert "CONFIDENTIAL" in repr(found)


def test_simulate_repeats_releases_of_generated_people(config: Path) -> None:
    found = das.simulate({"now": das.load(config)}, runs=2, workers=1)
    assert found["runs"] == 2
    assert "village" in repr(found)
