"""What tuning found: for people, for machines, and as a config that ``das plan`` loads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from das.demo.anywhere import PEOPLE_PER_LEAF
from das.evaluation.format import finite, table
from das.evaluation.trees.text import strategy_toml
from das.evaluation.tuning.tune import Strategy, Tuned
from das.exact import quoted
from das.plan.load import to_toml
from das.plan.plan import Plan
from das.plan.settings import Settings

__all__ = ["curves", "tuned_config", "tuned_json", "tuned_text", "warnings_of", "where_of"]

SMALL = 1e-3
MUCH_WORSE = 3.0
_STEPS = 24
_NEAREST, _WIDTH = 0.5, 4.0  # budgets of the curves, in multiples of what the tuned shares need


def currency(plan: Plan) -> str:
    """``rho`` or ``epsilon``."""
    return "rho" if plan.framework == "zcdp" else "epsilon"


def where_of(found: Tuned, data: str, runs: int, margins: Path | None = None) -> str:
    """Say on whom plans were tried, and where their number comes from."""
    country = found.trial.country
    leaves = len(country.spine.leaves)
    part = "" if leaves == country.whole else f" of {country.whole:,}"
    kind = "people of the config's own public data"
    if data == "generated":
        guessed = f", {PEOPLE_PER_LEAF} for each because no margins say how many there are"
        kind = f"generated people, seed {found.seed}{guessed if margins is None else ''}"
    return (
        f"{leaves:,}{part} geounits of level {country.spine.levels[-1]} with {int(country.cells.sum()):,} {kind}, "
        f"{runs} runs of each plan; no confidential record was read"
    )


def tuned_json(found: Tuned, where: str) -> dict[str, Any]:
    """Describe what was found for machines: ``das tune --json``."""
    content: dict[str, Any] = finite(
        {
            "simulated": where,
            "currency": currency(found.tuned.plan),
            "tuned": _strategy(found.tuned) | {"strategy": strategy_toml(found.tuned.plan)},
            "own": _strategy(found.own),
            "others": [_strategy(each) for each in found.others],
            "targets": _target_rows(found),
            "shares": [
                {
                    "level": w.level,
                    "query": w.query,
                    "share": w.share,
                    "own_share": w.own_share,
                    "value": w.value,
                    "own_value": w.own_value,
                }
                for w in found.worth
            ],
            "curves": curves(found),
            "warnings": warnings_of(found),
        }
    )
    return content


def _strategy(each: Strategy) -> dict[str, Any]:
    return {"name": each.name, "budget": str(each.plan.budget), "epsilon": each.plan.epsilon()}


def _target_rows(found: Tuned) -> list[dict[str, Any]]:
    """One row for each target: asked for, simulated, the linear estimate alone, and its part of the budget."""
    rows = []
    for at, target in enumerate(found.trial.targets.targets):
        simulated = found.tuned.simulated[at]
        linear = found.tuned.linear[at]
        rows.append(
            {
                "target": target.name,
                "wanted": target.wanted,
                "achieved": simulated.achieved,
                "achieved_se": simulated.error,
                "linear": target.met_by(linear, found.trial.true[at]) if linear > 0 else None,
                "price": found.prices[at],
            }
        )
    return rows


def curves(found: Tuned) -> list[dict[str, Any]]:
    """For each target what each strategy achieves against the budget, in the target's own measure.

    Exact linear deviations fall with the square root of rho (with epsilon under pure DP); the ratio of simulated to
    linear deviations is that of the budget which the strategy needs.
    """
    power = 0.5 if found.tuned.plan.framework == "zcdp" else 1.0
    needed = float(found.tuned.plan.budget)
    out = []
    for at, target in enumerate(found.trial.targets.targets):
        lines = []
        for each in (found.tuned, found.own, *found.others)[:3]:  # more lines could not be told apart
            deviation = each.linear[at] * each.ratios[at]
            if deviation <= 0:
                continue
            budgets = [needed * (_NEAREST + _WIDTH * k / _STEPS) for k in range(_STEPS + 1)]
            points = [
                (b, target.met_by(deviation * (float(each.plan.budget) / b) ** power, found.trial.true[at]))
                for b in budgets
            ]
            lines.append({"name": each.name, "points": points})
        out.append({"target": target.name, "wanted": target.wanted, "lines": lines})
    return out


def warnings_of(found: Tuned) -> list[str]:
    """Budget that measures what is published exactly, and what no target asks for."""
    own, tuned = found.own.plan, found.tuned.plan
    out = []
    for level, query in found.determined:
        share = sum(float(m.share) for m in own.measurements if (m.level, m.query.name) == (level, query))
        if share:
            words = (
                f"the plan spends {100 * share:.2g} % of its budget on {query} at {level}, which is published exactly"
            )
            out.append(f"{words}; the tuned shares leave it out where the level measures something else")
    spent = {(m.level, m.query.name): float(m.share) for m in tuned.measurements}
    idle = [f"{query} at {level}" for (level, query), share in spent.items() if share < SMALL]
    if idle:
        shown = ", ".join(idle[:6]) + (f" and {len(idle) - 6} more" if len(idle) > 6 else "")
        if found.trial.targets.keep is None:
            remedy = "state a target for what matters, or [keep] times = 3 to let no measured query become much worse"
        else:
            remedy = "[keep] holds because other measurements determine them; a target says what matters more"
        out.append(f"no target needs a noticeable share of {shown}: measured by themselves they are noise; {remedy}")
    return out


def tuned_text(found: Tuned, where: str, written: Sequence[Path] = ()) -> str:
    """Lay out what was found for a terminal."""
    name, budget = currency(found.tuned.plan), found.tuned.plan.budget
    others = [
        {"shares": each.name, "budget": float(each.plan.budget), "less": 100 * (1 - float(budget / each.plan.budget))}
        for each in (found.own, *found.others)
    ]
    rows = [
        row | {"price": 100 * row["price"]} | _percent(row, target.settings.share is not None)
        for row, target in zip(_target_rows(found), found.trial.targets.targets, strict=True)
    ]
    columns = {
        "target": "target",
        "achieved": "simulated",
        "achieved_se": "+-",
        "linear": "linear",
        "price": "budget %",
    }
    worth = [
        {
            "level": w.level,
            "query": w.query,
            "own": 100 * w.own_share,
            "own_value": w.own_value,
            "share": 100 * w.share,
            "value": w.value,
        }
        for w in found.worth
    ]
    worth_columns = {
        "level": "level",
        "query": "query",
        "own": "own share %",
        "own_value": "value",
        "share": "tuned share %",
        "value": "value ",
    }
    return "\n".join(
        [
            f"Least {name} for {found.tuned.plan.name}: {float(budget):.3g} ({budget}), nominal epsilon "
            + f"{quoted(found.tuned.plan.epsilon())}, as if nothing were public",
            f"Simulated: {where}",
            "",
            table(columns, rows),
            "",
            table({"shares": "other shares", "budget": f"need {name}", "less": "tuned needs less, %"}, others),
            "",
            "value: what the last bit of budget of a measurement achieves, against the average bit (above 1: deserves",
            "more; at the optimum 1, or less at the least share)",
            table(worth_columns, worth),
            "",
            *(f"warning: {words}" for words in warnings_of(found)),
            *(f"wrote {path}" for path in written),
            "",
            strategy_toml(found.tuned.plan),
        ]
    )


def _percent(row: dict[str, Any], is_share: bool) -> dict[str, Any]:
    if not is_share:
        return {}
    return {key: None if row[key] is None else 100 * row[key] for key in ("achieved", "achieved_se", "linear")}


def tuned_config(plan: Plan, out: Path) -> str:
    """Write a whole config, whose relative paths hold from the folder of ``out``."""

    def moved(name: str | None) -> str | None:
        return name and os.path.relpath(plan.folder / name, out.resolve().parent)

    content = plan.settings.model_dump(mode="json", by_alias=True, exclude_none=True)
    for section, keys in (("input", ("ledger",)), ("geography", ("units", "crosswalk"))):
        content[section] |= {key: moved(content[section][key]) for key in keys if content[section].get(key)}
    for key in ("microdata", "histograms"):
        content["input"][key] = [moved(name) for name in content["input"][key]]
    for area in content["geography"]["areas"]:
        area["file"] = moved(area["file"])
    for fact in (*content["bound"], *content["published"]):
        fact["source"] = moved(fact["source"])
    beside = [moved(name) if (plan.folder / name).exists() else name for name in plan.settings.release.with_]
    content["release"]["with"] = beside
    return to_toml(Settings.model_validate(content))
