"""The plan: everything a release decides, resolved and exact, before any record is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from das.accounting.conversion import epsilon_upper
from das.exact import digest_of, float_upper
from das.noise.mechanisms import FRAMEWORKS, Mechanism
from das.plan import describe
from das.plan.constraint import Bound, Invariant, Published
from das.plan.mechanism_stage import BY_METHOD, MechanismStage
from das.plan.settings import Settings
from das.schema.query import Neighbours, Query, parse_query
from das.schema.schema import Schema

__all__ = ["Measurement", "Plan", "mechanism_for", "numbers_per_unit"]


@dataclass(frozen=True)
class Measurement:
    """One query measured in each geounit of one level, with its exact share of the budget."""

    level: str
    query: Query
    share: Fraction  # of the whole budget
    cost: Fraction  # rho or epsilon: the share in currency
    mechanism: Mechanism

    @property
    def parameter(self) -> str:
        """The noise parameter as an exact text."""
        return str(self.mechanism.parameter)

    @property
    def std_dev(self) -> float:
        """Standard deviation of the noise of one answer."""
        return math.sqrt(self.mechanism.variance())

    @property
    def expected_error(self) -> float:
        """Mean absolute noise of one answer, for reading."""
        return self.mechanism.mean_absolute()


def mechanism_for(framework: str, cost: Fraction, query: Query, neighbours: Neighbours) -> Mechanism:
    """Noise that spends exactly ``cost`` on a query of a level in which a record may move between geounits.

    zCDP (Bun & Steinke 2016): the discrete Gaussian loses rho = Δ₂² / (2 σ²), so σ² = Δ₂² / (2 rho).
    Pure DP: the discrete Laplace loses ε = Δ₁ / scale.
    """
    sensitivity = query.sensitivity(neighbours, units=2)
    return FRAMEWORKS[framework].spending(cost, l1=sensitivity.l1, l2_squared=sensitivity.l2_squared)


@dataclass(frozen=True)
class Plan:
    """A release before it happens.

    Build one with :func:`das.load`; nothing in it comes from a record, so it may be shown to anybody.
    """

    settings: Settings
    source: Path  # the config file
    schema: Schema
    levels: tuple[str, ...]
    measurements: tuple[Measurement, ...]
    invariants: tuple[Invariant, ...]
    bounds: tuple[Bound, ...]
    published: tuple[Published, ...] = ()

    @property
    def folder(self) -> Path:
        """The config file's folder, to which its paths are relative."""
        return self.source.parent

    @property
    def name(self) -> str:
        """The release's name."""
        return self.settings.release.name

    @property
    def framework(self) -> str:
        """``zcdp`` or ``pure``."""
        return self.settings.privacy.framework

    @property
    def currency(self) -> str:
        """What the ledger counts: the framework and, unless records are replaced, the relation."""
        replaced = self.settings.privacy.neighbours is Neighbours.REPLACE
        return self.framework if replaced else f"{self.framework}, {self.settings.privacy.neighbours}"

    @property
    def budget(self) -> Fraction:
        """The whole budget, rho or epsilon."""
        return self.settings.privacy.budget

    @property
    def dataset_budget(self) -> Fraction | None:
        """What may ever be spent on this data set, where the config says so; otherwise the ledger's total stands."""
        return self.settings.input.budget

    def with_information(self, information: str) -> Plan:
        """Return the same plan with another use of the measurements in estimation; what is measured stays."""
        estimate = self.settings.estimate.model_copy(update={"information": information})
        return replace(self, settings=self.settings.model_copy(update={"estimate": estimate}))

    def with_prior(self, prior: str) -> Plan:
        """Return the same plan with another prior for sparse cells; what is measured stays."""
        estimate = self.settings.estimate.model_copy(update={"prior": prior})
        return replace(self, settings=self.settings.model_copy(update={"estimate": estimate}))

    def with_method(self, method: str) -> Plan:
        """Return the same plan with another method; whether that method can run it is the caller's to ask."""
        estimate = self.settings.estimate.model_copy(update={"method": method})
        return replace(self, settings=self.settings.model_copy(update={"estimate": estimate}))

    def with_budget(self, budget: Fraction) -> Plan:
        """Return the same shares of another budget: all noise is scaled."""
        privacy = self.settings.privacy
        key = "rho" if self.framework == "zcdp" else "epsilon"
        scaled = []
        for m in self.measurements:
            noise = mechanism_for(self.framework, m.share * budget, m.query, privacy.neighbours)
            scaled.append(replace(m, cost=m.share * budget, mechanism=noise))
        settings = self.settings.model_copy(update={"privacy": privacy.model_copy(update={key: budget})})
        return replace(self, settings=settings, measurements=tuple(scaled))

    def with_strategy(self, geolevels: Mapping[str, Fraction], queries: Mapping[str, Mapping[str, Fraction]]) -> Plan:
        """Return the same plan with other measurements: shares of the levels and, inside each, of its queries."""
        measurements = []
        for level in self.levels:
            for name, inside in queries[level].items():
                query, share = parse_query(self.schema, name), geolevels[level] * inside
                noise = mechanism_for(self.framework, share * self.budget, query, self.settings.privacy.neighbours)
                measured = Measurement(level=level, query=query, share=share, cost=share * self.budget, mechanism=noise)
                measurements.append(measured)
        update = {"preset": None, "geolevels": dict(geolevels), "queries": dict(queries), "passes": {}}
        strategy = self.settings.strategy.model_copy(update=update)
        settings = self.settings.model_copy(update={"strategy": strategy})
        return replace(self, settings=settings, measurements=tuple(measurements))

    @property
    def mechanism_stage(self) -> MechanismStage:
        """What the mechanism of the configured method releases, and how it is accounted."""
        return BY_METHOD[self.settings.estimate.method]

    def at(self, level: str) -> tuple[Measurement, ...]:
        """The measurements of one level, in the strategy's order."""
        return tuple(m for m in self.measurements if m.level == level)

    def passes(self, level: str) -> tuple[tuple[str, ...], ...]:
        """Which measured queries are estimated before which others at a level; one pass unless something is said.

        Full information uses all measurements at once, so there the order of a preset does not apply.
        """
        names = [m.query.name for m in self.at(level)]
        estimate = self.settings.estimate
        said = estimate.passes or self.settings.strategy.passes if estimate.information == "level" else {}
        order = said.get(level, said.get("all", ()))
        first = [tuple(name for name in each if name in names) for each in order]
        last = tuple(name for name in names if not any(name in each for each in first))
        return tuple(each for each in (*first, last) if each)

    @cached_property
    def limited_queries(self) -> tuple[Query, ...]:
        """Each query on which something is known, once."""
        facts: tuple[Invariant | Bound | Published, ...] = (*self.invariants, *self.bounds, *self.published)
        queries = [fact.query for fact in facts]
        return tuple({query.name: query for query in queries}.values())

    def epsilon(self) -> float:
        """Nominal epsilon at the plan's delta, rounded up."""
        if self.framework == "pure":
            return float_upper(self.budget)
        return epsilon_upper(self.budget, self.settings.privacy.delta)

    def privacy_content(self) -> dict[str, Any]:
        """Everything that decides what is drawn and promised, as plain data in a fixed order."""
        privacy = self.settings.privacy
        return {
            "release": self.name,
            "dataset": self.settings.input.dataset,
            "privacy": {
                "framework": privacy.framework,
                "budget": str(privacy.budget),
                "delta": str(privacy.delta),
                "unit": privacy.unit,
                "neighbours": str(privacy.neighbours),
            },
            "levels": list(self.levels),
            "schema": [
                {
                    "name": a.name,
                    "labels": list(a.labels),
                    # Groups as a list: their order is the order of the answers, which a mapping would lose.
                    "recodes": {r: [[g, list(m)] for g, m in groups.items()] for r, groups in a.recodes.items()},
                }
                for a in self.schema.attributes
            ],
            "structural_zeros": [
                {"name": z.name, "labels": {k: list(v) for k, v in z.labels.items()}}
                for z in self.schema.structural_zeros
            ],
            "measurements": [
                [m.level, m.query.name, m.query.axes, str(m.share), m.mechanism.name] for m in self.measurements
            ],
            "invariants": [[i.level, i.query.name, i.reason] for i in self.invariants],
            "bounds": [[b.level, b.query.name, b.sense, b.source, b.factor] for b in self.bounds],
            # Conditioning is part of the mechanism; what estimation does with measurements is not.
            **({"conditioned": True} if self.mechanism_stage.sampler else {}),
        }

    @cached_property
    def digest(self) -> str:
        """SHA-256 of :meth:`privacy_content`; noise streams, ledger and manifest are bound to it."""
        return digest_of(self.privacy_content())

    def to_json(self) -> dict[str, Any]:
        """Describe the plan for machines: ``das plan --json``."""
        return describe.plan_json(self)

    def __repr__(self) -> str:
        measured = f"{len(self.measurements)} measurements at {len(self.levels)} levels"
        return f"Plan {self.name!r}: {self.framework}, budget {self.budget}, {measured}; digest {self.digest[:16]}"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.explain())}</pre>"

    def explain(self) -> str:
        """Describe the plan for people: ``das plan``."""
        return describe.plan_text(self)


def numbers_per_unit(measurements: tuple[Measurement, ...]) -> int:
    """How many noisy numbers a geounit has."""
    return sum(m.query.size for m in measurements)
