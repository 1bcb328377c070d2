"""Gaussian noise in the span of the sensitivity space, so that invariants get no noise.

For analysis: floating point, not an exact sampler; see ``projected_gaussian.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import exp, lgamma, sqrt
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from das.noise.rational import Rational, positive_rational
from das.noise.stream import Bundle
from das.table.continuous import normals
from das.table.sensitivity_space import checked_moves, digest_of, orthonormal_basis


def chi_mean(degrees: int) -> float:
    """Return the mean length of a standard normal vector, sqrt(2) Gamma((d + 1)/2) / Gamma(d/2).

    Examples
    --------
    >>> round(chi_mean(1), 6), round(chi_mean(4), 6)
    (0.797885, 1.879971)
    """
    return sqrt(2) * exp(lgamma((degrees + 1) / 2) - lgamma(degrees / 2))


@dataclass(frozen=True, slots=True, init=False, eq=False)
class ProjectedGaussian:
    """Noise sigma Q z, with z standard normal and Q an orthonormal basis of the span of the moves.

    It equals independent noise N(0, sigma2) in every cell, conditioned on the invariants: for Gaussian noise and linear
    invariants projection (Cho and Awan 2024, arXiv 2410.17468) and conditioning (Gong and Meng 2020) coincide.

    Parameters
    ----------
    moves : integer matrix
        The sensitivity space: one row for each change of the answers that neighbours can make. Negatives are added.
    sigma2 : Fraction
        The variance along every direction of the span; a positive rational.

    Examples
    --------
    >>> from das.table.sensitivity_space import square_moves
    >>> noise = ProjectedGaussian.for_mu(square_moves(3, 3), "1/10")
    >>> noise.rank, noise.l2_squared, noise.sigma2, round(noise.expected_l2(), 2)
    (4, 4, Fraction(400, 1), 37.6)
    """

    moves: NDArray[np.int64]
    sigma2: Fraction
    basis: NDArray[np.float64] = field(init=False, repr=False)
    status: ClassVar[str] = "analysis"

    def __init__(self, moves: Any, sigma2: Rational) -> None:
        object.__setattr__(self, "moves", checked_moves(moves))
        object.__setattr__(self, "sigma2", positive_rational(sigma2, "sigma2"))
        object.__setattr__(self, "basis", orthonormal_basis(self.moves))

    @classmethod
    def for_mu(cls, moves: Any, mu: Rational) -> ProjectedGaussian:
        """Return the mechanism that is mu-GDP for every move: sigma2 = l2_squared / mu^2."""
        return cls(moves, _l2_squared(checked_moves(moves)) / positive_rational(mu, "mu") ** 2)

    @classmethod
    def for_rho(cls, moves: Any, rho: Rational) -> ProjectedGaussian:
        """Return the mechanism that is rho-zCDP for every move: sigma2 = l2_squared / (2 rho)."""
        return cls(moves, _l2_squared(checked_moves(moves)) / (2 * positive_rational(rho, "rho")))

    @property
    def name(self) -> str:
        """The canonical name: parameter and a digest of the moves."""
        return f"projected-gaussian(sigma2={self.sigma2}, moves={digest_of(self.moves)})"

    @property
    def rank(self) -> int:
        """The dimension of the span."""
        return int(self.basis.shape[1])

    @property
    def l2_squared(self) -> int:
        """The largest squared L2 norm of a move."""
        return _l2_squared(self.moves)

    def rho(self, l2_squared: int | Fraction) -> Fraction:
        """Return the zCDP loss of a move within the span, rho = l2_squared / (2 sigma2)."""
        return l2_squared / (2 * self.sigma2)

    def covariance(self) -> NDArray[np.float64]:
        """Return sigma2 Q Q', a multiple of the projection on the span."""
        return float(self.sigma2) * self.basis @ self.basis.T

    def expected_l2(self) -> float:
        """Return E ||noise||_2 = sigma chi_mean(rank)."""
        return sqrt(self.sigma2) * chi_mean(self.rank)

    def draw(self, bundle: Bundle, n: int) -> NDArray[np.float64]:
        """Return n noise vectors from each stream, as an array (streams, n, cells)."""
        z = normals(bundle, n * self.rank).reshape(bundle.count, n, self.rank)
        return np.asarray(sqrt(self.sigma2) * z @ self.basis.T)


def _l2_squared(moves: NDArray[np.int64]) -> int:
    return int((moves * moves).sum(axis=1).max())
