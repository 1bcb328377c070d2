"""`das synth`: files, the statement, the ledger's charge, named refusals, and the examples of the package's page."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from das import cli
from das.errors import BudgetError, ConfigError, InfeasibleError, InputError, UsageError
from das.storage.ledger import Ledger
from das.synthesis.methods import METHODS
from das.synthesis.release import release_synthetic

PAGE = Path(__file__).resolve().parents[2] / "das" / "synthesis" / "README.md"
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
CONFIG = next(text for kind, text in BLOCKS if kind == "toml")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    age = rng.choice(["0-17", "18-64", "65+"], 600)
    work = np.where(age == "0-17", "none", rng.choice(["none", "part", "full"], 600))
    lines = [f"{sex},{a},{w}" for sex, a, w in zip(["f"] * 290 + ["m"] * 310, age, work, strict=True)]
    (tmp_path / "people.csv").write_text("sex,age,work\n" + "\n".join(lines) + "\n")
    path = tmp_path / "people.toml"
    path.write_text(CONFIG)
    return path


def changed(config: Path, *pairs: tuple[str, str]) -> Path:
    text = config.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    config.write_text(text)
    return config


def test_the_example_of_the_page(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "town"
    ran = CliRunner().invoke(cli.das, ["synth", "pairs", str(config), "--out", str(out)], catch_exceptions=False)
    assert ran.exit_code == 0
    assert ran.output.startswith("600 rows in ")
    table = pq.read_table(out / "synthetic.parquet").to_pandas()
    assert (table["sex"] == "f").sum() == 290
    assert (table.loc[table["age"] == "0-17", "work"] == "none").all()
    assert len((out / "synthetic.csv").read_text().splitlines()) == 601
    stated = json.loads((out / "privacy.json").read_text())
    assert stated["charged"] == "1/2"
    assert Fraction(stated["spent"]["total"]) <= Fraction(1, 2)
    assert sum(Fraction(step["cost"]) for step in stated["spent"]["steps"]) == Fraction(stated["spent"]["total"])
    assert "condition" in stated
    assert stated["several_records"].endswith("k^2 rho")
    ledger = Ledger.open(tmp_path / "ledger.sqlite")
    assert ledger.spent("town") == Fraction(1, 2)
    assert [entry.kind for entry in ledger.entries("town")][-2:] == ["reserve", "commit"]
    assert ledger.verify() == []


def test_the_ledger_refuses_what_the_total_does_not_hold(config: Path, tmp_path: Path) -> None:
    for number in range(4):
        release_synthetic("mst", config_without_options(config), tmp_path / f"out{number}")
    with pytest.raises(BudgetError, match="already spent"):
        release_synthetic("mst", config, tmp_path / "fifth")
    assert not (tmp_path / "fifth").exists()


def config_without_options(config: Path) -> Path:
    config.write_text(re.sub(r"\[options\].*", "", config.read_text(), flags=re.DOTALL))
    return config


@pytest.mark.parametrize("method", ["histogram", "stability", "mwem-cells"])
def test_methods_of_pure_epsilon(config: Path, tmp_path: Path, method: str) -> None:
    text = re.sub(r"\[\[invariant\]\].*", "", config.read_text(), flags=re.DOTALL)
    config.write_text(text.replace('rho = "1/2" ', 'epsilon = "2"\ndelta = "1/100000" '))
    found = release_synthetic(method, config, tmp_path / "out", testing_key="t")
    assert found["spent"]["framework"] == "pure"
    assert found["spent"]["total"] == "2"
    assert found["status"].startswith("a test")
    assert found["spent"]["delta"] == ("1/100000" if method == "stability" else "0")


@pytest.mark.parametrize(
    ("method", "epsilon", "match"),
    [
        ("exponential", "1/1000", "larger than the 600 records"),
        ("histogram", "1/10000000", "rows"),
        ("stability", "1/100", "there are 600"),
    ],
)
def test_noise_beyond_the_records_is_refused_before_anything_is_spent(
    config: Path, tmp_path: Path, method: str, epsilon: str, match: str
) -> None:
    text = re.sub(r"\[\[invariant\]\].*", "", config.read_text(), flags=re.DOTALL)
    config.write_text(text.replace('rho = "1/2" ', f'epsilon = "{epsilon}" '))
    with pytest.raises(BudgetError, match=match):
        release_synthetic(method, config, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "ledger.sqlite").exists()


def test_the_screen_shows_the_delta_of_stability(config: Path, tmp_path: Path) -> None:
    text = re.sub(r"\[\[zero\]\].*", "", config.read_text(), flags=re.DOTALL)
    config.write_text(text.replace('rho = "1/2" ', 'epsilon = "2"\ndelta = "1/100000" '))
    ran = CliRunner().invoke(cli.das, ["synth", "stability", str(config), "--out", str(tmp_path / "out")])
    assert "privacy: epsilon 2 at delta 1/100000 (replace), proved" in ran.output


def test_labels_may_be_inferred_for_stability_alone(config: Path, tmp_path: Path) -> None:
    text = re.sub(r"\[\[zero\]\].*", "", config.read_text(), flags=re.DOTALL).replace(
        'work = ["none", "part", "full"]', 'work = "inferred"'
    )
    config.write_text(text.replace('rho = "1/2" ', 'epsilon = "2" '))
    release_synthetic("stability", config, tmp_path / "out")
    assert set(pq.read_table(tmp_path / "out" / "synthetic.parquet")["work"].to_pylist()) <= {"none", "part", "full"}
    with pytest.raises(ConfigError, match="would reveal them"):
        release_synthetic("histogram", config, tmp_path / "other")


def test_numbers_by_the_gaussian(config: Path, tmp_path: Path) -> None:
    values = np.random.default_rng(2).multivariate_normal([30, 40], [[25, 5], [5, 36]], 2_000)
    (tmp_path / "people.csv").write_text("income,age\n" + "\n".join(f"{a:.3f},{b:.3f}" for a, b in values) + "\n")
    text = config.read_text().split("[columns]")[0]
    config.write_text(text + "[numbers]\ncentre = { income = 30.0, age = 40.0 }\nradius = 50.0\n")
    found = release_synthetic("gaussian", config, tmp_path / "out")
    drawn = pq.read_table(tmp_path / "out" / "synthetic.parquet").to_pandas()
    assert found["rows"] == len(drawn) == 2_000
    assert abs(drawn["income"].mean() - 30) < 1
    assert abs(drawn["age"].std() - 6) < 1


@pytest.mark.parametrize(
    ("error", "match", "pairs"),
    [
        (ConfigError, "unknown key", [("dataset =", "datset =")]),
        (ConfigError, "is no option of pairs", [("triples = 1", "triple = 1")]),
        (ConfigError, "spends rho", [('rho = "1/2"', 'epsilon = "1"')]),
        (ConfigError, "is not a label", [('["part", "full"]', '["part", "fall"]')]),
        (ConfigError, "is a float", [('rho = "1/2"', "rho = 0.5")]),
        (InputError, "is not the count", [("[290, 310]", "[291, 309]")]),
        (
            InfeasibleError,
            "sum to 601",
            [("[290, 310]", "[291, 310]"), ('neighbours = "replace"', 'records = 600\nneighbours = "replace"')],
        ),
        (
            InputError,
            "are no labels",
            [('["none", "part", "full"]', '["none", "part", "all"]'), ('["part", "full"]', '["part"]')],
        ),
        (InputError, "has no column", [("sex = [", "gender = ["), ('columns = ["sex"]', 'columns = ["gender"]')]),
        (InputError, "no such file", [("people.csv", "persons.csv")]),
        (BudgetError, "choose blindly", [('rho = "1/2"', 'rho = "1/1000000000000"')]),
        (ConfigError, "triples: is below 0", [("triples = 1", "triples = -1")]),
        (ConfigError, "strictly between 0 and 1", [("triples = 1", 'triples_share = "3/2"')]),
        (ConfigError, "label twice", [('sex = ["f", "m"]', 'sex = ["f", "m", "m"]')]),
        (ConfigError, "another total", [("[options]", "[output]\nrows = 100\n[options]")]),
        (ConfigError, "less than 1", [('rho = "1/2"', 'epsilon = "1"\ndelta = "2"')]),
    ],
)
def test_mistakes_are_named_and_nothing_is_spent(
    config: Path, tmp_path: Path, error: type[Exception], match: str, pairs: list[tuple[str, str]]
) -> None:
    with pytest.raises(error, match=match):
        release_synthetic("pairs", changed(config, *pairs), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    ledger = tmp_path / "ledger.sqlite"
    assert not ledger.exists() or Ledger.open(ledger).spent("town") == 0


def test_folders_and_names_are_checked_first(config: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a method"):
        release_synthetic("magic", config, tmp_path / "out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(UsageError, match="not an empty folder"):
        release_synthetic("pairs", config, tmp_path / "full")
    with pytest.raises(UsageError, match="cannot be made"):
        release_synthetic("pairs", config, tmp_path / "full" / "file" / "out")
    assert not (tmp_path / "ledger.sqlite").exists()


def test_a_testing_key_for_confidential_data_needs_a_word(config: Path, tmp_path: Path) -> None:
    changed(config, ('data = "generated"', 'data = "confidential"'))
    with pytest.raises(UsageError, match="testing key"):
        release_synthetic("pairs", config, tmp_path / "out", testing_key="t")
    release_synthetic("pairs", config, tmp_path / "out", testing_key="t", unprotected=True)
    assert (tmp_path / "out").stat().st_mode & 0o077 == 0
    assert (tmp_path / "out" / "synthetic.csv").stat().st_mode & 0o077 == 0


def test_a_testing_key_repeats_the_rows(config: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        release_synthetic("pairs", config, tmp_path / name, testing_key="t")
    first, second = ((tmp_path / name / "synthetic.csv").read_bytes() for name in ("one", "two"))
    assert first == second


def test_methods_are_compared_on_data_that_need_no_protection(config: Path, tmp_path: Path) -> None:
    text = re.sub(r"\[\[zero\]\].*", "", config.read_text(), flags=re.DOTALL)
    config.write_text(text.replace('rho = "1/2" ', 'epsilon = "4"\ndelta = "1/100000" '))
    page = tmp_path / "page.html"
    found = CliRunner().invoke(cli.das, ["synth-compare", str(config), "--runs", "1", "--out", str(page), "--json"])
    shown = json.loads(found.output)
    assert {row["method"] for row in shown["methods"]} == set(METHODS)
    assert all(0 < row["triples"] < 0.6 for row in shown["methods"])
    assert page.read_text().count("<svg") == 2
    changed(config, ('data = "generated"', 'data = "confidential"'))
    with pytest.raises(ConfigError, match="has no noise"):
        CliRunner().invoke(cli.das, ["synth-compare", str(config)], catch_exceptions=False)


def test_a_method_that_is_left_out_says_what_it_does_not_keep(config: Path) -> None:
    config.write_text(config.read_text().split("[options]")[0])
    changed(config, ('rho = "1/2" ', 'epsilon = "4"\ndelta = "1/100000" '))
    found = CliRunner().invoke(cli.das, ["synth-compare", str(config), "--runs", "1", "--json"])
    assert json.loads(found.output)["left_out"]["stability"] == "invariants: released cells do not keep them"


def test_the_page_names_every_method() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in (*METHODS, "gaussian"))


def test_the_library_example_of_the_page() -> None:
    exec(next(text for kind, text in BLOCKS if kind == "python"), {})


@pytest.mark.parametrize(
    ("method", "match"),
    [
        ("mst", r"people\.toml: options\.triples: is no option of mst; it has none: leave it out$"),
        ("aim", r"people\.toml: options\.triples: is no option of aim; there are degree, "),
        ("gaussion", "there are pairs, .*graphical.*gaussian"),
    ],
)
def test_what_a_method_does_not_take_is_named_with_the_config(
    config: Path, tmp_path: Path, method: str, match: str
) -> None:
    with pytest.raises((ConfigError, UsageError), match=match):
        release_synthetic(method, config, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_wrong_kind_of_budget_is_named_with_the_config(config: Path, tmp_path: Path) -> None:
    config.write_text(config.read_text().split("[options]")[0])
    with pytest.raises(
        ConfigError, match=r"people\.toml: privacy: this method spends epsilon; give epsilon and no rho"
    ):
        release_synthetic("histogram", config, tmp_path / "out")
