"""The verdict: its reference is the 2020 Census computed anew, and its words follow its numbers."""

from __future__ import annotations

from typing import Any

import pytest

from das.accounting.moves import Secret
from das.plan.for_accountant import hierarchical_plan
from das.plan.load import load
from das.promise.lines import Lines
from das.report.privacy import render_privacy
from das.report.reference import CENSUS_2020
from das.report.verdict import findings_of, grade_of, household_of, verdict_text


def test_the_reference_is_the_2020_census_under_the_same_accounting() -> None:
    plan = load("pl94-2020")
    several = ["state", "county", "tract", "block_group", "block"]
    lines = Lines(hierarchical_plan(plan, several=several), plan.settings.privacy.delta)
    found = {
        "answers": lines.secret_line("secrets", {"secret": ""}, Secret(name="", within="block")),
        "record": lines.secret_line("secrets", {"secret": ""}, Secret(name="", within="state")),
        "headline": lines.policy_line("semi"),
    }
    for key, quote in found.items():
        assert quote.epsilon == pytest.approx(CENSUS_2020[key].epsilon, abs=1e-5)
        assert quote.epsilon <= CENSUS_2020[key].epsilon + 1e-5
        assert quote.learnt is not None
        assert quote.learnt.right == CENSUS_2020[key].right


def test_the_verdict_comes_first_with_its_conditions(accounted: dict[str, Any], plan: dict[str, Any]) -> None:
    found = findings_of(accounted)
    assert [finding.grade for finding in found] == ["moderate", "moderate", "weak"]
    text = "\n".join(verdict_text(accounted))
    html = render_privacy(accounted, plan)
    assert html.index('id="verdict"') < html.index('id="promise"') < html.index('id="household"')
    for finding in found:
        assert f"At most {finding.right} right guesses in 100" in html
        assert finding.right in text
        if finding.quote.condition:
            assert finding.quote.condition.text() in text
            assert finding.quote.condition.text() in html


def test_the_worked_example_is_about_one_household(accounted: dict[str, Any], plan: dict[str, Any]) -> None:
    example = household_of(accounted)
    assert example is not None
    assert example.together is not None
    assert example.together.about["people"] == 4
    html = render_privacy(accounted, plan)
    assert "Four people live in one household." in html
    assert "Take one housing unit" in render_privacy(
        accounted | {"relation": {"unit": "housing unit", "kind": "replace"}}, plan
    )


def test_a_vacuous_release_gets_no_verdict(accounted: dict[str, Any], plan: dict[str, Any]) -> None:
    empty = accounted | {"vacuous": True}
    assert findings_of(empty) == ()
    assert verdict_text(empty) == []
    assert household_of(empty) is None
    html = render_privacy(empty, plan)
    for word in ('id="verdict"', 'id="household"', 'id="beliefs"', 'id="families"'):
        assert word not in html


@pytest.mark.parametrize(("right", "grade"), [(0.5, "strong"), (0.6, "strong"), (0.61, "moderate"), (0.91, "weak")])
def test_the_words_are_defined_by_numbers(right: float, grade: str) -> None:
    assert grade_of(right) == grade


def test_the_page_says_how_many_guesses_are_right_where_a_condition_fails(
    accounted: dict[str, Any], plan: dict[str, Any]
) -> None:
    """An epsilon without its unit beside "76 in 100" was read as better protection."""
    *others, last = findings_of(accounted)
    assert [finding.is_covered_by(last) for finding in others] == [True, True]
    assert not last.is_covered_by(last)
    html = render_privacy(accounted, plan)
    assert html.count(f"at most {last.right} right guesses in 100, as in the last line") == 2
    assert "otherwise epsilon 26.430 (proved)" in html
