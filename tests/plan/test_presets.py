"""The shipped settings: exact, complete, and equal to the published ones."""

from __future__ import annotations

import json
import math
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from das.demo import CENRACE, HHGQ, HISPANIC, VOTINGAGE
from das.plan.load import load
from das.promise.product import product_of
from das.schema.query import parse_query
from das.schema.schema import Attribute, Schema, StructuralZero

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "tests" / "data" / "census2020"
PRESETS = {
    "pl94-2020-persons-us": "pl94_person_US",
    "pl94-2020-persons-pr": "pl94_person_PR",
    "pl94-2020-units-us": "pl94_unit_US",
    "pl94-2020-units-pr": "pl94_unit_PR",
}
DHC = {
    "dhc-2020-persons-us": "dhc_person_US",
    "dhc-2020-persons-pr": "dhc_person_PR",
    "dhc-2020-units-us": "dhc_unit_US",
    "dhc-2020-units-pr": "dhc_unit_PR",
}
TENVACGQ = {"dhc-2020-units-us": "dhc-2020-tenvacgq-us", "dhc-2020-units-pr": "dhc-2020-tenvacgq-pr"}
EVERY = [*PRESETS, *DHC, *TENVACGQ.values()]


def content(name: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / "config" / f"{name}.toml").read_text(encoding="utf-8"))


def with_schema(name: str) -> dict[str, Any]:
    """A preset that takes its attributes from another is nothing without it."""
    preset = content(name)
    other = preset["schema"].get("preset")
    return preset | ({"schema": content(other)["schema"]} if other else {})


def schema_of(preset: dict[str, Any]) -> Schema:
    return Schema(
        tuple(Attribute(a["name"], tuple(a["labels"]), a.get("recodes", {})) for a in preset["schema"]["attribute"]),
        tuple(StructuralZero(z["name"], z["labels"]) for z in preset["schema"].get("structural_zero", ())),
    )


@pytest.mark.parametrize("name", EVERY)
def test_every_table_of_shares_sums_to_one_exactly(name: str) -> None:
    strategy = content(name)["strategy"]
    assert strategy["geolevels"].keys() == strategy["queries"].keys()
    for table in (strategy["geolevels"], *strategy["queries"].values()):
        assert sum(Fraction(share) for share in table.values()) == 1


@pytest.mark.parametrize("name", EVERY)
def test_a_preset_says_its_source_and_its_own_name(name: str) -> None:
    text = (ROOT / "config" / f"{name}.toml").read_text(encoding="utf-8")
    assert text.startswith("#")
    assert "# Source: as published by the U.S. Census Bureau" in text
    assert content(name)["name"] == name
    assert "Census Bureau" in content(name)["source"]


@pytest.mark.parametrize("name", EVERY)
def test_every_query_of_a_preset_has_a_meaning_in_its_schema(name: str) -> None:
    preset = with_schema(name)
    schema = schema_of(preset)
    for table in (*preset["strategy"]["queries"].values(), *_orders(preset)):
        for query in table:
            parse_query(schema, query)
    for invariant in preset.get("invariant", ()):
        assert invariant["level"] in preset["strategy"]["geolevels"]
        parse_query(schema, invariant["query"])


def _orders(preset: dict[str, Any]) -> list[list[str]]:
    return [queries for order in preset["strategy"].get("passes", {}).values() for queries in order]


@pytest.mark.parametrize("name", PRESETS)
def test_numbers_are_the_published_ones(name: str) -> None:
    preset, truth = content(name), json.loads((PUBLISHED / f"{PRESETS[name]}.json").read_text())
    privacy = preset["privacy"]
    assert Fraction(privacy["rho"]) == Fraction(truth["rho_total"])
    assert Fraction(privacy["delta"]) == Fraction(truth["delta"])
    assert list(preset["strategy"]["geolevels"].items()) == [
        (level.lower(), truth["geolevel_share"][level]) for level in truth["geolevels_top_down"]
    ]
    assert preset["strategy"]["queries"] == {
        level.lower(): table for level, table in truth["query_share_within_geolevel"].items()
    }
    assert dict(zip(schema_of(preset).names, schema_of(preset).shape, strict=True)) == truth["dims"]


@pytest.mark.parametrize("name", ["pl94-2020-persons-us", "pl94-2020-persons-pr"])
def test_labels_and_recodes_are_the_published_ones(name: str) -> None:
    recodes = json.loads((PUBLISHED / "recodes.json").read_text())["pl94_person_US"]["recodes"]
    schema = schema_of(content(name))
    assert schema.attribute("cenrace").labels == tuple(level["label"] for level in recodes["cenrace"]["levels"])
    groups = schema.attribute("hhgq").partition("hhinstlevels").groups
    spans = [level["values"].split("-") for level in recodes["hhinstlevels"]["levels"]]
    assert groups == tuple(tuple(range(int(span[0]), int(span[-1]) + 1)) for span in spans)


def test_the_budgets_are_the_squares_of_the_published_global_scales() -> None:
    # Scales 339/542 and 12343/3379 for a sensitivity of two: rho = 1 / scale^2.
    for name in PRESETS:
        scale = Fraction(339, 542) if "persons" in name else Fraction(12343, 3379)
        assert Fraction(content(name)["privacy"]["rho"]) == 1 / scale**2


@pytest.mark.parametrize(
    ("level", "query", "deviation"),
    [
        ("state", "total", 1.10),
        ("county", "total", 2.17),
        ("tract", "total", 2.47),
        ("block_group", "total", 1.75),
        ("block", "total", 89.2),
        ("tract", "hispanic * cenrace", 2.23),
        ("block_group", "hispanic * cenrace", 2.23),
        ("block_group", "detailed", 2.02),
        ("block", "detailed", 3.18),
    ],
)
def test_noise_has_the_published_size(level: str, query: str, deviation: float) -> None:
    """Discrete Gaussian noise with sigma^2 = 2 / (2 rho) when a record is replaced (Bun and Steinke 2016)."""
    preset = content("pl94-2020-persons-us")
    shares = preset["strategy"]
    share = Fraction(shares["geolevels"][level]) * Fraction(shares["queries"][level][query])
    sigma = math.sqrt(1 / (Fraction(preset["privacy"]["rho"]) * share))
    assert sigma == pytest.approx(deviation, rel=0.005)


def test_the_persons_schema_has_the_published_cells_and_the_labels_of_the_generator() -> None:
    schema = schema_of(content("pl94-2020-persons-us"))
    assert tuple(a.labels for a in schema.attributes) == (HHGQ, VOTINGAGE, HISPANIC, CENRACE)
    block = content("pl94-2020-persons-us")["strategy"]["queries"]["block"]
    sizes = {name: parse_query(schema, name).size for name in block}
    assert sizes == {
        "total": 1,
        "cenrace": 63,
        "hispanic": 2,
        "votingage": 2,
        "hhinstlevels": 3,
        "hhgq": 8,
        "hispanic * cenrace": 126,
        "votingage * cenrace": 126,
        "votingage * hispanic": 4,
        "votingage * hispanic * cenrace": 252,
        "detailed": 2016,
    }
    assert schema.size - schema.possible.sum() == 126, "children in nursing homes"


def test_the_demo_is_production_without_the_nation() -> None:
    demo, preset = load(ROOT / "config" / "demo.toml"), content("pl94-2020-persons-us")
    assert content("demo")["privacy"] == preset["privacy"]
    below = {level: Fraction(share) for level, share in preset["strategy"]["geolevels"].items() if level != "us"}
    expected = {
        (level, query): share / sum(below.values()) * Fraction(inside)
        for level, share in below.items()
        for query, inside in preset["strategy"]["queries"][level].items()
    }
    assert {(m.level, m.query.name): m.share for m in demo.measurements} == expected
    assert [(b.sense, b.factor, b.source) for b in demo.bounds] == [
        (">=", 1, "facilities.csv"),
        ("<=", 99999, "facilities.csv"),
    ]


def costs(name: str) -> dict[tuple[str, str], Fraction]:
    """Absolute rho of each level and query, recomputed from the shares."""
    preset = content(name)
    shares, rho = preset["strategy"], Fraction(preset["privacy"]["rho"])
    return {
        (level, query): rho * Fraction(whole) * Fraction(inside)
        for level, whole in shares["geolevels"].items()
        for query, inside in shares["queries"][level].items()
    }


@pytest.mark.parametrize("name", DHC)
def test_dhc_costs_are_the_published_ones_exactly(name: str) -> None:
    truth = json.loads((PUBLISHED / f"{DHC[name]}.json").read_text())
    ours = costs(name) | (costs(TENVACGQ[name]) if name in TENVACGQ else {})
    theirs = {
        (level.lower(), query): Fraction(round(rho * 10_000), 10_000)
        for level, table in truth["query_rho"].items()
        for query, rho in table.items()
    }
    assert ours == theirs
    assert sum(ours.values()) == Fraction(truth["rho_total"])
    levels = list(content(name)["strategy"]["geolevels"])
    assert levels == [level.lower() for level in truth["geolevels_top_down"]]
    schema = schema_of(with_schema(name))
    assert dict(zip(schema.names, schema.shape, strict=True)) == truth["dims"]


def _members(values: str) -> tuple[int, ...]:
    spans = [part.split("-") for part in values.split(",")]
    return tuple(i for span in spans for i in range(int(span[0]), int(span[-1]) + 1))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("dhc-2020-persons-us", "dhc_person_US"),
        ("dhc-2020-units-us", "dhc_unit_US"),
        ("dhc-2020-tenvacgq-us", "dhc_unit_US"),
    ],
)
def test_dhc_recodes_are_the_published_ones(name: str, source: str) -> None:
    schema = schema_of(with_schema(name))
    compared = 0
    for recode, published_one in json.loads((PUBLISHED / "recodes.json").read_text())[source]["recodes"].items():
        owner = next((a for a in schema.attributes if a.name == published_one["dim"]), None)
        if owner is not None:
            groups = {_members(level["values"]) for level in published_one["levels"]}
            assert set(owner.partition(recode).groups) == groups, recode
            compared += 1
    assert compared == {"dhc-2020-persons-us": 12, "dhc-2020-units-us": 10, "dhc-2020-tenvacgq-us": 1}[name]


@pytest.mark.parametrize(
    ("name", "level", "query", "deviation"),
    [
        ("dhc-2020-persons-us", "block", "detailed", 30.2),
        ("dhc-2020-persons-us", "block", "hispanic * sex", 30.2),
        ("dhc-2020-persons-us", "tract_subset", "detailed", 3.39),
        ("dhc-2020-persons-us", "tract_subset", "popSehsdTargetsRelship", 1.70),
        ("dhc-2020-persons-us", "tract_subset", "gq_constr_groups * age_10_groups", 1.70),
    ],
)
def test_dhc_noise_has_the_published_size(name: str, level: str, query: str, deviation: float) -> None:
    assert math.sqrt(1 / costs(name)[level, query]) == pytest.approx(deviation, rel=0.005)


def test_dhc_plans_resolve_and_promise_the_published_epsilons() -> None:
    persons, units = load("dhc-2020-persons-us"), load("dhc-2020-units-us")
    assert persons.budget == Fraction(24811, 5000)
    assert round(persons.epsilon(), 2) == 25.42
    product = product_of(units)
    assert product is not None
    assert (product.budget, round(product.epsilon, 2)) == (Fraction(15401, 2000), 33.29)
    assert "rho = 15401/2000 = 7.701, nominal epsilon 33.289" in product.text()
    assert (persons.schema.size, units.schema.size) == (1_227_744, 1_578_528)
    for plan in (persons, units):
        assert plan.settings.estimate.information == "level"
        assert [len(plan.passes(level)) for level in plan.levels] == [2] * 8
        assert plan.passes("block")[-1][-1] == "detailed"


def test_nobody_is_of_an_age_at_which_nobody_has_the_relationship() -> None:
    """Thirty-two rules of production, one for each relationship that has any."""
    schema = load("dhc-2020-persons-us").schema
    assert len(schema.structural_zeros) == 32
    possible = schema.possible.reshape(schema.shape)
    age = [[bool(ages.any()) for ages in relationship] for relationship in possible.transpose(0, 2, 1, 3, 4)]
    assert [sum(row) for row in age[:7]] == [101] * 6 + [90], "householders from 15, children up to 89"
    assert (age[27][:20], all(age[27][20:])) == ([False] * 20, True), "nursing facilities from 20"
    assert all(age[40]), "the rule for workers' quarters is not in the production list"


def test_a_household_of_one_is_as_old_as_its_householder() -> None:
    schema = load("dhc-2020-units-us").schema
    possible = schema.possible.reshape(schema.shape)  # sex, hhage, hisp, race, elderly, tenure, type
    alone = possible[0, :, 0, 0, :, 0, 392]
    assert alone.astype(int).tolist() == [[1, 0, 0, 0]] * 5 + [[0, 1, 0, 0], [0, 0, 1, 0]] + [[0, 0, 0, 1]] * 2
    own_under_six = possible[:, :, 0, 0, 3, 0, 0]
    assert own_under_six[0].tolist()[7:] == [False, False], "no man of 75 has a child under six"
    assert own_under_six[1].tolist()[5:] == [False] * 4, "no woman of 60 has"


def test_redistricting_totals_come_first_where_levels_are_taken_one_by_one() -> None:
    plan = load("pl94-2020").with_information("level")
    assert {level: len(plan.passes(level)) for level in plan.levels} == {
        "us": 1,
        "state": 2,
        "county": 2,
        "tract": 2,
        "block_group": 2,
        "block": 1,
    }
    assert plan.passes("state")[0] == ("total",)
    assert all(len(load("pl94-2020").passes(level)) == 1 for level in plan.levels), "full information has no passes"
