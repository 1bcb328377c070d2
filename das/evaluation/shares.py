"""Error in the share of a group: percentage points of a place's people, by how large the share truly is.

Law and planning ask for shares: is a group the majority of a district? An error of five people is nothing in a town and
everything in a hamlet, which counts alone do not show.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from das.evaluation.truth import Compared

__all__ = ["SHARE_EDGES", "by_share", "shares_of"]

SHARE_EDGES = (0.0, 0.01, 0.05, 0.2, 0.5, 1.0)
"""Where the bins of the true share begin, in people per person; a bin holds its upper edge and not its lower one."""
WITHIN = 0.05
"""The redistricting target: the share of the largest group within so many percentage points / 100 in 95 % of places."""
LARGEST_QUERY = 64


def by_share(published: ArrayLike, true: ArrayLike) -> dict[str, Any]:
    """Summarise the error of shares; places x groups, both sides; places without people on either side are left out.

    Examples
    --------
    A place of 80 and 20, published as 75 and 25: both shares are wrong by five percentage points.

    >>> found = by_share([[75, 25]], [[80, 20]])
    >>> [(row["bin"], row["cells"], round(row["bias"], 6), round(row["mae"], 6)) for row in found["bins"]]
    [('5-20 %', 1, 5.0, 5.0), ('50-100 %', 1, -5.0, 5.0)]
    >>> found["largest_group_within"], found["places"], found["left_out"]
    (1.0, 1, 0)
    """
    shown, real = (np.asarray(side, dtype=np.float64) for side in (published, true))
    people, sizes = shown.sum(axis=1), real.sum(axis=1)
    both = (people > 0) & (sizes > 0)
    error = 100 * (shown[both] / people[both, None] - real[both] / sizes[both, None])
    share = real[both] / sizes[both, None]
    place = np.searchsorted(np.array(SHARE_EDGES), share, side="left")
    rows = []
    for number, name in enumerate(_names()):
        here = error[place == number]
        if here.size:
            rows.append(
                {
                    "bin": name,
                    "cells": int(here.size),
                    "bias": float(here.mean()),
                    "mae": float(np.abs(here).mean()),
                    "p95_absolute_error": float(np.quantile(np.abs(here), 0.95)),
                }
            )
    places = int(both.sum())
    largest = np.abs(error[np.arange(places), share.argmax(axis=1)]) if places else np.zeros(0)
    return {
        "places": places,
        "left_out": int((~both).sum()),
        "bins": rows,
        # A tolerance for sums of decimals: exactly five points are within five points.
        "largest_group_within": float((largest <= 100 * WITHIN + 1e-9).mean()) if places else float("nan"),
    }


def shares_of(compared: Compared) -> dict[str, Any] | None:
    """Shares of the groups that a query counts; none for a total or a very large query."""
    size = compared.query.size
    if not 1 < size <= LARGEST_QUERY:
        return None
    sides = []
    for values in (compared.published, compared.true):
        dense = np.zeros(compared.cells)
        dense[_positions(compared)] = values
        sides.append(dense.reshape(-1, size))
    return by_share(*sides)


def _positions(compared: Compared) -> Any:
    """Where the listed cells stand if only geounits with anybody on either side had rows; others have no share."""
    size = compared.query.size
    _, row = np.unique(compared.key // size, return_inverse=True)
    return row * size + compared.key % size


def _names() -> list[str]:
    return ["0 %", *(f"{100 * low:g}-{100 * high:g} %" for low, high in pairwise(SHARE_EDGES))]
