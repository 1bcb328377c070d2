"""Configs: every mistake is found, all of them at once, each with its key; what is right survives being written."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import das
from das.errors import ConfigError
from das.noise.discrete_laplace import DiscreteLaplace
from das.plan.load import load, to_toml
from das.plan.settings import exact_rational

ROOT = Path(__file__).resolve().parents[2]
Country = Any
Change = Callable[[dict[str, Any]], object]


def problems(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        load(path)
    assert refused.value.exit_code == 2
    return [str(problem) for problem in refused.value.problems]


def complaints(country: Country, *changes: Change) -> list[str]:
    content = country.config()
    for change in changes:
        change(content)
    found = problems(country.write(content))
    assert all(line.startswith("config.toml, ") for line in found)
    return [line.removeprefix("config.toml, ") for line in found]


def put(key: str, value: Any) -> Change:
    """Set one key, given with dots; numbers count from one, as in messages."""

    def change(content: dict[str, Any]) -> None:
        *path, last = key.split(".")
        at: Any = content
        for part in path:
            at = at[int(part) - 1] if isinstance(at, list) else at.setdefault(part, {})
        at[last] = value

    return change


def drop(key: str) -> Change:
    def change(content: dict[str, Any]) -> None:
        *path, last = key.split(".")
        at: Any = content
        for part in path:
            at = at[int(part) - 1] if isinstance(at, list) else at[part]
        del at[last]

    return change


# -- what is right -----------------------------------------------------------------------------------------------------

WIDE = {
    "histograms": "counts.csv",
    "cell": [
        {"column": "girls", "labels": {"sex": "f", "age": "0-17"}},
        {"column": "women", "minus": "old", "labels": {"sex": "f", "age": "18-64"}},
        {"column": "old", "labels": {"sex": "f", "age": "65+"}},
    ],
}
CROSSWALK = {"crosswalk": "places.csv", "levels": [{"name": "state"}, {"name": "county"}, {"name": "block"}]}
FACTS: dict[str, Any] = {
    "invariant": [{"query": "total", "level": "state", "reason": "seats"}],
    "bound": [
        {"query": "sex", "level": "block", "sense": ">=", "source": "beds.csv"},
        {"query": "sex", "level": "block", "sense": "<=", "source": "beds.csv", "factor": 9, "reason": "beds"},
    ],
}
GOOD: dict[str, dict[str, Any]] = {
    "zcdp": {},
    "pure": {"privacy": {"framework": "pure", "epsilon": 2}},
    "crosswalk": {"geography": CROSSWALK},
    "wide counts": {"input": WIDE},
    "facts": FACTS,
    "long counts": {
        "input": {
            "histograms": ["a/*.parquet", "b.csv.gz"],
            "geocode": ["STATE", "COUNTY", "BLOCK"],
            "columns": {"sex": "SEX"},
            "values": {"sex": {"1": "m", "2": "f"}},
            "count": "N",
            "budget": "3/2",
            "ledger": "../ledger.sqlite",
        }
    },
    "output": {"output": {"tables": ["total", "sex*age"], "microdata": False, "csv": False}},
}


@pytest.mark.parametrize("name", GOOD)
def test_good_configs_load_and_survive_being_written(country: Country, name: str) -> None:
    plan = country.plan(**GOOD[name])
    again = load(country.write(to_toml(plan.settings), "again.toml"))
    assert again.settings == plan.settings
    assert again.digest == plan.digest
    assert again.privacy_content() == plan.privacy_content()
    assert plan.levels == ("state", "county", "block")
    assert len(plan.measurements) == 9


def test_a_shipped_demo_and_presets_survive_being_written(tmp_path: Path) -> None:
    for source in (ROOT / "config" / "demo.toml", "pl94-2020", "pl94-2020-units-pr"):
        plan = das.load(source)
        path = tmp_path / "again.toml"
        path.write_text(to_toml(plan.settings))
        assert load(path).digest == plan.digest


def test_what_is_resolved_is_what_was_written(country: Country) -> None:
    plan = country.plan(**GOOD["pure"] | FACTS)
    assert plan.budget == 2
    detailed = plan.at("block")[-1]
    assert (detailed.query.name, detailed.share, detailed.cost) == ("detailed", Fraction(1, 4), Fraction(1, 2))
    assert detailed.mechanism == DiscreteLaplace(4)  # sensitivity two when a record is replaced
    removed = country.plan(privacy={"framework": "pure", "epsilon": 2, "neighbours": "add-remove"})
    assert removed.at("block")[-1].mechanism == DiscreteLaplace(2)  # and one when it is added or removed
    assert [(i.query.name, i.level, i.reason) for i in plan.invariants] == [("total", "state", "seats")]
    assert [(b.sense, b.factor, b.source, b.geocode) for b in plan.bounds] == [
        (">=", 1, "beds.csv", "geocode"),
        ("<=", 9, "beds.csv", "geocode"),
    ]
    assert plan.folder == country.folder
    assert plan.schema.possible.tolist() == [True] * 5 + [False]


def test_a_level_of_its_own_comes_before_all(country: Country) -> None:
    queries = {"all": {"total": "1"}, "county": {"sex": "1/3", "age": "2/3"}}
    plan = country.plan(strategy={"geolevels": {"state": "1/6", "county": "1/3", "block": "1/2"}, "queries": queries})
    assert [m.query.name for m in plan.measurements] == ["total", "sex", "age", "total"]


def test_a_preset_gives_way_to_what_is_written_beside_it(country: Country) -> None:
    own = {"preset": "pl94-2020", "geolevels": {"county": "1/2", "block": "1/2"}, "queries": {"block": {"hhgq": "1"}}}
    levels = [{"name": "county", "width": 2}, {"name": "block", "width": 3}]
    geography = {"units": "units.csv", "levels": levels}
    plan = country.plan(schema={"preset": "pl94-2020"}, strategy=own, geography=geography)
    assert plan.schema.size == 2016
    assert [m.query.name for m in plan.at("block")] == ["hhgq"]
    assert len(plan.at("county")) == 11
    shares = {m.query.name: m.share for m in plan.at("county")}
    assert shares["total"] == Fraction(3126, 4097) / 2  # published share of the query, own share of the level


# -- what is wrong -----------------------------------------------------------------------------------------------------

BOUND = {"query": "sex", "level": "block", "sense": ">=", "source": "a.csv"}
INVARIANT = {"query": "total", "level": "state", "reason": "x"}
MISTAKES: dict[str, tuple[Change, str]] = {
    "unknown section": (put("outputs.csv", True), "outputs: unknown key; did you mean 'output'?"),
    "unknown key": (put("input.colums", {}), "input.colums: unknown key; did you mean 'columns'?"),
    "unknown key in a list": (
        put("geography.levels.2.widht", 1),
        "geography.levels.2.widht: unknown key; did you mean 'width'?",
    ),
    "unknown key of a list": (
        put("bound", [BOUND | {"factr": 2}]),
        "bound.1.factr: unknown key; did you mean 'factor'?",
    ),
    "missing section": (drop("privacy"), "privacy: is missing; say the framework and its budget"),
    "missing key": (drop("release.name"), "release.name: is missing"),
    "section that is no table": (put("strategy", "even"), "strategy: "),
    "schema that is a list": (put("schema", [1]), "schema: "),
    "float budget": (
        put("privacy.rho", 0.5),
        'privacy.rho: 0.5 is a float; write an exact fraction as a string, for example "1/2"',
    ),
    "float share": (
        put("strategy.geolevels.county", 0.25),
        'strategy.geolevels.county: 0.25 is a float; write an exact fraction as a string, for example "1/4"',
    ),
    "no number": (put("privacy.rho", "one half"), "privacy.rho: 'one half' is not a fraction"),
    "division by zero": (put("privacy.rho", "1/0"), "privacy.rho: '1/0' is not a fraction"),
    "boolean": (put("privacy.rho", True), "privacy.rho: must be a whole number or a fraction in quotes"),
    "endless number": (put("privacy.rho", "1e999999999"), "privacy.rho: has more digits than"),
    "no budget": (drop("privacy.rho"), "privacy: framework 'zcdp' takes its budget from `rho`"),
    "both currencies": (put("privacy.epsilon", 1), "privacy: framework 'zcdp' takes its budget from `rho`"),
    "wrong currency": (put("privacy.framework", "pure"), "privacy: framework 'pure' takes its budget from `epsilon`"),
    "budget of zero": (put("privacy.rho", "0"), "privacy: `rho` must be positive"),
    "negative budget": (put("privacy.rho", -1), "privacy: `rho` must be positive"),
    "delta of one": (put("privacy.delta", 1), "privacy: `delta` must lie strictly between 0 and 1"),
    "unknown framework": (put("privacy.framework", "rdp"), "privacy.framework: "),
    "unknown neighbours": (put("privacy.neighbours", "swap"), "privacy.neighbours: "),
    "two kinds of input": (put("input.histograms", "a.csv"), "input: give either `microdata`"),
    "no input": (drop("input.microdata"), "input: give either `microdata`"),
    "blank file name": (put("input.microdata", ["a.csv", ""]), "input: the name of a file is blank"),
    "cells of records": (put("input.cell", WIDE["cell"]), "input: `cell` describes columns of `histograms`"),
    "data set without budget": (put("input.budget", "0"), "input: `budget`, all that may ever be spent"),
    "two geographies": (put("geography.crosswalk", "a.csv"), "geography: give either `units`"),
    "no width": (drop("geography.levels.2.width"), "geography: with `units`, each level needs the `width`"),
    "level twice": (put("geography.levels.2.name", "state"), "geography: each level needs a name of its own"),
    "level named like a path": (put("geography.levels.2.name", "a/b"), "geography.levels.2.name: "),
    "area named like a level": (
        put("geography.areas", [{"name": "county", "file": "a.csv"}]),
        "geography: 'county' names a level and an area",
    ),
    "missing share": (
        put("strategy.geolevels.county", "1/4"),
        "strategy.geolevels: the shares sum to 11/12, not 1; 1/12 is missing",
    ),
    "too much": (
        put("strategy.geolevels.county", "1/2"),
        "strategy.geolevels: the shares sum to 7/6, not 1; 1/6 is too much",
    ),
    "missing share of a query": (
        put("strategy.queries.all.total", "1/5"),
        "strategy.queries.all: the shares sum to 19/20, not 1; 1/20 is missing",
    ),
    "negative share": (
        put("strategy.geolevels.county", "-1/3"),
        "strategy.geolevels.county: a share must lie between 0 and 1, not -1/3",
    ),
    "share of nothing": (put("strategy.geolevels.county", 0), "strategy.geolevels.county: must be above 0"),
    "level without share": (drop("strategy.geolevels.county"), "strategy.geolevels.county: is missing"),
    "level without queries": (
        put("strategy.queries", {"state": {"total": 1}, "block": {"total": 1}}),
        "strategy.queries.county: is missing",
    ),
    "level of two words": (
        put("geography.levels.1.name", "my state"),
        "geography.levels.1.name: must be a name of letters, digits and underscores that begins with a letter",
    ),
    "share of an unknown level": (
        put("strategy.geolevels.countie", 0),
        "strategy.geolevels.countie: is not a level of the geography; did you mean 'county'?",
    ),
    "queries of an unknown level": (
        put("strategy.queries.blok", {"total": 1}),
        "strategy.queries.blok: is not a level of the geography; did you mean 'block'?",
    ),
    "unknown query": (
        put("strategy.queries.county", {"totl": 1}),
        "strategy.queries.county.totl: query 'totl' uses 'totl', which is not an attribute or recode; did you mean",
    ),
    "one query twice": (
        put("strategy.queries.county", {"sex * age": "1/2", "age*sex": "1/2"}),
        "strategy.queries.county.age*sex: measures the same as 'sex * age'",
    ),
    "unknown schema preset": (
        put("schema", {"preset": "pl94-2002"}),
        "schema.preset: there is no preset 'pl94-2002'; did you mean 'pl94-2020'?",
    ),
    "unknown strategy preset": (
        put("strategy.preset", "pl94-2020-person"),
        "strategy.preset: there is no preset 'pl94-2020-person'; did you mean 'pl94-2020-persons-",
    ),
    "preset of no name": (put("strategy.preset", 3), "strategy.preset: there is no preset 3"),
    "geolevels that are no table": (
        put("strategy", {"preset": "pl94-2020", "geolevels": 3}),
        "strategy.geolevels: must be a table",
    ),
    "queries that are no table": (
        put("strategy", {"preset": "pl94-2020", "geolevels": {"block": 1}, "queries": "all"}),
        "strategy.queries: must be a table",
    ),
    "recode that misses a label": (
        put("schema.attribute.2.recodes.grown", {"minor": ["0-17"], "adult": ["18-64"]}),
        "schema.attribute.2.recodes.grown: recode 'grown' never covers: '65+'",
    ),
    "attribute named like a column": (put("schema.attribute.1.name", "count"), "schema: attribute 'count' would share"),
    "attribute named like a path": (put("schema.attribute.1.name", "a/b"), "schema: 'a/b' must be a name of letters"),
    "zero of an unknown label": (
        put("schema.structural_zero.1.labels.age", "66+"),
        "schema: structural zero 'no old men' names '66+'",
    ),
    "translation of an unknown attribute": (
        put("input.values", {"sexx": {"1": "f"}}),
        "input.values.sexx: is not an attribute; did you mean 'sex'?",
    ),
    "translation to an unknown label": (
        put("input.values", {"sex": {"1": "female"}}),
        "input.values.sex.1: 'female' is not a label of 'sex'",
    ),
    "column of an unknown attribute": (
        put("input.columns", {"agee": "AGE"}),
        "input.columns.agee: is not an attribute; did you mean 'age'?",
    ),
    "labels from the column of counts": (
        put("input", {"histograms": "a.csv", "columns": {"age": "count"}}),
        "input: column 'count' cannot hold counts and labels or geocodes at once",
    ),
    "geocodes from a column of counts": (
        put("input", {"histograms": "a.csv", "geocode": "old", "cell": WIDE["cell"]}),
        "input: column 'old' cannot hold counts and labels or geocodes at once",
    ),
    "cell that leaves out an attribute": (
        put("input", {"histograms": "a.csv", "cell": [{"column": "a", "labels": {"sex": "f"}}]}),
        "input.cell.1: says nothing of attribute 'age'",
    ),
    "cell of an unknown label": (
        put("input", {"histograms": "a.csv", "cell": [{"column": "a", "labels": {"sex": "f", "age": "0-7"}}]}),
        "input.cell.1.labels.age: '0-7' is not a label; did you mean '0-17'?",
    ),
    "invariant at an unknown level": (
        put("invariant", [INVARIANT | {"level": "stat"}]),
        "invariant.1.level: 'stat' is not a level; did you mean 'state'?",
    ),
    "invariant on an unknown query": (
        put("invariant", [INVARIANT | {"query": "sexs"}]),
        "invariant.1.query: query 'sexs' uses 'sexs', which is not an attribute or recode; did you mean 'sex'?",
    ),
    "invariant without a reason": (put("invariant", [{"query": "total", "level": "state"}]), "invariant.1.reason: "),
    "invariant twice": (
        put("invariant", [INVARIANT, INVARIANT | {"level": "stat"}, INVARIANT]),
        "invariant.3: 'total' at 'state' is already declared by invariant.1; keep one of them",
    ),
    "invariant twice under two names": (
        put("invariant", [INVARIANT | {"query": "sex * age"}, INVARIANT | {"query": "detailed"}]),
        "invariant.2: 'detailed' at 'state' is already declared by invariant.1",
    ),
    "bound twice": (put("bound", [BOUND, BOUND]), "bound.2: 'sex' at 'block' is already declared by bound.1"),
    "bound at an unknown level": (
        put("bound", [BOUND | {"level": "blocks"}]),
        "bound.1.level: 'blocks' is not a level; did you mean 'block'?",
    ),
    "bound of unknown sense": (put("bound", [BOUND | {"sense": "<"}]), "bound.1.sense: "),
    "bound times nothing": (put("bound", [BOUND | {"factor": 0}]), "bound.1.factor: "),
    "bound beyond counting": (put("bound", [BOUND | {"factor": 10**12}]), "bound.1.factor: "),
    "unknown table": (
        put("output", {"tables": ["total", "aeg"]}),
        "output.tables.2: query 'aeg' uses 'aeg', which is not an attribute or recode; did you mean 'age'?",
    ),
    "unknown method": (put("estimate.method", "magic"), "estimate.method: "),
    "method by its old name": (
        put("estimate.engine", "congenial"),
        "estimate.engine: unknown key; it is called `method`",
    ),
    "prior by its old name": (put("estimate.expect", "nothing"), "estimate.expect: unknown key; it is called `prior`"),
    "measurements kept back": (put("output.noisy_measurements", False), "output.noisy_measurements: unknown key; meas"),
    "unfit release name": (put("release.name", "../x"), "release.name: "),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_every_mistake_is_named_by_its_key(country: Country, kind: str) -> None:
    change, expected = MISTAKES[kind]
    found = complaints(country, change)
    assert any(line.startswith(expected) for line in found), found


def test_one_mistake_gives_one_problem(country: Country) -> None:
    """What follows from a mistake is not held against the user as another one."""
    for kind in (
        "unknown key",
        "float share",
        "missing share",
        "missing share of a query",
        "unknown query",
        "unknown schema preset",
        "unknown strategy preset",
        "recode that misses a label",
        "attribute named like a path",
        "one query twice",
        "bound twice",
    ):
        assert len(complaints(country, MISTAKES[kind][0])) == 1, kind


def test_all_mistakes_are_reported_at_once(country: Country) -> None:
    """Shape and meaning, in one file: one round of mending is enough."""
    kinds = [
        "unknown key",
        "unfit release name",
        "float budget",
        "missing share",
        "missing share of a query",
        "unknown query",
        "invariant at an unknown level",
        "bound twice",
        "unknown table",
    ]
    found = complaints(country, *(MISTAKES[kind][0] for kind in kinds))
    for kind in kinds:
        assert any(line.startswith(MISTAKES[kind][1]) for line in found), kind
    assert len(found) == len(kinds)


def test_several_recodes_and_cells_are_reported_at_once(country: Country) -> None:
    recodes = {"one": {"a": ["0-17"]}, "two": {"a": ["0-17", "18-64", "65+"], "b": ["65+"]}, "three": {"a": ["9"]}}
    found = complaints(country, put("schema.attribute.2.recodes", recodes))
    assert [line.split(":")[0] for line in found] == [f"schema.attribute.2.recodes.{name}" for name in recodes]


def test_a_file_that_is_no_config(country: Country) -> None:
    assert problems(country.folder / "none.toml")[0].endswith("and no such preset; `das init DIR` writes a starter")
    assert "is a folder" in problems(country.folder)[0]
    assert "a decimal comma? write a fraction" in problems(country.write("[privacy]\nepsilon = 0,5\n"))[0]
    assert problems(country.write("a = = 1\n"))[0].startswith("config.toml: is not valid TOML: ")
    assert problems(country.file("config.toml", b'a = "\xe9"'))[0].startswith("config.toml: is not valid TOML: ")
    assert len(problems(country.write(""))) == 6


# -- the digest --------------------------------------------------------------------------------------------------------

DECIDES: dict[str, Change] = {
    "rho": put("privacy.rho", "1/3"),
    "delta": put("privacy.delta", "1/1000"),
    "unit": put("privacy.unit", "household"),
    "framework": put("privacy", {"framework": "pure", "epsilon": "1/2"}),
    "release": put("release.name", "other"),
    "data set": put("input.dataset", "other"),
    "level": put("geography.levels.1.name", "region"),
    "label": put("schema.attribute.1.labels", ["f", "x"]),
    "order of labels": put("schema.attribute.1.labels", ["m", "f"]),
    "groups of a recode": put("schema.attribute.2.recodes.grown", {"minor": ["0-17", "18-64"], "adult": ["65+"]}),
    "order of a recode": put("schema.attribute.2.recodes.grown", {"adult": ["18-64", "65+"], "minor": ["0-17"]}),
    "structural zero": drop("schema.structural_zero"),
    "level shares": put("strategy.geolevels", {"state": "1/3", "county": "1/6", "block": "1/2"}),
    "query shares": put("strategy.queries.all", {"total": "1/2", "sex * grown": "1/4", "detailed": "1/4"}),
    "queries": put("strategy.queries.all", {"total": "1/4", "sex * age": "1/4", "sex": "1/2"}),
    "queries of a level": put("strategy.queries.block", {"detailed": 1}),
    "invariant": put("invariant", [INVARIANT, INVARIANT | {"level": "county"}]),
    "bound": put("bound", [BOUND | {"query": "age"}]),
    "sense of a bound": put("bound", [BOUND | {"sense": "<="}]),
    "factor of a bound": put("bound", [BOUND | {"factor": 2}]),
    "source of a bound": put("bound", [BOUND | {"source": "b.csv"}]),
}
LEAVES: dict[str, Change] = {
    "tables": put("output.tables", ["total"]),
    "microdata": put("output.microdata", False),
    "csv": put("output.csv", False),
    "product": put("release.product", "text"),
    "input files": put("input.microdata", "elsewhere/*.parquet"),
    "equal rational": put("privacy.rho", "2/4"),
    "one table for all": put(
        "strategy.queries",
        {level: {"total": "1/4", "sex * grown": "1/4", "detailed": "1/2"} for level in ("state", "county", "block")},
    ),
}


def digest(country: Country, *changes: Change) -> str:
    content = country.config(invariant=[INVARIANT], bound=[BOUND])
    for change in changes:
        change(content)
    if "region" in str(content["geography"]):
        content["strategy"]["geolevels"] = {"region": "1/6", "county": "1/3", "block": "1/2"}
        del content["invariant"]
    if content["schema"]["attribute"][0]["labels"] == ["f", "x"]:
        del content["schema"]["structural_zero"]
    return load(country.write(content)).digest


def test_the_digest_changes_with_all_that_decides_privacy(country: Country) -> None:
    seen = {digest(country): "unchanged"}
    for name, change in DECIDES.items():
        found = digest(country, change)
        assert found not in seen, f"{name} gives the digest of {seen[found]}"
        seen[found] = name


@pytest.mark.parametrize("name", LEAVES)
def test_the_digest_does_not_change_with_what_is_done_afterwards(country: Country, name: str) -> None:
    assert digest(country, LEAVES[name]) == digest(country)


def test_the_digest_does_not_depend_on_where_the_config_is(country: Country) -> None:
    (country.folder / "below").mkdir()
    moved = load(country.write(country.config(), "below/other.toml"))
    assert moved.digest == country.plan().digest


# -- rationals ---------------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.fractions())
def test_a_rational_comes_back_exactly(value: Fraction) -> None:
    assert exact_rational(str(value)) == value
    assert exact_rational(f" {value.numerator}/{value.denominator} ") == value
    assert exact_rational(value) is value
    assert exact_rational(value.numerator) == value.numerator


@settings(max_examples=50)
@given(st.integers(-(10**6), 10**6), st.integers(0, 12))
def test_a_decimal_in_quotes_is_exact(digits: int, places: int) -> None:
    text = f"{digits}e-{places}"
    assert exact_rational(text) == Fraction(digits, 10**places)


@settings(max_examples=50)
@given(st.floats(allow_nan=True, allow_infinity=True))
def test_every_float_is_refused_with_a_fraction_to_write_instead(value: float) -> None:
    with pytest.raises(ValueError, match="is a float") as refused:
        exact_rational(value)
    suggested = exact_rational(str(refused.value).split('"')[1])
    if 1e-3 < abs(value) < 1e9 and not math.isnan(value):
        assert float(suggested) == pytest.approx(value, rel=1e-3)


@settings(max_examples=50)
@given(st.text(alphabet="0123456789/.-+ abc", max_size=12))
def test_a_text_is_a_rational_or_refused(text: str) -> None:
    try:
        expected = Fraction(text)
    except (ValueError, ZeroDivisionError):
        with pytest.raises(ValueError, match="is not a fraction"):
            exact_rational(text)
    else:
        assert exact_rational(text) == expected
