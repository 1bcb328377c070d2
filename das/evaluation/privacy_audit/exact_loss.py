"""Exact privacy loss between two data sets of noise with a known law: a lower bound on epsilon at delta.

The loss of a release is the sum over its answers of log p(z) - log p(z + c), z the noise and c the change of the
answer. Its law is computed from the mechanism's own probabilities, and from nothing of the accountant. Everything
is rounded down: losses to a grid, tails left out. So the epsilon found is never above the true one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from das.noise.two_sided import TwoSidedNoise

__all__ = ["Losses", "epsilon_lower", "losses_of", "product_epsilon_lower"]

POINTS = 2**17
"""Points of the grid on which losses are added."""
SMALLEST_DELTA = 1e-12
"""A smaller delta is taken for this one: sums of products have an absolute error of about 1e-14."""
ROUNDING = 1e-13
TAIL_BITS = 80
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Losses:
    """Masses of a privacy loss at ``start + i step`` under the first data set; what is missing lies anywhere."""

    step: float
    start: float
    masses: Floats

    @property
    def end(self) -> float:
        """The largest loss."""
        return self.start + self.step * (len(self.masses) - 1)

    def delta_lower(self, epsilon: float) -> float:
        """Delta at epsilon, rounded down."""
        losses = self.start + self.step * np.arange(len(self.masses))
        above = losses > epsilon
        return max(0.0, float((-np.expm1(epsilon - losses[above]) * self.masses[above]).sum()) - ROUNDING)


def epsilon_lower(losses: Losses, delta: Fraction) -> float:
    """Largest epsilon found at which delta is exceeded: every smaller one is not satisfied.

    Examples
    --------
    >>> one = Losses(1.0, -1.0, np.array([0.25, 0.25, 0.5]))
    >>> round(epsilon_lower(one, Fraction(1, 10)), 3)  # 0.5 (1 - e^(epsilon - 1)) = 0.1
    0.777
    """
    wanted = max(float(delta), SMALLEST_DELTA)
    low, high = 0.0, max(0.0, losses.end)
    if losses.delta_lower(low) <= wanted:
        return 0.0
    while high - low > 1e-9 * max(1.0, high):
        middle = (low + high) / 2
        if losses.delta_lower(middle) > wanted:
            low = middle
        else:
            high = middle
    return low


def product_epsilon_lower(changed: Iterable[tuple[TwoSidedNoise, int]], delta: Fraction) -> float:
    """Epsilon at delta of independent noise on answers that change by the given entries, rounded down.

    With delta = 0 it is the largest loss, infinite for noise of the Gaussian kind.

    Examples
    --------
    >>> from das.noise import DiscreteGaussian, DiscreteLaplace
    >>> round(product_epsilon_lower([(DiscreteGaussian(4), 1)], Fraction(1, 10**6)), 3)
    2.276
    >>> round(product_epsilon_lower([(DiscreteLaplace(4), 1), (DiscreteLaplace(4), -1)], Fraction(0)), 9)
    0.5
    """
    cells = Counter((noise, abs(change)) for noise, change in changed if change)
    if not cells:
        return 0.0
    if delta == 0:
        total = math.fsum(times * _largest(noise, change) for (noise, change), times in cells.items())
        return total * (1 - 1e-12)
    return epsilon_lower(losses_of(cells), delta)


def losses_of(cells: Counter[tuple[TwoSidedNoise, int]]) -> Losses:
    """Law of the summed loss of independent answers, each of a kind as often as counted."""
    parts = [(_single(noise, change), times) for (noise, change), times in cells.items()]
    high = _beyond(parts, 1.0)
    low = -_beyond(parts, -1.0)
    step = max((high - low) / (POINTS / 2), 1e-12)
    spectrum = np.ones(POINTS // 2 + 1, dtype=np.complex128)
    start = 0
    for (loss, mass), times in parts:
        place = np.floor(loss / step).astype(np.int64)
        # Places are counted from the lowest and wrap around; the sum is put back where it belongs below.
        start += times * int(place[0])
        wrapped = (place - place[0]) % POINTS
        spectrum *= np.fft.rfft(np.bincount(wrapped, mass, POINTS)) ** times
    masses = np.maximum(np.fft.irfft(spectrum, POINTS), 0.0)
    # The sum at grid number n stands at (n - start) modulo the length; numbers from `first` on fill the window once.
    first = math.floor((low + high) / (2 * step)) - POINTS // 2
    return Losses(step, first * step, np.roll(masses, start - first))


def _single(noise: TwoSidedNoise, change: int) -> tuple[Floats, Floats]:
    """Losses and masses of one answer, the tails left out."""
    reach = noise.weights.reach(TAIL_BITS) + change
    z = np.arange(-reach, reach + 1)
    here, there = noise.log_pmf(z), noise.log_pmf(z + change)
    order = np.argsort(here - there, kind="stable")
    return (here - there)[order], np.exp(here)[order]


def _beyond(parts: list[tuple[tuple[Floats, Floats], int]], sign: float) -> float:
    """A number that the summed loss, times `sign`, exceeds with probability below 1e-16: Chernoff's bound."""
    found = [
        math.fsum(times * _log_moment(sign * rate * loss, mass) for (loss, mass), times in parts) / rate + 37.0 / rate
        for rate in (2.0**power for power in range(-20, 12))
    ]
    ends = math.fsum(times * float((sign * loss).max()) for (loss, _), times in parts)
    return min(*found, ends) + 1e-9


def _log_moment(exponents: Floats, mass: Floats) -> float:
    largest = float(exponents.max())
    return largest + math.log(float(np.exp(exponents - largest) @ mass))


def _largest(noise: TwoSidedNoise, change: int) -> float:
    if noise.weights.quadratic:
        return math.inf
    loss, _ = _single(noise, change)
    return float(loss.max())
