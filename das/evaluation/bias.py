"""JASON's B: the direction of an area's errors, from -1 (always down) to 1 (always up).

The JASON advisory group, in its studies for the 2020 Census, compares the mean squares of the positive and the negative
errors of one area over runs,

    B = (s₊² - s₋²) / (s₊² + s₋²).

Nonnegative estimation pushes small counts up (B near 1) and, because sums are kept, large ones slightly down. A mean
square may be taken over all runs or over those of its sign alone, and it matters near zero bias which: both are here,
and all runs are the default.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["WINDOW", "Means", "b_of", "jason_b", "jason_b_window", "signed_squares"]

Floats = NDArray[np.float64]
Means = Literal["all-runs", "same-sign"]

WINDOW = 100
"""Number of areas of similar population that are combined where there is a single run."""


def signed_squares(errors: ArrayLike) -> Floats:
    """Stack what B is made of, along a new first axis: e² where e > 0, e² where e < 0, and whether each is so.

    Sums of these over runs or areas, in any order and in pieces, are what :func:`b_of` takes.

    Examples
    --------
    >>> signed_squares([3, -2, 0]).tolist()
    [[9.0, 0.0, 0.0], [0.0, 4.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    e = np.asarray(errors, dtype=np.float64)
    up, down = e > 0, e < 0
    return np.stack([np.where(up, e * e, 0.0), np.where(down, e * e, 0.0), up, down])


def b_of(sums: Floats, means: Means = "all-runs") -> Floats:
    """B from sums of :func:`signed_squares`; ``nan`` where there was no error at all.

    Over all runs the two means have the same denominator, which cancels.

    Examples
    --------
    >>> b_of(signed_squares([3, 3, -3]).sum(axis=1)).item()
    0.3333333333333333
    """
    up, down, ups, downs = sums
    if means == "same-sign":
        up, down = up / np.maximum(ups, 1), down / np.maximum(downs, 1)
    whole = up + down
    lean: Floats = np.full(np.shape(whole), np.nan)
    np.divide(up - down, whole, out=lean, where=whole > 0)
    return lean


def jason_b(errors: ArrayLike, *, means: Means = "all-runs") -> Floats:
    """B of each area from its errors in several runs, runs along the first axis.

    Given the areas of a single run along that axis, it is B of all of them together.

    Examples
    --------
    >>> jason_b([[1, -2], [2, -1], [-1, 0]]).tolist()
    [0.6666666666666666, -1.0]
    >>> jason_b([[1, -2], [2, -1], [-1, 0]], means="same-sign").round(4).tolist()
    [0.4286, -1.0]
    """
    return b_of(signed_squares(errors).sum(axis=1), means)


def jason_b_window(
    errors: ArrayLike, population: ArrayLike, *, window: int = WINDOW, means: Means = "all-runs", unlisted: int = 0
) -> Floats:
    """B around each area's population from a single run, in which no area has a B of its own.

    The areas are ordered by population and those in a window around an area are combined. A window holds ``window``
    areas, or all if there are fewer, and more where a border would separate areas of equal population, whose order
    means nothing.

    Parameters
    ----------
    errors, population : array_like
        Of each area.
    window : int
        How many areas to combine.
    means : {"all-runs", "same-sign"}
        Which mean squares to compare.
    unlisted : int
        Areas without people and without error that are not listed.

    Returns
    -------
    ndarray
        For each area; areas of equal population have equal values, and ``nan`` is a window without any error.

    Examples
    --------
    >>> jason_b_window([1, 2, 3, -1, -2, 0], [0, 0, 1, 70, 80, 90], window=2).tolist()
    [1.0, 1.0, 0.8, -1.0, -1.0, -1.0]
    """
    squares = signed_squares(errors)
    sizes = np.asarray(population, dtype=np.float64)
    if window < 1 or sizes.ndim != 1 or squares.shape != (4, sizes.size):
        raise ValueError("errors and population must be lists of equal length, and the window at least 1")
    groups, place = np.unique(np.append(sizes, 0.0) if unlisted else sizes, return_inverse=True)
    members = np.bincount(place, np.append(np.ones(sizes.size), unlisted)[: place.size]).astype(np.int64)
    place = place[: sizes.size]
    if not groups.size:
        return np.zeros(0)
    sums = np.stack([np.bincount(place, row, minlength=groups.size) for row in squares])
    ends = np.cumsum(members)
    # Ranks that the window around a group of equal areas covers, moved inwards at either end of the list.
    lacking = np.maximum(window - members, 0)
    first = np.clip(ends - members - lacking // 2, 0, max(int(ends[-1]) - window, 0))
    first = np.minimum(first, ends - members)
    last = np.minimum(np.maximum(first + window, ends), ends[-1])
    begin, end = np.searchsorted(ends, first, side="right"), np.searchsorted(ends, last - 1, side="right") + 1
    # One sum per window rather than a difference of running sums, which would not be exactly zero without errors.
    padded = np.concatenate([sums, np.zeros((4, 1))], axis=1)
    combined = np.add.reduceat(padded, np.stack([begin, end], axis=1).reshape(-1), axis=1)[:, ::2]
    return b_of(combined, means)[place]
