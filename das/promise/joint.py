"""Several releases of the same people, accounted together: what is public adds up, and every cost is computed anew.

Two effective numbers must never be added: the joint release publishes the invariants of both, so fewer data sets remain
to hide among, and each measurement is accounted again on the moves that keep all of them (``das/accounting``).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from das.accounting.conversion import epsilon_upper
from das.accounting.hierarchy import compose
from das.errors import Problem, ProblemsFound, UsageError
from das.exact import digest_of, float_upper
from das.plan.for_accountant import hierarchical_plan
from das.plan.geography import spine_of
from das.plan.load import load
from das.plan.plan import Plan
from das.promise.account import Account, account, account_of, nominal_entry, presence_sections
from das.promise.statement import statement_of
from das.report.privacy import render_privacy
from das.schema.query import Neighbours
from das.storage.files import write_atomically
from das.storage.layout import Layout
from geography import Spine

__all__ = ["Source", "joint_account", "read_source", "write_account_page"]


@dataclass(frozen=True)
class Source:
    """A plan to account, and its spine where one is at hand."""

    plan: Plan
    spine: Spine | None


def read_source(name: str) -> Source:
    """Read a release folder, a config file, or the name of a preset."""
    layout = Layout(Path(name))
    if layout.release.config.exists():
        return Source(load(layout.release.config), Spine.load(layout.release.facts / "spine.parquet"))
    if Path(name).is_dir():
        raise UsageError(Problem(name, "holds no finished release", "name a release folder, a config or a preset"))
    plan = load(name)
    try:
        return Source(plan, spine_of(plan))
    except ProblemsFound:
        return Source(plan, None)


def joint_account(sources: list[Source]) -> Account:
    """Account several releases together; one alone is its own account."""
    if len(sources) == 1:
        return account(sources[0].plan, sources[0].spine)
    plans = [source.plan for source in sources]
    frameworks = {plan.framework for plan in plans}
    if len(frameworks) > 1:
        raise UsageError(Problem("releases", "they use different frameworks", "account zCDP and pure releases apart"))
    if any(plan.mechanism_stage.sampler for plan in plans):
        # What is proved of conditioned noise is proved for moves of its own tree; other invariants allow other moves.
        raise UsageError(
            Problem("releases", "one of them conditions its noise", "account a congenial release by itself")
        )
    _require_same_people(sources)
    delta = min(plan.settings.privacy.delta for plan in plans)
    whole = compose(*(hierarchical_plan(source.plan, source.spine) for source in sources))
    spent = sum((plan.budget for plan in plans), Fraction(0))
    (framework,) = frameworks
    epsilon = epsilon_upper(spent, delta) if framework == "zcdp" else float_upper(spent)
    found = account_of(whole, delta)
    if plans[0].settings.privacy.neighbours is Neighbours.ADD_REMOVE:  # that of all: they have one relation
        found |= presence_sections(whole, delta)
    return Account(nominal_entry(whole, framework, spent, epsilon), found)


def _require_same_people(sources: list[Source]) -> None:
    """Refuse to account together what does not speak of the same people in the same words."""
    first = sources[0]
    for other in sources[1:]:
        one, two = first.plan.settings, other.plan.settings
        differences = {
            "relations or units of privacy": (one.privacy.neighbours, one.privacy.unit)
            != (two.privacy.neighbours, two.privacy.unit),
            "attributes or labels": [(a.name, a.labels) for a in first.plan.schema.attributes]
            != [(a.name, a.labels) for a in other.plan.schema.attributes],
            "geographies": (first.spine and first.spine.digest()) != (other.spine and other.spine.digest()),
            "data sets": one.input.dataset != two.input.dataset,
        }
        for what, differ in differences.items():
            if differ:
                names = f"{first.plan.name} and {other.plan.name}"
                raise UsageError(Problem(names, f"have different {what}", "account them apart"))


def write_account_page(sources: list[Source], accounted: Account, path: Path) -> None:
    """Write the account as the page that a release would carry, marked as planned: nothing was released."""
    statement, described = _as_one(sources, accounted)
    page = path.parent.resolve() / path.name  # the user's own choice of a folder may lead through a link
    write_atomically(page, render_privacy(statement, described).encode(), mode=0o644)


def _as_one(sources: list[Source], accounted: Account) -> tuple[dict[str, Any], dict[str, Any]]:
    """Describe several plans as one: their statements' facts joined, their measurements side by side."""
    plans = [source.plan for source in sources]
    described = plans[0].to_json()
    described["release"] = " + ".join(plan.name for plan in plans)
    described["plan_digest"] = digest_of({"plans": [plan.digest for plan in plans]})
    described["budget"] = str(sum((plan.budget for plan in plans), Fraction(0)))
    described["delta"] = str(min(plan.settings.privacy.delta for plan in plans))
    described["epsilon"] = accounted.nominal["epsilon"]
    described["measurements"] = [
        {**row, "query": row["query"] if len(plans) == 1 else f"{plan.name}: {row['query']}"}
        for plan in plans
        for row in plan.to_json()["measurements"]
    ]
    statement = statement_of(plans[0], accounted, facts_digest="", charged=plans[0].budget, seeded=False)
    statement |= {key: described[key] for key in ("release", "plan_digest")}
    statement["nominal"] |= {"epsilon": accounted.nominal["epsilon"]}
    statement["nominal"] |= {"rho" if plans[0].framework == "zcdp" else "epsilon_exact": described["budget"]}
    for plan in plans[1:]:
        other = statement_of(plan, accounted, facts_digest="", charged=plan.budget, seeded=False)
        for key in ("invariants", "bounds", "structural_zeros"):
            statement[key] = [*statement[key], *(fact for fact in other[key] if fact not in statement[key])]
    statement["planned"] = True
    return statement, described
