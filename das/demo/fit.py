"""Change a generated population so that it has stated margins: people are added, removed, or change their labels.

Totals come first. A marginal is then met by changing labels, of as few people as possible and of those that its query
keeps, so that other marginals stay. Margins of the same query go from the lowest level to the highest; a geounit
changes only where no lower margin of that query speaks. What crosses otherwise is repeated until all margins hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from das.demo.margins import UNSTATED, Margin
from das.errors import InfeasibleError, Problem
from das.schema.query import Query
from geography import Spine

__all__ = ["fitted", "missed_by"]

PASSES = 20
Counts = NDArray[np.int64]


def fitted(cells: Counts, spine: Spine, margins: Sequence[Margin], rng: Generator) -> Counts:
    """Return counts, leaves x cells, that have the margins.

    Raises
    ------
    InfeasibleError
        No counts were found that have all of them: they contradict one another, or structural zeros.

    Examples
    --------
    >>> from das.schema.query import parse_query
    >>> from das.schema.schema import Attribute, Schema
    >>> schema = Schema((Attribute("sex", ("f", "m")),))
    >>> spine = Spine.from_paths(["state", "town"], [np.array(["1", "1"]), np.array(["11", "12"])])
    >>> stated = Margin(level="state", query=parse_query(schema, "sex"), units=np.array([0]), counts=np.array([[3, 5]]))
    >>> fitted(np.full((2, 2), 2), spine, [stated], np.random.default_rng(1)).sum(axis=0).tolist()
    [3, 5]
    """
    cells, order = cells.copy(), {level: at for at, level in enumerate(spine.levels)}
    ordered = sorted(margins, key=lambda m: (m.query.size > 1, m.query.name, -order[m.level]))
    for _ in range(PASSES):
        for _, same in groupby(ordered, key=lambda m: m.query.name):
            stated = np.zeros(len(cells), dtype=bool)
            for margin in same:
                _meet(cells, spine, margin, stated, rng)
        if not (missed := missed_by(cells, spine, ordered)):
            return cells
    remedy = "look for parts that do not add up to their sum, or for people where structural zeros allow nobody"
    raise InfeasibleError([Problem(where, "this margin does not go with the others", remedy) for where in missed[:20]])


def missed_by(cells: Counts, spine: Spine, margins: Sequence[Margin]) -> list[str]:
    """Name the margins that counts, leaves x cells, do not have."""
    return [where for margin in margins for where in _missed(cells, spine, margin)]


def _missed(cells: Counts, spine: Spine, margin: Margin) -> list[str]:
    answers = spine.tabulate(margin.level, margin.query.answer(cells))[margin.units]
    wrong = ((answers != margin.counts) & (margin.counts != UNSTATED)).any(axis=1)
    codes = spine.geocodes(margin.level)[margin.units[wrong]].tolist()
    return [f"margin of {margin.query.name!r} at {margin.level} {code}" for code in codes]


def _meet(cells: Counts, spine: Spine, margin: Margin, stated: NDArray[np.bool_], rng: Generator) -> None:
    """Meet one margin in place, as far as leaves are free; ``stated`` are those of which a lower margin speaks."""
    ranges = spine.leaf_ranges(margin.level)
    for unit, wanted in zip(margin.units.tolist(), margin.counts, strict=True):
        here = np.arange(ranges[unit], ranges[unit + 1])
        free = here[~stated[here]]
        away = np.where(wanted == UNSTATED, 0, wanted - margin.query.answer(cells[here]).sum(axis=0))
        if len(free) and away.any():
            (_change_labels if margin.query.size > 1 else _change_total)(cells, free, away, wanted, margin.query, rng)
        if (wanted != UNSTATED).all():
            stated[here] = True


def _change_total(cells: Counts, free: Counts, away: Counts, _: Counts, query: Query, rng: Generator) -> None:
    """Add copies of people who are there, or remove people at random."""
    more = int(away[0])
    there: Counts = cells[free].reshape(-1)
    if more > 0:
        weights: NDArray[np.float64] = there.astype(np.float64)
        if not weights.any():  # nobody to copy: people as in the whole country, in any of the leaves
            usual = cells.sum(axis=0) + query.schema.possible
            weights = np.tile(usual / len(free), len(free)).astype(np.float64)
        there = there + rng.multinomial(more, weights / weights.sum())
    else:
        there = there - rng.multivariate_hypergeometric(there, min(-more, int(there.sum())), method="marginals")
    cells[free] = there.reshape(len(free), -1)


def _change_labels(cells: Counts, free: Counts, away: Counts, wanted: Counts, query: Query, rng: Generator) -> None:
    """Move people from answers that have too many to those that have too few; answers without a count take the rest."""
    there = query.answer(cells[free]).sum(axis=0)
    rest = int(away.sum())
    if rest and (open_ := wanted == UNSTATED).any():
        usual = (there * open_) if (there * open_).any() else open_.astype(np.int64)
        if rest > 0:
            away = away - rng.multivariate_hypergeometric(usual, min(rest, int(usual.sum())), method="marginals")
        else:
            away = away + rng.multinomial(-rest, usual / usual.sum())
    usual_cells = cells.sum(axis=0) + 0.5 * query.schema.possible
    for answer, number in _surplus(away, there):
        mine = np.flatnonzero(query.index == answer)
        people = cells[np.ix_(free, mine)]
        leaving = rng.multivariate_hypergeometric(people.reshape(-1), number, method="marginals")
        where, cell = np.divmod(np.repeat(np.arange(people.size), leaving), len(mine))
        into = rng.permutation(np.repeat(np.arange(query.size), np.maximum(away, 0)))[:number]
        away[answer] += number
        away -= np.bincount(into, minlength=query.size)
        np.subtract.at(cells, (free[where], mine[cell]), 1)
        for target in np.unique(into).tolist():
            movers = np.flatnonzero(into == target)
            new = _new_cells(mine[cell[movers]], target, query, usual_cells, rng)
            np.add.at(cells, (free[where[movers]], new), 1)


def _surplus(away: Counts, there: Counts) -> Iterator[tuple[int, int]]:
    """Answers with too many people, and how many can go: never more than others still need."""
    for answer in np.flatnonzero(away < 0).tolist():
        number = min(-int(away[answer]), int(there[answer]), int(np.maximum(away, 0).sum()))
        if number:
            yield answer, number


def _new_cells(old: Counts, answer: int, query: Query, usual: NDArray[np.float64], rng: Generator) -> Counts:
    """Cells of people who now count towards ``answer``: the labels that the query sums out stay where they can."""
    schema = query.schema
    groups = np.unravel_index(answer, query.shape)
    codes = list(np.unravel_index(old, schema.shape))
    weights = usual.reshape(schema.shape)
    for at, (factor, group) in enumerate(zip(query.factors, groups, strict=True)):
        if factor.is_everything:
            continue
        members = np.flatnonzero(factor.group_of == group)
        chance = weights.sum(axis=tuple(i for i in range(len(schema.shape)) if i != at))[members]
        codes[at] = rng.choice(members, size=len(old), p=chance / chance.sum())
    new: Counts = np.ravel_multi_index(codes, schema.shape).astype(np.int64)
    refused = ~schema.possible[new]
    if refused.any():
        mine = np.flatnonzero((query.index == answer) & schema.possible)
        if not len(mine):
            new[refused] = old[refused]  # nobody can have this answer: the margin stays missed
        else:
            new[refused] = rng.choice(mine, size=int(refused.sum()), p=usual[mine] / usual[mine].sum())
    return new
