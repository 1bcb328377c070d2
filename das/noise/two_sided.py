"""A mechanism: symmetric integer noise that states its own parameter, its column and its event for the accountant."""

from __future__ import annotations

from abc import ABC, abstractmethod
from fractions import Fraction
from math import sqrt
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from das.accounting.events import Event
from das.noise.interval_arithmetic import Weights, enclose_exp_minus, enclose_tails, probability_of_zero, relative_bits
from das.noise.stream import Bits, Bundle
from das.noise.table import as_int64, table_of


class TwoSidedNoise(ABC):
    """A distribution with weights exp(-(quadratic k^2 + linear |k|)): probabilities, exact draws, and what they cost.

    Callers use this interface and never ask which class it is.
    """

    __slots__ = ()

    weights: Weights
    status: ClassVar[str] = "exact"
    column: ClassVar[str]
    """Name of the parameter, and of its column in a measurement file."""
    continuous_error: ClassVar[float]
    """Mean absolute value over standard deviation of the continuous law, which wide noise approaches."""

    @classmethod
    @abstractmethod
    def spending(cls, cost: Fraction, *, l1: int, l2_squared: int) -> Self:
        """Return the noise that spends exactly ``cost`` on answers of this sensitivity."""

    @property
    @abstractmethod
    def parameter(self) -> Fraction:
        """The exact parameter that ``column`` names."""

    @abstractmethod
    def event(self, level: str, query: str) -> Event:
        """Return the accountant's event for a query that was measured with this noise."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The canonical name: distribution and rational parameter."""

    @abstractmethod
    def variance(self) -> float:
        """Return the variance of a draw, the double nearest to it."""

    @abstractmethod
    def draw_one_by_reference(self, bits: Bits) -> int:
        """Return one draw by the published rational-arithmetic algorithm, reading as many bits as it needs."""

    def mean_absolute(self) -> float:
        """Return the mean absolute value of a draw, for reading; beyond 60 standard deviations nothing shows."""
        std_dev = sqrt(self.variance())
        if std_dev > 1000:  # the continuous law, to one part in a million
            return std_dev * self.continuous_error
        k = np.arange(1, int(60 * std_dev) + 20)
        return float(2 * (k * np.exp(self.log_pmf(k))).sum())

    def pmf(self, k: int) -> float:
        """Return P(X = k), the double nearest to it."""
        bits = relative_bits(self.weights, k)
        weight = _middle(enclose_exp_minus(self.weights.exponent(k), bits), bits)
        return float(weight * probability_of_zero(self.weights))

    def cdf(self, k: int) -> float:
        """Return P(X <= k), the double nearest to it."""
        tail = self._tail(-k if k < 0 else k + 1)
        return float(tail if k < 0 else 1 - tail)

    def log_pmf(self, k: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return log P(X = k) for an array, in ordinary floating point."""
        size = np.abs(np.asarray(k)).astype(np.float64)
        exponent = float(self.weights.quadratic) * size * size + float(self.weights.linear) * size
        return np.asarray(np.log(self.pmf(0)) - exponent)

    def draw(self, bundle: Bundle, n: int) -> NDArray[np.int64]:
        """Return n exact draws from each stream of the bundle: an array (streams, n).

        The draw at a position is a function of stream and position alone; how the work is split cannot change it.
        """
        table = table_of(self.weights)
        if table is not None:
            return table.draw(bundle, n)
        places = np.ndindex(bundle.count, n)
        draws = [as_int64(self.draw_one_by_reference(bundle.bits(stream, position))) for stream, position in places]
        return np.array(draws, dtype=np.int64).reshape(bundle.count, n)

    def draw_reference(self, bits: Bits, n: int) -> NDArray[np.int64]:
        """Return n draws by the reference algorithm, one after the other from one source of bits."""
        return np.array([as_int64(self.draw_one_by_reference(bits)) for _ in range(n)], dtype=np.int64)

    def _tail(self, k: int) -> Fraction:
        """Return P(X >= k) for k >= 1 with a relative error far below that of a double."""
        bits = relative_bits(self.weights, k)
        tails = enclose_tails(self.weights, bits)
        return _middle(tails[k - 1], bits) if k <= len(tails) else Fraction(0)


def _middle(enclosure: tuple[int, int], bits: int) -> Fraction:
    return Fraction(enclosure[0] + enclosure[1], 1 << (bits + 1))
