"""Methods of one plan at the same effective privacy: raw noise, least squares after it, and conditioned noise.

The matched number is one that the privacy report states: the effective epsilon of the policy ``irreducible``, at the
plan's delta (none for Laplace noise). It comes from the accountant, by the theorems that also account for a release:
``das/accounting/policies.py`` for raw noise and for everything computed from it and public facts,
``das/accounting/conditioned_tree.md`` for conditioned noise. This policy is proved for both; ``semi`` may not be, for
conditioned noise. The noise of the conditioned plan is scaled until its number is at most that of the raw noise, never
by a value computed from the true data.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from das.accounting.joint import conditioned_on_tree
from das.accounting.policies import Guarantee, Policy, guarantee
from das.errors import ConfigError, Problem, UsageError
from das.exact import float_upper
from das.plan.for_accountant import hierarchical_plan
from das.plan.geography import spine_of
from das.plan.plan import Plan
from das.plan.resolve import MOST_CELLS_AT_ONCE
from das.plan.tree_of_counts import tree_of
from das.promise.account import account
from geography import Spine

__all__ = ["POLICY", "Contender", "contenders_of", "effective_epsilon", "matched_budget_lower", "why_not_congenial"]

POLICY: Policy = "irreducible"
RESOLUTION = 2**20
NOTICEABLY_MORE = 1.01
"""Factor by which conditioning must raise epsilon for the same noise to be shown beside the matched one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A method, the plan by which it runs, and its privacy guarantees."""

    name: str
    plan: Plan
    promises: tuple[dict[str, Any], ...]

    @property
    def matched(self) -> dict[str, Any]:
        """The promise that is matched."""
        return next(found for found in self.promises if found["policy"] == POLICY)

    @property
    def epsilon(self) -> float:
        """Its effective epsilon."""
        return float(self.matched["epsilon"])

    def to_json(self) -> dict[str, Any]:
        """Describe it in plain data: budget, guarantee, status and assumptions."""
        keys = ("epsilon", "tight_epsilon", "status", "assumptions")
        return {
            "name": self.name,
            "method": self.plan.settings.estimate.method,
            "budget": str(self.plan.budget),
            "budget_float": float(self.plan.budget),
            **{key: self.matched[key] for key in keys},
        }


def contenders_of(plan: Plan, epsilon: Fraction | None = None) -> tuple[Contender, ...]:
    """Make the methods of one plan: measured noise first, then conditioned noise.

    Parameters
    ----------
    plan : Plan
        With any method. Where what it measures, fixes and bounds does not form a tree, nothing can be conditioned.
    epsilon : Fraction, optional
        The effective epsilon to match; that of the measured plan unless given.

    Returns
    -------
    tuple of Contender
        ``measured``, from which raw noise and least squares come; ``congenial, matched``; and, where conditioning the
        same noise costs over one per cent more, ``congenial, same noise``. Only the first where the plan does not form
        a tree; :func:`why_not_congenial` says why.

    Raises
    ------
    UsageError
        The plan has no proved effective epsilon to match.
    """
    spine, conditioned = spine_of(plan), plan.with_method("congenial")
    measured = plan.with_method("nonnegative-l2")
    if plan.schema.size > MOST_CELLS_AT_ONCE:
        measured = measured.with_information("level")
    if epsilon is not None:
        measured = measured.with_budget(matched_budget_lower(measured, epsilon, spine))
    aim = Fraction(effective_epsilon(measured, spine)) if epsilon is None else epsilon
    if why_not_congenial(plan):
        return (Contender(name="measured", plan=measured, promises=_promises(measured, spine)),)
    same = conditioned.with_budget(measured.budget)
    matched = conditioned.with_budget(matched_budget_lower(same, aim, spine))
    found = {"measured": measured, "congenial, matched": matched}
    stated = _matched(same, spine).status != "not supported"  # otherwise there is no epsilon to show
    if stated and effective_epsilon(same, spine) > NOTICEABLY_MORE * float(aim):
        found["congenial, same noise"] = same
    return tuple(Contender(name=name, plan=each, promises=_promises(each, spine)) for name, each in found.items())


def why_not_congenial(plan: Plan) -> str | None:
    """Say why a plan's noise cannot be conditioned; None where it can.

    Examples
    --------
    >>> from das.plan.load import load
    >>> from das.plan.presets import folder
    >>> why_not_congenial(load(folder() / "demo.toml"))[:62]
    "strategy.queries.state: 'votingage' does not refine 'hispanic'"
    """
    try:
        tree_of(plan.with_method("congenial"))
    except ConfigError as error:
        return "; ".join(f"{problem.where}: {problem.reason}" for problem in error.problems)
    return None


def effective_epsilon(plan: Plan, spine: Spine | None = None) -> float:
    """Return the epsilon that is matched, as the privacy report of this plan states it.

    Examples
    --------
    >>> from das.plan.load import load
    >>> from das.plan.presets import folder
    >>> round(effective_epsilon(load(folder() / "demo.toml")), 3)
    20.326
    """
    found = _matched(plan, spine)
    epsilon = float_upper(found.pure) if isinstance(found.pure, Fraction) else found.epsilon
    if found.status != "proved" or epsilon is None or not 0 < epsilon < float("inf"):
        reason = f"its effective epsilon under the policy {POLICY!r} is not a proved number ({found.status})"
        raise UsageError(Problem(plan.source.name, reason, "compare a plan that promises something"))
    return epsilon


def _matched(plan: Plan, spine: Spine | None) -> Guarantee:
    whole = hierarchical_plan(plan, spine)
    found = guarantee(whole, POLICY, plan.settings.privacy.delta)
    sampler = plan.mechanism_stage.sampler
    return conditioned_on_tree(found, whole, sampler) if sampler else found


def matched_budget_lower(plan: Plan, epsilon: Fraction, spine: Spine | None = None) -> Fraction:
    """Return the largest multiple of 2^-20 of the plan's budget with which it promises at most ``epsilon``.

    Examples
    --------
    >>> from das.plan.load import load
    >>> from das.plan.presets import folder
    >>> plan = load(folder() / "demo.toml")
    >>> matched_budget_lower(plan, Fraction(effective_epsilon(plan))) == plan.budget
    True
    """
    unit = plan.budget / RESOLUTION

    def holds(units: int) -> bool:
        trial = plan.with_budget(units * unit)
        if _matched(trial, spine).status == "not supported":
            return False  # there is so little noise that the sampler's error exceeds delta
        return Fraction(effective_epsilon(trial, spine)) <= epsilon

    low, high = 0, RESOLUTION
    while holds(high) and high < RESOLUTION**2:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    if not low:
        reason = f"it is too small to be matched to a budget of {float(plan.budget):g}"
        raise UsageError(Problem("epsilon", reason, "give a larger one"))
    return low * unit


def _promises(plan: Plan, spine: Spine) -> tuple[dict[str, Any], ...]:
    """Every guarantee of the account, named as in the report."""
    sections = account(plan, spine).sections
    found = [{"promise": f"policy {entry['policy']}", **entry} for entry in sections["effective"]]
    found += [{"promise": entry["secret"], **entry} for entry in sections["secrets"]]
    found += [{"promise": f"attribute {entry['attribute']} alone", **entry} for entry in sections["attributes"]]
    for entry in sections["geography"]:
        words = f"place alone: another {entry['of']} within the same {entry['within']}"
        found.append({"promise": words, **entry})
    return tuple({"policy": None, **entry} for entry in found)
