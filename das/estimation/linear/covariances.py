"""Covariances of the linear estimates of a whole spine: functions of the plan, the spine and the public facts alone.

No measured value enters a covariance. Geounits whose subtrees look alike share theirs, and are swept once: leaves with
the same known zeros, parents with as many children of each kind. So the covariances of a state take a second and are
worked out where they are needed; only the estimates themselves are stored.

A level need not measure everything. Each kind of block starts at the lowest level whose own measurements determine it;
what is measured of it further down is left out, and below that level it is not estimable. With the detailed query
measured at the leaves, every kind starts there and nothing is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from das.estimation.linear.basis import Basis, Blocks, Floats
from das.estimation.linear.blue import Exact, LinearEstimate, condition, pseudo_inverses
from das.estimation.linear.exact_zeros import condition_on_zeros
from das.schema.query import Query
from geography import Spine

__all__ = ["Covariances", "LevelCovariances", "LevelFacts", "known_at", "sweep_covariances"]

Indices = NDArray[np.int64]

_SEEN, _TINY = 1e-12, 1e-300
"""An eigenvalue of an information matrix counts as zero below this share of the largest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelFacts:
    """What covariances depend on at one level.

    Parameters
    ----------
    measured : sequence of (Query, float)
        Measured queries with the variances of their noise.
    exact : sequence of Exact
        Queries whose answers are published exactly, in every geounit.
    zeros : array (geounits, combinations of zero classes) of bool
        Known zeros of each geounit (:func:`das.estimation.linear.exact_zeros.known_zeros`).
    """

    measured: Sequence[tuple[Query, float]]
    exact: Sequence[Exact]
    zeros: NDArray[np.bool_]


@dataclass(frozen=True)
class LevelCovariances:
    """Covariances of one level's estimates from that level and all below it, each kind once.

    ``below`` is the covariance of the sum of the children of each kind of geounit, before the geounit's own
    measurements; ``None`` for leaves.
    """

    kind_of: Indices  # kind of each geounit
    blocks: Blocks  # kinds x size x size
    below: Blocks | None
    seen: tuple[bool, ...]  # for each kind of block, whether this level or one below it determines it

    @cached_property
    def inverse_below(self) -> Blocks:
        """Pseudo-inverses of ``below``."""
        return pseudo_inverses(self.below or [])


@dataclass(frozen=True)
class Covariances:
    """The up-sweep's covariances of every level, and the final ones that all measurements of the spine give."""

    basis: Basis
    spine: Spine
    levels: Mapping[str, LevelCovariances]

    @cached_property
    def largest(self) -> float:
        """The largest entry of any block: the scale on which rounding errors are measured."""
        return max(float(np.abs(block).max()) for level in self.levels.values() for block in level.blocks)

    def is_final(self, level: str) -> tuple[bool, ...]:
        """For each kind of block, whether the level's geounits are estimable in it."""
        return self.levels[level].seen

    def final(self, level: str) -> tuple[Indices, Blocks]:
        """Covariances of a level's estimates given everything that was measured: kind of each geounit, and blocks."""
        return self._final[level]

    @cached_property
    def _final(self) -> dict[str, tuple[Indices, Blocks]]:
        """Down-sweep: T = V - A V + A T_parent A' with A = V S^+."""
        out: dict[str, tuple[Indices, Blocks]] = {}
        for at, level in enumerate(self.spine.levels):
            own = self.levels[level]
            if not at:
                out[level] = own.kind_of, own.blocks
                continue
            above = self.levels[self.spine.levels[at - 1]]
            parent_kind, parent_blocks = out[self.spine.levels[at - 1]]
            parent = self.spine.parent(level)
            # Children of one kind whose parents have the same sums and the same covariance have the same.
            alike = np.column_stack([own.kind_of, above.kind_of[parent], parent_kind[parent]])
            rows, kind_of = np.unique(alike, axis=0, return_inverse=True)
            blocks = []
            parts = zip(own.blocks, above.inverse_below, parent_blocks, strict=True)
            for block, inverse, of_parent in parts:
                mine = block[rows[:, 0]]
                share = mine @ inverse[rows[:, 1]]
                final = mine - share @ mine + share @ of_parent[rows[:, 2]] @ np.swapaxes(share, -1, -2)
                blocks.append((final + np.swapaxes(final, -1, -2)) / 2)
            out[level] = kind_of.reshape(-1).astype(np.int64), blocks
        return out


def sweep_covariances(basis: Basis, spine: Spine, facts: Mapping[str, LevelFacts]) -> Covariances:
    """Sweep up the spine, given what is measured and known at each level."""
    levels: dict[str, LevelCovariances] = {}
    kind_of, blocks, seen = np.zeros(0, np.int64), list[Floats](), (False,) * len(basis.kinds)
    for at in reversed(range(len(spine.levels))):
        level = spine.levels[at]
        here, lowest = facts[level], at == len(spine.levels) - 1
        patterns, pattern_of = np.unique(here.zeros | basis.impossible, axis=0, return_inverse=True)
        pattern_of = pattern_of.reshape(-1)
        below: Blocks | None = None
        if lowest:
            kind, pattern = pattern_of, np.arange(len(patterns))
        else:
            children = _children(spine, level, kind_of, len(blocks[0]))
            rows, kind = np.unique(np.column_stack([pattern_of, children]), axis=0, return_inverse=True)
            pattern = rows[:, 0]
            below = [np.tensordot(rows[:, 1:].astype(np.float64), block, axes=1) for block in blocks]
        known, seen = known_at(basis, here, below and _nothing(basis, below), seen, patterns[pattern])
        kind_of, blocks = kind.reshape(-1).astype(np.int64), [np.ascontiguousarray(b) for b in known.covariance]
        levels[level] = LevelCovariances(kind_of, blocks, below, seen)
    return Covariances(basis, spine, {level: levels[level] for level in spine.levels})


def known_at(
    basis: Basis,
    here: LevelFacts,
    below: LinearEstimate | None,
    seen: tuple[bool, ...],
    zeros: NDArray[np.bool_],
    values: Sequence[NDArray[np.float64]] | None = None,
    rows: slice | None = None,
) -> tuple[LinearEstimate, tuple[bool, ...]]:
    """Linear estimates of some geounits of a level from it and all below, and which kinds of blocks they determine.

    Parameters
    ----------
    basis, here
        The basis, and what is measured and known at the level.
    below
        Sums of the geounits' children, ``None`` for leaves.
    seen
        Which kinds of blocks the levels below determine.
    zeros
        Known zeros of these geounits.
    values
        Measured answers of these geounits, in the order of ``here``; without them all answers, exact ones too, are
        taken for zero, which serves for covariances.
    rows
        Which of the level's geounits these are; needed with ``values``.
    """
    units = len(zeros)
    vector = np.zeros((units, basis.schema.size))
    for (query, variance), measured in zip(here.measured, values or (), strict=False):
        vector += measured[..., query.index] / variance
    vector = basis.to_coefficients(vector) if values else vector
    own = basis.information([(query, 1.0 / variance) for query, variance in here.measured])
    mean, covariance, found = np.zeros((units, basis.schema.size)), list[Floats](), []
    for at, (where, information) in enumerate(zip(basis.where, own, strict=True)):
        size = len(information)
        if below is not None and seen[at]:
            sums = below.covariance[at]
            block = np.linalg.solve(np.eye(size) + sums @ information, sums)
            m = below.mean[:, where]
            mean[:, where] = m + (vector[:, where] - m @ information) @ np.swapaxes(block, -1, -2)
            found.append(True)
        elif (values_ := np.linalg.eigvalsh(information))[0] > _SEEN * max(values_[-1], _TINY):
            block = np.broadcast_to(np.linalg.inv(information), (units, size, size))
            mean[:, where] = vector[:, where] @ block
            found.append(True)
        else:
            block = np.zeros((units, size, size))
            found.append(False)
        covariance.append((block + np.swapaxes(block, -1, -2)) / 2 if below is not None else block)
    known = LinearEstimate(mean, covariance)
    if here.exact and any(found):
        none = [np.zeros((units, fact.query.size), dtype=np.int64) for fact in here.exact]
        answers = none if rows is None else [fact.values[rows] for fact in here.exact]
        known = condition(
            basis, known, tuple(Exact(fact.query, value) for fact, value in zip(here.exact, answers, strict=True))
        )
    return condition_on_zeros(basis, known, zeros), tuple(found)


def _nothing(basis: Basis, covariance: Blocks) -> LinearEstimate:
    """Sums whose covariance alone matters."""
    return LinearEstimate(np.zeros((len(covariance[0]), basis.schema.size)), covariance)


def _children(spine: Spine, level: str, kind_of: Indices, kinds: int) -> Indices:
    """How many children of each kind each geounit has."""
    below = spine.levels[spine.levels.index(level) + 1]
    pair = spine.parent(below) * kinds + kind_of
    return np.bincount(pair, minlength=spine.size(level) * kinds).reshape(-1, kinds).astype(np.int64)
