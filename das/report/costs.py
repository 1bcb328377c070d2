"""The epsilons a statement quotes, each with what it compares, and what forbids calling the run a release."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from das.accounting.policies import POLICIES
from das.report.wording import factor_upper, named, number_of, quoted_upper

__all__ = ["Cost", "Stop", "assumptions_of", "breakdown_of", "costs_of", "headline_of", "stops_of"]

# What a reader may want to learn: key of the statement, and the wording of one entry.
BREAKDOWN = {
    "secrets": "{secret}",
    "attributes": "{attribute}",
    "geography": "which {of} of the {within}",
}


@dataclass(frozen=True, slots=True)
class Cost:
    """One quoted epsilon, as text rounded up and as the number itself (None if the accountant does not know it)."""

    kind: str
    name: str
    entry: Mapping[str, Any]
    pure: bool = False
    meaning: str = ""

    @property
    def number(self) -> Fraction | float | None:
        """Epsilon; of pure DP the one that needs no delta."""
        key = next((k for k in ("epsilon_exact", "pure_epsilon") if self.pure and k in self.entry), "epsilon")
        return number_of(self.entry.get(key))

    @property
    def adjacency(self) -> int | None:
        """How many records may change, where the policy rests on such a number."""
        return self.entry.get("a")

    @property
    def epsilon(self) -> str:
        """Epsilon as it is quoted; a vacuous promise has none, and is never called 0."""
        vacuous = str(self.entry.get("status", "")).upper().startswith("VACUOUS")
        return "vacuous" if vacuous else quoted_upper(self.number)

    @property
    def rho(self) -> str:
        """Rho as it is quoted, where it is given."""
        return quoted_upper(self.entry["rho"]) if "rho" in self.entry else "–"

    @property
    def nominal_epsilon(self) -> str:
        """Epsilon of the same secret if nothing were public, where it is given."""
        return quoted_upper(self.entry["nominal_epsilon"]) if "nominal_epsilon" in self.entry else "–"

    @property
    def exact_rho(self) -> Fraction | None:
        """Rho for a curve, where it and epsilon are finite numbers."""
        rho = number_of(self.entry.get("rho"))
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
    >>> [(cost.name, cost.epsilon) for cost in costs_of(statement)]
    [('Nominal', '17.144'), ('Effective, Semi-DP', '39.785')]
    """
    pure = statement["framework"] == "pure"
    costs = [Cost("nominal", "Nominal", statement["nominal"], pure, POLICIES["unconstrained"].meaning)]
    if statement.get("tight"):
        costs.append(
            Cost(
                "tight",
                "Nominal, tight",
                statement["tight"],
                pure,
                "One record changes on this geography; by exact distributions.",
            )
        )
    for entry in statement.get("effective") or ():
        policy = POLICIES[entry["policy"]]
        a = entry.get("a")
        records = "One record changes" if a == 1 else f"Up to {a} records change" if a else "Some records change"
        costs.append(Cost(entry["policy"], policy.title, entry, pure, policy.meaning.format(records=records)))
    return tuple(costs)


def headline_of(costs: tuple[Cost, ...]) -> Cost:
    """Choose what the page promises: the Semi-DP number, which honours the public facts, or else the nominal one."""
    headlines = [cost for cost in costs if cost.kind in POLICIES and POLICIES[cost.kind].is_headline]
    return next((cost for cost in headlines if cost.number is not None), costs[0])


def stops_of(statement: Mapping[str, Any], headline: Cost) -> tuple[Stop, ...]:
    """List why this run is not a release, or promises nothing.

    Examples
    --------
    >>> nominal = Cost("nominal", "", {"epsilon": 1.0})
    >>> [stop.title for stop in stops_of({"seeded": True, "ledger_agrees": True}, nominal)]
    ['Test run: the noise key is known. This is not a release.']
    """
    stops = []
    if statement.get("planned", False):
        text = "It says what a release by this plan would promise. Nothing was measured, and nothing is published."
        stops.append(Stop("A plan, not a release.", text))
    if statement["seeded"]:
        text = "Whoever knows the key can subtract the noise. Nothing is promised to anybody."
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
        (
            key,
            tuple(
                Cost(key, named(wording.format_map({"of": "place", **entry})), entry, pure) for entry in statement[key]
            ),
        )
        for key, wording in BREAKDOWN.items()
        if statement.get(key)
    )


def assumptions_of(statement: Mapping[str, Any]) -> tuple[str, ...]:
    """List what the effective numbers rest on, each once."""
    entries = (entry for key in ("effective", *BREAKDOWN) for entry in statement.get(key) or ())
    return tuple(dict.fromkeys(text for entry in entries for text in entry.get("assumptions", ())))
