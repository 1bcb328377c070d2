"""Limits on the answers of a query: what public facts say of each child of a family."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from das.schema.query import Query

__all__ = ["NO_LIMIT", "Limits"]


NO_LIMIT = np.int64(2**40)
"""An upper bound that binds nothing: no population comes near it, and millions of them still add up in 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is publicly known of one query for each child; an invariant has ``lower == upper``."""

    query: Query
    lower: NDArray[np.int64]  # children x query.size
    upper: NDArray[np.int64]  # children x query.size; NO_LIMIT where nothing is known

    def __post_init__(self) -> None:
        if self.lower.shape != self.upper.shape or self.lower.ndim != 2 or self.lower.shape[1] != self.query.size:
            raise ValueError(f"limits of {self.query.name!r} need children x {self.query.size} values on either side")
