"""A basis in which covariances are block diagonal with small blocks: one orthogonal transform per attribute.

On each attribute the queries use the identity, the sum, and some recodes. Let U be the space of vectors that are
constant on the common refinement of those recodes (just the constants, if there are none). The identity's Gram matrix
is I on U and on its complement; all others vanish on the complement. So for each set of attributes that are in the
complement, the information is a small dense matrix on the product of the others' U, times an identity: equal blocks.

Zeros need not break this. Let every cell that is known to be empty lie in a product of *zero classes*, classes of an
attribute's labels, and let U hold the indicators of all classes. Each basis vector then lies within one class: it is an
indicator of a group of labels, or a contrast within one. If kinds of blocks also say in which class a contrast lies,
then for each coefficient of each kind either all its cells are empty or none is, so conditioning on zeros is done in
each block by itself, by deleting rows and columns.

The redistricting schema, 2,016 cells, comes apart into sixteen kinds of blocks of at most 3 x 3. With its structural
zero (no minors in nursing homes), and where bounds may say that a kind of group quarters is empty, the eight labels of
group quarters and both of voting age are classes: four kinds of blocks of 16 x 16.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from das.estimation.linear.axis import Axis, Floats
from das.estimation.linear.products import add_product
from das.schema.query import Query
from das.schema.schema import Partition, Schema

__all__ = ["Axis", "Basis", "Blocks", "Floats"]

Blocks = list[Floats]
"""One array per kind of block: ... x size x size."""
_Asked = tuple[tuple[str, float], ...]
_Answers = tuple[list[Floats], list[NDArray[np.int64]], NDArray[np.int64]]

_MOST_CLASSES = 32
"""How many combinations of zero classes limits may make: the cost of a block grows with their cube."""


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
    _informations: dict[_Asked, Blocks] = field(default_factory=dict, init=False, repr=False, compare=False)
    _inverses: dict[_Asked, Blocks | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    _answers: dict[str, _Answers] = field(default_factory=dict, init=False, repr=False, compare=False)
    remembered: dict[bytes, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, schema: Schema, queries: Sequence[Query], limited: Iterable[Query] = ()) -> Basis:
        """Make the basis that suits a set of queries and the schema's structural zeros.

        Answers of ``limited`` queries may be known zeros in some geounits. Their groups of labels are zero classes too,
        as far as blocks stay small.
        """
        classes: list[NDArray[np.int64]] = [np.zeros(size, dtype=np.int64) for size in schema.shape]
        for zero in schema.structural_zeros:
            for at, attribute in enumerate(schema.attributes):
                named = zero.labels.get(attribute.name, attribute.labels)
                classes[at] = _finer(classes[at], np.array([label in named for label in attribute.labels], np.int64))
        for query in sorted(limited, key=lambda query: (query.size, query.name)):
            more = [_finer(mine, factor.group_of) for mine, factor in zip(classes, query.factors, strict=True)]
            if math.prod(int(each.max()) + 1 for each in more) <= _MOST_CLASSES:
                classes = more
        axes = [
            Axis.of(size, [query.factors[at] for query in queries], classes[at]) for at, size in enumerate(schema.shape)
        ]
        return cls(schema, tuple(axes))

    @cached_property
    def kinds(self) -> list[tuple[int, ...]]:
        """For each kind of block, where each attribute is (:meth:`Axis.vectors`); those with no vector are left out."""
        every = product(*(range(axis.classes + 1) for axis in self.axes))
        counts = [[len(range(len(a.matrix))[a.vectors(k)]) for k in range(a.classes + 1)] for a in self.axes]
        return [kind for kind in every if all(counts[at][k] for at, k in enumerate(kind))]

    @cached_property
    def where(self) -> list[NDArray[np.int64]]:
        """For each kind, the coefficients' numbers: copies x size."""
        numbers = np.arange(self.schema.size).reshape(self.schema.shape)
        out: list[NDArray[np.int64]] = []
        for kind in self.kinds:
            part = numbers[tuple(a.vectors(k) for a, k in zip(self.axes, kind, strict=True))]
            outside = [i for i, o in enumerate(kind) if o]
            inside = [i for i, o in enumerate(kind) if not o]
            copies = int(np.prod([part.shape[i] for i in outside], dtype=np.int64))
            out.append(part.transpose(*outside, *inside).reshape(copies, -1))
        return out

    @property
    def class_shape(self) -> tuple[int, ...]:
        """Zero classes of each attribute."""
        return tuple(axis.classes for axis in self.axes)

    @cached_property
    def one_of_each_class(self) -> NDArray[np.int64]:
        """A cell of each combination of zero classes."""
        firsts = [np.unique(axis.class_of, return_index=True)[1] for axis in self.axes]
        return np.asarray(np.ravel_multi_index(np.ix_(*firsts), self.schema.shape), dtype=np.int64).reshape(-1)

    @cached_property
    def impossible(self) -> NDArray[np.bool_]:
        """Which combinations of zero classes are structural zeros."""
        return ~self.schema.possible[self.one_of_each_class]

    def to_coefficients(self, cells: Floats) -> Floats:
        """Transform vectors over cells, along the last axis."""
        return self._transform(cells, [axis.matrix for axis in self.axes])

    def to_cells(self, coefficients: Floats) -> Floats:
        """Transform back."""
        return self._transform(coefficients, [axis.matrix.T for axis in self.axes])

    def _transform(self, vectors: Floats, matrices: list[Floats]) -> Floats:
        shape, parts = self.schema.shape, vectors.reshape(-1, self.schema.size // self.schema.shape[0])
        some = np.asarray(parts.any(axis=1)) if self._comes_apart else np.ones(1, dtype=bool)
        if 2 * np.count_nonzero(some) > len(some):
            return _along(vectors.reshape(-1, *shape), matrices).reshape(vectors.shape)
        out = np.zeros(parts.shape)
        out[some] = _along(parts[some].reshape(-1, *shape[1:]), matrices[1:]).reshape(-1, parts.shape[1])
        return out.reshape(vectors.shape)

    @property
    def _comes_apart(self) -> bool:
        """Whether labels of the first attribute can be transformed by themselves, with the same bits.

        Most leaves have nobody in most kinds of group quarters, and what is zero stays zero. The order of sums follows
        the layout in memory, which the product along the second attribute leaves, so that one has to be exact as well.
        """
        return len(self.axes) > 1 and self.axes[0].is_identity and self.axes[1].is_identity

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
            if block.ndim == coefficients.ndim == 2 and min(len(coefficients), *where.shape) > 1:
                add_product(coefficients, np.arange(len(coefficients)), where, block, where, out)
            else:
                out[..., where] = coefficients[..., where] @ block
        return out

    def kernel(self, cells: NDArray[np.int64], blocks: Blocks) -> Floats:
        """Entries of an operator between the given cells: ... x cells x cells."""
        codes = np.unravel_index(cells, self.schema.shape)
        out: Floats = np.zeros((*blocks[0].shape[:-2], len(cells), len(cells)))
        for kind, block in zip(self.kinds, blocks, strict=True):
            vectors: Floats = np.ones((len(cells), 1))
            for rows in (a.u[code] for a, code, o in zip(self.axes, codes, kind, strict=True) if not o):
                vectors = (vectors[:, :, None] * rows[:, None, :]).reshape(len(cells), -1)
            term = vectors @ block @ vectors.T
            for axis, code, o in zip(self.axes, codes, kind, strict=True):
                if o:
                    contrasts = axis.matrix[:, axis.vectors(o)]
                    beside = contrasts @ contrasts.T
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
                first, second, inside, beside = axis.parts(outside)
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
        sums, labels, answers = self._different_answers(query)
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
                    each = np.where(self.axes[at].class_of[labels[at]] == outside - 1, each, 0.0)
                    part = part * each.reshape(-1, *(1,) * (len(kind) - at - 1))
            out += part
        return np.asarray(out.reshape(*lead, -1)[..., answers])

    def _different_answers(self, query: Query) -> _Answers:
        """Answers with different variances: of each attribute the sums in U and a label of each, and which each is."""
        if query.name in self._answers:
            return self._answers[query.name]
        # Labels of one group of U are alike: of 2,016 cells of the redistricting schema 16 differ.
        found = [np.unique(a.sums(f), axis=0, return_index=True, return_inverse=True) for a, f in self._pairs(query)]
        which: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        for rows, _, row_of in found:
            which = (which[:, None] * len(rows) + row_of.reshape(-1)).reshape(-1)
        self._answers[query.name] = [each[0] for each in found], [each[1] for each in found], which
        return self._answers[query.name]

    def _pairs(self, query: Query) -> list[tuple[Axis, Partition]]:
        return list(zip(self.axes, query.factors, strict=True))

    @staticmethod
    def _product(kind: tuple[int, ...], matrices: list[Floats]) -> Floats:
        inside = [matrix for matrix, outside in zip(matrices, kind, strict=True) if not outside]
        out: Floats = np.ones((1, 1))
        for matrix in inside:
            # Kronecker's product: NumPy's own takes ten times as long for matrices as small as these.
            out = (out[:, None, :, None] * matrix[:, None]).reshape(len(out) * len(matrix), -1)
        return out


def _along(vectors: Floats, matrices: list[Floats]) -> Floats:
    """Multiply vectors with a matrix along each axis but the first."""
    out = vectors
    for at, matrix in enumerate(matrices, start=1):
        out = np.moveaxis(np.moveaxis(out, at, -1) @ matrix, -1, at)
    return np.ascontiguousarray(out)


def _sees(query: Query, kind: tuple[int, ...]) -> bool:
    """A query sees the complement of an attribute only if it keeps the attribute whole."""
    return all(factor.is_identity or not outside for factor, outside in zip(query.factors, kind, strict=True))


def _finer(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """The common refinement of two groupings of labels, groups numbered in the order of their first labels."""
    pairs = list(zip(one.tolist(), other.tolist(), strict=True))
    order = list(dict.fromkeys(pairs))
    return np.array([order.index(pair) for pair in pairs], dtype=np.int64)
