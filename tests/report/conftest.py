"""One plan, and the statements it may come with."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from das.plan.load import load
from das.plan.presets import folder
from das.promise.account import account
from das.promise.statement import statement_of

OPTIONAL = (
    "a",
    "nominal_check",
    "effective",
    "secrets",
    "attributes",
    "geography",
    "tight",
    "determined_queries",
    "vacuous",
    "pinned_cells",
    "unprotected_secrets",
)


@pytest.fixture(scope="session")
def _made() -> str:
    demo = load(folder() / "demo.toml")
    statement = statement_of(demo, account(demo), facts_digest=64 * "5", charged=demo.budget, seeded=False)
    return json.dumps([demo.to_json(), statement])


@pytest.fixture
def plan(_made: str) -> dict[str, Any]:
    """The demo's plan for machines."""
    return json.loads(_made)[0]


@pytest.fixture
def accounted(_made: str) -> dict[str, Any]:
    """The statement as a run writes it."""
    return json.loads(_made)[1]


@pytest.fixture
def bare(accounted: dict[str, Any]) -> dict[str, Any]:
    """The statement with its nominal part alone."""
    return {key: value for key, value in accounted.items() if key not in OPTIONAL}


@pytest.fixture
def full(accounted: dict[str, Any]) -> dict[str, Any]:
    """The statement with every section there is."""
    return accounted | {
        "tight": {"epsilon": 16.6104, "delta": 1e-10, "method": "exact composition, upper bound"},
        "pinned_cells": [{"query": "total", "level": "state"}],
        "unprotected_secrets": ["the state of the only resident of area 07"],
    }


@pytest.fixture
def pure(plan: dict[str, Any], bare: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Statement and plan of a release under pure DP with epsilon 2."""
    nominal = {"epsilon": 2.0000000000000004, "epsilon_exact": "2", "delta": 0.0, "status": "proved"}
    plan |= {"framework": "pure", "budget": "2", "epsilon": nominal["epsilon"]}
    for measurement in plan["measurements"]:
        measurement["cost"] = str(2 * Fraction(measurement["share"]))
    return bare | {"framework": "pure", "nominal": nominal}, plan


@pytest.fixture
def manifest() -> dict[str, Any]:
    """What a run knows of itself."""
    return {
        "product": "Counts of a state that never existed",
        "ledger_entry": {"sequence": 3, "hash": 64 * "a"},
        "conformance": {"status": "verified from the published files"},
        "versions": {"das": "0.1.0", "numpy": "2.1.0"},
        "started": "2030-01-02T03:04:05Z",
        "finished": "2030-01-02T03:14:05Z",
        "inputs": [{"name": "persons.parquet", "sha256_salted": 64 * "b"}],
        "public_inputs": [{"name": "geography.csv", "sha256": 64 * "c"}],
    }


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


@pytest.fixture(scope="module")
def measured(browse: Callable[[str], Seen]) -> Callable[[str], list[dict[str, Any]]]:
    """Measure a page's layout at a phone's width and at a desk's."""

    def measure(page: str) -> list[dict[str, Any]]:
        found = re.search(r"<pre>(.+?)</pre>", browse(RULER.format(page=html.escape(page))).dom, re.DOTALL)
        assert found is not None
        layout: list[dict[str, Any]] = json.loads(html.unescape(found[1]))
        return layout

    return measure
