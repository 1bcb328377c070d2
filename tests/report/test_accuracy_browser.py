"""The accuracy report in a real browser: it fits a phone and a desk, its console is silent, and it loads nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from das.demo.layout import made_up_shapes
from das.evaluation.evaluate import row_of
from das.evaluation.format import finite
from das.evaluation.places import Places, describe
from das.evaluation.truth import Compared
from das.report.accuracy import MapFigure, render_accuracy
from das.report.error_map import MapPlace, error_map, legend_of
from das.schema.query import parse_query
from das.schema.schema import Attribute, Schema

pytestmark = pytest.mark.browser

SCHEMA = Schema((Attribute("origin", ("inland", "coast & isles", "abroad")),))
LEVELS = {"district": 4, "village": 120}


def evaluation(*, data: str, prior: str = "none") -> dict[str, Any]:
    """An evaluation of 120 villages in 4 districts, with noise of three people a count."""
    rng = np.random.default_rng(5)
    true = rng.poisson(rng.choice([0, 3, 60], size=(120, 3)))
    shown = np.maximum(true + rng.normal(0, 3, true.shape).round(), 0)
    rows, places = [], []
    for level, units in LEVELS.items():
        sides = [side.reshape(units, -1, 3).sum(axis=1).astype(float) for side in (shown, true)]
        for name in ("total", "origin"):
            query = parse_query(SCHEMA, name)
            flat = [(side.sum(axis=1, keepdims=True) if name == "total" else side).reshape(-1) for side in sides]
            key = np.flatnonzero((flat[0] > 0) | (flat[1] > 0))
            one = Compared(
                level=level, query=query, cells=flat[0].size, key=key, published=flat[0][key], true=flat[1][key]
            )
            rows.append(row_of(one) | {"on_spine": True, "measured_rmse": 3.0, "noise_std_dev": 3.0})
        totals = [side.sum(axis=1) for side in sides]
        codes = np.array([f"{level[0]}{i:03d}" for i in range(units)])
        one_level = Places(
            level=level,
            on_spine=True,
            codes=codes,
            published=totals[0],
            true=totals[1],
            estimate=totals[1] + 1,
            deviation=np.full(units, 5.2),
            noise_std_dev=5.2,
        )
        places.append(describe(one_level))
    solver = {"level": "village", "families": 4, "solvers": {"fast": 4}, "largest_residual": 1e-15, "widened": 0}
    solver |= {"largest_gap": 1e-12, "median_iterations": 6.0, "rounding_distance": 31.5}
    found: dict[str, Any] = finite(
        {
            "release": "coast <&> isles",
            "plan_digest": 64 * "a",
            "data": data,
            "estimate": {"method": "nonnegative-l2", "information": "full", "prior": prior},
            **({"prior_effect": "Enclaves lose."} if prior == "sharing" else {}),
            "privacy": {
                "nominal_epsilon": 2.0,
                "effective": [{"policy": "semi", "epsilon": 3.5, "status": "proved"}],
            },
            "levels": rows,
            "places": places,
            "solver": [solver],
            "warnings": ["village: 30 of 31 empty places were published with people, 2.5 on average"],
        }
    )
    return found


@pytest.fixture(scope="module")
def page() -> str:
    outlines = made_up_shapes(np.arange(120), 120)
    places = [MapPlace(code=f"v{i}", rings=rings, true=10, published=i) for i, rings in enumerate(outlines)]
    drawn = error_map("map", "Map", places, 4.0)
    figure = MapFigure(svg=drawn, legend=legend_of(4.0), level="village", note="Made up.")
    other = evaluation(data="generated", prior="sharing")
    return render_accuracy(
        evaluation(data="generated"), others=[other], labels=["none (a)", "sharing (b)"], figure=figure
    )


def test_it_renders_with_its_charts_and_a_silent_console(browse: Callable[[str], Any], page: str) -> None:
    seen = browse(page)
    assert seen.console == []
    assert seen.dom.count('role="img"') == 1 + 1 + 2 + 2  # map; errors by level; bias and B of villages; two totals
    assert seen.dom.count('class="land ') == 120
    assert seen.dom.rstrip().endswith("</html>")
    assert re.findall(r"<(\w+)", seen.dom.replace("<tbody>", "")) == re.findall(r"<(\w+)", page.replace("<tbody>", ""))


def test_it_asks_for_nothing_and_forbids_scripts(browse: Callable[[str], Any], page: str) -> None:
    dom = browse(page).dom
    assert not re.search(r"https?://", dom.replace("http://www.w3.org/2000/svg", ""))
    assert not re.search(r"<(script|link|img|iframe|object|embed|audio|video|source|base|use|image)\b", dom)
    assert not re.search(r"\b(src|href|srcset|poster|data)=|url\(|@import", dom)
    planted = browse(page.replace("</main>", '<img src="planted.png"></main>'))
    assert sum("Content Security Policy" in line for line in planted.console) == 1


def test_it_fits_a_phone_and_a_desk(measured: Callable[[str], list[dict[str, Any]]], page: str) -> None:
    for seen in measured(page):
        assert seen["needed"] == seen["width"]
        assert seen["cut"] == []
        assert seen["small"] == 0
        assert seen["hidden"] == []
        assert seen["alert"] == []
        assert all(across > seen["width"] * 0.3 for across, _ in seen["curves"])
        order = ["short", "map", "levels", "bias", "views", "hardest", "beside", "solver", "words"]
        assert seen["order"] == order


def test_confidential_errors_are_marked_in_red(measured: Callable[[str], list[dict[str, Any]]]) -> None:
    for seen in measured(render_accuracy(evaluation(data="confidential"))):
        assert seen["alert"] == ["rgb(157, 19, 24)"]
        assert "map" not in seen["order"]
        assert "beside" not in seen["order"]
