"""The privacy report: the statement of a release as one page that a person can read, print and sign."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from markupsafe import Markup

from das.accounting.conversion import epsilon_upper
from das.accounting.quote import quotes_of, reasons_of
from das.errors import Problem, UsageError
from das.exact import decimal_of, quoted
from das.report.charts import Bar, Point, bar_chart, dash_sample, delta_chart
from das.report.conditions import Footnotes, added_delta_sentence
from das.report.costs import Cost, assumptions_of, breakdown_of, costs_of, headline_of, stops_of
from das.report.grids import budget_grid, exact_share, legend, noise_grid
from das.report.guesses import belief_rows, family_table, tradeoff_figure
from das.report.pages import page_template
from das.report.reference import REFERENCE_NAME
from das.report.releases import budget_sentence, ledger_sentences, release_rows
from das.report.verdict import GRADES_TEXT, findings_of, household_of, hundredths_upper
from das.report.wording import charge, decisions, fact, named, one_in_upper, power_upper, quoted_upper

__all__ = ["render_privacy"]

QUOTED_DECADES = (3, 6, 9, 12)
# What a statement or a manifest may leave out; then the page leaves it out, too.
SECTIONS = (
    "a",
    "a_status",
    "planned",
    "conditioned",
    "effective",
    "tight",
    "determined_queries",
    "vacuous",
    "pinned_cells",
    "known_cells",
    "unprotected_secrets",
    "randomness",
    "families",
    "joint",
    "accounted",
)
RECORDS = ("product", "conformance", "ledger_entry", "started", "finished", "inputs", "public_inputs", "versions")


def render_privacy(
    statement: Mapping[str, Any], plan: Mapping[str, Any], *, manifest: Mapping[str, Any] | None = None
) -> str:
    """Write ``privacy.html``: one page that needs no other file, no script and no network.

    Parameters
    ----------
    statement : Mapping
        The content of ``privacy.json``. A section whose key is absent is left out of the page.
    plan : Mapping
        ``Plan.to_json()`` of the same plan.
    manifest : Mapping, optional
        The content of ``manifest.json``, for the provenance.

    Returns
    -------
    str
        The same arguments give the same text.

    Raises
    ------
    UsageError
        The statement was made from another plan.

    Examples
    --------
    >>> from das.promise.account import account
    >>> from das.plan.load import load
    >>> from das.plan.presets import folder
    >>> from das.promise.statement import statement_of
    >>> plan = load(folder() / "demo.toml")
    >>> statement = statement_of(plan, account(plan), facts_digest=64 * "0", charged=plan.budget, seeded=False)
    >>> page = render_privacy(statement, plan.to_json())
    >>> "nominal epsilon" in page and "<script" not in page
    True
    """
    if statement["plan_digest"] != plan["plan_digest"]:
        raise UsageError(
            Problem(
                "privacy.json",
                f"was made from plan {statement['plan_digest'][:16]}, not from {plan['plan_digest'][:16]}",
                "give the statement and the plan of one release",
            )
        )
    costs = costs_of(statement)
    headline, randomness = headline_of(costs, conditioned="conditioned" in statement), statement.get("randomness")
    breakdown, beliefs, windows = breakdown_of(statement), belief_rows(statement), headline.quote.added_delta
    shared = quotes_of({"families": statement.get("families")})
    filters: dict[str, Callable[..., Any]] = {
        "named": named,
        "fact": fact,
        "charge": charge,
        "decisions": decisions,
        "hundredths": hundredths_upper,
        "quoted": quoted,
    }
    return page_template("das.report", "privacy.html.j2", filters).render(
        statement={**dict.fromkeys(SECTIONS), **statement},
        plan=plan,
        manifest={**dict.fromkeys(RECORDS), **(manifest or {})},
        costs=costs,
        headline=headline,
        stops=stops_of(statement, headline),
        remainder="" if plan["framework"] == "pure" else one_in_upper(Fraction(plan["delta"])),
        delta_figure="0" if plan["framework"] == "pure" else power_upper(Fraction(plan["delta"])),
        findings=findings_of(statement),
        grades=GRADES_TEXT,
        reference=REFERENCE_NAME,
        household=household_of(statement),
        beliefs=beliefs,
        last_line_covers=any(row.quote.about.get("policy") == "semi" for _, rows in beliefs for row in rows),
        guesses=tradeoff_figure(statement),
        families=family_table(statement),
        added=power_upper(Fraction(repr(randomness["delta"]))) if randomness else "",
        windows=power_upper(decimal_of(windows)) if windows else "",
        windows_note=added_delta_sentence(quotes_of(statement)),
        comparison=_comparison(statement, costs),
        starred=any(cost.condition for cost in costs),
        breakdown=breakdown,
        notes=Footnotes.of([*(cost.quote for _, members in breakdown for cost in members), *shared]),
        assumptions=assumptions_of(statement),
        budget=budget_grid(plan),
        exact_share=exact_share(plan, statement),
        legend=legend(),
        noise=noise_grid(plan),
        trade=_trade(plan, costs) if plan["framework"] == "zcdp" and "conditioned" not in statement else None,
        releases=release_rows(statement),
        ledgers=ledger_sentences(statement),
        budget_parts=budget_sentence(statement["nominal"]),
        reasons=reasons_of(quotes_of(statement)),
        digest_mark="".join(c for c in plan["plan_digest"] if c in "0123456789abcdef")[:16],
    )


@dataclass(frozen=True, slots=True)
class Trade:
    """Epsilon against delta: the chart, its legend, and the same as a table."""

    chart: Markup
    lines: tuple[tuple[Markup, Cost], ...]
    deltas: tuple[Markup, ...]
    rows: tuple[tuple[Cost, tuple[str, ...]], ...]


def _comparison(statement: Mapping[str, Any], costs: tuple[Cost, ...]) -> Markup:
    bars = [
        Bar(
            f"{cost.name}{' *' * bool(cost.condition)}",
            cost.length,
            cost.epsilon if cost.number is None else f"ε {cost.epsilon}",
            cost.kind,
        )
        for cost in costs
    ]
    if not statement.get("effective"):
        bars.append(Bar("Effective", None, "not stated", "open"))
    return bar_chart("comparison", "Nominal beside effective epsilon", bars)


def _trade(plan: Mapping[str, Any], costs: tuple[Cost, ...]) -> Trade:
    delta = Fraction(plan["delta"])
    curves = [(cost, cost.exact_rho) for cost in costs if cost.exact_rho is not None]
    # the line of exact distributions quotes another epsilon, which is not on the curve of its rho
    by_rho = [(cost, epsilon_upper(rho, delta) if cost.kind == "tight" else cost.length) for cost, rho in curves]
    points = [Point(cost.name_by_rho, delta, epsilon) for cost, epsilon in by_rho if epsilon is not None]
    deltas = [Fraction(1, 10**k) for k in QUOTED_DECADES]
    return Trade(
        delta_chart("trade", "Epsilon for every delta", [rho for _, rho in curves], points),
        tuple((dash_sample(order), cost) for order, (cost, _) in enumerate(curves)),
        tuple(power_upper(d) for d in deltas),
        tuple((cost, tuple(quoted_upper(epsilon_upper(rho, d)) for d in deltas)) for cost, rho in curves),
    )
