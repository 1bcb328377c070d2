"""The privacy report in a real browser: it fits a phone and a desk, its console is silent, and it loads nothing."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from das.report.privacy import render_privacy

pytestmark = pytest.mark.browser

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
)

# Shows a page in a frame of a phone's width and in one of a desk's, and writes down what came out. The frames let the
# layout be measured although the page itself forbids every script.
RULER = """<!DOCTYPE html><meta charset="utf-8"><body>
<iframe width="390" height="800" srcdoc="{page}"></iframe><iframe width="1100" height="800" srcdoc="{page}"></iframe>
<pre></pre><script>
addEventListener("load", () => {{
  const seen = [...document.querySelectorAll("iframe")].map((frame) => {{
    const page = frame.contentDocument, root = page.documentElement, all = (css) => [...page.querySelectorAll(css)];
    const box = (element) => element.getBoundingClientRect();
    return {{
      width: root.clientWidth,
      needed: root.scrollWidth,
      height: root.scrollHeight,
      cut: all("svg text").filter((t) => box(t).left < 0 || box(t).right > root.clientWidth).map((t) => t.textContent),
      small: all("svg text").filter((t) => box(t).height < 10).length,
      bars: all("rect.bar").map((bar) => box(bar).width),
      curves: all("path.curve").map((curve) => [box(curve).width, box(curve).height]),
      hidden: all("th, td, dd, li, p").filter((e) => e.innerText.trim() && !box(e).height).map((e) => e.className),
      alert: all("[role=alert]").map((e) => page.defaultView.getComputedStyle(e).backgroundColor),
      tables: all("table.beliefs, table.quotes, table.families").map((table) => table.scrollWidth),
      order: all("h2").map((e) => e.id),
      font: page.defaultView.getComputedStyle(page.body).fontSize,
    }};
  }});
  document.querySelector("pre").textContent = JSON.stringify(seen);
}});
</script>"""


@dataclass(frozen=True)
class Seen:
    """A page after the browser has worked on it, and what its console said."""

    dom: str
    console: list[str]


@pytest.fixture(scope="module")
def browse(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Seen]:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    browser: str = found

    @cache
    def show(content: str) -> Seen:
        folder: Path = tmp_path_factory.mktemp("browser")
        page = folder / "page.html"
        page.write_text(content, encoding="utf-8")
        profile = f"--user-data-dir={folder / 'profile'}"
        ran = subprocess.run(
            [browser, *FLAGS, profile, "--dump-dom", page.as_uri()],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        return Seen(ran.stdout, [line for line in ran.stderr.splitlines() if "CONSOLE" in line])

    return show


@pytest.fixture
def page(full: dict[str, Any], plan: dict[str, Any], manifest: dict[str, Any]) -> str:
    return render_privacy(full, plan, manifest=manifest)


def measured(browse: Callable[[str], Seen], page: str) -> list[dict[str, Any]]:
    dom = browse(RULER.format(page=html.escape(page))).dom
    found = re.search(r"<pre>(.+?)</pre>", dom, re.DOTALL)
    assert found is not None
    return json.loads(html.unescape(found[1]))


def test_it_renders_with_its_charts_and_a_silent_console(browse: Callable[[str], Seen], page: str) -> None:
    seen = browse(page)
    assert seen.console == []
    assert seen.dom.count('role="img"') == 3
    assert seen.dom.count("<path") == 8  # four guesses, four rho
    assert seen.dom.rstrip().endswith("</html>")
    # the parser moved nothing: every element is where it was written
    assert re.findall(r"<(\w+)", seen.dom.replace("<tbody>", "")) == re.findall(r"<(\w+)", page.replace("<tbody>", ""))


def test_it_asks_for_nothing(browse: Callable[[str], Seen], page: str) -> None:
    dom = browse(page).dom
    assert not re.search(r"https?://", dom.replace("http://www.w3.org/2000/svg", ""))
    assert not re.search(r"<(script|link|img|iframe|object|embed|audio|video|source|base|use|image)\b", dom)
    assert not re.search(r"\b(src|href|srcset|poster|data)=|url\(|@import", dom)


def test_the_page_itself_forbids_scripts_and_requests(browse: Callable[[str], Seen], page: str) -> None:
    """Also the control of the two tests above: what is planted is refused, and the console says so."""
    planted = '<img src="planted.png"><script>document.body.textContent = "taken over"</script></main>'
    seen = browse(page.replace("</main>", planted))
    assert "taken over" not in re.sub(r"<script.*?</script>", "", seen.dom)
    assert sum("Content Security Policy" in line for line in seen.console) == 2


@pytest.mark.parametrize("name", ["full", "bare"])
def test_it_fits_a_phone_and_a_desk(
    browse: Callable[[str], Seen], plan: dict[str, Any], name: str, request: pytest.FixtureRequest
) -> None:
    statement = request.getfixturevalue(name)
    for seen in measured(browse, render_privacy(statement, plan)):
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


def test_each_reader_finds_the_part_and_the_verdict_is_first(browse: Callable[[str], Seen], page: str) -> None:
    for seen in measured(browse, page):
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


def test_a_test_run_is_red(browse: Callable[[str], Seen], bare: dict[str, Any], plan: dict[str, Any]) -> None:
    for seen in measured(browse, render_privacy(bare | {"seeded": True}, plan)):
        assert seen["alert"] == ["rgb(157, 19, 24)"]


def test_the_ruler_notices_what_does_not_fit(browse: Callable[[str], Seen]) -> None:
    wide = '<!DOCTYPE html><svg width="2000" height="9"><text x="1500" y="8" font-size="6">far</text></svg>'
    phone, desk = measured(browse, wide)
    assert phone["needed"] > phone["width"]
    assert desk["needed"] > desk["width"]
    assert phone["cut"] == desk["cut"] == ["far"]
    assert phone["small"] == 1
