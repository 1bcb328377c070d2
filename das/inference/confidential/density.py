"""A noisy histogram as a density estimate, whose bin width is chosen from the noisy counts themselves.

Counts of fine bins are released once, with exact noise. Bins are then joined so that cross-validation on the noisy
counts is best, which reads no data and costs nothing; ``sample_aggregate.md`` has the proof. The rate is that of a
histogram without noise, n^(-1/3), as long as epsilon is not below it (Wasserman and Zhou 2010; Smith 2011).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fractions import Fraction
from math import ceil, sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from das.errors import ConfigError, InputError, Problem
from das.inference.confidential.checks import critical_value, refuse_too_small
from das.inference.confidential.grid import Bound, Grid
from das.inference.confidential.parts import as_rows
from das.schema.query import Neighbours
from das.storage.single_release import Budget, Charge, single_release

__all__ = ["Density", "density", "joined_bins", "on_simplex"]

Reals = NDArray[np.float64]
Bins = int | Literal["cross-validation", "rule"]

FINE = (12, 24, 36, 48, 60, 120, 180, 240, 360, 720, 840, 1260, 1680, 2520, 5040, 7560, 10080)
"""Numbers with many divisors: into how many bins the range may be cut before bins are joined."""
FINER = 4
"""How many times more bins than n^(1/3) there are before they are joined."""
MOST_BINS = 1 << 20
COUNTS = "counts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Density:
    """What is released: ``heights`` of bins that are not negative and integrate to one, and the noisy ``counts``.

    ``se`` and ``ci`` are about the mean of the density in each bin; sampling and noise are both in them.
    """

    edges: tuple[float, ...]
    heights: tuple[float, ...]
    se: tuple[float, ...]
    ci: tuple[tuple[float, float], ...]
    counts: tuple[int, ...]
    bins: int
    rows: int
    privacy: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def density(
    data: ArrayLike,
    bounds: tuple[Bound, Bound],
    budget: Budget,
    *,
    charge: Charge,
    bins: Bins = "cross-validation",
    rows: int | None = None,
    confidence: float = 0.95,
) -> Density:
    """Release a density estimate of one column.

    Parameters
    ----------
    data : array_like
        One number a row: confidential. What lies outside the bounds is counted in the first or last bin.
    bounds : pair
        Public.
    budget : Budget
        Replacing a row moves two counts by one; adding or removing one moves a single count.
    charge : Charge
    bins : int, "cross-validation" or "rule"
        How many bins; "rule" is ceil(n^(1/3)); "cross-validation" joins fine bins by their noisy counts.
    rows : int, optional
        The public number of rows, for neighbours that add or remove one.
    confidence : float
        Of the interval of each bin.

    Examples
    --------
    >>> rows = np.random.default_rng(1).beta(3, 3, 20_000)
    >>> test = Charge(testing_key="doc", data="generated")
    >>> found = density(rows, (0, 1), Budget("pure", 1), charge=test)
    >>> round(sum(found.heights) / found.bins, 9), max(found.heights) > 1.6
    (1.0, True)
    """
    values, grid = as_rows(data), Grid(*bounds)
    if values.shape[1] != 1:
        raise ConfigError(Problem("data", "has several columns", "a density is of one"))
    if budget.neighbours is Neighbours.ADD_REMOVE and (rows is None or rows < 2):
        reason = "under add-remove the number of rows is confidential"
        raise ConfigError(Problem("rows", reason, "state a public number, near the true one"))
    n = len(values) if budget.neighbours is Neighbours.REPLACE or rows is None else rows
    if n < 2:
        raise InputError(Problem("data", "has one row", "a density needs more"))
    fine, critical = _fine_bins(bins, n), critical_value(confidence)
    moved = 2 if budget.neighbours is Neighbours.REPLACE else 1
    noise = budget.noise(Fraction(1), l1=moved, l2_squared=moved)
    refuse_too_small(sqrt(noise.variance()) * fine / n, "a bin's rows on average", "or use fewer bins")
    content = {"method": "density", "bounds": [str(grid.lower), str(grid.upper)], "bins": fine, "rows": n}
    with single_release(charge, budget, content, "noisy histogram") as release:
        share = (values[:, 0] - float(grid.lower)) / float(grid.width)
        place = np.clip(np.floor(share * fine), 0, fine - 1).astype(np.intp)
        noisy = np.bincount(place, minlength=fine) + release.draw(noise, COUNTS, fine)
        privacy = release.privacy({COUNTS: budget.amount})
    chosen = joined_bins(noisy, n, noise.variance()) if bins == "cross-validation" else fine
    counts = noisy.reshape(chosen, -1).sum(axis=1)
    joined_variance = noise.variance() * fine / chosen
    probability = on_simplex(counts / n)
    errors = np.sqrt(probability * (1 - probability) / n + joined_variance / n**2)
    height = chosen / float(grid.width)
    edges = [float(grid.lower + grid.width * Fraction(i, chosen)) for i in range(chosen + 1)]
    low = np.maximum(counts / n - critical * errors, 0) * height
    high = np.maximum(counts / n + critical * errors, 0) * height
    return Density(
        edges=tuple(edges),
        heights=tuple((probability * height).tolist()),
        se=tuple((errors * height).tolist()),
        ci=tuple(zip(low.tolist(), high.tolist(), strict=True)),
        counts=tuple(counts.tolist()),
        bins=chosen,
        rows=n,
        privacy=privacy,
    )


def joined_bins(noisy: NDArray[np.int64], rows: int, noise_variance: float) -> int:
    """Return the divisor of the number of fine bins for which the estimated risk of the joined histogram is least.

    Notes
    -----
    Up to a constant, the mean integrated squared error of d bins on a range of one is estimated without bias by

        2 d / (n - 1) - d (n + 1) / (n^2 (n - 1)) (sum of squared noisy counts - F v) + d F v / n^2

    where F fine bins have noise of variance v: Rudemo's (1982) cross-validation of a histogram, in which the squares of
    noisy counts are too large by F v, plus what the noise adds to the error.

    Examples
    --------
    >>> joined_bins(np.repeat([300, 100], 6), 2400, 0.0)
    2
    """
    fine, n = len(noisy), rows
    risks = {}
    for d in (each for each in range(1, fine + 1) if fine % each == 0):
        squares = float(np.square(noisy.reshape(d, -1).sum(axis=1), dtype=np.float64).sum()) - fine * noise_variance
        risks[d] = d * (2 / (n - 1) - (n + 1) / (n * n * (n - 1)) * squares + fine * noise_variance / n**2)
    return min(risks, key=lambda d: risks[d])


def on_simplex(values: Reals) -> Reals:
    """Return the nearest probabilities: not negative, sum one (Held, Wolfe and Crowder 1974).

    Examples
    --------
    >>> on_simplex(np.array([0.6, 0.6, -0.1])).tolist()
    [0.5, 0.5, 0.0]
    """
    falling = np.sort(values)[::-1]
    excess = (np.cumsum(falling) - 1) / np.arange(1, len(values) + 1)
    last = int(np.flatnonzero(falling > excess)[-1])
    return np.asarray(np.maximum(values - excess[last], 0))


def _fine_bins(bins: Bins, n: int) -> int:
    """How many bins are counted; a public number."""
    rule: int = ceil(round(float(n) ** (1 / 3), 9))
    if bins == "rule":
        return rule
    if bins == "cross-validation":
        return min((each for each in FINE if each >= FINER * rule), default=FINE[-1])
    if isinstance(bins, bool) or not isinstance(bins, int) or not 1 <= bins <= MOST_BINS:
        remedy = 'write a number, "rule" or "cross-validation"'
        raise ConfigError(Problem("bins", f"{bins!r} is not a number of bins", remedy))
    return bins
