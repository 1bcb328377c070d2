"""Discrete Gaussian noise on the lattice of moves: the integer form of the projected Gaussian, drawn exactly.

    P(v)  proportional to  exp(-||v||^2 / (2 sigma2))   on   L = {v integer : A v = 0}

It is independent discrete Gaussian noise in every cell given that no invariant changes; ``lattice_gaussian.md`` has the
proofs of its cost and of the sampler.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from das.errors import ConfigError, Problem
from das.noise.rational import positive_rational
from das.noise.stream import Bits, Bundle
from das.table.exact_coins import draw_shifted_gaussian, toss_shifted_mass
from das.table.lattice import MoveLattice
from das.table.projected_gaussian import chi_mean

__all__ = ["LatticeGaussian"]

LEAST_ACCEPTANCE = 1e-4


MOST_SIGMA2 = 2**80
"""A draw of a standard deviation of 2^40, times the entries of a basis, fits 64 bits with room to spare."""


@dataclass(frozen=True)
class LatticeGaussian:
    """Noise on a lattice of moves; no part of it depends on the data.

    Parameters
    ----------
    lattice : MoveLattice
    sigma2 : Fraction
        The parameter of every cell's noise before conditioning.

    Raises
    ------
    ConfigError
        The noise is so small against the lattice that the exact sampler would reject too often.

    Examples
    --------
    >>> from das.accounting.small_table.dataspace import TableFacts
    >>> from das.noise import RunKey
    >>> from das.table.lattice import move_lattice
    >>> noise = LatticeGaussian(move_lattice(TableFacts(cells=4, values=(), records=9)), Fraction(5))
    >>> bundle = RunKey.for_testing("doc").streams(b"").bundle([("table", "", "detailed", noise.name)])
    >>> noise.draw(bundle, 3).sum(axis=-1).tolist(), noise.rho(2)
    ([[0, 0, 0]], Fraction(1, 5))
    """

    lattice: MoveLattice
    sigma2: Fraction
    status: ClassVar[str] = "exact"

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma2", positive_rational(self.sigma2, "sigma2"))
        if self.sigma2 > MOST_SIGMA2:
            reason = f"sigma2 = {float(self.sigma2):.3g} is far beyond any count"
            raise ConfigError(Problem("gaussian", reason, "spend more"))
        if self.acceptance_lower() < LEAST_ACCEPTANCE:
            reason = f"sigma2 = {float(self.sigma2):.3g} is too small for this lattice: exact rejection would not end"
            raise ConfigError(Problem("gaussian", reason, "spend less; noise this small protects nobody"))

    @property
    def name(self) -> str:
        """The canonical name, part of the stream's name."""
        return f"lattice-gaussian(sigma2={self.sigma2}, rank={self.lattice.rank})"

    def rho(self, l2_squared: int | Fraction) -> Fraction:
        """Return the zCDP loss of a move with this squared length: l2_squared / (2 sigma2)."""
        return l2_squared / (2 * self.sigma2)

    def expected_l2(self) -> float:
        """Return sigma chi_mean(rank), which the mean length of a draw approaches as sigma grows; for reading."""
        return math.sqrt(self.sigma2) * chi_mean(self.lattice.rank)

    def acceptance_lower(self) -> float:
        """Return a lower bound of the probability that an attempt is accepted, for reading."""
        logs = 0.0
        for length in self.lattice.lengths:
            variance = float(self.sigma2 / length)
            reach = range(1, 40 + int(10 * math.sqrt(variance)))
            if variance < 1:  # from there on the ratio is 1 to nine digits
                half = 2 * math.fsum(math.exp(-((k - 0.5) ** 2) / (2 * variance)) for k in reach)
                whole = 1 + 2 * math.fsum(math.exp(-(k**2) / (2 * variance)) for k in reach)
                logs += math.log(half / whole) if half else -math.inf
        return math.exp(logs)

    def draw(self, bundle: Bundle, n: int) -> NDArray[np.int64]:
        """Return n noise vectors from each stream: an array (streams, n, cells); each is a function of stream and i."""
        draws = np.empty((bundle.count, n, self.lattice.cells), dtype=np.int64)
        for stream in range(bundle.count):
            for i in range(n):
                draws[stream, i] = self._one(bundle.bits(stream, i))
        return draws

    def _one(self, bits: Bits) -> NDArray[np.int64]:
        """Draw coordinates last to first (Klein 2000), and reject for an exact law (Brakerski et al. 2013)."""
        mu, lengths = self.lattice.gram_schmidt
        rank = self.lattice.rank
        variances = [self.sigma2 / length for length in lengths]
        while True:
            centres = [Fraction(0)] * rank
            drawn = [0] * rank
            for i in range(rank - 1, -1, -1):
                if not toss_shifted_mass(bits, centres[i], variances[i]):
                    break
                drawn[i] = draw_shifted_gaussian(bits, -centres[i], variances[i])
                if drawn[i]:
                    for j, coefficient in enumerate(mu[i]):
                        if coefficient:
                            centres[j] += drawn[i] * coefficient
            else:
                return np.array(drawn, dtype=np.int64) @ self.lattice.basis
