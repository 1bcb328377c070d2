"""The privacy statement in plain text: what a terminal shows after a run."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from das.accounting.policies import POLICIES
from das.exact import delta_text, round_up

__all__ = ["summary"]


def summary(statement: Mapping[str, Any], folder: Path) -> str:
    """State what is promised, given which public facts, and where the files are."""
    lines = [f"Release {statement['release']}", ""]
    if statement["seeded"]:
        lines += ["TEST RUN: the noise key is known. Nothing below is promised, and this is not a release.", ""]
    if statement["vacuous"]:
        lines += ["VACUOUS: the public facts determine the data. Noise hides nothing, and nothing is promised."]
        return "\n".join(
            [*lines, f"Files      {folder / 'release'}", f"Report     {folder / 'release' / 'privacy.html'}"]
        )
    lines += _promise(statement)
    lines.append("           Nothing is promised about the public facts themselves.")
    lines += _effective(statement)
    for fact in statement["invariants"]:
        also = f" (and of {fact['placeholders']} places that have none)" if fact.get("placeholders") else ""
        lines.append(f"Public     {fact['query']} of each {fact['level']}{also}, exactly. {fact['reason']}")
    for fact in statement["bounds"]:
        limit = f"{fact['sense']} {_times(fact)}{fact['source']}"
        lines.append(f"           {fact['query']} of each {fact['level']} {limit}. {fact['reason']}".rstrip(". ") + ".")
    for name in statement["structural_zeros"]:
        lines.append(f"           structural zero {name}")
    lines.append("           the list of all geounits, empty ones included")
    for fact in statement.get("published", ()):
        which = f"{fact['query']} of each {fact['level']}, with {fact['source']}"
        lines.append(
            f"Agrees     {which}: protected when it was released, and no further cost. {fact['reason']}".rstrip()
        )
    lines += [
        "Checked    counts are nonnegative integers, children sum to parents, public facts hold: verified",
        f"           the ledger agrees with the plan: {'yes' if statement['ledger_agrees'] else 'NO'}",
        *_files(folder),
    ]
    return "\n".join(lines)


def _promise(statement: Mapping[str, Any]) -> list[str]:
    """Give the number that the page promises, Semi-DP where it is known; then the nominal one."""
    nominal, unit = statement["nominal"], statement["relation"]["unit"]
    headlines = (row for row in statement.get("effective", ()) if _is_headline(row["policy"]))
    semi = next(headlines, None)
    zcdp = statement["framework"] == "zcdp"
    except_ = f", except with probability {delta_text(nominal['delta'])}" if zcdp else ""
    if statement["relation"]["kind"] != "replace":
        differ = f"For any two data sets that differ by one {unit}'s presence,"
    else:
        differ = "For any two data sets that agree on all that is public below and differ in one record,"
    if semi is not None and isinstance(semi["epsilon"], float):
        up_to = (
            "one record" if semi["a"] == 1 else f"up to {semi['a']} records, as many as the public facts may require"
        )
        lines = [
            "Promised   For any two data sets that agree on all that is public below and differ in",
            f"           {up_to}, the chance of any outcome differs",
            f"           by at most a factor e^{round_up(semi['epsilon'], 3)}{except_} "
            f"({semi['policy']}, {semi['status']}).",
        ]
        label = "Nominal    "
    else:
        lines, label = [], "Promised   "
    if "conditioned" in statement:
        of_noise = f"epsilon {round_up(nominal['epsilon'], 4)}{except_}"
        return [
            *lines,
            "Drawn      noise given that counts conform (the congenial method); its errors are in the promise: proved.",
            f"Nominal    {of_noise}, of the noise before it was conditioned.",
        ]
    budget = f"rho = {nominal['rho']} = {float(Fraction(nominal['rho'])):.4f}" if zcdp else "pure"
    return [
        *lines,
        f"{label}{differ}",
        f"           by at most a factor e^{round_up(nominal['epsilon'], 4)}{except_} ({budget}; {nominal['status']}).",
    ]


def _is_headline(policy: str) -> bool:
    return policy in POLICIES and POLICIES[policy].is_headline


def _files(folder: Path) -> list[str]:
    return [f"Files      {folder / 'release'}", f"Report     {folder / 'release' / 'privacy.html'}"]


def _times(fact: Mapping[str, Any]) -> str:
    return f"{fact['factor']} x " if fact.get("factor", 1) != 1 else ""


def _effective(statement: Mapping[str, Any]) -> list[str]:
    """The promise for the smallest and the largest secret, and for the strictest policy."""
    secrets = statement.get("secrets", [])
    chosen = [(s["secret"], s) for s in (secrets[:1] + secrets[-1:] if len(secrets) > 1 else secrets)]
    for found in statement.get("effective", ()):
        if found.get("a") and not _is_headline(found["policy"]):
            chosen.append((f"policy {found['policy']}, a(t) = {found['a']}", found))
    rows = []
    for words, found in chosen:
        epsilon = found["epsilon"]
        shown = f"epsilon {round_up(epsilon, 3)}" if isinstance(epsilon, float) else str(epsilon)
        rows.append(f"{words:<38} {shown} ({found['status']})")
    return [f"{'Effective' if i == 0 else '':<11}{row}" for i, row in enumerate(rows)]
