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
    kinds = {} if estimate.kind_of is None else {"kind": estimate.kind_of}
    return Arrays({"mean": estimate.mean, **kinds, **blocks})


def estimate_of(arrays: Arrays) -> LinearEstimate:
    """A linear estimate from an element."""
    mean = np.asarray(arrays["mean"], dtype=np.float64)
    kind_of = np.asarray(arrays["kind"], dtype=np.int64) if "kind" in arrays else None
    rows = len(mean) if kind_of is None else int(kind_of.max(initial=0)) + 1
    blocks: list[NDArray[np.float64]] = []
    while (name := f"block {len(blocks)}") in arrays:
        block = np.asarray(arrays[name], dtype=np.float64)
        blocks.append(np.broadcast_to(block, (rows, *block.shape[1:])))
    return LinearEstimate(mean, blocks, kind_of)


def estimates_of_all(estimates: list[LinearEstimate]) -> LinearEstimate:
    """Estimates of several groups of geounits, one after the other."""
    blocks = [np.concatenate(group) for group in zip(*(estimate.covariance for estimate in estimates), strict=True)]
    mean = np.concatenate([estimate.mean for estimate in estimates])
    if all(estimate.kind_of is None for estimate in estimates):
        return LinearEstimate(mean, blocks)
    kinds, before = list[NDArray[np.int64]](), 0
    for estimate in estimates:
        kinds.append(before + (np.arange(len(estimate.mean)) if estimate.kind_of is None else estimate.kind_of))
        before += len(estimate.covariance[0])
    return LinearEstimate(mean, blocks, np.concatenate(kinds))
