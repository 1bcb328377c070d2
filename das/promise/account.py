"""A plan's account: nominal beside effective, per policy, per secret, per attribute and per place.

This is the bridge from a plan to the accountant; what is computed there is proved there (``das/accounting``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from das.accounting.conditioned_tree import TreeSampler, conditioned_on_tree
from das.accounting.conversion import epsilon_upper
from das.accounting.events import NotSupported
from das.accounting.hierarchy import HierarchicalPlan
from das.accounting.moves import Secret, adjacency, determined_queries
from das.accounting.policies import (
    POLICIES,
    UNPROVED,
    Guarantee,
    Policy,
    attribute_secrets,
    geography_secrets,
    guarantee,
    nominal_secret_guarantee,
    secret_guarantee,
)
from das.accounting.tight import tight_epsilon_upper
from das.errors import ProblemsFound
from das.exact import float_upper, round_up
from das.plan import presets
from das.plan.for_accountant import hierarchical_plan
from das.plan.geography import spine_of
from das.plan.plan import Plan
from das.schema.query import Neighbours
from geography import Spine

__all__ = ["Account", "account", "account_of", "split_below"]


@dataclass(frozen=True)
class Account:
    """What a plan promises, before anything is read; ``sections`` are those of ``privacy.json``."""

    nominal: dict[str, Any]
    sections: dict[str, Any]


def account(plan: Plan, spine: Spine | None = None) -> Account:
    """Account a plan under every policy; the geography is read for the number of geounits, and no record.

    Where the geography cannot be read, every level is taken to have several geounits in each one above it, which can
    only overstate a cost. A preset says itself which levels have several, and whether one of them is measured in parts.
    """
    about = presets.read(plan.name).get("spine", {}) if plan.source == _preset_path(plan.name) else {}
    if spine is None and not about:
        try:
            spine = spine_of(plan)
        except ProblemsFound:
            spine = None
    whole = hierarchical_plan(plan, spine, several=about.get("several"))
    found = account_of(whole, plan.settings.privacy.delta, plan.mechanism_stage.sampler)
    if plan.settings.privacy.neighbours is Neighbours.ADD_REMOVE:
        found |= _presence(plan)
    if "split" in about:
        parted = account_of(split_below(whole, about["split"]), plan.settings.privacy.delta)
        found["variants"] = [
            {
                "assumption": f"worst case: each {about['split']} is measured in parts, and only their sum is public",
                "secrets": parted["secrets"],
                "effective": parted["effective"],
            }
        ]
    rho = float_upper(plan.budget) if plan.framework == "zcdp" else "-"
    return Account({"rho": rho, "epsilon": plan.epsilon(), "status": "proved"}, found)


def _presence(plan: Plan) -> dict[str, Any]:
    """Replace what compares replaced records by the one promise about a record that is there or not.

    Nothing exact may be published with it (the config refuses that), so there are no facts to honour: the nominal cost
    is the effective one. The secrets still speak of a record that changes, which is one removed and one added.
    """
    nominal = {
        "policy": "unconstrained",
        "a": None,
        "rho": float_upper(plan.budget) if plan.framework == "zcdp" else "not supported",
        "pure_epsilon": float_upper(plan.budget) if plan.framework == "pure" else "infinite",
        "epsilon": plan.epsilon(),
        "tight_epsilon": None,
        "status": "proved",
        "assumptions": ["nothing exact is public"],
    }
    return {"a": None, "effective": [nominal], "tight": None, "determined_queries": [], "vacuous": False}


def account_of(whole: HierarchicalPlan, delta: Fraction, sampler: TreeSampler | None = None) -> dict[str, Any]:
    """Account a plan under every policy and for every secret.

    Where all noise is of the Laplace kind the epsilons are pure: they need no delta. With a sampler, the noise is
    conditioned to conform, and the account is that of the conditioned mechanism.
    """

    def given_sampler(found: Guarantee) -> Guarantee:
        return found if sampler is None else conditioned_on_tree(found, whole, sampler)

    policies = {name: policy for name, policy in POLICIES.items() if policy.is_effective}
    effective = {name: given_sampler(guarantee(whole, name, delta)) for name in policies}
    leaf, a = whole.levels[-1], adjacency(whole)

    def secret(wanted: Secret) -> dict[str, Any]:
        companion = None if sampler else effective["nearest"]
        return _secret(
            whole, wanted, given_sampler(secret_guarantee(whole, wanted, delta)), effective["semi"], companion
        )

    secrets = [Secret(name=f"attributes within the same {leaf}", within=leaf)]
    secrets += [Secret(name=f"anything within the same {level}", within=level) for level in whole.levels[-2::-1]]
    pure = isinstance(guarantee(whole, "unconstrained", delta).pure, Fraction)
    tight = {
        "epsilon": _tight(whole, "unconstrained", delta),
        "delta": float_upper(delta),
        "method": "exact privacy-loss distributions of the integer noise, composed, upper bound",
        "status": "proved",
    }
    return {
        "a": None if isinstance(a, NotSupported) else a,
        "tight": None if pure or sampler else tight,
        "effective": [
            {
                "policy": found.policy,
                "a": found.adjacency,
                **_plain(found),
                **(
                    _given_compensation(whole, found)
                    if policies[policy].has_compensation
                    else _where_bounds_bind(whole, found, effective["semi"])
                ),
                "tight_epsilon": None if pure or sampler or found.status != "proved" else _tight(whole, policy, delta),
            }
            for policy, found in effective.items()
        ],
        "secrets": [{"secret": s.name, **secret(s)} for s in secrets],
        "attributes": [{"attribute": s.name, **secret(s)} for s in attribute_secrets(whole)],
        "geography": [{"of": leaf, "within": s.within, **secret(s)} for s in geography_secrets(whole)],
        "determined_queries": [list(pair) for pair in determined_queries(whole)],
        "vacuous": any(found.status.startswith("VACUOUS") for found in effective.values()),
    }


def split_below(whole: HierarchicalPlan, level: str) -> HierarchicalPlan:
    """Split each geounit of a level into parts that are measured, while the public facts speak of their sums.

    The production spine of 2020 measured each state in two parts, American Indian and Alaska Native areas and the rest.
    """
    at, part = whole.depth(level), f"{level}_part"
    return replace(
        whole,
        levels=(*whole.levels[: at + 1], part, *whole.levels[at + 1 :]),
        units=(*whole.units[: at + 1], *(2 * n for n in whole.units[at:])),
        events=tuple(replace(event, level=part) if event.level == level else event for event in whole.events),
    )


def _preset_path(name: str) -> Any:
    return presets.path(name) if name in presets.names() else None


def _secret(
    whole: HierarchicalPlan, secret: Secret, found: Guarantee, semi: Guarantee, companion: Guarantee | None
) -> dict[str, Any]:
    touched = any(_may_touch(whole, secret, query) for _, query in whole.bounds)
    out = _plain(found) | {"nominal_epsilon": _epsilon(nominal_secret_guarantee(whole, secret, found.delta))}
    return out | (_where_bounds_bind(whole, found, semi, companion) if touched else {})


def _may_touch(whole: HierarchicalPlan, secret: Secret, query: str) -> bool:
    """Whether another value of the secret may change an answer of a query in some geounit."""
    if secret.within != whole.levels[-1]:
        return True  # another leaf is another geounit of the bound
    kept = {name for (name, _), map_ in zip(whole.attributes, whole.queries[query], strict=True) if map_ is not None}
    return bool(kept if secret.attributes is None else kept & secret.attributes)


def _given_compensation(whole: HierarchicalPlan, found: Guarantee) -> dict[str, Any]:
    """Say in the status what a(t) rests on where there are public bounds (``das/accounting/moves.md``)."""
    return (
        {"status": "proved, if each record has a compensating record"}
        if whole.bounds and found.status == "proved"
        else {}
    )


def _where_bounds_bind(
    whole: HierarchicalPlan, found: Guarantee, semi: Guarantee, companion: Guarantee | None = None
) -> dict[str, Any]:
    """Say what a promise costs where a public bound is tight: a second record must then change too.

    A change that would break a bound (the last person leaves a facility that is publicly in use) is compared with data
    sets in which a second record makes up for it. Two records together cost at most (sqrt(rho) + sqrt(rho'))^2, or
    epsilon + epsilon', where the second is any change of one record, the companion; and never more than the ball of two
    records. Conditioned noise has the ball's bound alone: what its normaliser adds does not add up over two changes.
    """
    if not whole.bounds or found.status != "proved":
        return {}
    worst = _epsilon(semi)
    if companion is not None and isinstance(found.rho, Fraction) and isinstance(companion.rho, Fraction):
        pair = (math.sqrt(found.rho) + math.sqrt(companion.rho)) ** 2 * (1 + 1e-12)
        mixed: float = epsilon_upper(Fraction(pair), found.delta)
        if isinstance(found.pure, Fraction) and isinstance(companion.pure, Fraction):
            mixed = float_upper(found.pure + companion.pure)
        worst = min(mixed, worst) if isinstance(worst, float) else mixed
    if worst is None:
        return {
            "status": "proved where no published bound is tight; otherwise nothing",
            "epsilon_where_bounds_bind": worst,
        }
    words = round_up(worst, 3) if isinstance(worst, float) else str(worst)
    words += ", if one compensating record suffices"
    words += "; that is numerically verified, not proved" if semi.status == UNPROVED else ""
    return {
        "status": f"proved where no published bound is tight; otherwise {words}",
        "epsilon_where_bounds_bind": worst,
    }


def _plain(found: Guarantee) -> dict[str, Any]:
    """Give a guarantee as plain data; what is not known is said in words, never as zero."""
    return {
        "rho": _number(found.rho),
        "pure_epsilon": _number(found.pure),
        "epsilon": _epsilon(found),
        "status": found.status,
        "assumptions": list(found.assumptions),
    }


def _epsilon(found: Guarantee) -> float | str | None:
    """Epsilon as the plan's framework means it: without delta where there is a pure one."""
    if found.status == "proved" and isinstance(found.pure, Fraction):
        return float_upper(found.pure)
    return "infinite" if found.epsilon == math.inf else found.epsilon


def _tight(whole: HierarchicalPlan, policy: Policy, delta: Fraction) -> float | str:
    """Epsilon at delta from the exact distributions of the noise: a guarantee, and below that of zCDP."""
    found = tight_epsilon_upper(whole, policy, delta)
    if isinstance(found, NotSupported):
        return "not supported"
    return "infinite" if found == math.inf else found


def _number(loss: Fraction | float | NotSupported) -> float | str:
    if isinstance(loss, NotSupported):
        return "not supported"
    return "infinite" if isinstance(loss, float) and loss == math.inf else float_upper(Fraction(loss))
