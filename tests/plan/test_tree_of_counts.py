"""Which plans are trees of counts, and what those are told that are none."""

from __future__ import annotations

from typing import Any

import pytest

from das.errors import ConfigError
from das.plan.tree_of_counts import tree_of

CONGENIAL = {"method": "congenial"}
DETAILED = {"all": {"detailed": "1"}}
TOTALS = {"all": {"total": "1"}, "block": {"total": "1/2", "detailed": "1/2"}}


def strategy(queries: dict[str, dict[str, str]]) -> dict[str, Any]:
    return {"geolevels": {"state": "1/6", "county": "1/3", "block": "1/2"}, "queries": queries}


def test_cells_at_every_level(country: Any) -> None:
    plan = country.plan(estimate=CONGENIAL, strategy=strategy(DETAILED))
    assert tree_of(plan).explain() == "state detailed > county detailed > block detailed"


def test_totals_down_the_spine_then_cells_in_the_leaves(country: Any) -> None:
    plan = country.plan(estimate=CONGENIAL, strategy=strategy(TOTALS))
    assert tree_of(plan).explain() == "state total > county total > block total > block detailed"


def test_what_is_fixed_or_bounded_has_its_place_in_the_tree(country: Any) -> None:
    plan = country.plan(
        estimate=CONGENIAL,
        strategy=strategy(DETAILED),
        invariant=[{"query": "total", "level": "state", "reason": "law"}],
    )
    assert tree_of(plan).explain().startswith("state total (not measured) > state detailed > county detailed")


def test_a_level_that_begins_finer_than_the_one_above_ended(country: Any) -> None:
    queries = {"state": {"total": "1"}, "county": {"sex": "1"}, "block": {"detailed": "1"}}
    plan = country.plan(estimate=CONGENIAL, strategy=strategy(queries))
    assert tree_of(plan).explain() == (
        "state total > county total (not measured) > county sex > block sex (not measured) > block detailed"
    )


@pytest.mark.parametrize(
    ("queries", "words"),
    [
        ({"all": {"sex": "1/2", "age": "1/2"}}, "'age' does not refine 'sex'"),
        ({"all": {"total": "1/2", "detailed": "1/2"}}, "'total' does not refine 'detailed'"),
        ({"state": {"detailed": "1"}, "county": {"sex": "1"}, "block": {"detailed": "1"}}, "counts at state and at"),
    ],
    ids=["crossing queries", "totals below cells", "coarser below"],
)
def test_a_plan_that_is_no_tree_is_refused_with_the_nearest_that_is_one(
    country: Any, queries: dict[str, dict[str, str]], words: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        country.plan(estimate=CONGENIAL, strategy=strategy(queries))
    assert words in str(refused.value)
    assert "not laminar" in str(refused.value)
    assert "detailed" in refused.value.problems[0].remedy
    country.plan(strategy=strategy(queries))  # the other engine takes it


def test_leaves_need_their_cells_measured(country: Any) -> None:
    with pytest.raises(ConfigError, match="nothing measures them"):
        country.plan(estimate=CONGENIAL, strategy=strategy({"all": {"total": "1"}}))


def test_conditioning_changes_the_plan_and_estimation_does_not(country: Any) -> None:
    plain = country.plan(strategy=strategy(DETAILED)).digest
    assert country.plan(strategy=strategy(DETAILED), estimate={"information": "level"}).digest == plain
    assert country.plan(strategy=strategy(DETAILED), estimate=CONGENIAL).digest != plain


def fact(query: str, level: str) -> dict[str, str]:
    return {"query": query, "level": level, "reason": "law"}


@pytest.mark.parametrize(
    ("queries", "facts", "remedy"),
    [
        (DETAILED, [fact("total", "block")], "measure 'total' alone above block and 'detailed' at block"),
        (TOTALS, [fact("sex", "state")], "measure 'detailed' alone at every level"),
        (DETAILED, [fact("sex", "state"), fact("age", "state")], "the public facts cross"),
        (TOTALS, [fact("sex", "county"), fact("total", "block")], "the public facts cross"),
    ],
    ids=["total below cells", "cells above totals", "crossing facts", "a coarser fact below"],
)
def test_the_nearest_tree_keeps_the_facts(country: Any, queries: Any, facts: Any, remedy: str) -> None:
    """What is recommended must itself be accepted, and facts can be what stands in the way."""
    with pytest.raises(ConfigError, match="not laminar") as refused:
        country.plan(estimate=CONGENIAL, strategy=strategy(queries), invariant=facts)
    assert refused.value.problems[0].remedy.startswith(remedy)
    if remedy.startswith("measure"):
        advised = DETAILED if "every level" in remedy else {"all": {"total": "1"}, "block": {"detailed": "1"}}
        country.plan(estimate=CONGENIAL, strategy=strategy(advised), invariant=facts)


def test_a_fact_about_what_is_measured_under_another_name_stands_above_it(country: Any) -> None:
    facts = [fact("sex * age", "block")]
    plan = country.plan(estimate=CONGENIAL, strategy=strategy(DETAILED), invariant=facts)
    assert tree_of(plan).explain().endswith("block sex * age (not measured) > block detailed")


@pytest.mark.parametrize("framework", ["zcdp", "pure"])
def test_too_little_noise_for_any_promise_is_refused(country: Any, framework: str) -> None:
    """The sampler's total variation counts e^epsilon times: with next to no noise nothing is left to be promised."""
    name = "rho" if framework == "zcdp" else "epsilon"
    for budget in ("1", "100"):
        privacy = {"framework": framework, name: budget}
        if budget == "1":
            country.plan(estimate=CONGENIAL, strategy=strategy(DETAILED), privacy=privacy)
            continue
        with pytest.raises(ConfigError, match="so little noise") as refused:
            country.plan(estimate=CONGENIAL, strategy=strategy(DETAILED), privacy=privacy)
        assert refused.value.problems[0].where == f"privacy.{name}"
        country.plan(strategy=strategy(DETAILED), privacy=privacy)  # the other engine takes it
