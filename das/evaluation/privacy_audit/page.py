"""An audit as one page that needs no other file, no script and no network."""

from __future__ import annotations

import math

from das.evaluation.privacy_audit.result import NOTICE, Audit
from das.evaluation.privacy_audit.text import verdict_words
from das.report.charts import Bar, bar_chart
from das.report.pages import page_template

__all__ = ["render_audit"]


def render_audit(audit: Audit) -> str:
    """Write the page."""
    bars = []
    for finding in audit.policies:
        claim = finding.claim
        seen = None if finding.empirical is None else finding.empirical.epsilon
        rows = (("claimed", claim.epsilon, "claimed"), ("exact", finding.exact, "found"), ("runs", seen, "found"))
        bars += [Bar(f"{claim.policy}, {name}", value, _number(value), kind) for name, value, kind in rows]
    return page_template("das.evaluation.privacy_audit", "audit.html.j2", {"epsilon": _number}).render(
        audit=audit,
        notice=NOTICE,
        verdict=verdict_words(audit),
        chart=bar_chart("epsilons", "Epsilon claimed and found", bars),
    )


def _number(number: float | None) -> str:
    if number is None:
        return "–"
    return "infinite" if math.isinf(number) else f"{number:.3f}"
