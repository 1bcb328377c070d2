"""What is asked about each place, by labels: a query, restricted to some labels of some attributes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from das.errors import Problem, UsageError
from das.inference.intervals.label_ranges import chosen_labels
from das.schema.query import Query, parse_query
from das.schema.schema import Partition, Schema, SchemaError
from geography.problem_list import nearest

__all__ = ["Asked", "Where", "ask", "parse_answer", "parse_where"]

Where = Mapping[str, str | Sequence[str]]
"""Labels by attribute or recode."""


@dataclass(frozen=True)
class Asked:
    """Sums of cells: combinations of one group of labels per attribute; cells may be in none of them.

    Examples
    --------
    >>> from das.schema.schema import Attribute
    >>> schema = Schema((Attribute("sex", ("f", "m")), Attribute("age", ("0-17", "18-64", "65+"))))
    >>> asked = ask(schema, "sex", {"age": ["18-64", "65+"]})
    >>> asked.labels, asked.condition
    ([('f',), ('m',)], 'age=18-64,65+')
    >>> asked.of_cells(np.array([1.0, 2, 3, 4, 5, 6])).tolist()
    [5.0, 11.0]
    """

    schema: Schema
    query: Query
    condition: str
    factors: tuple[NDArray[np.float64], ...]  # groups x labels, zeros and ones
    names: tuple[tuple[str, ...], ...]  # labels of each attribute's groups

    @property
    def kept(self) -> list[int]:
        """Positions of the attributes that the query keeps."""
        return [at for at, factor in enumerate(self.query.factors) if not factor.is_everything]

    @property
    def columns(self) -> list[str]:
        """Names of the attributes or recodes that the query keeps."""
        return [self.query.factors[at].name for at in self.kept]

    @cached_property
    def labels(self) -> list[tuple[str, ...]]:
        """Labels of each answer."""
        return list(product(*(self.names[at] for at in self.kept)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Groups per attribute."""
        return tuple(len(factor) for factor in self.factors)

    @property
    def size(self) -> int:
        """Number of answers."""
        return len(self.labels)

    @property
    def text(self) -> str:
        """What is asked, in one line."""
        return f"{self.query.name} where {self.condition}" if self.condition else self.query.name

    def over(self, below: Asked) -> str:
        """What is asked as a ratio to another sum, in one line."""
        return f"{self.text} / {below.condition or 'anybody'}"

    def of_cells(self, cells: NDArray[np.float64]) -> NDArray[np.float64]:
        """Answers of dense tables, cells along the last axis."""
        return self._contract(cells.reshape(-1, *self.schema.shape), self.factors, cells.shape[:-1])

    def seen_by(self, query: Query) -> bool:
        """Whether each answer is a sum of answers of the query."""
        return all(_within(factor, part) for factor, part in zip(self.factors, query.factors, strict=True))

    def of_answers(self, query: Query, answers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Answers from those of a finer query, along the last axis."""
        firsts = [[group[0] for group in part.groups] for part in query.factors]
        matrices = [factor[:, first] for factor, first in zip(self.factors, firsts, strict=True)]
        return self._contract(answers.reshape(-1, *query.shape), matrices, answers.shape[:-1])

    def _contract(
        self, table: NDArray[np.float64], matrices: Sequence[NDArray[np.float64]], lead: tuple[int, ...]
    ) -> NDArray[np.float64]:
        for at, matrix in enumerate(matrices):
            table = np.moveaxis(np.moveaxis(table, at + 1, -1) @ matrix.T, -1, at + 1)
        return np.ascontiguousarray(table).reshape(*lead, self.size)

    def group_of(self, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which answer each cell counts towards, -1 for none."""
        out = np.zeros(len(cells), dtype=np.int64)
        inside = np.ones(len(cells), dtype=bool)
        for factor, code in zip(self.factors, np.unravel_index(cells, self.schema.shape), strict=True):
            out = out * len(factor) + factor.argmax(axis=0)[code]
            inside &= (factor.sum(axis=0) > 0)[code]
        return np.where(inside, out, -1)

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Which cells count towards some answer."""
        return self.group_of(np.arange(self.schema.size)) >= 0

    def covers(self, other: Asked) -> bool:
        """Whether every cell that the other counts is counted here."""
        pairs = zip(self.factors, other.factors, strict=True)
        return all(not (theirs.any(axis=0) & ~mine.any(axis=0)).any() for mine, theirs in pairs)


def ask(schema: Schema, query: str = "total", where: Where | None = None, *, given: str = "--where") -> Asked:
    """Read a question; ``given`` is what a message names as the place of its conditions.

    Raises
    ------
    UsageError
        An attribute, recode or label is unknown, with the nearest one that exists.
    """
    try:
        parsed = parse_query(schema, query)
    except SchemaError as error:
        raise UsageError(Problem("--query", str(error))) from None
    allowed = [np.ones(size, dtype=bool) for size in schema.shape]
    for name, labels in (where or {}).items():
        at, partition = _partition(schema, name, given)
        chosen = chosen_labels(partition, [labels] if isinstance(labels, str) else labels, given)
        allowed[at] &= np.isin(partition.group_of, chosen)
    factors, names = [], []
    for attribute, partition, mask in zip(schema.attributes, parsed.factors, allowed, strict=True):
        matrix = np.zeros((len(partition.groups), partition.size))
        matrix[partition.group_of, np.arange(partition.size)] = mask
        kept = matrix.sum(axis=1) > 0
        if not kept.any():
            raise UsageError(Problem(given, f"no label of {attribute.name!r} fulfils every condition"))
        factors.append(matrix[kept])
        names.append(tuple(label for label, keep in zip(partition.labels, kept, strict=True) if keep))
    stated = {n: [v] if isinstance(v, str) else list(v) for n, v in (where or {}).items()}
    condition = "; ".join(f"{name}={','.join(labels)}" for name, labels in stated.items())
    return Asked(schema, parsed, condition, tuple(factors), tuple(names))


def parse_where(texts: Iterable[str], *, given: str = "--where") -> dict[str, list[str]]:
    """Read conditions such as ``age=15-19,20-24``; a label with a comma in it must be the only one.

    Examples
    --------
    >>> parse_where(["sex=f", "age=15-19,20-24"])
    {'sex': ['f'], 'age': ['15-19', '20-24']}
    """
    found: dict[str, list[str]] = {}
    for text in texts:
        name, equals, labels = text.partition("=")
        if not equals or not name.strip() or not labels.strip():
            raise UsageError(Problem(given, f"{text!r} is not attribute=label,label", "write for example sex=f"))
        if name.strip() in found:
            raise UsageError(Problem(given, f"{name.strip()!r} is given twice", "give all its labels together"))
        found[name.strip()] = [label.strip() for label in labels.split(",")]
    return found


def parse_answer(schema: Schema, answer: str) -> Asked:
    """Read one number: ``total``, or labels such as ``sex=f & age=15-24,25-64`` of attributes and recodes.

    Examples
    --------
    >>> from das.schema.schema import Attribute
    >>> schema = Schema((Attribute("sex", ("f", "m")), Attribute("age", ("0-17", "18-64", "65+"))))
    >>> parse_answer(schema, "sex=f & age=18-64,65+").inside.tolist()
    [False, True, True, False, False, False]
    >>> parse_answer(schema, "sex=w")
    Traceback (most recent call last):
    das.errors.UsageError: sex=w: 'w' is not a label of 'sex'; known: 'f', 'm'
    """
    terms = [] if answer.strip() == "total" else answer.split("&")
    return ask(schema, "total", parse_where(terms, given=answer), given=answer)


def _partition(schema: Schema, name: str, given: str) -> tuple[int, Partition]:
    owner = {a.name: at for at, a in enumerate(schema.attributes)}
    owner |= {recode: at for at, a in enumerate(schema.attributes) for recode in a.recodes}
    if name not in owner:
        raise UsageError(Problem(given, f"{name!r} is not an attribute or recode", nearest(name, owner)))
    return owner[name], schema.attributes[owner[name]].partition(name)


def _within(factor: NDArray[np.float64], partition: Partition) -> bool:
    """Whether rows of weights are constant on each group of labels."""
    first = np.array([group[0] for group in partition.groups])[partition.group_of]
    return bool((factor == factor[:, first]).all())
