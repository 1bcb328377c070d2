"""Limits that a parent must keep so that its counts can be split among its children; proofs in ``attainable.md``.

The sums of the children's limits are necessary. Where two nested queries are limited they need not suffice: two blocks
of one person each, of which one has beds of kinds a and b and the other of kinds c and d, cannot house a parent's one
person in a and one in b, though no kind and no total exceeds its sum. What is missing is a limit on a and b together.
Here bounds on all sets of answers are propagated up the spine, and the limits that the plain sums do not imply are
added to the facts. Where no limits on sums suffice, the plan is refused before anything is measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from das.errors import Problem
from das.facts.attainable import Attainable
from das.facts.components import Component, components_of
from das.facts.fact import Fact, Facts, limits_of, tighter
from das.schema.limits import NO_LIMIT, Limits
from das.schema.query import Query, parse_query
from das.schema.selection import select
from geography import Spine
from geography.summation import sum_ranges

__all__ = ["Upsweep", "sweep_up"]

MOST_ELEMENTS = 10
"""All sets of so many answers are still few: 1,024."""
_AT_ONCE = 1 << 21
"""Sets times geounits that are processed together."""
_LONGEST_NAME = 200


@dataclass(slots=True)
class Upsweep:
    """Result of the propagation: sufficient facts, refusals where nothing suffices, and infeasible geounits."""

    facts: Facts
    refused: list[Problem] = field(default_factory=list)
    infeasible: dict[str, NDArray[np.int64]] = field(default_factory=dict)  # level to geounits; the lowest level only


def sweep_up(facts: Facts, spine: Spine) -> Upsweep:
    """Add to each level's facts the limits under which every family below can be solved."""
    result = Upsweep(dict(facts))
    boxes: dict[str, list[int]] = {}
    for component in components_of(facts, spine):
        if component.box is not None:
            boxes.setdefault(component.box[0], []).append(component.box[1])
        elif component.elements <= MOST_ELEMENTS:
            _propagate(component, spine, result)
        else:
            for name, limited in component.answers.items():
                _propagate_boxes(name, np.array([answer for answer, _ in limited]), spine, result)
            result.refused += _unless_boxes(component, result.facts, spine)
    for name, answers in boxes.items():
        _propagate_boxes(name, np.array(answers), spine, result)
    return result


def _propagate(component: Component, spine: Spine, result: Upsweep) -> None:
    """Propagate the attainable sums of one component up the spine, level by level."""
    below: Attainable | None = None
    inexact: NDArray[np.bool_] = np.zeros(spine.size(spine.levels[-1]), dtype=bool)
    for at in reversed(range(len(spine.levels))):
        level = spine.levels[at]
        limits = limits_of(result.facts[level], slice(None))
        if below is not None:
            result.facts[level] = _completed(component, result, level, limits, below)
        if at == 0:
            return
        offsets = spine.first_child(spine.levels[at - 1])
        above, doubtful, empty = _of_parents(component, limits, below, inexact, offsets)
        alone = np.repeat(np.diff(offsets) == 1, np.diff(offsets))
        refused = doubtful & ~alone
        if refused.any():
            result.refused.append(_refusal(component, spine, level, int(np.flatnonzero(refused)[0])))
        if empty.any():
            earlier = result.infeasible.get(level, np.zeros(0, dtype=np.int64))
            result.infeasible[level] = np.union1d(earlier, np.flatnonzero(empty))
        if refused.any() or empty.any():
            return
        below, inexact = above, np.logical_or.reduceat(doubtful, offsets[:-1])


def _propagate_boxes(name: str, answers: NDArray[np.int64], spine: Spine, result: Upsweep) -> None:
    """Propagate answers that overlap with no other: each is an interval, and intervals add up."""
    low, high = np.zeros(1, dtype=np.int64), NO_LIMIT
    for at in reversed(range(len(spine.levels))):
        level = spine.levels[at]
        limits = {limit.query.name: limit for limit in limits_of(result.facts[level], slice(None))}
        if name not in limits:
            continue  # nothing is limited here or below
        limit = limits[name]
        least, most = limit.lower.copy(), limit.upper.copy()
        least[:, answers] = np.maximum(least[:, answers], low)
        most[:, answers] = np.minimum(most[:, answers], high)
        facts = {(fact.query.name, fact.sign): fact for fact in result.facts[level]}
        if (most < limit.upper).any():
            facts[name, "<="] = tighter(Fact(limit.query, "<=", most), facts.get((name, "<=")))
        if (least > limit.lower).any():
            facts[name, ">="] = tighter(Fact(limit.query, ">=", least), facts.get((name, ">=")))
        result.facts[level] = tuple(facts.values())
        empty = np.flatnonzero((least > most)[:, answers].any(axis=1) | _impossible(limit.query, least, answers))
        if len(empty):
            result.infeasible[level] = np.union1d(result.infeasible.get(level, empty), empty)
            return
        if at:
            offsets = spine.first_child(spine.levels[at - 1])
            low = sum_ranges(least[:, answers], offsets)
            high = np.minimum(sum_ranges(most[:, answers], offsets), NO_LIMIT)


def _impossible(query: Query, least: NDArray[np.int64], answers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Find geounits that must have people in an answer of structural zeros alone."""
    reached = np.zeros(query.size, dtype=bool)
    reached[query.index[query.schema.possible]] = True
    never = answers[~reached[answers]]
    return np.asarray((least[:, never] > 0).any(axis=1))


def _of_parents(
    component: Component,
    limits: tuple[Limits, ...],
    below: Attainable | None,
    inexact: NDArray[np.bool_],
    offsets: NDArray[np.int64],
) -> tuple[Attainable, NDArray[np.bool_], NDArray[np.bool_]]:
    """Impose a level's limits and sum over each family, some families at a time.

    Returns the attainable sums of the parents, and which geounits are inexact or infeasible.
    """
    sums, doubtful, empty = [], inexact.copy(), np.zeros_like(inexact)
    most = max(1, _AT_ONCE >> component.elements)
    first = 0
    while first < len(offsets) - 1:
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + most, side="right")) - 1)
        units = slice(int(offsets[first]), int(offsets[last]))
        count = units.stop - units.start
        here = (
            Attainable.anything(count, component.elements)
            if below is None
            else Attainable(below.least[units], below.most[units])
        )
        here, missed = here.within(component.limits(limits, units))
        doubtful[units] |= missed
        empty[units] = here.empty
        sums.append(here.summed(offsets[first : last + 1] - offsets[first]))
        first = last
    return (
        Attainable(np.concatenate([s.least for s in sums]), np.concatenate([s.most for s in sums])),
        doubtful,
        empty,
    )


def _completed(
    component: Component, result: Upsweep, level: str, limits: tuple[Limits, ...], below: Attainable
) -> tuple[Fact, ...]:
    """Add to a level's facts the limits that follow from the children and that the facts do not yet imply."""
    units, everything = slice(None), below.most.shape[1] - 1
    facts = {(fact.query.name, fact.sign): fact for fact in result.facts[level]}
    free = Attainable.anything(len(below.most), component.elements)
    implied, _ = free.within(component.limits(limits, units))
    if not _short(implied, below).any():
        return result.facts[level]
    for name, answers in component.answers.items():
        for fact in _facts_on(component.queries[name], answers, implied, below):
            facts[name, fact.sign] = tighter(fact, facts.get((name, fact.sign)))
    implied, _ = free.within(component.limits(limits_of(tuple(facts.values()), units), units))
    short = _short(implied, below)
    fixed = bool((below.least[:, everything] == below.most[:, everything]).all())
    for members in np.flatnonzero(short.any(axis=0)).tolist():
        bits = [1 << bit for bit in range(component.elements) if members >> bit & 1]
        # With a total that is known, the most of a set is the total without the least of the others.
        upper = implied.most[:, members] > below.most[:, members]
        lower = (implied.least[:, members] < below.least[:, members]) & (not fixed)
        # A limit that follows from those on one element and on the others is left out.
        for bit in bits if len(bits) > 1 else ():
            upper &= below.most[:, members] != below.most[:, members ^ bit] + below.most[:, bit]
            lower &= below.least[:, members] != below.least[:, members ^ bit] + below.least[:, bit]
        if not (upper.any() or lower.any()):
            continue
        query = _joint(component, members)
        if len(query.name) > _LONGEST_NAME:
            reason = f"the limits on {component.names} ask for joint limits on too many answers"
            result.refused.append(Problem(f"facts at {level}", reason, _REMEDY))
            break
        for fact in _facts_on(query, [(0, members)], implied, below, upper, lower):
            facts[query.name, fact.sign] = fact
    return tuple(facts.values())


def _short(implied: Attainable, below: Attainable) -> NDArray[np.bool_]:
    return np.asarray((implied.most > below.most) | (implied.least < below.least))


def _facts_on(
    query: Query,
    answers: list[tuple[int, int]],
    implied: Attainable,
    below: Attainable,
    upper: NDArray[np.bool_] | None = None,
    lower: NDArray[np.bool_] | None = None,
) -> Iterator[Fact]:
    """Facts of a query where they are tighter than those already implied."""
    most = np.full((len(below.most), query.size), NO_LIMIT)
    least = np.zeros_like(most)
    for answer, members in answers:
        less = implied.most[:, members] > below.most[:, members] if upper is None else upper
        more = implied.least[:, members] < below.least[:, members] if lower is None else lower
        most[less, answer] = below.most[less, members].astype(np.int64)
        least[more, answer] = below.least[more, members].astype(np.int64)
    if (most < NO_LIMIT).any():
        yield Fact(query, "<=", most)
    if least.any():
        yield Fact(query, ">=", least)


def _joint(component: Component, members: int) -> Query:
    """Find the coarsest query whose answers make up a set of elements, and select them."""
    inside = (component.element >= 0) & ((members >> np.maximum(component.element, 0)) & 1 > 0)
    possible = next(iter(component.queries.values())).schema.possible
    for query in sorted(component.queries.values(), key=lambda query: query.size):
        chosen = np.unique(query.index[inside])
        if inside[possible & np.isin(query.index, chosen)].all():
            return select(query, tuple(chosen.tolist()))
    cells = parse_query(query.schema, "detailed")
    return select(cells, tuple(np.flatnonzero(inside).tolist()))


_REMEDY = (
    "limit one query, or queries of which each refines the next and none between two others, "
    'below the top; or limit some of them at the top alone; or accept with `estimate.split = "attempted"` that a '
    "family may end the run"
)


def _refusal(component: Component, spine: Spine, level: str, unit: int) -> Problem:
    reason = (
        f"the limits on {component.names} do not nest: whether the counts above {level} can be split among its "
        "geounits would be known only when they have been drawn"
    )
    return Problem(f"{level} {spine.geocodes(level)[unit]}", reason, _REMEDY)


def _unless_boxes(component: Component, facts: Facts, spine: Spine) -> Iterator[Problem]:
    """Refuse a component of too many answers, unless one query at each level implies all limits: boxes add up."""
    for at in range(1, len(spine.levels)):
        level = spine.levels[at]
        if (np.diff(spine.first_child(spine.levels[at - 1])) == 1).all():
            continue
        limiting = [
            limit
            for limit in limits_of(facts[level], slice(None))
            if limit.query.name in component.answers and ((limit.lower > 0) | (limit.upper < NO_LIMIT)).any()
        ]
        left = [limit for limit in limiting if not any(_implied(limit, by) for by in limiting if by is not limit)]
        if len(left) > 1:
            names = " and ".join(repr(limit.query.name) for limit in left)
            reason = (
                f"the limits on {names} overlap in {component.elements} kinds of answers, which are too many to combine"
            )
            yield Problem(f"facts at {level}", reason, f"bring them to at most {MOST_ELEMENTS}, or {_REMEDY}")
            return


def _implied(coarse: Limits, fine: Limits) -> bool:
    """Whether the limits of a finer query imply those of a coarser one at every geounit."""
    if fine.query.size <= coarse.query.size or not fine.query.refines(coarse.query):
        return False
    into = np.zeros(fine.query.size, dtype=np.int64)
    into[fine.query.index] = coarse.query.index
    reached = np.unique(fine.query.index[fine.query.schema.possible])
    lower, upper = np.zeros_like(coarse.lower.T), np.zeros_like(coarse.upper.T)
    np.add.at(lower, into[reached], fine.lower.T[reached])
    np.add.at(upper, into[reached], fine.upper.T[reached])
    implied = (coarse.lower <= lower.T) & (coarse.upper >= upper.T)
    return bool(implied.all())
