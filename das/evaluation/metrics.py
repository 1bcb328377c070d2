"""Measures of error: published numbers against the true ones, as plain functions of arrays.

The names and formulas are those in common use for census products: e = published - true, x = true, and a mean over the
cells of one query at one level. Published tables are sparse, so every function lets its caller leave out cells that are
zero on both sides and say only how many there are, as ``unlisted``: they add to the number of cells and nothing to any
sum. A measure of nothing at all is ``nan``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Relative",
    "absolute_error_quantile",
    "bias",
    "coefficient_of_variation",
    "errors_of",
    "false_positive_share",
    "false_zero_share",
    "mae",
    "malpe",
    "mape",
    "relative_outlier_share",
    "rmse",
    "summary",
    "total_absolute_error",
    "total_variation",
]

Floats = NDArray[np.float64]

RELATIVE_OUTLIER = 0.05
"""An error beyond this share of the truth is an outlier by default."""
QUANTILES = {"median": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "largest": 1.0}
"""Quantiles of |e| that a summary has, by the name's beginning."""


class Relative(NamedTuple):
    """A percentage of the truth, and how many cells it leaves out because their truth is zero."""

    percent: float
    left_out: int


def errors_of(published: ArrayLike, true: ArrayLike) -> Floats:
    """Published minus true, cell by cell; both are flattened.

    Examples
    --------
    >>> errors_of([12, 0], [10, 3]).tolist()
    [2.0, -3.0]
    """
    shown, real = _both(published, true)
    return shown - real


def bias(published: ArrayLike, true: ArrayLike, *, unlisted: int = 0) -> float:
    """Mean error, ME = mean e: above zero where too many are published.

    Examples
    --------
    >>> bias([12, 0, 5], [10, 3, 5])
    -0.3333333333333333
    """
    e = errors_of(published, true)
    return _over(e.sum(), e.size + unlisted)


def mae(published: ArrayLike, true: ArrayLike, *, unlisted: int = 0) -> float:
    """Mean absolute error, MAE = mean |e|.

    Examples
    --------
    >>> mae([12, 0, 5], [10, 3, 5])
    1.6666666666666667
    >>> mae([12, 0], [10, 3], unlisted=1) == mae([12, 0, 0], [10, 3, 0])
    True
    """
    e = errors_of(published, true)
    return _over(np.abs(e).sum(), e.size + unlisted)


def rmse(published: ArrayLike, true: ArrayLike, *, unlisted: int = 0) -> float:
    """Root of the mean squared error.

    Examples
    --------
    >>> rmse([13, 4], [10, 0])
    3.5355339059327378
    """
    e = errors_of(published, true)
    return float(np.sqrt(_over((e * e).sum(), e.size + unlisted)))


def mape(published: ArrayLike, true: ArrayLike, *, unlisted: int = 0) -> Relative:
    """Mean absolute percentage error, 100 mean(|e| / x) over x > 0.

    Examples
    --------
    >>> mape([12, 1, 4], [10, 2, 0])
    Relative(percent=35.0, left_out=1)
    """
    return _relative(np.abs(errors_of(published, true)), true, unlisted)


def malpe(published: ArrayLike, true: ArrayLike, *, unlisted: int = 0) -> Relative:
    """Mean algebraic percentage error, 100 mean(e / x) over x > 0: the signed sibling of :func:`mape`.

    Examples
    --------
    >>> malpe([12, 1, 4], [10, 2, 0])
    Relative(percent=-15.0, left_out=1)
    """
    return _relative(errors_of(published, true), true, unlisted)


def coefficient_of_variation(published: ArrayLike, true: ArrayLike, *, unlisted: int = 0) -> float:
    """CoV = 100 RMSE / mean x: the error in percent of a typical cell; ``nan`` where all truth is zero.

    Examples
    --------
    >>> coefficient_of_variation([13, 16], [10, 20])
    23.570226039551585
    """
    real = _both(published, true)[1]
    return 100 * _over(rmse(published, true, unlisted=unlisted) * (real.size + unlisted), real.sum())


def total_absolute_error(published: ArrayLike, true: ArrayLike) -> float:
    """TAE = sum |e|.

    Examples
    --------
    >>> total_absolute_error([12, 0, 5], [10, 3, 5])
    5.0
    """
    return float(np.abs(errors_of(published, true)).sum())


def total_variation(published: ArrayLike, true: ArrayLike) -> float:
    """Total variation distance of the two distributions of people over cells, sum |p / sum p - x / sum x| / 2.

    It is the share of the people who would have to move; ``nan`` where either side has nobody.

    Examples
    --------
    >>> total_variation([30, 10], [10, 10])
    0.25
    """
    shown, real = _both(published, true)
    shares = [side / side.sum() if side.sum() else np.full(side.shape, np.nan) for side in (shown, real)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2) if shown.size else float("nan")


def absolute_error_quantile(published: ArrayLike, true: ArrayLike, q: float, *, unlisted: int = 0) -> float:
    """Quantile of |e|, interpolated between neighbours as ``numpy.quantile`` does.

    Examples
    --------
    >>> absolute_error_quantile([12, 0, 5], [10, 3, 5], 0.5)
    2.0
    >>> absolute_error_quantile([12, 0], [10, 3], 0.5, unlisted=1)
    2.0
    """
    ordered = np.sort(np.abs(errors_of(published, true)))
    cells = ordered.size + unlisted
    if not cells:
        return float("nan")
    rank = q * (cells - 1)
    low = int(rank)
    below, above = (float(ordered[r - unlisted]) if r >= unlisted else 0.0 for r in (low, min(low + 1, cells - 1)))
    return below + (rank - low) * (above - below)


def relative_outlier_share(published: ArrayLike, true: ArrayLike, *, beyond: float = RELATIVE_OUTLIER) -> float:
    """Share of the cells with x > 0 whose |e| / x is beyond a limit.

    Examples
    --------
    >>> relative_outlier_share([106, 104, 7], [100, 100, 0])
    0.5
    """
    shown, real = _both(published, true)
    positive = real > 0
    e = np.abs(shown - real)[positive]
    return _over((e > beyond * real[positive]).sum(), e.size)


def false_zero_share(published: ArrayLike, true: ArrayLike) -> float:
    """Share of the cells with somebody in them that are published as zero (or below, before estimation).

    Examples
    --------
    >>> false_zero_share([0, 4, 1], [3, 4, 0])
    0.5
    """
    shown, real = _both(published, true)
    return _over(((shown <= 0) & (real > 0)).sum(), (real > 0).sum())


def false_positive_share(published: ArrayLike, true: ArrayLike, *, unlisted: int = 0) -> float:
    """Share of the cells with nobody in them that are published as more than zero.

    Examples
    --------
    >>> false_positive_share([0, 4, 1], [3, 4, 0], unlisted=3)
    0.25
    """
    shown, real = _both(published, true)
    return _over(((shown > 0) & (real == 0)).sum(), (real == 0).sum() + unlisted)


def summary(
    published: ArrayLike, true: ArrayLike, *, unlisted: int = 0, outlier: float = RELATIVE_OUTLIER
) -> dict[str, Any]:
    """Every measure above of one set of cells, by name.

    Examples
    --------
    >>> found = summary([12, 0, 5], [10, 3, 0], unlisted=7)
    >>> found["cells"], found["mae"], found["mape"], found["mape_left_out"], found["false_positive_share"]
    (10, 1.0, 60.0, 8, 0.125)
    """
    relative, signed = mape(published, true, unlisted=unlisted), malpe(published, true, unlisted=unlisted)
    shown, real = _both(published, true)
    return {
        "cells": errors_of(published, true).size + unlisted,
        "true_mean": _over(_both(published, true)[1].sum(), errors_of(published, true).size + unlisted),
        "mae": mae(published, true, unlisted=unlisted),
        "rmse": rmse(published, true, unlisted=unlisted),
        "mape": relative.percent,
        "mape_left_out": relative.left_out,
        "bias": bias(published, true, unlisted=unlisted),
        "malpe": signed.percent,
        "cov": coefficient_of_variation(published, true, unlisted=unlisted),
        "tae": total_absolute_error(published, true),
        "total_variation": total_variation(published, true),
        **{
            f"{name}_absolute_error": absolute_error_quantile(published, true, q, unlisted=unlisted)
            for name, q in QUANTILES.items()
        },
        "outlier_beyond": outlier,
        "outlier_share": relative_outlier_share(published, true, beyond=outlier),
        "outliers": int((np.abs(shown - real) > outlier * real)[real > 0].sum()),
        "false_zero_share": false_zero_share(published, true),
        "false_zeros": int(((shown <= 0) & (real > 0)).sum()),
        "false_positive_share": false_positive_share(published, true, unlisted=unlisted),
        "false_positives": int(((shown > 0) & (real == 0)).sum()),
    }


def _both(published: ArrayLike, true: ArrayLike) -> tuple[Floats, Floats]:
    shown, real = (np.asarray(values, dtype=np.float64) for values in (published, true))
    if shown.shape != real.shape:
        raise ValueError(f"published has the shape {shown.shape} and true {real.shape}; a cell needs both")
    if (real < 0).any():
        raise ValueError("true counts cannot be negative")
    return shown.reshape(-1), real.reshape(-1)


def _over(numerator: float, denominator: float) -> float:
    return float(numerator / denominator) if denominator else float("nan")


def _relative(errors: Floats, true: ArrayLike, unlisted: int) -> Relative:
    real = np.asarray(true, dtype=np.float64).reshape(-1)
    positive = real > 0
    ratios = errors[positive] / real[positive]
    return Relative(100 * _over(ratios.sum(), ratios.size), int((~positive).sum()) + unlisted)
