"""Candidate trees of counts and shares of the budget for a congenial plan: what its schema and facts allow.

A tree is a query for each level, each refining the one above, and every cell in the leaves. The candidates have a
coarser query Q above some level, Q and every cell at that level, and every cell below it. Which of them
is best depends on the population and on what is tabulated: :mod:`das.evaluation.trees` simulates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from das.errors import ConfigError
from das.plan import presets
from das.plan.plan import Plan
from das.plan.tree_of_counts import tree_of
from das.schema.query import Query, parse_query

__all__ = ["Candidate", "candidate_shares", "candidate_trees", "own", "with_shares"]

PRODUCTION = "pl94-2020"
MOST_QUERIES = 6
"""Coarser queries that are tried: those that are measured, then those that are tabulated."""

Shares = Mapping[str, Fraction]
Queries = dict[str, dict[str, Fraction]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A tree and shares in words, and the plan that has them."""

    tree: str
    shares: str
    plan: Plan


def own(plan: Plan) -> Candidate:
    """Return the plan itself as a candidate."""
    return Candidate(tree="the plan's own", shares="the plan's own", plan=plan)


def candidate_trees(plan: Plan) -> tuple[Candidate, ...]:
    """List the candidate trees with the plan's own shares of the levels; what crosses a public fact is left out.

    Examples
    --------
    >>> from das.plan.load import load
    >>> [each.tree for each in candidate_trees(load("pl94-2020-units-us"))]  # the number of units of a block is public
    ['total above block, detailed at block', 'total down to block, detailed from block on']
    """
    levels, leaf, geolevels = plan.levels, plan.levels[-1], _geolevels(plan)
    cells = {level: {"detailed": Fraction(1)} for level in levels}
    found: dict[str, Queries] = {"detailed at every level": cells}
    for query in _coarser(plan):
        above = {level: {query.name: Fraction(1)} for level in levels}
        found[f"{query.name} above {leaf}, detailed at {leaf}"] = above | {leaf: cells[leaf]}
        for switch in dict.fromkeys((levels[0], *levels[-2:])):
            at = levels.index(switch)
            both = {query.name: Fraction(1, 2), "detailed": Fraction(1, 2)}
            queries = {level: (above if depth < at else cells)[level] for depth, level in enumerate(levels)}
            found[f"{query.name} down to {switch}, detailed from {switch} on"] = queries | {switch: both}
    return tuple(
        Candidate(tree=words, shares="the plan's own", plan=made)
        for words, queries in found.items()
        if _is_tree(made := plan.with_strategy(geolevels, queries).with_method("congenial"))
    )


def candidate_shares(plan: Plan) -> dict[str, dict[str, Fraction]]:
    """List other shares of the levels: more in the leaves, equal ones, and those of production in 2020 if they fit.

    Examples
    --------
    >>> from das.plan.load import load
    >>> {name: str(shares["block"]) for name, shares in candidate_shares(load("pl94-2020")).items()}
    {'a third in block': '1/3', 'half in block': '1/2', 'equal': '1/6', 'production 2020': '165/4099'}
    """
    geolevels, leaf = _geolevels(plan), plan.levels[-1]
    above = 1 - geolevels[leaf]
    found = {}
    for words, share in ((f"a third in {leaf}", Fraction(1, 3)), (f"half in {leaf}", Fraction(1, 2))):
        found[words] = {level: whole / above * (1 - share) for level, whole in geolevels.items()} | {leaf: share}
    found["equal"] = {level: Fraction(1, len(plan.levels)) for level in plan.levels}
    production = presets.read(PRODUCTION)["strategy"]["geolevels"]
    if set(plan.levels) <= set(production):
        whole = sum(Fraction(production[level]) for level in plan.levels)
        found["production 2020"] = {level: Fraction(production[level]) / whole for level in plan.levels}
    return found if above else {"equal": found["equal"]}


def with_shares(candidate: Candidate, words: str, geolevels: Shares) -> Candidate | None:
    """Return the candidate's tree with other shares of the levels; None if the sampler is not proved for them."""
    queries: Queries = {level: {} for level in candidate.plan.levels}
    whole = _geolevels(candidate.plan)
    for m in candidate.plan.measurements:
        queries[m.level][m.query.name] = m.share / whole[m.level]
    plan = candidate.plan.with_strategy(geolevels, queries)
    return Candidate(tree=candidate.tree, shares=words, plan=plan) if _is_tree(plan) else None


def _geolevels(plan: Plan) -> dict[str, Fraction]:
    return {level: sum((m.share for m in plan.at(level)), Fraction(0)) for level in plan.levels}


def _coarser(plan: Plan) -> Iterator[Query]:
    """Queries that do not tell every cell apart: total, what is measured, what is tabulated; coarse to fine."""
    tabulated = (parse_query(plan.schema, name) for name in plan.settings.output.tables or ())
    named = (parse_query(plan.schema, "total"), *(m.query for m in plan.measurements), *tabulated)
    found = {tuple(q.axes.values()): q for q in named if q.size < plan.schema.size}
    yield from sorted(list(found.values())[:MOST_QUERIES], key=lambda query: query.size)


def _is_tree(plan: Plan) -> bool:
    try:
        tree_of(plan)
    except ConfigError:
        return False
    return True
