"""Intervals where all queries together couple too many sums of cells: a table of what is asked alone.

Labels that a question treats alike are put together, which gives a small table. Each measured query says something
about it: its answers are added up to the finest sums that are sums of the table's cells too (the join of the two
partitions of each attribute). A sum of m answers has m times the noise, and m is a product of one number per attribute,
so the information of a query stays a Kronecker product. Both sweeps are then those of any small table.

The estimates are the best linear ones of these sums. They are unbiased, and their covariances are exact. Information
that only finer tables share, structural zeros and bounds are not used, so intervals may be wider than they must be.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from das.errors import Problem, UsageError
from das.estimation.linear.basis import Axis, Basis, Blocks
from das.estimation.linear.blue import Exact
from das.estimation.linear.covariances import LevelFacts
from das.estimation.linear.estimates import SweptEstimates
from das.inference.intervals.asked import Asked
from das.inference.intervals.estimates import Estimates
from das.inference.intervals.public_files import LARGEST_BLOCK, PublicFiles
from das.plan.plan import Measurement, numbers_per_unit
from das.schema.query import Query
from das.schema.schema import Attribute, Partition, Schema

__all__ = ["join", "pooled"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
_NOTE = "from sums of measured answers; structural zeros and bounds are not used for a schema of this size"


def pooled(known: Estimates, questions: Sequence[Asked]) -> tuple[Estimates, list[Asked]]:
    """Estimates that answer some questions, and the questions as they are asked of them.

    Raises
    ------
    UsageError
        The questions tell more groups of cells apart than are worked out together.
    """
    files = _PooledFiles(known.files.folder, known.files.plan, tuple(questions))
    table = files.groups
    asked = [
        replace(
            each, schema=files.table, factors=tuple(f[:, g.firsts] for f, g in zip(each.factors, table, strict=True))
        )
        for each in questions
    ]
    return _PooledEstimates(files, originals={each.text: each for each in questions}), asked


def join(one: Indices, other: Indices) -> Indices:
    """The finest grouping of which both groupings are refinements: the group of each label.

    Examples
    --------
    >>> join(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2])).tolist()
    [0, 0, 0, 1]
    """
    size = int(one.max()) + 1
    nodes = size + int(other.max()) + 1
    links = coo_array((np.ones(len(one)), (one, size + other)), shape=(nodes, nodes))
    return np.asarray(connected_components(links, directed=False)[1][one], dtype=np.int64)


@dataclass(frozen=True)
class _Groups:
    """Groups of one attribute's labels."""

    group_of: Indices

    @classmethod
    def of(cls, columns: Floats) -> _Groups:
        """Put labels with the same column together, in the order of the first of each."""
        seen = [tuple(column) for column in columns.T.tolist()]
        order = {column: at for at, column in enumerate(dict.fromkeys(seen))}
        return cls(np.array([order[column] for column in seen], dtype=np.int64))

    @property
    def size(self) -> int:
        return int(self.group_of.max()) + 1

    @cached_property
    def firsts(self) -> Indices:
        """A label of each group."""
        return np.unique(self.group_of, return_index=True)[1].astype(np.int64)


@dataclass(frozen=True)
class _Sums:
    """What a query says about the table: sums of its answers that are answers of a query of the table."""

    query: Query
    matrices: tuple[Floats, ...]  # sums x answers, one for each attribute

    @classmethod
    def of(cls, query: Query, groups: Sequence[_Groups], table: Schema, name: str) -> _Sums:
        factors, matrices = list[Partition](), list[Floats]()
        for attribute, group, factor in zip(table.attributes, groups, query.factors, strict=True):
            both = join(factor.group_of, group.group_of)
            sums = int(both.max()) + 1
            of_group = both[group.firsts]
            members = tuple(tuple(np.flatnonzero(of_group == j).tolist()) for j in range(sums))
            factors.append(Partition(attribute.name, tuple(str(j) for j in range(sums)), members, group.size))
            matrix = np.zeros((sums, len(factor.groups)))
            matrix[both[[members[0] for members in factor.groups]], np.arange(len(factor.groups))] = 1.0
            matrices.append(matrix)
        return cls(Query(name, table, tuple(factors)), tuple(matrices))

    @property
    def multiplicity(self) -> tuple[Floats, ...]:
        """How many answers each sum has, one array per attribute."""
        return tuple(matrix.sum(axis=1) for matrix in self.matrices)

    def added_up(self, answers: NDArray[np.number]) -> Floats:
        """Sums of a query's answers: geounits x sums."""
        out = answers.reshape(len(answers), *(matrix.shape[1] for matrix in self.matrices)).astype(np.float64)
        for at, matrix in enumerate(self.matrices):
            out = np.moveaxis(np.moveaxis(out, at + 1, -1) @ matrix.T, -1, at + 1)
        return np.ascontiguousarray(out).reshape(len(answers), -1)


@dataclass(frozen=True)
class _SmallBasis(Basis):
    """One dense block; sums of many answers count for as much less."""

    multiplicity: Mapping[str, tuple[Floats, ...]] = field(default_factory=dict)

    def information(self, queries: Iterable[tuple[Query, float]]) -> Blocks:
        """Sum of W' diag(1 / (variance m)) W."""
        total = np.zeros((self.schema.size, self.schema.size))
        for query, weight in queries:
            ones = [np.ones(len(factor.groups)) for factor in query.factors]
            part = np.full((1, 1), weight)
            for factor, m in zip(query.factors, self.multiplicity.get(query.name, ones), strict=True):
                same = np.equal.outer(factor.group_of, factor.group_of)
                part = np.kron(part, same / m[factor.group_of])
            total += part
        return [total]


@dataclass(frozen=True)
class _PooledFiles(PublicFiles):
    """The files of a release, seen through the table that some questions need."""

    questions: tuple[Asked, ...] = ()

    @cached_property
    def groups(self) -> list[_Groups]:
        stacked = zip(*(asked.factors for asked in self.questions), strict=True)
        found = [_Groups.of(np.concatenate(factors)) for factors in stacked]
        size = math.prod(group.size for group in found)
        if size > LARGEST_BLOCK:
            reason = f"tells {size} groups of cells apart, and with this schema up to {LARGEST_BLOCK} are worked out"
            raise UsageError(Problem("the question", reason, "ask for fewer labels at once, or for a recode"))
        return found

    @cached_property
    def table(self) -> Schema:
        attributes = zip(self.plan.schema.attributes, self.groups, strict=True)
        return Schema(tuple(Attribute(a.name, tuple(map(str, range(group.size)))) for a, group in attributes))

    @cached_property
    def sums(self) -> dict[str, _Sums]:
        """Of each query that is measured or published exactly; exact ones have a name of their own."""
        return {}

    def sums_of(self, query: Query, *, exact: bool = False) -> _Sums:
        name = f"= {query.name}" if exact else query.name
        if name not in self.sums:
            self.sums[name] = _Sums.of(query, self.groups, self.table, name)
        return self.sums[name]

    @cached_property
    def basis(self) -> Basis:
        axes = [Axis(np.eye(n), n, np.zeros(n, dtype=np.int64)) for n in self.table.shape]
        measured = {m.query.name: self.sums_of(m.query).multiplicity for m in self.plan.measurements}
        return _SmallBasis(self.table, tuple(axes), measured)

    def measured(self, level: str) -> tuple[Measurement, ...]:
        """None of the table's answers was measured itself."""
        return ()

    def _read_level_facts(self, level: str) -> LevelFacts:
        exact = [(self.sums_of(fact.query, exact=True), fact) for fact in self.facts(level) if fact.sign == "="]
        return LevelFacts(
            measured=[(self.sums_of(m.query).query, m.mechanism.variance()) for m in self.plan.at(level)],
            exact=[Exact(sums.query, sums.added_up(fact.values).astype(np.int64)) for sums, fact in exact],
            zeros=np.zeros((self.spine.size(level), 1), dtype=bool),
        )

    def notes(self) -> tuple[str, ...]:
        """What a reader should know of every answer."""
        return (*super().notes(), _NOTE)

    def estimable(self, level: str) -> list[str]:
        """Queries that were measured there: others would need a table of their own."""
        return [m.query.name for m in self.plan.at(level)]

    def values(self, level: str, path: Path) -> list[Floats]:
        """Sums of measured answers, each over how many they are: an array per query, geounits x sums."""
        measured = self.plan.at(level)
        ends = np.cumsum([m.query.size for m in measured])
        parts: list[list[Floats]] = [[] for _ in measured]
        for numbers in _row_groups(path, numbers_per_unit(measured)):
            for part, m, answers in zip(parts, measured, np.split(numbers, ends[:-1], axis=1), strict=True):
                part.append(self.sums_of(m.query).added_up(answers))
        found = []
        for part, m in zip(parts, measured, strict=True):
            many: Floats = np.ones(1)
            for each in self.sums_of(m.query).multiplicity:
                many = np.asarray(np.outer(many, each), dtype=np.float64).reshape(-1)
            found.append(np.concatenate(part) / many)
        return found


def _row_groups(path: Path, numbers: int) -> Iterator[NDArray[np.int64]]:
    """Read a shard's measurements piece by piece: whole geounits x numbers."""
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            flat = file.read_row_group(group, columns=["value"])["value"].combine_chunks()
            values = flat.chunk(0) if isinstance(flat, pa.ChunkedArray) else flat
            yield np.asarray(values.flatten()).reshape(-1, numbers)


@dataclass(frozen=True)
class _PooledEstimates(Estimates):
    """Both sweeps of the small table; published counts are those of the questions as they were."""

    originals: Mapping[str, Asked] = field(default_factory=dict)

    def answers(self, level: str, units: Indices, asked: Asked) -> Floats:
        """Estimates of some geounits of a level: geounits x answers."""
        return asked.of_cells(self._sweep.final(level, units))

    def counts(self, level: str, units: Indices, asked: Asked) -> Floats:
        """Published counts of some geounits of a level: geounits x answers."""
        return self._read("counts", level, units, self.originals[asked.text])

    @cached_property
    def _sweep(self) -> SweptEstimates:
        files = self.files
        if not isinstance(files, _PooledFiles) or not files.folder.measurements.exists():
            reason = "has no measurements, of which estimates are made for a schema of this size"
            raise UsageError(Problem(str(files.folder.path), reason, "ask a release that published them"))

        def values(level: str, piece: slice) -> list[Floats]:
            shard = next(shard for shard in files.shards(level) if shard.start == piece.start)
            return files.values(level, shard.path(files.folder.measurements))

        return SweptEstimates(
            files.covariances,
            {level: files.level_facts(level) for level in files.plan.levels},
            lambda level: [slice(shard.start, shard.stop) for shard in files.shards(level)],
            values,
        )
