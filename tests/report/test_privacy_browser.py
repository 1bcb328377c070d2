"""The privacy report in a real browser: it fits a phone and a desk, its console is silent, and it loads nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from das.report.privacy import render_privacy

pytestmark = pytest.mark.browser


@pytest.fixture
def page(full: dict[str, Any], plan: dict[str, Any], manifest: dict[str, Any]) -> str:
    return render_privacy(full, plan, manifest=manifest)


def test_it_renders_with_its_charts_and_a_silent_console(browse: Callable[[str], Any], page: str) -> None:
    seen = browse(page)
    assert seen.console == []
    assert seen.dom.count('role="img"') == 3
    assert seen.dom.count("<path") == 8  # four guesses, four rho
    assert seen.dom.rstrip().endswith("</html>")
    # the parser moved nothing: every element is where it was written
    assert re.findall(r"<(\w+)", seen.dom.replace("<tbody>", "")) == re.findall(r"<(\w+)", page.replace("<tbody>", ""))


def test_it_asks_for_nothing(browse: Callable[[str], Any], page: str) -> None:
    dom = browse(page).dom
    assert not re.search(r"https?://", dom.replace("http://www.w3.org/2000/svg", ""))
    assert not re.search(r"<(script|link|img|iframe|object|embed|audio|video|source|base|use|image)\b", dom)
    assert not re.search(r"\b(src|href|srcset|poster|data)=|url\(|@import", dom)


def test_the_page_itself_forbids_scripts_and_requests(browse: Callable[[str], Any], page: str) -> None:
    """Also the control of the two tests above: what is planted is refused, and the console says so."""
    planted = '<img src="planted.png"><script>document.body.textContent = "taken over"</script></main>'
    seen = browse(page.replace("</main>", planted))
    assert "taken over" not in re.sub(r"<script.*?</script>", "", seen.dom)
    assert sum("Content Security Policy" in line for line in seen.console) == 2


@pytest.mark.parametrize("name", ["full", "bare"])
def test_it_fits_a_phone_and_a_desk(
    measured: Callable[[str], list[dict[str, Any]]], plan: dict[str, Any], name: str, request: pytest.FixtureRequest
) -> None:
    statement = request.getfixturevalue(name)
    for seen in measured(render_privacy(statement, plan)):
        assert seen["needed"] == seen["width"]
        assert seen["cut"] == []
        assert seen["small"] == 0
        narrow = seen["width"] < 500
        assert set(seen["hidden"]) <= ({"answers", "answers quiet", "number wide"} if narrow else set())
        assert seen["alert"] == []
        assert len(seen["curves"]) == (8 if name == "full" else 1)
        assert all(across > seen["width"] * 0.4 and up > 20 for across, up in seen["curves"])
        assert all(box <= seen["width"] for box in seen["tables"])
        assert max(seen["bars"]) > 80
    if name == "full":
        costs = [statement["nominal"], statement["tight"], *statement["effective"]]
        ratios = [width / cost["epsilon"] for width, cost in zip(seen["bars"], costs, strict=True)]
        assert max(ratios) == pytest.approx(min(ratios), rel=0.02)


def test_each_reader_finds_the_part_and_the_verdict_is_first(
    measured: Callable[[str], list[dict[str, Any]]], page: str
) -> None:
    for seen in measured(page):
        wanted = [
            "verdict",
            "promise",
            "household",
            "beliefs",
            "families",
            "compared",
            "public",
            "limits",
            "budget",
            "error",
        ]
        assert [name for name in seen["order"] if name in wanted] == wanted


def test_a_test_run_is_red(
    measured: Callable[[str], list[dict[str, Any]]], bare: dict[str, Any], plan: dict[str, Any]
) -> None:
    for seen in measured(render_privacy(bare | {"seeded": True}, plan)):
        assert seen["alert"] == ["rgb(157, 19, 24)"]


def test_the_ruler_notices_what_does_not_fit(measured: Callable[[str], list[dict[str, Any]]]) -> None:
    wide = '<!DOCTYPE html><svg width="2000" height="9"><text x="1500" y="8" font-size="6">far</text></svg>'
    phone, desk = measured(wide)
    assert phone["needed"] > phone["width"]
    assert desk["needed"] > desk["width"]
    assert phone["cut"] == desk["cut"] == ["far"]
    assert phone["small"] == 1
