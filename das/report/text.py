"""The privacy statement in plain text: what a terminal shows after a run."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from das.accounting.policies import POLICIES
from das.accounting.quote import Quote, quotes_of
from das.exact import delta_text, quoted
from das.report.verdict import verdict_text

__all__ = ["summary"]


def summary(statement: Mapping[str, Any], folder: Path) -> str:
    """State what is promised, given which public facts, and where the files are."""
    lines = [f"Release {statement['release']}", ""]
    if statement["seeded"]:
        lines += ["TEST RUN: the noise key is known. Nothing below is promised, and this is not a release.", ""]
    if statement.get("unprotected"):
        lines += [f"UNPROTECTED: {statement['unprotected']}.", ""]
    if statement["vacuous"]:
        lines += ["VACUOUS: the public facts determine the data. Noise hides nothing, and nothing is promised."]
        return "\n".join(
            [*lines, f"Files      {folder / 'release'}", f"Report     {folder / 'release' / 'privacy.html'}"]
        )
    lines += verdict_text(statement)
    lines += _promise(statement)
    lines.append(
        "           Nothing is promised about the public facts themselves. That this release exists is an output, too:"
    )
    lines.append("           the data fit the schema, the geography and the published bounds, and the facts agree.")
    lines += _effective(statement)
    for fact in statement["invariants"]:
        also = f" (and of {fact['placeholders']} places that skip this level)" if fact.get("placeholders") else ""
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
        *_wall(statement),
        *_files(folder),
    ]
    return "\n".join(lines)


def _wall(statement: Mapping[str, Any]) -> list[str]:
    """Say what kept the stages after the noise from the confidential files; a statement of 0.2.0 does not know."""
    kept = {
        "landlock": "refused by the kernel (Landlock)",
        "mount namespace": "hidden by a mount namespace",
        "none": "NOT ENFORCED: this kernel has no means for it",
    }
    wall = statement.get("wall")
    return [f"           confidential files, after the noise: {kept[wall['enforced_by']]}"] if wall else []


def _promise(statement: Mapping[str, Any]) -> list[str]:
    """Give the number that the page promises, Semi-DP where it is known; then the nominal one."""
    quotes = list(quotes_of({key: statement.get(key) for key in ("nominal", "effective")}))
    nominal, unit = quotes[0], statement["relation"]["unit"]
    promised = next((quote for quote in quotes[1:] if _is_headline(quote) and isinstance(quote.epsilon, float)), None)
    plus, lines = _plus(statement, promised), []
    if promised is not None:
        a = promised.about.get("a")
        who = f"one {unit}'s presence" if not a else "one record"
        who = f"up to {a} records, as many as the public facts may require" if a and a > 1 else who
        lines = [
            "Promised   For any two data sets that agree on all that is public below and differ in",
            f"           {who}, every set of outcomes is at most",
            f"           e^{quoted(promised.epsilon)} times as probable under the one as under the other{plus}",
            f"           ({promised.about['policy']}; {promised.status}{_given(promised)}).",
        ]
    of_noise = ", of the noise before it was conditioned" if "conditioned" in statement else ""
    rho = nominal.rho
    budget = f"rho = {rho} = {quoted(rho)}" if isinstance(rho, str) and rho != "-" else "pure"
    number = f"e^{quoted(nominal.epsilon)}" if isinstance(nominal.epsilon, float) else "no number"
    if promised is None:
        lines += [
            "Promised   For any two data sets that agree on all that is public below and differ in one record,",
            f"           every set of outcomes is at most {number} times as probable under the one as under the other",
            f"           {plus.removeprefix(', ')} ({budget}; {nominal.status}).",
        ]
    else:
        lines += [
            f"Nominal    {number}{_plus(statement)} ({budget}; {nominal.status}{of_noise}){_given(nominal)}.",
        ]
    if "conditioned" in statement:
        lines.append(
            "Drawn      noise given that counts conform (the congenial method); its errors are in the promise: proved."
        )
        accuracy = statement["conditioned"].get("accuracy")  # a statement of 0.2.0 does not know
        said = f"Accuracy   {accuracy['text']}" if accuracy else ""
        lines += textwrap.wrap(said, 110, subsequent_indent=11 * " ", break_on_hyphens=False)
    return lines


def _plus(statement: Mapping[str, Any], quote: Quote | None = None) -> str:
    """What is added to every probability: delta, what a sampler's windows add, and what the noise's generator adds."""
    delta = statement["nominal"].get("delta") or 0.0
    added = (statement.get("randomness") or {}).get("delta")
    shown = [delta_text(each) for each in (delta, quote and quote.added_delta, added) if each]
    return f", plus at most {' + '.join(shown)}" if shown else ""


def _given(quote: Quote) -> str:
    return f", {quote.condition.text()}" if quote.condition else ""


def _is_headline(quote: Quote) -> bool:
    policy = quote.about.get("policy", "")
    return policy == "unconstrained" or (policy in POLICIES and POLICIES[policy].is_headline)


def _files(folder: Path) -> list[str]:
    return [f"Files      {folder / 'release'}", f"Report     {folder / 'release' / 'privacy.html'}"]


def _times(fact: Mapping[str, Any]) -> str:
    return f"{fact['factor']} x " if fact.get("factor", 1) != 1 else ""


def _effective(statement: Mapping[str, Any]) -> list[str]:
    """The promise for the smallest and the largest secret and for the other policies, each with its condition."""
    secrets = list(quotes_of({"secrets": statement.get("secrets")}))
    chosen = secrets[:1] + secrets[-1:] if len(secrets) > 1 else secrets
    policies = quotes_of({"effective": statement.get("effective")})
    chosen += [quote for quote in policies if quote.about.get("a") and not _is_headline(quote)]
    rows = []
    for quote in chosen:
        number = f"epsilon {quoted(quote.epsilon)}" if isinstance(quote.epsilon, float) else str(quote.epsilon)
        rows.append(f"{quote.name:<38} {number} ({quote.status}{_given(quote)})")
    return [f"{'Effective' if i == 0 else '':<11}{row}" for i, row in enumerate(rows)]
