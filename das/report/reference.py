"""A point of reference: the redistricting data of the 2020 Census under the same accounting.

The numbers are those of the preset ``pl94-2020`` (persons, United States): its budget, its shares and its public state
totals, without the bounds on group quarters that production knew. ``tests/report/test_verdict.py`` computes them anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["CENSUS_2020", "REFERENCE_NAME", "Reference"]

REFERENCE_NAME = "the redistricting data of the 2020 Census"


@dataclass(frozen=True, slots=True)
class Reference:
    """Epsilon at delta 1e-10, and the largest share of right guesses between two values that were equally likely."""

    epsilon: float
    right: float


CENSUS_2020 = MappingProxyType(
    {
        "answers": Reference(10.18482, 0.7632),
        "record": Reference(13.67891, 0.8238),
        "headline": Reference(31.14459, 0.9686),
    }
)
"""Attributes within the same block; anything within the same state; policy semi."""
