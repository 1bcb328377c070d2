"""Releases whose noise was conditioned to conform: the same products, no measurements, the same bytes from one key."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import das
from das.congenial.layers import layers_of
from das.errors import BudgetError, ConfigError, UsageError
from das.evaluation.evaluate import evaluate
from das.joint import joint_account, read_source
from das.plan import Plan
from das.release.manifest import verify_release
from das.starter import write_starter

MIXED = """\
total = "1/4"
"sex * grown" = "1/4"
detailed = "1/2"
"""


def congenial(folder: Path, queries: str = 'detailed = "1"\n', more: str = "") -> Plan:
    """The starter's country with a strategy that is a tree, and the other engine."""
    path = folder / "congenial.toml"
    text = (folder / "config.toml").read_text()
    assert MIXED in text
    path.write_text(text.replace(MIXED, queries) + f'\n[estimate]\nengine = "congenial"\n{more}')
    return das.load(path)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("congenial")
    write_starter(folder / "country")
    return folder / "country"


@pytest.fixture(scope="module")
def release(home: Path) -> das.Release:
    return das.run(congenial(home), out=home / "out", testing_key="one")


def totals(release: das.Release, level: str) -> dict[str, int]:
    shown = release.counts(level).groupby("geocode", observed=True)["count"].sum()
    return {str(code): int(count) for code, count in shown.items()}


def test_everything_is_published_and_nothing_was_measured(release: das.Release, home: Path) -> None:
    folder = home / "out" / "release"
    assert verify_release(release.folder) == []
    assert not (folder / "measurements").exists()
    assert not (folder / "estimates").exists()
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert manifest["conformance"]["status"] == "verified from the published files"
    truth = pd.read_csv(home / "people.csv", dtype=str)
    places = pd.read_csv(home / "places.csv", dtype=str)
    above = truth.merge(places, on="village")["province"].value_counts()
    assert totals(release, "province") == above.to_dict()  # the invariant, exactly
    villages = {code: count for code, count in totals(release, "village").items() if count}
    assert villages != truth["village"].value_counts().to_dict()  # and noise everywhere else


def test_the_statement_says_what_was_done_and_what_is_proved(release: das.Release) -> None:
    said = release.statement
    assert said["conditioned"]["tree"].startswith("province total (not measured) > province detailed")
    assert said["conditioned"]["sampler"]["status"] == "proved"
    assert {found["policy"]: found["status"] for found in said["effective"]}["irreducible"] == "proved"
    # Laplace noise pays for conditioning: more than nominal, at most twice it.
    within = said["secrets"][0]["epsilon"]
    assert said["nominal"]["epsilon"] < within <= 2 * said["nominal"]["epsilon"] + 1e-3
    page = release.folder.report.read_text()
    assert "drawn given that" in page
    assert said["conditioned"]["tree"].split(" > ")[-1] in page


def test_one_key_gives_the_same_counts_and_another_gives_others(release: das.Release, home: Path) -> None:
    again = das.run(congenial(home), out=home / "again", testing_key="one")
    other = das.run(congenial(home), out=home / "other", testing_key="two")
    level = "village"
    assert again.counts(level).equals(release.counts(level))
    assert not other.counts(level).equals(release.counts(level))


def test_a_second_command_changes_nothing(release: das.Release, home: Path) -> None:
    before = (home / "out" / "release" / "manifest.json").read_bytes()
    das.run(congenial(home), out=home / "out", testing_key="one")
    assert (home / "out" / "release" / "manifest.json").read_bytes() == before


def test_it_can_be_evaluated(release: das.Release, home: Path) -> None:
    found = evaluate(home / "out")
    assert {row["query"] for row in found["levels"]} >= {"detailed"}
    assert (home / "out" / "confidential" / "evaluation.json").exists()


def test_totals_first_and_cells_in_the_leaves(home: Path) -> None:
    queries = 'total = "1"\n[strategy.queries.village]\ntotal = "1/2"\ndetailed = "1/2"\n'
    plan = congenial(home, queries)
    assert layers_of(plan).explain().endswith("village total > village detailed")
    release = das.run(plan, out=home / "totals", testing_key="one")
    assert verify_release(release.folder) == []


def test_counts_that_lie_about_their_noise_are_no_release(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pipelines.congenial

    monkeypatch.setattr(pipelines.congenial, "stating_noise", lambda table, measurements: table)
    with pytest.raises(BudgetError, match="planned but not measured"):
        das.run(congenial(home), out=home / "lie", testing_key="one")


def test_what_is_no_tree_is_refused_when_it_is_read(home: Path) -> None:
    with pytest.raises(ConfigError, match="not laminar"):
        congenial(home, MIXED)


def test_a_congenial_release_is_accounted_by_itself(release: das.Release, home: Path) -> None:
    source = read_source(str(home / "out"))
    assert joint_account([source]).sections["effective"]
    with pytest.raises(UsageError, match="by itself"):
        joint_account([source, source])


@pytest.mark.slow
def test_the_same_bytes_from_several_processes(release: das.Release, home: Path) -> None:
    parallel = das.run(congenial(home), out=home / "parallel", testing_key="one", options=["--runner=multi-process"])
    for level in ("province", "district", "village"):
        assert parallel.counts(level).equals(release.counts(level))
