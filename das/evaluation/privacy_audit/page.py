"""An audit as one page that needs no other file, no script and no network."""

from __future__ import annotations

from das.evaluation.privacy_audit.result import NOTICE, Audit
from das.evaluation.privacy_audit.text import shown_lower, shown_upper, verdict_words
from das.report.charts import Bar, bar_chart
from das.report.pages import page_template

__all__ = ["render_audit"]


def render_audit(audit: Audit) -> str:
    """Write the page."""
    bars = []
    for finding in audit.policies:
        name, claimed = finding.claim.policy, finding.claim.epsilon
        bars.append(Bar(f"{name}, claimed", claimed, shown_upper(claimed), "claimed"))
        seen = None if finding.empirical is None else finding.empirical.epsilon
        for words, value in (("exact", finding.exact), ("from runs", seen)):
            bars.append(Bar(f"{name}, {words}", value, shown_lower(value), "found"))
    filters = {"upper_bound": shown_upper, "lower_bound": shown_lower}
    return page_template("das.evaluation.privacy_audit", "audit.html.j2", filters).render(
        audit=audit,
        notice=NOTICE,
        verdict=verdict_words(audit),
        chart=bar_chart("epsilons", "Epsilon claimed and found", bars),
    )
