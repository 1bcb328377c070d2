"""The shipped strategy of the congenial method: exact, a tree, and what its comments say."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from das.errors import ConfigError
from das.plan import presets
from das.plan.load import load
from das.plan.tree_of_counts import tree_of

NAME = "congenial-pl94"
FIVE = ("state", "county", "tract", "block_group", "block")


def test_it_is_listed_with_where_its_numbers_come_from() -> None:
    assert NAME in presets.names()
    assert presets.read(NAME)["source"].startswith("measured by das: das plan --compare-trees")
    text = presets.path(NAME).read_text(encoding="utf-8")
    assert "# Source of rho, delta and schema: preset pl94-2020-persons-us" in text
    assert "Source of the strategy: measured by\n# das" in text


def test_every_table_of_shares_sums_to_one_exactly() -> None:
    strategy = presets.read(NAME)["strategy"]
    assert tuple(strategy["geolevels"]) == tuple(strategy["queries"]) == FIVE
    for table in (strategy["geolevels"], *strategy["queries"].values()):
        assert sum(map(Fraction, table.values())) == 1


def test_it_plans_a_tree_with_the_budget_and_schema_of_2020() -> None:
    plan, production = load(NAME), load("pl94-2020")
    assert plan.settings.estimate.method == "congenial"
    assert tree_of(plan).explain() == (
        "state total (not measured) > state hhgq > state detailed > county detailed > tract detailed > "
        "block_group detailed > block detailed"
    )
    assert (plan.budget, plan.schema) == (production.budget, production.schema)
    assert sum(m.share for m in plan.measurements) == 1
    assert {m.level: m.std_dev for m in plan.at("block")}["block"] == pytest.approx(1.4, abs=0.01)


def geography(levels: tuple[str, ...]) -> dict[str, Any]:
    return {"units": "units.csv", "levels": [{"name": level, "width": 1} for level in levels]}


def test_a_config_that_names_it_gets_its_method_too(country: Any) -> None:
    plan = country.plan(
        geography=geography(FIVE),
        schema={"preset": "pl94-2020"},
        strategy={"preset": NAME},
        invariant=presets.read(NAME)["invariant"],
    )
    assert plan.settings.estimate.method == "congenial"
    assert [m.share for m in plan.measurements] == [m.share for m in load(NAME).measurements]


def test_bounds_on_group_quarters_in_blocks_are_refused_as_its_comment_says(country: Any) -> None:
    bound = [{"query": "hhgq", "level": "block", "sense": "<=", "source": "facilities.csv"}]
    with pytest.raises(ConfigError, match="does not refine"):
        country.plan(geography=geography(FIVE), schema={"preset": "pl94-2020"}, strategy={"preset": NAME}, bound=bound)
