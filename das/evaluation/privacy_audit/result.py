"""What an audit found, as plain values: per policy a lower bound beside the claim, and the verdict of each check."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from das.errors import BudgetError, Problem
from das.evaluation.privacy_audit.checks import Check, Verdict
from das.evaluation.privacy_audit.claims import Claim
from das.evaluation.privacy_audit.epsilon_bound import EpsilonBound

__all__ = ["Audit", "PolicyFinding", "finding_of"]

SLACK = 1e-9
"""Relative distance by which a lower bound must exceed a claim: more than the rounding of either."""
REMEDY = "do not publish; find the fault"
NOTICE = (
    "AUDIT on generated data under testing keys: nothing here is a release, no record was read, no budget was charged"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFinding:
    """The claim of a policy, and what was found for the costliest pair of data sets that it compares.

    Parameters
    ----------
    claim : Claim
        The upper bound, for the world that was audited.
    plan_epsilon : float, optional
        The same claim for the whole plan.
    exact : float, optional
        Epsilon at delta of the stated law for this pair, rounded down.
    empirical : EpsilonBound, optional
        The lower bound from runs.
    pair : str
        Which data sets were compared, and how they were found; or why there are none.
    """

    claim: Claim
    plan_epsilon: float | None
    exact: float | None
    empirical: EpsilonBound | None
    pair: str
    search: str
    verdict: Verdict

    @property
    def lower(self) -> float | None:
        """The larger of both lower bounds."""
        found = [self.exact, self.empirical.epsilon if self.empirical else None]
        return max((each for each in found if each is not None), default=None)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        claim, seen = self.claim, self.empirical
        return {
            "policy": claim.policy,
            "meaning": claim.meaning,
            "delta": str(claim.delta),
            "claimed_epsilon": claim.epsilon,
            "quoted_epsilon": claim.quoted,
            "plan_epsilon": self.plan_epsilon,
            "status": claim.status,
            "condition": claim.condition or None,
            "exact_lower": _finite(self.exact),
            "empirical_lower": None if seen is None else seen.epsilon,
            "event": None if seen is None else seen.event,
            "hits": None if seen is None else list(seen.hits),
            "judged_runs": None if seen is None else list(seen.runs),
            "pair": self.pair,
            "search": self.search,
            "verdict": self.verdict,
        }


def finding_of(
    claim: Claim,
    *,
    plan_epsilon: float | None,
    exact: float | None,
    empirical: EpsilonBound | None,
    pair: str,
    search: str,
) -> PolicyFinding:
    """Compare the lower bounds with the claim."""
    found = [exact, empirical.epsilon if empirical else None]
    bounds = [each for each in found if each is not None]
    verdict: Verdict = "consistent"
    if claim.epsilon is None or not bounds:
        verdict = "not checked"
    elif max(bounds) > claim.epsilon * (1 + SLACK) + SLACK:
        verdict = "VIOLATED"
    return PolicyFinding(
        claim=claim,
        plan_epsilon=plan_epsilon,
        exact=exact,
        empirical=empirical,
        pair=pair,
        search=search,
        verdict=verdict,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """A whole audit."""

    subject: str
    confidence: float
    runs: int
    seed: str
    policies: tuple[PolicyFinding, ...]
    checks: tuple[Check, ...]
    world: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """``VIOLATED`` if anything is; ``not checked`` if no policy could be."""
        found = [*(each.verdict for each in self.policies), *(each.verdict for each in self.checks)]
        if "VIOLATED" in found:
            return "VIOLATED"
        return "consistent" if any(each.verdict == "consistent" for each in self.policies) else "not checked"

    def to_json(self) -> dict[str, Any]:
        """Plain data: ``das audit --json``."""
        return {
            "audit": NOTICE,
            "subject": self.subject,
            "confidence": self.confidence,
            "runs": self.runs,
            "seed": self.seed,
            "world": dict(self.world),
            "verdict": self.verdict,
            "policies": [each.to_json() for each in self.policies],
            "checks": [each.to_json() for each in self.checks],
        }

    def refuse_violation(self) -> None:
        """Raise if the promise is not kept: exit code 5, what a release may not spend."""
        if self.verdict != "VIOLATED":
            return
        problems = [
            Problem(f"policy {each.claim.policy}", "a lower bound is above its claim", REMEDY)
            for each in self.policies
            if each.verdict == "VIOLATED"
        ]
        problems += [
            Problem(each.name, f"refuted: {each.detail}", REMEDY) for each in self.checks if each.verdict == "VIOLATED"
        ]
        raise BudgetError(problems)


def _finite(number: float | None) -> float | str | None:
    return "infinite" if number is not None and math.isinf(number) else number
