"""The account of a plan as a table for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from das.exact import round_up

__all__ = ["account_text"]


def account_text(nominal: Mapping[str, Any], sections: Mapping[str, Any]) -> str:
    """Show nominal and effective numbers as a table."""
    heading = "what stays hidden, given what is public"
    lines = [f"{heading:<62}{'rho':>10}{'epsilon':>10}{'tight':>10}{'nominal':>10}  status"]
    tight = sections["tight"] or {"epsilon": None}
    shown = dict(nominal) | {"tight_epsilon": tight["epsilon"]}
    lines.append(_row("nominal: any record, anywhere, as if nothing were public", shown))
    lines += _promises(sections)
    for entry in sections["attributes"]:
        lines.append(_row(f"attribute {entry['attribute']} alone", entry))
    for entry in sections["geography"]:
        lines.append(_row(f"place alone: another {entry['of']} within the same {entry['within']}", entry))
    for variant in sections.get("variants", ()):
        lines += ["", variant["assumption"], *_promises(variant)]
    lines.append("")
    for level, query in sections["determined_queries"]:
        lines.append(f"not protected: {query} at {level} is the same in all data sets that are compared")
    if sections["vacuous"]:
        lines.append("VACUOUS: the public facts determine the data")
    return "\n".join(lines)


def _promises(sections: Mapping[str, Any]) -> list[str]:
    lines = [_row(entry["secret"], entry) for entry in sections["secrets"]]
    for entry in sections["effective"]:
        words = f"policy {entry['policy']}, a(t) = {entry['a']}" if entry.get("a") else f"policy {entry['policy']}"
        lines.append(_row(words, entry))
    return lines


def _row(words: str, entry: Mapping[str, Any]) -> str:
    rho = f"{entry['rho']:.4f}" if isinstance(entry["rho"], float) else "-"
    shown = [_quoted(entry.get(key)) for key in ("epsilon", "tight_epsilon", "nominal_epsilon")]
    return f"{words:<62}{rho:>10}" + "".join(f"{text:>10}" for text in shown) + f"  {entry['status']}"


def _quoted(epsilon: float | str | None) -> str:
    """Show an epsilon rounded up; blank where there is none."""
    return round_up(epsilon, 3) if isinstance(epsilon, float) else str(epsilon or "")
