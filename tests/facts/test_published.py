"""Tables of an earlier release: they are matched exactly, cost nothing, and narrow nothing that is compared."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tomli_w

import das
from das.checks import check
from das.errors import ConfigError, InfeasibleError, InputError
from das.facts.collect import facts_of
from das.plan.geography import spine_of
from das.plan.load import load
from das.promise.account import account
from das.release.finish import statement_of
from das.report.text import summary
from das.schema.query import parse_query

Country = Any
PEOPLE = "geocode,sex,age\n" + "".join(
    f"{code},{sex},{age}\n"
    for code, sex, age, n in [
        ("01001", "f", "0-17", 9),
        ("01001", "m", "18-64", 14),
        ("01002", "f", "65+", 6),
        ("02001", "m", "0-17", 11),
        ("02003", "f", "18-64", 20),
        ("11001", "m", "18-64", 7),
        ("11001", "f", "0-17", 5),
    ]
    for _ in range(n)
)
BLOCKS = ("01001", "01002", "02001", "02003", "11001")
FIRST = {
    "release": {"name": "first"},
    "privacy": {"rho": "1/2"},
    "geography": {
        "units": "units.csv",
        "levels": [{"name": "state", "width": 1}, {"name": "county", "width": 1}, {"name": "block", "width": 3}],
    },
    "schema": {"attribute": [{"name": "grown", "labels": ["minor", "adult", "other"]}]},
    "input": {"data": "generated", "microdata": "first.csv", "dataset": "first"},
    "strategy": {"geolevels": {"state": "1/6", "county": "1/3", "block": "1/2"}, "queries": {"all": {"detailed": "1"}}},
}


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of the same blocks with an attribute that the tiny country has as a recode; its counts are noisy."""
    folder = tmp_path_factory.mktemp("released")
    rows = [row.split(",") for row in PEOPLE.splitlines()[1:]]
    people = "".join(f"{code},{'minor' if age == '0-17' else 'adult'}\n" for code, _, age in rows)
    (folder / "first.csv").write_text(f"geocode,grown\n{people}")
    (folder / "units.csv").write_text("\n".join(["geocode", *BLOCKS, ""]))
    (folder / "first.toml").write_text(tomli_w.dumps(FIRST))
    das.run(load(folder / "first.toml"), out=folder / "earlier", testing_key="first")
    return folder / "earlier"


@pytest.fixture
def first(country: Country, released: Path) -> Path:
    country.file("people.csv", PEOPLE)
    return Path(shutil.copytree(released, country.folder / "earlier"))


def entry(source: str, **more: Any) -> dict[str, Any]:
    return {"query": "grown", "level": "block", "source": source} | more


def answers(folder: Path, name: str) -> pa.Table:
    return pq.read_table(folder / "release" / "tables" / f"{name}.parquet").to_pandas().set_index("GEOID")


def test_counts_agree_with_the_release_and_not_with_the_truth(country: Country, first: Path) -> None:
    tables = {"tables": ["grown", "total"]}
    plan = country.plan(published=[entry("earlier")], output=tables)
    das.run(plan, out=country.folder / "later", testing_key="later")
    ours = answers(country.folder / "later", "block-grown")
    counts = pq.read_table(first / "release" / "counts" / "block.parquet").to_pandas()
    theirs = counts.groupby(["geocode", "grown"], observed=True)["count"].sum().to_dict()
    assert {(code, label): n for label in ours for code, n in ours[label].items() if n} == {
        pair: n for pair, n in theirs.items() if pair[1] != "other"
    }
    truth = dict.fromkeys([code for code, _ in theirs], 0)
    for row in PEOPLE.splitlines()[1:]:
        truth[row.split(",")[0]] += 1
    assert ours.sum(axis=1).to_dict() != truth, "they were protected, and so are wrong"


def test_they_cost_nothing_and_narrow_nothing(country: Country, first: Path) -> None:
    alone, beside = country.plan(), country.plan(published=[entry("earlier")])
    assert beside.digest == alone.digest, "the same noise is drawn"
    assert beside.budget == alone.budget
    ours, theirs = account(beside).sections, account(alone).sections
    assert ours["effective"] == theirs["effective"]
    assert ours["secrets"] == theirs["secrets"]
    assert "agrees with:   grown at block as released in earlier, at no further cost" in beside.explain()
    statement = statement_of(beside, account(beside), facts_digest="", charged=beside.budget, seeded=False)
    assert statement["published"] == [{"query": "grown", "level": "block", "source": "earlier", "reason": ""}]
    assert "with earlier: protected when it was released" in summary(statement, Path("out"))
    json.dumps(beside.to_json())


@pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
def test_a_table_says_the_same_as_its_release(country: Country, first: Path, name: str) -> None:
    plan = country.plan(published=[entry("earlier")])
    from_release = facts_of(plan, spine_of(plan), None)
    counts = {code: [0, 0] for code in spine_of(plan).leaves}
    for row in pq.read_table(first / "release" / "counts" / "block.parquet").to_pylist():
        if row["grown"] != "other":
            counts[row["geocode"]][["minor", "adult"].index(row["grown"])] += row["count"]
    columns = {
        "GEOID": list(counts),
        "minor": [n[0] for n in counts.values()],
        "adult": [n[1] for n in counts.values()],
    }
    text = "\n".join(",".join(map(str, row)) for row in [columns, *zip(*columns.values(), strict=True)])
    country.file(name, pa.table(columns) if name.endswith("parquet") else text + "\n")
    plan = country.plan(published=[entry(name)])
    from_table = facts_of(plan, spine_of(plan), None)
    for level in plan.levels:
        for one, other in zip(from_release[level], from_table[level], strict=True):
            assert (one.query.name, one.sign) == (other.query.name, other.sign) == ("grown", "=")
            assert np.array_equal(one.values, other.values)


def test_answers_that_were_not_published_are_free(country: Country) -> None:
    rows = "\n".join(f"{code},3" for code in BLOCKS)
    country.file("minors.csv", f"GEOID,minor\n{rows}\n")
    plan = country.plan(published=[entry("minors.csv")])
    facts = {fact.sign: fact for fact in facts_of(plan, spine_of(plan), None)["county"]}
    assert facts[">="].values.tolist() == [[6, 0], [6, 0], [3, 0]]
    assert facts["<="].values[:, 0].tolist() == [6, 6, 3]
    assert (facts["<="].values[:, 1] > 10**9).all()


def test_contradictions_are_reported_before_anything_is_spent(country: Country) -> None:
    country.file("people.csv", PEOPLE)
    rows = "\n".join(f"{code},3,4" for code in BLOCKS)
    country.file("table.csv", f"GEOID,minor,adult\n{rows}\n")
    seats = {"query": "total", "level": "state", "reason": "seats"}
    with pytest.raises(InfeasibleError) as error:
        check(country.plan(published=[entry("table.csv")], invariant=[seats]))
    assert error.value.exit_code == 4
    assert "table.csv" in str(error.value) or "grown" in str(error.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("GEOID,minor,adult\n01001,1,2\n", "has no row for block"),
        ("GEOID,young\n01001,1\n", "has no column named for an answer"),
        ("GEOID,minor,adult\n99999,1,2\n", "is not a block of the spine"),
    ],
)
def test_a_table_that_does_not_fit_is_reported(country: Country, content: str, reason: str) -> None:
    country.file("table.csv", content)
    plan = country.plan(published=[entry("table.csv")])
    with pytest.raises(InputError, match=reason):
        facts_of(plan, spine_of(plan), None)


def test_a_release_that_does_not_fit_is_reported(country: Country, first: Path) -> None:
    plan = country.plan(published=[entry("earlier", query="sex")])
    with pytest.raises(InputError, match="not an attribute or recode"):
        facts_of(plan, spine_of(plan), None)
    (country.folder / "empty").mkdir()
    plan = country.plan(published=[entry("empty")])
    with pytest.raises(InputError, match="holds no finished release"):
        facts_of(plan, spine_of(plan), None)


def test_mistakes_in_the_config(country: Country) -> None:
    twice = [entry("a.csv"), entry("b.csv")]
    with pytest.raises(ConfigError, match=r"already declared by published\.1"):
        country.plan(published=twice)
    with pytest.raises(ConfigError, match=r"'blok' is not a level"):
        country.plan(published=[entry("a.csv", level="blok")])


@pytest.mark.parametrize(
    ("estimate", "reason"),
    [
        ({"passes": {"all": [["total"]]}}, "full information uses all of them at once"),
        ({"information": "level", "passes": {"town": [["total"]]}}, "is not a level"),
        ({"information": "level", "passes": {"all": [["sex"]]}}, "names 'sex', which is not measured there"),
        ({"information": "level", "passes": {"all": [["total"], ["total"]]}}, "names 'total' twice"),
    ],
)
def test_passes_that_cannot_be_meant(country: Country, estimate: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        country.plan(estimate=estimate)


@pytest.mark.slow
def test_passes_run_and_conform(country: Country) -> None:
    country.file("people.csv", PEOPLE)
    passes = {"county": [["total"]], "all": [["total", "sex * grown"]]}
    plan = country.plan(estimate={"information": "level", "passes": passes})
    assert plan.passes("county") == (("total",), ("sex * grown", "detailed"))
    assert plan.passes("block") == (("total", "sex * grown"), ("detailed",))
    release = das.run(plan, out=country.folder / "out", testing_key="x")
    assert release.counts("block")["count"].sum() == release.counts("state")["count"].sum()
    assert "passes:        2 at state, county, block" in plan.explain()


def test_full_information_is_refused_on_a_schema_that_is_too_large(country: Country) -> None:
    attribute = [{"name": name, "labels": [f"{name}{i}" for i in range(250)]} for name in ("a", "b")]
    strategy = {"geolevels": {"state": "1/6", "county": "1/3", "block": "1/2"}, "queries": {"all": {"detailed": "1"}}}
    sections = {"schema": {"attribute": attribute}, "strategy": strategy}
    with pytest.raises(ConfigError, match="the schema has 62,500 of them"):
        country.plan(**sections)
    plan = country.plan(**sections, estimate={"information": "level"})
    assert parse_query(plan.schema, "detailed").size == 62_500
