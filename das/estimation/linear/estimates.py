"""Linear estimates of any geounits of a spine from all measurements, in one process: both sweeps, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from das.estimation.linear.basis import Floats
from das.estimation.linear.blue import LinearEstimate
from das.estimation.linear.covariances import Covariances, LevelFacts, known_at, nothing_seen

__all__ = ["SweptEstimates"]

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class SweptEstimates:
    """Final estimates of the geounits of a spine, as coefficients of the basis.

    Parameters
    ----------
    covariances
        Covariances of the same spine.
    facts
        What is measured and known at each level.
    pieces
        Gives runs of a level's geounits that are worked on together.
    values
        Gives the measured answers of a run of geounits: an array per measured query, in the order of the facts.
    """

    covariances: Covariances
    facts: Mapping[str, LevelFacts]
    pieces: Callable[[str], Sequence[slice]]
    values: Callable[[str, slice], Sequence[Floats]]

    def final(self, level: str, units: Indices) -> Floats:
        """Estimates of some geounits given all measurements: geounits x coefficients."""
        pieces = self.pieces(level)
        which = np.searchsorted([piece.start for piece in pieces], units, side="right") - 1
        out = np.zeros((len(units), self.covariances.basis.schema.size))
        for index in np.unique(which).tolist():
            at = np.flatnonzero(which == index)
            out[at] = self._final(level, pieces[index])[units[at] - pieces[index].start]
        return out

    @cached_property
    def _sums(self) -> dict[str, LinearEstimate]:
        """Up-sweep: the sums of the children of every geounit above the leaves."""
        spine, found = self.covariances.spine, dict[str, LinearEstimate]()
        for at in reversed(range(1, len(spine.levels))):
            level, above = spine.levels[at], spine.levels[at - 1]
            mean = np.zeros((spine.size(above), self.covariances.basis.schema.size))
            for piece in self.pieces(level):
                np.add.at(mean, spine.parent(level)[piece], self._known(level, piece, found).mean)
            swept = self.covariances.levels[above]
            found[above] = LinearEstimate(mean, [block[swept.kind_of] for block in swept.below or []])
        return found

    def _known(self, level: str, piece: slice, sums: Mapping[str, LinearEstimate]) -> LinearEstimate:
        """Estimates of a run of geounits from their level and all below it."""
        basis, levels, here = self.covariances.basis, self.covariances.spine.levels, self.facts[level]
        below = sums.get(level)
        seen = self.covariances.seen(levels[levels.index(level) + 1]) if below else nothing_seen(basis)
        sums_here = below.units(piece) if below else None
        zeros = here.zeros[piece] | basis.impossible
        return known_at(basis, here, sums_here, seen, zeros, values=self.values(level, piece), rows=piece)[0]

    def _final(self, level: str, piece: slice) -> Floats:
        """Down-sweep for a run of geounits: b = m + V S^+ (b of the parent - sum of m)."""
        if (level, piece.start) in self._remembered:
            return self._remembered[level, piece.start]
        spine = self.covariances.spine
        known = self._known(level, piece, self._sums)
        final, at = known.mean, spine.levels.index(level)
        if at:
            above = spine.levels[at - 1]
            parents, sums = spine.parent(level)[piece], self.covariances.levels[above]
            families, family = np.unique(parents, return_inverse=True)
            innovation = (self.final(above, families) - self._sums[above].mean[families])[family.reshape(-1)]
            final = final.copy()
            kinds = zip(self.covariances.basis.where, known.covariance, sums.inverse_below, strict=True)
            for where, block, inverse in kinds:
                share = block @ inverse[sums.kind_of[parents]]
                final[:, where] += innovation[:, where] @ np.swapaxes(share, -1, -2)
        if level != spine.levels[-1]:  # leaves are too many to be kept
            self._remembered[level, piece.start] = final
        return final

    @cached_property
    def _remembered(self) -> dict[tuple[str, int], Floats]:
        return {}
