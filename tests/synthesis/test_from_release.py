"""Records for every leaf of a release, with columns of a model: exact counts, the model's conditional distribution."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import das
from das import cli
from das.demo.starter import write_starter
from das.errors import ConfigError, InfeasibleError, InputError, ProblemsFound, UsageError
from das.plan.geography import spine_of
from das.schema.counts import ProtectedCounts
from das.storage.counts import table_of_counts
from das.synthesis.domain import Zero
from das.synthesis.exchange import PlaceGoals, exchanged
from das.synthesis.from_release import extend_release
from das.synthesis.graphical.model_file import StoredModel, model_content, raked, read_model
from das.synthesis.release import release_synthetic

SURVEY = """
name = "survey"
[input]
file = "survey.csv"
dataset = "people"
data = "generated"
[privacy]
rho = "4"
[columns]
work = ["none", "part", "full"]
grown = ["adult", "minor"]
sex = ["f", "m"]
county = ["01", "02", "11"]
home = ["own", "rent"]
[[zero]]
labels = { grown = ["minor"], work = ["part", "full"] }
"""


def survey(folder: Path, *, minor: str = "minor") -> Path:
    """Synthetic records of people among whom work depends on sex, and homes on the county."""
    rng = np.random.default_rng(4)
    n = 3_000
    grown, sex = rng.choice([minor, "adult"], n, p=[0.3, 0.7]), rng.choice(["f", "m"], n)
    county = rng.choice(["01", "02", "11"], n)
    full = np.where(sex == "m", 0.7, 0.3)
    work = np.where(grown == minor, "none", np.where(rng.random(n) < full, "full", rng.choice(["none", "part"], n)))
    home = np.where(rng.random(n) < np.where(county == "01", 0.9, 0.2), "own", "rent")
    lines = [",".join(each) for each in zip(work, grown, sex, county, home, strict=True)]
    (folder / "survey.csv").write_text("work,grown,sex,county,home\n" + "\n".join(lines) + "\n")
    (folder / "survey.toml").write_text(SURVEY.replace("minor", minor))
    release_synthetic("pairs", folder / "survey.toml", folder / "survey", testing_key="t")
    return folder / "survey"


@pytest.fixture(scope="module")
def surveyed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return survey(tmp_path_factory.mktemp("survey"))


@pytest.fixture
def model(surveyed: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(surveyed, tmp_path / "model"))


@pytest.fixture
def released(country: Any) -> Path:
    """The public files of a release, with counts of its leaves made up."""
    plan, spine = country.plan(), spine_of(country.plan())
    rng = np.random.default_rng(7)
    table = rng.poisson(9.0, (len(spine.leaves), plan.schema.size)) * plan.schema.possible
    unit, cell = np.nonzero(table)
    folder = country.folder / "out" / "release"
    for name in ("counts", "facts"):
        (folder / name).mkdir(parents=True)
    (folder / "config.toml").write_bytes((country.folder / "config.toml").read_bytes())
    (folder / "units.csv").write_bytes((country.folder / "units.csv").read_bytes())
    spine.save(folder / "facts" / "spine.parquet")
    counts = ProtectedCounts(unit, cell, table[unit, cell])
    pq.write_table(table_of_counts(plan.schema, spine.leaves, counts), folder / "counts" / "block.parquet")
    stated = {
        "release": "tiny",
        "plan_digest": plan.digest,
        "relation": {"unit": "person", "kind": "replace"},
        "nominal": {"rho": "1/2", "epsilon": 6.84, "delta": 1e-10},
        "seeded": False,
    }
    (folder / "privacy.json").write_text(json.dumps(stated))
    (folder / "manifest.json").write_text("{}")
    return country.folder / "out"


def tabulated(frame: Any, *names: str) -> dict[Any, int]:
    return frame.groupby(list(names), observed=True).size().to_dict()


def test_rows_tabulate_to_the_release_and_follow_the_model(released: Path, model: Path, tmp_path: Path) -> None:
    stated = extend_release(released, model, tmp_path / "rows")
    rows = pq.read_table(tmp_path / "rows" / "synthetic.parquet").to_pandas()
    counts = pq.read_table(released / "release" / "counts" / "block.parquet").to_pandas()
    wanted = {(row["geocode"], row["sex"], row["age"]): row["count"] for _, row in counts.iterrows()}
    assert tabulated(rows, "GEOID", "sex", "age") == wanted
    assert stated["rows"] == len(rows) == sum(wanted.values())
    assert (stated["matched"], stated["added"]) == (["grown", "sex", "county"], ["work", "home"])
    assert (rows.loc[rows["age"] == "0-17", "work"] == "none").all(), "the model's structural zero"

    fitted = read_model(model / "model.json").model()
    shares = fitted.marginal(("grown", "sex", "county", "work", "home"))
    shares = shares / shares.sum(axis=(3, 4), keepdims=True)
    labels = read_model(model / "model.json").labels
    rows["grown"] = np.where(rows["age"] == "0-17", "minor", "adult")
    rows["county"] = rows["GEOID"].str[:2]
    gaps = []
    for column, axis in (("work", 4), ("home", 3)):
        for (grown, sex, county), part in rows.groupby(["grown", "sex", "county"]):
            at = tuple(labels[n].index(v) for n, v in (("grown", grown), ("sex", sex), ("county", county)))
            expected = len(part) * shares[at].sum(axis=axis - 3)
            found = [int((part[column] == label).sum()) for label in labels[column]]
            gaps.append(np.abs(found - expected))
    assert max(map(np.max, gaps)) < 1.5, "rounded in place"
    in_first = rows.loc[rows["county"] == "01", "home"]
    assert (in_first == "own").mean() > 0.8, "a column named for a level is matched by geocode"


def test_the_statement_charges_nothing_and_names_both_releases(released: Path, model: Path, tmp_path: Path) -> None:
    stated = extend_release(released, model, tmp_path / "rows", match=["sex", "grown"])
    assert stated == json.loads((tmp_path / "rows" / "privacy.json").read_text())
    assert stated["charged"] == "0"
    assert stated["status"].startswith("a test"), "the survey was drawn with a testing key"
    assert stated["together"]["rho"] == "9/2"
    assert stated["together"]["epsilon_upper"] > 4.5
    assert [each.get("release", each.get("name")) for each in stated["releases"]] == ["tiny", "survey"]
    assert stated["matched"] == ["grown", "sex"]
    assert not (tmp_path / "ledger.sqlite").exists()
    header = (tmp_path / "rows" / "synthetic.csv").read_text().splitlines()[0]
    assert header == "GEOID,sex,age,work,home"


def test_the_same_two_releases_give_the_same_rows(released: Path, model: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        extend_release(released, model, tmp_path / name)
    assert (tmp_path / "one" / "synthetic.csv").read_bytes() == (tmp_path / "two" / "synthetic.csv").read_bytes()


def test_private_inputs_make_private_rows(released: Path, model: Path, tmp_path: Path) -> None:
    model.chmod(0o700)
    extend_release(released, model, tmp_path / "rows")
    assert (tmp_path / "rows").stat().st_mode & 0o077 == 0
    assert (tmp_path / "rows" / "synthetic.csv").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("match", "old", "new"),
    [
        ("is not a label", '"m"', '"x"'),
        ("rules out cells", '"zeros": [', '"zeros": [{"columns": ["sex"], "cells": [1]}, '),
        ("has no column that the release does not have", '"work"', '"age"'),
    ],
)
def test_models_that_do_not_fit_are_named(
    released: Path, model: Path, tmp_path: Path, match: str, old: str, new: str
) -> None:
    path = model / "model.json"
    text = json.dumps(json.loads(path.read_text()))
    assert old in text
    path.write_text(text.replace(old, new).replace('"home"', '"state"' if "has no" in match else '"home"'))
    with pytest.raises(ProblemsFound, match=match):
        extend_release(released, path.parent, tmp_path / "rows")
    assert not (tmp_path / "rows").exists()


def test_a_model_of_other_columns_is_refused(released: Path, model: Path, tmp_path: Path) -> None:
    path = model / "model.json"
    text = path.read_text()
    for name in ("sex", "grown", "county"):
        text = text.replace(f'"{name}"', f'"other {name}"')
    path.write_text(text)
    with pytest.raises(ConfigError, match="shares no column"):
        extend_release(released, path.parent, tmp_path / "rows")


def test_other_refusals(released: Path, model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a column of the model"):
        extend_release(released, model, tmp_path / "rows", match=["sex", "shoe"])
    with pytest.raises(UsageError, match="not an empty folder"):
        extend_release(released, model, model)
    with pytest.raises(UsageError, match="not a folder that `das synth` wrote"):
        extend_release(released, tmp_path, tmp_path / "rows")
    (released / "release" / "manifest.json").unlink()
    with pytest.raises(UsageError, match="no finished release"):
        extend_release(released, model, tmp_path / "rows")
    (model / "model.json").write_text('{"columns": 3}')
    with pytest.raises(InputError, match="not a model file"):
        read_model(model / "model.json")
    (model / "model.json").unlink()
    (released / "release" / "manifest.json").write_text("{}")
    with pytest.raises(UsageError, match=r"writes no model.*`pairs`"):
        extend_release(released, model, tmp_path / "rows")


def test_a_zero_where_the_release_counts_people_is_refused() -> None:
    nobody = Zero(("sex",), np.array([False, True]))
    stored = StoredModel({"sex": ("f", "m"), "work": ("no", "yes")}, 4.0, (nobody,), {})
    with pytest.raises(InfeasibleError, match="rules out cells"):
        raked(stored, np.array([1, 1]), ("sex",))


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_raking_keeps_conditionals_and_is_exact_by_brute_force(seed: int) -> None:
    """On a tree of several nodes, with a zero, against the table of all cells."""
    rng = np.random.default_rng(seed)
    shape = {"a": 2, "b": 3, "c": 2, "d": 3}
    labels = {name: tuple(map(str, range(size))) for name, size in shape.items()}
    parameters = {
        key: rng.normal(size=tuple(shape[n] for n in key)) for key in (("a", "b"), ("b", "c"), ("c", "d"), ("d",))
    }
    impossible = np.zeros((3, 3), dtype=bool)
    impossible[0, 0] = True
    stored = StoredModel(labels, 7.0, (Zero(("b", "d"), impossible),), parameters)
    table = np.zeros((2, 3, 2, 3))
    for key, values in parameters.items():
        table = table + values.reshape(tuple(shape[n] if n in key else 1 for n in shape))
    table = np.exp(table) * ~impossible[None, :, None, :]
    np.testing.assert_allclose(stored.model().marginal(tuple(shape)), 7 * table / table.sum(), rtol=1e-9)
    counts = rng.integers(0, 5, (2, 3))
    counts[0, 0] += 1
    found = raked(stored, counts, ("a", "d")).marginal(tuple(shape))
    given_ad = table / table.sum(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(found, given_ad * counts[:, None, None, :], atol=1e-9)


def test_a_model_file_holds_the_model(model: Path) -> None:
    stored = read_model(model / "model.json")
    again = model_content(stored.model(), {name: list(each) for name, each in stored.labels.items()})
    assert again == json.loads((model / "model.json").read_text())
    rows = pq.read_table(model / "synthetic.parquet").to_pandas()
    expected = stored.model().marginal(("sex", "work"))
    found = [[((rows["sex"] == s) & (rows["work"] == w)).sum() for w in stored.labels["work"]] for s in ("f", "m")]
    assert np.abs(expected - found).max() < 2


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000))
def test_exchanges_keep_groups_and_approach_the_goals(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 60
    columns, group = rng.integers(0, 3, (n, 2)), rng.integers(0, 4, n)
    leaf = rng.integers(0, 6, n)
    levels = [
        PlaceGoals(unit, tuple(np.tile(np.bincount(unit, minlength=k)[:, None] / 3, 3) for _ in range(2)))
        for unit, k in ((leaf, 6), (leaf // 3, 2))
    ]

    def distance(of: np.ndarray) -> float:
        total = 0.0
        for level in levels:
            for place, goal in enumerate(level.expected):
                counts = np.bincount(level.unit * 3 + of[:, place], minlength=goal.size).reshape(goal.shape)
                total += float(((counts - goal) ** 2).sum())
        return total

    done = exchanged(columns, group, levels, rng, sweeps=20)
    for each in range(4):
        assert sorted(map(tuple, done[group == each])) == sorted(map(tuple, columns[group == each]))
    assert distance(done) <= distance(columns) + 1e-9
    fixed = exchanged(columns, np.arange(n), levels, rng, sweeps=3)
    assert np.array_equal(fixed, columns), "groups of one row have nobody to exchange with"


def test_exchanges_beat_a_random_assignment_everywhere() -> None:
    rng = np.random.default_rng(2)
    n, places = 20_000, 200
    leaf = np.sort(rng.integers(0, places, n))
    group = rng.integers(0, 12, n)
    columns = rng.integers(0, 4, (n, 1))
    goal = np.tile(np.bincount(leaf, minlength=places)[:, None] / 4, 4)
    done = exchanged(columns, group, [PlaceGoals(leaf, (goal,))], rng, sweeps=30)
    gap, before = (
        np.abs(np.bincount(leaf * 4 + each[:, 0], minlength=4 * places) - goal.reshape(-1)).mean()
        for each in (done, columns)
    )
    assert before > 2.5
    assert gap < 0.7


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["out", "--from-release", "--out", "x"], "needs a release and a model"),
        (["pairs", "--out", "x"], "needs a config"),
        (["pairs", "c.toml", "--model", "m", "--out", "x"], "belong to --from-release"),
        (["out", "--from-release", "--model", "m", "--testing-key", "t", "--out", "x"], "draws no noise"),
    ],
)
def test_commands_that_mix_both_uses_are_refused(arguments: list[str], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        CliRunner().invoke(cli.das, ["synth", *arguments], catch_exceptions=False)


@pytest.mark.slow
def test_from_a_real_release_by_the_command(tmp_path: Path) -> None:
    plan = das.load(write_starter(tmp_path / "input"))
    release = das.run(plan, out=tmp_path / "out", testing_key="t")
    model = survey(tmp_path, minor="child")
    arguments = ["synth", str(tmp_path / "out"), "--from-release", "--model", str(model), "--out", str(tmp_path / "x")]
    ran = CliRunner().invoke(cli.das, arguments, catch_exceptions=False)
    assert ran.exit_code == 0
    assert "nothing is charged" in ran.output
    rows = pq.read_table(tmp_path / "x" / "synthetic.parquet").to_pandas()
    rows["grown"] = np.where(rows["age"] == "0-14", "child", "adult")
    table, found = release.table("village", "sex * grown"), rows.groupby(["GEOID", "sex", "grown"]).size()
    for place in table.index:
        for sex in ("f", "m"):
            for grown in ("child", "adult"):
                assert table.loc[place, f"{sex}_by_{grown}"] == found.get((place, sex, grown), 0)
