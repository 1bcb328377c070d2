"""Which tree and which shares: draws and errors against enumeration, the order of candidates, and what is pasted."""

from __future__ import annotations

import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from das.errors import UsageError
from das.evaluation.country import Country, answers_of, generate_country, within
from das.evaluation.trees import compare_trees, comparison_json, comparison_text
from das.evaluation.trees.comparison import Trial, log_ratio
from das.evaluation.trees.draw import congenial_draws
from das.evaluation.trees.least_squares import least_squares
from das.evaluation.trees.text import strategy_toml
from das.facts.collect import require_agreement
from das.facts.fact import Declared, Fact
from das.plan.candidate_trees import candidate_shares, candidate_trees
from das.plan.geography import spine_of
from das.plan.plan import Plan
from das.schema.query import parse_query
from geography import Spine

CONGENIAL = {"method": "congenial"}
DETAILED = {"all": {"detailed": "1"}}
TOTALS = {"all": {"total": "1"}, "block": {"detailed": "1"}}
STATE_TOTAL = [{"query": "total", "level": "state", "reason": "law"}]
MOST = 6
TRUTH = np.array([[2, 0], [0, 0], [1, 1]])
"""Three blocks of one state, two cells each: few enough to list every table with counts of at most MOST."""


def tiny(country: Any, queries: dict[str, dict[str, str]], leaf: str = "1/2", **sections: Any) -> Plan:
    country.file("units.csv", "geocode\n11\n12\n13\n")
    plan: Plan = country.plan(
        geography={"units": "units.csv", "levels": [{"name": "state", "width": 1}, {"name": "block", "width": 1}]},
        schema={"attribute": [{"name": "sex", "labels": ["f", "m"]}]},
        privacy={"framework": "zcdp", "rho": "4"},
        strategy={"geolevels": {"state": str(1 - Fraction(leaf)), "block": leaf}, "queries": queries},
        estimate=CONGENIAL,
        **sections,
    )
    return plan


def world(plan: Plan) -> Country:
    """The tiny country with the counts that are enumerated."""
    spine = spine_of(plan)
    declared = tuple(
        Declared(i.level, Fact(i.query, "=", answers_of(spine, TRUTH, i.level, i.query)), i.reason)
        for i in plan.invariants
    )
    return Country(spine=spine, cells=TRUTH, facts=require_agreement(declared, spine) if declared else {}, whole=3)


def enumerated(plan: Plan, country: Country) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Every table of the tiny country that keeps the invariants, and its probability by the definition of the law."""
    cells = np.stack(np.meshgrid(*[np.arange(MOST + 1)] * TRUTH.size, indexing="ij"), axis=-1).reshape(-1, *TRUTH.shape)
    for i in plan.invariants:
        cells = cells[(i.query.answer(cells.sum(axis=1) - TRUTH.sum(axis=0)) == 0).all(axis=1)]
    logs = np.zeros(len(cells))
    for m in plan.measurements:
        at = cells if m.level == "block" else cells.sum(axis=1, keepdims=True)
        true = country.answers(m.level, m.query)
        logs += m.mechanism.log_pmf(m.query.answer(at) - true).sum(axis=(1, 2))
    weights = np.exp(logs - logs.max())
    return cells, weights / weights.sum()


def expected_errors(plan: Plan, trial: Trial) -> NDArray[np.float64]:
    cells, share = enumerated(plan, trial.country)
    away = cells - TRUTH
    by_level = {"state": away.sum(axis=1, keepdims=True), "block": away}
    rows = [
        [float(np.abs(query.answer(by_level[level])).mean(axis=(1, 2)) @ share) for query in trial.tables]
        for level in plan.levels
    ]
    return np.array(rows)


def trial_of(plan: Plan, runs: int) -> Trial:
    tables = tuple(parse_query(plan.schema, name) for name in ("total", "sex"))
    keys = tuple(f"run {run}" for run in range(runs))
    return Trial(country=world(plan), tables=tables, keys=keys, whole=spine_of(plan))


@pytest.mark.parametrize("queries", [DETAILED, TOTALS], ids=["cells", "totals"])
@pytest.mark.parametrize("invariant", [None, STATE_TOTAL], ids=["nothing public", "total public"])
def test_errors_of_draws_are_those_of_the_enumerated_law(country: Any, queries: Any, invariant: Any) -> None:
    plan = tiny(country, queries, invariant=invariant)
    trial = trial_of(plan, 200)
    found = trial.drawn(plan)
    assert found is not None
    expected = expected_errors(plan, trial)
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    assert (np.abs(found.mean(axis=0) - expected) <= 4.5 * error + 1e-9).all()
    wrong = expected_errors(tiny(country, queries, "1/4", invariant=invariant), trial)
    assert (np.abs(found.mean(axis=0) - wrong) > 4.5 * error + 1e-9).any(), "other noise is told apart"


def test_the_recommended_tree_is_that_of_the_enumerated_laws(country: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By enumeration, cells at every level are better than totals above the blocks, and so says the comparison."""
    plan = tiny(country, TOTALS, invariant=STATE_TOTAL, output={"tables": ["total", "sex"]})
    monkeypatch.setattr("das.evaluation.trees.comparison.generate_country", lambda plan, seed, leaves: world(plan))
    found = compare_trees(plan, runs=50)
    trial = trial_of(plan, 1)
    reference = expected_errors(plan, trial)
    exact = {each: np.exp(log_ratio(expected_errors(each.candidate.plan, trial), reference)) for each in found.compared}
    for each, ratio in exact.items():
        assert each.ratio == pytest.approx(ratio, abs=5 * max(each.ratio_se, 0.02)), each.candidate
    assert exact[found.recommended] <= min(exact.values()) * 1.03, "the best, up to the noise of fifty runs"
    assert exact[found.recommended] < 0.9
    assert "detailed" in {m.query.name for m in found.recommended.candidate.plan.at("state")}


def test_the_plan_is_recommended_where_nothing_is_better(country: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = tiny(country, DETAILED, "1/2")
    monkeypatch.setattr("das.evaluation.trees.comparison.candidate_shares", lambda plan: {})
    found = compare_trees(plan, runs=4)
    assert found.recommended is found.own
    assert "recommended: the plan as it is" in comparison_text(found)


def test_candidates_are_trees_and_spend_everything(country: Any) -> None:
    plan = country.plan(estimate=CONGENIAL, strategy=_strategy(DETAILED), output={"tables": ["sex", "age"]})
    found = candidate_trees(plan)
    assert [each.tree for each in found[:3]] == [
        "detailed at every level",
        "total above block, detailed at block",
        "total down to state, detailed from state on",
    ]
    assert {"sex above block, detailed at block", "age down to county, detailed from county on"} <= {
        each.tree for each in found
    }
    for each in found:
        assert sum(m.share for m in each.plan.measurements) == 1
        assert each.plan.budget == plan.budget
    for shares in candidate_shares(plan).values():
        assert sum(shares.values()) == 1


def test_a_tree_that_crosses_a_public_fact_is_no_candidate(country: Any) -> None:
    country.file("limits.csv", "geocode,minor,adult\n" + "".join(f"{code},9,9\n" for code in _codes(country)))
    bound = [{"query": "grown", "level": "block", "sense": "<=", "source": "limits.csv"}]
    plan = country.plan(estimate=CONGENIAL, strategy=_strategy({**TOTALS}), bound=bound, output={"tables": ["sex"]})
    words = [each.tree for each in candidate_trees(plan)]
    assert "total above block, detailed at block" in words
    assert not [each for each in words if each.startswith(("sex", "detailed at every"))]


def test_generated_people_keep_bounds_and_structural_zeros(country: Any) -> None:
    codes = _codes(country)
    country.file("most.csv", "geocode,minor,adult\n" + "".join(f"{code},0,5\n" for code in codes))
    country.file("least.csv", "geocode,minor,adult\n" + "".join(f"{code},0,2\n" for code in codes))
    bound = [
        {"query": "grown", "level": "block", "sense": "<=", "source": "most.csv"},
        {"query": "grown", "level": "block", "sense": ">=", "source": "least.csv"},
    ]
    plan = country.plan(estimate=CONGENIAL, strategy=_strategy(TOTALS), bound=bound, invariant=STATE_TOTAL)
    made = generate_country(plan, 1)
    grown = made.answers("block", parse_query(plan.schema, "grown"))
    assert (grown[:, 0] == 0).all()
    assert ((grown[:, 1] >= 2) & (grown[:, 1] <= 5)).all()
    assert not made.cells[:, ~plan.schema.possible].any()
    total = parse_query(plan.schema, "total")
    assert np.array_equal(made.limits("state", total)[0], made.answers("state", total))
    for drawn in (congenial_draws(plan, made, ["k"])[0], least_squares(plan, made, "k")):
        shown = answers_of(made.spine, drawn, "block", parse_query(plan.schema, "grown"))
        assert ((shown >= [0, 2]) & (shown <= [0, 5])).all()
        assert np.array_equal(answers_of(made.spine, drawn, "state", total), made.answers("state", total))


def test_least_squares_without_noise_finds_the_truth(country: Any) -> None:
    plan = tiny(country, DETAILED)
    made = world(plan)
    exact = plan.with_method("nonnegative-l2").with_budget(Fraction(40))
    assert np.array_equal(least_squares(exact, made, "k"), TRUTH)
    assert not np.array_equal(least_squares(exact.with_budget(Fraction(1, 100)), made, "k"), TRUTH)


def test_part_of_a_spine_is_whole_geounits_spread_evenly() -> None:
    codes = np.array([f"{i:04d}" for i in range(2000)])
    paths = [codes.astype("U1"), codes.astype("U2"), codes.astype("U3"), codes]
    spine = Spine.from_paths(["state", "county", "tract", "block"], paths)
    some = within(spine, 500)
    assert (some.size("county"), some.size("block")) == (5, 500)
    assert within(spine, 2000) is spine
    few = within(spine, 45)
    assert (few.size("tract"), few.size("block"), few.size("state")) == (4, 40, 2)


@pytest.mark.slow
def test_what_is_pasted_is_the_plan_that_was_simulated(country: Any) -> None:
    plan = country.plan(
        estimate=CONGENIAL, strategy=_strategy(TOTALS), output={"tables": ["sex"]}, invariant=STATE_TOTAL
    )
    found = compare_trees(plan, runs=2, seed=1)
    best = found.recommended.candidate.plan
    pasted = tomllib.loads(strategy_toml(best))["strategy"]
    again = country.plan(estimate=CONGENIAL, strategy=pasted, output={"tables": ["sex"]}, invariant=STATE_TOTAL)
    assert again.digest == best.digest
    content = comparison_json(found)
    assert content["recommended"]["strategy"] in comparison_text(found)
    assert sum(each["is_own"] for each in content["candidates"]) == 1
    assert content == comparison_json(compare_trees(plan, runs=2, seed=1)), "a seed decides everything"
    assert content["errors"] != comparison_json(compare_trees(plan, runs=2, seed=2))["errors"]


def test_only_a_congenial_plan_is_compared(country: Any) -> None:
    with pytest.raises(UsageError, match="nonnegative-l2"):
        compare_trees(country.plan())


@pytest.mark.slow
@pytest.mark.parametrize("method", ["congenial", "nonnegative-l2"])
def test_a_draw_in_memory_is_the_release_with_the_same_key(country: Any, tmp_path: Path, method: str) -> None:
    """Noise is a function of key, plan, level, geocode and query: both must publish the very same counts."""
    import das
    from das.storage.counts import read_counts

    strategy = {"geolevels": {"state": "1/6", "county": "1/3", "block": "1/2"}, "queries": DETAILED}
    plan = country.plan(estimate={"method": method}, strategy=strategy, invariant=STATE_TOTAL)
    made = generate_country(plan, 3)
    labels = [(sex, age) for sex in ("f", "m") for age in ("0-17", "18-64", "65+")]
    rows = [
        f"{code},{sex},{age}\n" * int(n)
        for code, counts in zip(made.spine.leaves.tolist(), made.cells, strict=True)
        for (sex, age), n in zip(labels, counts, strict=True)
    ]
    country.file("people.csv", "geocode,sex,age\n" + "".join(rows))
    das.run(plan, out=tmp_path / "out", testing_key="the key")
    shown = read_counts(made.spine, "block", tmp_path / "out" / "release" / "counts" / "block.parquet")
    released = np.zeros_like(made.cells)
    released[shown.unit, shown.cell] = shown.count
    if method == "congenial":
        (drawn,) = congenial_draws(plan, made, ["the key"])
    else:
        drawn = least_squares(plan, made, "the key")
    assert np.array_equal(drawn, released)


def _strategy(queries: dict[str, dict[str, str]]) -> dict[str, Any]:
    return {"geolevels": {"state": "1/6", "county": "1/3", "block": "1/2"}, "queries": queries}


def _codes(country: Any) -> list[str]:
    return [line for line in (country.folder / "units.csv").read_text().split()[1:]]
