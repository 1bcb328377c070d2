"""The kernel of data augmentation: visit each record once, accept or keep, and keep the statistic up to date."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from das.compiled import compiled

__all__ = ["sweep"]

Array = NDArray[np.float64]


@compiled
def sweep(residual: Array, changes: Array, log_uniform: Array, quadratic: Array, linear: Array) -> NDArray[np.bool_]:
    """Say which proposals are accepted; the residual, value minus statistic, is changed in place on the way.

    The noise has log density ``-quadratic u^2 - linear |u|`` up to a constant; each change is what a proposal would
    add to the released numbers.
    """
    records, numbers = changes.shape
    accepted = np.zeros(records, dtype=np.bool_)
    for i in range(records):
        gain = 0.0
        for k in range(numbers):
            now, then = residual[k], residual[k] - changes[i, k]
            gain += quadratic[k] * (now * now - then * then) + linear[k] * (abs(now) - abs(then))
        if log_uniform[i] < gain:
            accepted[i] = True
            for k in range(numbers):
                residual[k] -= changes[i, k]
    return accepted
