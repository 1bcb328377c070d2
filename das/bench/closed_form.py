"""CensusDP's estimate in closed form: the nearest nonnegative table of each family in the Euclidean norm.

CensusDP (Yiruzz/CensusDP) asks one detailed query of each node and solves each family by a general solver. With that
query alone the problem separates by cell: the children's noisy counts are projected onto nonnegative numbers that add
up to the parent's count, which is a projection onto a simplex (Held, Wolfe and Crowder 1974, "Validation of subgradient
optimization", Mathematical Programming 6). Rounding gives the largest remainders one more each. All positive children
of a cell share one fractional part, so ties are everywhere; they are broken at random.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from das.plan.plan import Plan, numbers_per_unit
from das.release.measurements import read_measurements
from das.storage.layout import ReleaseFolder
from das.storage.shards import shards_of
from geography import Spine

__all__ = ["closed_form", "nearest_table"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def nearest_table(noisy: Floats, totals: Integers, rng: np.random.Generator) -> Integers:
    """Project each column onto nonnegative numbers with a given sum, and round.

    Examples
    --------
    >>> nearest_table(np.array([[5.0], [1.0], [-2.0]]), np.array([10]), np.random.default_rng(1))[:, 0].tolist()
    [7, 3, 0]
    """
    ordered = -np.sort(-noisy, axis=0)
    excess = np.cumsum(ordered, axis=0) - totals
    shifts = excess / np.arange(1, len(noisy) + 1)[:, None]
    # The last rank at which the value still exceeds the common shift; columns without people have none.
    rank = np.maximum((ordered > shifts).sum(axis=0) - 1, 0)
    real = np.maximum(noisy - np.take_along_axis(shifts, rank[None, :], axis=0), 0.0)
    real[:, totals == 0] = 0.0
    whole = np.floor(real + 1e-9).astype(np.int64)
    missing = totals - whole.sum(axis=0)
    remainder = np.where(real > 0, (real - whole).round(6), -1.0) + 1e-7 * rng.random(real.shape)
    place = np.argsort(np.argsort(-remainder, axis=0), axis=0)
    return np.asarray(whole + (place < missing), dtype=np.int64)


def closed_form(plan: Plan, spine: Spine, release: ReleaseFolder, total: int, seed: int) -> dict[str, Integers]:
    """Estimate every level from the noisy measurements of the detailed query: geounits x cells.

    ``total`` is the number of people at the top, which is public; no other fact is used.
    """
    rng = np.random.default_rng(seed)
    found: dict[str, Integers] = {}
    above = ""
    for level in plan.levels:
        (measurement,) = plan.at(level)
        shards = shards_of(spine, level, numbers_per_unit(plan.at(level)))
        files = [read_measurements(plan, level, shard.path(release.measurements)) for shard in shards]
        noisy = np.concatenate(files).astype(np.float64).reshape(-1, measurement.query.size)
        if not above:
            flat = nearest_table(noisy.reshape(-1, 1), np.array([total]), rng)
            found[level] = flat.reshape(noisy.shape)
        else:
            first = spine.first_child(above)
            estimate = np.zeros(noisy.shape, np.int64)
            for parent in range(len(first) - 1):
                family = slice(int(first[parent]), int(first[parent + 1]))
                estimate[family] = nearest_table(noisy[family], found[above][parent], rng)
            found[level] = estimate
        above = level
    return found
