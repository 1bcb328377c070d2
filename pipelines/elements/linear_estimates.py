"""Linear estimates as Beam elements."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from das.estimation.linear.blue import LinearEstimate
from pipelines.elements.arrays import Arrays

__all__ = ["estimate_arrays", "estimate_of", "estimates_of_all"]


def estimate_arrays(estimate: LinearEstimate) -> Arrays:
    """A linear estimate as an element; a covariance that all geounits share travels once."""
    blocks = {}
    for number, block in enumerate(estimate.covariance):
        is_shared = bool((block == block[:1]).all())
        blocks[f"block {number}"] = block[:1] if is_shared else block
    return Arrays({"mean": estimate.mean, **blocks})


def estimate_of(arrays: Arrays) -> LinearEstimate:
    """A linear estimate from an element."""
    mean = np.asarray(arrays["mean"], dtype=np.float64)
    blocks: list[NDArray[np.float64]] = []
    while (name := f"block {len(blocks)}") in arrays:
        block = np.asarray(arrays[name], dtype=np.float64)
        blocks.append(np.broadcast_to(block, (len(mean), *block.shape[1:])))
    return LinearEstimate(mean, blocks)


def estimates_of_all(estimates: list[LinearEstimate]) -> LinearEstimate:
    """Estimates of several groups of geounits, one after the other."""
    blocks = zip(*(estimate.covariance for estimate in estimates), strict=True)
    mean = np.concatenate([estimate.mean for estimate in estimates])
    return LinearEstimate(mean, [np.concatenate(group) for group in blocks])
