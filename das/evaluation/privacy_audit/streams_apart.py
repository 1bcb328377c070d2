"""Is the noise of different streams independent? An exact test of the signs of every two answers and every two runs.

The stated laws are symmetric, so given which draws are not zero their signs are fair coins, independent of each other
where the streams are. A stream that is read twice, whatever the two scales are, gives two answers the same sign in
every run; a key that is used twice gives two runs the same signs in every answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from das.evaluation.privacy_audit.checks import Check

__all__ = ["check_streams"]

NAME = "No two answers and no two runs share a stream"
MOST_RUNS = 1024
"""Runs that are compared with each other."""


def check_streams(noise: NDArray[np.int64], names: Sequence[str], error: float) -> Check:
    """Test draws, runs x rows, for answers or runs whose signs agree or differ more often than coins do.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> apart = rng.integers(-9, 10, (200, 5))
    >>> check_streams(apart, "abcde", 0.001).verdict
    'consistent'
    >>> check_streams(np.column_stack([apart, 3 * apart[:, 0]]), "abcdef", 0.001).detail
    '19,915 pairs; a and f have the same sign in 189 of 189 runs'
    """
    if len(noise) < 2:
        return Check(name=NAME, verdict="not checked", detail="nothing was released")
    signs = np.sign(noise).astype(np.float32)
    runs = signs[:MOST_RUNS]
    pairs = (_pairs(signs.shape[1]), _pairs(len(runs)))
    for axis, matrix in enumerate((signs, runs.T)):
        found = _unlike_coins(matrix, error / (2 * sum(pairs)))
        if found is not None:
            one, other, alike, of = found
            what = (
                f"{names[one]} and {names[other]} have the same sign in {alike} of {of} runs"
                if axis == 0
                else f"runs {one} and {other} have the same sign in {alike} of {of} answers"
            )
            return Check(name=NAME, verdict="VIOLATED", detail=f"{sum(pairs):,} pairs; {what}")
    detail = f"{sum(pairs):,} pairs of answers and of runs; their signs agree as fair coins do"
    return Check(name=NAME, verdict="consistent", detail=detail)


def _unlike_coins(signs: NDArray[np.float32], error: float) -> tuple[int, int, int, int] | None:
    """The two columns whose signs are furthest from those of fair coins, if coins are so far less often than `error`.

    Furthest by the square of the excess over its variance; that one pair is then tested exactly.
    """
    products, both = signs.T @ signs, np.abs(signs).T @ np.abs(signs)
    np.fill_diagonal(products, 0.0)
    evidence = products.astype(np.float64) ** 2 / np.maximum(both, 1.0)
    one, other = np.unravel_index(int(evidence.argmax()), evidence.shape)
    of = round(float(both[one, other]))
    alike = round((of + float(products[one, other])) / 2)
    tail = float(binom.sf(max(alike, of - alike) - 1, of, 0.5))
    return (int(one), int(other), alike, of) if tail <= error else None


def _pairs(n: int) -> int:
    return n * (n - 1) // 2
