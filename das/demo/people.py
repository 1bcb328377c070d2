"""Generated people: how many live in each block, in what kind of home, and who they are.

The shape follows the published block counts of one small state, Rhode Island in 2010: a third of the blocks empty, the
fullest hundredth of the blocks with more than a tenth of the people, minorities clustered by tract more than within
tracts. Shares of minors by origin are that state's, rounded; the spreads of size and origin were adjusted by hand until
those statistics came near. Group quarters, races in combination and races of Hispanics are assumed, without a source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from das.demo.geography import BLOCKS_PER_GROUP, TRACTS_PER_COUNTY, Land, districts, make_land, places
from das.demo.population import CELLS, CENRACE, HHGQ, SHAPE, Population
from das.errors import Problem, UsageError

__all__ = ["Settled", "generate", "settle"]

EMPTY_SHARE = 0.34  # of the blocks have no households
EMPTY_CLUSTERING = 0.9  # of a block group, against one of a block
GROUP_SPREAD, BLOCK_SPREAD = 0.45, 0.8  # of log size


class Quarters(NamedTuple):
    """Group quarters of one type."""

    share_of_people: float
    people_per_facility: int
    facilities_per_block: int
    minors: float


QUARTERS = {
    "correctional": Quarters(0.008, 600, 1, 0.002),
    "juvenile": Quarters(0.0006, 25, 1, 0.9),
    "nursing": Quarters(0.006, 75, 1, 0.0),  # nobody under 18: the one structural zero of the redistricting schema
    "other-institutional": Quarters(0.0004, 40, 1, 0.15),
    "college": Quarters(0.01, 200, 3, 0.01),
    "military": Quarters(0.0015, 150, 2, 0.001),
    "other-noninstitutional": Quarters(0.005, 12, 1, 0.1),
}


class Origin(NamedTuple):
    """People of one ethnicity and race group: their weight in a typical place, clustering and share of minors."""

    weight: float
    clustering: float
    minors: float


ORIGINS = {
    "white": Origin(1.0, 0.0, 0.18),
    "hispanic": Origin(0.07, 1.0, 0.35),
    "black": Origin(0.035, 1.0, 0.28),
    "asian": Origin(0.025, 0.7, 0.22),
    "aian": Origin(0.003, 0.9, 0.27),
    "nhopi": Origin(0.0003, 1.0, 0.22),
    "sor": Origin(0.004, 1.0, 0.28),
    "two or more": Origin(0.022, 0.4, 0.45),
}
SPREAD = {"county": 0.6, "tract": 1.6, "group": 0.35, "block": 0.5}  # of log weight, for a clustering of one
SHARED = 0.7  # how far the minorities' effects go together

# Relative weight of a race in answers of two races or more; a third race is a tenth as likely.
COMBINED = {"white": 1.0, "black": 0.45, "aian": 0.3, "asian": 0.4, "nhopi": 0.08, "sor": 0.25}
HISPANIC_RACE = {"white": 0.53, "sor": 0.37, "black": 0.025, "aian": 0.015, "asian": 0.004, "nhopi": 0.001}


def generate(
    blocks: int = 1000,
    people: int = 60_000,
    seed: int = 2020,
    *,
    blocks_per_group: float = BLOCKS_PER_GROUP,
    tracts_per_county: float = TRACTS_PER_COUNTY,
) -> Population:
    """Make a state with exactly so many blocks and people; the same arguments make the same state.

    Parameters
    ----------
    blocks : int
        Leaves of the spine, about a third of them empty; at least ten.
    people : int
        Residents, about three in a hundred of them in group quarters.
    seed : int
        Which of the many such states.
    blocks_per_group, tracts_per_county : float
        On average, and three counties at least.

    Examples
    --------
    >>> state = generate(blocks=200, people=5_000)
    >>> len(state.geocodes), state.people, int(state.facilities.sum())
    (200, 5000, 9)
    """
    if blocks < 10:
        raise UsageError(Problem("blocks", f"{blocks} are too few for a state", "ask for ten or more"))
    if people < 0 or seed < 0:
        raise UsageError(Problem("people, seed", "must not be negative", "ask for zero or more"))
    # A stream for each kind of draw, so that a change to one leaves the others as they are.
    of_land, of_places, *of_people = Generator(PCG64(seed)).spawn(6)
    land = make_land(blocks, of_land, blocks_per_group=blocks_per_group, tracts_per_county=tracts_per_county)
    settled = settle(land, people, of_people)
    where, count = np.unique(settled.leaf * CELLS + settled.cell, return_counts=True)
    return Population(
        geocodes=land.geocodes,
        leaf=where // CELLS,
        cell=where % CELLS,
        count=count.astype(np.int64),
        facilities=settled.facilities,
        places=places(land, of_places),
        districts=districts(np.bincount(settled.leaf, minlength=blocks)),
    )


Codes = NDArray[np.int64]


class Settled(NamedTuple):
    """Block and cell of each person, and facilities by block and type."""

    leaf: Codes
    cell: Codes
    facilities: Codes


def settle(land: Land, people: int, streams: Sequence[Generator]) -> Settled:
    """Let so many people live on a given land: group quarters, households, and who they are.

    ``streams`` are four generators: of quarters, homes, origins and persons.
    """
    of_quarters, of_homes, of_origins, of_persons = streams
    facilities, quarters_block, quarters_type = _quarters(len(land.geocodes), people, of_quarters)
    households = _households(land, people - len(quarters_block), of_homes)
    leaf = np.concatenate([households, quarters_block])
    hhgq = np.concatenate([np.zeros_like(households), quarters_type])
    return Settled(leaf, _persons(_origin_shares(land, of_origins), leaf, hhgq, of_persons), facilities)


def _quarters(blocks: int, people: int, rng: Generator) -> tuple[Codes, Codes, Codes]:
    """Facilities by block and type, and the block and type of each person in them: at least one in each facility."""
    facilities = np.zeros((blocks, len(HHGQ)), dtype=np.int64)
    homes: list[Codes] = []
    types: list[Codes] = []
    for name, quarters in QUARTERS.items():
        residents = round(people * quarters.share_of_people)
        built = -(-residents // quarters.people_per_facility)
        if not built:
            continue
        sites = rng.choice(blocks, size=min(blocks, -(-built // quarters.facilities_per_block)), replace=False)
        block = sites[np.arange(built) % len(sites)]
        size = _scatter(residents - built, rng.lognormal(0.0, 0.6, built), rng) + 1
        np.add.at(facilities[:, HHGQ.index(name)], block, 1)
        homes.append(np.repeat(block, size))
        types.append(np.full(residents, HHGQ.index(name)))
    none = np.zeros(0, dtype=np.int64)
    return facilities, np.concatenate([none, *homes]), np.concatenate([none, *types])


def _households(land: Land, people: int, rng: Generator) -> Codes:
    """Block of each person in a household: block groups are alike in size, blocks within them are not."""
    blocks, groups = len(land.geocodes), len(land.tract_of_group)
    in_group = land.group_of_block
    emptiness = EMPTY_CLUSTERING * rng.standard_normal(groups)[in_group] + rng.standard_normal(blocks)
    weight = rng.lognormal(0.0, BLOCK_SPREAD, blocks)
    weight[np.argsort(-emptiness, kind="stable")[: round(EMPTY_SHARE * blocks)]] = 0.0
    group_weight = np.bincount(in_group, weight, minlength=groups)
    inhabited = weight > 0
    target = rng.lognormal(0.0, GROUP_SPREAD, groups)
    weight[inhabited] *= (target[in_group] / np.where(group_weight > 0, group_weight, 1.0)[in_group])[inhabited]
    return np.repeat(np.arange(blocks), _scatter(people, weight, rng))


def _scatter(people: int, weights: NDArray[np.float64], rng: Generator) -> Codes:
    """Let each of the people choose one of the weighted homes; count them."""
    counts: Codes = np.bincount(_choose(people, weights, rng), minlength=len(weights))
    return counts


def _choose(times: int, weights: NDArray[np.float64], rng: Generator) -> Codes:
    """Draw positions with probabilities proportional to their weights."""
    upto = np.cumsum(weights)
    chosen = np.searchsorted(upto, rng.random(times) * upto[-1], side="right")
    # A product may round up to the very end, behind which there is nothing.
    return np.asarray(np.minimum(chosen, np.flatnonzero(weights)[-1]), dtype=np.int64)


def _origin_shares(land: Land, rng: Generator) -> NDArray[np.float64]:
    """Cumulative shares of the origins in each block, and in a last row those of the whole state.

    The log weights of a block are those of a typical place plus effects of its county, tract, block group and its own:
    neighbours share all but the last.
    """
    clustering = np.array([origin.clustering for origin in ORIGINS.values()])

    def effects(level: str, units: int) -> NDArray[np.float64]:
        together = rng.standard_normal((units, 1))
        apart = rng.standard_normal((units, len(ORIGINS)))
        mixed: NDArray[np.float64] = SHARED * together + np.sqrt(1 - SHARED**2) * apart
        return SPREAD[level] * clustering * mixed

    tract = effects("county", int(land.county_of_tract[-1]) + 1)[land.county_of_tract]
    tract = tract + effects("tract", len(land.county_of_tract))
    group = tract[land.tract_of_group] + effects("group", len(land.tract_of_group))
    block = group[land.group_of_block] + effects("block", len(land.geocodes))
    weights = np.exp(block) * [origin.weight for origin in ORIGINS.values()]
    shares = weights / weights.sum(axis=1, keepdims=True)
    return np.cumsum(np.vstack([shares, shares.mean(axis=0)]), axis=1)


def _persons(shares: NDArray[np.float64], leaf: Codes, hhgq: Codes, rng: Generator) -> Codes:
    """Cell of each person, given block and kind of home. People in group quarters come from the whole state."""
    row = np.where(hhgq == 0, leaf, len(shares) - 1)
    drawn = rng.random(len(leaf))
    origin = np.zeros(len(leaf), dtype=np.int64)
    for column in shares.T[:-1]:
        origin += drawn >= column[row]

    hispanic = list(ORIGINS).index("hispanic")
    of_several = np.array([_combination_weight(name) for name in CENRACE])
    of_several /= of_several.sum()
    of_hispanic = np.array([HISPANIC_RACE.get(name, 0.0) for name in CENRACE])
    of_hispanic += (1 - of_hispanic.sum()) * of_several
    races = {name: np.array([float(race == name) for race in CENRACE]) for name in ORIGINS}
    races |= {"hispanic": of_hispanic, "two or more": of_several}
    race = np.empty(len(leaf), dtype=np.int64)
    for number, name in enumerate(ORIGINS):
        mine = np.flatnonzero(origin == number)
        race[mine] = _choose(len(mine), races[name], rng)

    minors_by_origin = np.array([origin.minors for origin in ORIGINS.values()])
    minors_by_home = np.array([0.0, *(QUARTERS[name].minors for name in HHGQ[1:])])
    minors = np.where(hhgq == 0, minors_by_origin[origin], minors_by_home[hhgq])
    of_age = (rng.random(len(leaf)) >= minors).astype(np.int64)
    return np.ravel_multi_index((hhgq, of_age, (origin == hispanic).astype(np.int64), race), SHAPE).astype(np.int64)


def _combination_weight(name: str) -> float:
    """Weight of an answer among those that name two races or more."""
    races = name.split("-")
    return float(np.prod([COMBINED[race] for race in races]) * 0.1 ** (len(races) - 2)) if len(races) > 1 else 0.0
