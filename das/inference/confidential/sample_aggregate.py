"""Sample-and-aggregate: the noisy mean of clipped estimates from disjoint parts (Nissim, Raskhodnikova and Smith 2007).

Reads confidential data once and charges the ledger; ``sample_aggregate.md`` has the proof.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from das.errors import ConfigError, Problem
from das.inference.algorithm import Progress
from das.inference.confidential.checks import checked_share, critical_value, described, refuse_too_small
from das.inference.confidential.grid import Bound, Grid
from das.inference.confidential.parts import PartOptions, as_rows, estimate_parts
from das.inference.confidential.row_statistics import Statistic, as_statistic
from das.noise.mechanisms import Mechanism
from das.storage.single_release import Budget, Charge, SingleRelease, single_release

__all__ = [
    "NoisyMean",
    "Result",
    "grids_of",
    "infer",
    "noisy_mean",
    "private_mle",
    "release_parts",
    "sample_aggregate",
]

ESTIMATE, SPREAD = "estimate", "spread"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyMean:
    """The released mean of one coordinate and the variance of its noise; the variance between parts, and its source.

    ``variance_error`` is the variance of that variance, from its own noise and from sampling.
    """

    value: float
    noise_variance: float
    variance: float = float("nan")
    variance_error: float = 0.0
    spread: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What is released: nothing in it but noisy values and what follows from them and from public options.

    ``spread`` says where the variance between parts comes from: "released" (with noise of its own) or "bound" (the
    largest that the bounds allow, so that the interval is wide).
    """

    estimate: tuple[float, ...]
    se: tuple[float, ...]
    ci: tuple[tuple[float, float], ...]
    noise_se: tuple[float, ...]
    spread: tuple[str, ...]
    parts: int
    privacy: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def grids_of(bounds: Sequence[Any], bits: int) -> tuple[Grid, ...]:
    """Return a grid for each pair of bounds; one pair may stand alone.

    Examples
    --------
    >>> [grid.upper for grid in grids_of([(0, 1), (0, "1/2")], bits=4)]
    [Fraction(1, 1), Fraction(1, 2)]
    """
    alone = len(bounds) == 2 and not any(isinstance(each, Sequence) and not isinstance(each, str) for each in bounds)
    pairs = [bounds] if alone else bounds
    try:
        return tuple(Grid(lower, upper, bits) for lower, upper in pairs)
    except (TypeError, ValueError):
        raise ConfigError(Problem("bounds", "are not pairs of a lower and an upper one", "write (0, 1)")) from None


def noisy_mean(
    estimates: NDArray[np.float64], grids: Sequence[Grid], noise: Mechanism, release: SingleRelease
) -> list[NoisyMean]:
    """Release the mean of the clipped estimates, coordinate by coordinate.

    Parameters
    ----------
    estimates : ndarray
        Parts x coordinates; what is not a number counts as the midpoint.
    grids : sequence of Grid
        One for each coordinate, with equally many steps.
    noise : Mechanism
        Of the integer sums; one part moves each of them by at most ``grid.steps``.
    """
    parts = len(estimates)
    drawn = release.draw(noise, ESTIMATE, len(grids))
    means = []
    for coordinate, grid in enumerate(grids):
        total = int(grid.integers(estimates[:, coordinate]).sum()) + int(drawn[coordinate])
        scale = float(grid.step) / parts
        means.append(
            NoisyMean(value=grid.value(Fraction(total, parts)), noise_variance=noise.variance() * scale * scale)
        )
    return means


def sample_aggregate(
    data: ArrayLike,
    statistic: Statistic | Callable[..., Any],
    bounds: Sequence[Bound] | Sequence[tuple[Bound, Bound]],
    budget: Budget,
    *,
    options: PartOptions,
    charge: Charge,
    spread_share: Fraction = Fraction(0),
    confidence: float = 0.95,
    grid_bits: int = 24,
    progress: Progress | None = None,
) -> Result:
    """Release the mean over parts of a statistic, with an interval for what a part's estimate is on average.

    Parameters
    ----------
    data : array_like
        Rows, or rows x columns: confidential.
    statistic : Statistic or callable
        Of the rows of a part and, if it takes them, weights; a number, or as many as there are bounds.
    bounds : pair, or a sequence of pairs
        Public; estimates are clipped to them.
    budget : Budget
        What is spent in all.
    options : PartOptions
    charge : Charge
    spread_share : Fraction
        The part of the budget that measures the variance between parts, for the interval. Without it the largest
        variance that the bounds allow is taken.
    confidence : float
        Of the interval.
    grid_bits : int
        Estimates are rounded to a grid of 2^grid_bits steps.
    progress : callable, optional

    Notes
    -----
    The interval is about the mean of clipped part estimates. Bias of the statistic in parts of n rows stays, unless
    ``options.bias_correction`` removes it; clipping bias is what `das.inference.confidential.udp` removes.

    Examples
    --------
    >>> rows = np.random.default_rng(1).normal(5, 1, 2000)
    >>> test = Charge(testing_key="doc", data="generated")
    >>> from das.inference.confidential.row_statistics import BUILT_IN
    >>> found = sample_aggregate(
    ...     rows, BUILT_IN["median"], (0, 10), Budget("zcdp", "1/2"), options=PartOptions(parts=100), charge=test
    ... )
    >>> abs(found.estimate[0] - 5) < 4 * found.noise_se[0] + 0.2
    True
    """
    chosen, rows, grids = as_statistic(statistic), as_rows(data), grids_of(bounds, grid_bits)
    chosen.check_bounds(len(grids))
    share = checked_share("spread_share", spread_share)
    for noise in filter(None, _noises(budget, grids, share)):
        refuse_too_small(sqrt(noise.variance()) / (grids[0].steps * options.parts), "the range of the bounds")
    critical_value(confidence)  # refuses what is none before anything is spent
    content = described("sample-and-aggregate", chosen, grids, options) | {"spread_share": str(share)}
    with single_release(charge, budget, content, f"sample-and-aggregate, {chosen.name}") as release:
        state = estimate_parts(
            rows,
            chosen,
            options,
            seed=release.seed("parts"),
            neighbours=budget.neighbours,
            size=len(grids),
            progress=progress,
        )
        found = release_parts(state.estimates, grids, budget, share, release)
        spent = {ESTIMATE: budget.share(1 - share)} | ({SPREAD: budget.share(share)} if share else {})
        privacy = release.privacy(spent)
    return infer(found, privacy, parts=options.parts, confidence=confidence)


def release_parts(
    estimates: NDArray[np.float64], grids: Sequence[Grid], budget: Budget, share: Fraction, release: SingleRelease
) -> list[NoisyMean]:
    """Release the mean of clipped part estimates and, if a share of the budget is for it, the variance between them."""
    noise, extra = _noises(budget, grids, share)
    means = noisy_mean(estimates, grids, noise, release)
    squares = [float("nan")] * len(grids)
    if extra is not None:
        squares = _noisy_squares(estimates, grids, release.draw(extra, SPREAD, len(grids)))
    parts, of_square = (
        len(estimates),
        0.0 if extra is None else extra.variance() / (len(estimates) * grids[0].steps) ** 2,
    )
    return [
        _with_variance(mean, grid, square, of_square, parts)
        for mean, grid, square in zip(means, grids, squares, strict=True)
    ]


def infer(found: Sequence[NoisyMean], privacy: dict[str, Any], *, parts: int, confidence: float) -> Result:
    """Compute standard errors and intervals from what was released; this reads no data and costs nothing.

    Notes
    -----
    A standard error that is itself estimated makes a normal interval too short. The quantile is that of Student's t
    with 2 se^4 / Var(se^2) degrees of freedom (Satterthwaite 1946).
    """
    errors = [sqrt(mean.variance / parts + mean.noise_variance) for mean in found]
    intervals = []
    for mean, se in zip(found, errors, strict=True):
        uncertain = mean.variance_error / parts**2
        freedom = 2 * se**4 / uncertain if uncertain else float("inf")
        half = critical_value(confidence, freedom) * se
        intervals.append((mean.value - half, mean.value + half))
    return Result(
        estimate=tuple(mean.value for mean in found),
        se=tuple(errors),
        ci=tuple(intervals),
        noise_se=tuple(sqrt(mean.noise_variance) for mean in found),
        spread=tuple(mean.spread for mean in found),
        parts=parts,
        privacy=privacy,
    )


def private_mle(
    data: ArrayLike,
    likelihood_maximiser: Statistic | Callable[..., Any],
    bounds: Sequence[Bound] | Sequence[tuple[Bound, Bound]],
    budget: Budget,
    *,
    options: PartOptions,
    charge: Charge,
    **more: Any,
) -> Result:
    """Release a maximum-likelihood estimate: blocks, each corrected for its bias, clipped and averaged (Smith).

    It is as good as the estimate from all the data, asymptotically, if noise of D/(k epsilon) and a block's remaining
    bias of order m^-2 are both small beside n^(-1/2): a window for the number of blocks k that is not empty where
    epsilon n^(1/4) grows; k = n^0.7 lies in it (Smith 2011, arXiv 0809.4794).

    Examples
    --------
    >>> rows = np.random.default_rng(1).exponential(1.0, 2000)
    >>> rate = lambda rows, weights: weights.sum() / (weights @ rows[:, 0])
    >>> test = Charge(testing_key="doc", data="generated")
    >>> found = private_mle(rows, rate, (0, 4), Budget("pure", 1), options=PartOptions(parts=100), charge=test)
    >>> 0.5 < found.estimate[0] < 1.5
    True
    """
    corrected = options if options.bias_correction != "none" else replace(options, bias_correction="jackknife")
    return sample_aggregate(data, likelihood_maximiser, bounds, budget, options=corrected, charge=charge, **more)


def _noises(budget: Budget, grids: Sequence[Grid], share: Fraction) -> tuple[Mechanism, Mechanism | None]:
    """Noise of the sums, and of the sums of squares: one part moves each of them by at most ``grid.steps``."""
    d, steps = len(grids), grids[0].steps
    size = {"l1": d * steps, "l2_squared": d * steps * steps}
    return budget.noise(1 - share, **size), budget.noise(share, **size) if share else None


def _noisy_squares(estimates: NDArray[np.float64], grids: Sequence[Grid], drawn: NDArray[np.int64]) -> list[float]:
    """Mean square of the distance from the midpoint, in half widths, with noise on the integer sum."""
    found = []
    for coordinate, grid in enumerate(grids):
        distance = np.abs(2 * grid.integers(estimates[:, coordinate]) - grid.steps)  # 0 ... steps
        integers = np.rint(distance * (distance / grid.steps)).astype(np.int64)
        found.append(float(Fraction(int(integers.sum()) + int(drawn[coordinate]), len(estimates) * grid.steps)))
    return found


def _with_variance(mean: NoisyMean, grid: Grid, square: float, of_square: float, parts: int) -> NoisyMean:
    """Add the variance of part estimates: from the released mean and mean square, without the bias that noise makes.

    Where there is no mean square, or noise made the variance negative, it is the largest that a law within the bounds
    with this mean can have, (upper - mean)(mean - lower) (Bhatia and Davis 2000).
    """
    half = float(grid.width) / 2
    off = mean.value - float(grid.lower) - half
    variance = (square * half * half - off * off + mean.noise_variance) * parts / (parts - 1)
    if variance > 0:
        error = of_square * half**4 + 4 * off * off * mean.noise_variance + 2 * variance**2 / parts
        return replace(mean, variance=variance, variance_error=error, spread="released")
    inside = min(max(mean.value, float(grid.lower)), float(grid.upper))
    return replace(mean, variance=(float(grid.upper) - inside) * (inside - float(grid.lower)), spread="bound")
