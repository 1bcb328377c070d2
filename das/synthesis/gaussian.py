"""Multivariate Gaussian from clipped private moments, with the covariance repaired to be positive semidefinite.

The proof, with the choice of variances that makes a block's sensitivity exact, is in ``gaussian.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from das.errors import ConfigError, InputError, Problem
from das.noise import DiscreteGaussian, Streams
from das.schema.query import Neighbours
from das.synthesis.curator import Meter
from das.synthesis.shares import check_options

__all__ = ["GaussianModel", "GaussianOptions", "NumericCurator", "fit_gaussian", "repaired"]

GRID = 2**12
"""A clipped row is rounded towards zero to this fraction of the radius, so that all sums are integers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianOptions:
    """Parts of rho for the sum and, where it is not public, the number of rows; the second moments have the rest."""

    sum_share: Fraction = Fraction(1, 4)
    count_share: Fraction = Fraction(1, 20)

    def __post_init__(self) -> None:
        check_options(self)
        if self.sum_share + self.count_share >= 1:
            raise ConfigError(Problem("options", "sum_share and count_share leave nothing for the second moments"))


@dataclass(frozen=True, eq=False)
class GaussianModel:
    """A normal distribution of named columns."""

    names: tuple[str, ...]
    mean: NDArray[np.float64]
    covariance: NDArray[np.float64]
    total: float

    def marginal(self, attributes: Iterable[str]) -> GaussianModel:
        """Return the distribution of some columns."""
        places = [self.names.index(name) for name in attributes]
        return GaussianModel(
            tuple(self.names[k] for k in places),
            self.mean[places],
            self.covariance[np.ix_(places, places)],
            self.total,
        )

    def rows(self, n: int, generator: np.random.Generator) -> NDArray[np.float64]:
        """Return n independent draws."""
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        return np.asarray(self.mean + generator.standard_normal((n, len(self.mean))) @ root.T)


class NumericCurator(Meter):
    """Confidential numbers, clipped to a public ball and rounded to its grid; only noisy moments leave.

    Parameters
    ----------
    values : ndarray
        One row a record.
    centre : sequence of float
        The public centre of the ball.
    radius : float
        Its public radius; a row beyond it is moved onto it.
    """

    def __init__(
        self,
        names: Sequence[str],
        values: NDArray[np.float64],
        streams: Streams,
        *,
        centre: Sequence[float],
        radius: float,
        budget: Fraction,
        neighbours: Neighbours,
        before: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(streams, framework="zcdp", budget=budget, neighbours=neighbours, before=before)
        if not radius > 0 or len(centre) != len(names):
            raise ConfigError(Problem("gaussian", "needs a positive radius and one centre for each column"))
        if values.ndim != 2 or values.shape[1] != len(names) or not np.isfinite(values).all():
            raise InputError(Problem("records", "are not finite numbers in one column for each name"))
        self.names = tuple(names)
        self.centre = np.asarray(centre, dtype=np.float64)
        self.radius = float(radius)
        relative = (values - self.centre) / self.radius
        length = np.sqrt((relative**2).sum(axis=1, keepdims=True))
        inside = relative / np.maximum(length, 1.0) * (1 - 2.0**-40)
        self._vectors = np.trunc(inside * GRID).astype(np.int64)

    @property
    def public_total(self) -> int | None:
        """The number of rows where neighbours share it."""
        return len(self._vectors) if self.neighbours is Neighbours.REPLACE else None

    def measure_count(self, cost: Fraction) -> int:
        """Measure the number of rows."""
        noise = DiscreteGaussian(Fraction(1) / (2 * cost))
        position = self._charge("total", noise.name, cost)
        return int(self._noisy(position, "total", np.array([len(self._vectors)]), noise)[0])

    def measure_sum(self, cost: Fraction) -> NDArray[np.float64]:
        """Measure the sum of the clipped rows, in units of the radius; it moves by at most GRID, or twice that."""
        noise = DiscreteGaussian(Fraction((self.changed * GRID) ** 2) / (2 * cost))
        position = self._charge("sum", noise.name, cost)
        return self._noisy(position, "sum", self._vectors.sum(axis=0), noise) / GRID

    def measure_second_moments(self, cost: Fraction) -> NDArray[np.float64]:
        """Measure the sum of x x' of the clipped rows, in units of the squared radius."""
        return self._second_moments(self._vectors, GRID, cost) / GRID**2


def fit_gaussian(
    curator: NumericCurator, total: int | None = None, options: GaussianOptions | None = None
) -> GaussianModel:
    """Fit mean and covariance from noisy moments; spend the whole budget."""
    options = options or GaussianOptions()
    known = total if total is not None else curator.public_total
    n = max(1, curator.measure_count(curator.budget * options.count_share)) if known is None else known
    first = curator.measure_sum(curator.budget * options.sum_share) / n
    second = curator.measure_second_moments(curator.left) / n
    length = float(np.sqrt(first @ first))
    first = first / max(1.0, length)
    covariance = repaired(second - np.outer(first, first))
    mean = curator.centre + curator.radius * first
    return GaussianModel(curator.names, mean, curator.radius**2 * covariance, float(n))


def repaired(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the nearest positive semidefinite matrix in the Frobenius norm: negative eigenvalues become zero.

    Examples
    --------
    >>> repaired(np.array([[1.0, 0.0], [0.0, -1.0]])).tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)
