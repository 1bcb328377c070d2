"""The account of a plan as a table for the terminal: each number with its status and its condition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from das.accounting.quote import Quote, quotes_of, reasons_of
from das.exact import delta_text, quoted
from das.report.conditions import Footnotes, added_delta_sentence
from das.report.releases import budget_sentence, ledger_sentences, release_rows

__all__ = ["account_text"]

HEADING = "what stays hidden, given what is public"
COLUMNS = ("rho", "epsilon", "tight", "otherwise", "nominal")
FAMILY_NOTE = "families: as many records change, each as the secret allows"


def account_text(nominal: Mapping[str, Any], sections: Mapping[str, Any]) -> str:
    """Show nominal and effective numbers as a table; a mark leads to the condition of a number, below the table.

    Examples
    --------
    >>> print(account_text({"rho": 0.5, "epsilon": 6.84, "status": "proved"}, {}).splitlines()[1].split()[-4:])
    ['public', '0.500', '6.840', 'proved']
    """
    quotes = list(quotes_of({"nominal": nominal, **{k: v for k, v in sections.items() if k != "nominal"}}))
    variants = [(each["assumption"], list(quotes_of(each))) for each in sections.get("variants", ())]
    notes = Footnotes.of([*quotes, *(quote for _, listed in variants for quote in listed)])
    lines = [f"{HEADING:<62}" + "".join(f"{column:>10}" for column in COLUMNS) + "  status"]
    lines += [_row(quote, notes) for quote in quotes]
    for assumption, listed in variants:
        lines += ["", assumption, *(_row(quote, notes) for quote in listed)]
    lines.append("")
    lines += [f"[{number}] {text}" for number, text in enumerate(notes.texts, 1)]
    lines += reasons_of(quotes)
    if any(quote.group == "tight" for quote in quotes):
        lines.append("tight: the same promise from the exact distributions of the noise; smaller, and as much proved")
    if any(quote.group == "families" for quote in quotes):
        lines.append(FAMILY_NOTE)
    lines += [sentence] if (sentence := budget_sentence(nominal)) else []
    lines += [sentence] if (sentence := added_delta_sentence(quotes)) else []
    lines += _randomness(sections)
    for level, query in sections.get("determined_queries", ()):
        lines.append(f"not protected: {query} at {level} is the same in all data sets that are compared")
    if sections.get("vacuous"):
        lines.append("VACUOUS: the public facts determine the data")
    rows = [f"  {name}: {words}{'; ' * bool(words)}{status}" for name, words, status in release_rows(sections)]
    lines += ["", "releases", *rows] if rows else []
    lines += ledger_sentences(sections)
    return "\n".join(lines)


def _row(quote: Quote, notes: Footnotes) -> str:
    rho = "-" if quote.rho in (None, "not supported") else quoted(quote.rho)
    # the entry of exact distributions has no other epsilon: it stands in its own column, beside its own rho
    exact = quote.group == "tight"
    shown = [
        quoted(quote.rest.get("zcdp_epsilon") if exact else quote.epsilon),
        quoted(quote.epsilon if exact else quote.tight_epsilon),
        quoted(quote.condition.otherwise) if quote.condition else "",
        quoted(quote.nominal_epsilon),
    ]
    mark = f" [{notes.mark(quote)}]" if quote.condition else ""
    return f"{quote.name:<62}{rho:>10}" + "".join(f"{text:>10}" for text in shown) + f"  {quote.status}{mark}"


def _randomness(sections: Mapping[str, Any]) -> list[str]:
    found = sections.get("randomness")
    if not found:
        return []
    return [f"delta: {delta_text(found['delta'])} more, for the noise's generator, {found['condition']['words']}"]
