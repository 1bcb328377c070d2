"""Partition of a family's support by a query: the group of each supported cell, and sums over groups."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from das.schema.query import Query

__all__ = ["Grouping", "answer_label", "answers_of_cells", "group_cells"]

_DENSE = 1 << 16
"""Up to this many cells a table of the whole schema is kept with the query; beyond it, cells are looked up."""
_FEW = 32
"""Up to so many groups, real numbers are summed fastest by a matrix."""

Number = TypeVar("Number", np.int64, np.float64)


@dataclass(frozen=True, slots=True)
class Grouping:
    """A partition of the supported cells: the group of each cell, and the query's answer that each group stands for.

    Examples
    --------
    >>> grouping = Grouping(np.array([0, 1, 0]), np.array([3, 7]))
    >>> grouping.sums(np.array([[1, 2, 3], [0, 5, 0]])).tolist()
    [[4, 2], [0, 5]]
    """

    index: NDArray[np.int64]
    answers: NDArray[np.int64]

    @property
    def size(self) -> int:
        """Number of groups, each of them reached by a supported cell."""
        return len(self.answers)

    def sums(self, x: NDArray[Number]) -> NDArray[Number]:
        """Sum over the cells of each group, exactly for integers; cells along the last axis."""
        if not self.size:
            return x[..., :0]
        if self.size <= _FEW and x.dtype == np.float64:
            return np.asarray(x @ (self.index[:, None] == np.arange(self.size)).astype(x.dtype))
        order = np.argsort(self.index, kind="stable")
        starts = np.searchsorted(self.index[order], np.arange(self.size))
        return np.add.reduceat(x[..., order], starts, axis=-1)

    def coarsen(self, other: Grouping) -> NDArray[np.int64] | None:
        """For each group of this partition the group of ``other`` that holds it; ``None`` if one is split."""
        group = np.empty(self.size, dtype=np.int64)
        group[self.index] = other.index
        return group if np.array_equal(group[self.index], other.index) else None


def answers_of_cells(query: Query, cells: NDArray[np.int64]) -> NDArray[np.int64]:
    """Answer of a query that each of the cells counts towards."""
    return query.index[cells] if query.schema.size <= _DENSE else query.group_of(cells)


def group_cells(query: Query, cells: NDArray[np.int64]) -> Grouping:
    """Partition the supported cells by the answer of a query that they count towards.

    Examples
    --------
    >>> from das.schema.schema import Attribute, Schema
    >>> from das.schema.query import parse_query
    >>> schema = Schema((Attribute("sex", ("f", "m", "x")), Attribute("age", ("young", "old"))))
    >>> group_cells(parse_query(schema, "sex"), np.array([0, 4, 5]))
    Grouping(index=array([0, 1, 1]), answers=array([0, 2]))
    """
    raw = answers_of_cells(query, cells)
    if query.schema.size > _DENSE:
        answers, index = np.unique(raw, return_inverse=True)
        return Grouping(index.astype(np.int64), answers)
    position = np.zeros(query.size, dtype=np.int64)
    position[raw] = 1
    answers = np.flatnonzero(position)
    position[answers] = np.arange(len(answers))
    return Grouping(position[raw], answers)


def answer_label(query: Query, answer: int) -> str:
    """Name an answer, for a message.

    Examples
    --------
    >>> from das.schema.schema import Attribute, Schema
    >>> from das.schema.query import parse_query
    >>> schema = Schema((Attribute("sex", ("f", "m")), Attribute("age", ("young", "old"))))
    >>> answer_label(parse_query(schema, "sex * age"), 1), answer_label(parse_query(schema, "total"), 0)
    ('f, old', 'total')
    """
    return ", ".join(next(islice(query.labels(), int(answer), None))) or "total"
