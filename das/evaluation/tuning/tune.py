"""Find shares and the least budget that meet accuracy targets: exact linear variances first, then simulation.

The shares come from a convex problem over the variances of a typical geounit (:mod:`das.evaluation.tuning.shares`).
Published counts are not linear estimates: they are whole numbers, not negative, and add up. So plans are simulated on a
country of generated or public people, and each target's linear deviation is multiplied by the ratio that was seen
there, until the shares stay as they are. The budget is then what the simulation says is needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from das.accounting.moves import determined_queries
from das.errors import InfeasibleError, Problem, UsageError
from das.estimation.linear.typical import Measured, Term, TypicalTree, UndeterminedError
from das.evaluation.country import Country
from das.evaluation.tuning.shares import costs_of, exact_shares, least_precisions, weights_of
from das.evaluation.tuning.targets import Target, Targets, TargetSettings
from das.evaluation.tuning.trial import Simulated, Trial
from das.plan.candidate_trees import candidate_shares
from das.plan.for_accountant import hierarchical_plan
from das.plan.plan import Measurement, Plan
from das.plan.resolve import MOST_CELLS_AT_ONCE
from das.runner import Progress

__all__ = ["Strategy", "Tuned", "Worth", "needed", "proportional_to_cells", "tune"]

ROUNDS = 3
"""How often the shares are found anew with the ratios of the last simulation."""

CLOSE, ATTEMPTS = 0.02, 7
"""A budget is found when a smaller one that fails differs by less than this part, or after so many simulations."""

MOST = Fraction(20)
"""Budgets are tried up to this: noise is then so small that answers are all but exact, and nothing is promised."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Strategy:
    """Shares, the least budget with which they meet all targets, and what was simulated with it."""

    name: str
    plan: Plan
    simulated: tuple[Simulated, ...]
    linear: tuple[float, ...]
    ratios: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What the last bit of budget of a measurement achieves, against the average bit.

    Above 1 the measurement deserves more, below 1 less; at the optimum each is 1, or below 1 at the least share.
    """

    level: str
    query: str
    share: float
    own_share: float
    value: float
    own_value: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Tuned:
    """Everything that tuning found.

    Parameters
    ----------
    own, tuned : Strategy
        The plan's own shares, and those found, each with the budget that it needs.
    others : tuple of Strategy
        Other shares, for comparison.
    prices : tuple of float
        For each target the part of the budget that it causes; they sum to one.
    """

    trial: Trial
    own: Strategy
    tuned: Strategy
    others: tuple[Strategy, ...]
    prices: tuple[float, ...]
    worth: tuple[Worth, ...]
    determined: tuple[Measured, ...]
    seed: int


def tune(
    plan: Plan, targets: Targets, country: Country, *, seed: int, runs: int, progress: Progress | None = None
) -> Tuned:
    """Tune a plan.

    Parameters
    ----------
    plan : Plan
        Which queries may be measured at which levels, and the geography and facts; its budget is not used.
    targets : Targets
        What is to be achieved.
    country : Country
        People on which plans are tried, generated or public.
    seed, runs : int
        Of the testing keys, and how many.
    progress : callable, optional
        Called with ``"tune"``, the number of simulations done, and about how many there will be.

    Raises
    ------
    InfeasibleError
        No budget, or none within the limit, meets the targets; the message names them and the nearest that can be met.
    """
    _require_suitable(plan)
    trial = Trial.of(plan, country, targets, seed=seed, runs=runs)
    if targets.keep is not None:
        targets = _keeping(plan, trial)
        trial = replace(trial, targets=targets)
    steps = _Steps(progress, ROUNDS + 4)
    terms = _terms(plan, TypicalTree.of(plan, trial.whole), targets)
    determined = determined_queries(hierarchical_plan(plan, trial.whole))
    idle = frozenset(name for name in determined if any(m.level == name[0] for m in _others(plan, determined)))
    counted = [at for at, each in enumerate(terms) if each]
    if not counted:
        reason = "every target is about what is published exactly"
        raise UsageError(Problem("targets", reason, "state a target that costs something"))
    correction = (1.0,) * len(terms)
    found = plan
    for _ in range(ROUNDS):
        typical = _typical(plan, terms, found)
        whole = trial.linear(found, whole=True)
        allowed = [
            (trial.allowed[at] / correction[at] * (typical[at] / whole[at] if whole[at] else 1.0)) ** 2
            for at in counted
        ]
        solution = least_precisions(plan, [terms[at] for at in counted], allowed, idle)
        geolevels, queries = exact_shares(plan, solution.weights)
        found = _with_needed(plan.with_strategy(geolevels, queries), trial, correction)
        steps.step()
        correction = trial.ratios(found, trial.simulate(found))
    tuned = needed("tuned", found, trial, steps)
    _require_within(tuned, trial)
    own = needed("the plan's own", plan, trial, steps)
    others = {"proportional to cells": proportional_to_cells(plan)}
    if "production 2020" in (known := candidate_shares(plan)):
        others["levels as in 2020"] = plan.with_strategy(known["production 2020"], _queries(plan))
    same = own.plan.with_budget(plan.budget).digest
    beside = tuple(needed(n, p, trial, steps) for n, p in others.items() if p.digest != same)
    prices = [0.0] * len(terms)
    for at, price in zip(counted, solution.prices, strict=True):
        prices[at] = price / (sum(solution.prices) or 1.0)
    steps.end()
    return Tuned(
        trial=trial,
        own=own,
        tuned=tuned,
        others=beside,
        prices=tuple(prices),
        worth=_worth(terms, prices, tuned, own, trial),
        determined=determined,
        seed=seed,
    )


def needed(name: str, plan: Plan, trial: Trial, steps: _Steps | None = None) -> Strategy:
    """Find the least budget with which a plan's shares meet all targets in the simulation, to about one percent.

    A budget is scaled by what its simulation says is missing; budgets that failed and that sufficed enclose the next.
    """
    fails, meets = Fraction(0), MOST
    best: Strategy | None = None
    plan = _with_needed(plan, trial, (1.0,) * len(trial.allowed))
    for attempt in range(ATTEMPTS):
        simulated = trial.simulate(plan)
        correction = trial.ratios(plan, simulated)
        whole = trial.linear(plan, whole=True)
        found = Strategy(name=name, plan=plan, simulated=simulated, linear=whole, ratios=correction)
        excess = max(d * c / most for d, c, most in zip(whole, correction, trial.allowed, strict=True))
        if excess <= 1:
            best, meets = found, plan.budget
        else:
            fails = plan.budget
        if plan.budget >= MOST and excess > 1:
            best = found
            break
        if best is not None and float(fails / meets) > 1 - CLOSE:
            break
        following = _with_needed(plan, trial, correction).budget
        if attempt == ATTEMPTS - 2 and best is None:
            following = MOST
        elif not fails < following < meets:
            following = _rounded_up(math.sqrt(float(fails * meets)) if fails else float(meets) * 0.7)
        if following in (fails, meets):
            break
        plan = plan.with_budget(following)
    if steps is not None:
        steps.step()
    return best or found


def proportional_to_cells(plan: Plan) -> Plan:
    """Return the plan with equal shares of the levels and, inside each, shares in proportion to numbers of cells."""
    geolevels = {level: Fraction(1, len(plan.levels)) for level in plan.levels}
    queries = {}
    for level in plan.levels:
        sizes = {m.query.name: m.query.size for m in plan.at(level)}
        queries[level] = {name: Fraction(size, sum(sizes.values())) for name, size in sizes.items()}
    return plan.with_strategy(geolevels, queries)


class _Steps:
    """Counts simulations."""

    def __init__(self, progress: Progress | None, of: int) -> None:
        self.done, self.of, self.progress = 0, of, progress or (lambda stage, done, of: None)

    def step(self) -> None:
        self.done += 1
        self.of = max(self.of, self.done)
        self.progress("tune", self.done, self.of)

    def end(self) -> None:
        self.progress("tune", self.of, self.of)


def _require_suitable(plan: Plan) -> None:
    if not plan.mechanism_stage.measures:
        reason = "draws conforming counts, whose errors are not those of linear estimates"
        remedy = "use `das plan CONFIG --compare-trees` for it"
        raise UsageError(Problem(f"method {plan.settings.estimate.method!r}", reason, remedy))
    if plan.schema.size > MOST_CELLS_AT_ONCE:
        reason = f"the schema has {plan.schema.size:,} cells, too many to simulate here"
        raise UsageError(Problem("das tune", reason, "tune a plan with a coarser schema, and take its shares"))


def _terms(plan: Plan, tree: TypicalTree, targets: Targets) -> list[list[Term]]:
    """For each target the terms of its variance, none where its answers are published exactly."""
    problems, found = [], []
    for target in targets.targets:
        try:
            found.append(tree.terms(target.level, target.query))
        except UndeterminedError:
            names = ", ".join(repr(m.query.name) for m in plan.at(target.level))
            reason = (
                f"no budget meets it: the queries that are measured ({names} at {target.level}) do not determine it"
            )
            remedy = "measure it, or 'detailed', at that level or below"
            problems.append(Problem(f"target {target.name!r}", reason, remedy))
    if problems:
        raise InfeasibleError(problems)
    return found


def _keeping(plan: Plan, trial: Trial) -> Targets:
    """Add a target for each measured query that has none: the plan's own linear deviation, times a factor."""
    targets = trial.targets
    stated = {(t.level, t.query.name) for t in targets.targets}
    asked = [
        Target(
            level=m.level,
            query=m.query,
            settings=TargetSettings(level=m.level, query=m.query.name, rmse=1),
            is_kept=True,
        )
        for m in plan.measurements
        if (m.level, m.query.name) not in stated
    ]
    if not asked:
        return targets
    own = replace(trial, targets=Targets(targets=tuple(asked))).linear(plan, whole=True)
    more = [
        replace(t, settings=t.settings.model_copy(update={"rmse": float(f"{(targets.keep or 1) * deviation:.3g}")}))
        for t, deviation in zip(asked, own, strict=True)
        if deviation > 0
    ]
    return replace(targets, targets=(*targets.targets, *more))


def _others(plan: Plan, determined: tuple[Measured, ...]) -> list[Measurement]:
    """Measurements that tell something which is not published exactly."""
    return [m for m in plan.measurements if (m.level, m.query.name) not in determined]


def _typical(plan: Plan, terms: list[list[Term]], found: Plan) -> list[float]:
    weights = dict.fromkeys(weights_of(plan), 1e-12) | weights_of(found)
    return [math.sqrt(sum(term.value(weights)[0] for term in each)) for each in terms]


def _with_needed(plan: Plan, trial: Trial, correction: tuple[float, ...]) -> Plan:
    """Scale the budget until corrected linear deviations meet every target."""
    power = 1 if plan.framework == "zcdp" else 2
    for _ in range(4):  # the variance of integer noise is not quite inverse to its cost
        linear = trial.linear(plan, whole=True)
        rows = zip(linear, correction, trial.allowed, strict=True)
        ratio = max(d * c / most for d, c, most in rows) ** (2 / power)
        budget = _rounded_up(float(plan.budget) * ratio)
        if budget >= MOST:
            return plan.with_budget(MOST)
        if budget == plan.budget:
            return plan
        plan = plan.with_budget(budget)
    return plan


def _rounded_up(budget: float) -> Fraction:
    """Return a fraction of three digits that is not below.

    Examples
    --------
    >>> _rounded_up(0.123456), _rounded_up(2.0)
    (Fraction(31, 250), Fraction(2, 1))
    """
    scale = 10 ** (2 - math.floor(math.log10(max(budget, 1e-9))))
    return Fraction(math.ceil(budget * scale - 1e-9)) / Fraction(scale)


def _require_within(tuned: Strategy, trial: Trial) -> None:
    """Refuse if the limit is below what is needed, and say how near one can come."""
    plan, limit = tuned.plan, trial.targets.limit
    most = MOST if limit is None else min(limit, MOST)
    if plan.budget < MOST and plan.budget <= most:
        return
    power = 1 if plan.framework == "zcdp" else 2
    factor = (float(plan.budget / most)) ** (power / 2)
    currency = "rho" if plan.framework == "zcdp" else "epsilon"
    tried = f"or give people like yours with --margins or --public (tried on {int(trial.country.cells.sum()):,})"
    problems = []
    for at, target in enumerate(trial.targets.targets):
        deviation = tuned.linear[at] * tuned.ratios[at] * factor
        if deviation <= trial.allowed[at]:
            continue
        nearest = target.met_by(deviation, trial.true[at])
        shown = f"{100 * nearest:.1f} %" if target.settings.share is not None else f"{nearest:.3g}"
        needed = f"about {float(plan.budget):.3g}" if plan.budget < MOST else "more than is ever tried"
        reason = f"not within {currency} = {most}: all targets together need {needed}"
        remedy = f"nearest with these shares and {currency} = {most}: {shown}; relax it, raise the limit, {tried}"
        problems.append(Problem(f"target {target.name!r}", reason, remedy))
    raise InfeasibleError(problems)


def _queries(plan: Plan) -> dict[str, dict[str, Fraction]]:
    found: dict[str, dict[str, Fraction]] = {}
    for level in plan.levels:
        whole = sum((m.share for m in plan.at(level)), Fraction(0))
        found[level] = {m.query.name: m.share / whole for m in plan.at(level)}
    return found


def _worth(
    terms: list[list[Term]], prices: list[float], tuned: Strategy, own: Strategy, trial: Trial
) -> tuple[Worth, ...]:
    """Part of the precision of the targets that a measurement gives, divided by its part of the budget.

    Variances are homogeneous in the precisions, so both parts sum to one. In the plan's own shares the target counts
    that is hardest to meet there.
    """
    hardest = max(range(len(terms)), key=lambda at: own.linear[at] * own.ratios[at] / trial.allowed[at])
    values = _values(terms, prices, tuned.plan)
    own_values = _values(terms, [float(at == hardest) for at in range(len(terms))], own.plan)
    shares = {(m.level, m.query.name): float(m.share) for m in tuned.plan.measurements}
    return tuple(
        Worth(
            level=m.level,
            query=m.query.name,
            share=shares.get((m.level, m.query.name), 0.0),
            own_share=float(m.share),
            value=values.get((m.level, m.query.name), 0.0),
            own_value=own_values[m.level, m.query.name],
        )
        for m in own.plan.measurements
    )


def _values(terms: list[list[Term]], prices: list[float], plan: Plan) -> dict[Measured, float]:
    weights, gained = weights_of(plan), dict.fromkeys(weights_of(plan), 0.0)
    for each, price in zip(terms, prices, strict=True):
        if not each or not price:
            continue
        known = dict.fromkeys(each[0].grams, 1e-12) | weights
        found = [term.value(known) for term in each]
        variance = sum(value for value, _ in found)
        for _, slopes in found:
            for name, slope in slopes.items():
                if name in gained:
                    gained[name] += price * weights[name] * slope / variance
    costs: Mapping[Measured, float] = costs_of(plan, weights)
    whole = sum(costs.values())
    return {name: gain / (costs[name] / whole) for name, gain in gained.items()}
