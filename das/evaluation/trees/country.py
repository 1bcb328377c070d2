"""A generated country to try a plan on: part of its geography, people about nobody, and the public facts.

The geography and the bounds come from the config's public files. No record is read: people are generated
(:func:`das.demo.anywhere.populate`), changed where they break a bound, and invariants are counted from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from das.demo.anywhere import populate
from das.facts.collect import facts_of, require_agreement
from das.facts.fact import Declared, Fact, Facts, limits_of
from das.plan.geography import spine_of
from das.plan.plan import Plan
from das.schema.limits import NO_LIMIT
from das.schema.query import Query
from geography import Spine

__all__ = ["Country", "generate_country", "within"]

MOST_CELLS, MOST_LEAVES = 400_000, 2_000
"""Cells of all leaves together, and leaves: a draw of so many takes about a second."""

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


def generate_country(plan: Plan, seed: int, leaves: int | None = None) -> Country:
    """Generate people over the plan's own geography, or over some of it where it is large.

    Parameters
    ----------
    plan : Plan
        Its geography and bounds are read; its records are not.
    seed : int
        Which of the many such countries.
    leaves : int, optional
        How many leaves at most; as many as a draw takes a second for, unless given.
    """
    whole = spine_of(plan)
    most = max(1, min(MOST_LEAVES, MOST_CELLS // plan.schema.size)) if leaves is None else leaves
    spine = within(whole, most)
    declared = list(_bounds(plan, whole, spine))
    cells = _obeying(populate(plan.schema, spine, seed), spine, declared)
    for invariant in plan.invariants:
        fact = Fact(invariant.query, "=", answers_of(spine, cells, invariant.level, invariant.query))
        declared.append(Declared(invariant.level, fact, invariant.reason, shown=False))
    facts = require_agreement(tuple(declared), spine) if declared else {}
    return Country(spine=spine, cells=cells, facts=facts, whole=len(whole.leaves))


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
