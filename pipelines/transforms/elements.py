"""The elements of the public transforms: a geounit as key, arrays as value, each with a coder; nothing is pickled.

``TrueCounts`` and ``ProtectedCounts`` are the types of :mod:`das.schema.counts`; as an element they hold one geounit,
whose number is 0. ``LinearEstimate`` is that of :mod:`das.estimation.linear.blue`, of one geounit likewise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import apache_beam as beam
import numpy as np
from numpy.typing import ArrayLike, NDArray

from das.errors import Problem, UsageError
from das.estimation.linear.blue import LinearEstimate
from das.schema.counts import ProtectedCounts, TrueCounts
from pipelines.elements.arrays import Arrays, Counts, sparse_arrays, sparse_counts
from pipelines.elements.linear_estimates import estimate_arrays, estimate_of

__all__ = [
    "Answers",
    "Estimated",
    "Geounit",
    "Member",
    "PublicFacts",
    "level_of",
    "members",
    "protected_counts",
    "true_counts",
]

SEPARATOR = "\0"


@dataclass(frozen=True, slots=True, order=True)
class Geounit:
    """A place of the spine, by its geocodes from the top level down to its own; the empty path is above the top.

    Examples
    --------
    >>> tract = Geounit(("44", "44007", "44007000101"))
    >>> tract.geocode, tract.parent.geocode, tract.depth
    ('44007000101', '44007', 3)
    """

    path: tuple[str, ...]

    @property
    def geocode(self) -> str:
        """Its own geocode; empty above the top."""
        return self.path[-1] if self.path else ""

    @property
    def parent(self) -> Geounit:
        """The geounit that holds it."""
        return Geounit(self.path[:-1])

    @property
    def depth(self) -> int:
        """The number of its level, 1 at the top."""
        return len(self.path)

    def with_ancestors(self) -> Iterable[Geounit]:
        """The geounit and all that hold it, from the top."""
        return (Geounit(self.path[:depth]) for depth in range(1, len(self.path) + 1))


def level_of(levels: tuple[str, ...], geounit: Geounit) -> str:
    """The name of a geounit's level; an error where its path is longer than the plan's levels, or empty."""
    if not 1 <= geounit.depth <= len(levels):
        reason = f"its path has {geounit.depth} geocodes, and the plan {len(levels)} levels"
        raise UsageError(Problem(f"geounit {geounit.geocode!r}", reason, "give one geocode a level, from the top"))
    return levels[geounit.depth - 1]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Answers:
    """Noisy answers of one geounit: the numbers of all queries of its level, in the order of ``plan.at(level)``."""

    values: NDArray[np.int64]

    def arrays(self) -> Arrays:
        """As named arrays."""
        return Arrays({"values": self.values})

    @classmethod
    def of(cls, arrays: Arrays) -> Self:
        """From named arrays."""
        return cls(np.asarray(arrays["values"], dtype=np.int64))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PublicFacts:
    """What is public about one geounit: for a sign and a query the values of its answers.

    A key is ``"= total"``, ``"<= sex"`` or the like, with the query's name in the plan; a value of
    ``das.schema.limits.NO_LIMIT`` means that nothing is known. All children of a parent have the same keys.
    """

    values: Mapping[str, NDArray[np.int64]]

    def arrays(self) -> Arrays:
        """As named arrays."""
        return Arrays(self.values)

    @classmethod
    def of(cls, arrays: Arrays) -> Self:
        """From named arrays."""
        return cls({name: np.asarray(arrays[name], dtype=np.int64) for name in arrays})


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Estimated:
    """A geounit's conforming counts, and with full information its best linear unbiased estimate."""

    counts: ProtectedCounts
    linear: LinearEstimate | None

    def arrays(self) -> Arrays:
        """As named arrays."""
        found = sparse_arrays(self.counts)
        return found if self.linear is None else found.with_arrays(estimate_arrays(self.linear))

    @classmethod
    def of(cls, arrays: Arrays) -> Self:
        """From named arrays."""
        linear = estimate_of(arrays) if "mean" in arrays else None
        return cls(sparse_counts(ProtectedCounts, arrays), linear)


def true_counts(cell: ArrayLike, count: ArrayLike) -> TrueCounts:
    """True counts of one geounit: cells, ascending, and how many records each holds.

    >>> true_counts([0, 3], [5, 1]).count.tolist()
    [5, 1]
    """
    return _of_one(TrueCounts, cell, count)


def protected_counts(cell: ArrayLike, count: ArrayLike) -> ProtectedCounts:
    """Protected counts of one geounit."""
    return _of_one(ProtectedCounts, cell, count)


def _of_one(kind: type[Counts], cell: ArrayLike, count: ArrayLike) -> Counts:
    cells, counts = np.asarray(cell, dtype=np.int64), np.asarray(count, dtype=np.int64)
    if cells.ndim != 1 or cells.shape != counts.shape or (np.diff(cells) <= 0).any() or (counts <= 0).any():
        reason = "are not cells in ascending order, each once, with a positive count"
        raise UsageError(Problem("counts of a geounit", reason, "leave empty cells out"))
    return kind(np.zeros(len(cells), dtype=np.int64), cells, counts)


class GeounitCoder(beam.coders.Coder):
    """The geocodes one after the other: equal geounits give equal bytes, as a key must."""

    def encode(self, value: Geounit) -> bytes:
        """Write the path."""
        return SEPARATOR.join((*value.path, "")).encode()

    def decode(self, encoded: bytes) -> Geounit:
        """Read the path."""
        return Geounit(tuple(encoded.decode().split(SEPARATOR)[:-1]))

    def is_deterministic(self) -> bool:
        """Equal geounits give equal bytes."""
        return True


class ElementCoder(beam.coders.Coder):
    """Elements as the raw bytes of their arrays."""

    def __init__(self, kind: type[Any]) -> None:
        self.kind = kind

    @classmethod
    def from_type_hint(cls, typehint: Any, registry: Any) -> ElementCoder:
        """Make the coder of one of the types here."""
        return cls(typehint)

    def encode(self, value: Any) -> bytes:
        """Write the arrays."""
        if isinstance(value, TrueCounts | ProtectedCounts):
            return sparse_arrays(value).to_bytes()
        return (estimate_arrays(value) if isinstance(value, LinearEstimate) else value.arrays()).to_bytes()

    def decode(self, encoded: bytes) -> Any:
        """Read the arrays."""
        arrays = Arrays.from_bytes(encoded)
        if self.kind in (TrueCounts, ProtectedCounts):
            return sparse_counts(self.kind, arrays)
        return estimate_of(arrays) if self.kind is LinearEstimate else self.kind.of(arrays)

    def is_deterministic(self) -> bool:
        """Equal arrays give equal bytes."""
        return True

    def to_type_hint(self) -> type[Any]:
        """The type that it is for."""
        return self.kind


beam.coders.registry.register_coder(Geounit, GeounitCoder)
for _kind in (TrueCounts, ProtectedCounts, LinearEstimate, Answers, PublicFacts, Estimated):
    beam.coders.registry.register_coder(_kind, ElementCoder)

Member = tuple[Geounit, tuple[str, Geounit, Arrays]]
"""A parent; what is said, of which of its children (or of itself), and the arrays: what families are grouped from."""


def members(name: str, of: Any) -> beam.ParDo:
    """A step that addresses what is known of geounits to the family in which each is a child."""
    return beam.Map(lambda element: (element[0].parent, (name, element[0], of(element[1])))).with_output_types(Member)
