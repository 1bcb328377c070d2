"""An audit for the terminal."""

from __future__ import annotations

import math

from das.evaluation.format import table
from das.evaluation.privacy_audit.result import NOTICE, Audit, PolicyFinding
from das.exact import round_up

__all__ = ["audit_text", "shown_lower", "shown_upper", "verdict_words"]

COLUMNS = {
    "policy": "policy",
    "claimed": "claimed at most",
    "exact": "at least, exact",
    "empirical": "at least, from runs",
    "delta": "delta",
    "verdict": "verdict",
}
WORDS = {
    "consistent": "The promise is not refuted: no lower bound is above its claim, and no check failed.",
    "VIOLATED": "THE PROMISE IS NOT KEPT. Do not publish; find the fault.",
    "not checked": "Nothing could be compared with a claim.",
}


def verdict_words(audit: Audit) -> str:
    """The verdict in a sentence."""
    return WORDS[audit.verdict]


def audit_text(audit: Audit) -> str:
    """Lay out an audit: epsilons beside their claims, the pairs, the checks, and the verdict last."""
    lines = [NOTICE, "", f"{audit.subject}; confidence {audit.confidence:.4g}, {audit.runs:,} runs of each data set"]
    if audit.world:
        places = ", ".join(f"{level} {number}" for level, number in audit.world["places"].items())
        shape = "the plan's own geography and schema" if audit.world["is_the_plan_itself"] else "a smaller world"
        lines.append(f"audited on {shape}: {places}; {audit.world['released_numbers']:,} released numbers")
    lines += ["", table(COLUMNS, [_row(finding) for finding in audit.policies]), ""]
    for finding in audit.policies:
        lines.append(f"{finding.claim.policy}: {finding.claim.meaning}")
        lines.append(f"  pair: {finding.pair} ({finding.search})")
        if finding.empirical is not None:
            hits, runs = finding.empirical.hits, finding.empirical.runs
            seen = f"{hits[0]} of {runs[0]} runs, and {hits[1]} of {runs[1]} of the other data set"
            lines.append(f"  judged on: {finding.empirical.event}: {seen}")
        if finding.claim.condition:
            lines.append(f"  the claim holds {finding.claim.condition}; both data sets keep it")
    lines += [
        "",
        table({"name": "check", "verdict": "verdict", "detail": "found"}, [c.to_json() for c in audit.checks]),
    ]
    return "\n".join([*lines, "", verdict_words(audit)])


def _row(finding: PolicyFinding) -> dict[str, object]:
    seen = finding.empirical
    return {
        "policy": finding.claim.policy,
        "claimed": shown_upper(finding.claim.epsilon),
        "exact": shown_lower(finding.exact),
        "empirical": shown_lower(None if seen is None else seen.epsilon),
        "delta": f"{float(finding.claim.delta):.3g}",
        "verdict": finding.verdict,
    }


def shown_upper(number: float | None) -> str:
    """An upper bound in three decimals, rounded up; a dash where there is none.

    Examples
    --------
    >>> shown_upper(1.0001), shown_lower(1.9999), shown_lower(None)
    ('1.001', '1.999', '-')
    """
    return "-" if number is None else round_up(number, 3)


def shown_lower(number: float | None) -> str:
    """A lower bound in three decimals, rounded down; a dash where there is none."""
    if number is None:
        return "-"
    return "infinite" if math.isinf(number) else f"{math.floor(number * 1000) / 1000:.3f}"
