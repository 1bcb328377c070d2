"""Tuning against brute force: typical variances, the convex shares, exact rounding, targets, and what is refused."""

from __future__ import annotations

import json
import tomllib
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from das.cli import das as das_command
from das.cli import main
from das.errors import ConfigError, InfeasibleError, UsageError
from das.estimation.linear.typical import TypicalTree, UndeterminedError
from das.evaluation.country import country_of, generate_country
from das.evaluation.tuning import read_targets, tune
from das.evaluation.tuning.shares import _rounded, costs_of, least_precisions, weights_of
from das.evaluation.tuning.targets import Target, TargetSettings
from das.evaluation.tuning.text import tuned_config, tuned_json, warnings_of
from das.evaluation.tuning.trial import Trial
from das.plan.load import load
from das.plan.plan import Plan
from das.schema.query import parse_query
from geography import Spine

REGULAR = [f"{s}{c}{b:03d}" for s in (0, 1) for c in (1, 2, 3) for b in range(4)]
LAW = [{"query": "total", "level": "state", "reason": "law"}]


def regular(country: Any, **sections: Any) -> Plan:
    """The tiny country with as many children everywhere, where a typical geounit is every geounit."""
    country.file("units.csv", "geocode\n" + "\n".join(REGULAR) + "\n")
    plan: Plan = country.plan(**sections)
    return plan


def dense_variances(plan: Plan, spine: Spine, level: str, name: str) -> np.ndarray:
    """Generalised least squares written out: variances of a query's answers in each geounit of a level."""
    cells, leaves = plan.schema.size, len(spine.leaves)
    possible = np.tile(plan.schema.possible, leaves)

    def rows(where: str, query: str) -> np.ndarray:
        members = np.repeat(np.arange(spine.size(where)), np.diff(spine.leaf_ranges(where)))
        above = np.eye(spine.size(where))[members].T  # geounits x leaves
        asked = parse_query(plan.schema, query)
        answers = np.eye(asked.size)[asked.index].T
        return np.kron(above, answers)[:, possible]

    information = sum(
        rows(m.level, m.query.name).T @ rows(m.level, m.query.name) / m.mechanism.variance() for m in plan.measurements
    )
    exact = [rows(i.level, i.query.name) for i in plan.invariants]
    free = np.eye(information.shape[0])
    if exact:
        _, spectrum, right = np.linalg.svd(np.vstack(exact))
        free = right[int((spectrum > 1e-9).sum()) :].T
    covariance = free @ np.linalg.solve(free.T @ information @ free, free.T)
    asked = rows(level, name)
    found = np.einsum("ij,jk,ik->i", asked, covariance, asked)
    assert cells * leaves == len(possible)
    return found


@pytest.mark.parametrize("invariant", [None, LAW])
@pytest.mark.parametrize("framework", [{"framework": "zcdp", "rho": "1/2"}, {"framework": "pure", "epsilon": "2"}])
def test_typical_variances_are_those_of_generalised_least_squares(country: Any, invariant: Any, framework: Any) -> None:
    plan = regular(country, invariant=invariant, privacy=framework)
    spine = country.spine()
    tree = TypicalTree.of(plan, spine)
    for level in plan.levels:
        for name in ("total", "sex", "grown", "detailed"):
            expected = dense_variances(plan, spine, level, name).mean()
            found = tree.variance(level, parse_query(plan.schema, name), weights_of(plan))
            assert found == pytest.approx(expected, rel=1e-6, abs=1e-9), (level, name)


def test_a_query_that_nothing_determines_is_said_to_be(country: Any) -> None:
    strategy = {
        "geolevels": {"state": "1/6", "county": "1/3", "block": "1/2"},
        "queries": {"all": {"total": "1/2", "sex": "1/2"}},
    }
    plan = regular(country, strategy=strategy)
    with pytest.raises(UndeterminedError):
        TypicalTree.of(plan, country.spine()).terms("county", parse_query(plan.schema, "age"))
    assert TypicalTree.of(plan, country.spine()).terms("county", parse_query(plan.schema, "sex"))
    targets = country.file("t.toml", '[[target]]\nlevel = "county"\nquery = "age"\nmae = 3\n')
    with pytest.raises(InfeasibleError, match="no budget meets it"):
        tune(plan, read_targets(targets, plan), generate_country(plan, 1), seed=1, runs=1)


@pytest.mark.parametrize("framework", [{"framework": "zcdp", "rho": "1/2"}, {"framework": "pure", "epsilon": "2"}])
def test_the_least_cost_is_that_of_a_general_optimiser(country: Any, framework: Any) -> None:
    """SLSQP on logarithms, from several starts, finds nothing cheaper; and the constraints hold."""
    plan = regular(country, privacy=framework)
    tree = TypicalTree.of(plan, country.spine())
    asked = [("county", "total"), ("block", "sex"), ("state", "detailed")]
    terms = [tree.terms(level, parse_query(plan.schema, name)) for level, name in asked]
    allowed = [4.0, 9.0, 2.0]
    found = least_precisions(plan, terms, allowed)
    names = list(found.weights)

    def variances(weights: dict[tuple[str, str], float]) -> np.ndarray:
        return np.array([sum(t.value(weights)[0] for t in each) for each in terms]) / allowed

    assert variances(found.weights).max() == pytest.approx(1, rel=1e-6)

    def cost(log: np.ndarray) -> float:
        return sum(costs_of(plan, dict(zip(names, np.exp(log), strict=True))).values())

    def slack(log: np.ndarray) -> np.ndarray:
        return 1 - variances(dict(zip(names, np.exp(log), strict=True)))

    own = sum(costs_of(plan, found.weights).values())
    for start in (0.3, 1.0):
        other = minimize(
            cost,
            np.full(len(names), np.log(start)),
            constraints=[{"type": "ineq", "fun": slack}],
            bounds=[(-14, 5)] * len(names),
            method="SLSQP",
            options={"maxiter": 400},
        )
        assert slack(other.x).min() > -1e-4
        assert own <= other.fun * (1.01 if plan.framework == "zcdp" else 1.05)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), st.floats(1e-9, 1e3), min_size=1, max_size=9))
def test_rounded_shares_sum_to_one_and_none_is_lost(parts: dict[str, float]) -> None:
    found = _rounded(parts)
    assert sum(found.values()) == 1
    assert all(share >= Fraction(1, 2000) for share in found.values())
    whole = sum(parts.values())
    assert all(abs(float(found[name]) - part / whole) < 0.0006 * len(parts) for name, part in parts.items())


@pytest.mark.slow
@given(st.floats(0.2, 0.99), st.floats(0.5, 20))
def test_a_share_is_just_met_by_the_errors_it_allows(share: float, percent: float) -> None:
    settings = TargetSettings(level="block", query="total", share=share, within_percent=percent)
    target = Target(level="block", query=None, settings=settings)  # type: ignore[arg-type]
    true = np.array([[100], [250], [900], [40]])
    allowed = target.allowed(true)
    assert target.met_by(allowed, true) == pytest.approx(share, abs=1e-6)
    errors = allowed * np.random.default_rng(1).standard_normal((4000, 4)).reshape(-1, 1)
    many = np.tile(true, (4000, 1))
    assert target.achieved(errors, many) == pytest.approx(share, abs=0.03)
    assert target.deviation(errors, many) == pytest.approx(allowed, rel=0.1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[target]]\nlevel = "county"\nquery = "total"\n', "exactly one of"),
        ('[[target]]\nlevel = "county"\nquery = "total"\nmae = 1\nrmse = 2\n', "exactly one of"),
        ('[[target]]\nlevel = "county"\nquery = "total"\nshare = 0.9\n', "exactly one of"),
        ('[[target]]\nlevel = "county"\nquery = "total"\nmae = 0\n', "greater than 0"),
        ('[[target]]\nlevel = "contry"\nquery = "total"\nmae = 1\n', "did you mean 'county'"),
        ('[[target]]\nlevel = "county"\nquery = "sx"\nmae = 1\n', "did you mean 'sex'"),
        ('[[target]]\nlevel = "county"\nquery = "sex"\nmaee = 1\nmae = 1\n', "did you mean 'mae'"),
        ('[[target]]\nlevel = "county"\nquery = "sex"\nmae = 1\n[limit]\nepsilon = "1"\n', "budget is in rho"),
        ("", "is missing"),
        ("[[", "not valid TOML"),
    ],
)
def test_a_mistake_in_the_targets_is_named(country: Any, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_targets(country.file("targets.toml", text), country.plan())


def test_a_limit_that_is_too_low_names_the_nearest(country: Any, capsys: pytest.CaptureFixture[str]) -> None:
    regular(country)
    country.file("t.toml", '[[target]]\nlevel = "block"\nquery = "sex"\nmae = 1\n[limit]\nrho = "1/100"\n')
    with pytest.raises(SystemExit) as ended:
        main(["tune", str(country.folder / "config.toml"), "--targets", str(country.folder / "t.toml"), "--runs", "1"])
    assert ended.value.code == 4
    said = capsys.readouterr().err
    assert "sex at block: mean |error| at most 1" in said
    assert "nearest with these shares and rho = 1/100" in said


def test_a_wrong_target_is_one_mistake_and_none_at_all_another(country: Any) -> None:
    for text, words in (
        ('[[target]]\nlevel = "county"\nquery = "sex"\nshare = 0.9\n', "target.1: say exactly one of"),
        ("target = []\n", "target: is missing; write [[target]]"),
    ):
        with pytest.raises(ConfigError) as caught:
            read_targets(country.file("t.toml", text), regular(country))
        (problem,) = caught.value.problems
        assert words in str(problem)


@pytest.mark.parametrize(("keep", "words"), [(None, "or [keep] times = 3"), (3.0, "[keep] holds because other")])
def test_what_nobody_asks_for_is_said_with_a_remedy_that_was_not_taken(country: Any, keep: Any, words: str) -> None:
    plan = regular(country)
    shares = [SimpleNamespace(level=m.level, query=m.query, share=Fraction(1, 10**6)) for m in plan.measurements]
    found: Any = SimpleNamespace(
        own=SimpleNamespace(plan=plan),
        tuned=SimpleNamespace(plan=SimpleNamespace(measurements=shares)),
        determined=(),
        trial=SimpleNamespace(targets=SimpleNamespace(keep=keep)),
    )
    (warning,) = warnings_of(found)
    assert words in warning


def test_confidential_data_are_refused(country: Any) -> None:
    plan = country.plan(input={"microdata": "people.csv"})
    with pytest.raises(UsageError, match="leave --public out"):
        country_of(plan)


@pytest.mark.slow
def test_tuned_shares_meet_their_targets_and_are_loaded(country: Any, tmp_path: Path) -> None:
    """The command end to end: shares exact, the page and the config written, targets met in the simulation."""
    regular(country, invariant=LAW)
    country.file(
        "targets.toml",
        '[[target]]\nlevel = "county"\nquery = "sex"\nmae = 3\n\n'
        '[[target]]\nlevel = "block"\nquery = "total"\nshare = 0.9\nwithin = 6\n\n[keep]\ntimes = 4\n',
    )
    config, targets = country.folder / "config.toml", country.folder / "targets.toml"
    out, page = tmp_path / "elsewhere" / "tuned.toml", tmp_path / "tuned.html"
    arguments = [str(config), "--targets", str(targets), "--out", str(out), "--html", str(page), "--runs", "8"]
    ran = CliRunner().invoke(das_command, ["tune", *arguments, "--json"], catch_exceptions=False)
    found = json.loads(ran.stdout)
    plan = load(out)
    assert str(plan.budget) == found["tuned"]["budget"]
    strategy = tomllib.loads(found["tuned"]["strategy"])["strategy"]
    assert sum(Fraction(share) for share in strategy["geolevels"].values()) == 1
    assert {level: str(share) for level, share in plan.settings.strategy.geolevels.items()} == strategy["geolevels"]
    assert "total" not in strategy["queries"]["state"], "what is published exactly needs no budget"
    assert any("published exactly" in words for words in found["warnings"])
    assert found["targets"][0]["achieved"] <= 3
    assert found["targets"][1]["achieved"] >= 0.9
    assert len(found["targets"]) > 2, "kept queries are targets too"
    assert sum(row["price"] for row in found["targets"]) == pytest.approx(1)
    shown = page.read_text()
    assert shown.count("<svg") >= 2
    assert "<script" not in shown
    assert f"rho = {plan.budget}" in shown


@pytest.mark.slow
def test_shares_above_the_least_are_worth_the_same(country: Any) -> None:
    """At the optimum of a convex problem every measurement with more than its least share has value one."""
    plan = regular(country)
    targets = country.file(
        "t.toml",
        '[[target]]\nlevel = "county"\nquery = "sex"\nmae = 3\n[[target]]\nlevel = "block"\nquery = "age"\nrmse = 5\n',
    )
    found = tune(plan, read_targets(targets, plan), generate_country(plan, 3), seed=3, runs=4)
    for row in found.worth:
        assert row.value == pytest.approx(1, abs=0.15) if row.share > 0.05 else row.value < 1.15, row
    assert max(abs(row.own_value - 1) for row in found.worth) > 0.3, "the plan's own shares were not optimal"
    assert found.tuned.plan.budget < found.own.plan.budget
    json.dumps(tuned_json(found, ""), allow_nan=False)
    assert tuned_config(found.tuned.plan, country.folder / "x.toml")
    again = tune(plan, read_targets(targets, plan), generate_country(plan, 3), seed=3, runs=4)
    assert tuned_json(again, "") == tuned_json(found, "")


def test_sizes_choose_geounits(country: Any) -> None:
    plan = regular(country)
    text = '[[target]]\nlevel = "block"\nquery = "total"\nmae = 3\nsize = [{}]\n'
    some = read_targets(country.file("t.toml", text.format("1, 60")), plan)
    made = generate_country(plan, 3)
    trial = Trial.of(plan, made, some, seed=1, runs=1)
    totals = made.cells.sum(axis=1)
    assert np.array_equal(trial.chosen[0], (totals >= 1) & (totals < 60))
    none = read_targets(country.file("t.toml", text.format("100000, 200000")), plan)
    with pytest.raises(UsageError, match="no geounit"):
        _ = Trial.of(plan, made, none, seed=1, runs=1).chosen
