"""What is public beside the noisy measurements, declared before any record is read: invariants, bounds, old tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from das.schema.query import Query

__all__ = ["Bound", "Invariant", "Published"]


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
    answer without a column is not bounded. A geounit without a row has no lower bound; for an upper one, ``missing``
    says whether it is zero or unlimited, and if it does not, the row must be there.
    """

    query: Query
    level: str
    sense: Literal["<=", ">="]
    source: str
    geocode: str
    factor: int
    reason: str
    missing: Literal["zero", "unlimited"] | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """Answers of a query at one level that an earlier release published, protected, and that the counts must equal.

    They are no truths: to agree with them is post-processing, which costs nothing and narrows nothing that is compared.
    ``source`` is that release's folder, or a file with one row per geounit and a column per answer. An answer without a
    column may be anything.
    """

    query: Query
    level: str
    source: str
    geocode: str
    reason: str
