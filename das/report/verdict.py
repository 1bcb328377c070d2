"""The verdict in plain words: how well single answers, whole records and families are protected, and compared to what.

The measure is the largest share of right guesses. Somebody wonders which of two values is true, both being possible
beside everything public, and knows all else. With the release in hand the guess is right at most so often, and half the
time without it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from das.accounting.policies import POLICIES
from das.accounting.quote import Quote, quotes_of
from das.accounting.tradeoff import Learnt
from das.exact import decimal_of, quoted
from das.report.reference import CENSUS_2020, REFERENCE_NAME, Reference

__all__ = [
    "GRADES",
    "Finding",
    "Household",
    "findings_of",
    "grade_of",
    "household_of",
    "hundredths_upper",
    "verdict_text",
]

GRADES = ((0.6, "strong"), (0.9, "moderate"), (1.0, "weak"))
"""Shares of right guesses up to which protection is called so; a page that uses the words says these numbers."""
GRADES_TEXT = "Strong: at most 60 right guesses in 100. Moderate: at most 90. Weak: more."
HOUSEHOLD = 4


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the verdict: what it is about, the number it rests on, and the reference for it."""

    subject: str
    quote: Quote
    learnt: Learnt
    reference: Reference | None
    """None where the redistricting data of 2020 promise nothing of the kind: presence, beside exact totals."""

    @property
    def grade(self) -> str:
        """Strong, moderate or weak."""
        return grade_of(self.learnt.right)

    @property
    def right(self) -> str:
        """Right guesses in 100, rounded up."""
        return hundredths_upper(self.learnt.right)

    def is_covered_by(self, last: Finding) -> bool:
        """Whether the last line, where other records change along, says what holds otherwise."""
        condition = self.quote.condition
        return (
            condition is not None
            and condition.otherwise is not None
            and last is not self
            and last.quote.about.get("policy") == "semi"
            and last.quote.condition is None
        )

    @property
    def text(self) -> str:
        """The finding in one line, the reference in brackets; without its condition."""
        right, epsilon = self.right, quoted(self.quote.epsilon)
        if self.reference is not None:
            right += f" ({hundredths_upper(self.reference.right)})"
            epsilon += f" ({quoted(self.reference.epsilon)})"
        return f"{right:<12}{self.grade:<10}{self.subject}; epsilon {epsilon}"


@dataclass(frozen=True, slots=True)
class Household:
    """The worked example: one answer of one member, and a secret that all members share."""

    people: int
    member: Quote
    learnt: Learnt
    together: Quote | None


def findings_of(statement: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Give the verdict's lines: one answer, a whole record, and the promise itself; none where nothing is promised."""
    if statement.get("vacuous"):
        return ()
    unit = statement["relation"]["unit"]
    secrets = [quote for quote in quotes_of({"secrets": statement.get("secrets")}) if quote.learnt]
    headlines = [quote for quote in quotes_of({"effective": statement.get("effective")}) if _is_headline(quote)]
    presence = statement["relation"]["kind"] != "replace"
    told = [("answers", f"The answers of one {unit}, the place being known", quote) for quote in secrets[:1]]
    told += [("record", f"The whole record of one {unit}, its place included", quote) for quote in secrets[-1:]]
    joined = any((quote.about.get("a") or 1) > 1 for quote in headlines)
    words = (
        f"Any change of one {unit}’s record" if not joined else "Where public facts force other records to change along"
    )
    words = f"That one {unit} was counted at all" if presence else words
    told += [("presence" if presence else "headline", words, quote) for quote in headlines]
    return tuple(
        Finding(subject, quote, quote.learnt, CENSUS_2020.get(key))
        for key, subject, quote in told
        if quote.learnt is not None
    )


def household_of(statement: Mapping[str, Any]) -> Household | None:
    """Find the numbers of the worked example: the smallest secret, alone and for a family of four."""
    member = next((q for q in quotes_of({"secrets": statement.get("secrets")}) if q.learnt), None)
    if member is None or member.learnt is None or statement.get("vacuous"):
        return None
    families = quotes_of({"families": statement.get("families")})
    together = next((q for q in families if q.about["people"] == HOUSEHOLD and _same(q, member)), None)
    return Household(HOUSEHOLD, member, member.learnt, together)


def verdict_text(statement: Mapping[str, Any]) -> list[str]:
    """Give the verdict as lines for a terminal."""
    found = findings_of(statement)
    if not found:
        return []
    lines = [
        "In short   Somebody wonders which of two values is true, both being possible beside everything public,",
        "           and knows all else. Without the release the guess is right 50 times in 100. With it, at most so",
        f"           often (in brackets: {REFERENCE_NAME}, under the same accounting):",
    ]
    for finding in found:
        lines.append(f"           {finding.text}")
        if finding.quote.condition:
            lines.append(f"{'':33}{finding.quote.condition.text()}")
    return [*lines, f"           {GRADES_TEXT}"]


def grade_of(right: float) -> str:
    """Name a share of right guesses.

    Examples
    --------
    >>> grade_of(0.55), grade_of(0.77), grade_of(0.97)
    ('strong', 'moderate', 'weak')
    """
    return next(name for most, name in GRADES if right <= most)


def hundredths_upper(share: float) -> str:
    """Write a share as so many in 100, rounded up; above 99 with more digits, and never as certainty that it is not.

    Examples
    --------
    >>> hundredths_upper(0.7632), hundredths_upper(0.9951), hundredths_upper(0.0123), hundredths_upper(1.0)
    ('77', '99.6', '1.3', '100')
    """
    digits = 0 if 0.1 <= share <= 0.99 else 1 if share <= 0.999 else 2
    return f"{math.ceil(decimal_of(share) * 10 ** (digits + 2)) / 10**digits:.{digits}f}" if share < 1 else "100"


def _is_headline(quote: Quote) -> bool:
    policy = quote.about.get("policy")
    return policy == "unconstrained" or (policy in POLICIES and POLICIES[policy].is_headline)


def _same(family: Quote, member: Quote) -> bool:
    return bool(family.about["secret"] == member.about["secret"])
