"""The pictures show the numbers: read back from the SVG and compared with an independent computation."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import numpy as np
import pytest

from das.report.charts import Bar, Point, bar_chart, delta_chart
from das.report.grids import SHADES, budget_grid, legend, noise_grid


def percent(element: Element, name: str) -> float:
    return float(element.attrib[name].removesuffix("%"))


def epsilon_by_brute_force(rho: float, delta: float) -> float:
    """Canonne, Kamath and Steinke (2020), Proposition 12, minimised over a fine grid of orders."""
    t = np.exp(np.linspace(-12, 20, 200_001))
    return float(((1 + t) * rho + np.log(t / (1 + t)) + (-math.log(delta) - np.log1p(t)) / t).min())


@pytest.mark.parametrize("rho", [Fraction(1, 10), Fraction(293764, 114921), Fraction(10)])
def test_the_curve_is_the_conversion(rho: Fraction) -> None:
    svg = fromstring(delta_chart("c", "Curve", [rho], []))
    top = max(float(t.text or "") for t in svg.iter("text") if t.attrib["class"] == "tick end")
    path = next(svg.iter("path")).attrib["d"].removeprefix("M").split("L")
    points = np.array([[float(number) for number in step.split()] for step in path])
    decades = 1 + points[:, 0] * 13 / 1000
    assert (decades[0], decades[-1]) == (1, 14)
    for decade, height in zip(decades[::6], points[::6, 1], strict=True):
        shown = top * (1 - height / 1000)
        assert shown == pytest.approx(epsilon_by_brute_force(float(rho), 10.0**-decade), abs=top * 2e-4)


def test_a_point_lies_on_its_curve() -> None:
    rho, delta = Fraction(1), Fraction(1, 10**10)
    svg = fromstring(delta_chart("c", "Curve", [rho], [Point("here", delta, 10.034344)]))
    circle, inner = next(svg.iter("circle")), next(svg.iterfind("svg"))
    path = [step.split() for step in next(svg.iter("path")).attrib["d"].removeprefix("M").split("L")]
    at = next(s for s in path if float(s[0]) == pytest.approx(1000 * 9 / 13, abs=0.1))
    x = percent(inner, "x") + percent(inner, "width") * float(at[0]) / 1000
    y = float(inner.attrib["y"]) + float(inner.attrib["height"]) * float(at[1]) / 1000
    assert percent(circle, "cx") == pytest.approx(x, abs=0.02)
    assert float(circle.attrib["cy"]) == pytest.approx(y, abs=0.2)


@pytest.mark.parametrize("delta", [Fraction(1, 10**3), Fraction(1, 10**40)])
def test_a_point_is_always_inside(delta: Fraction) -> None:
    svg = fromstring(delta_chart("c", "Curve", [Fraction(1)], [Point("here", delta, 5.0)]))
    assert 9 <= percent(next(svg.iter("circle")), "cx") <= 97
    ticks = [t for t in svg.iter("text") if t.attrib["class"] == "tick middle"]
    assert 5 <= len(ticks) <= 9


def test_no_cost_at_all_still_has_a_chart() -> None:
    assert "<path" in delta_chart("c", "Curve", [Fraction(0)], [])


def test_bars_are_proportional_and_what_is_unknown_is_open() -> None:
    bars = [
        Bar("one", 10.0, "10", "nominal"),
        Bar("two", 5.0, "5", "semi"),
        Bar("three", None, "not supported", "nearest"),
        Bar("four", math.inf, "∞", "semi"),
        Bar("five", 0.0, "0", "semi"),
    ]
    svg = fromstring(bar_chart("b", "Bars", bars))
    drawn = list(svg.iter("rect"))
    assert percent(drawn[0], "width") == 2 * percent(drawn[1], "width") > 0
    assert [r.attrib["class"] for r in drawn[2:4]] == ["bar open", "bar open"]
    assert percent(drawn[4], "width") == 0
    description = svg.findtext("desc") or ""
    assert all(f"{bar.label}: {bar.text}" in description for bar in bars)


def test_the_budget_sums_to_the_whole(plan: dict[str, Any]) -> None:
    grid = budget_grid(plan)
    assert grid.totals[-1] == "100.00"
    shares = {(m["level"], m["query"]): Fraction(m["share"]) for m in plan["measurements"]}
    assert sum(shares.values()) == 1
    for row in grid.rows:
        for level, cell in zip(grid.levels, row.cells, strict=True):
            share = shares[level, row.query]
            assert cell.shade == 1 + sum(share >= bound for bound in SHADES)
            assert float(cell.text.removeprefix("<")) == pytest.approx(float(100 * share), abs=0.01)


def test_a_query_that_is_not_asked_is_not_a_zero(plan: dict[str, Any]) -> None:
    left_out = plan["measurements"].pop()
    row = next(row for row in budget_grid(plan).rows if row.query == left_out["query"])
    assert (row.cells[-1].text, row.cells[-1].shade) == ("–", 0)


def test_the_legend_names_every_shade() -> None:
    assert [cell.shade for cell in legend()] == list(range(1, len(SHADES) + 2))


def test_noise_is_shown_unless_the_answer_is_public(plan: dict[str, Any]) -> None:
    rows = {row.query: row for row in noise_grid(plan).rows}
    assert rows["total"].cells[0].text == "exact"
    assert rows["detailed"].cells[0].text == "4.40"
    assert rows["detailed"].answers == 2016
