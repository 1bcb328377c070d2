"""What an attacker learns, for a page: beliefs before and after, the curve of false and missed alarms, and families."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from das.accounting.quote import Quote, quotes_of
from das.accounting.tradeoff import Learnt
from das.report.charts import dash_sample
from das.report.lines import Line, line_chart
from das.report.verdict import findings_of
from das.report.wording import named

__all__ = ["BeliefRow", "Families", "Figure", "belief_rows", "family_table", "tradeoff_figure"]

KINDS = {
    "attributes": "One attribute, all else being known",
    "geography": "The place, all else being known",
    "secrets": "The whole record",
    "effective": "Presence, or a change that forces others",
}


@dataclass(frozen=True, slots=True)
class BeliefRow:
    """One secret in the table of beliefs."""

    kind: str
    name: str
    quote: Quote
    learnt: Learnt


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with the samples of its lines."""

    chart: Markup
    lines: tuple[tuple[Markup, str], ...]


@dataclass(frozen=True, slots=True)
class Families:
    """Families of several sizes across, secrets down."""

    sizes: tuple[int, ...]
    rows: tuple[tuple[str, tuple[Quote, ...]], ...]


def belief_rows(statement: Mapping[str, Any]) -> tuple[tuple[str, tuple[BeliefRow, ...]], ...]:
    """Group secrets by kind: attributes, places, whole records, and presence or the promise itself."""
    if statement.get("vacuous"):
        return ()
    groups = []
    for kind, title in KINDS.items():
        found = [quote for quote in quotes_of({kind: statement.get(kind)}) if quote.learnt]
        if kind == "effective":
            found = [quote for quote in found if quote.about["policy"] in ("semi", "unconstrained")]
        rows = tuple(BeliefRow(kind, _name(quote, statement), quote, quote.learnt) for quote in found if quote.learnt)
        if rows:
            groups.append((title, rows))
    return tuple(groups)


def tradeoff_figure(statement: Mapping[str, Any]) -> Figure | None:
    """Draw false alarms against missed ones for the lines of the verdict, beside what guessing without a look gives."""
    found = findings_of(statement)
    if not found:
        return None
    lines = [Line("no release: a guess", [(0.0, 100.0), (100.0, 0.0)])]
    for finding in found:
        points = [(100 * false, 100 * missed) for false, missed in finding.learnt.curve]
        condition = f", {finding.quote.condition.words}" if finding.quote.condition else ""
        lines.append(Line(f"{finding.subject}{condition}", points))
    chart = line_chart(
        "guesses",
        "False alarms against missed ones",
        lines,
        across="false alarms in 100",
        up="missed in 100, at least",
    )
    return Figure(chart, tuple((dash_sample(order), line.label) for order, line in enumerate(lines)))


def family_table(statement: Mapping[str, Any]) -> Families | None:
    """Lay out what is promised to families, by size."""
    if statement.get("vacuous"):
        return None
    quotes = list(quotes_of({"families": statement.get("families")}))
    if not quotes:
        return None
    secrets = dict.fromkeys(quote.about["secret"] for quote in quotes)
    rows = tuple((named(s), tuple(quote for quote in quotes if quote.about["secret"] == s)) for s in secrets)
    return Families(tuple(quote.about["people"] for quote in rows[0][1]), rows)


def _name(quote: Quote, statement: Mapping[str, Any]) -> str:
    if quote.group != "effective":
        return named(quote.name)
    if statement["relation"]["kind"] != "replace":
        return f"that one {statement['relation']['unit']} was counted"
    return f"any change of up to {quote.about.get('a')} records" if quote.about.get("a") else named(quote.name)
