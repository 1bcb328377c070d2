"""A basis in which covariances are block diagonal with small blocks: one orthogonal transform per attribute.

On each attribute the queries use the identity, the sum, and some recodes. Let U be the space of vectors that are
constant on the common refinement of those recodes (just the constants, if there are none). The identity's Gram matrix
is I on U and on its complement; all others vanish on the complement. So for each set of attributes that are in the
complement, the information is a small dense matrix on the product of the others' U, times an identity: equal blocks.
The redistricting schema, 2,016 cells, comes apart into sixteen kinds of blocks of at most 3 x 3; where bounds may say
that a kind of group quarters is empty, its eight labels are all in U, and there are eight kinds of blocks of 8 x 8.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from das.schema.query import Query
from das.schema.schema import Partition, Schema

__all__ = ["Basis", "Blocks"]

Floats = NDArray[np.float64]
Blocks = list[Floats]
"""One array per kind of block: ... x size x size."""

_MOST_APART = 32
"""How many combinations of labels a block may keep separate: its cost grows with their cube."""


@dataclass(frozen=True)
class Axis:
    """An attribute's orthonormal basis: first U, the vectors that are constant on recodes, then its complement."""

    matrix: Floats  # labels x labels, columns are basis vectors
    shared: int  # how many of them span U

    @classmethod
    def of(cls, size: int, partitions: Iterable[Partition], *, apart: bool = False) -> Axis:
        recodes = [p for p in partitions if not p.is_identity and not p.is_everything]
        codes = [(label if apart else 0, *(int(p.group_of[label]) for p in recodes)) for label in range(size)]
        groups = sorted(set(codes), key=codes.index)
        indicators = np.array([[float(code == group) for group in groups] for code in codes])
        shared = indicators / np.sqrt(indicators.sum(axis=0))
        # Helmert's contrasts within each group span the complement, and come out the same on every machine.
        rest = []
        for group in groups:
            members = [label for label in range(size) if codes[label] == group]
            for j in range(1, len(members)):
                contrast = np.zeros(size)
                contrast[members[:j]], contrast[members[j]] = 1.0, -j
                rest.append(contrast / np.sqrt(j * (j + 1)))
        return cls(np.column_stack([shared, *rest]), len(groups))

    @property
    def u(self) -> Floats:
        """Orthonormal columns that span U."""
        return self.matrix[:, : self.shared]

    def gram(self, partition: Partition) -> Floats:
        """The partition's Gram matrix on U."""
        if partition.is_identity:
            return np.eye(self.shared)
        map_ = np.zeros((len(partition.groups), partition.size))
        map_[partition.group_of, np.arange(partition.size)] = 1.0
        return np.asarray((map_ @ self.u).T @ (map_ @ self.u))

    @property
    def pairs(self) -> int:
        """How many kinds of pairs of labels an operator can tell apart: their groups, and whether they are equal."""
        return self.shared**2 + self.shared

    def pair_of(self, code: NDArray[np.int64]) -> NDArray[np.int64]:
        """Kind of each pair of the given labels: pairs of groups first, then equal labels by group."""
        group = self.u.argmax(axis=1)[code]
        apart = group[:, None] * self.shared + group
        return np.asarray(np.where(code[:, None] == code, self.shared**2 + group[:, None], apart))

    def parts(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats, Floats]:
        """For each kind of pair its two groups, the product of its parts in U, and that of its parts beside U."""
        first, second = np.divmod(np.arange(self.shared**2), self.shared)
        size = 1.0 / (self.u.max(axis=0) ** 2)
        both = np.arange(self.shared)
        beside = np.concatenate([np.where(first == second, -1.0 / size[first], 0.0), 1.0 - 1.0 / size])
        first, second = np.concatenate([first, both]), np.concatenate([second, both])
        return first, second, 1.0 / np.sqrt(size[first] * size[second]), beside

    def sums(self, partition: Partition) -> Floats:
        """U's vectors summed within each of the partition's groups: groups x shared."""
        if partition.is_identity:
            return self.u
        if partition.is_everything:
            return np.asarray(self.u.sum(axis=0, keepdims=True))
        return np.stack([self.u[list(group)].sum(axis=0) for group in partition.groups])

    def rows(self, partition: Partition) -> Floats:
        """Orthonormal columns, in U's coordinates, that span what the partition sees of U."""
        if partition.is_identity:
            return np.eye(self.shared)
        indicators = np.zeros((partition.size, len(partition.groups)))
        indicators[np.arange(partition.size), partition.group_of] = 1.0
        return np.asarray(self.u.T @ (indicators / np.sqrt(indicators.sum(axis=0))))


@dataclass(frozen=True)
class Basis:
    """The product of the attributes' bases, and where each kind of block lies among the coefficients.

    Examples
    --------
    >>> from das.schema.schema import Attribute
    >>> from das.schema.query import parse_query
    >>> schema = Schema((Attribute("sex", ("f", "m")), Attribute("age", ("0-17", "18-64", "65+"))))
    >>> queries = [parse_query(schema, name) for name in ("total", "sex", "detailed")]
    >>> basis = Basis.of(schema, queries)
    >>> [where.shape for where in basis.where]
    [(1, 1), (2, 1), (1, 1), (2, 1)]
    >>> counts = np.arange(6.0)
    >>> np.allclose(basis.to_cells(basis.to_coefficients(counts)), counts)
    True
    """

    schema: Schema
    axes: tuple[Axis, ...]
    apart: tuple[int, ...] = ()  # attributes that are in U altogether: each label is a coefficient

    @classmethod
    def of(cls, schema: Schema, queries: Sequence[Query], limited: Iterable[Query] = ()) -> Basis:
        """Make the basis that suits a set of queries.

        Labels of the attributes that ``limited`` queries keep may be known zeros in some geounits. They are kept
        separate, as far as blocks stay small, so that each block can be conditioned on known zeros by itself.
        """
        apart: set[int] = set()
        for query in sorted(limited, key=lambda query: (query.size, query.name)):
            more = apart | {at for at, factor in enumerate(query.factors) if not factor.is_everything}
            if math.prod(schema.shape[at] for at in more) <= _MOST_APART:
                apart = more
        axes = [
            Axis.of(size, [query.factors[at] for query in queries], apart=at in apart)
            for at, size in enumerate(schema.shape)
        ]
        return cls(schema, tuple(axes), tuple(sorted(apart)))

    @cached_property
    def kinds(self) -> list[tuple[bool, ...]]:
        """For each kind of block, which attributes are in the complement; kinds with no vector are left out."""
        every = product((False, True), repeat=len(self.axes))
        return [
            k for k in every if all(len(a.matrix) > a.shared or not out for a, out in zip(self.axes, k, strict=True))
        ]

    @cached_property
    def where(self) -> list[NDArray[np.int64]]:
        """For each kind, the coefficients' numbers: copies x size."""
        numbers = np.arange(self.schema.size).reshape(self.schema.shape)
        out: list[NDArray[np.int64]] = []
        for kind in self.kinds:
            part = numbers[
                tuple(slice(a.shared, None) if o else slice(a.shared) for a, o in zip(self.axes, kind, strict=True))
            ]
            outside = [i for i, o in enumerate(kind) if o]
            inside = [i for i, o in enumerate(kind) if not o]
            copies = int(np.prod([part.shape[i] for i in outside], dtype=np.int64))
            out.append(part.transpose(*outside, *inside).reshape(copies, -1))
        return out

    def to_coefficients(self, cells: Floats) -> Floats:
        """Transform vectors over cells, along the last axis."""
        return self._transform(cells, [axis.matrix for axis in self.axes])

    def to_cells(self, coefficients: Floats) -> Floats:
        """Transform back."""
        return self._transform(coefficients, [axis.matrix.T for axis in self.axes])

    def _transform(self, vectors: Floats, matrices: list[Floats]) -> Floats:
        lead = vectors.shape[:-1]
        out = vectors.reshape(-1, *self.schema.shape)
        for at, matrix in enumerate(matrices):
            out = np.moveaxis(np.moveaxis(out, at + 1, -1) @ matrix, -1, at + 1)
        return np.ascontiguousarray(out).reshape(*lead, self.schema.size)

    def information(self, queries: Iterable[tuple[Query, float]]) -> Blocks:
        """Sum of Gram matrices, each times its weight (one over a variance), block by block.

        Remembered, read-only: all families of a level ask for the same.
        """
        queries = tuple(queries)
        asked = tuple((query.name, weight) for query, weight in queries)
        if asked not in self._informations:
            blocks: list[Floats] = [np.zeros((where.shape[1], where.shape[1])) for where in self.where]
            for query, weight in queries:
                grams = [a.gram(f) for a, f in self._pairs(query)]
                for block, kind in zip(blocks, self.kinds, strict=True):
                    if _sees(query, kind):
                        block += weight * self._product(kind, grams)
            for block in blocks:
                block.flags.writeable = False
            self._informations[asked] = blocks
        return list(self._informations[asked])

    def inverse_information(self, queries: Iterable[tuple[Query, float]]) -> Blocks | None:
        """Inverse of :meth:`information`, remembered as well; ``None`` if the queries leave something unseen."""
        queries = tuple(queries)
        asked = tuple((query.name, weight) for query, weight in queries)
        if asked not in self._inverses:
            blocks = self.information(queries)
            seen = all(np.linalg.eigvalsh(block)[0] > 0 for block in blocks)
            self._inverses[asked] = [np.asarray(np.linalg.inv(block)) for block in blocks] if seen else None
        return self._inverses[asked]

    @cached_property
    def _inverses(self) -> dict[tuple[tuple[str, float], ...], Blocks | None]:
        return {}

    @cached_property
    def _informations(self) -> dict[tuple[tuple[str, float], ...], Blocks]:
        return {}

    def rows(self, query: Query) -> list[Floats | None]:
        """For each kind, orthonormal columns that span what the query sees of a block; ``None`` for nothing."""
        pairs = [a.rows(f) for a, f in self._pairs(query)]
        return [self._product(kind, pairs) if _sees(query, kind) else None for kind in self.kinds]

    def spread(self, query: Query, values: Floats) -> Floats:
        """Coefficients of the smallest table with these answers: each answer shared evenly among its cells."""
        members = np.bincount(query.index, minlength=query.size)
        return self.to_coefficients((values / members)[..., query.index])

    def multiply(self, coefficients: Floats, blocks: Blocks) -> Floats:
        """Apply a symmetric operator, block by block; leading axes of both go together."""
        out = np.zeros_like(coefficients)
        for where, block in zip(self.where, blocks, strict=True):
            out[..., where] = coefficients[..., where] @ block
        return out

    def kernel(self, cells: NDArray[np.int64], blocks: Blocks) -> Floats:
        """Entries of an operator between the given cells: ... x cells x cells."""
        codes = np.unravel_index(cells, self.schema.shape)
        out: Floats = np.zeros((*blocks[0].shape[:-2], len(cells), len(cells)))
        for kind, block in zip(self.kinds, blocks, strict=True):
            inside = [a.u[code] for a, code, o in zip(self.axes, codes, kind, strict=True) if not o]
            vectors: Floats = np.ones((len(cells), 1))
            for rows in inside:
                vectors = (vectors[:, :, None] * rows[:, None, :]).reshape(len(cells), -1)
            term = vectors @ block @ vectors.T
            for axis, code, o in zip(self.axes, codes, kind, strict=True):
                if o:
                    beside = np.eye(len(axis.matrix)) - axis.u @ axis.u.T
                    term = term * beside[code[:, None], code]
            out += term
        return out

    @property
    def pairs(self) -> int:
        """How many kinds of pairs of cells an operator can tell apart."""
        return math.prod(axis.pairs for axis in self.axes)

    def pair_of(self, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        """Kind of each pair of the given cells: cells x cells."""
        kinds: NDArray[np.int64] = np.zeros((len(cells), len(cells)), dtype=np.int64)
        for axis, code in zip(self.axes, np.unravel_index(cells, self.schema.shape), strict=True):
            kinds = kinds * axis.pairs + axis.pair_of(code)
        return kinds

    def entries(self, blocks: Blocks) -> Floats:
        """Entry of an operator for each kind of pair of cells: ... x kinds.

        Examples
        --------
        >>> from das.schema.schema import Attribute
        >>> from das.schema.query import parse_query
        >>> schema = Schema((Attribute("sex", ("f", "m")), Attribute("age", ("0-17", "18-64", "65+"))))
        >>> basis = Basis.of(schema, [parse_query(schema, "sex")])
        >>> blocks = basis.information([(parse_query(schema, "sex"), 2.0)])
        >>> basis.entries(blocks).take(basis.pair_of(np.array([0, 1, 3]))).round(9).tolist()
        [[2.0, 2.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 2.0]]
        """
        lead = blocks[0].shape[:-2]
        out: Floats = np.zeros((*lead, *(axis.pairs for axis in self.axes)))
        for kind, block in zip(self.kinds, blocks, strict=True):
            sizes = [axis.shared for axis, outside in zip(self.axes, kind, strict=True) if not outside]
            part, left = block.reshape((*lead, *sizes, *sizes)), len(sizes)
            # One attribute after the other: its two indices in U, or none, become the kinds of pairs of its labels.
            for axis, outside in zip(self.axes, kind, strict=True):
                first, second, inside, beside = axis.parts()
                if outside:
                    part = part[..., None] * beside
                else:
                    left -= 1
                    part = np.moveaxis(np.moveaxis(part, len(lead), -1), len(lead) + left, -1)
                    part = part[..., first, second] * inside
            out += part
        return out.reshape((*lead, -1))

    def variances(self, query: Query, blocks: Blocks) -> Floats:
        """Variance of each answer of a query when the blocks are a covariance: ... x answers."""
        lead = blocks[0].shape[:-2]
        sums = [axis.sums(factor) for axis, factor in self._pairs(query)]
        # Where an attribute is in the complement its query is the identity: each label by itself, its part beside U.
        beside = [1.0 - (each**2).sum(axis=1) for each in sums]
        out: Floats = np.zeros((*lead, *(len(each) for each in sums)))
        for kind, block in zip(self.kinds, blocks, strict=True):
            if not _sees(query, kind):
                continue
            inside = self._product(kind, sums)
            part = ((inside @ block) * inside).sum(axis=-1)
            part = part.reshape(*lead, *(1 if o else len(each) for each, o in zip(sums, kind, strict=True)))
            for at, (each, outside) in enumerate(zip(beside, kind, strict=True)):
                if outside:
                    part = part * each.reshape(-1, *(1,) * (len(kind) - at - 1))
            out += part
        return out.reshape(*lead, query.size)

    def _pairs(self, query: Query) -> list[tuple[Axis, Partition]]:
        return list(zip(self.axes, query.factors, strict=True))

    @staticmethod
    def _product(kind: tuple[bool, ...], matrices: list[Floats]) -> Floats:
        inside = [matrix for matrix, outside in zip(matrices, kind, strict=True) if not outside]
        out: Floats = np.ones((1, 1))
        for matrix in inside:
            # Kronecker's product: NumPy's own takes ten times as long for matrices as small as these.
            out = (out[:, None, :, None] * matrix[:, None]).reshape(len(out) * len(matrix), -1)
        return out


def _sees(query: Query, kind: tuple[bool, ...]) -> bool:
    """A query sees the complement of an attribute only if it keeps the attribute whole."""
    return all(factor.is_identity or not outside for factor, outside in zip(query.factors, kind, strict=True))
