"""Covariances of the linear estimates of a whole spine: functions of the plan, the spine and the public facts alone.

No measured value enters a covariance. Geounits whose subtrees look alike share theirs, and are swept once: leaves with
the same known zeros, parents with as many children of each kind. So the covariances of a state take a second and are
worked out where they are needed; only the estimates themselves are stored.

A level need not measure everything. In each kind of block a level and those below it *see* a subspace: what they
determine. The estimate there is the best linear one, and nothing is assumed of the rest (:func:`known_at`). What is
seen of an only child is not extended to all that is seen of its parent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from das.estimation.linear.basis import Basis, Blocks, Floats
from das.estimation.linear.blue import Exact, LinearEstimate, condition, pseudo_inverses
from das.estimation.linear.exact_zeros import condition_on_zeros, inside_classes
from das.schema.query import Query
from geography import Spine

__all__ = ["Covariances", "LevelCovariances", "LevelFacts", "known_at", "nothing_seen", "sweep_covariances"]

Indices = NDArray[np.int64]

_SEEN, _TINY = 1e-12, 1e-300
"""An eigenvalue of an information matrix counts as zero below this share of the trace."""
_PRECISE = 1e-6
"""Variance that an exact fact gets in a block that is not determined altogether."""


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
    seen: Blocks  # for each kind of block, orthonormal columns that span what this level and those below it determine

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

    def seen(self, level: str) -> Blocks:
        """For each kind of block, columns that span what is estimable of the level's geounits."""
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
    kind_of: Indices = np.zeros(0, np.int64)
    blocks, seen = list[Floats](), nothing_seen(basis)
    for at in reversed(range(len(spine.levels))):
        level = spine.levels[at]
        here, lowest = facts[level], at == len(spine.levels) - 1
        patterns, pattern_of = np.unique(here.zeros | basis.impossible, axis=0, return_inverse=True)
        kind: Indices = pattern_of.reshape(-1).astype(np.int64)
        pattern: Indices = np.arange(len(patterns), dtype=np.int64)
        below: Blocks | None = None
        if not lowest:
            alike = np.column_stack([kind, _children(spine, level, kind_of, len(blocks[0]))])
            rows, row_of = np.unique(alike, axis=0, return_inverse=True)
            pattern, kind = rows[:, 0], row_of.reshape(-1).astype(np.int64)
            below = [np.asarray(np.tensordot(rows[:, 1:].astype(np.float64), block, axes=1)) for block in blocks]
        sums = None if below is None else LinearEstimate(np.zeros((len(pattern), basis.schema.size)), below)
        known, seen = known_at(basis, here, sums, seen, patterns[pattern])
        kind_of, blocks = kind, [np.ascontiguousarray(b) for b in known.covariance]
        levels[level] = LevelCovariances(kind_of, blocks, below, seen)
    return Covariances(basis, spine, {level: levels[level] for level in spine.levels})


def nothing_seen(basis: Basis) -> Blocks:
    """What is seen below the leaves."""
    return [np.zeros((where.shape[1], 0)) for where in basis.where]


def known_at(
    basis: Basis,
    here: LevelFacts,
    below: LinearEstimate | None,
    seen: Blocks,
    zeros: NDArray[np.bool_],
    values: Sequence[NDArray[np.float64]] | None = None,
    rows: slice | None = None,
) -> tuple[LinearEstimate, Blocks]:
    """Linear estimates of some geounits of a level from it and all below, and what of each block they determine.

    In a block that is not determined altogether, estimates and covariances are those of what is seen, and zero beside
    it; exact facts count as very precise measurements there, and known zeros other than structural ones are not used.

    Parameters
    ----------
    basis, here
        The basis, and what is measured and known at the level.
    below
        Sums of the geounits' children, ``None`` for leaves.
    seen
        What the levels below determine of each kind of block.
    zeros
        Known zeros of these geounits.
    values
        Measured answers of these geounits, in the order of ``here``; without them all answers, exact ones too, are
        taken for zero, which serves for covariances.
    rows
        Which of the level's geounits these are; needed with ``values``.
    """
    units = len(zeros)
    exact = [
        Exact(fact.query, np.zeros((units, fact.query.size), np.int64) if rows is None else fact.values[rows])
        for fact in here.exact
    ]
    queries = [(query, 1.0 / variance) for query, variance in here.measured]
    precise = [(fact.query, 1.0 / _PRECISE) for fact in exact]
    answers = (
        [] if values is None else [(q, v / variance) for (q, variance), v in zip(here.measured, values, strict=True)]
    )
    vector = _weighted(basis, answers, units)
    with_exact = vector + _weighted(basis, [(f.query, f.values / _PRECISE) for f in exact], units) if exact else vector
    mean, covariance, found, whole = np.zeros((units, basis.schema.size)), list[Floats](), list[Floats](), list[bool]()
    blocks = zip(
        basis.where,
        basis.information(queries),
        basis.information([*queries, *precise]),
        inside_classes(basis, basis.impossible),
        seen,
        strict=True,
    )
    for at, (where, own, own_and_exact, gone, before) in enumerate(blocks):
        sums = None if below is None else (below.mean[:, where], below.covariance[at])
        part = _update(own, vector[:, where], sums, before, ~gone)
        is_whole = part.seen.shape[1] == int((~gone).sum())
        if exact and not is_whole:
            part = _update(own_and_exact, with_exact[:, where], sums, before, ~gone)
        mean[:, where] = part.mean
        covariance.append(part.covariance)
        found.append(part.seen)
        whole.append(is_whole)
    before_facts = LinearEstimate(mean, covariance)
    known = condition(basis, before_facts, tuple(exact)) if exact else before_facts
    known = condition_on_zeros(basis, known, zeros)
    if all(whole):
        return known, found
    for at, where in enumerate(basis.where):
        if not whole[at]:
            known.mean[:, where], known.covariance[at] = mean[:, where], covariance[at]
    return known, found


@dataclass(frozen=True, slots=True)
class _Part:
    """Estimates in one kind of block."""

    mean: Floats  # geounits x copies x size
    covariance: Floats  # geounits x size x size
    seen: Floats  # size x dimensions


def _update(
    own: Floats, vector: Floats, below: tuple[Floats, Floats] | None, seen: Floats, possible: NDArray[np.bool_]
) -> _Part:
    """Combine sums of children, of which R is seen, with a geounit's own information M and vector h.

    With Q the rest of the possible coefficients, of which nothing is assumed, K = (Q'MQ)^+ and L = R - Q K Q'MR,

        C = (I + S L'ML)^-1 S,   V = L C L' + Q K Q',

    S being the covariance of the children's sums in R. Everything is seen if Q is empty or Q'MQ is regular.
    """
    units, (size, _) = len(vector), own.shape
    free = np.eye(size)[:, possible]
    u, spectrum, _ = np.linalg.svd(free - seen @ (seen.T @ free), full_matrices=False)
    rest = u[:, spectrum > 0.5]  # the difference of two projections: its singular values are zero or one
    inner = rest.T @ own @ rest
    values, vectors = np.linalg.eigh(inner)
    scale = max(float(np.trace(own)), _TINY)
    new = values > _SEEN * scale
    inverse = (vectors * np.where(new, 1.0 / np.where(new, values, 1.0), 0.0)) @ vectors.T
    across = rest @ inverse @ rest.T
    mean = np.zeros(vector.shape)
    covariance = np.broadcast_to(across, (units, size, size))
    if below is not None and seen.shape[1]:
        linear = seen - across @ own @ seen
        sums, spread = below
        inside = seen.T @ spread @ seen
        information = linear.T @ own @ linear
        posterior = np.linalg.solve(np.eye(len(information)) + inside @ information, inside)
        posterior = (posterior + np.swapaxes(posterior, -1, -2)) / 2
        a = sums @ seen
        a = a + (vector @ linear - a @ information) @ posterior
        mean = a @ seen.T
        covariance = linear @ posterior @ linear.T + across
    mean = mean + (vector - mean @ own) @ across
    return _Part(mean, covariance, np.column_stack([seen, rest @ vectors[:, new]]))


def _weighted(basis: Basis, answers: Sequence[tuple[Query, NDArray[np.float64]]], units: int) -> Floats:
    """Coefficients of the tables that give each cell the sum of the answers that it counts towards."""
    total = np.zeros((units, *basis.schema.shape))
    for query, values in answers:
        total += query.aligned(values)
    flat = total.reshape(units, basis.schema.size)
    return basis.to_coefficients(flat) if len(answers) else flat


def _children(spine: Spine, level: str, kind_of: Indices, kinds: int) -> Indices:
    """How many children of each kind each geounit has."""
    below = spine.levels[spine.levels.index(level) + 1]
    pair = spine.parent(below) * kinds + kind_of
    return np.bincount(pair, minlength=spine.size(level) * kinds).reshape(-1, kinds).astype(np.int64)
