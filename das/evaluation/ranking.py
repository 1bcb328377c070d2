"""Ranking changes: places in order of size, published against true."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import kendalltau, rankdata

__all__ = ["rank_changes"]


def rank_changes(published: ArrayLike, true: ArrayLike) -> dict[str, Any]:
    """Compare the order of places by size; places of equal size share the mean of their ranks.

    Returns
    -------
    dict
        ``places``; ``moved``, how many have another rank; ``mean_ranks`` and ``most_ranks``, by how many ranks;
        ``kendall_tau``, one where no two places changed sides and minus one where all did (tau-b, which allows for
        equal sizes); ``nan`` where all sizes of either side are equal.

    Examples
    --------
    >>> found = rank_changes([30, 21, 20, 5], [30, 20, 21, 5])
    >>> found["moved"], found["mean_ranks"], found["most_ranks"], round(found["kendall_tau"], 3)
    (2, 0.5, 1.0, 0.667)
    """
    shown, real = (np.asarray(side, dtype=np.float64) for side in (published, true))
    if shown.shape != real.shape or shown.ndim != 1:
        raise ValueError("published and true must be lists of equal length")
    change = np.abs(rankdata(shown) - rankdata(real))
    varied = shown.size > 1 and np.ptp(shown) > 0 and np.ptp(real) > 0
    return {
        "places": int(shown.size),
        "moved": int((change > 0).sum()),
        "mean_ranks": float(change.mean()) if shown.size else float("nan"),
        "most_ranks": float(change.max()) if shown.size else float("nan"),
        "kendall_tau": float(kendalltau(shown, real).statistic) if varied else float("nan"),
    }
