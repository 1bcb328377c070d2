"""Public facts: equalities or bounds on a query's answers at each geounit of a level."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from das.schema.limits import NO_LIMIT, Limits
from das.schema.query import Query
from das.schema.selection import Selection

__all__ = ["SIGNS", "Declared", "Fact", "Facts", "Sign", "in_order", "limits_of", "tighter"]

Sign = Literal["=", ">=", "<="]
SIGNS: tuple[Sign, ...] = ("=", ">=", "<=")
Facts = dict[str, tuple["Fact", ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Fact:
    """Public values of one query for each geounit of a level; ``NO_LIMIT`` where there is no upper bound."""

    query: Query
    sign: Sign
    values: NDArray[np.int64]  # units x query.size


@dataclass(frozen=True, slots=True, eq=False)
class Declared:
    """A fact as it was declared: at one level, from a source, and whether its values may be shown."""

    level: str
    fact: Fact
    source: str
    shown: bool = True


def limits_of(facts: tuple[Fact, ...], units: slice) -> tuple[Limits, ...]:
    """Combine the facts on each query into one pair of limits, for some geounits of a level."""
    out: dict[str, Limits] = {}
    for fact in facts:
        values = fact.values[units]
        known = out.get(fact.query.name)
        lower = known.lower if known else np.zeros_like(values)
        upper = known.upper if known else np.full_like(values, NO_LIMIT)
        if fact.sign in ("=", ">="):
            lower = np.maximum(lower, np.where(values < NO_LIMIT, values, 0))
        if fact.sign in ("=", "<="):
            upper = np.minimum(upper, values)
        out[fact.query.name] = Limits(query=fact.query, lower=lower, upper=upper)
    return tuple(out.values())


def tighter(one: Fact, other: Fact | None) -> Fact:
    """Combine two facts of one query and sign into the tighter."""
    if other is None:
        return one
    pick = np.maximum if one.sign == ">=" else np.minimum
    return Fact(one.query, one.sign, pick(one.values, other.values))


def in_order(queries: Iterable[Query], facts: tuple[Fact, ...]) -> tuple[Fact, ...]:
    """Facts in the order of a plan's queries, joint limits last, and of signs: the same order whoever stated them."""
    stated = {(fact.query.name, fact.sign): fact for fact in facts}
    joint = [fact.query for fact in facts if isinstance(fact.query, Selection)]
    named = {query.name: query for query in (*queries, *joint)}
    return tuple(
        Fact(query, sign, stated[name, sign].values)
        for name, query in named.items()
        for sign in SIGNS
        if (name, sign) in stated
    )
