"""A plan's account: nominal beside effective, per policy, per secret, per attribute, per place and per family.

This is the bridge from a plan to the accountant; what is computed there is proved there (``das/accounting``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from das.accounting.bounds import compensation_is_proved
from das.accounting.condition import FACTS_IGNORED, ONE_IS_ENOUGH, Condition, Kind
from das.accounting.events import NotSupported
from das.accounting.hierarchy import HierarchicalPlan
from das.accounting.joint import Drawn
from das.accounting.moves import Secret, adjacency, determined_queries, presence_move, unconstrained_moves
from das.accounting.policies import POLICIES, attribute_secrets, geography_secrets, guarantee, guarantee_of_moves
from das.errors import ProblemsFound
from das.exact import decimal_upper, float_upper
from das.plan import presets
from das.plan.for_accountant import hierarchical_plan
from das.plan.geography import spine_of
from das.plan.plan import Plan
from das.promise.families import family_lines
from das.promise.lines import Lines, quoted_epsilon
from das.promise.randomness import Generator, generator_of
from das.schema.query import Neighbours
from geography import Spine

__all__ = [
    "Account",
    "account",
    "account_of",
    "drawn_of",
    "generator_section",
    "nominal_entry",
    "presence_sections",
    "split_below",
]


@dataclass(frozen=True)
class Account:
    """What a plan promises, before anything is read; ``sections`` are those of ``privacy.json``."""

    nominal: dict[str, Any]
    sections: dict[str, Any]


def account(plan: Plan, spine: Spine | None = None, *, known_adjacency: int | None = None) -> Account:
    """Account a plan under every policy; the geography is read for the number of geounits, and no record.

    Where the geography cannot be read, every level is taken to have several geounits in each one above it, which can
    only overstate a cost. A preset says itself which levels have several, and whether one of them is measured in parts.
    `known_adjacency` is a(t) where a release computed it from the published numbers.
    """
    about = presets.read(plan.name).get("spine", {}) if plan.source == _preset_path(plan.name) else {}
    if spine is None and not about:
        try:
            spine = spine_of(plan)
        except ProblemsFound:
            spine = None
    whole = replace(hierarchical_plan(plan, spine, several=about.get("several")), known_adjacency=known_adjacency)
    delta = plan.settings.privacy.delta
    generator = None if spine is None else generator_of(plan, spine)
    drawn = drawn_of(plan, whole, generator)
    found = account_of(whole, delta, () if drawn is None else (drawn,))
    found["randomness"] = None if generator is None else generator_section(generator, found, [plan])
    if plan.settings.privacy.neighbours is Neighbours.ADD_REMOVE:
        found |= presence_sections(whole, delta)
    if "split" in about:
        parted = Lines(split_below(whole, about["split"]), delta)
        words = f"worst case: each {about['split']} is measured in parts, and only their sum is public"
        found["variants"] = [{"assumption": words, **_policies_and_secrets(parted)}]
    return Account(nominal_entry(whole, plan.framework, plan.budget, plan.epsilon()), found)


def drawn_of(plan: Plan, whole: HierarchicalPlan, generator: Generator | None) -> Drawn | None:
    """Describe a release that conditions its noise; its words of the cipher join the errors of its sampler."""
    sampler = plan.mechanism_stage.sampler
    if sampler is None:
        return None
    words = Fraction(0) if generator is None else generator.word_variation
    return Drawn(plan=whole, sampler=replace(sampler, total_variation=sampler.total_variation + words))


def generator_section(generator: Generator, found: dict[str, Any], plans: Sequence[Plan]) -> dict[str, Any]:
    """Describe the noise's generator, at the Rényi divergence of order 2 of the costliest pair that is compared.

    That is 2 rho, or epsilon where all noise is pure.
    """
    known = [entry["rho"] for entry in found["effective"] if isinstance(entry["rho"], float)]
    pure = [entry["epsilon"] for entry in found["effective"] if isinstance(entry["epsilon"], float)]
    worst = max((2 * rho for rho in known), default=0.0)
    budgets = float(sum(8 * plan.budget for plan in plans))
    is_pure = all(plan.framework == "pure" for plan in plans)
    return generator.to_json(max(worst, max(pure, default=0.0) if is_pure else 0.0, budgets))


def nominal_entry(whole: HierarchicalPlan, framework: str, budget: Fraction, epsilon: float) -> dict[str, Any]:
    """The whole budget as one number: public facts are ignored, and the entry says so where there are any."""
    return {
        "rho": decimal_upper(budget) if framework == "zcdp" else "-",
        "epsilon": epsilon,
        "status": "proved",
        "condition": FACTS_IGNORED.to_json() if whole.invariants or whole.bounds else None,
    }


def account_of(whole: HierarchicalPlan, delta: Fraction, drawn: tuple[Drawn, ...] = ()) -> dict[str, Any]:
    """Account a plan, or several releases as one, under every policy and for every secret.

    Where all noise is of the Laplace kind the epsilons are pure: they need no delta. The noise of the releases in
    `drawn` is conditioned to conform, and the account is that of the conditioned mechanisms.
    """
    lines = Lines(whole, delta, drawn)
    leaf, a = whole.levels[-1], adjacency(whole)
    found = _policies_and_secrets(lines)
    return {
        "a": None if isinstance(a, NotSupported) else a,
        "a_status": "proved" if compensation_is_proved(whole) else f"assumed: {ONE_IS_ENOUGH}",
        "tight": _tight(lines),
        **found,
        "attributes": [
            lines.secret_line("attributes", {"attribute": s.name}, s).to_json() for s in attribute_secrets(whole)
        ],
        "geography": [
            lines.secret_line("geography", {"of": leaf, "within": s.within}, s).to_json()
            for s in geography_secrets(whole)
        ],
        "families": [line.to_json() for line in family_lines(lines, _secrets(whole))],
        "determined_queries": [list(pair) for pair in determined_queries(whole)],
        "vacuous": any(entry["status"].startswith("VACUOUS") for entry in found["effective"]),
    }


def _secrets(whole: HierarchicalPlan) -> list[Secret]:
    leaf = whole.levels[-1]
    wider = [Secret(name=f"anything within the same {level}", within=level) for level in whole.levels[-2::-1]]
    return [Secret(name=f"attributes within the same {leaf}", within=leaf), *wider]


def _policies_and_secrets(lines: Lines) -> dict[str, Any]:
    policies = [lines.policy_line(name) for name, policy in POLICIES.items() if policy.is_effective]
    secrets = [lines.secret_line("secrets", {"secret": s.name}, s) for s in _secrets(lines.whole)]
    return {"effective": [line.to_json() for line in policies], "secrets": [line.to_json() for line in secrets]}


def _tight(lines: Lines) -> dict[str, Any] | None:
    """The nominal comparison by exact distributions, on this geography: with the rho that it belongs to.

    A geography in which a level has one geounit sees fewer changes than the plan pays for, so this rho may be below the
    nominal one.
    """
    found = guarantee(lines.whole, "unconstrained", lines.delta)
    line = lines.line("tight", {}, found, tuple(unconstrained_moves(lines.whole)))
    if line.tight_epsilon is None:
        return None
    return {
        "rho": line.rho,
        "epsilon": line.tight_epsilon,
        "zcdp_epsilon": line.epsilon,
        "delta": float_upper(lines.delta),
        "method": "exact privacy-loss distributions of the integer noise, composed, upper bound",
        "status": "proved",
        "condition": FACTS_IGNORED.to_json() if lines.whole.invariants or lines.whole.bounds else None,
    }


def presence_sections(whole: HierarchicalPlan, delta: Fraction) -> dict[str, Any]:
    """Replace what compares replaced records by the one promise about a record that is there or not.

    Nothing exact may be published with it (the config refuses that). Where a bound forbids the change, one other record
    takes the place, and the number of a replacement holds (``das/accounting/bounds.md``). The secrets still speak of a
    record that changes, which is one removed and one added.
    """
    lines = Lines(whole, delta)
    move, replaced = presence_move(whole), guarantee(whole, "unconstrained", delta)
    found = guarantee_of_moves(whole, "unconstrained", (move,), delta)
    found = replace(found, assumptions=("nothing exact is public",))
    if whole.bounds:
        found = replace(
            found,
            condition=Condition(
                kind=Kind.ALONE,
                words="if the record's presence and its absence both keep every published bound",
                otherwise=quoted_epsilon(replaced),
                otherwise_if="" if compensation_is_proved(whole) else ONE_IS_ENOUGH,
            ),
        )
    line = lines.line("effective", {"policy": "unconstrained", "a": None}, found, (move,))
    return {
        "a": None,
        "a_status": "proved",
        "effective": [line.to_json()],
        "tight": None,
        "determined_queries": [],
        "vacuous": False,
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
