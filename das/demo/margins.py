"""Public margins for a generated population: totals and marginals of some geounits, read from a small table.

The table has the columns ``level``, ``geocode``, ``query``, ``answer`` and ``count``, a row for each number:
``county,44001,total,total,49875`` or ``state,44,sex,f,543210``. Answers are named as in the columns of a bound's file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from das.errors import InputError, Problem
from das.schema.query import Query, answer_names, parse_query
from das.schema.schema import Schema, SchemaError
from geography import Spine, read_text_columns
from geography.problem_list import LISTED, Source, nearest

__all__ = ["UNSTATED", "Margin", "read_margins"]

UNSTATED = -1
"""Stands for a count that the table does not have."""

_COLUMNS = ("level", "geocode", "query", "answer", "count")
_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Margin:
    """Counts of one query in some geounits of a level; ``counts`` is geounits x answers, -1 where nothing is stated."""

    level: str
    query: Query
    units: NDArray[np.int64]
    counts: NDArray[np.int64]


def read_margins(path: Path, schema: Schema, spine: Spine) -> tuple[Margin, ...]:
    """Read a table of margins, and report every row that does not fit.

    A marginal of which every answer is stated states the total of its geounit too.

    Raises
    ------
    InputError
        A row names an unknown level, geounit, query or answer, repeats another row, or has no whole number.
    """
    columns = read_text_columns(path, _COLUMNS)
    source, problems = Source.of(path), list[Problem]()
    queries: dict[str, Query] = {}
    found: dict[tuple[str, str], dict[int, dict[int, int]]] = {}
    rows = zip(*(columns[name].tolist() for name in _COLUMNS), strict=True)
    for number, (level, geocode, name, answer, count) in enumerate(rows):
        if level not in spine.levels:
            problems.append(Problem(source.row(number), f"{level!r} is not a level", nearest(level, spine.levels)))
            continue
        try:
            query = queries.setdefault(name, parse_query(schema, name))
        except SchemaError as error:
            problems.append(Problem(source.row(number), str(error)))
            continue
        unit, names = int(spine.locate(level, np.array([geocode]))[0]), answer_names(query)
        answer = answer or "total"
        if unit < 0:
            problems.append(Problem(source.row(number), f"{geocode!r} is not a {level} of the spine"))
        elif answer not in names:
            problems.append(
                Problem(source.row(number), f"{answer!r} is not an answer of {name!r}", nearest(answer, names))
            )
        elif not (count.strip().isdecimal() and len(count.strip()) <= _DIGITS):
            problems.append(Problem(source.row(number), "`count` is not a whole number"))
        elif names.index(answer) in found.setdefault((level, query.name), {}).setdefault(unit, {}):
            problems.append(Problem(source.row(number), "states what an earlier row states", "keep one of them"))
        else:
            found[level, query.name][unit][names.index(answer)] = int(count)
    if problems:
        more = [Problem(str(path), f"and {len(problems) - LISTED} more")] if len(problems) > LISTED else []
        raise InputError([*problems[:LISTED], *more])
    by_name = {query.name: query for query in queries.values()}
    stated = [_margin(level, by_name[name], units) for (level, name), units in found.items()]
    return (*_totals(schema, spine, stated), *(each for each in stated if each.query.size > 1))


def _margin(level: str, query: Query, units: dict[int, dict[int, int]]) -> Margin:
    counts = np.full((len(units), query.size), UNSTATED, dtype=np.int64)
    for row, unit in enumerate(sorted(units)):
        for answer, count in units[unit].items():
            counts[row, answer] = count
    return Margin(level=level, query=query, units=np.array(sorted(units), dtype=np.int64), counts=counts)


def _totals(schema: Schema, spine: Spine, stated: Iterable[Margin]) -> list[Margin]:
    """Totals that are stated, and those that complete marginals imply; two that differ are refused."""
    total = parse_query(schema, "total")
    found: dict[str, dict[int, dict[int, int]]] = {}
    for margin in stated:
        complete = (margin.counts != UNSTATED).all(axis=1)
        for unit, counts in zip(margin.units[complete].tolist(), margin.counts[complete], strict=True):
            count = int(counts.sum())
            if found.setdefault(margin.level, {}).setdefault(unit, {0: count})[0] != count:
                where = f"margins of {margin.level} {spine.geocodes(margin.level)[unit]}"
                reason = f"the answers of {margin.query.name!r} do not add up to the total that is stated elsewhere"
                raise InputError(Problem(where, reason, "correct one of them"))
    return [_margin(level, total, units) for level, units in found.items()]
