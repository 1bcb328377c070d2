"""A generated country to try a plan on: its geography or part of it, people about nobody, and the public facts.

The geography and the bounds come from the config's public files. No record is read: people are generated
(:func:`das.demo.anywhere.populate`), with public margins where these are given, changed where they break a bound, and
invariants are counted from them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from das.demo.anywhere import populate
from das.demo.fit import fitted, missed_by
from das.demo.margins import read_margins
from das.errors import InfeasibleError, Problem, UsageError
from das.evaluation.repeat import World, for_testing
from das.facts.collect import facts_of, require_agreement
from das.facts.fact import Declared, Fact, Facts, limits_of
from das.plan.geography import spine_of
from das.plan.plan import Plan
from das.schema.limits import NO_LIMIT
from das.schema.query import Query
from geography import Spine

__all__ = ["Country", "answers_of", "country_of", "generate_country", "whole_country_fits", "with_generated", "within"]

MOST_CELLS, MOST_LEAVES = 400_000, 2_000
"""Cells of all leaves together, and leaves: a draw of so many takes about a second."""

MOST_IN_MEMORY = 100_000_000
ATTEMPTS = 20
"""Cells of all leaves together that a whole generated country may have."""

FEWEST = 4
"""Geounits of which some are taken, so that there are neighbours."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Country:
    """Counts of every leaf of a spine, and what is public about them.

    Parameters
    ----------
    spine : Spine
        The geounits.
    cells : ndarray of int
        Leaves x cells.
    facts : Facts
        Invariants and bounds by level, propagated up the spine.
    whole : int
        Leaves of the geography from which these were taken.
    """

    spine: Spine
    cells: NDArray[np.int64]
    facts: Facts
    whole: int

    def answers(self, level: str, query: Query) -> NDArray[np.int64]:
        """Answers of a query in each geounit of a level."""
        return answers_of(self.spine, self.cells, level, query)

    def limits(self, level: str, query: Query) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Lower and upper limits on the answers of a query in each geounit of a level."""
        for found in limits_of(self.facts.get(level, ()), slice(None)):
            if found.query.name == query.name:
                return found.lower, found.upper
        shape = self.spine.size(level), query.size
        return np.zeros(shape, dtype=np.int64), np.full(shape, NO_LIMIT, dtype=np.int64)


def answers_of(spine: Spine, cells: NDArray[np.int64], level: str, query: Query) -> NDArray[np.int64]:
    """Answers of a query in each geounit of a level, from counts of leaves x cells."""
    summed: NDArray[np.int64] = spine.tabulate(level, query.answer(cells))
    return summed


def generate_country(plan: Plan, seed: int, leaves: int | None = None, margins: Path | None = None) -> Country:
    """Generate people over the plan's own geography, or over some of it where it is large.

    Parameters
    ----------
    plan : Plan
        Its geography and bounds are read; its records are not.
    seed : int
        Which of the many such countries.
    leaves : int, optional
        How many leaves at most; as many as a draw takes a second for, unless given.
    margins : Path, optional
        A table of public margins (:func:`das.demo.margins.read_margins`), of the whole geography.

    Raises
    ------
    InfeasibleError
        No people were found who have all margins and obey all bounds.
    """
    whole = spine_of(plan)
    most = max(1, min(MOST_LEAVES, MOST_CELLS // plan.schema.size)) if leaves is None else leaves
    spine = within(whole, most)
    declared = list(_bounds(plan, whole, spine))
    if margins is None:
        people = populate(plan.schema, spine, seed)
    else:  # margins are about the whole
        stated = read_margins(margins, plan.schema, whole)
        people = populate(plan.schema, whole, seed, margins=stated)
        limits = list(_bounds(plan, whole, whole))
        # A bound moves people out of a place; fitting adds others where people are, so both soon hold.
        for attempt in range(ATTEMPTS):
            people = _obeying(people, whole, limits)
            if not missed_by(people, whole, stated):
                break
            people = fitted(people, whole, stated, Generator(PCG64([seed, 2, attempt])))
        else:
            remedy = "look for a bound that leaves no room for the margin"
            missed = missed_by(_obeying(people, whole, limits), whole, stated)
            raise InfeasibleError([Problem(each, "does not go with the bounds", remedy) for each in missed[:20]])
        people = people[whole.locate(whole.levels[-1], spine.leaves)]
    cells = _obeying(people, spine, declared)
    for invariant in plan.invariants:
        fact = Fact(invariant.query, "=", answers_of(spine, cells, invariant.level, invariant.query))
        declared.append(Declared(invariant.level, fact, invariant.reason, shown=False))
    facts = require_agreement(tuple(declared), spine) if declared else {}
    return Country(spine=spine, cells=cells, facts=facts, whole=len(whole.leaves))


def country_of(plan: Plan) -> Country:
    """Return a country of the config's own data, which it must declare to be public or generated.

    Raises
    ------
    UsageError
        The data are confidential, or do not fit in memory.
    """
    if plan.settings.input.data == "confidential":
        reason = "the config does not declare them to be public or generated, and what depends on them is not protected"
        raise UsageError(Problem("the data", reason, "leave --public out: people are then generated"))
    leaves = whole_country_fits(plan)
    with tempfile.TemporaryDirectory(prefix="das-country-") as folder:
        testing = for_testing(plan, Path(folder) / "ledger.sqlite")
        world = World.tabulate({"": testing}, Path(folder), ())
    counts = world.truth[plan.levels[-1]]
    cells = np.zeros((leaves, plan.schema.size), dtype=np.int64)
    cells[counts.unit, counts.cell] = counts.count

    def true(level: str, query: Query) -> NDArray[np.int64]:
        return answers_of(world.spine, cells, level, query)

    return Country(spine=world.spine, cells=cells, facts=facts_of(plan, world.spine, true), whole=leaves)


def whole_country_fits(plan: Plan) -> int:
    """Return how many leaves the whole geography has, or say that its people do not fit in memory."""
    leaves = len(spine_of(plan).leaves)
    if leaves * plan.schema.size > MOST_IN_MEMORY:
        reason = f"{leaves:,} leaves with {plan.schema.size:,} cells each are too many to generate at once"
        raise UsageError(Problem("geography", reason, "name a geography of some of them, such as one state"))
    return leaves


def with_generated(plan: Plan, country: Country, path: Path) -> Plan:
    """Write a country's people as counts into a Parquet file; return the plan that reads them instead of its own data.

    What an earlier release published is not about these people, so the plan no longer has to agree with it.
    """
    schema, (leaf, cell) = plan.schema, np.nonzero(country.cells)
    codes = np.unravel_index(cell, schema.shape)
    geocode, count = (_unused(name, schema.names) for name in ("geocode", "count"))
    columns = {geocode: pa.array(country.spine.leaves[leaf].tolist(), pa.string())}
    for attribute, code in zip(schema.attributes, codes, strict=True):
        columns[attribute.name] = pa.array(attribute.labels, pa.string()).take(pa.array(code))
    pq.write_table(pa.table(columns | {count: pa.array(country.cells[leaf, cell])}), path)
    files = {"data": "generated", "microdata": (), "histograms": (str(path.resolve()),)}
    shape = {"geocode": (geocode,), "count": count, "columns": {}, "values": {}, "cell": ()}
    update = files | shape | {"ledger": None, "budget": None}
    settings = plan.settings.model_copy(update={"input": plan.settings.input.model_copy(update=update)})
    return replace(plan, settings=settings, published=())


def _unused(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += "_"
    return name


def within(spine: Spine, leaves: int) -> Spine:
    """Return some of a spine with at most about so many leaves: whole geounits of one level, spread evenly.

    They are of the highest level of which at least four fit.

    Examples
    --------
    >>> codes = np.array([f"{i:03d}" for i in range(100)])
    >>> spine = Spine.from_paths(["state", "county", "block"], [codes.astype("U1"), codes.astype("U2"), codes])
    >>> within(spine, 40), within(spine, 3)
    (Spine(state 1, county 4, block 40), Spine(state 1, county 3, block 3))
    """
    if len(spine.leaves) <= leaves:
        return spine
    level, fit = spine.levels[-1], leaves
    for candidate in spine.levels:
        units = spine.size(candidate)
        fit = leaves * units // len(spine.leaves)
        if min(FEWEST, units) <= fit:
            level = candidate
            break
    ranges = spine.leaf_ranges(level)
    taken = np.unique(np.linspace(0, len(ranges) - 2, max(1, fit)).astype(np.int64))
    kept = np.concatenate([np.arange(ranges[unit], ranges[unit + 1]) for unit in taken])
    paths, real = [], []
    for name in spine.levels:
        at = np.searchsorted(spine.leaf_ranges(name), kept, side="right") - 1
        paths.append(spine.geocodes(name)[at])
        real.append(spine.real(name)[at])
    return Spine.from_paths(spine.levels, paths, real)


def _bounds(plan: Plan, whole: Spine, spine: Spine) -> Iterator[Declared]:
    """Declared bounds for the geounits that are taken; one of which a part is taken keeps its upper bound alone."""
    facts = facts_of(plan, whole, None) if plan.bounds else {}
    for bound in plan.bounds:
        level = bound.level
        at = whole.locate(level, spine.geocodes(level))
        complete = np.diff(whole.leaf_ranges(level))[at] == np.diff(spine.leaf_ranges(level))
        (found,) = (f for f in facts[level] if (f.query.name, f.sign) == (bound.query.name, bound.sense))
        values = found.values[at]
        if bound.sense == ">=":
            values = np.where(complete[:, None], values, 0)
        yield Declared(level, Fact(bound.query, bound.sense, values), bound.source)


def _obeying(cells: NDArray[np.int64], spine: Spine, bounds: list[Declared]) -> NDArray[np.int64]:
    """Take away people who are too many for an upper bound, then add those that a lower bound misses."""
    cells = cells.copy()
    for sense in ("<=", ">="):
        for each in (bound for bound in bounds if bound.fact.sign == sense):
            query, ranges = each.fact.query, spine.leaf_ranges(each.level)
            away = answers_of(spine, cells, each.level, query) - each.fact.values
            for unit, answer in np.argwhere(away > 0 if sense == "<=" else away < 0).tolist():
                leaf = slice(int(ranges[unit]), int(ranges[unit + 1]))
                mine = np.flatnonzero((query.index == answer) & query.schema.possible)
                if sense == ">=":
                    cells[leaf.start, mine[0]] -= away[unit, answer]
                    continue
                there = cells[leaf][:, mine].reshape(-1)
                taken = np.diff(np.minimum(np.cumsum(there), away[unit, answer]), prepend=0)
                cells[leaf.start : leaf.stop, mine] -= taken.reshape(-1, len(mine))
    return cells
