"""Answers that an earlier release published: protected counts with which a later release must agree.

Reading them is post-processing: it costs no privacy budget.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from das.errors import InputError, Problem
from das.plan.constraint import Published
from das.plan.load import load
from das.schema.limits import NO_LIMIT
from das.schema.query import Query, parse_query
from das.schema.schema import SchemaError
from das.storage.counts import read_counts
from das.storage.layout import Layout
from geography import Spine
from geography.problem_list import Source, listed, nearest

__all__ = ["is_release", "released_answers"]


def is_release(path: Path) -> bool:
    """Whether a path is the folder of a finished release, rather than a table."""
    return Layout(path).release.manifest.exists()


def released_answers(published: Published, path: Path, spine: Spine, problems: list[Problem]) -> NDArray[np.int64]:
    """Answers of a query from the counts of a release, geounits x answers; ``NO_LIMIT`` where it has none of that name.

    The query means there what its name means in that release's schema; answers are matched by their labels.

    Raises
    ------
    InputError
        The release has no such level or no such query.
    """
    folder = Layout(path).release
    plan = load(folder.config)
    if published.level not in plan.levels:
        remedy = nearest(published.level, plan.levels)
        raise InputError(Problem(published.source, f"has no counts of level {published.level!r}", remedy))
    try:
        theirs = parse_query(plan.schema, published.query.name)
    except SchemaError as error:
        raise InputError(Problem(published.source, str(error), "name a query that both schemas have")) from None
    whole = Spine.load(folder.facts / "spine.parquet")
    counts = read_counts(whole, published.level, folder.counts / f"{published.level}.parquet")
    answers = counts.answers(theirs, whole.size(published.level))
    unit = whole.locate(published.level, spine.geocodes(published.level))
    here = spine.real(published.level)
    source = Source(published.source)
    problems += listed(
        np.flatnonzero(here & (unit < 0)),
        lambda i: Problem(source.name, f"has no {published.level} {spine.geocodes(published.level)[i]}"),
        source,
    )
    known, columns = _matched(published.query, theirs)
    if not len(known):
        problems.append(Problem(source.name, f"{theirs.name!r} has no answer of the same name there"))
    values = np.full((spine.size(published.level), published.query.size), NO_LIMIT, dtype=np.int64)
    found = np.flatnonzero(unit >= 0)
    values[np.ix_(found, known)] = answers[np.ix_(unit[found], columns)]
    return values


def _matched(ours: Query, theirs: Query) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of our answers and of theirs that have the same labels; attributes may stand in another order."""
    order = [[f.name for f in query.factors if not f.is_everything] for query in (ours, theirs)]
    turn = [order[1].index(name) for name in order[0]]
    place = {tuple(labels[i] for i in turn): at for at, labels in enumerate(theirs.labels())}
    pairs = [(at, place[labels]) for at, labels in enumerate(ours.labels()) if labels in place]
    first, second = zip(*pairs, strict=True) if pairs else ((), ())
    return np.array(first, dtype=np.int64), np.array(second, dtype=np.int64)
