"""What is public beside the noisy measurements: invariants and bounds, declared before any record is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from das.query import Query

__all__ = ["Bound", "Invariant"]


@dataclass(frozen=True, slots=True)
class Invariant:
    """A query whose true answers at one level are published exactly, and why."""

    query: Query
    level: str
    reason: str


@dataclass(frozen=True, slots=True)
class Bound:
    """A public bound on the answers of a query at one level.

    The numbers come from ``source``, a file with one row per geounit and a column per answer, times ``factor``. An
    answer without a column is not bounded; a geounit without a row has zeros.
    """

    query: Query
    level: str
    sense: Literal["<=", ">="]
    source: str
    geocode: str
    factor: int
    reason: str
