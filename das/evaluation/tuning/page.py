"""A tuned plan as one page that needs no other file, no script and no network: the curves, the shares, the strategy."""

from __future__ import annotations

from typing import Any

from das.evaluation.trees.text import strategy_toml
from das.evaluation.tuning.text import currency, tuned_json
from das.evaluation.tuning.tune import Tuned
from das.exact import quoted
from das.report.charts import dash_sample
from das.report.lines import Line, line_chart
from das.report.pages import page_template

__all__ = ["render_tuned"]

TARGET = "the target"
HIGHEST = 3.0
"""Errors above so many times the target are not drawn."""


def render_tuned(found: Tuned, where: str) -> str:
    """Write the page."""
    content = tuned_json(found, where)
    name = currency(found.tuned.plan)
    return page_template("das.evaluation.tuning", "tuning.html.j2", {"quoted": quoted}).render(
        title=f"Budget and shares of {found.tuned.plan.name}",
        name=name,
        found=content,
        budget=found.tuned.plan.budget,
        needs=[(each["name"], _number(each["budget"]), _less(content, each)) for each in _compared(content)],
        charts=[_chart(number, each, name) for number, each in enumerate(content["curves"])],
        legend=[(dash_sample(order), words) for order, words in enumerate([*_names(content), TARGET])],
        strategy=strategy_toml(found.tuned.plan),
    )


def _names(content: dict[str, Any]) -> list[str]:
    drawn = [each["lines"] for each in content["curves"] if each["lines"]]
    return [line["name"] for line in drawn[0]] if drawn else []


def _compared(content: dict[str, Any]) -> list[dict[str, Any]]:
    return [content["own"], *content["others"]]


def _number(text: str) -> float:
    up, _, down = text.partition("/")
    return int(up) / int(down or 1)


def _less(content: dict[str, Any], each: dict[str, Any]) -> float:
    return 100 * (1 - _number(content["tuned"]["budget"]) / _number(each["budget"]))


def _chart(number: int, curve: dict[str, Any], name: str) -> dict[str, Any]:
    is_share = "% within" in curve["target"]
    factor = 100.0 if is_share else 1.0
    highest = 1.0 if is_share else HIGHEST * curve["wanted"]
    lines = []
    for each in curve["lines"]:
        points = [(b, factor * v) for b, v in each["points"] if v <= highest]
        lines.append(Line(each["name"], points or [(each["points"][-1][0], factor * highest)]))
    budgets = [b for each in curve["lines"] for b, _ in each["points"]]
    if lines:
        wanted = factor * curve["wanted"]
        lines.append(Line(TARGET, [(min(budgets), wanted), (max(budgets), wanted)]))
    up = "within, %" if is_share else "error"
    return {
        "target": curve["target"],
        "svg": line_chart(f"target-{number}", curve["target"], lines, across=name, up=up) if lines else None,
    }
