"""Releases whose noise was conditioned to conform: the same products, no measurements, the same bytes from one key."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import das
import das.congenial.family
import pipelines.confidential_stages
import pipelines.stages.congenial
from das.demo.starter import write_starter
from das.errors import BudgetError, ConfigError
from das.evaluation.evaluate import evaluate
from das.plan.plan import Plan
from das.plan.tree_of_counts import tree_of
from das.promise.joint import joint_account
from das.promise.sources import read_source
from das.release.manifest import verify_release
from das.runner import StageTime, find_runner
from pipelines.stages.congenial import Congenial

MIXED = """\
total = "1/4"
"sex * grown" = "1/4"
detailed = "1/2"
"""


def congenial(folder: Path, queries: str = 'detailed = "1"\n', more: str = "") -> Plan:
    """The starter's country with a strategy that is a tree, and the congenial method."""
    path = folder / "congenial.toml"
    text = (folder / "config.toml").read_text()
    assert MIXED in text
    path.write_text(text.replace(MIXED, queries) + f'\n[estimate]\nmethod = "congenial"\n{more}')
    return das.load(path)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("congenial")
    write_starter(folder / "country")
    return folder / "country"


@pytest.fixture(scope="module")
def release(home: Path) -> das.Release:
    return das.run(congenial(home), out=home / "out", testing_key="one")


def drawn(folder: Path, level: str = "village") -> pd.DataFrame:
    """The counts of a level, from a folder in which the run may have stopped after the draw."""
    return pd.read_parquet(folder / "release" / "counts" / f"{level}.parquet")


def draw(plan: Plan, out: Path, key: str) -> pd.DataFrame:
    """The counts that a key draws; nothing after the draw is run."""
    find_runner().run(plan, out, upto="measure", testing_key=key)
    return drawn(out)


@dataclass(frozen=True)
class Repeated:
    """The draw of the same key again: its counts, its times, and the reach of the windows of each attempt."""

    counts: pd.DataFrame
    measure: StageTime
    reaches: tuple[float, ...]


def counting(reaches: list[float]) -> type[Congenial]:
    """The transform, which also notes the reach of the windows of each attempt."""

    class Counted(Congenial):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            reaches.append(self.reach)

    return Counted


@pytest.fixture(scope="module")
def repeated(home: Path) -> Repeated:
    times: dict[str, StageTime] = {}
    reaches: list[float] = []
    out = home / "repeated"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipelines.stages.congenial, "Congenial", counting(reaches))
        find_runner().run(
            congenial(home),
            out,
            upto="measure",
            testing_key="one",
            stopwatch=lambda time: times.update({time.stage: time}),
        )
    return Repeated(drawn(out), times["measure"], tuple(reaches))


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
    statement = release.statement
    assert statement["conditioned"]["tree"].startswith("province total (not measured) > province detailed")
    assert statement["conditioned"]["sampler"]["status"] == "proved"
    assert {found["policy"]: found["status"] for found in statement["effective"]}["irreducible"] == "proved"
    # Laplace noise pays for conditioning: more than nominal, at most twice it.
    within = statement["secrets"][0]["epsilon"]
    assert statement["nominal"]["epsilon"] < within <= 2 * statement["nominal"]["epsilon"] + 1e-3
    page = release.folder.report.read_text()
    assert "drawn given that" in page
    assert statement["conditioned"]["tree"].split(" > ")[-1] in page


@pytest.mark.slow
def test_one_key_gives_the_same_counts_and_another_gives_others(
    release: das.Release, home: Path, repeated: Repeated
) -> None:
    assert repeated.counts.equals(release.counts("village"))
    assert not draw(congenial(home), home / "other", "two").equals(repeated.counts)


def test_a_second_command_changes_nothing(release: das.Release, home: Path) -> None:
    before = (home / "out" / "release" / "manifest.json").read_bytes()
    das.run(congenial(home), out=home / "out", testing_key="one")
    assert (home / "out" / "release" / "manifest.json").read_bytes() == before


def test_it_can_be_evaluated(release: das.Release, home: Path) -> None:
    found = evaluate(home / "out")
    assert {row["query"] for row in found["levels"]} >= {"detailed"}
    assert (home / "out" / "confidential" / "evaluation.json").exists()


@pytest.mark.slow
def test_totals_first_and_cells_in_the_leaves(home: Path) -> None:
    queries = 'total = "1"\n[strategy.queries.village]\ntotal = "1/2"\ndetailed = "1/2"\n'
    plan = congenial(home, queries)
    assert tree_of(plan).explain().endswith("village total > village detailed")
    release = das.run(plan, out=home / "totals", testing_key="one")
    assert verify_release(release.folder) == []


@pytest.mark.slow
def test_counts_that_lie_about_their_noise_are_no_release(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines.stages.congenial, "with_noise_stated", lambda table, measurements: table)
    with pytest.raises(BudgetError, match="planned but not measured"):
        das.run(congenial(home), out=home / "lie", testing_key="one")


def test_what_is_no_tree_is_refused_when_it_is_read(home: Path) -> None:
    with pytest.raises(ConfigError, match="not laminar"):
        congenial(home, MIXED)


@pytest.mark.slow
def test_two_congenial_releases_are_accounted_together(release: das.Release, home: Path) -> None:
    source = read_source(str(home / "out"))
    alone, twice = (joint_account([source] * times).sections["effective"] for times in (1, 2))
    for one, two in zip(alone, twice, strict=True):
        assert two["status"] == one["status"] == "proved"
        assert two["epsilon"] == pytest.approx(2 * one["epsilon"])  # pure: each loss and each sampler's error counts


@pytest.mark.slow
def test_windows_that_are_too_narrow_at_first_give_the_same_draw(
    release: das.Release, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelines.confidential_stages, "REACHES", (0.5, *pipelines.confidential_stages.REACHES))
    assert draw(congenial(home), home / "widened", "one").equals(release.counts("village"))


@pytest.mark.slow
def test_extended_range_draws_the_same_counts_from_the_same_key(
    release: das.Release, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No windows of doubles hold: the run does not refuse, it computes otherwise, with the same words and law."""
    monkeypatch.setattr(pipelines.confidential_stages, "REACHES", ())
    assert draw(congenial(home), home / "extended", "one").equals(release.counts("village"))


@pytest.mark.slow
def test_splits_that_doubles_do_not_prove_are_drawn_all_the_same(
    release: das.Release, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No error is allowed to doubles, so every split is made in extended range; the draw is the same."""
    monkeypatch.setattr(das.congenial.family, "_SPLITS_ROUNDED", 0.0)
    assert draw(congenial(home), home / "unproved", "one").equals(release.counts("village"))


CROWD = """\
[release]
name = "crowd"

[privacy]
framework = "pure"
epsilon = "2"

[input]
data = "generated"
microdata = "people.csv"

[geography]
units = "units.csv"
levels = [{ name = "state", width = 1 }, { name = "county", width = 1 }, { name = "block", width = 3 }]

[[schema.attribute]]
name = "sex"
labels = ["f", "m"]

[strategy.geolevels]
state = "1/6"
county = "1/3"
block = "1/2"

[strategy.queries.all]
detailed = "1"

[[invariant]]
query = "total"
level = "state"
reason = "law"

[estimate]
method = "congenial"
"""


@pytest.mark.slow
def test_data_that_no_doubles_hold_are_published_like_their_neighbours(tmp_path: Path) -> None:
    """A thousand people in one block of fifty: whether one of them lives elsewhere decides no more than the time."""
    codes = [f"0{county}{block:03d}" for county in range(5) for block in range(10)]
    (tmp_path / "units.csv").write_text("geocode\n" + "".join(f"{code}\n" for code in codes))
    (tmp_path / "crowd.toml").write_text(CROWD)
    for moved in (0, 1):
        rows = [(codes[0], "f")] * (1000 - moved) + [(codes[17], "m")] * moved
        (tmp_path / "people.csv").write_text("geocode,sex\n" + "".join(f"{code},{sex}\n" for code, sex in rows))
        out = tmp_path / f"out {moved}"
        find_runner().run(das.load(tmp_path / "crowd.toml"), out, upto="measure", testing_key="one")
        assert drawn(out, "block")["count"].sum() == 1000


def test_what_is_refused_for_public_reasons_is_refused_when_it_is_read(home: Path) -> None:
    text = (home / "config.toml").read_text()
    (home / "config.toml").write_text(text.replace('epsilon = "2"', 'epsilon = "1/100"'))
    try:
        with pytest.raises(ConfigError, match="can prove") as caught:
            congenial(home)
    finally:
        (home / "config.toml").write_text(text)
    levels = ("province", "district", "village")
    assert [problem.where for problem in caught.value.problems] == [f"strategy.queries.{level}" for level in levels]


def test_presence_is_not_promised_by_conditioned_noise(home: Path) -> None:
    text = (home / "config.toml").read_text()
    bare = text[: text.index("[[invariant]]")].replace('"replace"', '"add-remove"').replace(MIXED, 'detailed = "1"\n')
    (home / "presence.toml").write_text(bare)
    assert das.load(home / "presence.toml").mechanism_stage.measures
    (home / "presence.toml").write_text(bare + '[estimate]\nmethod = "congenial"\n')
    with pytest.raises(ConfigError, match="not accounted"):
        das.load(home / "presence.toml")


def test_a_table_of_an_earlier_release_is_no_fact_for_conditioned_noise(home: Path) -> None:
    earlier = '\n[[published]]\nquery = "detailed"\nlevel = "district"\nsource = "out"\n'
    with pytest.raises(ConfigError, match="facts that the true counts keep"):
        congenial(home, more=earlier)


def test_every_step_has_its_time(repeated: Repeated) -> None:
    steps = repeated.measure.steps
    levels = ("province", "district", "village")
    expected = {f"{verb} {level}" for verb in ("read", "draw", "send down", "write") for level in levels}
    expected |= {f"{verb} {level}" for verb in ("send up from", "carry up") for level in levels[1:]} | {"name cells"}
    assert set(steps) == expected - {"send down village"}  # nobody is below a leaf
    assert all(step.calls and step.seconds > 0 for step in steps.values())


@pytest.mark.slow
def test_the_same_bytes_from_several_processes(release: das.Release, home: Path) -> None:
    parallel = das.run(congenial(home), out=home / "parallel", testing_key="one", options=["--runner=multi-process"])
    for level in ("province", "district", "village"):
        assert parallel.counts(level).equals(release.counts(level))
