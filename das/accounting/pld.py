"""Exact privacy-loss distributions of integer noise, composed over a whole plan, rounded upward at every step.

For independent measurements the privacy loss L = log P/Q is a sum, and (Sommer, Meiser and Mohammadi 2019)::

    delta(epsilon) = E_P (1 - exp(epsilon - L))_+

The loss of a discrete Gaussian or a double geometric takes equally spaced values, so sums of like measurements stay
exact on their own lattice. They meet on one common grid, where each atom is split between its two neighbours so that
E exp(-L) is kept: by Jensen's inequality delta can only grow. Masses are convolved directly, never by a Fourier
transform: sums of positive products keep their *relative* accuracy far into the tail. ``pld.md`` has the proof and the
error budget.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from das.accounting.conversion import checked_delta
from das.accounting.events import Change, Event, GaussianEvent, LaplaceEvent, NotSupported, pure_epsilon

__all__ = ["LossDistribution", "loss_distribution"]

Masses = npt.NDArray[np.float64]
T = TypeVar("T")
TAIL = 2.0**-130  # mass that one cut may send to an infinite loss
UNIT = 2.0**-53
SPREAD = 27.0  # cuts at TAIL fall within this many standard deviations
GRID_POINTS = (2**15, 2**14, 2**13, 2**12)  # the finest grid whose convolutions stay within WORK
WORK = 2.0**28.5  # products of masses, about a third of a second
NARROWEST = Fraction(1, 16)  # the smallest sigma2, or scale, whose losses are put on a grid
WIDEST = 10**10  # the largest sigma2 whose atoms are written out


@dataclass(frozen=True, slots=True)
class LossDistribution:
    """An upper bound on a privacy-loss distribution: masses at ``(first + i) step``, and a mass at infinity.

    Parameters
    ----------
    step : float
        Width of the grid, a power of two.
    first : int
        Grid number of the first mass.
    masses : array
        Masses under P; each is right or too large once multiplied by ``1 + slack``.
    infinite : float
        Mass whose loss is taken to be infinite.
    slack : float
        Relative error that rounding may have caused.
    """

    step: float
    first: int
    masses: Masses
    infinite: float
    slack: float

    def delta_upper(self, epsilon: float) -> float:
        """Delta at epsilon, rounded up."""
        losses = (self.first + np.arange(len(self.masses))) * self.step
        above = losses > epsilon
        exceeding = -np.expm1(epsilon - losses[above]) * self.masses[above]
        slack = self.slack + (len(exceeding) + 16) * UNIT
        return min(1.0, (float(exceeding.sum()) + self.infinite) * (1 + 2 * slack))

    def epsilon_upper(self, delta: Fraction) -> float:
        """Smallest epsilon found at which delta holds; infinite when the mass at infinity is too large already.

        Examples
        --------
        >>> event = GaussianEvent(level="us", query="total", sigma2=Fraction(4))
        >>> round(loss_distribution([(event, (1,))]).epsilon_upper(Fraction(1, 10**6)), 3)
        2.276
        """
        wanted = checked_delta(delta)
        low, high = 0.0, max(0.0, (self.first + len(self.masses)) * self.step)
        if self.delta_upper(high) > wanted:
            return math.inf
        if self.delta_upper(low) <= wanted:
            return 0.0
        while high - low > 1e-9 * high:
            middle = (low + high) / 2
            if self.delta_upper(middle) > wanted:
                low = middle
            else:
                high = middle
        return high


class _Cell(NamedTuple):
    """One noisy count whose true value moves: the law and parameter of its noise, and by how much it moves."""

    law: Literal["gaussian", "laplace"]
    parameter: Fraction
    shift: int


@dataclass(frozen=True, slots=True)
class _Lattice:
    """Losses ``start + i spacing`` with their masses; ends cut, the lower upward, the upper to infinity."""

    start: Fraction
    spacing: Fraction
    masses: Masses
    infinite: float
    slack: float

    def plus(self, other: _Lattice) -> _Lattice:
        """Sum of two independent losses on one lattice."""
        masses, lower, infinite = _cut(_convolved(self.masses, other.masses))
        return _Lattice(
            self.start + other.start + lower * self.spacing,
            self.spacing,
            masses,
            self.infinite + other.infinite + infinite,
            self.slack + other.slack + (min(len(self.masses), len(other.masses)) + 4) * UNIT,
        )

    def variance(self) -> float:
        values = float(self.spacing) * np.arange(len(self.masses))
        mean = float(values @ self.masses)
        return float(((values - mean) ** 2) @ self.masses)


def loss_distribution(measured: Iterable[tuple[Event, Change]]) -> LossDistribution | NotSupported:
    """Compose measurements whose true answers change by the given entries, each cell with its own independent noise.

    Parameters
    ----------
    measured : iterable of (event, change)
        Gaussian and Laplace events on the integers are exact. Other pure events are bounded by randomised response.

    Returns
    -------
    LossDistribution or NotSupported
        For continuous Gaussian noise and for unknown events the answer is not supported.

    Examples
    --------
    >>> event = GaussianEvent(level="us", query="total", sigma2=Fraction(1))
    >>> round(loss_distribution([(event, (1,))]).delta_upper(1.0), 6)
    0.141351
    """
    cells: Counter[_Cell] = Counter()
    for event, change in measured:
        if isinstance(event, GaussianEvent) and event.support == "reals" and any(change):
            return NotSupported(f"{event.level}/{event.query}: the loss of continuous Gaussian noise has no lattice")
        if isinstance(event, GaussianEvent):
            if event.sigma2 > WIDEST:
                return NotSupported(f"{event.level}/{event.query}: its noise is too wide for an exact distribution")
            cells.update(_Cell("gaussian", event.sigma2, abs(entry)) for entry in change if entry)
            continue
        if isinstance(event, LaplaceEvent) and event.support == "integers":
            cells.update(_Cell("laplace", event.scale, abs(entry)) for entry in change if entry)
            continue
        epsilon = pure_epsilon(event, change)
        if isinstance(epsilon, NotSupported):
            return epsilon
        if epsilon == math.inf:
            return LossDistribution(1.0, 0, np.zeros(1), 1.0, 0.0)
        if epsilon:
            # every epsilon-DP pair is a post-processing of randomised response (Kairouz, Oh and Viswanath 2015)
            cells[_Cell("laplace", 1 / Fraction(epsilon), 1)] += 1
    if any(cell.parameter < NARROWEST for cell in cells):
        return NotSupported("some noise is so small that its losses do not fit on a grid")
    return _composed([(_lattice(cell), times) for cell, times in cells.items()])


def _lattice(cell: _Cell) -> _Lattice:
    """Loss of one cell whose true value moves by `shift`; both directions have the same law."""
    shift, parameter = cell.shift, cell.parameter
    if cell.law == "gaussian":
        # log P(x)/P(x + shift) = (shift^2 + 2 shift x) / (2 sigma2)
        sigma2 = float(parameter)
        reach = math.isqrt(math.ceil(200 * parameter)) + 1
        x = np.arange(-reach, reach + 1, dtype=np.float64)
        weights = np.exp(-(x * x) / (2 * sigma2))
        # beyond the reach: a geometric series, over a normaliser of at least 1
        beyond = 2 * math.exp(-((reach + 1) ** 2) / (2 * sigma2)) / -math.expm1(-(reach + 1) / sigma2)
        masses, lower, infinite = _cut(weights / weights.sum())
        spacing = shift / parameter
        start = Fraction(shift * shift - 2 * shift * reach) / (2 * parameter) + lower * spacing
        return _Lattice(start, spacing, masses, infinite + beyond, 2.0**-42)
    # log P(x)/P(x - shift) = (|x - shift| - |x|) / scale: shift for x <= 0, then falling by 2 to -shift
    q = math.exp(-1 / parameter)
    inside = [-math.expm1(-1 / parameter) / (1 + q) * q**x for x in range(1, shift)]
    masses = np.array([q**shift / (1 + q), *reversed(inside), 1 / (1 + q)])
    return _Lattice(-shift / parameter, 2 / parameter, masses, 0.0, 2.0**-44 * (1 + shift))


def _composed(lattices: list[tuple[_Lattice, int]]) -> LossDistribution:
    variances = [times * lattice.variance() for lattice, times in lattices]
    step = _grid_step([(math.sqrt(v), float(each.spacing)) for v, (each, _) in zip(variances, lattices, strict=True)])
    total = LossDistribution(step, 0, np.ones(1), 0.0, 0.0)
    for _, (lattice, times) in sorted(zip(variances, lattices, strict=True), key=lambda pair: pair[0]):
        # a lattice finer than the grid is summed on the grid, where it is short
        if lattice.spacing >= step:
            part = _gridded(_repeated(lattice, times, _Lattice.plus), step)
        else:
            part = _repeated(_gridded(lattice, step), times, _sum)
        total = _sum(total, part)
    return total


def _grid_step(parts: list[tuple[float, float]]) -> float:
    """Width of the common grid: a finer one is sharper, and any one gives an upper bound.

    Parameters
    ----------
    parts : list of (float, float)
        Standard deviation and spacing of the loss of each kind of measurement.
    """
    width, step = SPREAD * math.hypot(*(deviation for deviation, _ in parts)) or 1.0, 1.0
    for points in GRID_POINTS:
        step = 2.0 ** math.floor(math.log2(width / points))
        if _products(sorted(parts), step) <= WORK:
            break
    return step


def _products(parts: list[tuple[float, float]], step: float) -> float:
    """Estimate the products of masses: each part is added to those before it, atom by atom if its atoms are few."""
    products, sum_of_squares = 0.0, 0.0
    for deviation, spacing in parts:
        products += SPREAD * deviation / (spacing if spacing > 8 * step else step) * math.sqrt(sum_of_squares)
        sum_of_squares += deviation**2
    return products * SPREAD / step


def _repeated(single: T, times: int, plus: Callable[[T, T], T]) -> T:
    """Sum of independent copies, by doubling."""
    if times == 1:
        return single
    half = _repeated(single, times // 2, plus)
    return plus(plus(half, half), single) if times % 2 else plus(half, half)


def _gridded(lattice: _Lattice, step: float) -> LossDistribution:
    """Split each atom between the two grid points around it, keeping its mass and its mean of exp(-loss)."""
    index = np.arange(len(lattice.masses))
    start, spacing = float(lattice.start), float(lattice.spacing)
    # pushed up by more than the rounding of this line and of the fractions below
    losses = start + spacing * index
    losses = losses + 2.0**-46 * (abs(start) + spacing * index + step)
    below = np.floor(losses / step)
    upper_share = np.minimum(np.expm1(-(losses - below * step)) / np.expm1(-step), 1.0)
    position = (below - below[0]).astype(np.int64)
    size = int(position[-1]) + 2
    masses: Masses = np.bincount(position, lattice.masses * (1 - upper_share), size).astype(np.float64)
    masses += np.bincount(position + 1, lattice.masses * upper_share, size)
    slack = lattice.slack + (len(index) + 8) * UNIT
    return LossDistribution(step, int(below[0]), masses, lattice.infinite, slack)


def _convolved(one: Masses, other: Masses) -> Masses:
    return np.asarray(np.convolve(one, other), dtype=np.float64)


def _sum(one: LossDistribution, other: LossDistribution) -> LossDistribution:
    """Loss of two independent measurements, on their common grid."""
    occupied = np.flatnonzero(other.masses)
    if 4 * len(occupied) < len(other.masses):
        # few atoms far apart: add shifted copies
        spread: Masses = np.zeros(len(one.masses) + len(other.masses) - 1)
        for place in occupied:
            spread[place : place + len(one.masses)] += other.masses[place] * one.masses
    else:
        spread = _convolved(one.masses, other.masses)
    masses, lower, infinite = _cut(spread)
    return LossDistribution(
        one.step,
        one.first + other.first + lower,
        masses,
        one.infinite + other.infinite + infinite,
        one.slack + other.slack + (min(len(occupied), len(one.masses)) + 4) * UNIT,
    )


def _cut(masses: Masses) -> tuple[Masses, int, float]:
    """Cut both tails at `TAIL`: the lower is lifted onto the first kept atom, the upper goes to infinity."""
    lower = int(np.searchsorted(np.cumsum(masses), TAIL))
    from_above = np.cumsum(masses[::-1])
    upper = len(masses) - int(np.searchsorted(from_above, TAIL))
    kept = masses[lower:upper].copy()
    kept[0] += masses[:lower].sum()
    return kept, lower, float(masses[upper:].sum()) * (1 + 2.0**-40)
