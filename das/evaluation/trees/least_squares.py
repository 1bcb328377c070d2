"""Least squares on a generated country, in memory: the same noise measured and estimated, to compare a draw with.

The families are those of a release (:mod:`das.estimation.assemble`), with full information.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from das.estimation import estimate_families
from das.estimation.assemble import Family, measured_by_query
from das.estimation.linear.basis import Basis
from das.estimation.linear.blue import LinearEstimate
from das.evaluation.country import Country
from das.facts.fact import Fact
from das.noise.stream import RunKey, Streams
from das.plan.plan import Plan
from das.storage.shards import families

__all__ = ["least_squares"]


def least_squares(plan: Plan, country: Country, key: str) -> NDArray[np.int64]:
    """Measure with a testing key and estimate the counts of every leaf, leaves x cells."""
    with threadpool_limits(limits=1):  # families are small
        return _Sweeps(plan, country, RunKey.for_testing(key).streams(plan.digest.encode())).estimate()


class _Sweeps:
    """Measurements of every level with the linear estimates from below, and the estimation from the top down."""

    def __init__(self, plan: Plan, country: Country, streams: Streams) -> None:
        self.plan, self.country = plan, country
        queries = [*(m.query for m in plan.measurements), *plan.limited_queries]
        self.basis = Basis.of(plan.schema, queries, plan.limited_queries)
        self.families: dict[str, list[tuple[tuple[str, ...], Family]]] = {}
        below: LinearEstimate | None = None
        for level in reversed(plan.levels):
            self.families[level] = list(self._families(level, below, streams))
            if level != plan.levels[0]:
                below = _together([family.pooled() for _, family in self.families[level]])

    def estimate(self) -> NDArray[np.int64]:
        """Estimate each level given the one above."""
        cells: NDArray[np.int64] | None = None
        settings = self.plan.settings.estimate
        for level in self.plan.levels:
            problems = []
            for parent, (geocodes, family) in enumerate(self.families[level]):
                above = None
                if cells is not None:
                    support = np.flatnonzero(cells[parent])
                    above = support, cells[parent][support]
                problems.append(family.problem(geocodes, above, family.linear_estimate(), settings.prior))
            rows = []
            for found in estimate_families(problems, solver=settings.solver):
                dense = np.zeros((len(found.counts), self.plan.schema.size), dtype=np.int64)
                dense[:, found.cells] = found.counts
                rows.append(dense)
            cells = np.concatenate(rows)
        return np.asarray(cells)

    def _families(
        self, level: str, below: LinearEstimate | None, streams: Streams
    ) -> Iterator[tuple[tuple[str, ...], Family]]:
        spine, measurements = self.country.spine, self.plan.at(level)
        geocodes, offsets = spine.geocodes(level), families(spine, level)
        noisy = []
        for m in measurements:
            names = [(level, geocode, m.query.name, m.mechanism.name) for geocode in geocodes.tolist()]
            noise = m.mechanism.draw(streams.bundle(names), m.query.size)
            noisy.append(noise + self.country.answers(level, m.query))
        values = np.concatenate(noisy, axis=1)
        for parent in range(len(offsets) - 1):
            here = slice(int(offsets[parent]), int(offsets[parent + 1]))
            family = Family(
                basis=self.basis,
                level=level,
                children=here.stop - here.start,
                measured=measured_by_query(measurements, values[here]),
                facts=tuple(Fact(f.query, f.sign, f.values[here]) for f in self.country.facts.get(level, ())),
                below=None if below is None else below.units(here),
            )
            yield tuple(geocodes[here].tolist()), family


def _together(estimates: list[LinearEstimate]) -> LinearEstimate:
    """Estimates of several geounits, one after the other."""
    blocks = zip(*(estimate.covariance for estimate in estimates), strict=True)
    return LinearEstimate(
        np.concatenate([estimate.mean for estimate in estimates]), [np.concatenate(each) for each in blocks]
    )
