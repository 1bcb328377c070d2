"""What synthetic records may look like: attributes and their numbers of labels, impossible cells, exact marginals.

A :class:`das.schema.schema.Schema` keeps one flag for each of its cells; here nothing of the size of all cells is ever
made, so that a domain may have more cells than any memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from das.errors import ConfigError, InfeasibleError, Problem
from das.schema.schema import Schema

__all__ = ["NO_CONSTRAINTS", "Constraints", "Domain", "Invariant", "Zero"]

_LARGEST_PROGRAM = 200_000
"""Cells up to which the invariants are checked together by a linear program."""


@dataclass(frozen=True)
class Domain:
    """Attributes in axis order and how many labels each has.

    Examples
    --------
    >>> domain = Domain(("sex", "age"), (2, 18))
    >>> domain.size, domain.axes(["age"]), domain.shape_of(("age", "sex"))
    (36, (1,), (18, 2))
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.names or len(self.names) != len(self.shape) or len(set(self.names)) != len(self.names):
            raise ConfigError(Problem("columns", "each attribute needs one name and one number of labels"))
        if min(self.shape) < 1:
            raise ConfigError(Problem("columns", "an attribute without labels", "give every column its labels"))

    @classmethod
    def of(cls, schema: Schema) -> Domain:
        """Return the domain of a schema."""
        return cls(schema.names, schema.shape)

    @cached_property
    def size(self) -> int:
        """Number of cells, impossible ones included."""
        return math.prod(self.shape)

    @cached_property
    def _axis(self) -> dict[str, int]:
        return {name: axis for axis, name in enumerate(self.names)}

    def axes(self, attributes: Iterable[str]) -> tuple[int, ...]:
        """Axis of each attribute."""
        try:
            return tuple(self._axis[name] for name in attributes)
        except KeyError as unknown:
            known = ", ".join(self.names)
            raise ConfigError(Problem(str(unknown.args[0]), "is not an attribute", f"there are {known}")) from None

    def ordered(self, attributes: Iterable[str]) -> tuple[str, ...]:
        """The attributes, each once, in axis order."""
        return tuple(self.names[axis] for axis in sorted(set(self.axes(attributes))))

    def shape_of(self, attributes: Iterable[str]) -> tuple[int, ...]:
        """Labels of each attribute."""
        return tuple(self.shape[axis] for axis in self.axes(attributes))

    def size_of(self, attributes: Iterable[str]) -> int:
        """Cells of a marginal."""
        return math.prod(self.shape_of(attributes))

    def subsets(self, size: int) -> list[tuple[str, ...]]:
        """All sets of so many attributes."""
        return list(combinations(self.names, size))


@dataclass(frozen=True, eq=False)
class Zero:
    """Cells of a marginal in which nobody can be: True where impossible."""

    attributes: tuple[str, ...]
    impossible: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Invariant:
    """A marginal that is published exactly."""

    attributes: tuple[str, ...]
    counts: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Constraints:
    """What every synthetic file keeps exactly.

    Examples
    --------
    >>> no_old_men = Zero(("sex", "age"), np.array([[False, False], [False, True]]))
    >>> rules = Constraints(zeros=(no_old_men,), invariants=(Invariant(("sex",), np.array([3, 2])),))
    >>> rules.check(Domain(("sex", "age"), (2, 2)), total=5)
    >>> rules.check(Domain(("sex", "age"), (2, 2)), total=6)
    Traceback (most recent call last):
    das.errors.InfeasibleError: invariant sex: its counts sum to 5, not to the total 6; ...
    """

    zeros: tuple[Zero, ...] = ()
    invariants: tuple[Invariant, ...] = ()

    @classmethod
    def of(cls, schema: Schema, invariants: Sequence[Invariant] = ()) -> Constraints:
        """Return the structural zeros of a schema as masks over the attributes that each names."""
        zeros = []
        for zero in schema.structural_zeros:
            named = tuple(a for a in schema.attributes if a.name in zero.labels)
            mask = np.zeros(tuple(len(a.labels) for a in named), dtype=bool)
            mask[np.ix_(*([a.labels.index(label) for label in zero.labels[a.name]] for a in named))] = True
            zeros.append(Zero(tuple(a.name for a in named), mask))
        return cls(tuple(zeros), tuple(invariants))

    @property
    def invariant_attributes(self) -> frozenset[str]:
        """All attributes that an invariant counts."""
        return frozenset(name for invariant in self.invariants for name in invariant.attributes)

    @cached_property
    def all_zeros(self) -> tuple[Zero, ...]:
        """Structural zeros, and the cells that an invariant counts as empty."""
        empty = tuple(Zero(each.attributes, each.counts == 0) for each in self.invariants if (each.counts == 0).any())
        return self.zeros + empty

    def possible(self, attributes: Sequence[str], shape: tuple[int, ...]) -> NDArray[np.bool_]:
        """Cells of a marginal that no zero within its attributes rules out."""
        mask = np.ones(shape, dtype=bool)
        for zero in self.all_zeros:
            if set(zero.attributes) <= set(attributes):
                mask &= ~spread(zero.impossible, zero.attributes, attributes)
        return mask

    def check(self, domain: Domain, total: float | None) -> None:
        """Refuse facts that no distribution on the domain meets; nothing confidential is read.

        Raises
        ------
        InfeasibleError
            With every contradiction that was found.
        """
        problems = [*self._shapes(domain)]
        if not problems:
            problems = [*self._sums(total), *self._pairs(domain)]
        if not problems and (self.invariants or self.zeros):
            problems = self._program(domain)
        if problems:
            raise InfeasibleError(*problems)

    def _shapes(self, domain: Domain) -> Iterable[Problem]:
        named = [(f"structural zero {' * '.join(z.attributes)}", z.attributes, z.impossible.shape) for z in self.zeros]
        named += [(f"invariant {' * '.join(i.attributes)}", i.attributes, i.counts.shape) for i in self.invariants]
        for where, attributes, shape in named:
            if domain.ordered(attributes) != attributes:
                yield Problem(where, "names its attributes in another order than the columns", "use the column order")
            elif domain.shape_of(attributes) != shape:
                yield Problem(where, f"has shape {shape}, its attributes have {domain.shape_of(attributes)} labels")
        for each in self.invariants:
            if (each.counts < 0).any():
                yield Problem(f"invariant {' * '.join(each.attributes)}", "has a negative count")

    def _sums(self, total: float | None) -> Iterable[Problem]:
        wanted = self.invariants[0].counts.sum() if total is None and self.invariants else total
        for each in self.invariants:
            if (found := int(each.counts.sum())) != wanted:
                reason = f"its counts sum to {found}, not to the total {wanted}"
                yield Problem(f"invariant {' * '.join(each.attributes)}", reason, "correct the counts or the total")

    def _pairs(self, domain: Domain) -> Iterable[Problem]:
        for one, two in combinations(self.invariants, 2):
            shared = domain.ordered(set(one.attributes) & set(two.attributes))
            sums = [collapse(each.counts, each.attributes, shared) for each in (one, two)]
            if not np.array_equal(sums[0], sums[1]):
                where = f"invariants {' * '.join(one.attributes)} and {' * '.join(two.attributes)}"
                yield Problem(where, f"disagree on {' * '.join(shared) or 'the total'}", "correct one of them")

    def _program(self, domain: Domain) -> list[Problem]:
        """Look for any table that meets all facts, by linear programming over the attributes that they name."""
        from scipy import sparse
        from scipy.optimize import linprog

        named = domain.ordered({a for zero in self.zeros for a in zero.attributes} | self.invariant_attributes)
        if domain.size_of(named) > _LARGEST_PROGRAM:
            return []
        shape = domain.shape_of(named)
        cells = np.flatnonzero(self.possible(named, shape).reshape(-1))
        if not len(cells):
            return [Problem("structural zeros", "leave no cell in which anybody could be", "remove one of them")]
        if not self.invariants:
            return []
        codes = dict(zip(named, np.unravel_index(cells, shape), strict=True))
        blocks, counts = [], []
        for each in self.invariants:
            at = np.ravel_multi_index([codes[name] for name in each.attributes], each.counts.shape)
            ones = sparse.csr_array((np.ones(len(cells)), (at, np.arange(len(cells)))), (each.counts.size, len(cells)))
            blocks.append(ones)
            counts.append(each.counts.reshape(-1))
        solved = linprog(np.zeros(len(cells)), A_eq=sparse.vstack(blocks), b_eq=np.concatenate(counts))
        if solved.status == 0:
            return []
        names = ", ".join(" * ".join(each.attributes) for each in self.invariants)
        reason = "no distribution meets them together with the structural zeros"
        return [Problem(f"invariants {names}", reason, "correct the counts, or remove a zero")]


NO_CONSTRAINTS = Constraints()


def spread(values: NDArray[np.bool_], attributes: Sequence[str], onto: Sequence[str]) -> NDArray[np.bool_]:
    """Give a marginal the axes of a larger one, with length one where it has no attribute; both in the same order."""
    sizes = dict(zip(attributes, values.shape, strict=True))
    return values.reshape(tuple(sizes.get(name, 1) for name in onto))


def collapse(counts: NDArray[np.int64], attributes: Sequence[str], onto: Sequence[str]) -> NDArray[np.int64]:
    """Sum a marginal to fewer attributes; both in the same order.

    Examples
    --------
    >>> collapse(np.array([[1, 2], [3, 4]]), ("sex", "age"), ("age",)).tolist()
    [4, 6]
    """
    return np.asarray(counts.sum(axis=tuple(i for i, name in enumerate(attributes) if name not in onto)))
