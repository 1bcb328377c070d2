"""Variances of linear estimates in a country in which all geounits of a level are alike: convex in the budget.

Let a geounit of level l have N_l leaves below it, on average. The leaves' vectors come apart into what all leaves of a
top geounit share, and for each lower level j what its geounits have beside their siblings. A measurement of level l
sees all parts j <= l, each N_l times; so the information on part j, in one kind of block of the basis, is

    M_j(w) = sum over measured (l, q) with l >= j of N_l w_lq G_q,    w = 1 / variance of the noise,

and the variance of an answer c of a geounit of level l is, with 1/N_-1 = 0,

    V_l = sum over j <= l of N_l^2 (1/N_j - 1/N_(j-1)) c' M_j(w)^-1 c.

That is convex in w, and w is proportional to rho. Where parents have different numbers of children this is the variance
of a typical geounit; :mod:`das.estimation.linear.covariances` has those of all. Answers published exactly and
structural zeros are left out of each M_j; zeros that public limits imply in some geounits are not used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from das.estimation.linear.basis import Basis, Floats
from das.estimation.linear.exact_zeros import inside_classes
from das.plan.plan import Plan
from das.schema.query import Query
from geography import Spine

__all__ = ["Measured", "Term", "TypicalTree", "UndeterminedError"]

Measured = tuple[str, str]
"""Level and query of a measurement."""

_ZERO = 1e-9


class UndeterminedError(ValueError):
    """No measurement determines an answer, whatever its budget."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Term:
    """A part of a mean variance: the trace of ``F' (sum of w_i A_i)^-1 F``.

    Parameters
    ----------
    factor : ndarray
        F, dimensions x columns.
    grams : Mapping
        Measurement to its A.
    """

    factor: Floats
    grams: Mapping[Measured, Floats]

    def information(self, weights: Mapping[Measured, float]) -> Floats:
        """Sum of w_i A_i."""
        size = len(self.factor)
        total: Floats = np.zeros((size, size))
        for name, gram in self.grams.items():
            total = total + weights.get(name, 0.0) * gram
        return total

    def value(self, weights: Mapping[Measured, float]) -> tuple[float, dict[Measured, float]]:
        """Return the term and minus its derivative by each weight."""
        solved = np.linalg.solve(self.information(weights), self.factor)
        slopes = {name: float(np.einsum("ia,ij,ja->", solved, gram, solved)) for name, gram in self.grams.items()}
        return float((self.factor * solved).sum()), slopes


@dataclass(frozen=True, kw_only=True, eq=False)
class TypicalTree:
    """A regular tree with the average numbers of leaves of a spine, and the queries that a plan measures in it."""

    basis: Basis
    levels: tuple[str, ...]
    leaves: tuple[float, ...]
    measured: Mapping[Measured, Query]
    exact: Mapping[str, tuple[Query, ...]]

    @classmethod
    def of(cls, plan: Plan, spine: Spine) -> TypicalTree:
        """Average a spine; an invariant of a level is exact above it too."""
        queries = [*(m.query for m in plan.measurements), *plan.limited_queries]
        exact: dict[str, tuple[Query, ...]] = {}
        for at, level in enumerate(plan.levels):
            exact[level] = tuple(i.query for i in plan.invariants if plan.levels.index(i.level) >= at)
        return cls(
            basis=Basis.of(plan.schema, queries),
            levels=plan.levels,
            leaves=tuple(len(spine.leaves) / spine.size(level) for level in plan.levels),
            measured={(m.level, m.query.name): m.query for m in plan.measurements},
            exact=exact,
        )

    def terms(self, level: str, query: Query) -> list[Term]:
        """Parts of the mean variance of a query's answers in a typical geounit of a level.

        Raises
        ------
        UndeterminedError
            Some of it is not measured at all.
        """
        return [term for depth in range(self.levels.index(level) + 1) for term in self._terms(depth, level, query)]

    def variance(self, level: str, query: Query, weights: Mapping[Measured, float]) -> float:
        """Mean variance of a query's answers in a typical geounit of a level.

        Examples
        --------
        >>> from das.plan.load import load
        >>> plan = load("pl94-2020")
        >>> one = np.array(["1"] * 12)
        >>> spine = Spine.from_paths(plan.levels, [one] * (len(plan.levels) - 1) + [np.arange(12).astype("U2")])
        >>> tree, weights = TypicalTree.of(plan, spine), {(m.level, m.query.name): 1.0 for m in plan.measurements}
        >>> 0 < tree.variance("block", plan.measurements[-1].query, weights) < 1
        True
        """
        return sum(term.value(weights)[0] for term in self.terms(level, query))

    def _terms(self, depth: int, level: str, query: Query) -> Iterator[Term]:
        own = self.leaves[self.levels.index(level)]
        above = 1.0 / self.leaves[depth - 1] if depth else 0.0
        scale = own**2 * (1.0 / self.leaves[depth] - above)
        if scale <= _ZERO:
            return
        blocks = zip(self.basis.where, self._grams(query), self.free(depth), strict=True)
        for kind, (where, gram, free) in enumerate(blocks):
            # The answers of all copies of a block together have Gram matrix `gram` in each.
            values, vectors = np.linalg.eigh(free.T @ gram @ free)
            kept = values > _ZERO
            if not kept.any():
                continue
            factor = vectors[:, kept] * np.sqrt(values[kept] * scale * len(where) / query.size)
            grams = {
                name: self.leaves[at] * (free.T @ self._grams(asked)[kind] @ free)
                for name, asked in self.measured.items()
                if (at := self.levels.index(name[0])) >= depth
            }
            yield _seen(Term(factor=factor, grams=grams), level, query)

    def _grams(self, query: Query) -> list[Floats]:
        return self.basis.information([(query, 1.0)])

    def free(self, depth: int) -> list[Floats]:
        """For each kind of block, orthonormal columns that span what nothing exact determines of a part."""
        return self._free_parts[depth]

    @cached_property
    def _free_parts(self) -> list[list[Floats]]:
        """For each depth, see :meth:`free`.

        Part j is known where some level at or below it publishes the answers of each of its geounits.
        """
        found = []
        for level in self.levels:
            known = self.basis.information([(query, 1.0) for query in self.exact[level]])
            parts = []
            for gram, gone in zip(known, inside_classes(self.basis, self.basis.impossible), strict=True):
                possible = np.eye(len(gram))[:, ~gone]
                values, vectors = np.linalg.eigh(possible.T @ gram @ possible)
                parts.append(possible @ vectors[:, values <= _ZERO])
            found.append(parts)
        return found


def _seen(term: Term, level: str, query: Query) -> Term:
    """Leave out directions that nothing measures; refuse if an answer needs one of them."""
    whole = term.information(dict.fromkeys(term.grams, 1.0))
    values, vectors = np.linalg.eigh(whole)
    kept = values > _ZERO * max(float(values[-1]), 1.0)
    if kept.all():
        return term
    if np.abs(vectors[:, ~kept].T @ term.factor).max(initial=0.0) > 1e-6:
        raise UndeterminedError(f"{query.name!r} at {level} is not determined by what is measured")
    inside: Floats = vectors[:, kept]
    return Term(
        factor=inside.T @ term.factor, grams={name: inside.T @ gram @ inside for name, gram in term.grams.items()}
    )
