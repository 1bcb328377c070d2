"""A public grid on the range of an estimate: reals become integers, to which exact noise can be added."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from das.errors import ConfigError, Problem

__all__ = ["Bound", "Grid"]

Bound = int | float | str | Fraction
"""A bound is public and spends nothing; a float is taken as the rational that it is."""

MOST_BITS = 40


@dataclass(frozen=True, slots=True, init=False)
class Grid:
    """The points lower + i step for i = 0, ..., 2^bits, of which the last is upper.

    An estimate is clipped to the bounds and goes to a nearest point. The integer of a point is all that later steps see
    of an estimate, so a change of one estimate changes a sum of them by at most 2^bits, whatever floating point did.

    Parameters
    ----------
    lower, upper : int, float, str or Fraction
        Public bounds, chosen without looking at the data.
    bits : int
        The number of steps is 2^bits.

    Examples
    --------
    >>> grid = Grid(0, "1/2", bits=2)
    >>> grid.integers(np.array([-1.0, 0.2, 0.26, 7.0, np.nan])).tolist()
    [0, 2, 2, 4, 2]
    >>> grid.step, grid.value(3)
    (Fraction(1, 8), 0.375)
    """

    lower: Fraction
    upper: Fraction
    bits: int

    def __init__(self, lower: Bound, upper: Bound, bits: int = 24) -> None:
        low, high = _rational("lower bound", lower), _rational("upper bound", upper)
        if low >= high:
            reason = f"the lower bound {low} is not below the upper bound {high}"
            raise ConfigError(Problem("bounds", reason, "give the lower one first, and leave room between them"))
        if isinstance(bits, bool) or not 1 <= bits <= MOST_BITS:
            raise ConfigError(Problem("grid_bits", f"{bits} is not between 1 and {MOST_BITS}", "24 is fine enough"))
        for name, value in (("lower", low), ("upper", high), ("bits", bits)):
            object.__setattr__(self, name, value)

    @property
    def width(self) -> Fraction:
        """Upper minus lower bound."""
        return self.upper - self.lower

    @property
    def steps(self) -> int:
        """The number of steps, which is the largest integer."""
        return 1 << self.bits

    @property
    def step(self) -> Fraction:
        """The distance of two neighbouring points."""
        return self.width / self.steps

    def integers(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the integers of the points nearest to the clipped values; what is not a number gets the midpoint."""
        middle = float(self.lower + self.width / 2)
        known = np.where(np.isnan(values), middle, values)
        share = (np.clip(known, float(self.lower), float(self.upper)) - float(self.lower)) / float(self.width)
        return np.clip(np.rint(share * self.steps), 0, self.steps).astype(np.int64)

    def value(self, integer: float | Fraction) -> float:
        """Return the real that belongs to an integer, or to a mean of integers."""
        return float(self.lower + self.step * Fraction(integer))


def _rational(where: str, value: Bound) -> Fraction:
    try:
        if isinstance(value, bool):
            raise ValueError
        return Fraction(value)
    except (ValueError, ZeroDivisionError, OverflowError, TypeError):
        problem = Problem(where, f"{value!r} is not a finite number", 'write for example 10, 2.5 or "5/2"')
        raise ConfigError(problem) from None
