"""Covariances of weighted unions of geounits, by one recursion from the leaves to the top, without any pair of leaves.

A union is a sum over geounits u of weight times cells, such as a school district or the difference between two tracts.
Given the final estimate b of a parent, those of its children are m + A (b - s) with A = V S^+, so a union's part below
the parent is X S^+ b plus something that does not depend on b, with X the sum of (weights so far) V over the children.
So going up, each geounit carries a matrix F, the union's coefficients on its own estimate, and W, the covariance of the
part that is independent of everything above:

    X = sum of F_c V_c,   F = X S^+,   W = sum of (W_c + F_c V_c F_c') - X S^+ X'.

At the top the covariance is the sum of W + F V F'. Several unions are stacked in F, which gives their covariances with
one another. Blocks of one kind share all this, whatever their copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from das.estimation.linear.basis import Blocks, Floats
from das.estimation.linear.covariances import Covariances, LevelCovariances
from geography import Spine

__all__ = ["Members", "Union", "coarsest", "covariances_of_unions"]

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Members:
    """Geounits of one level, each with its weight in a union."""

    units: Indices
    weights: Floats


Union = dict[str, Members]
"""Members by level."""


def coarsest(spine: Spine, leaves: Indices) -> Union:
    """Write a set of leaves as few geounits: a parent stands for its children where all of them are members.

    Examples
    --------
    >>> spine = Spine.from_paths(["county", "block"], [np.array(["1", "1", "2"]), np.array(["10", "11", "20"])])
    >>> {level: members.units.tolist() for level, members in coarsest(spine, np.array([0, 2])).items()}
    {'county': [1], 'block': [0]}
    """
    inside = np.zeros(len(spine.leaves), dtype=bool)
    inside[leaves] = True
    found: Union = {}
    taken = np.zeros(len(spine.leaves), dtype=bool)
    for level in spine.levels:
        ranges = spine.leaf_ranges(level)
        members = np.add.reduceat(inside & ~taken, ranges[:-1])
        whole = np.flatnonzero(members == np.diff(ranges))
        if len(whole):
            found[level] = Members(whole.astype(np.int64), np.ones(len(whole)))
            for unit in whole.tolist():
                taken[ranges[unit] : ranges[unit + 1]] = True
    return found


def covariances_of_unions(covariances: Covariances, groups: Sequence[Sequence[Union]]) -> Blocks:
    """Joint covariance of the unions of each group, in every kind of block.

    Parameters
    ----------
    covariances
        The up-sweep's covariances.
    groups
        Groups of equally many unions; those of one group are wanted jointly.

    Returns
    -------
    list of arrays
        For each kind of block, groups x (unions * size) x (unions * size).
    """
    k = len(groups[0])
    sizes = [block.shape[-1] for block in next(iter(covariances.levels.values())).blocks]
    state = _State(np.zeros(0, np.int64), np.zeros(0, np.int64), [], [])
    spine = covariances.spine
    for at in reversed(range(len(spine.levels))):
        level = spine.levels[at]
        above = covariances.levels[spine.levels[at - 1]] if at else None
        entries = _entries(groups, level, k)
        parent = spine.parent(level) if at else np.zeros(spine.size(level), dtype=np.int64)
        here = covariances.levels[level]
        if not len(state.group):  # nothing but whole geounits: kinds with their numbers suffice
            state = _sent_up_whole(entries, here, parent, above, k, len(groups))
        else:
            state = _sent_up(_with_whole(state, entries, sizes, k), here, parent, above, len(groups))
    return state.within


@dataclass(frozen=True)
class _State:
    """Pairs of a group and a geounit that it touches, with F and W of each kind of block; pairs ascend."""

    group: Indices
    unit: Indices
    linear: Blocks  # pairs x (k size) x size
    within: Blocks  # pairs x (k size) x (k size)


@dataclass(frozen=True)
class _Entries:
    """Geounits that are members themselves: group, geounit, and the weight in each of the group's unions."""

    group: Indices
    unit: Indices
    weights: Floats  # entries x k


def _entries(groups: Sequence[Sequence[Union]], level: str, k: int) -> _Entries:
    found = [
        (g, j, union[level]) for g, unions in enumerate(groups) for j, union in enumerate(unions) if level in union
    ]
    if not found:
        return _Entries(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, k)))
    group = np.concatenate([np.full(len(m.units), g) for g, _, m in found])
    which = np.concatenate([np.full(len(m.units), j) for _, j, m in found])
    unit = np.concatenate([m.units for *_, m in found])
    pairs, place = np.unique(np.column_stack([group, unit]), axis=0, return_inverse=True)
    weights = np.zeros((len(pairs), k))
    np.add.at(weights, (place.reshape(-1), which), np.concatenate([m.weights for *_, m in found]))
    return _Entries(pairs[:, 0], pairs[:, 1], weights)


def _sent_up_whole(
    entries: _Entries, here: LevelCovariances, parent: Indices, above: LevelCovariances | None, k: int, groups: int
) -> _State:
    """Go up from members alone: F = w I, so sums need only the weights and their products by kind of geounit."""
    group, unit, kind = entries.group, parent[entries.unit], here.kind_of[entries.unit]
    pairs, place = np.unique(np.column_stack([group, unit]), axis=0, return_inverse=True)
    kinds, local = np.unique(kind, return_inverse=True)
    n = len(kinds)
    at = place.reshape(-1) * n + local.reshape(-1)
    ones, squares = np.zeros((len(pairs) * n, k)), np.zeros((len(pairs) * n, k, k))
    np.add.at(ones, at, entries.weights)
    np.add.at(squares, at, entries.weights[:, :, None] * entries.weights[:, None, :])
    first, second = ones.reshape(len(pairs), n, k), squares.reshape(len(pairs), n, k, k)
    across, within = list[Floats](), list[Floats]()
    for block in here.blocks:
        own, size = block[kinds], block.shape[-1]
        x = np.einsum("pnj,nab->pjab", first, own, optimize=True)
        across.append(x.reshape(len(pairs), k * size, size))
        y = np.einsum("pnij,nab->piajb", second, own, optimize=True)
        within.append(y.reshape(len(pairs), k * size, k * size))
    return _at_parents(pairs[:, 0], pairs[:, 1], across, within, above, groups)


def _with_whole(state: _State, entries: _Entries, sizes: list[int], k: int) -> _State:
    """Add w I to F where a geounit is a member itself."""
    old = np.column_stack([state.group, state.unit])
    new = np.column_stack([entries.group, entries.unit])
    pairs, place = np.unique(np.concatenate([old, new]), axis=0, return_inverse=True)
    place = place.reshape(-1)
    linear, within = list[Floats](), list[Floats]()
    for size, f, w in zip(sizes, state.linear, state.within, strict=True):
        more = np.zeros((len(pairs), k * size, size))
        more[place[: len(old)]] = f
        own = entries.weights[:, :, None, None] * np.eye(size)
        more[place[len(old) :]] += own.reshape(len(new), k * size, size)
        linear.append(more)
        wider = np.zeros((len(pairs), k * size, k * size))
        wider[place[: len(old)]] = w
        within.append(wider)
    return _State(pairs[:, 0], pairs[:, 1], linear, within)


def _sent_up(
    state: _State, here: LevelCovariances, parent: Indices, above: LevelCovariances | None, groups: int
) -> _State:
    """Go up from geounits with any F."""
    kind = here.kind_of[state.unit]
    pairs, place = np.unique(np.column_stack([state.group, parent[state.unit]]), axis=0, return_inverse=True)
    place = place.reshape(-1)
    across, within = list[Floats](), list[Floats]()
    for block, f, w in zip(here.blocks, state.linear, state.within, strict=True):
        spread = f @ block[kind]
        x, y = np.zeros((len(pairs), *f.shape[1:])), np.zeros((len(pairs), *w.shape[1:]))
        np.add.at(x, place, spread)
        np.add.at(y, place, w + spread @ np.swapaxes(f, -1, -2))
        across.append(x)
        within.append(y)
    return _at_parents(pairs[:, 0], pairs[:, 1], across, within, above, groups)


def _at_parents(
    group: Indices, unit: Indices, across: Blocks, within: Blocks, above: LevelCovariances | None, groups: int
) -> _State:
    """F and W of the parents from the sums over their children; above the top, the whole covariance of each group."""
    if above is None:
        whole = list[Floats]()
        for y in within:
            total = np.zeros((groups, *y.shape[1:]))
            np.add.at(total, group, y)
            whole.append((total + np.swapaxes(total, -1, -2)) / 2)
        return _State(np.arange(groups), np.zeros(groups, np.int64), across, whole)
    linear = [x @ inverse[above.kind_of[unit]] for x, inverse in zip(across, above.inverse_below, strict=True)]
    left = [y - f @ np.swapaxes(x, -1, -2) for y, f, x in zip(within, linear, across, strict=True)]
    return _State(group, unit, linear, left)
