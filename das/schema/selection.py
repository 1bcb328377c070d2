"""A selection of a query's answers, counted together: joint limits apply to such sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from das.schema.query import Number, Query, parse_query
from das.schema.schema import Schema

__all__ = ["Selection", "is_selection", "parse_limited", "select"]

_BETWEEN = " in "


@dataclass(frozen=True)
class Selection(Query):
    """Two counts: people in any of the ``chosen`` answers of a query, and people in any other.

    Examples
    --------
    >>> from das.schema.schema import Attribute
    >>> schema = Schema((Attribute("sex", ("f", "m")), Attribute("age", ("0-17", "18-64", "65+"))))
    >>> ends = select(parse_query(schema, "age"), (0, 2))
    >>> ends.name, ends.answer(np.array([1, 2, 3, 4, 5, 6])).tolist(), list(ends.labels())
    ('age in 0 2', [14, 7], [('0-17 or 65+',), ('any other',)])
    >>> parse_limited(schema, ends.name) == ends
    True
    """

    chosen: tuple[int, ...]

    @property
    def base(self) -> Query:
        """The query whose answers are chosen from."""
        return Query(self.name.partition(_BETWEEN)[0], self.schema, self.factors)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Two answers."""
        return (2,)

    def labels(self) -> Iterator[tuple[str, ...]]:
        """Name both answers."""
        names = [" * ".join(label) for label in self.base.labels()]
        yield (" or ".join(names[i] for i in self.chosen),)
        yield ("any other",)

    def group_of(self, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        """Say 0 for a cell of a chosen answer, 1 for any other."""
        return np.asarray(~np.isin(super().group_of(cells), self.chosen), dtype=np.int64)

    @cached_property
    def index(self) -> NDArray[np.int64]:
        """Which of the two answers each cell of the schema counts towards."""
        out = self.group_of(np.arange(self.schema.size))
        out.flags.writeable = False
        return out

    def answer(self, histogram: NDArray[Number]) -> NDArray[Number]:
        """Both answers of dense histograms, cells along the last axis."""
        all_answers = self.base.answer(histogram)
        chosen = all_answers[..., list(self.chosen)].sum(axis=-1)
        return np.stack([chosen, all_answers.sum(axis=-1) - chosen], axis=-1)

    def refines(self, other: Query) -> bool:
        """Whether each answer of ``other`` is a sum of these two."""
        return all(len(np.unique(other.index[self.index == answer])) <= 1 for answer in (0, 1))


def select(query: Query, chosen: tuple[int, ...]) -> Selection:
    """Take some answers of a query together."""
    name = f"{query.name}{_BETWEEN}{' '.join(map(str, chosen))}"
    return Selection(name=name, schema=query.schema, factors=query.factors, chosen=chosen)


def is_selection(name: str) -> bool:
    """Whether a name is that of a selection."""
    return _BETWEEN in name


def parse_limited(schema: Schema, name: str) -> Query:
    """Read the name of a query on which something is known: any query, or a selection of its answers."""
    base, between, chosen = name.partition(_BETWEEN)
    query = parse_query(schema, base)
    return select(query, tuple(int(text) for text in chosen.split())) if between else query
