"""Gaussian copula for mixed columns: noisy marginals of every column, joined by a noisy correlation of normal scores.

Every column is a list of ordered labels (numbers as bins). The normal score of a label is the quantile of the standard
normal at the middle of its noisy cumulative share, so scores are public once single columns have been measured. The
score vectors are clipped to a public norm and their second moments measured as in ``gaussian.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import qmc

from das.errors import ConfigError, Problem
from das.synthesis.curator import Curator
from das.synthesis.domain import Constraints, Domain
from das.synthesis.gaussian import repaired
from das.synthesis.shares import check_options, proportional, settle_total

__all__ = ["CopulaModel", "CopulaOptions", "fit_copula"]

_GRID = 2**12
_POINTS = 2**15


@dataclass(frozen=True, slots=True, kw_only=True)
class CopulaOptions:
    """Part of rho for the correlation; single columns have the rest."""

    correlation_share: Fraction = Fraction(1, 2)

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, eq=False)
class CopulaModel:
    """Shares of the labels of each column, and the correlation of the normal scores behind them."""

    domain: Domain
    shares: tuple[NDArray[np.float64], ...]
    correlation: NDArray[np.float64]
    total: float

    def marginal(self, attributes: Iterable[str]) -> NDArray[np.float64]:
        """Return expected counts: exact for one column, by 32,768 quasi-random points for more (error about 1 %)."""
        named = tuple(attributes)
        axes = self.domain.axes(named)
        if len(axes) == 1:
            return self.total * self.shares[axes[0]]
        shape = self.domain.shape_of(named)
        points = qmc.Sobol(len(self.domain.names), scramble=False).random(_POINTS) + 0.5 / _POINTS
        codes = self._labels(ndtri(points))
        cells = np.ravel_multi_index(tuple(codes[:, axis] for axis in axes), shape)
        counts = np.bincount(cells, minlength=int(np.prod(shape))).reshape(shape).astype(np.float64)
        return np.asarray(counts * (self.total / _POINTS))

    def rows(self, n: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """Return n independent draws as label positions."""
        return self._labels(generator.standard_normal((n, len(self.domain.names))))

    def _labels(self, independent: NDArray[np.float64]) -> NDArray[np.int64]:
        values, vectors = np.linalg.eigh(self.correlation)
        scores = independent @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
        columns = [
            np.searchsorted(ndtri(np.minimum(share.cumsum()[:-1], 1.0)), scores[:, axis], side="right")
            for axis, share in enumerate(self.shares)
        ]
        return np.stack(columns, axis=1).astype(np.int64)


def fit_copula(
    curator: Curator, constraints: Constraints, total: int | None, options: CopulaOptions | None = None
) -> CopulaModel:
    """Measure single columns and the correlation of their normal scores; spend the whole budget."""
    options = options or CopulaOptions()
    domain = curator.domain
    if constraints.zeros or constraints.invariants:
        reason = "a copula does not keep structural zeros or invariants"
        raise ConfigError(Problem("constraints", reason, "use `pairs`, `aim` or `mst`"))
    n = settle_total(curator, total)
    joint = curator.budget * options.correlation_share if len(domain.names) > 1 else Fraction(0)
    costs = proportional(curator.left - joint, [size ** (2 / 3) for size in domain.shape])
    shares = []
    for name, cost in zip(domain.names, costs, strict=True):
        counts = np.maximum(curator.measure((name,), cost).answers, 0).astype(np.float64) + 0.5
        shares.append(counts / counts.sum())
    size = len(domain.names)
    if size == 1:
        return CopulaModel(domain, tuple(shares), np.eye(1), n)
    # labels of small share have long scores; beyond three standard deviations a score says little more
    scores = [np.clip(ndtri(share.cumsum() - share / 2), -3.0, 3.0) / (3.0 * size**0.5) for share in shares]
    whole = [np.trunc(score * _GRID).astype(np.int64) for score in scores]
    second = curator.measure_scores(whole, _GRID, joint) * (9.0 * size / (_GRID**2 * n))
    # grouped scores vary less than the normal behind them: divide by their own public spread
    spread = np.sqrt(
        [float((share * (3.0 * size**0.5 * score) ** 2).sum()) for share, score in zip(shares, scores, strict=True)]
    )
    correlation = np.clip(second / np.outer(spread, spread), -0.99, 0.99)
    np.fill_diagonal(correlation, 1.0)
    mended = repaired(correlation)
    unit = np.sqrt(np.maximum(np.diag(mended), 1e-12))
    return CopulaModel(domain, tuple(shares), mended / np.outer(unit, unit), n)
