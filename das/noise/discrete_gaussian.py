"""The discrete Gaussian distribution: P(X = k) proportional to exp(-k^2 / (2 sigma2))."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import isqrt, pi, sqrt
from typing import ClassVar

from das.accounting.events import GaussianEvent
from das.noise.bernoulli import bernoulli_exp
from das.noise.discrete_laplace import DiscreteLaplace
from das.noise.interval_arithmetic import Weights, enclose_tails, relative_bits
from das.noise.rational import Rational, positive_rational
from das.noise.stream import Bits
from das.noise.two_sided import TwoSidedNoise

_POISSON_SIGMA2 = 9  # from here on no double lies between the variance and sigma2


@dataclass(frozen=True, slots=True, init=False)
class DiscreteGaussian(TwoSidedNoise):
    """Noise with P(X = k) proportional to exp(-k^2 / (2 sigma2)) on the integers (Canonne, Kamath and Steinke 2020).

    Parameters
    ----------
    sigma2 : Fraction
        A positive rational; integers and strings such as "3/2" are taken, floats are refused. It is the parameter,
        not the variance of the draw: see `variance`.

    Examples
    --------
    >>> noise = DiscreteGaussian("1/4")
    >>> noise.name, noise.rho(2), round(noise.variance(), 6)
    ('discrete-gaussian(sigma2=1/4)', Fraction(4, 1), 0.215013)
    >>> DiscreteGaussian(0)
    Traceback (most recent call last):
    das.errors.ConfigError: sigma2: 0 is not positive; noise needs a parameter above zero
    """

    column: ClassVar[str] = "sigma2"
    continuous_error: ClassVar[float] = sqrt(2 / pi)

    sigma2: Fraction
    weights: Weights = field(init=False, repr=False, compare=False)

    def __init__(self, sigma2: Rational) -> None:
        object.__setattr__(self, "sigma2", positive_rational(sigma2, "sigma2"))
        object.__setattr__(self, "weights", Weights(quadratic=1 / (2 * self.sigma2), linear=Fraction(0)))

    @classmethod
    def spending(cls, cost: Fraction, *, l1: int, l2_squared: int) -> DiscreteGaussian:
        """Return the noise with rho = cost: sigma2 = l2_squared / (2 rho) (Bun and Steinke 2016)."""
        return cls(Fraction(l2_squared) / (2 * cost))

    @property
    def parameter(self) -> Fraction:
        """The exact sigma2."""
        return self.sigma2

    def event(self, level: str, query: str) -> GaussianEvent:
        """Return the accountant's event: Gaussian noise on the integers."""
        return GaussianEvent(level=level, query=query, sigma2=self.sigma2)

    @property
    def name(self) -> str:
        """The canonical name, part of every stream's name."""
        return f"discrete-gaussian(sigma2={self.sigma2})"

    def variance(self) -> float:
        """Return the variance of a draw, the double nearest to it. It is below sigma2, and visibly so for small sigma2.

        The sum of k^2 P(X = k) is 2 sum over k >= 1 of (2k - 1) P(X >= k). By Poisson summation the variance is also
        sigma2 (1 - 4 pi^2 sigma2 sum n^2 e(n) / sum e(n)) with e(n) = exp(-2 pi^2 sigma2 n^2): from sigma2 = 9 on it
        differs from sigma2 by less than one part in 10^70.
        """
        if self.sigma2 >= _POISSON_SIGMA2:
            return float(self.sigma2)
        bits = relative_bits(self.weights, 1)
        tails = enclose_tails(self.weights, bits)
        doubled = sum((2 * k - 1) * (lower + upper) for k, (lower, upper) in enumerate(tails, start=1))
        return float(Fraction(doubled, 1 << bits))

    def rho(self, l2_squared: int | Fraction) -> Fraction:
        """Return the zCDP loss, rho = l2_squared / (2 sigma2), of moving the answers by that squared L2 norm.

        Canonne, Kamath and Steinke 2020, theorem 4; for a product of independent draws the squared norms add.
        """
        return l2_squared / (2 * self.sigma2)

    def draw_one_by_reference(self, bits: Bits) -> int:
        """Return one draw by algorithm 3 of Canonne, Kamath and Steinke (2020).

        Y is discrete Laplace with scale t = floor(sigma) + 1, accepted with probability
        exp(-(|Y| - sigma2/t)^2 / (2 sigma2)): the product is exp(-Y^2/(2 sigma2)) times a constant.
        """
        t = isqrt(self.sigma2.numerator // self.sigma2.denominator) + 1
        proposal = DiscreteLaplace(t)
        while True:
            y = proposal.draw_one_by_reference(bits)
            if bernoulli_exp(bits, (abs(y) - self.sigma2 / t) ** 2 / (2 * self.sigma2)):
                return y
