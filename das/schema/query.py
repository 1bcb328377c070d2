"""A marginal query: a Kronecker product of one partition per attribute, never written out as a matrix."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import product
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from das.schema.schema import EVERYTHING, TAKEN, Partition, Schema, SchemaError, stated_fields

__all__ = ["Neighbours", "Query", "Sensitivity", "answer_names", "answers_of", "parse_query"]

Number = TypeVar("Number", np.int64, np.float64)


class Neighbours(StrEnum):
    """How two data sets may differ for the promise to compare them."""

    REPLACE = "replace"
    ADD_REMOVE = "add-remove"


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The largest change that one neighbour makes to a vector of answers: exact, because counts are integers."""

    l1: int
    l2_squared: int


@dataclass(frozen=True)
class Query:
    """Counts of a partition of the cells that is a product of one partition per attribute.

    Because each factor covers its axis exactly once, the product covers each cell exactly once: a record adds one to
    one answer and nothing to the others.

    Examples
    --------
    >>> from das.schema.schema import Attribute
    >>> schema = Schema((Attribute("sex", ("f", "m")), Attribute("age", ("0-17", "18-64", "65+"))))
    >>> query = parse_query(schema, "sex")
    >>> query.answer(np.array([1, 2, 3, 4, 5, 6])).tolist()
    [6, 15]
    >>> np.broadcast_to(query.aligned(np.array([6, 15])), schema.shape).tolist()
    [[6, 6, 6], [15, 15, 15]]
    """

    name: str
    schema: Schema
    factors: tuple[Partition, ...]

    def __getstate__(self) -> dict[str, object]:
        return stated_fields(self)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Groups per attribute, one for an attribute that is summed out."""
        return tuple(len(f.groups) for f in self.factors)

    @cached_property
    def size(self) -> int:
        """Number of answers."""
        return math.prod(self.shape)

    @property
    def axes(self) -> dict[str, str]:
        """Attribute name to partition name, ``*`` where it is summed out: the columns of a noisy measurement file."""
        return {a.name: f.name for a, f in zip(self.schema.attributes, self.factors, strict=True)}

    def labels(self) -> Iterator[tuple[str, ...]]:
        """Label of each answer in order, one part per attribute that is kept."""
        return product(*(f.labels for f in self.factors if not f.is_everything))

    def group_of(self, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which answer each of the given cells counts towards."""
        codes = np.unravel_index(cells, self.schema.shape)
        out = np.zeros(len(cells), dtype=np.int64)
        for factor, code in zip(self.factors, codes, strict=True):
            out *= len(factor.groups)
            if not factor.is_everything:
                out += code if factor.is_identity else factor.group_of[code]
        return out

    @cached_property
    def index(self) -> NDArray[np.int64]:
        """Which answer each cell of the schema counts towards."""
        out = np.zeros((1,), dtype=np.int64)
        for factor in self.factors:
            out = (out[:, None] * len(factor.groups) + factor.group_of[None, :]).reshape(-1)
        out.flags.writeable = False
        return out

    def answer(self, histogram: NDArray[Number]) -> NDArray[Number]:
        """Answers of dense histograms, cells along the last axis."""
        return answers_of([self], histogram)[0]

    def aligned(self, values: NDArray[Number]) -> NDArray[Number]:
        """Lay answers out along the schema's attributes, one entry where an attribute is summed out.

        They broadcast against histograms of the schema's shape: each cell gets the value of the answer that it counts
        towards, which is the transpose of :meth:`answer`.

        Examples
        --------
        >>> from das.schema.schema import Attribute
        >>> schema = Schema((Attribute("sex", ("f", "m")), Attribute("age", ("0-17", "18-64", "65+"))))
        >>> parse_query(schema, "sex").aligned(np.array([[6, 15]])).tolist()
        [[[6], [15]]]
        """
        out = values.reshape(*values.shape[:-1], *self.shape)
        for at, factor in enumerate(self.factors):
            if not factor.is_everything and not factor.is_identity:
                out = out.take(factor.group_of, axis=values.ndim - 1 + at)
        return out

    def refines(self, other: Query) -> bool:
        """Whether each answer of ``other`` is a sum of answers of this query."""
        for fine, coarse in zip(self.factors, other.factors, strict=True):
            within, into = fine.group_of, coarse.group_of
            one = np.zeros(len(fine.groups), dtype=np.int64)
            one[within] = into
            if not np.array_equal(one[within], into):
                return False
        return True

    def same_answers(self, other: Query) -> bool:
        """Whether both count the same in the same order: recodes may have the same groups in different orders."""
        pairs = zip(self.factors, other.factors, strict=True)
        return all(np.array_equal(mine.group_of, others.group_of) for mine, others in pairs)

    def sensitivity(self, neighbours: Neighbours, *, units: int) -> Sensitivity:
        """Largest change of the answers of ``units`` geounits together when one record changes.

        Add or remove touches one answer by one. A replaced record leaves one answer and enters another, which may
        stand in another geounit: 1 + 1 in either norm, unless there is no other answer to enter.
        """
        if neighbours is Neighbours.ADD_REMOVE:
            return Sensitivity(1, 1)
        if units > 1:  # there is always another geounit to move to
            return Sensitivity(2, 2)
        reached = self.group_of(np.flatnonzero(self.schema.possible))
        return Sensitivity(2, 2) if (reached != reached[0]).any() else Sensitivity(0, 0)


def answers_of(queries: Sequence[Query], histogram: NDArray[Number]) -> list[NDArray[Number]]:
    """Answers of dense histograms to several queries; what queries sum in the same order is summed once.

    Examples
    --------
    >>> from das.schema.schema import Attribute
    >>> schema = Schema((Attribute("sex", ("f", "m")), Attribute("age", ("0-17", "18-64", "65+"))))
    >>> [each.tolist() for each in answers_of([parse_query(schema, n) for n in ("sex", "total")], np.arange(6))]
    [[3, 12], [15]]
    """
    lead, summed = histogram.shape[:-1], dict[tuple[str, ...], NDArray[Number]]()
    out = []
    for query in queries:
        part = histogram.reshape(*lead, *query.schema.shape)
        done: tuple[str, ...] = ()
        # From the last axis backwards, so that axes still to come keep their positions.
        for axis in reversed(range(len(query.factors))):
            factor, at = query.factors[axis], len(lead) + axis
            done = (*done, factor.name)
            if done in summed:
                part = summed[done]
            elif factor.is_everything:
                part = part.sum(axis=at, keepdims=True)
            elif not factor.is_identity:
                part = np.stack([part.take(list(g), axis=at).sum(axis=at) for g in factor.groups], axis=at)
            summed[done] = part
        out.append(part.reshape(*lead, query.size))
    return out


def parse_query(schema: Schema, name: str) -> Query:
    """Read ``"total"``, ``"detailed"`` or a product such as ``"votingage * hispanic"`` of attributes and recodes.

    Examples
    --------
    >>> from das.schema.schema import Attribute
    >>> schema = Schema((Attribute("sex", ("f", "m")), Attribute("age", ("young", "old"))))
    >>> parse_query(schema, "age * sex").axes
    {'sex': 'sex', 'age': 'age'}
    >>> parse_query(schema, "total").size
    1
    >>> parse_query(schema, "sexx")
    Traceback (most recent call last):
    das.schema.schema.SchemaError: query 'sexx' uses 'sexx', which is not an attribute or recode; did you mean 'sex'?
    """
    if name == "total":
        chosen: dict[str, str] = {}
    elif name == "detailed":
        chosen = {n: n for n in schema.names}
    else:
        owner = {a.name: a for a in schema.attributes} | {r: a for a in schema.attributes for r in a.recodes}
        chosen = {}
        tokens = [part.strip() for part in name.split("*")]
        known = [*owner, *(TAKEN if len(tokens) == 1 else ())]
        for token in tokens:
            if token not in owner:
                near = difflib.get_close_matches(token, known, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"
                raise SchemaError(f"query {name!r} uses {token!r}, which is not an attribute or recode{hint}")
            attribute = owner[token].name
            if attribute in chosen:
                raise SchemaError(f"query {name!r} uses attribute {attribute!r} twice")
            chosen[attribute] = token
        name = " * ".join(tokens)  # one spelling, because files and noise streams are named by it
    factors = tuple(a.partition(chosen.get(a.name, EVERYTHING)) for a in schema.attributes)
    return Query(name=name, schema=schema, factors=factors)


def answer_names(query: Query) -> list[str]:
    """Name each answer: the labels of the attributes that the query keeps.

    Examples
    --------
    >>> from das.schema.query import parse_query
    >>> from das.schema.schema import Attribute, Schema
    >>> schema = Schema((Attribute("sex", ("f", "m")), Attribute("age", ("young", "old"))))
    >>> answer_names(parse_query(schema, "sex * age"))
    ['f * young', 'f * old', 'm * young', 'm * old']
    >>> answer_names(parse_query(schema, "total"))
    ['total']
    """
    return [" * ".join(labels) or "total" for labels in query.labels()]
