"""t, the public facts: what estimation reads beside the measurements, carried up the spine, checked for contradictions.

A fact at one level says something about every level above it: the children's lower bounds, upper bounds and exact
values add up. With these sums in place at the top, each parent is estimated so that its children can still obey.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from das.constraint import Bound
from das.errors import InputError, Problem, ProblemsFound
from das.estimation.problem import NO_LIMIT, Limits
from das.plan import Plan
from das.query import Query
from geography import Spine, column_names, read_text_columns
from geography.arrays import Codes
from geography.findings import Source, listed, nearest
from geography.reading import read_parquet
from geography.summation import sum_ranges

__all__ = ["Fact", "Sign", "answer_names", "contradictions", "facts_of", "limits_of"]

Sign = Literal["=", ">=", "<="]
Facts = dict[str, tuple["Fact", ...]]
TrueAnswers = Callable[[str, Query], NDArray[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class Fact:
    """Public values of one query for each geounit of a level; ``NO_LIMIT`` where an upper bound says nothing."""

    query: Query
    sign: Sign
    values: NDArray[np.int64]  # units x query.size


def facts_of(plan: Plan, spine: Spine, true_answers: TrueAnswers | None) -> Facts:
    """Collect the facts of every level, those implied from below included.

    Parameters
    ----------
    plan, spine
        What is declared, and where.
    true_answers
        Gives the exact answers that invariants publish; ``None`` where no record may be read, and then invariants are
        left out.

    Raises
    ------
    InputError
        A bound's file does not fit, or the data do not obey a bound; no count is shown.
    """
    problems: list[Problem] = []
    below: tuple[Fact, ...] = ()
    facts: Facts = {}
    for level in reversed(spine.levels):
        found: dict[tuple[str, Sign], Fact] = {}
        for fact in below:  # one level further up
            summed = np.minimum(sum_ranges(fact.values, spine.first_child(level)), NO_LIMIT)
            found[fact.query.name, fact.sign] = Fact(fact.query, fact.sign, summed)
        if true_answers is not None:
            for invariant in plan.invariants:
                if invariant.level == level:
                    values = true_answers(level, invariant.query)
                    found[invariant.query.name, "="] = Fact(invariant.query, "=", values)
        for bound in plan.bounds:
            if bound.level == level:
                before = len(problems)
                try:
                    values = _bound_values(plan, bound, spine, problems)
                except ProblemsFound as error:  # the file cannot be read at all
                    problems += error.problems
                    continue
                if true_answers is not None and len(problems) == before:
                    problems += _disobedience(bound, values, true_answers(level, bound.query), spine)
                found[bound.query.name, bound.sense] = _tighter(
                    Fact(bound.query, bound.sense, values), found.get((bound.query.name, bound.sense))
                )
        below = facts[level] = tuple(found.values())
    if problems:
        raise InputError(problems)
    return {level: facts[level] for level in spine.levels}


def limits_of(facts: tuple[Fact, ...], units: slice) -> tuple[Limits, ...]:
    """Bring the facts on each query together as one pair of limits, for some geounits of a level."""
    out: dict[str, Limits] = {}
    for fact in facts:
        values = fact.values[units]
        known = out.get(fact.query.name)
        lower = known.lower if known else np.zeros_like(values)
        upper = known.upper if known else np.full_like(values, NO_LIMIT)
        if fact.sign in ("=", ">="):
            lower = np.maximum(lower, values)
        if fact.sign in ("=", "<="):
            upper = np.minimum(upper, values)
        out[fact.query.name] = Limits(query=fact.query, lower=lower, upper=upper)
    return tuple(out.values())


def contradictions(facts: Facts, spine: Spine) -> Iterator[Problem]:
    """Name facts that cannot hold together at a geounit: with each other, or with the structural zeros.

    Finds what shows at one geounit between nested queries; whether a parent can be split among its children follows
    from the sums when a single query is limited, and is verified family by family during estimation otherwise.
    """
    for level, at_level in facts.items():
        everything = limits_of(at_level, slice(None))
        for limit in everything:
            possible = np.zeros(limit.query.size, dtype=bool)
            possible[np.unique(limit.query.index[limit.query.schema.possible])] = True
            yield from _say(
                limit.lower > limit.upper, level, spine, limit.query, "its lower bound exceeds its upper bound"
            )
            yield from _say(
                (limit.lower > 0) & ~possible, level, spine, limit.query, "people are required in a structural zero"
            )
        for fine in everything:
            for coarse in everything:
                if fine is not coarse and fine.query.refines(coarse.query):
                    yield from _nested(fine, coarse, level, spine)


def answer_names(query: Query) -> list[str]:
    """Name each answer: the labels of the attributes that the query keeps.

    Examples
    --------
    >>> from das.query import parse_query
    >>> from das.schema import Attribute, Schema
    >>> schema = Schema((Attribute("sex", ("f", "m")), Attribute("age", ("young", "old"))))
    >>> answer_names(parse_query(schema, "sex * age"))
    ['f * young', 'f * old', 'm * young', 'm * old']
    >>> answer_names(parse_query(schema, "total"))
    ['total']
    """
    return [" * ".join(labels) or "total" for labels in query.labels()]


def _nested(fine: Limits, coarse: Limits, level: str, spine: Spine) -> Iterator[Problem]:
    """Sums of the finer limits must leave room for the coarser ones."""
    into = np.zeros(fine.query.size, dtype=np.int64)
    into[fine.query.index] = coarse.query.index
    shape = (coarse.query.size, len(fine.lower))
    lower, upper = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    np.add.at(lower, into, fine.lower.T)
    np.add.at(upper, into, fine.upper.T)
    lower, upper = lower.T, upper.T
    name = fine.query.name
    yield from _say(lower > coarse.upper, level, spine, coarse.query, f"the lower bounds of {name!r} exceed it")
    yield from _say(upper < coarse.lower, level, spine, coarse.query, f"the upper bounds of {name!r} stay below it")


def _say(where: NDArray[np.bool_], level: str, spine: Spine, query: Query, reason: str) -> Iterator[Problem]:
    if not where.any():
        return
    names = answer_names(query)
    found = np.argwhere(where)
    geocodes = spine.geocodes(level)
    yield from listed(
        range(len(found)),
        lambda i: Problem(
            f"{level} {geocodes[found[i][0]]}, query {query.name!r}, answer {names[found[i][1]]!r}",
            reason,
            "mend the source of the bound, or declare fewer facts",
        ),
        Source(f"query {query.name!r}"),
    )


def _tighter(one: Fact, other: Fact | None) -> Fact:
    if other is None:
        return one
    pick = np.maximum if one.sign == ">=" else np.minimum
    return Fact(one.query, one.sign, pick(one.values, other.values))


def _disobedience(bound: Bound, values: NDArray[np.int64], truth: NDArray[np.int64], spine: Spine) -> list[Problem]:
    broken = truth < values if bound.sense == ">=" else truth > values
    reason = f"the data do not obey the declared bound {bound.sense} {bound.source}"
    return list(_say(broken, bound.level, spine, bound.query, reason))


def _bound_values(plan: Plan, bound: Bound, spine: Spine, problems: list[Problem]) -> NDArray[np.int64]:
    """Read a bound's file: a row per geounit, a column per answer."""
    path = plan.folder / bound.source
    names = answer_names(bound.query)
    values = np.zeros((spine.size(bound.level), bound.query.size), dtype=np.int64)
    known = column_names(path)
    columns = [name for name in names if name in known]
    unnamed = [i for i, name in enumerate(names) if name not in known]
    if bound.sense == "<=":
        values[:, unnamed] = NO_LIMIT
    if not columns:
        problems.append(
            Problem(
                bound.source, f"has no column named for an answer of {bound.query.name!r}", nearest(names[0], known)
            )
        )
        return values
    geocodes = read_text_columns(path, [bound.geocode], at_least=0)[bound.geocode]  # there may be no facility at all
    numbers = _number_texts(path, columns)
    source = Source.of(bound.source)
    unit = spine.locate(bound.level, geocodes)
    problems += listed(
        np.flatnonzero(unit < 0),
        lambda i: Problem(source.row(i), f"{str(geocodes[i])!r} is no {bound.level} of the spine"),
        source,
    )
    _, first = np.unique(unit, return_index=True)
    repeated = np.setdiff1d(np.flatnonzero(unit >= 0), first)
    problems += listed(
        repeated,
        lambda i: Problem(source.row(i), f"{str(geocodes[i])!r} has an earlier row", "keep one"),
        source,
    )
    for name in columns:
        text = np.strings.strip(numbers[name])
        whole = np.strings.isdecimal(text) & (np.strings.str_len(text) <= 12)
        problems += listed(
            np.flatnonzero(~whole),
            lambda i, name=name: Problem(source.row(i), f"{name!r} is not a whole number"),  # type: ignore[misc]
            source,
        )
        good = whole & (unit >= 0)
        values[unit[good], names.index(name)] = np.minimum(text[good].astype(np.int64) * bound.factor, NO_LIMIT)
    return values


def _number_texts(path: Path, columns: list[str]) -> dict[str, Codes]:
    """Read columns of numbers as they are written: a Parquet file may hold them as numbers."""
    if path.suffix != ".parquet":
        return read_text_columns(path, columns, at_least=0)
    table = read_parquet(path, columns)
    return {name: np.array([str(value) for value in table[name].to_pylist()], dtype=np.str_) for name in columns}
