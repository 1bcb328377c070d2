"""Coverage of the intervals of confidential estimators: data are generated anew, and released, for each replication."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.random import Generator

from das.inference.charge import Budget, Charge
from das.inference.density import density
from das.inference.parts import PartOptions
from das.inference.row_statistics import BUILT_IN
from das.inference.sample_aggregate import sample_aggregate
from das.inference.udp import udp

__all__ = ["CASES", "rows"]

NOMINAL = 0.95
_PARTS, _PART_ROWS = 200, 25
_CHUNK = 25


def _test(seed: int, replication: int) -> Charge:
    return Charge(testing_key=f"coverage {seed} {replication}", data="generated")


def _normal_rows(rng: Generator) -> Any:
    """Rows whose parts have means that are normal with mean 3 and deviation 1."""
    return rng.normal(3.0, _PART_ROWS**0.5, _PARTS * _PART_ROWS)


def _udp(bounds: tuple[float, float]) -> Callable[[Generator, Charge], float]:
    def covered(rng: Generator, charge: Charge) -> float:
        budget = Budget("zcdp", "1/2")
        found = udp(_normal_rows(rng), BUILT_IN["mean"], bounds, _PARTS, 10, budget, charge=charge, simulations=500)
        return float(found.ci[0] <= 3 <= found.ci[1])

    return covered


def _sample_aggregate(rng: Generator, charge: Charge) -> float:
    options, budget = PartOptions(parts=_PARTS), Budget("zcdp", "1/2")
    rows = _normal_rows(rng)
    share = Fraction(1, 4)
    found = sample_aggregate(
        rows, BUILT_IN["mean"], (-2, 8), budget, options=options, charge=charge, spread_share=share
    )
    return float(found.ci[0][0] <= 3 <= found.ci[0][1])


def _private_mle(rng: Generator, charge: Charge) -> float:
    """The rate of exponential rows; the jackknife removes a bias of a part that is larger than the standard error."""
    options = PartOptions(parts=_PARTS, bias_correction="jackknife")
    found = sample_aggregate(
        rng.exponential(1.0, _PARTS * _PART_ROWS),
        exponential_rate,
        (0, 2),
        Budget("zcdp", "1/2"),
        options=options,
        charge=charge,
        spread_share=Fraction(1, 4),
    )
    return float(found.ci[0][0] <= 1 <= found.ci[0][1])


def exponential_rate(rows: Any, weights: Any) -> Any:
    """Return the maximum-likelihood rate of exponential rows, for many weightings at once."""
    return weights.sum(axis=-1) / (weights @ rows[:, 0])


exponential_rate.batched = True  # type: ignore[attr-defined]


def _density(rng: Generator, charge: Charge) -> float:
    """The share of bins whose interval covers the mean of the density in them."""
    found = density(rng.triangular(0, 0.5, 1, 5000), (0, 1), Budget("pure", 1), charge=charge, bins=20)
    edges = np.array(found.edges)
    below = np.where(edges <= 0.5, 2 * edges**2, 1 - 2 * (1 - edges) ** 2)
    truth = np.diff(below) * found.bins
    low, high = np.array(found.ci).T
    return float(np.mean((low <= truth) & (truth <= high)))


CASES: dict[str, Callable[[Generator, Charge], float]] = {
    "udp, a quarter clipped on one side": _udp((-4.0, 3.6745)),
    "udp, a quarter clipped on the lower side": _udp((2.3255, 10.0)),
    "udp, clipped on both sides": _udp((1.5, 3.6745)),
    "sample-and-aggregate": _sample_aggregate,
    "private maximum likelihood, jackknife": _private_mle,
    "density, bins": _density,
}
"""What is covered, by name: a function of a generator and of where the noise comes from, that returns a share."""


def rows(replications: int = 1000, seed: int = 1) -> list[dict[str, Any]]:
    """Return one row a method with the share of replications whose interval holds the truth; all cores are used.

    Examples
    --------
    >>> [row["nominal"] for row in rows(1, seed=3)][:2]
    [0.95, 0.95]
    """
    work = [
        (name, seed, first, min(first + _CHUNK, replications))
        for name in CASES
        for first in range(0, replications, _CHUNK)
    ]
    if replications <= _CHUNK:
        shares = [_covered(*each) for each in work]
    else:
        with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
            shares = list(pool.map(_covered, *zip(*work, strict=True)))
    totals = dict.fromkeys(CASES, 0.0)
    for (name, *_), share in zip(work, shares, strict=True):
        totals[name] += share
    return [
        {"name": name, "coverage": round(total / replications, 4), "replications": replications, "nominal": NOMINAL}
        for name, total in totals.items()
    ]


def _covered(name: str, seed: int, first: int, last: int) -> float:
    """Run some replications of a case; each has a generator and a testing key of its own."""
    position = list(CASES).index(name)
    return sum(
        CASES[name](np.random.default_rng([seed, position, each]), _test(seed, each)) for each in range(first, last)
    )
