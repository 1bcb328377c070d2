"""A plan's account: the 2020 Census to the digits published and derived, and what a hostile reviewer would try."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import pytest

import das
from das.accounting.condition import ONE_IS_ENOUGH, Kind
from das.errors import ConfigError, UsageError
from das.plan.load import load
from das.promise.account import account
from das.promise.joint import joint_account
from das.promise.sources import read_source
from das.storage.layout import Layout
from das.storage.ledger import Ledger
from das.storage.run_identity import RunIdentity

BED = {"query": "sex", "level": "block", "sense": ">=", "source": "beds.csv"}
TREE = {
    "geolevels": {"state": "1/6", "county": "1/3", "block": "1/2"},
    "queries": {"all": {"total": "1"}, "block": {"sex": "1/2", "detailed": "1/2"}},
}
TOTAL = {"query": "total", "level": "state", "reason": "seats"}


def rounded_up(value: float, digits: int) -> float:
    return math.ceil(Fraction(value) * 10**digits) / 10**digits


def test_the_2020_census_under_semi_dp() -> None:
    """Numbers of MATH.md, section 4, and of the Bureau's signed certificates (epsilons rounded to two digits there)."""
    found = account(load("pl94-2020"))
    secrets = {row["secret"]: row for row in found.sections["secrets"]}
    policies = {row["policy"]: row for row in found.sections["effective"]}
    assert rounded_up(found.nominal["epsilon"], 4) == 17.1436
    assert secrets["attributes within the same block"]["rho"] == pytest.approx(1.0269, abs=5e-5)
    assert secrets["attributes within the same block"]["epsilon"] == pytest.approx(10.185, abs=5e-4)
    assert secrets["anything within the same state"]["rho"] == pytest.approx(1.7292, abs=5e-5)
    assert secrets["anything within the same state"]["epsilon"] == pytest.approx(13.679, abs=5e-4)
    assert policies["irreducible"]["rho"] == pytest.approx(3.5882, abs=5e-5)
    assert policies["irreducible"]["epsilon"] == pytest.approx(20.929, abs=5e-4)
    assert policies["semi"]["rho"] == pytest.approx(6.9169, abs=5e-5)
    assert policies["semi"]["epsilon"] == pytest.approx(31.145, abs=5e-4)
    (split,) = found.sections["variants"]
    worst = {row["policy"]: row for row in split["effective"]}
    assert worst["irreducible"]["rho"] == pytest.approx(5.2422, abs=5e-5)
    assert worst["semi"]["rho"] == pytest.approx(10.2249, abs=5e-5)
    assert worst["semi"]["epsilon"] == pytest.approx(39.785, abs=5e-4)
    across = {row["secret"]: row for row in split["secrets"]}["anything within the same state"]
    assert across["rho"] == pytest.approx(2.5562, abs=5e-5)
    attributes = {row["attribute"]: round(row["nominal_epsilon"], 2) for row in found.sections["attributes"]}
    assert attributes == {"hhgq": 7.24, "votingage": 7.57, "hispanic": 10.04, "cenrace": 10.08}
    places = {row["within"]: round(row["nominal_epsilon"], 2) for row in found.sections["geography"]}
    assert places == {"block_group": 2.93, "tract": 9.38, "county": 11.70, "state": 13.05, "us": 16.89}
    # Between the continuous heuristic, 16.465, and zCDP.
    assert 16.4651 < found.sections["tight"]["epsilon"] < 16.47


def test_the_units_of_2020_reproduce_their_certificate() -> None:
    found = account(load("pl94-2020-units-us"))
    assert round(found.nominal["epsilon"], 2) == 2.47
    assert [round(row["nominal_epsilon"], 2) for row in found.sections["geography"]] == [0.82, 1.81, 2.35, 2.46, 2.47]


def test_presence_is_accounted_as_presence(country) -> None:
    """Adding or removing a person changes the top's total, which replacing one never does."""
    plan = country.plan(privacy={"framework": "zcdp", "rho": "1", "neighbours": "add-remove"})
    found = account(plan).sections
    assert [row["policy"] for row in found["effective"]] == ["unconstrained"]
    assert found["effective"][0]["epsilon"] == plan.epsilon()
    assert found["tight"] is None
    assert found["determined_queries"] == []
    assert plan.digest != country.plan(privacy={"framework": "zcdp", "rho": "1"}).digest
    assert plan.currency != country.plan(privacy={"framework": "zcdp", "rho": "1"}).currency


def test_presence_beside_an_invariant_is_refused(country) -> None:
    privacy = {"framework": "zcdp", "rho": "1", "neighbours": "add-remove"}
    with pytest.raises(ConfigError, match=r"privacy\.neighbours: 'add-remove' promises nothing beside an invariant"):
        country.plan(privacy=privacy, invariant=[TOTAL])


def test_a_bound_that_may_bind_is_said_and_costed(country) -> None:
    """Brute force on a small world with a lower bound of one gave three times the free cost; the pair covers it."""
    country.file("beds.csv", "geocode,f\n01001,1\n")
    free, bound = account(country.plan()).sections, account(country.plan(bound=[BED])).sections
    for before, after in zip(free["secrets"], bound["secrets"], strict=True):
        assert before["condition"] is None
        assert after["condition"]["kind"] == Kind.ALONE
        assert after["condition"]["otherwise_epsilon"] > before["epsilon"]
        assert after["condition"]["otherwise_if"] == ""  # the facts nest: one compensating record is enough, proved
        assert bound["effective"][0]["epsilon"] >= after["condition"]["otherwise_epsilon"] - 1e-9
    ages = {row["attribute"]: row["condition"] for row in bound["attributes"]}
    assert ages["age"] is None  # a change of age touches no bound
    assert bound["effective"][0]["condition"] is None
    assert bound["a_status"] == "proved"
    assert "bounds on block sex" in bound["effective"][0]["assumptions"][0]


def test_bounds_that_cross_say_what_is_assumed(country) -> None:
    """A bound on sexes and one on ages of a block cross: a(t) may be 3, so nothing hides the assumption."""
    country.file("beds.csv", "geocode,f\n01001,1\n")
    country.file("ages.csv", "geocode,0-17\n01001,1\n")
    ages = {"query": "age", "level": "block", "sense": ">=", "source": "ages.csv"}
    plan = country.plan(bound=[BED, ages])
    found = account(plan).sections
    semi = {row["policy"]: row for row in found["effective"]}["semi"]
    assert semi["condition"]["kind"] == Kind.ONE_COMPENSATES
    assert semi["condition"]["otherwise_epsilon"] is None
    assert all(row["condition"]["otherwise_if"] == ONE_IS_ENOUGH for row in found["secrets"])
    assert found["a_status"].startswith("assumed: ")
    # Where the published numbers were looked at, the ball has the radius that they ask for.
    known = account(plan, known_adjacency=3).sections
    three = {row["policy"]: row for row in known["effective"]}
    assert three["semi"]["condition"] is None
    assert three["semi"]["rho"] == pytest.approx(9 * three["nearest"]["rho"])


def test_two_records_of_conditioned_noise_are_proved(country) -> None:
    """Where a bound binds, two records of one class change: two in a row (``conditioned_tree.md``, Theorem 4)."""
    country.file("beds.csv", "geocode,f\n01001,1\n")
    for privacy in ({"framework": "zcdp", "rho": "1/2"}, {"framework": "pure", "epsilon": "2"}):
        plan = country.plan(bound=[BED], strategy=TREE, estimate={"method": "congenial"}, privacy=privacy)
        found = account(plan).sections
        semi, irreducible, nearest = found["effective"]
        assert {row["status"] for row in (*found["secrets"], *found["effective"])} == {"proved"}
        for row in (*found["secrets"], irreducible, nearest):
            assert row["condition"]["otherwise_status"] == "proved"
            assert row["condition"]["otherwise_epsilon"] == semi["epsilon"]
        if "rho" in privacy:
            assert semi["rho"] == pytest.approx(4 * nearest["rho"])


def test_a_congenial_release_is_accounted_with_others(country) -> None:
    """Its noise counts as that of the others does, under all facts together, with what its sampler adds."""
    country.file("beds.csv", "geocode,f\n01001,1\n")

    def source(name: str, **sections):
        return read_source(str(country.write(country.config(release={"name": name}, **sections), f"{name}.toml")))

    drawn = source("drawn", strategy=TREE, estimate={"method": "congenial"})
    plain = source("plain", strategy=TREE, invariant=[TOTAL])
    both, measured = (
        joint_account([drawn, plain]).sections,
        joint_account([plain, source("again", strategy=TREE)]).sections,
    )
    for mine, theirs in zip(both["effective"], measured["effective"], strict=True):
        assert mine["status"] == "proved"
        # the same noise, measured or drawn, has the same rho; integer orders and the sampler cost a little more
        if mine["policy"] != "irreducible":
            assert mine["rho"] == pytest.approx(theirs["rho"])
            assert theirs["epsilon"] <= mine["epsilon"] <= theirs["epsilon"] * 1.02
        # two people who trade states do so within one class of the drawn release, which publishes no total
        else:
            assert theirs["rho"] < mine["rho"] <= 2 * theirs["rho"]
    assert both["releases"][0]["method"] == "congenial"
    crossing = joint_account(
        [drawn, source("sexes", invariant=[TOTAL, {"query": "sex", "level": "county", "reason": "r"}])]
    )
    assert {row["status"] for row in crossing.sections["effective"]} == {"proved"}


def test_releases_in_different_frameworks_have_one_epsilon(country) -> None:
    def source(name: str, **privacy):
        return read_source(str(country.write(country.config(release={"name": name}, privacy=privacy), f"{name}.toml")))

    gaussian, pure = source("one", framework="zcdp", rho="1/2"), source("two", framework="pure", epsilon="2")
    found = joint_account([gaussian, pure])
    assert found.nominal["rho"] == 0.5
    assert found.nominal["pure_epsilon"] == 2.0
    assert gaussian.plan.epsilon() < found.nominal["epsilon"] < gaussian.plan.epsilon() + 2
    assert found.sections["tight"]["epsilon"] < found.nominal["epsilon"]
    for row in found.sections["effective"]:
        assert row["status"] == "proved"
        assert row["tight_epsilon"] < row["epsilon"]
    # a pure release that hardly adds noise is not turned into zCDP, where it would cost more
    large = joint_account([gaussian, source("three", framework="pure", epsilon="30")])
    assert large.nominal["epsilon"] == pytest.approx(gaussian.plan.epsilon() + 30)


def test_a_pure_plan_quotes_nothing_that_needs_a_delta(country) -> None:
    found = account(country.plan(privacy={"framework": "pure", "epsilon": "2"})).sections
    assert found["tight"] is None
    assert all(row["epsilon"] == row["pure_epsilon"] for row in found["secrets"])


def test_releases_are_accounted_together_only_if_they_speak_of_the_same_people(country) -> None:
    def source(name: str, **sections):
        return read_source(str(country.write(country.config(release={"name": name}, **sections), f"{name}.toml")))

    one, two = source("one"), source("two", invariant=[TOTAL])
    together = joint_account([one, two])
    assert together.nominal["rho"] == 1.0
    alone = account(two.plan, two.spine).sections["effective"]
    # The joint cost is computed anew under both releases' facts: twice the same measurements, on the same moves.
    for joint, single in zip(together.sections["effective"], alone, strict=True):
        assert joint["rho"] == pytest.approx(2 * single["rho"])
    presence = source("presence", privacy={"framework": "zcdp", "rho": "1", "neighbours": "add-remove"})
    with pytest.raises(UsageError, match="different relations or units"):
        joint_account([one, presence])
    with pytest.raises(UsageError, match="different data sets"):
        joint_account([one, source("others", input={"microdata": "people.csv", "dataset": "others"})])
    country.file("elsewhere.csv", "geocode\n01001\n01002\n02001\n02004\n11001\n")
    moved = country.config()["geography"] | {"units": "elsewhere.csv"}
    with pytest.raises(UsageError, match="different geographies"):
        joint_account([one, source("moved", geography=moved)])


def test_charges_of_different_relations_do_not_mix_in_the_ledger(country, tmp_path: Path) -> None:
    plans = [
        country.plan(privacy={"framework": "zcdp", "rho": "1", "neighbours": neighbours}, input=INPUT)
        for neighbours in ("replace", "add-remove")
    ]
    ledger = Ledger.open(tmp_path / "ledger.sqlite")
    common = {"dataset": "d", "total": Fraction(2), "amount": Fraction(1), "plan_digest": "p", "input_digest": "i"}
    ledger.reserve(framework=plans[0].currency, run_id="one", **common)
    with pytest.raises(das.errors.BudgetError, match="add-remove"):
        ledger.reserve(framework=plans[1].currency, run_id="two", **common)


INPUT = {"microdata": "people.csv", "budget": "2"}


def test_a_new_run_adopts_neither_the_key_nor_the_salt_that_lie_about(country, tmp_path: Path) -> None:
    country.file("people.csv", "geocode,sex,age\n01001,f,0-17\n")
    plan, layout = country.plan(), Layout(tmp_path / "out")
    layout.confidential.path.mkdir(parents=True)
    layout.confidential.key.write_bytes(b"k" * 32)
    layout.confidential.salt.write_bytes(b"s" * 32)
    identity = RunIdentity.claim(plan, layout, None)
    identity.reserve([{"name": "people.csv", "sha256": "00"}])
    assert layout.confidential.key.read_bytes() != b"k" * 32
    assert layout.confidential.salt.read_bytes() != b"s" * 32
