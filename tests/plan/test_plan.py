"""Plans: published budgets and noise, costs that add up exactly, and what is shown of them."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import das
from das.exact import digest_of, round_up
from das.noise.discrete_gaussian import DiscreteGaussian
from das.noise.discrete_laplace import DiscreteLaplace
from das.plan.plan import Plan, mechanism_for
from das.schema.query import Neighbours, parse_query
from das.schema.schema import Attribute, Schema

Country = Any

# Census 2020, published production settings: section 1 (budgets) and the line below the table of section 2 (noise).
PUBLISHED_EPSILON = {
    "pl94-2020-persons-us": ("293764/114921", 17.14),
    "pl94-2020-persons-pr": ("293764/114921", 17.14),
    "pl94-2020-units-us": ("11417641/152349649", 2.47),
    "pl94-2020-units-pr": ("11417641/152349649", 2.47),
}
PUBLISHED_NOISE = {
    ("state", "total"): 1.10,
    ("county", "total"): 2.17,
    ("tract", "total"): 2.47,
    ("block_group", "total"): 1.75,
    ("block", "total"): 89.2,
    ("tract", "hispanic * cenrace"): 2.23,
    ("block_group", "hispanic * cenrace"): 2.23,
    ("block", "detailed"): 3.18,
    ("block_group", "detailed"): 2.02,
}


@pytest.fixture(scope="module")
def persons() -> Plan:
    return das.load("pl94-2020")


@pytest.mark.parametrize("name", PUBLISHED_EPSILON)
def test_presets_have_the_published_budget_and_epsilon(name: str) -> None:
    plan = das.load(name)
    rho, epsilon = PUBLISHED_EPSILON[name]
    assert plan.budget == Fraction(rho)
    assert plan.epsilon() == pytest.approx(epsilon, abs=0.005)


def test_the_production_budget_converts_to_17_1436(persons: Plan, country: Country) -> None:
    assert persons.budget == Fraction(542, 339) ** 2
    assert round_up(persons.epsilon(), 4) == "17.1436"
    small = country.plan(privacy={"rho": str(Fraction(542, 339) ** 2), "delta": "1/10000000000"})
    assert small.epsilon() == persons.epsilon()
    assert "nominal epsilon 17.144 at delta 1e-10" in small.explain()


@pytest.mark.parametrize(("level", "query"), PUBLISHED_NOISE)
def test_noise_has_the_published_size(persons: Plan, level: str, query: str) -> None:
    (measurement,) = (m for m in persons.at(level) if m.query.name == query)
    published = PUBLISHED_NOISE[level, query]
    digits = len(str(published).split(".")[1])
    assert round(measurement.std_dev, digits) == published


def test_detailed_noise_above_block_groups_is_about_4_4(persons: Plan) -> None:
    for level in ("us", "state", "county", "tract"):
        assert persons.at(level)[-1].query.name == "detailed"
        assert persons.at(level)[-1].std_dev == pytest.approx(4.4, rel=0.015)


def test_the_numbers_per_geounit_are_the_published_ones(persons: Plan) -> None:
    assert sum(m.query.size for m in persons.at("block")) == 2603


@pytest.mark.parametrize("name", [*PUBLISHED_EPSILON])
def test_costs_of_a_preset_sum_to_its_budget_exactly(name: str) -> None:
    plan = das.load(name)
    assert sum((m.cost for m in plan.measurements), Fraction(0)) == plan.budget
    assert sum((m.share for m in plan.measurements), Fraction(0)) == 1


parts = st.lists(st.integers(1, 10**4), min_size=3, max_size=3)  # smaller shares than these leave noise that is refused


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(levels=parts, queries=parts, budget=st.fractions(min_value="1/1000", max_value=1000), pure=st.booleans())
@pytest.mark.parametrize("neighbours", Neighbours)
def test_noise_spends_the_budget_exactly(
    country: Country, levels: list[int], queries: list[int], budget: Fraction, pure: bool, neighbours: Neighbours
) -> None:
    """Costs recomputed from the noise that will be drawn, with the sensitivities of a moved or added record."""

    def shares(names: tuple[str, ...], weights: list[int]) -> dict[str, str]:
        return {name: str(Fraction(w, sum(weights))) for name, w in zip(names, weights, strict=True)}

    privacy = {"framework": "pure", "epsilon": str(budget)} if pure else {"framework": "zcdp", "rho": str(budget)}
    plan = country.plan(
        privacy=privacy | {"neighbours": str(neighbours)},
        strategy={
            "geolevels": shares(("state", "county", "block"), levels),
            "queries": {"all": shares(("total", "sex", "detailed"), queries)},
        },
    )
    moved = 2 if neighbours is Neighbours.REPLACE else 1
    spent = Fraction(0)
    for m in plan.measurements:
        noise = m.mechanism
        if pure:
            assert isinstance(noise, DiscreteLaplace)
            spent += noise.epsilon(moved)
        else:
            assert isinstance(noise, DiscreteGaussian)
            spent += noise.rho(moved)
    assert spent == plan.budget == budget


def test_a_mechanism_is_scaled_to_its_sensitivity() -> None:
    query = parse_query(Schema((Attribute("sex", ("f", "m")),)), "sex")
    third = Fraction(1, 3)
    assert mechanism_for("zcdp", third, query, Neighbours.REPLACE) == DiscreteGaussian(3)
    assert mechanism_for("zcdp", third, query, Neighbours.ADD_REMOVE) == DiscreteGaussian("3/2")
    assert mechanism_for("pure", third, query, Neighbours.REPLACE) == DiscreteLaplace(6)
    assert mechanism_for("pure", third, query, Neighbours.ADD_REMOVE) == DiscreteLaplace(3)


@pytest.mark.parametrize("framework", ["pure", "zcdp"])
@pytest.mark.parametrize("budget", ["1/5", "1", "40"])
def test_deviation_and_error_are_those_of_the_law(country: Country, framework: str, budget: str) -> None:
    """Moments summed from the weights as they are written: exp(-|k|/scale) and exp(-k^2/(2 sigma2))."""
    plan = country.plan(privacy={"framework": framework, ("epsilon" if framework == "pure" else "rho"): budget})
    for m in plan.measurements:
        parameter = float(Fraction(m.parameter))
        ks = range(-6000, 6001)
        weights = [math.exp(-abs(k) / parameter if framework == "pure" else -k * k / (2 * parameter)) for k in ks]
        whole = math.fsum(weights)
        assert m.expected_error == pytest.approx(
            math.fsum(abs(k) * w for k, w in zip(ks, weights, strict=True)) / whole
        )
        variance = math.fsum(k * k * w for k, w in zip(ks, weights, strict=True)) / whole
        assert m.std_dev == pytest.approx(math.sqrt(variance))


@pytest.mark.parametrize(("framework", "ratio"), [("pure", math.sqrt(1 / 2)), ("zcdp", math.sqrt(2 / math.pi))])
def test_a_tiny_budget_is_explained_without_summing_a_huge_table(
    country: Country, framework: str, ratio: float
) -> None:
    for budget in ("1/1000", "1/1000000000000"):  # on either side of where the sum gives way to the limit
        plan = country.plan(privacy={"framework": framework, ("epsilon" if framework == "pure" else "rho"): budget})
        for m in plan.measurements:
            assert m.expected_error / m.std_dev == pytest.approx(ratio, rel=1e-3)
        assert plan.explain()


def test_pure_epsilon_is_rounded_up(country: Country) -> None:
    for budget in ("1/3", "2/3", "1/10", "2"):
        epsilon = country.plan(privacy={"framework": "pure", "epsilon": budget}).epsilon()
        assert Fraction(epsilon) >= Fraction(budget)
        assert Fraction(math.nextafter(epsilon, 0)) < Fraction(budget)


@settings(max_examples=50)
@given(st.floats(1e-6, 1e6), st.integers(0, 6))
def test_a_quoted_number_is_never_below_the_true_one(value: float, digits: int) -> None:
    quoted = Fraction(round_up(value, digits))
    assert float(quoted) >= value * (1 - 1e-15)  # to the last bit of the number that is quoted
    assert quoted < Fraction(value) + 2 * Fraction(1, 10**digits)


def test_what_may_ever_be_spent(country: Country) -> None:
    assert country.plan().dataset_budget is None  # then the ledger's own total stands
    assert country.plan(input={"microdata": "a.csv", "budget": "7/2"}).dataset_budget == Fraction(7, 2)


FACTS = {
    "invariant": [{"query": "total", "level": "state", "reason": "seats"}],
    "bound": [{"query": "sex", "level": "block", "sense": "<=", "source": "beds.csv", "factor": 9, "reason": "beds"}],
}


def test_limited_queries_are_listed_once(country: Country) -> None:
    facts = dict(FACTS, bound=[*FACTS["bound"], FACTS["bound"][0] | {"sense": ">="}])
    assert [query.name for query in country.plan(**facts).limited_queries] == ["total", "sex"]


def test_the_plan_for_machines(country: Country) -> None:
    plan = country.plan(**FACTS)
    content = json.loads(json.dumps(plan.to_json()))
    assert content["plan_digest"] == plan.digest == digest_of(plan.privacy_content())
    assert (content["budget"], content["framework"], content["unit"]) == ("1/2", "zcdp", "person")
    assert content["delta"] == "1/10000000000"
    assert content["epsilon"] == plan.epsilon()
    assert content["cells"] == 6
    assert content["levels"] == ["state", "county", "block"]
    assert len(content["measurements"]) == 9
    assert content["measurements"][5] == {
        "level": "county",
        "query": "detailed",
        "cells": 6,
        "share": "1/6",
        "cost": "1/12",
        "mechanism": "discrete-gaussian(sigma2=12)",
        "std_dev": pytest.approx(math.sqrt(12)),
        "expected_error": pytest.approx(math.sqrt(12 * 2 / math.pi), rel=0.01),
    }
    assert sum(Fraction(m["cost"]) for m in content["measurements"]) == Fraction(content["budget"])
    assert content["invariants"] == [{"level": "state", "query": "total", "reason": "seats"}]
    assert content["bounds"] == [{"level": "block", "query": "sex", "sense": "<="}]


def test_the_plan_for_people(country: Country) -> None:
    plan = country.plan(**FACTS)
    lines = plan.explain().splitlines()
    assert lines[0] == "tiny: 6 cells per geounit, levels state > county > block"
    assert lines[1].startswith("protects one person (replace): rho = 1/2 = 0.500, nominal epsilon ")
    rows = [line.split() for line in lines if line.startswith(("state ", "county ", "block "))]
    assert [(row[0], " ".join(row[1:-5])) for row in rows] == [(m.level, m.query.name) for m in plan.measurements]
    for row, m in zip(rows, plan.measurements, strict=True):
        assert row[-5:-2] == [f"{m.query.size}", f"{float(m.share):.6f}", f"{float(m.cost):.5f}"]
        assert row[-2] == f"{m.std_dev:.2f}"
    assert "public, exact: total at state (seats)" in lines
    assert "public bound:  sex at block <= 9 x beds.csv" in lines
    assert "impossible:    no old men" in lines
    assert any(plan.digest[:16] in line for line in lines)


def test_a_pure_plan_quotes_no_delta(country: Country) -> None:
    text = country.plan(privacy={"framework": "pure", "epsilon": "3/2"}).explain()
    assert "protects one person (replace): epsilon = 3/2" in text
    assert "delta" not in text
    written = country.plan(privacy={"framework": "pure", "epsilon": "3/2", "delta": "1/1000"}).explain()
    assert "hint:          a pure promise has no delta" in written
