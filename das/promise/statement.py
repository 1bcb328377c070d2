"""The privacy statement for machines: what is promised, given what, and whether the ledger agrees."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from das.accounting.conditioned_tree import TreeSampler
from das.plan.method_accuracy import accuracy_of
from das.plan.plan import Plan
from das.plan.tree_of_counts import tree_of
from das.promise.account import Account

__all__ = ["SCHEMA_VERSION", "statement_of"]

SCHEMA_VERSION = 2


def statement_of(plan: Plan, account: Account, *, facts_digest: str, charged: Fraction, seeded: bool) -> dict[str, Any]:
    """Build ``privacy.json``.

    Parameters
    ----------
    plan : Plan
    account : Account
        Of this plan on this spine.
    facts_digest : str
        Digest of the public facts t on which the promise is conditional.
    charged : Fraction
        What the ledger recorded for this run.
    seeded : bool
        Whether the noise came from a testing key; then nothing is promised.
    """
    privacy = plan.settings.privacy
    spent = sum((m.cost for m in plan.measurements), Fraction(0))
    nominal: dict[str, Any] = {
        "epsilon": plan.epsilon(),
        "status": "proved",
        "condition": account.nominal["condition"],
    }
    if plan.framework == "zcdp":
        nominal |= {"rho": str(spent), "delta": float(privacy.delta), "conversion": "cks"}
    else:
        nominal |= {"epsilon_exact": str(spent), "delta": 0.0, "conversion": "none: pure DP"}
    return {
        "version": SCHEMA_VERSION,
        "release": plan.name,
        "plan_digest": plan.digest,
        "facts_digest": facts_digest,
        "framework": plan.framework,
        "relation": {"unit": privacy.unit, "kind": str(privacy.neighbours)},
        "nominal": nominal,
        **account.sections,
        "invariants": [{"query": i.query.name, "level": i.level, "reason": i.reason} for i in plan.invariants],
        "bounds": [
            {
                "query": b.query.name,
                "level": b.level,
                "sense": b.sense,
                "factor": b.factor,
                "source": b.source,
                "reason": b.reason,
            }
            for b in plan.bounds
        ],
        **({"conditioned": _conditioned(plan, sampler)} if (sampler := plan.mechanism_stage.sampler) else {}),
        "published": [
            {"query": p.query.name, "level": p.level, "source": p.source, "reason": p.reason} for p in plan.published
        ],
        "structural_zeros": [zero.name for zero in plan.schema.structural_zeros],
        "ledger_agrees": spent == charged,
        "seeded": seeded,
    }


def _conditioned(plan: Plan, sampler: TreeSampler) -> dict[str, Any]:
    """How the noise was conditioned, and how exactly."""
    return {
        "method": plan.settings.estimate.method,
        "given": "counts add up along the tree, are not negative, and keep the public facts",
        "tree": tree_of(plan).explain(),
        "sampler": {
            "total_variation": str(sampler.total_variation),
            "log_ratio": str(sampler.log_ratio),
            "status": "proved",
        },
        "nominal_is_of": "the noise before it was conditioned",
        "accuracy": accuracy_of(plan),
    }
