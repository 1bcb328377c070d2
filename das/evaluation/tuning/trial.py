"""What a plan achieves on a country: exact standard deviations of linear estimates, and simulated errors of counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from das.errors import Problem, UsageError
from das.estimation.linear.basis import Basis
from das.estimation.linear.blue import Exact
from das.estimation.linear.covariances import Covariances, LevelFacts, sweep_covariances
from das.estimation.linear.exact_zeros import known_zeros
from das.evaluation.country import Country, answers_of
from das.evaluation.trees.least_squares import least_squares
from das.evaluation.tuning.targets import Target, Targets
from das.facts.collect import facts_of
from das.facts.fact import Facts, limits_of
from das.plan.geography import spine_of
from das.plan.plan import Plan
from das.schema.query import parse_query
from geography import Spine

__all__ = ["Simulated", "Trial"]

_LEAST = 0.05  # of a ratio: few runs may happen to have no error at all


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Simulated:
    """Errors of one target over all runs: what was achieved, its standard error, and the deviation it stands for."""

    achieved: float
    error: float
    deviation: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """A country on which plans are tried, the whole spine that it is part of, and the targets.

    Parameters
    ----------
    country : Country
        Generated or public people.
    whole : Spine
        The plan's whole geography.
    bounds : Facts
        What bounds say of the whole geography.
    targets : Targets
        What is to be achieved.
    keys : tuple of str
        Testing keys, one for each run.
    """

    country: Country
    whole: Spine
    bounds: Facts
    targets: Targets
    keys: tuple[str, ...]

    @classmethod
    def of(cls, plan: Plan, country: Country, targets: Targets, *, seed: int, runs: int) -> Trial:
        """Prepare a trial; the bounds of the whole geography are read, and no record."""
        whole = spine_of(plan)
        bounds = facts_of(plan, whole, None) if plan.bounds else {}
        keys = tuple(f"tune-{seed}-{run}" for run in range(runs))
        return cls(country=country, whole=whole, bounds=bounds, targets=targets, keys=keys)

    @cached_property
    def chosen(self) -> tuple[NDArray[np.bool_], ...]:
        """For each target the geounits of the country that it is about."""
        spine, found = self.country.spine, []
        total = parse_query(self.targets.targets[0].query.schema, "total")
        for target in self.targets.targets:
            totals = self.country.answers(target.level, total)[:, 0]
            here = spine.real(target.level) & target.chosen(totals)
            if not here.any():
                reason = "no geounit of the population on which plans are tried has such a size"
                remedy = "state another size, more leaves (--leaves), or public totals (--margins)"
                raise UsageError(Problem(f"target {target.name!r}", reason, remedy))
            found.append(here)
        return tuple(found)

    @cached_property
    def true(self) -> tuple[NDArray[np.int64], ...]:
        """For each target the true answers that it is about."""
        pairs = zip(self.targets.targets, self.chosen, strict=True)
        return tuple(self.country.answers(target.level, target.query)[here] for target, here in pairs)

    @cached_property
    def allowed(self) -> tuple[float, ...]:
        """For each target the largest standard deviation of normal errors."""
        return tuple(target.allowed(true) for target, true in zip(self.targets.targets, self.true, strict=True))

    def linear(self, plan: Plan, *, whole: bool) -> tuple[float, ...]:
        """For each target the exact root mean variance of linear estimates, in the whole geography or the country."""
        spine, facts = (self.whole, self.bounds) if whole else (self.country.spine, self.country.facts)
        covariances = _covariances(plan, spine, facts)
        return tuple(_deviation(covariances, target) for target in self.targets.targets)

    def simulate(self, plan: Plan) -> tuple[Simulated, ...]:
        """Measure and estimate once for each key, and compare with the truth."""
        spine = self.country.spine
        errors: list[list[NDArray[np.float64]]] = [[] for _ in self.targets.targets]
        for key in self.keys:
            away = least_squares(plan, self.country, key) - self.country.cells
            for target, here, found in zip(self.targets.targets, self.chosen, errors, strict=True):
                found.append(answers_of(spine, away, target.level, target.query)[here].astype(np.float64))
        rows = zip(self.targets.targets, self.true, errors, strict=True)
        return tuple(_simulated(target, true, found) for target, true, found in rows)

    def ratios(self, plan: Plan, simulated: tuple[Simulated, ...]) -> tuple[float, ...]:
        """How many times larger simulated deviations are than exact linear ones on the same country.

        One where linear estimates are exact, and for queries that are only kept: there are many of those, some of a few
        geounits, and the largest of their ratios would be chance.
        """
        rows = zip(self.targets.targets, simulated, self.linear(plan, whole=False), strict=True)
        return tuple(_ratio(target, found, linear) for target, found, linear in rows)


def _ratio(target: Target, simulated: Simulated, linear: float) -> float:
    if target.is_kept or linear <= 0:
        return 1.0
    return max(simulated.deviation / linear, _LEAST)


def _simulated(target: Target, true: NDArray[np.int64], errors: list[NDArray[np.float64]]) -> Simulated:
    runs = [target.achieved(each, true) for each in errors]
    spread = float(np.std(runs, ddof=1) / math.sqrt(len(runs))) if len(runs) > 1 else float("nan")
    together, all_true = np.concatenate(errors), np.tile(true, (len(errors), 1))
    achieved = target.achieved(together, all_true)
    return Simulated(achieved=achieved, error=spread, deviation=target.deviation(together, all_true))


def _covariances(plan: Plan, spine: Spine, facts: Facts) -> Covariances:
    """Covariances of the linear estimates; an invariant of a level is exact above it too, whatever its values are."""
    queries = [*(m.query for m in plan.measurements), *plan.limited_queries]
    basis = Basis.of(plan.schema, queries, plan.limited_queries)
    levels: dict[str, LevelFacts] = {}
    for at, level in enumerate(plan.levels):
        units = spine.size(level)
        exact = [i.query for i in plan.invariants if plan.levels.index(i.level) >= at]
        limits = limits_of(facts.get(level, ()), slice(None))
        levels[level] = LevelFacts(
            measured=[(m.query, m.mechanism.variance()) for m in plan.at(level)],
            exact=[Exact(query, np.zeros((units, query.size), np.int64)) for query in exact],
            zeros=known_zeros(basis, limits, units),
        )
    with threadpool_limits(limits=1):  # blocks are small
        return sweep_covariances(basis, spine, levels)


def _deviation(covariances: Covariances, target: Target) -> float:
    kind_of, blocks = covariances.final(target.level)
    units = np.bincount(kind_of[covariances.spine.real(target.level)], minlength=len(blocks[0]))
    mean = covariances.basis.variances(target.query, blocks).mean(axis=1) @ units / units.sum()
    return math.sqrt(max(float(mean), 0.0))
