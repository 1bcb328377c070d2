"""UDP: a private estimate by parts, corrected for the bias of clipping, with its standard error.

Evans, King, Schwenzfeier and Thakurta (2023, "Statistically Valid Inferences from Privacy-Protected Data", APSR
117(4)). Parts, bag of little bootstraps, clip, average, noise; a private share of clipped parts; the correction and the
standard error are computed from these two released numbers. Reads confidential data once and charges the ledger;
``sample_aggregate.md`` has the proof.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from das.errors import ConfigError, Problem
from das.inference.algorithm import Progress
from das.inference.confidential.censoring import correct, moments
from das.inference.confidential.checks import checked_share, critical_value, described, refuse_too_small
from das.inference.confidential.grid import Bound, Grid
from das.inference.confidential.parts import PartOptions, as_rows, estimate_parts
from das.inference.confidential.row_statistics import Statistic, as_statistic
from das.inference.confidential.sample_aggregate import ESTIMATE, grids_of, noisy_mean
from das.noise.mechanisms import Mechanism
from das.storage.single_release import Budget, Charge, SingleRelease, single_release

__all__ = ["Released", "UdpResult", "infer", "release_parts", "udp"]

CENSORED = "censored share"


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The two noisy numbers of which everything else is made, with the variances of their noise.

    ``upper_side`` says which bound's censored share was measured. It follows from the released mean alone.
    """

    mean: float
    mean_noise_variance: float
    share: float
    share_noise_variance: float
    upper_side: bool
    lower: float
    upper: float
    parts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UdpResult:
    """What is released. ``feasible`` is false where no normal law of part estimates fits the two released numbers.

    Then ``estimate`` is the uncorrected mean and ``reason`` says why; ``se`` is an upper bound. Of ``alpha_low`` and
    ``alpha_high``, the shares of clipped parts, one was released and the other follows from the fit, if there is one.
    """

    estimate: float
    se: float
    ci: tuple[float, float]
    alpha_low: float | None
    alpha_high: float | None
    sigma: float | None
    feasible: bool
    reason: str
    uncorrected: float
    parts: int
    privacy: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def udp(
    data: ArrayLike,
    statistic: Statistic | Callable[..., Any],
    bounds: tuple[Bound, Bound],
    parts: int,
    bootstraps: int,
    budget: Budget,
    *,
    charge: Charge,
    share: Fraction = Fraction(1, 4),
    options: PartOptions | None = None,
    confidence: float = 0.95,
    simulations: int = 2000,
    grid_bits: int = 24,
    progress: Progress | None = None,
) -> UdpResult:
    """Release an estimate, corrected for clipping, with a standard error and an interval.

    Parameters
    ----------
    data : array_like
        Rows, or rows x columns: confidential.
    statistic : Statistic or callable
        One number from the rows of a part and weights.
    bounds : pair
        Public, chosen without looking at the data; part estimates are clipped to them. Up to about half of the parts
        may lie outside.
    parts, bootstraps : int
        How many parts, and how many weightings of each (0: none).
    budget : Budget
        What is spent in all.
    charge : Charge
    share : Fraction
        The part of the budget that measures the share of clipped parts.
    options : PartOptions, optional
        Further options of parts; ``parts`` and ``bootstraps`` are taken from the arguments.
    confidence : float
        Of the interval.
    simulations : int
        Draws from which the standard error is computed; they cost nothing.
    grid_bits : int
        Estimates are rounded to a grid of 2^grid_bits steps.
    progress : callable, optional

    Notes
    -----
    The correction supposes that part estimates are normal. Small-sample bias of the statistic is not corrected.

    Examples
    --------
    >>> rows = np.random.default_rng(2).normal(3, 10, 40_000)
    >>> test = Charge(testing_key="doc", data="generated")
    >>> from das.inference.confidential.row_statistics import BUILT_IN
    >>> found = udp(rows, BUILT_IN["mean"], (-4, "3.5"), 400, 20, Budget("zcdp", "1/2"), charge=test)
    >>> found.feasible, round(found.uncorrected, 1), abs(found.estimate - 3) < 2 * found.se
    (True, 2.8, True)
    """
    chosen, rows, (grid,) = as_statistic(statistic), as_rows(data), _one_grid(bounds, grid_bits)
    options = replace(options or PartOptions(parts=parts), parts=parts, bootstraps=bootstraps)
    part = checked_share("share", share, above_zero=True)
    critical = critical_value(confidence)
    if simulations < 2:
        raise ConfigError(Problem("simulations", f"{simulations} are too few", "give at least 2"))
    noise, count_noise = _noises(budget, grid, part)
    refuse_too_small(sqrt(noise.variance()) / (grid.steps * parts), "the range of the bounds")
    refuse_too_small(sqrt(count_noise.variance()) / parts, "the number of parts")
    content = described("udp", chosen, (grid,), options) | {"share": str(part)}
    with single_release(charge, budget, content, f"udp, {chosen.name}") as release:
        state = estimate_parts(
            rows, chosen, options, seed=release.seed("parts"), neighbours=budget.neighbours, progress=progress
        )
        released = release_parts(state.estimates, grid, budget, part, release)
        seed = release.seed("simulation")
        privacy = release.privacy({ESTIMATE: budget.share(1 - part), CENSORED: budget.share(part)})
    return infer(released, privacy, critical=critical, simulations=simulations, seed=seed)


def release_parts(
    estimates: NDArray[np.float64], grid: Grid, budget: Budget, share: Fraction, release: SingleRelease
) -> Released:
    """Release the mean of clipped part estimates and, on the side where that mean lies, the share of clipped ones.

    The side follows from the released mean alone, so the choice costs nothing.
    """
    noise, count_noise = _noises(budget, grid, share)
    (mean,) = noisy_mean(estimates, (grid,), noise, release)
    upper_side = mean.value >= float(grid.lower + grid.width / 2)
    outside = estimates > float(grid.upper) if upper_side else estimates < float(grid.lower)
    count = int(outside.sum()) + int(release.draw(count_noise, CENSORED)[0])
    return Released(
        mean=mean.value,
        mean_noise_variance=mean.noise_variance,
        share=count / len(estimates),
        share_noise_variance=count_noise.variance() / len(estimates) ** 2,
        upper_side=upper_side,
        lower=float(grid.lower),
        upper=float(grid.upper),
        parts=len(estimates),
    )


def infer(released: Released, privacy: dict[str, Any], *, critical: float, simulations: int, seed: int) -> UdpResult:
    """Compute estimate, standard error and interval from what was released; this reads no data and costs nothing.

    Notes
    -----
    The standard error is the deviation of the corrected estimate over draws of the two released numbers from a normal
    law at their values, with variances V_C/P + S^2 and alpha (1 - alpha)/P + S_alpha^2, and covariance
    alpha (upper - theta_C)/P, which is exact with both bounds. If the lower side was measured, everything is mirrored.
    """
    sign = 1.0 if released.upper_side else -1.0
    lower, upper = sorted((sign * released.lower, sign * released.upper))
    mean, alpha, parts = sign * released.mean, released.share, released.parts
    fit = correct(mean, alpha, lower, upper)
    feasible = bool(fit.feasible)
    if feasible:
        theta, sigma = float(fit.theta), float(fit.sigma)
        law = moments(theta, sigma, lower, upper)
        covariance = np.array(
            [
                [law.variance / parts + released.mean_noise_variance, law.covariance_high / parts],
                [law.covariance_high / parts, alpha * (1 - alpha) / parts + released.share_noise_variance],
            ]
        )
        rng = np.random.default_rng(seed)
        drawn = rng.multivariate_normal([mean, alpha], covariance, size=simulations, method="eigh")
        se = float(np.std(correct(drawn[:, 0], drawn[:, 1], lower, upper).theta, ddof=1))
        shares: tuple[float | None, float | None] = (law.alpha_low, alpha)
        reason = ""
    else:
        theta, sigma = mean, float("nan")
        inside = min(max(mean, lower), upper)
        se = sqrt((upper - inside) * (inside - lower) / parts + released.mean_noise_variance)
        shares, reason = (None, alpha), _why_not(mean, alpha, lower, upper)
    low, high = shares if released.upper_side else shares[::-1]
    estimate = sign * theta
    return UdpResult(
        estimate=estimate,
        se=se,
        ci=(estimate - critical * se, estimate + critical * se),
        alpha_low=low,
        alpha_high=high,
        sigma=sigma if feasible else None,
        feasible=feasible,
        reason=reason,
        uncorrected=released.mean,
        parts=parts,
        privacy=privacy,
    )


def _noises(budget: Budget, grid: Grid, share: Fraction) -> tuple[Mechanism, Mechanism]:
    """Noise of the sum, which one part moves by at most ``grid.steps``, and of the count, which it moves by one."""
    mean = budget.noise(1 - share, l1=grid.steps, l2_squared=grid.steps**2)
    return mean, budget.noise(share, l1=1, l2_squared=1)


def _one_grid(bounds: tuple[Bound, Bound], bits: int) -> Any:
    grids = grids_of(bounds, bits)
    if len(grids) != 1:
        raise ConfigError(Problem("bounds", "are of several numbers", "UDP releases one; use sample-and-aggregate"))
    return grids


def _why_not(mean: float, alpha: float, lower: float, upper: float) -> str:
    """Say which condition the released numbers break."""
    if alpha <= 0:
        return "the released share of clipped parts is not positive: there is nothing to correct, or too much noise"
    if alpha >= 1 or mean <= upper - (upper - lower) * (1 - alpha):
        return "more parts lie beyond the bounds than a normal law with this mean allows: widen the bounds"
    return "the released mean lies beyond the bounds: widen them, or raise the budget"
