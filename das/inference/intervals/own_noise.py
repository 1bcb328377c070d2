"""Where an answer was measured itself: the half width of its interval by that measurement's own noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from das.inference.intervals.asked import Asked
from das.inference.intervals.limits import half_width
from das.inference.intervals.public_files import PublicFiles
from das.schema.schema import Partition

__all__ = ["half_widths_by_own_noise"]

Floats = NDArray[np.float64]
_ALIKE_NORMAL = 5.0
"""Discrete Gaussian noise of a larger standard deviation counts as normal."""


def half_widths_by_own_noise(
    files: PublicFiles, levels: Sequence[str | None], variance: Floats, asked: Asked, confidence: float
) -> Floats:
    """Half widths where a place is a geounit in which an answer was measured itself, NaN elsewhere.

    ``levels`` has the level of each place that is one geounit, None for others; ``variance`` is places x answers.
    """
    out = np.full(variance.shape, np.nan)
    for level in dict.fromkeys(each for each in levels if each is not None):
        rows = np.array([at for at, each in enumerate(levels) if each == level], dtype=np.int64)
        for m in files.measured(level):
            noise, of_noise = m.mechanism, m.mechanism.variance()
            if not noise.weights.linear and of_noise > _ALIKE_NORMAL**2:
                continue
            same = _same_answers(asked, m.query.factors)
            if not same.any():
                continue
            here = np.ix_(rows, np.flatnonzero(same))
            part = variance[here]
            weights, at = np.unique(np.round(np.clip(part / of_noise, 0.0, 1.0), 6), return_inverse=True)
            half = np.array([half_width(noise, float(w), confidence) if w > 0 else np.nan for w in weights])
            out[here] = half[at].reshape(part.shape)
    return out


def _same_answers(asked: Asked, factors: Sequence[Partition]) -> NDArray[np.bool_]:
    """Which answers are exactly one answer of a query."""
    out = np.ones(1, dtype=bool)
    for mine, part in zip(asked.factors, factors, strict=True):
        groups = {tuple(sorted(group)) for group in part.groups}
        rows = np.array([tuple(np.flatnonzero(row).tolist()) in groups for row in mine])
        out = np.outer(out, rows).reshape(-1)
    return out
