"""Coverage of the intervals of confidential estimators: data are generated anew, and released, for each replication."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from das.bench.replications import Finished, Row, row, submitted
from das.inference.confidential import sample_aggregate, udp
from das.inference.confidential.checks import critical_value
from das.inference.confidential.density import density
from das.inference.confidential.grid import Grid
from das.inference.confidential.parts import PartOptions
from das.storage.single_release import Budget, Charge, single_release

__all__ = ["CASES", "rows"]

NOMINAL = 0.95
_PARTS, _PART_ROWS = 200, 25
_CHUNK = 25
_BUDGET, _SHARE = Budget("zcdp", "1/2"), Fraction(1, 4)
Covered = Callable[[Generator, Charge], float]


def _test(seed: int, replication: int) -> Charge:
    return Charge(testing_key=f"coverage {seed} {replication}", data="generated")


def _part_estimates(rng: Generator) -> NDArray[np.float64]:
    """Estimates of parts: normal with mean 3 and deviation 1, drawn directly, because means of rows are just that."""
    return rng.normal(3.0, 1.0, (_PARTS, 1))


def _udp(lower: float, upper: float) -> Covered:
    grid = Grid(lower, upper)

    def covered(rng: Generator, charge: Charge) -> float:
        with single_release(charge, _BUDGET, {"method": "udp"}, "coverage") as release:
            released = udp.release_parts(_part_estimates(rng), grid, _BUDGET, _SHARE, release)
        seed = int(rng.integers(2**63))
        found = udp.infer(released, {}, critical=critical_value(NOMINAL), simulations=500, seed=seed)
        return float(found.ci[0] <= 3 <= found.ci[1])

    return covered


def _sample_aggregate(rng: Generator, charge: Charge) -> float:
    with single_release(charge, _BUDGET, {"method": "sample-and-aggregate"}, "coverage") as release:
        grids = (Grid(-2, 8),)
        means = sample_aggregate.release_parts(_part_estimates(rng), grids, _BUDGET, _SHARE, release)
    ((low, high),) = sample_aggregate.infer(means, {}, parts=_PARTS, confidence=NOMINAL).ci
    return float(low <= 3 <= high)


def _private_mle(rng: Generator, charge: Charge) -> float:
    """The rate of exponential rows; the jackknife removes a bias of a part that is larger than the standard error."""
    options = PartOptions(parts=_PARTS, bias_correction="jackknife")
    found = sample_aggregate.sample_aggregate(
        rng.exponential(1.0, _PARTS * _PART_ROWS),
        exponential_rate,
        (0, 2),
        _BUDGET,
        options=options,
        charge=charge,
        spread_share=_SHARE,
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


CASES: dict[str, tuple[Covered, int]] = {
    "udp, a quarter clipped on one side": (_udp(-4.0, 3.6745), 4),
    "udp, a quarter clipped on the lower side": (_udp(2.3255, 10.0), 4),
    "udp, clipped on both sides": (_udp(1.5, 3.6745), 4),
    "sample-and-aggregate": (_sample_aggregate, 16),
    "private maximum likelihood, jackknife": (_private_mle, 1),
    "density, bins": (_density, 1),
}
"""What is covered, by name: a function of a generator and of where the noise comes from, that returns a share, and how
many times as often it runs as it was asked to, because it is cheap."""


def rows(replications: int, seed: int, pool: Executor, finished: Finished) -> list[Row]:
    """Return one row a method with the share of replications whose interval holds the truth."""
    chunks = {}
    for name, (_, times) in CASES.items():
        runs, step = replications * times, _CHUNK * times
        chunks[name] = [(name, seed, first, min(first + step, runs)) for first in range(0, runs, step)]
    waiting = submitted(pool, _covered, chunks)
    found = []
    for name, (_, times) in CASES.items():
        share = sum(each.result() for each in waiting[name]) / (replications * times)
        found.append(row(name, round(share, 4), replications * times, NOMINAL))
        finished(found[-1])
    return found


def _covered(name: str, seed: int, first: int, last: int) -> float:
    """Run some replications of a case; each has a generator and a testing key of its own."""
    position, (covered, _) = list(CASES).index(name), CASES[name]
    return sum(covered(np.random.default_rng([seed, position, each]), _test(seed, each)) for each in range(first, last))
