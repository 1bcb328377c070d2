"""Connected components of overlapping limits; each is propagated on its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from das.facts.attainable import SetLimit
from das.facts.fact import Facts, limits_of
from das.schema.limits import NO_LIMIT, Limits
from das.schema.query import Query
from geography import Spine

__all__ = ["Component", "components_of"]


@dataclass(frozen=True)
class Component:
    """A connected component: limited answers that overlap, directly or through others, and no other answers.

    Cells that are in the same limited answers are one element.
    """

    element: NDArray[np.int64]  # of each cell, -1 if it is in none of the answers
    elements: int
    answers: dict[str, list[tuple[int, int]]]  # by query: answer and the set of its elements
    queries: dict[str, Query]

    @property
    def box(self) -> tuple[str, int] | None:
        """The answer of a component that has only one; its limits are an interval, and sums of intervals are exact."""
        if [len(found) for found in self.answers.values()] != [1]:
            return None
        ((name, ((answer, _),)),) = self.answers.items()
        return name, answer

    @property
    def names(self) -> str:
        """The queries, for a message."""
        return " and ".join(repr(name) for name in self.answers)

    def limits(self, at_level: tuple[Limits, ...], units: slice) -> Iterator[SetLimit]:
        """Give a level's limits on these answers, for some geounits."""
        for limit in at_level:
            for answer, members in self.answers.get(limit.query.name, ()):
                upper = limit.upper[units, answer]
                yield SetLimit(
                    members, limit.lower[units, answer].astype(np.float64), np.where(upper < NO_LIMIT, upper, np.inf)
                )


def components_of(facts: Facts, spine: Spine) -> Iterator[Component]:
    """Find the components of the limits below the top; limits at the top alone are never split."""
    queries: dict[str, Query] = {}
    limited: dict[str, NDArray[np.bool_]] = {}
    for level in spine.levels[1:]:
        for limit in limits_of(facts[level], slice(None)):
            says = ((limit.lower > 0) | (limit.upper < NO_LIMIT)).any(axis=0)
            queries[limit.query.name] = limit.query
            limited[limit.query.name] = says | limited.get(limit.query.name, np.zeros_like(says))
    queries = {name: query for name, query in queries.items() if limited[name].any()}
    if not queries:
        return
    schema = next(iter(queries.values())).schema
    cells = np.flatnonzero(schema.possible)
    seen = np.stack([np.where(limited[n][q.index[cells]], q.index[cells], -1) for n, q in queries.items()], axis=1)
    kinds, kind = np.unique(seen, axis=0, return_inverse=True)
    named = [(name, int(answer)) for name in queries for answer in np.flatnonzero(limited[name])]
    column = {name: at for at, name in enumerate(queries)}
    holds = np.array([kinds[:, column[name]] == answer for name, answer in named])
    links = sparse.block_array([[None, sparse.csr_array(holds)], [sparse.csr_array(holds.T), None]])
    _, owner = sparse.csgraph.connected_components(links, directed=False)
    rows, columns = owner[: len(named)], owner[len(named) :]
    for at in dict.fromkeys(rows.tolist()):
        mine = np.flatnonzero(columns == at)
        answers: dict[str, list[tuple[int, int]]] = {}
        for row in np.flatnonzero(rows == at):
            name, answer = named[row]
            members = sum(1 << bit for bit in np.flatnonzero(holds[row, mine]).tolist())
            answers.setdefault(name, []).append((answer, members))
        position = np.full(len(kinds), -1)
        position[mine] = np.arange(len(mine))
        element = np.full(schema.size, -1)
        element[cells] = position[kind.reshape(-1)]
        yield Component(element, len(mine), answers, {name: queries[name] for name in answers})
