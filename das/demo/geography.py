"""Generated geography: counties, tracts, block groups and blocks of uneven size, and areas that cut across them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import ndtri

from das.demo.population import Area

__all__ = ["Land", "districts", "make_land", "places"]

STATE = "03"  # a code that no state has, with the leading zero that careless tools lose

BLOCKS_PER_GROUP = 31
GROUPS_PER_TRACT = (0.08, 0.18, 0.38, 0.24, 0.12)  # probabilities of one to five
TRACTS_PER_COUNTY = 50

BEGINNINGS = "Alder Ash Birch Black Brook Cedar Clear Cold Deer Elm Fair Fern Fox Glen Green Hart High Maple Mill Oak"
ENDINGS = "bury dale field ford ham haven hurst land ley mere port stead ton view ville wick wood worth"


@dataclass(frozen=True, slots=True, eq=False)
class Land:
    """Geocodes of the blocks in ascending order, and the number of the unit above, level by level."""

    geocodes: NDArray[np.str_]
    group_of_block: NDArray[np.int64]
    tract_of_group: NDArray[np.int64]
    county_of_tract: NDArray[np.int64]


def make_land(
    blocks: int,
    rng: Generator,
    *,
    blocks_per_group: float = BLOCKS_PER_GROUP,
    tracts_per_county: float = TRACTS_PER_COUNTY,
) -> Land:
    """Divide a state into exactly so many blocks.

    Block groups have 5 to 80 blocks, tracts 1 to 5 block groups, and counties any number of tracts. A geocode has
    fifteen digits: state 2, county 3, tract 6, block group 1, block 3; the last two together are the block code of
    published GEOIDs.

    Examples
    --------
    >>> land = make_land(100, np.random.Generator(np.random.PCG64(1)))
    >>> len(land.geocodes), str(land.geocodes[0])
    (100, '030010101001000')
    """
    groups = max(1, round(blocks / blocks_per_group))
    group_of_block = np.repeat(np.arange(groups), _uneven(blocks, groups, least=5, spread=0.8, rng=rng))
    drawn = rng.choice(np.arange(1, 6), size=groups, p=GROUPS_PER_TRACT)
    tract_of_group = np.repeat(np.arange(groups), drawn)[:groups]
    tracts = int(tract_of_group[-1]) + 1
    counties = min(max(min(3, tracts), round(tracts / tracts_per_county)), 500)
    county_of_tract = np.repeat(np.arange(counties), _uneven(tracts, counties, least=1, spread=0.8, rng=rng))

    place = _place_in_family
    county = 1 + 2 * county_of_tract  # odd codes, as the counties of a state are numbered
    tract = county * 10**6 + (101 + place(county_of_tract)) * 100
    group = tract[tract_of_group] * 10 + 1 + place(tract_of_group)
    block = group[group_of_block] * 1000 + place(group_of_block)
    geocodes = np.array([f"{STATE}{code:013d}" for code in block.tolist()], dtype="U15")
    return Land(geocodes, group_of_block, tract_of_group, county_of_tract)


def _uneven(total: int, parts: int, *, least: int, spread: float, rng: Generator) -> NDArray[np.int64]:
    """Cut ``total`` into ``parts`` of at least ``least``, sized like the quantiles of a lognormal in random order.

    Quantiles without their extremes rather than draws, so that the largest size is known beforehand.
    """
    quantiles = np.clip(ndtri((rng.permutation(parts) + 0.5) / parts), -1.5, 1.5)
    weights = np.exp(spread * quantiles)
    ends = np.rint((total - least * parts) * np.cumsum(weights) / weights.sum()).astype(np.int64)
    return np.asarray(np.diff(ends, prepend=0) + least, dtype=np.int64)


def _place_in_family(parent: NDArray[np.int64]) -> NDArray[np.int64]:
    """Position of each unit among its siblings, which stand side by side."""
    return np.arange(len(parent)) - np.searchsorted(parent, parent)


def places(land: Land, rng: Generator) -> tuple[Area, ...]:
    """Make towns: runs of neighbouring blocks, two thirds of all, that need not end with a unit of the spine."""
    count = max(4, len(land.county_of_tract) // 4)
    in_towns = 2 * len(land.geocodes) // 3
    lengths = np.zeros(2 * count, dtype=np.int64)  # open country and town in turn; what is left over is country
    lengths[0::2] = _uneven(len(land.geocodes) - in_towns, count + 1, least=0, spread=0.8, rng=rng)[:-1]
    lengths[1::2] = _uneven(in_towns, count, least=1, spread=0.8, rng=rng)
    cuts = np.cumsum(lengths)
    words = [a + b for a, b in product(BEGINNINGS.split(), ENDINGS.split())]
    names = rng.permutation(len(words))
    step = max(1, 90_000 // count)
    return tuple(
        Area(f"{STATE}{1000 + step * i:05d}", words[names[i % len(words)]], np.arange(cuts[2 * i], cuts[2 * i + 1]))
        for i in range(count)
    )


def districts(residents: NDArray[np.int64]) -> tuple[Area, ...]:
    """Cut the blocks, in order, into two districts or more of about equally many people.

    A block goes where the middle of its people falls; each block counts as one person more, so that a state without
    people has districts too.
    """
    count = max(2, int(residents.sum()) // 500_000)
    upto = np.cumsum(residents + 1)
    district = (count * (2 * upto - residents - 1)) // (2 * upto[-1])
    return tuple(
        Area(f"{STATE}{i + 1:02d}", f"District {i + 1}", np.flatnonzero(district == i))
        for i in np.unique(district).tolist()
    )
