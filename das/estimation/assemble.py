"""Assemble one family's estimation problem: linear estimates, the objective with its priors, and the constraints.

The up-sweep calls :meth:`Family.pooled` for every family, from the leaves to the top: it gives the parent's linear
estimate from its children. The down-sweep calls :meth:`Family.linear_estimate` and then :meth:`Family.problem`, which
states the constrained least-squares problem given the parent's protected counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from das.estimation.linear.basis import Basis
from das.estimation.linear.blue import Exact, LinearEstimate, condition, distance, pool, update
from das.estimation.linear.exact_zeros import condition_alike, condition_on_zeros, known_zeros, patterns_of
from das.estimation.prior.sparse_cells import add_sharing_prior, add_size_prior
from das.estimation.prior.totals import penalise_totals
from das.estimation.problem import FamilyProblem, Measured, Quadratic
from das.facts.fact import Fact, limits_of
from das.plan.plan import Measurement

__all__ = ["Family", "Prior", "measured_by_query"]

Prior = Literal["sharing", "none"]
"""Values of the setting ``estimate.prior``."""


def measured_by_query(
    measurements: Sequence[Measurement], values: NDArray[np.signedinteger[Any]]
) -> tuple[Measured, ...]:
    """Cut rows of noisy numbers, children x all numbers of a level, into the answers of each measured query."""
    measured, start = [], 0
    for measurement in measurements:
        stop = start + measurement.query.size
        variance = measurement.mechanism.variance()
        measured.append(Measured(query=measurement.query, values=values[:, start:stop], variance=variance))
        start = stop
    return tuple(measured)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The children of one parent: their measurements, the public facts on them, and the estimates from below.

    ``below`` holds one linear estimate for each child, from the measurements of all levels below it. It is ``None``
    for leaves of the spine.
    """

    basis: Basis
    level: str
    children: int
    measured: tuple[Measured, ...]  # children x answers
    facts: tuple[Fact, ...]  # children x answers
    below: LinearEstimate | None = None

    def linear_estimate(self) -> LinearEstimate:
        """Best linear unbiased estimates of the children from their own level and all levels below."""
        return self._conditioned(self.measured, self._exact(), self._zeros(), self.below)

    def estimate_alike(self) -> LinearEstimate:
        """The same; of leaves with kinds: those with the same known zeros share one covariance."""
        if self.below is not None or self._exact():
            return self.linear_estimate()
        return condition_alike(self.basis, self._updated(self.measured, (), self.children, None), self._zeros())

    def pooled(self) -> LinearEstimate:
        """Linear estimate of the parent as the sum of its children.

        Leaves are measured alike. Those with the same known zeros have the same linear map from measurements to
        estimates, so it is applied once, to the sum of their measurements.
        """
        if self.below is not None:
            return pool(self.linear_estimate())
        patterns, pattern_of, leaves = patterns_of(self._zeros())
        members = [np.flatnonzero(pattern_of == pattern) for pattern in range(len(patterns))]

        def summed(values: NDArray[np.signedinteger[Any]]) -> NDArray[np.int64]:
            return np.stack([values[leaf].sum(axis=0, dtype=np.int64) for leaf in members])

        measured = tuple(replace(query, values=summed(query.values)) for query in self.measured)
        exact = tuple(Exact(fact.query, summed(fact.values)) for fact in self._exact())
        known = self._conditioned(measured, exact, patterns, None)
        return pool(LinearEstimate(known.mean, [leaves[:, None, None] * block for block in known.covariance]))

    def problem(
        self,
        geocodes: tuple[str, ...],
        above: tuple[NDArray[np.int64], NDArray[np.int64]] | None,
        known: LinearEstimate | None,
        prior: Prior,
    ) -> FamilyProblem:
        """State the constrained problem of the family.

        Parameters
        ----------
        geocodes
            One for each child.
        above
            Cells in which the parent's protected counts are positive, ascending, and those counts; ``None`` at the top
            of the spine, where every cell that is not a structural zero is in the support.
        known
            The children's linear estimates (:meth:`linear_estimate`), or ``None`` to use the measurements of this level
            alone.
        prior
            Whether the sparse-cell prior is added to the distance from the linear estimates.
        """
        cells, parent = (np.flatnonzero(self.basis.schema.possible), None) if above is None else above
        # A leaf's linear estimate uses its own measurements and no others, so the distance to the measurements says the
        # same. Children of an empty parent are empty, whatever was estimated of them.
        use_estimates = self.below is not None and len(cells) > 0
        return FamilyProblem(
            level=self.level,
            geocodes=geocodes,
            cells=cells,
            parent=parent,
            measured=self.measured,
            limits=limits_of(self.facts, slice(None)),
            correlated=self._distance(known, cells, parent, prior) if known is not None and use_estimates else None,
        )

    def _distance(
        self, known: LinearEstimate, cells: NDArray[np.int64], parent: NDArray[np.int64] | None, prior: Prior
    ) -> Quadratic:
        """Squared distance to the linear estimates, with the penalty on totals and, unless switched off, the prior."""
        held = penalise_totals(distance(self.basis, known, cells), self.basis, known, cells, parent)
        if prior == "none":
            return held
        if parent is None:
            return add_size_prior(held, self.basis, known, cells)
        return add_sharing_prior(held, self.basis, known, cells, parent)

    def _exact(self) -> tuple[Exact, ...]:
        return tuple(Exact(fact.query, fact.values) for fact in self.facts if fact.sign == "=")

    def _zeros(self) -> NDArray[np.bool_]:
        """Known zeros of each child; structural ones in leaves alone, because the sums of leaves inherit them."""
        known = known_zeros(self.basis, limits_of(self.facts, slice(None)), self.children)
        return known | self.basis.impossible if self.below is None else known

    def _conditioned(
        self,
        measured: tuple[Measured, ...],
        exact: tuple[Exact, ...],
        zeros: NDArray[np.bool_],
        below: LinearEstimate | None,
    ) -> LinearEstimate:
        """Update with measurements, then condition on exact answers, then on known zeros."""
        return condition_on_zeros(self.basis, self._updated(measured, exact, len(zeros), below), zeros)

    def _updated(
        self, measured: tuple[Measured, ...], exact: tuple[Exact, ...], units: int, below: LinearEstimate | None
    ) -> LinearEstimate:
        known = update(self.basis, measured, below, units, f"strategy.queries.{self.level}")
        return condition(self.basis, known, exact)
