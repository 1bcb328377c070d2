"""The shipped settings: exact, complete, and equal to the published ones."""

from __future__ import annotations

import json
import math
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from das.config import load
from das.population import CENRACE, HHGQ, HISPANIC, VOTINGAGE
from das.query import parse_query
from das.schema import Attribute, Schema, StructuralZero

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = ROOT / ".." / "shared" / "census2020"
PRESETS = {
    "pl94-2020-persons-us": "pl94_person_US",
    "pl94-2020-persons-pr": "pl94_person_PR",
    "pl94-2020-units-us": "pl94_unit_US",
    "pl94-2020-units-pr": "pl94_unit_PR",
}
published = pytest.mark.skipif(not PUBLISHED.is_dir(), reason="needs ../shared/census2020")


def content(name: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / "config" / f"{name}.toml").read_text(encoding="utf-8"))


def schema_of(preset: dict[str, Any]) -> Schema:
    return Schema(
        tuple(Attribute(a["name"], tuple(a["labels"]), a.get("recodes", {})) for a in preset["schema"]["attribute"]),
        tuple(StructuralZero(z["name"], z["labels"]) for z in preset["schema"].get("structural_zero", ())),
    )


@pytest.mark.parametrize("name", PRESETS)
def test_every_table_of_shares_sums_to_one_exactly(name: str) -> None:
    strategy = content(name)["strategy"]
    assert strategy["geolevels"].keys() == strategy["queries"].keys()
    for table in (strategy["geolevels"], *strategy["queries"].values()):
        assert sum(Fraction(share) for share in table.values()) == 1


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_says_its_source_and_its_own_name(name: str) -> None:
    text = (ROOT / "config" / f"{name}.toml").read_text(encoding="utf-8")
    assert text.startswith("#")
    assert "# Source: as published by the U.S. Census Bureau" in text
    assert content(name)["name"] == name
    assert "Census Bureau" in content(name)["source"]


@pytest.mark.parametrize("name", PRESETS)
def test_every_query_of_a_preset_has_a_meaning_in_its_schema(name: str) -> None:
    preset = content(name)
    schema = schema_of(preset)
    for table in preset["strategy"]["queries"].values():
        for query in table:
            parse_query(schema, query)
    for invariant in preset["invariant"]:
        assert invariant["level"] in preset["strategy"]["geolevels"]
        parse_query(schema, invariant["query"])


@published
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


@published
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
