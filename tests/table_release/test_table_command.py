"""`das table`: files, the statement, the ledger's charge, named refusals, and the example of its page."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from das import cli
from das.accounting.conditioning import conditional_law
from das.accounting.events import GaussianEvent, LaplaceEvent
from das.accounting.policies import guarantee, secret_guarantee
from das.accounting.small_table.dataspace import TableFacts, data_space
from das.accounting.small_table.margins import margin_invariants
from das.accounting.small_table.plan import TablePlan
from das.errors import BudgetError, ConfigError, InfeasibleError, InputError, NothingToPromise, UsageError
from das.release.manifest import verify_release
from das.storage.layout import ReleaseFolder
from das.storage.ledger import Ledger
from das.table.example import AGES, MINORS
from das.table.example import COUNTS as SEX_BY_AGE_COUNTS
from das.table.neighbours import neighbours_of
from das.table_release.mechanisms import MECHANISMS, ConditioningMechanism, Promise
from das.table_release.plan import plan_table, plan_text
from das.table_release.release import release_table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "table.md"
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
CONFIG = next(text for kind, text in BLOCKS if kind == "toml")
TABLE = next(text for kind, text in BLOCKS if kind == "csv")
COUNTS = np.array([31, 88, 24, 35, 79, 9]).reshape(2, 3)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "town.csv").write_text(TABLE)
    path = tmp_path / "town.toml"
    path.write_text(CONFIG)
    return path


def changed(config: Path, *pairs: tuple[str, str]) -> Path:
    text = config.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    config.write_text(text)
    return config


def counts_of(out: Path, column: str = "count") -> np.ndarray:
    return pq.read_table(out / "release" / "table.parquet")[column].to_numpy().reshape(2, 3)


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_release_keeps_its_margins_and_is_charged(name: str, config: Path, tmp_path: Path) -> None:
    changed(config, ('"k-norm" ', f'"{name}" '), ('epsilon = "1" ', 'rho = "1/8" '))
    out = tmp_path / "out"
    ran = CliRunner().invoke(cli.das, ["table", str(config), "--out", str(out)], catch_exceptions=False)
    assert ran.exit_code == 0
    assert "semi, a(t) = 3: epsilon" in ran.output
    drawn = counts_of(out)
    assert np.array_equal(drawn.sum(axis=0), COUNTS.sum(axis=0))
    assert np.array_equal(drawn.sum(axis=1), COUNTS.sum(axis=1))
    fitted = counts_of(out, "nonnegative")
    assert (fitted >= 0).all()
    assert np.array_equal(fitted.sum(axis=0), COUNTS.sum(axis=0))
    stated = json.loads((out / "release" / "privacy.json").read_bytes())
    assert stated["charged"] == "1/8"
    assert [each["policy"] for each in stated["effective"]] == ["semi", "irreducible"]
    assert stated["adjacency"]["a"] == 3
    assert stated["status"] == "proved"
    assert ("at delta" in stated["promise"]) == (name == "conditioning")  # its sampler's error, never left out
    assert verify_release(ReleaseFolder(out / "release")) == []
    lines = (out / "release" / "table.csv").read_text().splitlines()
    assert lines[0] == "sex,age,count,nonnegative"
    assert len(lines) == 7
    assert "What is promised" in (out / "release" / "privacy.html").read_text()
    ledger = Ledger.open(tmp_path / "ledger.sqlite")
    assert ledger.spent("town") == Fraction(1, 8)
    assert [entry.kind for entry in ledger.entries("town")][-2:] == ["reserve", "commit"]


def test_the_example_of_the_page(config: Path, tmp_path: Path) -> None:
    planned = CliRunner().invoke(cli.das, ["table", "plan", str(config), "--json"], catch_exceptions=False)
    found = json.loads(planned.output)
    assert found["recommended"] == "k-norm"
    assert "Gaussian noise makes no pure promise" in found["left_out"]["gaussian"]
    assert not (tmp_path / "ledger.sqlite").exists()
    assert "recommended: k-norm" in plan_text(found)
    stated = release_table(config, tmp_path / "out")
    assert stated["effective"][0]["epsilon"] == 1.0
    assert Ledger.open(tmp_path / "ledger.sqlite").spent("town") == 1
    for _ in range(2):
        release_table(config, tmp_path / f"again{_}")
    with pytest.raises(BudgetError, match="already spent"):
        release_table(config, tmp_path / "fourth")
    assert not (tmp_path / "fourth").exists()


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_published_table_of_two_by_twenty_three(name: str, tmp_path: Path) -> None:
    sexes = ("f", "m")
    cells = list(product(sexes, AGES))
    text = "\n".join(f"{sex},{age},{count}" for (sex, age), count in zip(cells, SEX_BY_AGE_COUNTS, strict=True))
    (tmp_path / "t.csv").write_text(f"sex,age,n\n{text}\n")
    (tmp_path / "t.toml").write_text(f"""
name = "sex by age"
[input]
file = "t.csv"
count = "n"
dataset = "published"
data = "public"
[columns]
sex = ["f", "m"]
age = {json.dumps(AGES)}
[privacy]
epsilon = "3"
delta = "1/1000000"
[mechanism]
name = "{name}"
[[invariant]]
columns = ["sex"]
[[invariant]]
labels = {{ age = {json.dumps(AGES[:MINORS])} }}
""")
    stated = release_table(tmp_path / "t.toml", tmp_path / "out", testing_key="t")
    semi, irreducible = stated["effective"]
    assert stated["adjacency"] == {"a": 3, "grounds": "two crossing sets of totals"}
    assert irreducible["epsilon"] <= semi["epsilon"] <= 3.0
    table = pq.read_table(tmp_path / "out" / "release" / "table.parquet")
    for column in ("count", "nonnegative"):
        drawn = table[column].to_numpy().reshape(2, 23)
        assert drawn.sum(axis=1).tolist() == [130, 126]
        assert drawn[:, :MINORS].sum() == 43
    assert (drawn >= 0).all()
    assert not np.array_equal(table["count"].to_numpy(), SEX_BY_AGE_COUNTS)


def test_records_and_counts_are_one_table(config: Path, tmp_path: Path) -> None:
    first = release_table(config, tmp_path / "counts", testing_key="t")
    rows = [line.split(",") for line in TABLE.splitlines()[1:]]
    people = [f"{sex},{age}" for sex, age, count in rows for _ in range(int(count))]
    (tmp_path / "town.csv").write_text("sex,age\n" + "\n".join(people) + "\n")
    second = release_table(changed(config, ('count = "people"', "")), tmp_path / "records", testing_key="t")
    assert first["facts_digest"] == second["facts_digest"]
    assert first["status"].startswith("a test")
    assert first["seeded"]


def test_other_facts(config: Path, tmp_path: Path) -> None:
    text = config.read_text()
    head = text[: text.index("[[invariant]]")]
    facts = """
[[invariant]]
labels = { age = ["18-64", "65+"] }
counts = 200
[[bound]]
labels = { sex = "m", age = "65+" }
least = 1
most = 40
[[zero]]
labels = { sex = "m", age = "0-17" }
[[secret]]
before = { sex = "f", age = "65+" }
after = { sex = "m", age = "65+" }
"""
    config.write_text(head + facts)
    (tmp_path / "town.csv").write_text(TABLE.replace("m,0-17,35\n", ""))
    stated = release_table(config, tmp_path / "out")
    assert stated["adjacency"] == {"a": 2, "grounds": "nested totals"}
    drawn = counts_of(tmp_path / "out")
    assert drawn[1, 0] == 0
    assert drawn[:, 1:].sum() == 200
    assert drawn[0, 0] == 31
    assert stated["disclosed"] == ["f*0-17"]
    assert 1 <= counts_of(tmp_path / "out", "nonnegative")[1, 2] <= 40
    assert stated["effective"][1]["condition"].startswith("where no public bound binds")


@pytest.mark.parametrize(
    ("old", "new", "error", "match"),
    [
        ('name = "k-norm"', 'name = "magic"', ConfigError, "mechanism.name"),
        ('epsilon = "1" ', "epsilon = 0.5 ", ConfigError, "privacy.epsilon"),
        ('epsilon = "1" ', 'epsilon = "1"\nrho = "1" ', ConfigError, "a budget is rho"),
        ('epsilon = "1" ', 'epsilon = "1"\ndelta = "2" ', ConfigError, "less than 1"),
        ("nonnegative = true", "nonegative = true", ConfigError, "nonnegative"),
        ('columns = ["sex"]', 'columns = ["sexx"]', ConfigError, "not a column"),
        ('after = { sex = "m"', 'after = { sex = "x"', ConfigError, "not a label"),
        ('columns = ["sex"]', 'columns = ["sex"]\ncounts = [1, 2]', InputError, "not those of the file"),
        ('columns = ["sex"]', 'columns = ["sex", "age"]', NothingToPromise, "one table"),
        ('file = "town.csv"', 'file = "nowhere.csv"', InputError, "no such file"),
        ('count = "people"', 'count = "age"', ConfigError, "one of the columns"),
        ('columns = ["sex"]', 'columns = ["count"]', ConfigError, "not a column"),
        ('age = ["0-17", ', 'age = ["0-16", ', InputError, "complete its labels"),
        ('name = "k-norm"', 'name = "gaussian"', ConfigError, "no pure promise"),
        ('epsilon = "1" ', 'epsilon = "1"\nadjacency = 2 ', ConfigError, "below a"),
    ],
)
def test_mistakes_are_named_before_anything_is_spent(
    old: str, new: str, error: type[Exception], match: str, config: Path, tmp_path: Path
) -> None:
    with pytest.raises(error, match=match):
        release_table(changed(config, (old, new)), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "ledger.sqlite").exists()


def test_files_that_hold_no_table(config: Path, tmp_path: Path) -> None:
    for text, match in [
        (TABLE.replace("31", "3.5"), "some values of 'people' are not counts"),
        (TABLE.replace("31", "-3"), "are not counts"),
        (TABLE + "f,0-17,4\n", "two rows"),
        (re.sub(r"\d+$", "0", TABLE, flags=re.MULTILINE), "holds nobody"),
        ("sex,age,people\n", "holds no rows"),
    ]:
        (tmp_path / "town.csv").write_text(text)
        with pytest.raises(InputError, match=match):
            release_table(config, tmp_path / "out")


def test_contradicting_bounds_and_used_folders(config: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").touch()
    with pytest.raises(UsageError, match="empty folder"):
        release_table(config, tmp_path / "out")
    (tmp_path / "wide.toml").write_text(
        CONFIG[: CONFIG.index("[[secret]]")].replace('["f", "m"]', json.dumps([f"l{i}" for i in range(400)]))
    )
    with pytest.raises(ConfigError, match=r"1,200 cells.*das synth"):
        plan_table(tmp_path / "wide.toml")
    for command in (["table", "plan", "x", "y"], ["table", str(config)], ["table", "plan", str(config), "--out", "d"]):
        ran = CliRunner().invoke(cli.das, command)
        assert ran.exit_code == 2
    with pytest.raises(InfeasibleError):
        neighbours_of(TableFacts(cells=2, values=(), records=3, bounds=(((1, 0), 5, 9),)))


@pytest.mark.parametrize("x", [(2, 1, 1, 1), (3, 0, 1, 1, 0, 1)], ids=["2 x 2", "2 x 3"])
def test_numbers_are_those_of_the_accountant_and_not_below_enumeration(x: tuple[int, ...]) -> None:
    shape = (2, len(x) // 2)
    rows = margin_invariants(shape, [(0,), (1,)])
    facts = TableFacts(cells=len(x), invariants=rows, values=tuple(int(np.dot(row, x)) for row in rows), records=sum(x))
    near, space = neighbours_of(facts), data_space(facts)
    identity = tuple(tuple(row) for row in np.eye(len(x), dtype=int).tolist())
    gaussian = MECHANISMS["gaussian"](Promise(Fraction(1, 4), None, Fraction(0)), near)
    sigma2 = Fraction(near.l2_squared) / (2 * Fraction(1, 4))
    plan = TablePlan(
        facts=facts,
        workloads={("table", "detailed"): identity},
        events=(GaussianEvent(level="table", query="detailed", sigma2=sigma2),),
    )
    delta = Fraction(1, 10**6)
    for policy, moves in (("semi", near.semi), ("irreducible", near.irreducible)):
        known = guarantee(plan, policy, delta)
        assert gaussian.loss(moves, delta).rho == known.rho
        assert gaussian.loss(moves, delta).epsilon == known.epsilon
    for before, after in product(range(len(x)), repeat=2):
        if before != after:
            exact = secret_guarantee(plan, (before, after), delta)
            moves, _ = near.secret(before, after)
            if len(moves):
                assert gaussian.loss(moves, delta).rho == exact.rho
    # conditioning: the largest log-ratio over all pairs of tables within a(t) records
    mechanism = ConditioningMechanism.keeping(Promise(None, Fraction(1), Fraction(0)), near)
    event = LaplaceEvent(level="t", query="d", scale=1 / mechanism.epsilon0)
    laws = [np.log(conditional_law(space, table, event)) for table in space]
    worst = max(
        (p - q).max()
        for one, p in zip(space, laws, strict=True)
        for two, q in zip(space, laws, strict=True)
        if 0 < np.abs(one - two).sum() <= 2 * near.adjacency
    )
    claimed = mechanism.loss(near.semi, Fraction(0))
    assert worst <= claimed.epsilon <= 1
    assert claimed.epsilon > 0.999
    assert 0 < claimed.delta < Fraction(1, 10**28)
    # k-norm: exactly epsilon for the worst pair
    k_norm = MECHANISMS["k-norm"](Promise(None, Fraction(1), Fraction(0)), near)
    assert k_norm.loss(near.semi, Fraction(0)).epsilon == 1.0


def test_a_budget_of_rho_or_delta_serves_every_mechanism() -> None:
    promise = Promise(Fraction(1, 200), None, Fraction(0))
    epsilon = promise.pure()
    assert float(epsilon) * math.tanh(float(epsilon) / 2) == pytest.approx(1 / 200, rel=1e-6)
    assert float(epsilon) * math.tanh(float(epsilon) / 2) <= 1 / 200
    approximate = Promise(None, Fraction(1), Fraction(1, 10**6))
    assert float(approximate.zcdp()) == pytest.approx(0.0243560, abs=1e-6)
    with pytest.raises(ConfigError, match="protects nothing"):
        Promise(Fraction(10**5), None, Fraction(0)).pure()


def test_the_plan_depends_on_the_facts_alone(config: Path, tmp_path: Path) -> None:
    first = plan_table(config)
    (tmp_path / "town.csv").write_text(
        TABLE.replace("31", "30").replace("88", "89").replace("35", "36").replace("79", "78")
    )
    assert plan_table(config) == first
