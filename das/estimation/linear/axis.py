"""An attribute's part of the basis (:mod:`das.estimation.linear.basis`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from das.schema.schema import Partition

__all__ = ["Axis", "Floats"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Axis:
    """An attribute's orthonormal basis: first U, the vectors that are constant on recodes, then its complement.

    Each basis vector lies within one zero class; those of the complement are sorted by class.
    """

    matrix: Floats  # labels x labels, columns are basis vectors
    shared: int  # how many of them span U
    class_of: NDArray[np.int64]  # zero class of each label

    @classmethod
    def of(cls, size: int, partitions: Iterable[Partition], class_of: NDArray[np.int64] | None = None) -> Axis:
        """Make the basis that suits some partitions of the labels."""
        class_of = np.zeros(size, dtype=np.int64) if class_of is None else class_of
        recodes = [p for p in partitions if not p.is_identity and not p.is_everything]
        codes = [(int(class_of[label]), *(int(p.group_of[label]) for p in recodes)) for label in range(size)]
        groups = sorted(set(codes), key=codes.index)
        indicators = np.array([[float(code == group) for group in groups] for code in codes])
        shared = indicators / np.sqrt(indicators.sum(axis=0))
        # Helmert's contrasts within each group span the complement, and come out the same on every machine.
        rest = []
        for group in sorted(groups, key=lambda group: group[0]):
            members = [label for label in range(size) if codes[label] == group]
            for j in range(1, len(members)):
                contrast = np.zeros(size)
                contrast[members[:j]], contrast[members[j]] = 1.0, -j
                rest.append(contrast / np.sqrt(j * (j + 1)))
        return cls(np.column_stack([shared, *rest]), len(groups), class_of)

    @cached_property
    def is_identity(self) -> bool:
        """Whether each label is a basis vector, in order: every label is a zero class or a group of its own."""
        return np.array_equal(self.matrix, np.eye(len(self.matrix)))

    @property
    def classes(self) -> int:
        """How many zero classes the labels form."""
        return int(self.class_of.max()) + 1

    @cached_property
    def class_of_vector(self) -> NDArray[np.int64]:
        """Zero class in which each basis vector lies."""
        return np.asarray(self.class_of[np.abs(self.matrix).argmax(axis=0)])

    def vectors(self, kind: int) -> slice:
        """Where the basis vectors of a kind stand: U for 0, and k for the complement's within zero class k - 1."""
        if not kind:
            return slice(self.shared)
        start, stop = np.searchsorted(self.class_of_vector[self.shared :], [kind - 1, kind])
        return slice(self.shared + int(start), self.shared + int(stop))

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

    def parts(self, kind: int) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats, Floats]:
        """For each kind of pair its two groups, the product of its parts in U, and that of its parts beside U.

        Beside U only the zero class counts that the kind of block is about.
        """
        first, second = np.divmod(np.arange(self.shared**2), self.shared)
        size = 1.0 / (self.u.max(axis=0) ** 2)
        both = np.arange(self.shared)
        beside = np.concatenate([np.where(first == second, -1.0 / size[first], 0.0), 1.0 - 1.0 / size])
        first, second = np.concatenate([first, both]), np.concatenate([second, both])
        beside = np.where(self.class_of_vector[first] == kind - 1, beside, 0.0)
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
