"""Several releases of the same people, accounted together: what is public adds up, and every cost is computed anew.

Two effective numbers must never be added: the joint release publishes the invariants of both, so fewer data sets remain
to hide among, and each measurement is accounted again on the moves that keep all of them (``das/accounting/joint.md``).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from das.accounting.conversion import epsilon_upper
from das.accounting.events import Change, zcdp_rho
from das.accounting.hierarchy import HierarchicalPlan, compose
from das.errors import Problem, UsageError
from das.exact import decimal_upper
from das.plan.for_accountant import hierarchical_plan
from das.plan.plan import Plan
from das.promise.account import (
    Account,
    account,
    account_of,
    drawn_of,
    generator_section,
    nominal_entry,
    presence_sections,
)
from das.promise.randomness import Generator, generator_of
from das.promise.sources import Release, Source
from das.schema.query import Neighbours

__all__ = ["account_releases", "joint_account"]

ACCOUNTED = "accounted together"


def joint_account(sources: Sequence[Source]) -> Account:
    """Account several releases together; one alone is its own account.

    Raises
    ------
    UsageError
        They do not speak of the same people in the same words.
    """
    if len(sources) == 1:
        return account(sources[0].plan, sources[0].spine)
    for other in sources[1:]:
        if reason := _difference(sources[0], other):
            names = f"{sources[0].plan.name} and {other.plan.name}"
            raise UsageError(Problem(names, reason, "account them apart"))
    plans = [source.plan for source in sources]
    delta = min(plan.settings.privacy.delta for plan in plans)
    wholes = [hierarchical_plan(source.plan, source.spine) for source in sources]
    generators = [generator_of(each.plan, each.spine) if each.spine is not None else None for each in sources]
    described = zip(plans, wholes, generators, strict=True)
    drawn = tuple(each for plan, own, used in described if (each := drawn_of(plan, own, used)) is not None)
    whole = compose(*wholes)
    found = account_of(whole, delta, drawn)
    if plans[0].settings.privacy.neighbours is Neighbours.ADD_REMOVE:  # that of all: they have one relation
        found |= presence_sections(whole, delta)
    if all(used is not None for used in generators):
        total = Generator.of_all([used for used in generators if used is not None])
        found["randomness"] = generator_section(total, found, plans)
    found["releases"] = [_listed(source, ACCOUNTED) for source in sources]
    return Account(_nominal(plans, whole, delta), found)


def account_releases(releases: Sequence[Release]) -> tuple[list[Source], Account]:
    """Account the releases of a folder: those that can be together, with the reason for each that cannot.

    Parameters
    ----------
    releases : sequence of Release
        What the folder holds; some may be unfinished, and at least one is not.

    Returns
    -------
    list of Source, Account
        The releases that were accounted, and their account; ``releases`` of it lists all of them.
    """
    finished = [each.source for each in releases if each.source is not None]
    names = list(dict.fromkeys(source.plan.settings.input.dataset for source in finished))
    if len(names) > 1:
        reason = f"holds releases of different data sets ({', '.join(names)})"
        raise UsageError(Problem(str(releases[0].folder.parent), reason, "name the releases of one of them"))
    chosen = max(([s for s in finished if _difference(one, s) is None] for one in finished), key=len)
    accounted = joint_account(chosen)
    rows = []
    for each in releases:
        if each.source is None:
            rows.append({"release": each.folder.name, "folder": each.folder.name, "status": _not(each.reason)})
        else:
            apart = _difference(chosen[0], each.source)
            rows.append(_listed(each.source, _not(f"it and {chosen[0].plan.name} {apart}") if apart else ACCOUNTED))
    accounted.sections["releases"] = rows
    return chosen, accounted


def _not(reason: str) -> str:
    return f"not supported: {reason}"


def _listed(source: Source, status: str) -> dict[str, Any]:
    plan = source.plan
    return {
        "release": plan.name,
        "folder": source.folder.name if source.folder else None,
        "framework": plan.framework,
        "budget": str(plan.budget),
        "epsilon": plan.epsilon(),
        "method": plan.settings.estimate.method,
        "seeded": source.seeded,
        "status": status,
    }


def _difference(one: Source, other: Source) -> str | None:
    """Say why two releases do not speak of the same people in the same words; None if they do."""
    mine, theirs = one.plan.settings, other.plan.settings
    differences = {
        "relations or units of privacy": (mine.privacy.neighbours, mine.privacy.unit)
        != (theirs.privacy.neighbours, theirs.privacy.unit),
        "attributes or labels": [(a.name, a.labels) for a in one.plan.schema.attributes]
        != [(a.name, a.labels) for a in other.plan.schema.attributes],
        "geographies": (one.spine and one.spine.digest()) != (other.spine and other.spine.digest()),
        "data sets": mine.input.dataset != theirs.input.dataset,
        "definitions of a query of one name": _clash(one, other),
    }
    return next((f"have different {what}" for what, differ in differences.items() if differ), None)


def _clash(one: Source, other: Source) -> bool:
    mine, theirs = (hierarchical_plan(each.plan, each.spine).queries for each in (one, other))
    return any(theirs.get(name, maps) != maps for name, maps in mine.items())


def _nominal(plans: Sequence[Plan], whole: HierarchicalPlan, delta: Fraction) -> dict[str, Any]:
    """Both parts of the whole budget, rho of zCDP and epsilon of pure DP, and the epsilon of both together.

    A pure release has a rho, too: the sum over its measurements, each by itself. The smaller of the two ways to put
    them together is quoted (``das/accounting/joint.md``).
    """
    rho = sum((plan.budget for plan in plans if plan.framework == "zcdp"), Fraction(0))
    pure = sum((plan.budget for plan in plans if plan.framework == "pure"), Fraction(0))
    if not pure or not rho:
        framework = "zcdp" if rho else "pure"
        return nominal_entry(whole, framework, rho + pure, epsilon_upper(rho, delta) if rho else decimal_upper(pure))
    change: Change = (1,) if plans[0].settings.privacy.neighbours is Neighbours.ADD_REMOVE else (1, -1)
    events = [m.mechanism.event(m.level, m.query.name) for p in plans if p.framework == "pure" for m in p.measurements]
    as_rho = sum((loss for e in events if isinstance(loss := zcdp_rho(e, change), Fraction)), Fraction(0))
    together, apart = epsilon_upper(rho + as_rho, delta), decimal_upper(pure + Fraction(epsilon_upper(rho, delta)))
    entry = nominal_entry(whole, "zcdp", rho, min(together, apart))
    return entry | {"pure_epsilon": decimal_upper(pure)}
