"""Least squares on noisy columns, naive and corrected by moments (Fuller 1987; Evans and King, lmdp).

Noise adds its own covariance to the cross products of the columns. What it adds is known, so it is taken off:
beta = (X'X/n - S)^{-1} (X'y/n - s), with S the noise covariance of the regressors and s that between regressors and
response, which is not zero where both come from answers of one query that overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm

from das.errors import InputError, Problem

__all__ = ["RegressionFit", "corrected_fit", "naive_fit"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RegressionFit:
    """Coefficients, intercept first, with their covariance and the variance around the line."""

    names: tuple[str, ...]
    coefficients: Array
    covariance: Array
    residual_variance: float
    rows: int

    @property
    def standard_errors(self) -> Array:
        """Roots of the diagonal of the covariance."""
        return np.sqrt(np.diag(self.covariance))

    def intervals(self, confidence: float = 0.95) -> Array:
        """Lower and upper ends, a row a coefficient: normal quantiles times standard errors."""
        half = float(norm.ppf((1 + confidence) / 2)) * self.standard_errors
        return np.stack([self.coefficients - half, self.coefficients + half], axis=1)

    def to_json(self, confidence: float = 0.95) -> dict[str, object]:
        """Return coefficients with standard errors and intervals, by name."""
        ends = self.intervals(confidence)
        return {
            "coefficients": {
                name: {
                    "estimate": float(self.coefficients[k]),
                    "standard_error": float(self.standard_errors[k]),
                    "lower": float(ends[k, 0]),
                    "upper": float(ends[k, 1]),
                }
                for k, name in enumerate(self.names)
            },
            "residual_variance": self.residual_variance,
            "rows": self.rows,
        }


def naive_fit(x: ArrayLike, y: ArrayLike, *, names: Sequence[str] = ()) -> RegressionFit:
    """Fit by ordinary least squares as if nothing had been added: what noise does to it, `attenuated` says.

    Examples
    --------
    >>> fit = naive_fit([0.0, 1.0, 2.0, 3.0], [1.0, 3.0, 5.0, 7.0])
    >>> fit.coefficients.round(6).tolist()
    [1.0, 2.0]
    """
    design, response = _design(x, y)
    n, k = design.shape
    gram = design.T @ design
    if np.linalg.matrix_rank(gram) < k:
        reason = "do not vary, or one is a combination of others"
        raise InputError(Problem("regressors", reason, "leave one out"))
    coefficients: Array = np.asarray(np.linalg.solve(gram, design.T @ response), dtype=np.float64)
    residual_variance = float(((response - design @ coefficients) ** 2).sum() / (n - k))
    return RegressionFit(
        names=_names(names, k),
        coefficients=coefficients,
        covariance=np.asarray(residual_variance * np.linalg.inv(gram), dtype=np.float64),
        residual_variance=residual_variance,
        rows=n,
    )


def corrected_fit(
    x: ArrayLike,
    y: ArrayLike,
    *,
    noise: ArrayLike,
    noise_y: float = 0.0,
    noise_xy: ArrayLike | None = None,
    names: Sequence[str] = (),
) -> RegressionFit:
    """Fit with the noise taken off the moments; standard errors are those of the estimating equation (sandwich).

    Parameters
    ----------
    x, y : array_like
        Noisy regressors (rows,) or (rows, regressors), and noisy response.
    noise : array_like
        Variances of the noise of the regressors, or their covariance matrix.
    noise_y : float
        Variance of the noise of the response.
    noise_xy : array_like, optional
        Covariance of the noise of each regressor with that of the response.
    names : sequence of str
        Names of the regressors.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> x = rng.poisson(10, 200_000)
    >>> y = -5 + 4 * x + rng.normal(0, 5, len(x))
    >>> noisy = x + rng.laplace(0, 2, len(x))
    >>> naive_fit(noisy, y).coefficients.round(1).tolist()  # the limits are 12.8 and 2.2
    [12.7, 2.2]
    >>> corrected_fit(noisy, y, noise=8.0).coefficients.round(1).tolist()
    [-5.1, 4.0]

    Noise that is larger than the spread of what was measured leaves nothing to estimate from:

    >>> corrected_fit([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], noise=8.0)
    Traceback (most recent call last):
    das.errors.InputError: regressors: their covariance is not positive definite once the noise is taken off; ...
    """
    design, response = _design(x, y)
    n, k = design.shape
    taken, across = _noise(noise, noise_xy, k)
    gram = design.T @ design / n - taken
    centred = gram[1:, 1:] - np.outer(gram[0, 1:], gram[0, 1:])  # covariance of the true regressors, as estimated
    if np.linalg.eigvalsh(centred).min() <= 0:
        reason = "their covariance is not positive definite once the noise is taken off"
        remedy = "use more rows, a coarser level, fewer regressors or the likelihood; clipping would hide that"
        raise InputError(Problem("regressors", reason, remedy))
    coefficients: Array = np.asarray(np.linalg.solve(gram, design.T @ response / n - across), dtype=np.float64)
    residuals = response - design @ coefficients
    added = noise_y + coefficients @ taken @ coefficients - 2 * across @ coefficients
    # Each row's part of the equation, zero on average: x (y - x'b) + S b - s.
    parts = design * residuals[:, None] + taken @ coefficients - across
    bread = np.linalg.inv(gram)
    return RegressionFit(
        names=_names(names, k),
        coefficients=coefficients,
        covariance=bread @ (parts.T @ parts / n) @ bread / (n - k),
        residual_variance=float((residuals**2).sum() / (n - k) - added),
        rows=n,
    )


def _design(x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    response = np.asarray(y, dtype=np.float64)
    columns = np.asarray(x, dtype=np.float64)
    columns = columns[:, None] if columns.ndim == 1 else columns
    if response.ndim != 1 or columns.ndim != 2 or len(columns) != len(response):
        reason = f"shapes {columns.shape} and {response.shape} do not go together"
        raise InputError(Problem("regression", reason, "give a row of regressors for each response"))
    if not (np.isfinite(columns).all() and np.isfinite(response).all()):
        raise InputError(Problem("regression", "has numbers that are not finite", "leave these rows out"))
    if len(response) <= columns.shape[1] + 1:
        reason = f"has {len(response)} rows for {columns.shape[1] + 1} coefficients"
        raise InputError(Problem("regression", reason, "give more rows than coefficients"))
    return np.column_stack([np.ones(len(response)), columns]), response


def _noise(noise: ArrayLike, noise_xy: ArrayLike | None, k: int) -> tuple[Array, Array]:
    """Return the noise covariance with a zero for the intercept."""
    given = np.atleast_1d(np.asarray(noise, dtype=np.float64))
    given = np.diag(given) if given.ndim == 1 else given
    if given.shape != (k - 1, k - 1) or np.linalg.eigvalsh(given).min() < -1e-9 * np.abs(given).max(initial=1e-300):
        reason = "is not a variance for each regressor, or a covariance matrix of them"
        raise InputError(Problem("noise", reason, "give what was added to the regressors"))
    taken = np.zeros((k, k))
    taken[1:, 1:] = given
    across = np.zeros(k)
    if noise_xy is not None:
        across[1:] = np.asarray(noise_xy, dtype=np.float64)
    return taken, across


def _names(names: Sequence[str], k: int) -> tuple[str, ...]:
    return ("intercept", *(names or (f"x{j}" for j in range(1, k))))
