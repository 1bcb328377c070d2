"""The epsilons a statement quotes, each with what it compares, and what forbids calling the run a release."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from das.accounting.condition import Kind
from das.accounting.policies import POLICIES
from das.accounting.quote import Quote, quotes_of
from das.report.wording import factor_upper, named, number_of, quoted_upper

__all__ = ["Cost", "Stop", "assumptions_of", "breakdown_of", "costs_of", "headline_of", "stops_of"]

NOMINAL = {
    "nominal": ("Nominal", "One record changes; the public facts are ignored. It is the whole budget as one number."),
    "tight": (
        "Nominal, tight",
        "One record changes on this geography; the public facts are ignored. By exact distributions of the noise.",
    ),
}
NOMINAL_BY_RHO = "Nominal, on this geography"
PRESENCE = ("Effective, presence", "One record is there or not, and all public facts stay true.")
BREAKDOWN = ("secrets", "attributes", "geography")
"""Sections about what a reader may want to learn of one record."""


@dataclass(frozen=True, slots=True)
class Cost:
    """One quoted epsilon as the page shows it: text rounded up, and the number itself (None if it is not known)."""

    kind: str
    name: str
    quote: Quote
    pure: bool = False
    meaning: str = ""

    @property
    def number(self) -> Fraction | float | None:
        """Epsilon; of pure DP the one that needs no delta."""
        exact = self.quote.rest.get("epsilon_exact", self.quote.pure_epsilon) if self.pure else None
        return number_of(self.quote.epsilon if exact is None else exact)

    @property
    def adjacency(self) -> int | None:
        """How many records may change, where the policy rests on such a number."""
        return self.quote.about.get("a")

    @property
    def epsilon(self) -> str:
        """Epsilon as it is quoted; a vacuous promise has none, and is never called 0."""
        return "vacuous" if self.quote.status.upper().startswith("VACUOUS") else quoted_upper(self.number)

    @property
    def rho(self) -> str:
        """Rho as it is quoted, where it is given."""
        return "–" if self.quote.rho is None else quoted_upper(self.quote.rho)

    @property
    def tight(self) -> str:
        """Epsilon from exact distributions, where it is given."""
        return "–" if self.quote.tight_epsilon is None else quoted_upper(self.quote.tight_epsilon)

    @property
    def nominal_epsilon(self) -> str:
        """Epsilon of the same secret if nothing were public, where it is given."""
        return "–" if self.quote.nominal_epsilon is None else quoted_upper(self.quote.nominal_epsilon)

    @property
    def otherwise(self) -> str:
        """Epsilon that holds where the condition is not met; a dash where there is no condition."""
        condition = self.quote.condition
        if condition is None or condition.kind is Kind.FACTS_IGNORED:
            return "–"
        return "nothing" if condition.otherwise is None else quoted_upper(condition.otherwise)

    @property
    def condition(self) -> str:
        """The condition in words, with the number that holds otherwise; empty where there is none."""
        return self.quote.condition.text() if self.quote.condition else ""

    @property
    def condition_words(self) -> str:
        """The condition alone, without the number that holds otherwise."""
        return self.quote.condition.words if self.quote.condition else ""

    @property
    def name_by_rho(self) -> str:
        """Its name where epsilons are converted from its rho: there nothing is computed from exact distributions."""
        return NOMINAL_BY_RHO if self.kind == "tight" else self.name

    @property
    def exact_rho(self) -> Fraction | None:
        """Rho for a curve, where it and epsilon are finite numbers."""
        rho = number_of(self.quote.rho)
        return rho if isinstance(rho, Fraction) and isinstance(self.number, Fraction) else None

    @property
    def factor(self) -> str:
        """Epsilon as a factor in words."""
        return "" if self.number is None else factor_upper(self.number)

    @property
    def length(self) -> float | None:
        """Epsilon as the length of a bar."""
        return None if self.number is None else float(self.number)


@dataclass(frozen=True, slots=True)
class Stop:
    """A reason why the page must not be signed."""

    title: str
    text: str


def costs_of(statement: Mapping[str, Any]) -> tuple[Cost, ...]:
    """List the nominal cost first, then the same by exact composition, then the effective ones by policy.

    Examples
    --------
    >>> semi = {"policy": "semi", "a": 2, "epsilon": 39.785}
    >>> statement = {"framework": "zcdp", "nominal": {"epsilon": 17.143551}, "effective": [semi]}
    >>> statement["relation"] = {"unit": "person", "kind": "replace"}
    >>> [(cost.name, cost.epsilon) for cost in costs_of(statement)]
    [('Nominal', '17.144'), ('Effective, Semi-DP', '39.785')]
    """
    pure = statement["framework"] == "pure"
    costs = []
    for quote in quotes_of({key: statement.get(key) for key in ("nominal", "tight", "effective")}):
        if quote.group == "effective":
            policy, a = POLICIES[quote.about["policy"]], quote.about.get("a")
            records = "One record changes" if a == 1 else f"Up to {a} records change" if a else "Some records change"
            title, meaning = policy.title, policy.meaning.format(records=records)
            if statement["relation"]["kind"] != "replace":
                title, meaning = PRESENCE
            costs.append(Cost(quote.about["policy"], title, quote, pure, meaning))
        else:
            name, meaning = NOMINAL[quote.group]
            costs.append(Cost(quote.group, name, quote, pure, meaning))
    return tuple(costs)


def headline_of(costs: tuple[Cost, ...], *, conditioned: bool = False) -> Cost:
    """Choose what the page promises: the Semi-DP number, which honours the public facts, or else the nominal one.

    The nominal number of conditioned noise is that of the noise before it was conditioned, and promises nothing.
    """
    headlines = [cost for cost in costs if cost.name == PRESENCE[0] or _is_headline(cost.kind)]
    instead = headlines[0] if conditioned and headlines else costs[0]
    return next((cost for cost in headlines if cost.number is not None), instead)


def _is_headline(policy: str) -> bool:
    return policy in POLICIES and POLICIES[policy].is_headline


def stops_of(statement: Mapping[str, Any], headline: Cost) -> tuple[Stop, ...]:
    """List why this run is not a release, or promises nothing.

    Examples
    --------
    >>> nominal = Cost("nominal", "", Quote.from_json("nominal", {"epsilon": 1.0}))
    >>> [stop.title for stop in stops_of({"seeded": True, "ledger_agrees": True}, nominal)]
    ['Test run: the noise key is known. This is not a release.']
    """
    stops = []
    if statement.get("planned", False):
        text = "It says what a release by this plan would promise. Nothing was measured, and nothing is published."
        stops.append(Stop("A plan, not a release.", text))
    if statement.get("accounted", False) and not statement.get("joint", False):
        text = "The release has a statement of its own, which is the one to sign. Here its plan is accounted once more."
        stops.append(Stop("An account, and not the statement of the release.", text))
    if statement.get("joint", False):
        text = "Each of them has a statement of its own, which is the one to sign. Here is what they cost together."
        stops.append(Stop("Several releases together, and not a release by itself.", text))
    if statement["seeded"]:
        text = "Whoever knows the key can subtract the noise. Nothing is promised to anybody."
        if statement.get("unprotected"):
            text = f"Unprotected: {statement['unprotected']}. Keep every file of it as confidential as the data."
        stops.append(Stop("Test run: the noise key is known. This is not a release.", text))
    if not statement["ledger_agrees"]:
        text = "What was charged to this data and what the plan spends differ. Nothing may be published from this run."
        stops.append(Stop("The ledger and the plan disagree. This is not a release.", text))
    if statement.get("vacuous", False):
        text = "Only one set of counts agrees with all public facts. No noise hides what these facts already tell."
        stops.append(Stop("Vacuous: the public facts determine the data.", text))
    if headline.number is None:
        text = (
            "The accountant does not know every step of this run, and what it does not know it does not count as zero."
        )
        stops.append(Stop("The privacy cost is not known.", text))
    elif headline.number == math.inf:
        stops.append(Stop("The privacy cost has no bound.", "Some result can reveal a secret with certainty."))
    return tuple(stops)


def breakdown_of(statement: Mapping[str, Any]) -> tuple[tuple[str, tuple[Cost, ...]], ...]:
    """Group the costs by what a reader wants to learn; a group whose key is absent is left out."""
    pure = statement["framework"] == "pure"
    return tuple(
        (key, tuple(Cost(key, named(quote.name), quote, pure) for quote in quotes_of({key: statement[key]})))
        for key in BREAKDOWN
        if statement.get(key)
    )


def assumptions_of(statement: Mapping[str, Any]) -> tuple[str, ...]:
    """List what the effective numbers rest on, each once."""
    quotes = quotes_of({key: statement.get(key) for key in ("effective", *BREAKDOWN)})
    return tuple(dict.fromkeys(text for quote in quotes for text in quote.assumptions))
