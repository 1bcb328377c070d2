"""Sentences of the statement that must be theorems: each with the reason why another wording was false."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from scipy.special import ndtr

from das import cli
from das.accounting.conversion import gdp_epsilon_upper
from das.errors import ConfigError
from das.exact import delta_text, quoted
from das.plan.geography import spine_of
from das.promise.account import account
from das.promise.account_page import described_as_one
from das.promise.joint import joint_account
from das.promise.sources import Source, read_source
from das.promise.statement import statement_of
from das.report.account_text import account_text
from das.report.grids import exact_share_sentence
from das.report.privacy import render_privacy
from das.report.text import summary
from das.report.verdict import hundredths_upper

NOTES = Path(__file__).resolve().parents[2] / "das" / "accounting"
TOTAL = {"query": "total", "level": "state", "reason": "seats"}
BED = {"query": "sex", "level": "block", "sense": ">=", "source": "beds.csv"}
AGES = {"query": "age", "level": "block", "sense": ">=", "source": "ages.csv"}
PRESENCE = {"framework": "zcdp", "rho": "1", "neighbours": "add-remove"}


def rendered(country: Any, **sections: Any) -> tuple[dict[str, Any], str, str]:
    """Statement, page without its markup, and the text after a run."""
    plan = country.plan(**sections)
    spine = spine_of(plan)
    statement = statement_of(plan, account(plan, spine), facts_digest="", charged=plan.budget, seeded=False)
    page = " ".join(re.sub(r"<[^>]+>", " ", render_privacy(statement, plan.to_json()).split("</style>")[1]).split())
    return statement, page, summary(statement, Path("out"))


def test_delta_is_added_and_no_exception(country: Any) -> None:
    _, page, text = rendered(country, invariant=[TOTAL])
    for said in (page, text):
        assert "as probable under the one as under the other, plus at most 1" in said.replace("\n           ", " ")
        assert not re.search("except with probability|remaining probability|apart from", said)


@pytest.mark.parametrize(("rho", "factor"), [(0.1, 2.0), (0.0001, 50.0)])
def test_except_with_probability_delta_would_be_false(rho: float, factor: float) -> None:
    """The loss of Gaussian noise exceeds epsilon with a probability many times delta at small rho."""
    mu, delta = math.sqrt(2 * rho), 1e-10
    epsilon = gdp_epsilon_upper(mu, Fraction(delta))
    assert ndtr(mu / 2 - epsilon / mu) > factor * delta


def test_nominal_says_that_public_facts_are_ignored(country: Any) -> None:
    statement, page, text = rendered(country, invariant=[TOTAL])
    assert statement["nominal"]["condition"]["kind"] == "public facts ignored"
    assert "nominal epsilon: public facts ignored" in page
    nominal = next(line for line in text.splitlines() if line.startswith("Nominal"))
    assert "as if nothing were public" in nominal
    assert "agree on all that is public" not in nominal
    free, _, _ = rendered(country)
    assert free["nominal"]["condition"] is None  # without facts it is the promise itself


def test_tight_stands_beside_its_own_rho(country: Any) -> None:
    """In a geography of one state a change of one record is not seen by the state's total, which the plan pays for."""
    country.file("units.csv", "geocode\n01001\n01002\n02001\n")
    plan = country.plan(invariant=[TOTAL])
    found = account(plan, spine_of(plan))
    tight = found.sections["tight"]
    assert tight["rho"] < found.nominal["rho"]
    assert tight["epsilon"] <= tight["zcdp_epsilon"] < found.nominal["epsilon"]
    rows = account_text(found.nominal, found.sections).splitlines()
    nominal, exact = rows[1], rows[2]
    assert quoted(tight["rho"]) in exact
    assert nominal[82:92].strip() == ""  # no tight number beside the nominal rho


def test_known_counts_are_said(country: Any) -> None:
    statement, _, _ = rendered(country, invariant=[TOTAL])
    plan = country.plan(invariant=[TOTAL])
    known = {"of": 2_000_000, "structural": 1_000, "empty": 1_600_000, "exact": 7}
    page = render_privacy(statement | {"known_cells": known, "pinned_cells": 1_600_007}, plan.to_json())
    assert "1,600,000 more are known to be zero from the facts above" in page
    assert "1,000 are zero by definition" in page
    assert "<p>None.</p>" not in page


def test_presence_beside_a_bound_is_compared_within_the_bound(country: Any) -> None:
    country.file("beds.csv", "geocode,f\n01001,1\n")
    statement, page, text = rendered(country, privacy=PRESENCE, bound=[BED])
    (entry,) = statement["effective"]
    assert entry["condition"]["words"] == "if the record's presence and its absence both keep every published bound"
    assert entry["condition"]["otherwise_epsilon"] > entry["epsilon"]
    shown = f"{math.ceil(entry['condition']['otherwise_epsilon'] * 1000) / 1000:.3f}"
    assert shown in page
    assert shown in text


def test_presence_beside_bounds_that_cross_is_refused_with_the_pair(country: Any) -> None:
    country.file("beds.csv", "geocode,f\n01001,1\n")
    country.file("ages.csv", "geocode,0-17\n01001,1\n")
    with pytest.raises(ConfigError, match=r"they are published, and the same data without that record are refused"):
        country.plan(privacy=PRESENCE, bound=[BED, AGES])


def test_several_releases_of_presence_are_accounted_as_presence(country: Any) -> None:
    names = [country.write(country.config(release={"name": n}, privacy=PRESENCE), f"{n}.toml") for n in ("one", "two")]
    together = joint_account([read_source(str(name)) for name in names])
    (entry,) = together.sections["effective"]
    assert entry["policy"] == "unconstrained"
    assert entry["rho"] == pytest.approx(2.0)
    assert entry["epsilon"] == pytest.approx(together.nominal["epsilon"])
    assert "policy semi" not in account_text(together.nominal, together.sections)


def test_the_note_on_conditioning_agrees_with_the_theorem() -> None:
    rows = [
        line for line in (NOTES / "conditioning.md").read_text().splitlines() if line.startswith("| discrete Gaussian")
    ]
    tree = next(row for row in rows if "(a tree)" in row)
    assert "every secret" in tree
    assert "**proved**" in tree
    unproved = [row for row in rows if "not proved" in row]
    assert len(unproved) == 1
    assert "orders that are not integers" in unproved[0]
    assert "for every move |" not in unproved[0]


def test_that_a_release_exists_is_an_output(country: Any) -> None:
    _, page, text = rendered(country)
    assert "That a release exists. This is an output, too." in page
    assert "where the data break a published bound" in page
    assert "That this release exists is an output, too" in text


TREE = {
    "geolevels": {"state": "1/6", "county": "1/3", "block": "1/2"},
    "queries": {"all": {"total": "1"}, "block": {"sex": "1/2", "detailed": "1/2"}},
}


def test_what_the_windows_of_the_sampler_add_is_in_the_promise(country: Any) -> None:
    """Conditioned Laplace noise is drawn within windows: its epsilon is not pure, and the sentence has the delta."""
    country.file("beds.csv", "geocode,f\n01001,1\n")
    drawn = {"strategy": TREE, "estimate": {"method": "congenial"}, "bound": [BED]}
    statement, page, text = rendered(country, privacy={"framework": "pure", "epsilon": "2"}, **drawn)
    semi = next(entry for entry in statement["effective"] if entry["policy"] == "semi")
    # the proved error of the draw: (e^lambda + e^epsilon) eta
    error = Fraction(statement["conditioned"]["sampler"]["total_variation"])
    assert semi["added_delta"] >= (1 + math.exp(semi["epsilon"])) * error
    assert semi["added_delta"] > statement["randomness"]["delta"]
    shown = delta_text(semi["added_delta"])
    assert f"plus at most {shown} + " in text
    mantissa, power = shown.split("e")
    assert re.search(rf"plus at most {math.ceil(float(mantissa) * 10) / 10:g} × 10 −{power[1:]} for the windows", page)
    for entry in (*statement["secrets"], *statement["attributes"]):
        assert entry["added_delta"] >= (1 + math.exp(entry["epsilon"])) * error
        if entry["condition"]:  # what holds otherwise needs more
            assert entry["added_delta"] >= semi["added_delta"]
    assert f"delta: at most {shown} beside each effective epsilon" in account_text(statement["nominal"], statement)
    plain, _, _ = rendered(country, privacy={"framework": "pure", "epsilon": "2"}, bound=[BED])
    assert "added_delta" not in plain["effective"][0]


def test_beliefs_beside_a_bound_are_not_those_of_presence(country: Any) -> None:
    """Presence costs less than a change with a compensating record, so its line bounds nothing for the others."""
    country.file("beds.csv", "geocode,f\n01001,1\n")
    statement, page, _ = rendered(country, privacy=PRESENCE, bound=[BED])
    presence, secret = statement["effective"][0], statement["secrets"][-1]
    assert presence["learnt"]["beliefs"][1]["mean"] < secret["learnt"]["beliefs"][1]["mean"]
    assert "the beliefs of the last line hold" not in page
    assert "they are not bounded here" in page
    _, replaced, _ = rendered(country, bound=[BED])
    assert "the beliefs of the last line hold" in replaced


def test_presence_is_not_compared_with_what_2020_never_promised(country: Any) -> None:
    _, page, text = rendered(country, privacy=PRESENCE)
    line = next(line for line in text.splitlines() if "was counted at all" in line)
    assert "(" not in line
    assert page.count("For the redistricting data of the 2020 Census") == 2


@pytest.mark.parametrize("crossing", [False, True])
def test_the_large_number_has_its_condition(country: Any, crossing: bool) -> None:
    country.file("beds.csv", "geocode,f\n01001,1\n")
    country.file("ages.csv", "geocode,0-17\n01001,1\n")
    plan = {"bound": [BED, AGES]} if crossing else {"privacy": PRESENCE, "bound": [BED]}
    statement, page, _ = rendered(country, **plan)
    headline = statement["effective"][0]
    assert headline["condition"]
    large = page.partition("effective epsilon, given the public facts")[2]
    assert large.startswith(f"; {headline['condition']['words'].replace(chr(39), '&#39;')}; otherwise")


def test_curves_and_bars_have_the_conditions_of_their_numbers(country: Any) -> None:
    country.file("beds.csv", "geocode,f\n01001,1\n")
    _, page, _ = rendered(country, invariant=[TOTAL], bound=[BED])
    words = "if the change alone keeps every published bound"
    assert f"The answers of one person, the place being known, {words}" in page
    assert f"The whole record of one person, its place included, {words}" in page
    curves = page.partition("Epsilon for every delta")[2].partition("Where the noise comes from")[0]
    assert curves.count(f"Effective, irreducible, {words}") == 1  # the legend
    assert curves.count(f"Effective, irreducible {words}") == 1  # the table
    assert "Nominal, tight" not in curves  # those epsilons are of rho, and not of exact distributions
    assert "Effective, irreducible *" in page
    assert "Effective, Semi-DP *" not in page


def test_conditioned_noise_is_not_described_as_measured(country: Any) -> None:
    _, page, _ = rendered(country, strategy=TREE, estimate={"method": "congenial"}, invariant=[TOTAL])
    assert "Published counts combine the answers" not in page
    assert "Nothing else about the records decides whether there is a release; the time" in page
    assert "Both come from epsilon and delta" in page
    _, measured, _ = rendered(country, invariant=[TOTAL])
    assert "Published counts combine the answers" in measured
    assert "Both come from the whole law of the noise" in measured


def test_places_that_skip_a_level_are_said_to_be_public(country: Any) -> None:
    statement, _, _ = rendered(country, invariant=[TOTAL])
    statement["invariants"][0]["placeholders"] = 2
    page = render_privacy(statement, country.plan(invariant=[TOTAL]).to_json())
    assert "total of each state (and of 2 places that skip this level)." in page
    assert "and of 2 places that skip this level" in summary(statement, Path("out"))


def test_budget_on_what_is_exact_is_remarked_by_the_plan(country: Any) -> None:
    plan = country.plan(invariant=[TOTAL])
    said = exact_share_sentence(plan.to_json(), account(plan).sections)
    share = next(m["share"] for m in plan.to_json()["measurements"] if (m["level"], m["query"]) == ("state", "total"))
    assert said.startswith(
        f"{float(100 * Fraction(share)):.2f} percent of the budget measures what is published exactly"
    )
    assert exact_share_sentence(country.plan().to_json(), account(country.plan()).sections) == ""
    path = country.write(country.config(invariant=[TOTAL]))
    shown = CliRunner().invoke(cli.das, ["plan", str(path)], catch_exceptions=False).stdout
    assert "remark: " + said[:40] in shown


def test_hundredths_are_never_rounded_down() -> None:
    assert hundredths_upper(0.7600000000001) == "77"
    assert hundredths_upper(0.77) == "77"


@pytest.mark.parametrize("seeded", [False, True])
def test_the_account_of_one_release_is_neither_a_plan_nor_its_statement(country: Any, seeded: bool) -> None:
    plan = country.plan(invariant=[TOTAL])
    source = Source(plan, spine_of(plan), folder=Path("out"), seeded=seeded)
    statement, described = described_as_one([source], joint_account([source]))
    page = render_privacy(statement, described)
    assert "A plan, not a release." not in page
    assert "An account, and not the statement of the release." in page
    assert "agrees with the plan, as exact fractions" not in page  # nobody looked
    assert ("Test run: the noise key is known." in page) is seeded
