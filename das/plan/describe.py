"""A plan in words and as plain data: what ``das plan`` prints."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any

from das.exact import delta_text, quoted
from das.plan.method_accuracy import accuracy_of

if TYPE_CHECKING:
    from das.plan.plan import Plan

__all__ = ["SHARING_EFFECT", "plan_json", "plan_text", "unused_delta"]


SHARING_EFFECT = (
    "The sharing prior assumes that few people of a kind live as similar people do. Real block counts of one state, "
    "four runs (das bench accuracy --counts): mean error of detailed counts 0.5 % lower in block groups, the same in "
    "tracts and blocks. 2 people in one block lose 0.48 people in its block group, instead of 0.38; American Indian "
    "counts of 5 to 9 there 0.28, not 0.19."
)
"""What the sharing prior does, measured; said wherever it was chosen."""


def plan_json(plan: Plan) -> dict[str, Any]:
    """Describe the plan for machines: ``das plan --json``."""
    return {
        "release": plan.name,
        "plan_digest": plan.digest,
        "framework": plan.framework,
        "budget": str(plan.budget),
        "delta": str(plan.settings.privacy.delta),
        "epsilon": plan.epsilon(),
        "unit": plan.settings.privacy.unit,
        "neighbours": str(plan.settings.privacy.neighbours),
        "cells": plan.schema.size,
        "levels": list(plan.levels),
        "measurements": [
            {
                "level": m.level,
                "query": m.query.name,
                "cells": m.query.size,
                "share": str(m.share),
                "cost": str(m.cost),
                "mechanism": m.mechanism.name,
                "std_dev": m.std_dev,
                "expected_error": m.expected_error,
            }
            for m in plan.measurements
        ],
        "invariants": [{"level": i.level, "query": i.query.name, "reason": i.reason} for i in plan.invariants],
        "bounds": [{"level": b.level, "query": b.query.name, "sense": b.sense} for b in plan.bounds],
        "published": [{"level": p.level, "query": p.query.name, "source": p.source} for p in plan.published],
        "prior": plan.settings.estimate.prior,
        "passes": {level: [list(each) for each in plan.passes(level)] for level in plan.levels},
        **({"accuracy": accuracy} if (accuracy := accuracy_of(plan)) else {}),
    }


def plan_text(plan: Plan) -> str:
    """Describe the plan for people: ``das plan``."""
    privacy = plan.settings.privacy
    currency = "rho" if plan.framework == "zcdp" else "epsilon"
    promise = f"protects one {privacy.unit} ({privacy.neighbours}): {currency} = {plan.budget}"
    if plan.framework == "zcdp":
        epsilon = quoted(plan.epsilon())
        promise += f" = {quoted(plan.budget)}, nominal epsilon {epsilon} at delta {delta_text(privacy.delta)}"
    if plan.invariants or plan.bounds:
        promise += "; nominal: the public facts below are ignored"
    first = max(14, *(len(level) + 2 for level in plan.levels))
    second = max(12, *(len(m.query.name) + 2 for m in plan.measurements))
    third = max(7, len(f"{plan.schema.size:,}") + 1)
    lines = [
        f"{plan.name}: {plan.schema.size:,} cells per geounit, levels {' > '.join(plan.levels)}",
        promise,
        "",
        f"{'level':<{first}}{'query':<{second}}{'cells':>{third}}{'share':>12}{currency:>10}{'noise sd':>10}"
        f"{'mean |error|':>14}",
    ]
    for m in plan.measurements:
        lines.append(
            f"{m.level:<{first}}{m.query.name:<{second}}{m.query.size:>{third},}{float(m.share):>12.6f}"
            f"{float(m.cost):>10.5f}{m.std_dev:>10.2f}{m.expected_error:>14.2f}"
        )
    lines.append("")
    for i in plan.invariants:
        lines.append(f"public, exact: {i.query.name} at {i.level} ({i.reason})")
    for b in plan.bounds:
        lines.append(f"public bound:  {b.query.name} at {b.level} {b.sense} {b.factor} x {b.source}")
    for p in plan.published:
        lines.append(f"agrees with:   {p.query.name} at {p.level} as released in {p.source}, at no further cost")
    for zero in plan.schema.structural_zeros:
        lines.append(f"impossible:    {zero.name}")
    lines += _order(plan)
    if unused := unused_delta(plan):
        lines.append(f"hint:          {unused}")
    if plan.settings.estimate.prior == "sharing":
        lines += wrap(SHARING_EFFECT, 115, initial_indent="prior:         ", subsequent_indent=" " * 15)
    lines.append(f"plan digest {plan.digest[:16]}")
    return "\n".join(lines)


def unused_delta(plan: Plan) -> str:
    """Say what a delta does that somebody wrote beside a pure budget; nothing where nobody did."""
    privacy = plan.settings.privacy
    if plan.framework != "pure" or privacy.delta == type(privacy).model_fields["delta"].default:
        return ""
    return "a pure promise has no delta; privacy.delta is used only where releases are accounted together"


def _order(plan: Plan) -> list[str]:
    """Say in how many passes levels are estimated, or that the preset's passes do not apply."""
    if plan.settings.estimate.information == "full":
        idle = bool(plan.settings.strategy.passes)
        return ['passes:        those of the preset are for information = "level"'] if idle else []
    several: dict[int, list[str]] = {}
    for level in plan.levels:
        several.setdefault(len(plan.passes(level)), []).append(level)
    return [f"passes:        {n} at {', '.join(levels)}" for n, levels in several.items() if n > 1]
