"""Errors by size of area: summaries in bins of true population."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from das.evaluation.metrics import summary

__all__ = ["POPULATION_EDGES", "bin_names", "by_population", "mean_by_population"]

POPULATION_EDGES = (0, 1, 10, 50, 100, 250, 500, 1_000, 5_000, 50_000)
"""Where the bins of true population begin by default; the last one has no end."""


def bin_names(edges: Sequence[int] = POPULATION_EDGES) -> list[str]:
    """Name the bins that begin at the edges.

    Examples
    --------
    >>> bin_names([0, 1, 10, 1000])
    ['0', '1-9', '10-999', '1,000+']
    """
    if not edges or edges[0] != 0 or any(low >= following for low, following in pairwise(edges)):
        raise ValueError(f"edges {list(edges)} must begin with 0 and ascend")
    closed = [
        f"{low:,}" if low + 1 == following else f"{low:,}-{following - 1:,}" for low, following in pairwise(edges)
    ]
    return [*closed, f"{edges[-1]:,}+"]


def by_population(
    published: ArrayLike,
    true: ArrayLike,
    *,
    population: ArrayLike | None = None,
    edges: Sequence[int] = POPULATION_EDGES,
    unlisted: int = 0,
) -> list[dict[str, Any]]:
    """Summarise the cells of each bin of population; empty bins are left out.

    Parameters
    ----------
    published, true : array_like
        The numbers.
    population : array_like, optional
        How many people each cell's area has; the true number itself, if not given.
    edges : sequence of int
        Where the bins begin, the first at zero.
    unlisted : int
        Cells that are zero on both sides; only without ``population``, because nobody says where they are.

    Examples
    --------
    >>> [(row["bin"], row["cells"], row["mae"]) for row in by_population([3, 12], [2, 10], unlisted=5)]
    [('0', 5, 0.0), ('1-9', 1, 1.0), ('10-49', 1, 2.0)]
    """
    if population is not None and unlisted:
        raise ValueError("unlisted cells have no population; list them, or bin by the true numbers")
    shown, real, sizes = (np.asarray(a) for a in (published, true, true if population is None else population))
    if not shown.shape == real.shape == sizes.shape:
        raise ValueError("published, true and population must have the same shape")
    place = _bin_of(sizes, edges)
    rows = []
    for number, name in enumerate(bin_names(edges)):
        here, zeros = place == number, unlisted if number == 0 else 0
        if here.any() or zeros:
            rows.append({"bin": name, **summary(shown[here], real[here], unlisted=zeros)})
    return rows


def mean_by_population(
    values: ArrayLike, population: ArrayLike, *, edges: Sequence[int] = POPULATION_EDGES
) -> dict[str, float]:
    """Average what each area has, such as its B, in each bin of population; what is ``nan`` is left out.

    Examples
    --------
    >>> mean_by_population([1.0, 0.5, -0.2, float("nan")], [0, 2, 7, 12])
    {'0': 1.0, '1-9': 0.15}
    """
    numbers, sizes = np.asarray(values, dtype=np.float64), np.asarray(population)
    defined = ~np.isnan(numbers)
    place = _bin_of(sizes[defined], edges)
    count, total = (np.bincount(place, weights, minlength=len(edges)) for weights in (None, numbers[defined]))
    return {name: float(total[i] / count[i]) for i, name in enumerate(bin_names(edges)) if count[i]}


def _bin_of(population: NDArray[Any], edges: Sequence[int]) -> NDArray[np.int64]:
    return np.searchsorted(np.asarray(edges), population, side="right") - 1
