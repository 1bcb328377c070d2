"""Generated people for any schema over any spine: enough to try a plan on, and about nobody.

Only public structure is used: labels, structural zeros and the list of geounits. The redistricting schema over four
levels or more gets the people of the generated state (:mod:`das.demo.people`). Any other schema gets simpler ones. A
third of the leaves is empty. Each attribute is drawn on its own, its first labels are the most common, more so the
more labels there are, and neighbours are alike. None of this has a source, unless public margins are given
(:mod:`das.demo.margins`): then the people have exactly these.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from das.demo.fit import fitted
from das.demo.geography import Land
from das.demo.margins import Margin
from das.demo.people import EMPTY_SHARE, settle
from das.demo.population import AXES
from das.schema.schema import Schema
from geography import Spine

__all__ = ["PEOPLE_PER_LEAF", "populate"]

PEOPLE_PER_LEAF = 40
"""As in a block of Rhode Island in 2010."""

SIZE_SPREAD, LABEL_SPREAD = 1.0, 0.4  # of log size of a leaf, and of log weight of a label at each level


def populate(
    schema: Schema, spine: Spine, seed: int, people: int | None = None, margins: Sequence[Margin] = ()
) -> NDArray[np.int64]:
    """Generate the people of every leaf: counts, leaves x cells; the same arguments give the same people.

    Parameters
    ----------
    schema, spine
        What is counted, and where.
    seed : int
        Which of the many such populations.
    people : int, optional
        How many; 40 for each leaf unless given. Totals among the margins come before it.
    margins : sequence of Margin
        Counts that the population must have.

    Examples
    --------
    >>> from das.schema.schema import Attribute
    >>> schema = Schema((Attribute("sex", ("f", "m")),))
    >>> spine = Spine.from_paths(["state", "town"], [np.array(["1", "1", "1"]), np.array(["11", "12", "13"])])
    >>> populate(schema, spine, 1).sum(axis=0).shape, int(populate(schema, spine, 1).sum())
    ((2,), 120)
    """
    leaves = len(spine.leaves)
    people = PEOPLE_PER_LEAF * leaves if people is None else people
    if {a.name: a.labels for a in schema.attributes} == AXES and len(spine.levels) >= 4:
        tract, group, block = spine.levels[-3:]
        land = Land(spine.geocodes(block), spine.parent(block), spine.parent(group), spine.parent(tract))
        settled = settle(land, people, Generator(PCG64(seed)).spawn(4))
        leaf, cell = settled.leaf, settled.cell
    else:
        leaf, cell = _simple(schema, spine, people, Generator(PCG64(seed)))
    counts = np.bincount(leaf * schema.size + cell, minlength=leaves * schema.size)
    counts = counts.reshape(leaves, schema.size).astype(np.int64)
    return fitted(counts, spine, margins, Generator(PCG64([seed, 1]))) if margins else counts


def _simple(schema: Schema, spine: Spine, people: int, rng: Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Leaf and cell of each person."""
    leaves = len(spine.leaves)
    weight = rng.lognormal(0.0, SIZE_SPREAD, leaves)
    weight[rng.permutation(leaves)[: int(EMPTY_SHARE * leaves)]] = 0.0
    leaf = np.sort(rng.choice(leaves, size=people, p=weight / weight.sum()))
    shares = [_label_shares(len(a.labels), spine, rng) for a in schema.attributes]
    cell = _cells(schema, shares, leaf, rng)
    for _ in range(50):  # whoever is where nobody can be is drawn again
        again = np.flatnonzero(~schema.possible[cell])
        cell[again] = _cells(schema, shares, leaf[again], rng)
    cell[~schema.possible[cell]] = int(np.flatnonzero(schema.possible)[0])
    return leaf, cell


def _label_shares(labels: int, spine: Spine, rng: Generator) -> NDArray[np.float64]:
    """Cumulative shares of an attribute's labels in each leaf; what a level adds is shared by all leaves below."""
    steepness = np.log2(labels) / 2
    logs = np.tile(-steepness * np.log(np.arange(1, labels + 1)), (len(spine.leaves), 1))
    for level in spine.levels[1:]:
        effects = LABEL_SPREAD * rng.standard_normal((spine.size(level), labels))
        logs += np.repeat(effects, np.diff(spine.leaf_ranges(level)), axis=0)
    weights = np.exp(logs)
    return np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)


def _cells(
    schema: Schema, shares: list[NDArray[np.float64]], leaf: NDArray[np.int64], rng: Generator
) -> NDArray[np.int64]:
    cell: NDArray[np.int64] = np.zeros(len(leaf), dtype=np.int64)
    for labels, cumulative in zip(schema.shape, shares, strict=True):
        drawn, code = rng.random(len(leaf)), np.zeros(len(leaf), dtype=np.int64)
        for label in range(labels - 1):
            code += drawn >= cumulative[leaf, label]
        cell = cell * labels + code
    return cell
