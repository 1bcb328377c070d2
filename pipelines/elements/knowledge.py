"""A family as its worker sees it: arrays joined from several places, read as values that ``das`` understands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from das.errors import Problem, ProblemsFound
from das.estimation.linear.blue import Exact, LinearEstimate, condition, distance, pool, update
from das.estimation.linear.exact_zeros import condition_on_zeros, known_zeros
from das.estimation.prior.sparse_cells import add_sharing_prior, add_size_prior
from das.estimation.prior.totals import penalise_totals
from das.estimation.problem import FamilyProblem, Measured, Quadratic
from das.facts.fact import Fact, limits_of
from das.schema.selection import is_selection, parse_limited
from das.storage.shards import families
from pipelines.elements.arrays import Arrays
from pipelines.elements.context import WorkerContext

__all__ = ["FamilyOfShard", "estimate_arrays", "estimate_of", "estimates_of_all"]


class FamilyOfShard:
    """One family: what was measured of its children, what is public about them, and what was told from below."""

    def __init__(
        self, work: WorkerContext, level: str, parent: int, family: Arrays, told: Mapping[int, LinearEstimate]
    ) -> None:
        self.work, self.level, self.parent, self.family, self.told = work, level, parent, family, told
        offsets = families(work.spine, level)
        self.first, self.stop = int(offsets[parent]), int(offsets[parent + 1])

    @property
    def units(self) -> int:
        """How many children there are."""
        return self.stop - self.first

    @property
    def is_leaf(self) -> bool:
        """Whether the children are leaves of the spine."""
        return self.level == self.work.plan.levels[-1]

    def unmet(self) -> ProblemsFound:
        """Say that the parts of the family did not come together; no data can cause this."""
        where = f"family {self.parent} of {self.level}"
        return ProblemsFound(Problem(where, "its measurements and its parent do not meet", "verify the release"))

    def measured(self) -> tuple[Measured, ...]:
        """Noisy answers by query."""
        values, at, out = np.asarray(self.family["values"]), 0, []
        for each in self.work.plan.at(self.level):
            here = values[:, at : at + each.query.size]
            out.append(Measured(query=each.query, values=here, variance=each.mechanism.variance()))
            at += each.query.size
        return tuple(out)

    def facts(self) -> tuple[Fact, ...]:
        """Public facts about the children."""
        schema = self.work.plan.schema
        joint = dict.fromkeys(name.partition(" ")[2] for name in self.family if is_selection(name))
        return tuple(
            Fact(query, sign, np.asarray(self.family[name], dtype=np.int64))
            for query in (*self.work.plan.limited_queries, *(parse_limited(schema, name) for name in joint))
            for sign in ("=", ">=", "<=")
            if (name := f"{sign} {query.name}") in self.family
        )

    def knowledge(self) -> LinearEstimate:
        """What the children's own measurements, their exact facts and everything below them say of the children."""
        below = None
        if not self.is_leaf:
            children = range(self.first, self.stop)
            if not self.told.keys() >= set(children):
                raise self.unmet()
            below = estimates_of_all([self.told[child] for child in children])
        return self._learned(self.measured(), self._exact(), self._empty(), below)

    def pooled(self) -> LinearEstimate:
        """What the children together say of their parent."""
        if not self.is_leaf:
            return pool(self.knowledge())
        # Leaves are measured alike. With the same cells empty, one linear map makes the estimate of each: it is applied
        # to their sum.
        patterns, pattern_of, units = np.unique(self._empty(), axis=0, return_inverse=True, return_counts=True)
        alike = [np.flatnonzero(pattern_of.reshape(-1) == pattern) for pattern in range(len(patterns))]

        def summed(values: NDArray[np.signedinteger[Any]]) -> NDArray[np.int64]:
            return np.stack([values[some].sum(axis=0, dtype=np.int64) for some in alike])

        measured = tuple(replace(each, values=summed(each.values)) for each in self.measured())
        exact = tuple(Exact(each.query, summed(each.values)) for each in self._exact())
        known = self._learned(measured, exact, patterns, None)
        return pool(LinearEstimate(known.mean, [units[:, None, None] * block for block in known.covariance]))

    def _exact(self) -> tuple[Exact, ...]:
        return tuple(Exact(fact.query, fact.values) for fact in self.facts() if fact.sign == "=")

    def _empty(self) -> NDArray[np.bool_]:
        return known_zeros(self.work.basis, limits_of(self.facts(), slice(None)), self.units)

    def _learned(
        self,
        measured: tuple[Measured, ...],
        exact: tuple[Exact, ...],
        empty: NDArray[np.bool_],
        below: LinearEstimate | None,
    ) -> LinearEstimate:
        basis = self.work.basis
        known = update(basis, measured, below, len(empty), f"strategy.queries.{self.level}")
        return condition_on_zeros(basis, condition(basis, known, exact), empty)

    def problem(self, above: Arrays, known: LinearEstimate | None) -> FamilyProblem:
        """The family's constrained problem, given its parent's counts (none at the top)."""
        work = self.work
        if "cell" in above:
            cells = np.asarray(above["cell"], dtype=np.int64)
            parent = np.asarray(above["count"], dtype=np.int64)
        else:
            cells, parent = np.flatnonzero(work.plan.schema.possible), None
        return FamilyProblem(
            level=self.level,
            geocodes=tuple(work.spine.geocodes(self.level)[self.first : self.stop].tolist()),
            cells=cells,
            parent=parent,
            measured=self.measured(),
            limits=limits_of(self.facts(), slice(None)),
            # Leaves know what was measured of them and nothing else: the plain distance is theirs already.
            # Children of an empty parent are empty, whatever is known of them.
            correlated=None
            if known is None or self.is_leaf or not len(cells)
            else self._distance(known, cells, parent),
        )

    def _distance(self, known: LinearEstimate, cells: NDArray[np.int64], parent: NDArray[np.int64] | None) -> Quadratic:
        """How far counts are from what is known of the children and, unless it is not wanted, expected of any."""
        basis = self.work.basis
        held = penalise_totals(distance(basis, known, cells), basis, known, cells, parent)
        if self.work.plan.settings.estimate.prior == "none":
            return held
        if parent is None:
            return add_size_prior(held, basis, known, cells)
        return add_sharing_prior(held, basis, known, cells, parent)


def estimate_arrays(known: LinearEstimate) -> Arrays:
    """LinearEstimate as an element; a covariance that all units share travels once."""
    blocks = {}
    for at, block in enumerate(known.covariance):
        alike = bool((block == block[:1]).all())
        blocks[f"block {at}"] = block[:1] if alike else block
    return Arrays({"mean": known.mean, **blocks})


def estimate_of(arrays: Arrays) -> LinearEstimate:
    """LinearEstimate from an element."""
    mean = np.asarray(arrays["mean"], dtype=np.float64)
    blocks, at = [], 0
    while (name := f"block {at}") in arrays:
        block = np.asarray(arrays[name], dtype=np.float64)
        blocks.append(np.broadcast_to(block, (len(mean), *block.shape[1:])))
        at += 1
    return LinearEstimate(mean, blocks)


def estimates_of_all(parts: list[LinearEstimate]) -> LinearEstimate:
    """LinearEstimate of several groups of geounits, one after the other."""
    blocks = zip(*(shard.covariance for shard in parts), strict=True)
    return LinearEstimate(np.concatenate([shard.mean for shard in parts]), [np.concatenate(group) for group in blocks])
