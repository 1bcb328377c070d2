"""Resolve the valid sections of a config into schema, measurements and facts, and collect every problem."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import partial
from itertools import combinations
from typing import Any, TypeVar

from das.errors import Problem
from das.noise.mechanisms import Mechanism
from das.plan.constraint import Bound, Invariant, Published
from das.plan.plan import Measurement, mechanism_for
from das.plan.settings import (
    BoundSettings,
    EstimateSettings,
    InputSettings,
    InvariantSettings,
    PrivacySettings,
    PublishedSettings,
    SchemaSettings,
    StrategySettings,
)
from das.schema.column_names import file_part
from das.schema.query import Neighbours, Query, parse_query
from das.schema.schema import Attribute, Schema, SchemaError, StructuralZero
from geography.problem_list import nearest

__all__ = ["Problems", "resolve"]

T = TypeVar("T")

MOST_CELLS_AT_ONCE = 50_000
"""Cells of a schema for which estimation may use the measurements of all levels at once."""

WIDEST_NOISE = 2.0**50
"""Standard deviation of noise: far above the number of people alive, and its draws still fit 64 bits."""


class Problems:
    """Collects what is wrong in one file, so that a user mends a config once and not ten times."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[Problem] = []
        self.faulty: set[str] = set()  # sections in which something is wrong

    def add(self, key: str, reason: str, remedy: str = "") -> None:
        """Note what is wrong with a key."""
        self.faulty.add(key.split(".")[0])
        self.found.append(Problem(f"{self.file}, {key}", reason, remedy))

    def attempt(self, key: str, build: Callable[[], T]) -> T | None:
        """Build something, or note why a key's value cannot be built from."""
        try:
            return build()
        except (SchemaError, ValueError) as error:
            self.add(key, str(error))
            return None


def resolve(sound: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    """Resolve the valid sections; what depends on an invalid one is skipped until that is corrected."""
    schema = _schema(sound["schema"], problems) if "schema" in sound else None
    levels = tuple(level.name for level in sound["geography"].levels) if "geography" in sound else ()
    shares = _shares(sound["strategy"], levels, problems) if levels and "strategy" in sound else {}
    if schema is None:
        return {}
    if "input" in sound:
        _check_columns(sound["input"], schema, problems)
    queries: dict[str, Query | None] = {}

    def query(key: str, name: str) -> Query | None:
        if name not in queries:
            queries[name] = problems.attempt(key, lambda: parse_query(schema, name))
        return queries[name]

    measurements = _measurements(sound.get("privacy"), shares, query, problems)
    estimate = sound.get("estimate", EstimateSettings())
    _check_order(estimate, levels, measurements, problems)
    if estimate.information == "full" and estimate.method != "congenial" and schema.size > MOST_CELLS_AT_ONCE:
        problems.add(
            "estimate.information",
            f"full information keeps matrices between cells, and the schema has {schema.size:,} of them",
            'write information = "level"',
        )
    facts = _Facts(levels, query, problems)
    for index, entry in enumerate(sound.get("invariant", ())):
        facts.add(f"invariant.{index + 1}", entry, "=")
    for index, entry in enumerate(sound.get("bound", ())):
        facts.add(f"bound.{index + 1}", entry, entry.sense)
    for index, entry in enumerate(sound.get("published", ())):
        facts.add(f"published.{index + 1}", entry, "=")
    if "input" in sound and "privacy" in sound and sound["input"].budget is not None:
        total, needed = sound["input"].budget, sound["privacy"].budget
        if total < needed:
            problems.add(
                "input.budget", f"{total} is less than this release spends, {needed}", "raise one, or lower the other"
            )
    if facts.invariants and "privacy" in sound and sound["privacy"].neighbours is Neighbours.ADD_REMOVE:
        reason = (
            "'add-remove' promises nothing beside an invariant: data sets that agree on it never differ by one record; "
            "data with a record and without it have different totals, and publishing these tells the two apart"
        )
        problems.add("privacy.neighbours", reason, 'use neighbours = "replace", or publish nothing exactly')
    elif facts.bounds and "privacy" in sound and sound["privacy"].neighbours is Neighbours.ADD_REMOVE:
        _refuse_crossing(facts.bounds, levels, problems)
    tables: list[Query | None] = [m.query for m in measurements]
    for index, name in enumerate(sound["output"].tables or () if "output" in sound else ()):
        tables.append(query(f"output.tables.{index + 1}", name))
    _refuse_one_file(tables, problems)
    return {
        "schema": schema,
        "levels": levels,
        "measurements": tuple(measurements),
        "invariants": tuple(facts.invariants),
        "bounds": tuple(facts.bounds),
        "published": tuple(facts.published),
    }


def _refuse_one_file(tables: Iterable[Query | None], problems: Problems) -> None:
    """Refuse queries whose tables would have one name, where signs and case do not count."""
    found: dict[str, str] = {}
    for query in tables:
        if query is not None:
            first = found.setdefault(file_part(query).lower(), query.name)
            if first != query.name:
                reason = f"tables of {first!r} and {query.name!r} would be one file"
                problems.add("output.tables", reason, "rename an attribute or a recode")


def _refuse_crossing(bounds: list[Bound], levels: tuple[str, ...], problems: Problems) -> None:
    """Refuse presence beside bounds that cross: no number of other records is known to make up for one.

    Beside bounds that nest, one other record takes the place of one that is gone (``das/accounting/bounds.md``).
    """
    for one, two in combinations({(b.level, b.query.name): b for b in bounds}.values(), 2):
        upper, lower = sorted((one, two), key=lambda bound: levels.index(bound.level))
        if lower.query.refines(upper.query) or (lower.level == upper.level and upper.query.refines(lower.query)):
            continue
        reason = (
            f"'add-remove' promises nothing beside bounds that cross ({upper.query.name!r} at {upper.level}, "
            f"{lower.query.name!r} at {lower.level}): take data in which both are tight for one record: they "
            "are published, and the same data without that record are refused, so the outcome tells the two apart"
        )
        problems.add(
            "privacy.neighbours", reason, 'use neighbours = "replace", or bounds of which one refines the other'
        )
        return


def _schema(settings: SchemaSettings, problems: Problems) -> Schema | None:
    for index, a in enumerate(settings.attribute):
        key = f"schema.attribute.{index + 1}"
        for name, groups in a.recodes.items():
            problems.attempt(f"{key}.recodes.{name}", partial(Attribute, a.name, a.labels, {name: groups}))
    if "schema" in problems.faulty:
        return None
    return problems.attempt(
        "schema",
        lambda: Schema(
            tuple(Attribute(a.name, a.labels, a.recodes) for a in settings.attribute),
            tuple(StructuralZero(z.name, z.labels) for z in settings.structural_zero),
        ),
    )


def _check_columns(settings: InputSettings, schema: Schema, problems: Problems) -> None:
    for section, mapping in (("columns", settings.columns), ("values", settings.values)):
        for name in mapping:
            if name not in schema.names:
                problems.add(f"input.{section}.{name}", "is not an attribute", nearest(name, schema.names))
    texts = list(settings.geocode)
    if settings.cell:
        counts = {column for cell in settings.cell for column in (cell.column, cell.minus) if column}
    else:
        counts = {settings.count} if settings.histograms else set()
        texts += [settings.columns.get(name, name) for name in schema.names]
    for name in texts:
        if name in counts:
            problems.add("input", f"column {name!r} cannot hold counts and labels or geocodes at once")
    for name, values in settings.values.items():
        if name in schema.names:
            for code, label in values.items():
                if label not in schema.attribute(name).labels:
                    problems.add(f"input.values.{name}.{code}", f"{label!r} is not a label of {name!r}")
    columns = [cell.column for cell in settings.cell]
    for index, cell in enumerate(settings.cell):
        key = f"input.cell.{index + 1}"
        if columns.index(cell.column) < index:
            problems.add(f"{key}.column", f"{cell.column!r} is counted already", "each person may be counted only once")
        missing = set(schema.names) - set(cell.labels)
        for name in sorted(missing):
            problems.add(key, f"says nothing of attribute {name!r}", "each column counts exactly one cell")
        for name, label in cell.labels.items():
            if name not in schema.names:
                problems.add(f"{key}.labels.{name}", "is not an attribute", nearest(name, schema.names))
            elif label not in schema.attribute(name).labels:
                known = schema.attribute(name).labels
                problems.add(f"{key}.labels.{name}", f"{label!r} is not a label", nearest(label, known))


Shares = dict[str, tuple[Fraction, str, Mapping[str, Fraction]]]
"""Of each level: its share of the budget, the table of queries that the config has for it, and that table."""


def _shares(strategy: StrategySettings, levels: tuple[str, ...], problems: Problems) -> Shares:
    """Shares of each level and, inside it, of each query; each set must sum to one, exactly."""
    for name in strategy.geolevels:
        if name not in levels:
            problems.add(f"strategy.geolevels.{name}", "is not a level of the geography", nearest(name, levels))
    for name in strategy.queries:
        if name not in (*levels, "all"):
            problems.add(f"strategy.queries.{name}", "is not a level of the geography", nearest(name, (*levels, "all")))
    _sums_to_one("strategy.geolevels", strategy.geolevels, problems)
    for name, table in strategy.queries.items():
        _sums_to_one(f"strategy.queries.{name}", table, problems)
    shares: Shares = {}
    for level in levels:
        geolevel = strategy.geolevels.get(level)
        if not geolevel:
            fault = "is missing" if geolevel is None else "must be above 0"
            remedy = "estimation goes down level by level and needs measurements at each"
            problems.add(f"strategy.geolevels.{level}", fault, remedy)
            continue
        name = level if level in strategy.queries else "all"
        table = strategy.queries.get(name, {})
        if not table:
            problems.add(f"strategy.queries.{level}", "is missing", "say which queries share this level's budget")
        shares[level] = (geolevel, name, table)
    return shares


def _sums_to_one(key: str, shares: Mapping[str, Fraction], problems: Problems) -> None:
    for name, share in shares.items():
        if not 0 <= share <= 1:
            problems.add(f"{key}.{name}", f"a share must lie between 0 and 1, not {share}")
    total = sum(shares.values(), Fraction(0))
    if total != 1:
        off = total - 1
        word = "too much" if off > 0 else "missing"
        problems.add(key, f"the shares sum to {total}, not 1", f"{abs(off)} is {word}")


QueryOf = Callable[[str, str], Query | None]


def _measurements(
    privacy: PrivacySettings | None, shares: Shares, query: QueryOf, problems: Problems
) -> list[Measurement]:
    out = []
    for level, (geolevel, named, table) in shares.items():
        seen: dict[tuple[str, ...], str] = {}
        for name, share in table.items():
            key = f"strategy.queries.{named}.{name}"
            found = query(key, name)
            whole = geolevel * share
            if found is None or not 0 < whole <= 1:
                continue
            earlier = seen.setdefault(tuple(found.axes.values()), name)
            if earlier != name:
                problems.add(key, f"measures the same as {earlier!r}", "give one of them both shares")
            elif privacy is not None:
                cost = privacy.budget * whole
                noise = mechanism_for(privacy.framework, cost, found, privacy.neighbours)
                if _is_too_wide(noise):
                    problems.add(
                        key, "its noise would be far larger than any population", "raise its share or the budget"
                    )
                out.append(Measurement(level=level, query=found, share=whole, cost=cost, mechanism=noise))
    return out


def _is_too_wide(noise: Mechanism) -> bool:
    """Whether draws of this noise say nothing about any population, and may not even fit 64 bits."""
    try:
        return noise.variance() > WIDEST_NOISE**2
    except OverflowError:
        return True


def _check_order(
    settings: EstimateSettings, levels: tuple[str, ...], measurements: list[Measurement], problems: Problems
) -> None:
    """Passes name queries that are measured, each once, and levels that exist."""
    if settings.passes and settings.information == "full":
        problems.add(
            "estimate.passes",
            "are for measurements of one level at a time; full information uses all of them at once",
            'leave them out, or write information = "level"',
        )
    for level, order in settings.passes.items():
        key = f"estimate.passes.{level}"
        if levels and level not in (*levels, "all"):
            problems.add(key, "is not a level of the geography", nearest(level, (*levels, "all")))
            continue
        names = [name for each in order for name in each]
        known = list(dict.fromkeys(m.query.name for m in measurements if level in (m.level, "all")))
        for name in sorted({name for name in names if names.count(name) > 1}):
            problems.add(key, f"names {name!r} twice", "each query belongs to one pass")
        for name in names if known else ():
            if name not in known:
                problems.add(key, f"names {name!r}, which is not measured there", nearest(name, known))


class _Facts:
    """Collects invariants, bounds and published tables; nothing may be declared twice, whatever the data are."""

    def __init__(self, levels: tuple[str, ...], query: QueryOf, problems: Problems) -> None:
        self.levels, self.query, self.problems = levels, query, problems
        self.invariants: list[Invariant] = []
        self.bounds: list[Bound] = []
        self.published: list[Published] = []
        self._seen: dict[tuple[str, tuple[str, ...], str], str] = {}

    def add(self, key: str, entry: InvariantSettings | BoundSettings | PublishedSettings, sign: str) -> None:
        if self.levels and entry.level not in self.levels:
            self.problems.add(f"{key}.level", f"{entry.level!r} is not a level", nearest(entry.level, self.levels))
        found = self.query(f"{key}.query", entry.query)
        if found is None:
            return
        earlier = self._seen.setdefault((entry.level, tuple(found.axes.values()), sign), key)
        if earlier != key:
            reason = f"{entry.query!r} at {entry.level!r} is already declared by {earlier}"
            self.problems.add(key, reason, "keep one of them")
        if isinstance(entry, InvariantSettings):
            self.invariants.append(Invariant(found, entry.level, entry.reason))
            return
        entries = entry.model_dump(exclude={"query"})
        if isinstance(entry, BoundSettings):
            self.bounds.append(Bound(query=found, **entries))
        else:
            self.published.append(Published(query=found, **entries))
