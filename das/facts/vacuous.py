"""Refuse facts for which nothing can be promised, before anything is drawn, with the pair of data sets that shows why.

A promise compares data sets that agree on everything public. Where the public facts leave only one, noise hides
nothing; where they fix how many people there are, the presence of a record cannot be hidden. Only declarations and
public numbers decide: what is refused for one data set is refused for every other with the same facts.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint, milp
from scipy.sparse import csr_array, eye_array, hstack, vstack

from das.accounting.hierarchy import HierarchicalPlan, finest_invariant
from das.accounting.moves import can_change_alone
from das.errors import ConfigError, NothingToPromise, Problem
from das.facts.fact import Facts, limits_of
from das.plan.for_accountant import hierarchical_plan
from das.plan.plan import Plan
from das.schema.limits import NO_LIMIT, Limits
from das.schema.query import Neighbours, Query
from geography import Spine

__all__ = ["refuse_vacuous_facts", "refuse_vacuous_plan"]

REMEDY = "publish less exactly, or declare fewer bounds"
LISTED = 3000  # counts of a world that is small enough to look for a pair of data sets in it
WEIGHTS = 2**20  # a generic objective: two data sets have the same value with probability 1 / WEIGHTS at most

Known = dict[str, tuple[Limits, ...]]


def refuse_vacuous_plan(plan: Plan, spine: Spine) -> None:
    """Refuse a plan whose declarations alone determine every count, whatever the numbers will be.

    Raises
    ------
    ConfigError
        With two data sets that differ in one record, and the published answer that tells them apart.
    """
    whole = hierarchical_plan(plan, spine)
    if _is_determined(whole):
        reason = f"nothing can be promised: the published answers determine every count. {_pair(plan, spine, whole)}"
        raise ConfigError(Problem(f"{plan.source.name}, invariant", reason, REMEDY))


def refuse_vacuous_facts(plan: Plan, spine: Spine, facts: Facts) -> None:
    """Refuse public numbers that leave no two data sets to compare.

    Raises
    ------
    NothingToPromise
        With two data sets that differ in one record, and what is public of the one and impossible for the other.
    """
    known: Known = {level: limits_of(found, slice(None)) for level, found in facts.items()}
    exact = tuple(
        (level, limits.query.name)
        for level, found in known.items()
        for limits in found
        if np.array_equal(limits.lower, limits.upper)
    )
    whole = hierarchical_plan(plan, spine)
    fixed = replace(whole, invariants=tuple(pair for pair in exact if pair[1] in whole.queries))
    if plan.settings.privacy.neighbours is Neighbours.ADD_REMOVE:
        if fixed.invariants or (_is_small(plan, spine) and not _other_exists(plan, spine, known, presence=True)):
            raise NothingToPromise(Problem("bounds", _presence_words(plan, spine), REMEDY))
        return
    if _leaves_one(plan, spine, fixed, known):
        reason = "nothing can be promised: one data set alone agrees with all public numbers. "
        raise NothingToPromise(Problem("public facts", reason + _pair(plan, spine, fixed), REMEDY))


def _leaves_one(plan: Plan, spine: Spine, whole: HierarchicalPlan, known: Known) -> bool:
    """Whether public numbers leave one data set of people; that there is nobody is nothing to hide."""
    finest = finest_invariant(whole)
    if isinstance(finest, tuple):
        level, name = finest
        limits = next(each for each in known[level] if each.query.name == name)
        counts = limits.lower.reshape(-1)
        cells = np.outer(np.diff(spine.leaf_ranges(level)), _possible_cells(plan, limits.query)).reshape(-1)
        if not counts.any():
            return False
        if not ((counts > 0) & (cells > 1)).any():  # a class is fixed when it has one cell, or nobody
            return True
    bounded = any((each.upper < NO_LIMIT).any() or (each.lower > 0).any() for found in known.values() for each in found)
    return bool(plan.bounds) and bounded and _is_small(plan, spine) and not _other_exists(plan, spine, known)


def _is_determined(whole: HierarchicalPlan) -> bool:
    return isinstance(finest_invariant(whole), tuple) and not can_change_alone(whole)


def _possible_cells(plan: Plan, query: Query) -> NDArray[np.int64]:
    possible = plan.schema.possible.reshape(-1)
    return np.bincount(query.index[possible], minlength=query.size).astype(np.int64)


def _is_small(plan: Plan, spine: Spine) -> bool:
    return spine.size(plan.levels[-1]) * int(plan.schema.possible.sum()) <= LISTED


def _other_exists(plan: Plan, spine: Spine, known: Known, *, presence: bool = False) -> bool:
    """Look for two different data sets that keep all facts: of as many people, or the one with one person more.

    One integer program over both: the difference of a generic objective is largest, and zero if there is no pair.
    """
    leaves, possible = spine.size(plan.levels[-1]), np.flatnonzero(plan.schema.possible.reshape(-1))
    cells = leaves * len(possible)
    rows, low, high = [], [], []
    for level, found in known.items():
        ranges = spine.leaf_ranges(level)
        for limits in found:
            for unit, answer in np.argwhere((limits.lower > 0) | (limits.upper < NO_LIMIT)):
                inside = np.zeros((leaves, len(possible)), dtype=np.int8)
                inside[ranges[unit] : ranges[unit + 1], limits.query.index[possible] == answer] = 1
                rows.append(csr_array(inside.reshape(1, -1)))
                low.append(float(limits.lower[unit, answer]))
                upper = limits.upper[unit, answer]
                high.append(np.inf if upper >= NO_LIMIT else float(upper))
    if not rows:
        return True
    known_rows, same = vstack(rows), csr_array(np.ones((1, cells)))
    none = csr_array(known_rows.shape)
    people = 1.0 if presence else 0.0
    parts = [hstack([known_rows, none]), hstack([none, known_rows]), hstack([same, -1 * same])]
    ends = ([*low, *low, people], [*high, *high, people])
    if presence:  # the one data set holds the other
        one = eye_array(cells)
        parts.append(hstack([one, -1 * one]))
        ends = ([*ends[0], *[0.0] * cells], [*ends[1], *[1.0] * cells])
    weights = np.random.default_rng(0).integers(1, WEIGHTS, cells).astype(np.float64)
    solved = milp(
        np.concatenate([-weights, weights]),
        integrality=np.ones(2 * cells),
        bounds=(0, float(max([1.0, *low])) * 2 + len(low) + 2),
        constraints=LinearConstraint(vstack(parts), np.array(ends[0]), np.array(ends[1])),
        options={"time_limit": 10.0},
    )
    if solved.status == 2:
        return False
    return solved.x is None or bool(np.abs(solved.x[:cells] - solved.x[cells:]).max() > 0.5)


def _pair(plan: Plan, spine: Spine, whole: HierarchicalPlan) -> str:
    """Name two made-up data sets that differ in one record, and what is public, with which one of them disagrees."""
    leaf, cells = plan.levels[-1], np.flatnonzero(plan.schema.possible.reshape(-1))
    codes = spine.geocodes(leaf)
    one, other = (int(cells[0]), 0), (int(cells[-1]), 0 if len(cells) > 1 else len(codes) - 1)
    said = [
        f"one {plan.settings.privacy.unit} ({_label(plan, cell)}) in {leaf} {codes[at]}" for cell, at in (one, other)
    ]
    facts = dict.fromkeys((*whole.invariants, *whole.bounds))
    public = ", ".join(f"{query} of each {level}" for level, query in facts)
    return (
        f"Take two data sets: the one has {said[0]}, the other has {said[1]} instead, and all else is the same. "
        f"At most one agrees with what is public ({public}): however much noise there is, readers tell them apart"
    )


def _presence_words(plan: Plan, spine: Spine) -> str:
    cell, leaf = int(np.flatnonzero(plan.schema.possible.reshape(-1))[0]), plan.levels[-1]
    who = f"one {plan.settings.privacy.unit} ({_label(plan, cell)}) in {leaf} {spine.geocodes(leaf)[0]}"
    return (
        "nothing can be promised about the presence of a record ('add-remove'): the bounds fix how many there are. "
        f"Take two data sets, of which the one has {who} more and all else is the same: one of them contradicts the "
        "bounds, is refused, and so the outcome tells them apart"
    )


def _label(plan: Plan, cell: int) -> str:
    values = np.unravel_index(cell, plan.schema.shape)
    return ", ".join(f"{a.name} {a.labels[int(v)]}" for a, v in zip(plan.schema.attributes, values, strict=True))
