"""The discrete Laplace (double geometric) distribution: P(X = k) proportional to exp(-|k| / scale)."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import sqrt
from typing import ClassVar

from das.accounting.events import LaplaceEvent
from das.noise.bernoulli import bernoulli, bernoulli_exp, uniform_below
from das.noise.interval_arithmetic import Weights, enclose_exp_minus, relative_bits
from das.noise.rational import Rational, positive_rational
from das.noise.stream import Bits
from das.noise.two_sided import TwoSidedNoise


@dataclass(frozen=True, slots=True, init=False)
class DiscreteLaplace(TwoSidedNoise):
    """Noise with P(X = k) = (1 - q)/(1 + q) q^|k|, q = exp(-1/scale) (Ghosh, Roughgarden and Sundararajan 2009).

    Parameters
    ----------
    scale : Fraction
        A positive rational; integers and strings such as "3/2" are taken, floats are refused.

    Examples
    --------
    >>> noise = DiscreteLaplace("5/2")
    >>> noise.name, noise.epsilon(1), round(noise.variance(), 6)
    ('discrete-laplace(scale=5/2)', Fraction(2, 5), 12.334658)
    """

    column: ClassVar[str] = "scale"
    continuous_error: ClassVar[float] = sqrt(1 / 2)

    scale: Fraction
    weights: Weights = field(init=False, repr=False, compare=False)

    def __init__(self, scale: Rational) -> None:
        object.__setattr__(self, "scale", positive_rational(scale, "scale"))
        object.__setattr__(self, "weights", Weights(quadratic=Fraction(0), linear=1 / self.scale))

    @classmethod
    def spending(cls, cost: Fraction, *, l1: int, l2_squared: int) -> DiscreteLaplace:
        """Return the noise with epsilon = cost: scale = l1 / epsilon."""
        return cls(Fraction(l1) / cost)

    @property
    def parameter(self) -> Fraction:
        """The exact scale."""
        return self.scale

    def event(self, level: str, query: str) -> LaplaceEvent:
        """Return the accountant's event: double-geometric noise on the integers."""
        return LaplaceEvent(level=level, query=query, scale=self.scale)

    @property
    def name(self) -> str:
        """The canonical name, part of every stream's name."""
        return f"discrete-laplace(scale={self.scale})"

    def variance(self) -> float:
        """Return the variance, the double nearest to 2 q / (1 - q)^2; the continuous Laplace has 2 scale^2."""
        bits = relative_bits(self.weights, 1) + 2 * int(self.scale).bit_length()
        lower, upper = enclose_exp_minus(1 / self.scale, bits)
        q = Fraction(lower + upper, 1 << (bits + 1))
        return float(2 * q / (1 - q) ** 2)

    def epsilon(self, l1: int | Fraction) -> Fraction:
        """Return the pure loss, epsilon = l1 / scale, of moving the answers by l1 in the L1 norm."""
        return l1 / self.scale

    def draw_one_by_reference(self, bits: Bits) -> int:
        """Return one draw by algorithm 2 of Canonne, Kamath and Steinke (2020).

        With scale = t/s: X = U + t V has P(X = x) proportional to exp(-x/t) on 0, 1, 2, ... when U is uniform below t,
        kept with probability exp(-U/t), and V is geometric with ratio exp(-1). Then floor(X/s) is geometric with
        ratio exp(-s/t); a sign makes it two-sided, and one of the two zeros is thrown away.
        """
        t, s = self.scale.numerator, self.scale.denominator
        while True:
            u = uniform_below(bits, t)
            if not bernoulli_exp(bits, Fraction(u, t)):
                continue
            v = 0
            while bernoulli_exp(bits, Fraction(1)):
                v += 1
            size = (u + t * v) // s
            negative = bernoulli(bits, Fraction(1, 2))
            if negative and size == 0:
                continue
            return -size if negative else size
