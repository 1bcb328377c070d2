"""Places by name: a geounit of the spine, an area of the release, or one of a file that the user has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from das.errors import Problem, UsageError
from das.estimation.linear.unions import Members, Union, coarsest
from das.inference.intervals.public_files import PublicFiles
from geography import Areas
from geography.problem_list import nearest

__all__ = ["Gazetteer", "Place", "combined", "names_of_ratios"]


@dataclass(frozen=True)
class Place:
    """A weighted sum of geounits under a name."""

    name: str
    union: Union

    @property
    def level(self) -> str | None:
        """The level of the geounit that this is; None for any other sum."""
        only = [(level, members) for level, members in self.union.items() if members.units.size]
        if len(only) == 1 and only[0][1].weights.tolist() == [1.0]:
            return only[0][0]
        return None


@dataclass(frozen=True)
class Gazetteer:
    """Finds places by kind and code; kinds are the levels, the areas of the release, and files of the user."""

    files: PublicFiles
    more: Mapping[str, Areas]

    def __post_init__(self) -> None:
        for kind in self.more:
            if kind in self.files.plan.levels:
                reason = f"{kind!r} is a level of this release, so areas of that name could not be told from it"
                raise UsageError(Problem("--areas", reason, "give the file another name"))

    @property
    def kinds(self) -> list[str]:
        """Every kind of place."""
        own = [area.name for area in self.files.plan.settings.geography.areas]
        return [*self.files.plan.levels, *dict.fromkeys([*self.more, *own])]

    def place(self, text: str) -> Place:
        """Find ``KIND:CODE``.

        Raises
        ------
        UsageError
            The kind or the code is unknown, with the nearest one that exists.
        """
        kind, colon, code = text.partition(":")
        if not colon:
            reason = "names no kind of place" if kind not in self.kinds else "names a kind of place and no code"
            raise UsageError(Problem(text, reason, f"write KIND:CODE, kinds are {', '.join(self.kinds)}"))
        self._require(kind)
        spine = self.files.spine
        if kind in spine.levels:
            unit, real = int(spine.locate(kind, np.array([code]))[0]), spine.real(kind)
            if unit < 0 or not real[unit]:  # a placeholder of a skipped level is no place
                known = spine.geocodes(kind)[real]
                raise UsageError(Problem(text, f"is not a {kind} of this release", _near(code, known)))
            return Place(text, {kind: Members(np.array([unit], dtype=np.int64), np.ones(1))})
        areas = self.areas(kind)
        if code not in areas.codes:
            raise UsageError(Problem(text, f"is not a {kind} of this release", _near(code, areas.codes)))
        return Place(text, coarsest(spine, areas.members(code)))

    def all_of(self, kind: str) -> list[Place]:
        """Every geounit of a level, or every area of a kind off the spine."""
        spine = self.files.spine
        if kind in spine.levels:
            return [
                Place(f"{kind}:{code}", {kind: Members(np.array([unit], dtype=np.int64), np.ones(1))})
                for unit, (code, real) in enumerate(zip(spine.geocodes(kind), spine.real(kind), strict=True))
                if real  # a placeholder of a skipped level is no place
            ]
        areas = self.areas(kind)
        return [Place(f"{kind}:{code}", coarsest(spine, areas.members(code))) for code in areas.codes.tolist()]

    def areas(self, kind: str) -> Areas:
        """The areas of a kind off the spine."""
        self._require(kind)
        return self.more[kind] if kind in self.more else self.files.areas(kind)

    def _require(self, kind: str) -> None:
        if kind not in self.kinds:
            raise UsageError(
                Problem(kind, "is not a level or a kind of area of this release", nearest(kind, self.kinds))
            )


def names_of_ratios(places: Sequence[Place], below: Sequence[Place]) -> list[str]:
    """Name each ratio of two places; a share of one place has its name."""
    return [n.name if n is d else f"{n.name} / {d.name}" for n, d in zip(places, below, strict=True)]


def combined(name: str, terms: list[tuple[float, Place]]) -> Place:
    """A weighted sum of places."""
    levels = dict.fromkeys(level for _, place in terms for level in place.union)
    union: Union = {}
    for level in levels:
        here = [(weight, place.union[level]) for weight, place in terms if level in place.union]
        units, at = np.unique(np.concatenate([members.units for _, members in here]), return_inverse=True)
        weights = np.zeros(len(units))
        np.add.at(weights, at.reshape(-1), np.concatenate([weight * members.weights for weight, members in here]))
        kept = weights != 0
        if kept.any():
            union[level] = Members(units[kept], weights[kept])
    return Place(name, union)


def _near(code: str, codes: NDArray[np.str_]) -> str:
    remedy = nearest(code, codes.tolist())
    return (
        remedy
        if remedy.startswith("did you mean") or len(codes) <= 20
        else f"there are {len(codes)}, such as {codes[0]}"
    )
