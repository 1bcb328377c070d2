"""The planner page in a real browser: shares are moved, and its numbers are those of ``das plan --json``."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from das import cli
from das.errors import UsageError
from das.estimation.linear.typical import TypicalTree
from das.evaluation.tuning.planner import render_planner
from das.evaluation.tuning.shares import weights_of
from das.exact import quoted
from das.plan.geography import spine_of
from das.plan.load import load
from das.promise.account import account

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --enable-logging=stderr"

# Shows the page at a phone's and at a desk's width, moves controls as a hand would, and writes down what is then shown.
HAND = """<!DOCTYPE html><meta charset="utf-8"><body>
<iframe width="390" height="800" srcdoc="{page}"></iframe><iframe width="1200" height="800" srcdoc="{page}"></iframe>
<pre></pre><script>
addEventListener("load", () => {{
  const seen = [...document.querySelectorAll("iframe")].map((frame) => {{
    const page = frame.contentDocument, get = (id) => page.getElementById(id), root = page.documentElement;
    const rows = (id) => [...get(id).rows].map((row) => [...row.cells].map((cell) => cell.textContent));
    const text = (id) => get(id).textContent;
    const tables = () => ({{ errors: rows("errors"), lines: rows("lines") }});
    const said = () => ({{ nominal: text("nominal"), effective: text("effective"), note: text("effective-note"),
      conditions: [...get("conditions").children].map((each) => each.textContent), paid: text("paid") }});
    const read = () => ({{ ...tables(), ...said(), toml: text("toml") }});
    const before = read();
    for (const [id, value] of {moves}) {{
      get(id).value = value;
      get(id).dispatchEvent(new frame.contentWindow.Event(id === "budget" ? "change" : "input"));
    }}
    const after = read();
    const fits = [root.scrollWidth, root.clientWidth];
    get("take").click(); const taken = read();
    get("reset").click(); const reset = read();
    return {{ before, after, taken, reset, fits }};
  }});
  document.querySelector("pre").textContent = JSON.stringify(seen);
}});
</script>"""


def shown(page: str, moves: list[tuple[str, str]], folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    file = folder / "page.html"
    file.write_text(HAND.format(page=html.escape(page), moves=json.dumps(moves)), encoding="utf-8")
    command = [browser, *FLAGS.split(), f"--user-data-dir={folder / 'profile'}", "--dump-dom", file.as_uri()]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r"<pre>(.+?)</pre>", ran.stdout, re.DOTALL)
    assert found is not None, ran.stderr[-2000:]
    return json.loads(html.unescape(found[1])), [line for line in ran.stderr.splitlines() if "CONSOLE" in line]


def require_agreement(read: dict[str, Any], config: dict[str, Any], country: Any) -> None:
    """What the page shows is what ``das plan`` states of the strategy that the page exports."""
    exported = tomllib.loads(read["toml"])
    config = config | {"strategy": exported["strategy"], "privacy": config["privacy"] | exported["privacy"]}
    plan = load(country.write(config, "exported.toml"))
    stated, sections = plan.to_json(), account(plan).sections
    assert read["nominal"] == quoted(plan.epsilon())
    tree, weights = TypicalTree.of(plan, spine_of(plan)), weights_of(plan)
    for row, m, planned in zip(read["errors"], stated["measurements"], plan.measurements, strict=True):
        assert row[:2] == [m["level"], m["query"]]
        assert row[3:5] == [f"{m['std_dev']:.2f}", f"{m['expected_error']:.2f}"]
        deviation = tree.variance(m["level"], planned.query, weights) ** 0.5
        assert float(row[5]) == pytest.approx((2 / 3.141592653589793) ** 0.5 * deviation, abs=0.0051)
    # every number with its condition, and with what holds otherwise
    lines = {row[0].partition(" [")[0]: row for row in read["lines"]}
    named = {f"policy {entry['policy']}": entry for entry in sections["effective"]}
    named |= {entry["secret"]: entry for entry in sections["secrets"]}
    named |= {f"attribute {entry['attribute']} alone": entry for entry in sections["attributes"]}
    if plan.settings.privacy.neighbours == "add-remove":
        named["a record that is there or not"] = named.pop("policy unconstrained")
    for name, entry in named.items():
        row, condition = lines[name], entry["condition"]
        assert row[2] == quoted(entry["epsilon"])
        mark = row[0].partition(" [")[2].rstrip("]")
        assert bool(mark) is bool(condition)
        assert row[3] == (quoted(condition["otherwise_epsilon"]) if condition else "")
        assert not condition or read["conditions"][int(mark) - 1].startswith(f"[{mark}] {condition['words']}")
    (headline,) = (entry for entry in sections["effective"] if entry["policy"] in ("semi", "unconstrained"))
    assert read["effective"] == quoted(headline["epsilon"])
    assert not headline["condition"] or read["note"].startswith(headline["condition"]["words"])
    measured_again = [m for m in stated["measurements"] if [m["level"], m["query"]] in sections["determined_queries"]]
    assert bool(read["paid"]) is bool(measured_again)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("bounds", [[], ["beds.csv"], ["beds.csv", "ages.csv"]], ids=["free", "bounded", "crossing"])
@pytest.mark.parametrize(
    "privacy",
    [
        {"framework": "zcdp", "rho": "1/2"},
        {"framework": "pure", "epsilon": "2"},
        {"framework": "zcdp", "rho": "1/2", "neighbours": "add-remove"},
    ],
    ids=["zcdp", "pure", "presence"],
)
def test_moved_shares_show_what_das_plan_states(
    country: Any, privacy: dict[str, str], bounds: list[str], tmp_path: Path
) -> None:
    presence = "neighbours" in privacy
    if presence and len(bounds) > 1:
        pytest.skip("presence beside bounds that cross is refused")
    country.file("beds.csv", "geocode,f\n01001,1\n")
    country.file("ages.csv", "geocode,0-17\n01001,1\n")
    invariant = [] if presence else [{"query": "total", "level": "state", "reason": "law"}]
    queries = {"beds.csv": "sex", "ages.csv": "age"}
    bound = [{"query": queries[name], "level": "block", "sense": ">=", "source": name} for name in bounds]
    config = country.config(privacy=privacy, invariant=invariant, bound=bound)
    page = render_planner(load(country.write(config)))
    moves = [("level-county", "5000"), ("query-block-1", "700"), ("budget", "7/4"), ("level-state", "123")]
    sizes, console = shown(page, moves, tmp_path)
    assert console == []
    for read in sizes:
        for stage in ("before", "after", "taken"):
            require_agreement(read[stage], config, country)
        moved = tomllib.loads(read["after"]["toml"])
        assert moved["privacy"] == {"rho" if privacy["framework"] == "zcdp" else "epsilon": "7/4"}
        assert moved["strategy"]["geolevels"]["state"] == "123/10000"
        assert moved["strategy"]["queries"]["block"]["sex * grown"] == "700/10000"
        assert read["after"]["errors"] != read["before"]["errors"]
        assert read["reset"] == read["before"], "as loaded again"
        assert read["fits"][0] == read["fits"][1], "nothing is wider than the screen"


def test_the_page_asks_for_nothing_and_allows_its_own_script_alone(country: Any) -> None:
    page = render_planner(country.plan())
    assert "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-" in page
    assert not re.search(r"https?://|\b(src|srcset)=|url\(|@import", page)
    assert page.count("<script") == 2
    named = country.config()
    named["schema"]["attribute"][0]["labels"] = ["</script><b>", "m"]
    named["schema"]["structural_zero"] = []
    assert "</script><b>" not in render_planner(load(country.write(named)))


def test_the_command_writes_it_and_refuses_conditioned_noise(country: Any, tmp_path: Path) -> None:
    country.plan()
    page = tmp_path / "new" / "plan.html"
    arguments = ["plan", str(country.folder / "config.toml"), "--html", str(page), "--json"]
    stated = json.loads(CliRunner().invoke(cli.das, arguments, catch_exceptions=False).stdout)
    assert stated["release"] in page.read_text()
    with pytest.raises(UsageError, match="conforming counts"):
        render_planner(load("congenial-pl94"))
