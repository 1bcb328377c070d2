"""The plan: everything a release decides, resolved and exact, before any record is read."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from das.accounting.conversion import epsilon_upper
from das.constraint import Bound, Invariant, Published
from das.noise.discrete_gaussian import DiscreteGaussian
from das.noise.discrete_laplace import DiscreteLaplace
from das.query import Neighbours, Query
from das.schema import Schema
from das.settings import Settings

__all__ = ["Measurement", "Mechanism", "Plan", "mechanism_for"]

Mechanism = DiscreteGaussian | DiscreteLaplace


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
        noise = self.mechanism
        return str(noise.sigma2 if isinstance(noise, DiscreteGaussian) else noise.scale)

    @property
    def std_dev(self) -> float:
        """Standard deviation of the noise of one answer."""
        return math.sqrt(self.mechanism.variance())

    @property
    def expected_error(self) -> float:
        """Mean absolute noise of one answer, for reading; what lies beyond 60 standard deviations does not show."""
        if self.std_dev > 1000:  # the continuous law, to one part in a million
            gaussian = isinstance(self.mechanism, DiscreteGaussian)
            return self.std_dev * math.sqrt(2 / math.pi if gaussian else 1 / 2)
        k = np.arange(1, int(60 * self.std_dev) + 20)
        return float(2 * (k * np.exp(self.mechanism.log_pmf(k))).sum())


def mechanism_for(framework: str, cost: Fraction, query: Query, neighbours: Neighbours) -> Mechanism:
    """Noise that spends exactly ``cost`` on a query of a level in which a record may move between geounits.

    zCDP (Bun & Steinke 2016): the discrete Gaussian loses rho = Δ₂² / (2 σ²), so σ² = Δ₂² / (2 rho).
    Pure DP: the discrete Laplace loses ε = Δ₁ / scale.
    """
    sensitivity = query.sensitivity(neighbours, units=2)
    if framework == "zcdp":
        return DiscreteGaussian(Fraction(sensitivity.l2_squared) / (2 * cost))
    return DiscreteLaplace(Fraction(sensitivity.l1) / cost)


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

    def with_engine(self, engine: str) -> Plan:
        """Return the same plan with another engine; whether that engine can run it is the caller's to ask."""
        estimate = self.settings.estimate.model_copy(update={"engine": engine})
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

    @property
    def is_congenial(self) -> bool:
        """Whether noise is conditioned to conform, so that the counts themselves are what the mechanism releases."""
        return self.settings.estimate.engine == "congenial"

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
            **({"conditioned": True} if self.is_congenial else {}),
        }

    @cached_property
    def digest(self) -> str:
        """SHA-256 of :meth:`privacy_content`; noise streams, ledger and manifest are bound to it."""
        return digest_of(self.privacy_content())

    def to_json(self) -> dict[str, Any]:
        """Describe the plan for machines: ``das plan --json``."""
        return {
            "release": self.name,
            "plan_digest": self.digest,
            "framework": self.framework,
            "budget": str(self.budget),
            "delta": str(self.settings.privacy.delta),
            "epsilon": self.epsilon(),
            "unit": self.settings.privacy.unit,
            "neighbours": str(self.settings.privacy.neighbours),
            "cells": self.schema.size,
            "levels": list(self.levels),
            "measurements": [
                {
                    "level": m.level,
                    "query": m.query.name,
                    "cells": m.query.size,
                    "share": str(m.share),
                    "cost": str(m.cost),
                    "mechanism": m.mechanism.name,
                    "std_dev": m.std_dev,
                    "expected_error": m.expected_error,
                }
                for m in self.measurements
            ],
            "invariants": [{"level": i.level, "query": i.query.name, "reason": i.reason} for i in self.invariants],
            "bounds": [{"level": b.level, "query": b.query.name, "sense": b.sense} for b in self.bounds],
            "published": [{"level": p.level, "query": p.query.name, "source": p.source} for p in self.published],
            "passes": {level: [list(each) for each in self.passes(level)] for level in self.levels},
        }

    def explain(self) -> str:
        """Describe the plan for people: ``das plan``."""
        privacy = self.settings.privacy
        currency = "rho" if self.framework == "zcdp" else "epsilon"
        promise = f"protects one {privacy.unit} ({privacy.neighbours}): {currency} = {self.budget}"
        if self.framework == "zcdp":
            epsilon = round_up(self.epsilon(), 4)
            promise += f" = {float(self.budget):.4f}, nominal epsilon {epsilon} at delta {delta_text(privacy.delta)}"
        first = max(14, *(len(level) + 2 for level in self.levels))
        second = max(34, *(len(m.query.name) + 2 for m in self.measurements))
        third = max(7, len(f"{self.schema.size:,}") + 1)
        lines = [
            f"{self.name}: {self.schema.size:,} cells per geounit, levels {' > '.join(self.levels)}",
            promise,
            "",
            f"{'level':<{first}}{'query':<{second}}{'cells':>{third}}{'share':>12}{currency:>10}{'noise sd':>10}"
            f"{'mean |error|':>14}",
        ]
        for m in self.measurements:
            lines.append(
                f"{m.level:<{first}}{m.query.name:<{second}}{m.query.size:>{third},}{float(m.share):>12.6f}"
                f"{float(m.cost):>10.5f}{m.std_dev:>10.2f}{m.expected_error:>14.2f}"
            )
        lines.append("")
        for i in self.invariants:
            lines.append(f"public, exact: {i.query.name} at {i.level} ({i.reason})")
        for b in self.bounds:
            lines.append(f"public bound:  {b.query.name} at {b.level} {b.sense} {b.factor} x {b.source}")
        for p in self.published:
            lines.append(f"agrees with:   {p.query.name} at {p.level} as released in {p.source}, at no further cost")
        for zero in self.schema.structural_zeros:
            lines.append(f"impossible:    {zero.name}")
        lines += self._order()
        lines.append(f"plan digest {self.digest[:16]}")
        return "\n".join(lines)

    def _order(self) -> list[str]:
        """Say in how many passes levels are estimated, or that the preset's passes do not apply."""
        if self.settings.estimate.information == "full":
            idle = bool(self.settings.strategy.passes)
            return ['passes:        those of the preset are for information = "level"'] if idle else []
        several: dict[int, list[str]] = {}
        for level in self.levels:
            several.setdefault(len(self.passes(level)), []).append(level)
        return [f"passes:        {n} at {', '.join(levels)}" for n, levels in several.items() if n > 1]


def float_upper(value: Fraction) -> float:
    """Give the smallest float that is not below a rational.

    Examples
    --------
    >>> float_upper(Fraction(2)), Fraction(float_upper(Fraction(1, 10))) >= Fraction(1, 10)
    (2.0, True)
    """
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


def round_up(value: float, digits: int) -> str:
    """Print a number that may be quoted: the last digit is rounded up.

    Examples
    --------
    >>> round_up(17.143551, 4)
    '17.1436'
    """
    return f"{Decimal(math.ceil(Fraction(value) * 10**digits)).scaleb(-digits):.{digits}f}"


def delta_text(delta: Fraction | float) -> str:
    """Print a delta with three digits, rounded up.

    Examples
    --------
    >>> delta_text(Fraction(1, 10**10)), delta_text(Fraction(149, 10**11)), delta_text(1e-10)
    ('1e-10', '1.49e-9', '1e-10')
    """
    exact = Fraction(repr(delta)) if isinstance(delta, float) else delta
    power = math.floor(math.log10(exact)) if exact > 0 else 0
    digits = math.ceil(exact * Fraction(10) ** (2 - power))
    return f"{digits / 100:g}e{power}"


def digest_of(content: Mapping[str, Any]) -> str:
    """SHA-256 of plain data in canonical JSON.

    Examples
    --------
    >>> digest_of({"b": 1, "a": 2}) == digest_of({"a": 2, "b": 1})
    True
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
