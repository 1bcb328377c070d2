"""The account of plans or releases as the page that a release would carry."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from das.exact import digest_of
from das.promise.account import Account
from das.promise.sources import Source
from das.promise.statement import statement_of
from das.report.privacy import render_privacy
from das.storage.files import write_atomically

__all__ = ["described_as_one", "write_account_page"]

MIXED = "zcdp and pure"


def write_account_page(sources: Sequence[Source], accounted: Account, path: Path) -> None:
    """Write the account as a page, marked as no release: a plan, or releases that have statements of their own."""
    statement, described = described_as_one(sources, accounted)
    page = path.parent.resolve() / path.name  # the user's own choice of a folder may lead through a link
    write_atomically(page, render_privacy(statement, described).encode(), mode=0o644)


def described_as_one(sources: Sequence[Source], accounted: Account) -> tuple[dict[str, Any], dict[str, Any]]:
    """Describe several plans as one: their statements' facts joined, their measurements side by side."""
    plans = [source.plan for source in sources]
    frameworks = {plan.framework for plan in plans}
    total = sum((plan.budget for plan in plans), Fraction(0))
    described = plans[0].to_json()
    described["release"] = " + ".join(plan.name for plan in plans)
    described["plan_digest"] = digest_of({"plans": [plan.digest for plan in plans]})
    described["budget"] = str(sum((plan.budget for plan in plans if plan.framework != "pure"), Fraction(0)) or total)
    described["delta"] = str(min(plan.settings.privacy.delta for plan in plans))
    described["epsilon"] = accounted.nominal["epsilon"]
    described["framework"] = MIXED if len(frameworks) > 1 else plans[0].framework
    described["measurements"] = [
        {
            **row,
            "query": row["query"] if len(plans) == 1 else f"{plan.name}: {row['query']}",
            # of one budget where it has one unit; rho and epsilon have no common one, and each release stands alone
            "share": str(Fraction(row["share"]) * (1 if len(frameworks) > 1 else plan.budget / total)),
        }
        for plan in plans
        for row in plan.to_json()["measurements"]
    ]
    statement = statement_of(plans[0], accounted, facts_digest="", charged=plans[0].budget, seeded=False)
    statement |= {key: described[key] for key in ("release", "plan_digest", "framework")}
    statement["nominal"] = _nominal(statement["nominal"], described, accounted, mixed=len(frameworks) > 1)
    for plan in plans[1:]:
        other = statement_of(plan, accounted, facts_digest="", charged=plan.budget, seeded=False)
        for key in ("invariants", "bounds", "structural_zeros", "published"):
            statement[key] = [*statement[key], *(fact for fact in other[key] if fact not in statement[key])]
        if "conditioned" in other:
            statement.setdefault("conditioned", other["conditioned"])
    statement["seeded"] = any(source.seeded for source in sources)
    if len(plans) > 1:
        statement["joint"] = True
    statement["planned"] = any(source.folder is None for source in sources)
    statement["accounted"] = not statement["planned"]
    return statement, described


def _nominal(first: dict[str, Any], described: dict[str, Any], accounted: Account, *, mixed: bool) -> dict[str, Any]:
    """Both parts of a mixed budget, or the sum of budgets of one kind, with the epsilon of all."""
    nominal = first | {"epsilon": accounted.nominal["epsilon"]}
    if mixed:
        nominal.pop("epsilon_exact", None)
        nominal |= {"rho": described["budget"], "pure_epsilon": accounted.nominal["pure_epsilon"]}
        return nominal | {"delta": float(Fraction(described["delta"])), "conversion": "cks, and pure DP as zCDP"}
    return nominal | {"epsilon_exact" if described["framework"] == "pure" else "rho": described["budget"]}
