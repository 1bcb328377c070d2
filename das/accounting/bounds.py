"""How many records must be allowed to change beside public bounds: the theorem, and where it applies.

Where every two public facts nest or are disjoint, one compensating record is always enough: a(t) <= 2, whatever the
published numbers are. ``bounds.md`` has the proof. Facts that cross are enumerated where they are few and small.
"""

from __future__ import annotations

from itertools import combinations

from das.accounting.hierarchy import HierarchicalPlan, refines

__all__ = ["compensation_is_proved", "crossing_facts"]

Pair = tuple[str, str]


def crossing_facts(plan: HierarchicalPlan) -> tuple[tuple[Pair, Pair], ...]:
    """Give the pairs of public facts whose cells may cross: neither holds the other, and they are not disjoint.

    Examples
    --------
    >>> plan = HierarchicalPlan(
    ...     levels=("state", "block"), units=(1, 9), attributes=(("sex", 2),), events=(),
    ...     queries={"total": (None,), "sex": ((0, 1),)},
    ...     invariants=(("state", "total"),), bounds=(("block", "sex"),))
    >>> crossing_facts(plan)
    ()
    >>> from dataclasses import replace
    >>> crossing_facts(replace(plan, bounds=(("state", "sex"), ("block", "total"))))
    ((('state', 'sex'), ('block', 'total')),)
    """
    facts = tuple(dict.fromkeys((*plan.invariants, *plan.bounds)))
    return tuple((one, two) for one, two in combinations(facts, 2) if not _nest(plan, one, two))


def compensation_is_proved(plan: HierarchicalPlan) -> bool:
    """Tell whether a(t) as `das.accounting.moves.adjacency` gives it is proved beside the public bounds of a plan."""
    return not plan.bounds or plan.known_adjacency is not None or not crossing_facts(plan)


def _nest(plan: HierarchicalPlan, one: Pair, two: Pair) -> bool:
    """Whether each answer of the one, in each geounit, lies within an answer of the other, or the other way round."""
    return _within(plan, one, two) or _within(plan, two, one)


def _within(plan: HierarchicalPlan, inner: Pair, outer: Pair) -> bool:
    depth, above = plan.depth(inner[0]), plan.depth(outer[0])
    # a lower level with as many geounits has the same ones
    same_or_below = depth >= above or plan.units[depth] == plan.units[above]
    return same_or_below and refines(plan.queries[inner[1]], plan.queries[outer[1]])
