"""Random small worlds, every data set of them: no loss is above the number that is quoted for it, bounds or not.

A world is a geography of a few blocks, two or four types of people, at most three people, and public facts that a
random data set keeps. All data sets that agree with the facts are listed, and every two that a number compares are
compared: by how many records must change, and by the exact cost of the change.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from das.accounting.conversion import epsilon_upper
from das.accounting.events import Event, GaussianEvent, LaplaceEvent
from das.accounting.hierarchy import HierarchicalPlan, compose
from das.accounting.moves import Secret
from das.accounting.policies import attribute_secrets, geography_secrets
from das.accounting.small_table.dataspace import TableFacts, semi_adjacency
from das.promise.account import presence_sections
from das.promise.lines import Lines

DELTA = Fraction(1, 1000)
LEVELS = ("state", "county", "block")
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class World:
    """A plan, the rows of its public facts over (block, type) cells, and all data sets that keep them."""

    plan: HierarchicalPlan
    facts: TableFacts
    parents: tuple[tuple[int, ...], ...]  # of each level, the unit of each block

    def rows(self, level: str, query: str) -> Counts:
        """One row of zeros and ones for each answer of a query in each geounit."""
        units = np.array(self.parents[LEVELS.index(level)])
        maps = self.plan.queries[query]
        types = list(product(*(range(size) for _, size in self.plan.attributes)))
        answers = [tuple(m[v] for m, v in zip(maps, each, strict=True) if m is not None) for each in types]
        names = sorted(set(answers))
        return np.array(
            [
                [u == unit and a == name for u in units for a in answers]
                for unit in range(units.max() + 1)
                for name in names
            ]
        ).astype(np.int64)

    def cost(self, move: Counts) -> float:
        """Epsilon of one change of the histogram, exactly as its noise gives it."""
        squares, absolute = Fraction(0), Fraction(0)
        for event in self.plan.events:
            change = self.rows(event.level, event.query) @ move
            if isinstance(event, GaussianEvent):
                squares += Fraction(int(change @ change)) / (2 * event.sigma2)
            elif isinstance(event, LaplaceEvent):
                absolute += Fraction(int(np.abs(change).sum())) / event.scale
        return epsilon_upper(squares, DELTA) if not absolute else float(absolute)


def random_world(rng: random.Random, *, bounded: bool, releases: int = 1, present: bool = False) -> World:
    blocks = rng.randint(2, 3)
    # a county of one block stands for a branch that skips the level
    county = tuple(sorted(rng.randrange(2) for _ in range(blocks)))
    county = tuple(sorted(set(county)).index(c) for c in county)
    parents = ((0,) * blocks, county, tuple(range(blocks)))
    attributes = (("sex", 2),) if blocks == 3 or rng.random() < 0.5 else (("sex", 2), ("old", 2))
    whole: tuple[tuple[int, ...] | None, ...] = tuple((0, 1) for _ in attributes)
    queries = {"total": (None,) * len(attributes), "detailed": whole, "sex": ((0, 1), *(None,) * (len(attributes) - 1))}
    pairs = list(product(LEVELS, queries))
    laplace = rng.random() < 0.4

    def release() -> HierarchicalPlan:
        events: list[Event] = []
        for level, query in rng.sample(pairs, rng.randint(2, 5)):
            size = Fraction(rng.randint(1, 12), 2)
            events.append(
                LaplaceEvent(level=level, query=query, scale=size)
                if laplace
                else GaussianEvent(level=level, query=query, sigma2=size)
            )
        fixed = [] if present else rng.choice([[], [("state", "total")], [("county", "total")], [("block", "sex")]])
        limits = rng.sample(pairs, rng.randint(1, 2)) if bounded else []
        return HierarchicalPlan(
            levels=LEVELS,
            units=(1, max(county) + 1, blocks),
            attributes=attributes,
            queries=queries,
            events=tuple(events),
            invariants=tuple(fixed),
            bounds=tuple(limits),
        )

    plan = compose(*(release() for _ in range(releases))) if releases > 1 else release()
    cells = blocks * 2 ** len(attributes)
    people = rng.randint(1, 3)
    truth = np.bincount([rng.randrange(cells) for _ in range(people)], minlength=cells)
    bare = World(plan, TableFacts(cells=cells), parents)
    rows = [(tuple(row.tolist()), int(row @ truth), int(row @ truth)) for f in plan.invariants for row in bare.rows(*f)]
    for fact in plan.bounds:
        for row in bare.rows(*fact):
            count = int(row @ truth)
            rows.append((tuple(row.tolist()), rng.randint(max(0, count - 1), count), rng.randint(count, count + 1)))
    return World(plan, TableFacts(cells=cells, values=(), records=people, bounds=tuple(rows)), parents)


def listed(world: World, records: int) -> Counts:
    """All histograms of so many records that keep the facts."""
    everything = np.array([t for t in product(range(records + 1), repeat=world.facts.cells) if sum(t) == records])
    for row, low, high in world.facts.bounds:
        counts = everything @ np.array(row)
        everything = everything[(counts >= low) & (counts <= high)]
    return everything


def within(world: World, secret: Secret, before: int, after: int) -> bool:
    """Whether a secret allows one record to go from a cell to another."""
    types = world.facts.cells // len(world.parents[-1])
    place = [divmod(cell, types) for cell in (before, after)]
    inside = world.parents[LEVELS.index(secret.within or "state")]
    values = [np.unravel_index(t, [size for _, size in world.plan.attributes]) for _, t in place]
    changed = {name for k, (name, _) in enumerate(world.plan.attributes) if values[0][k] != values[1][k]}
    same = inside[place[0][0]] == inside[place[1][0]]
    return same and (secret.attributes is None or changed <= secret.attributes)


def check(world: World, seen: Counter[str]) -> None:
    """Compare every two data sets that some number compares."""
    exact = semi_adjacency(world.facts)
    space = listed(world, world.facts.records or 0)
    plan = world.plan
    lines = Lines(plan, DELTA)
    semi = lines.semi
    if semi.epsilon is None:
        seen["not supported or vacuous"] += 1
        return
    radius = semi.adjacency or 1
    if semi.condition is None:
        assert exact <= radius  # "proved" is proved
    elif exact > radius:
        # The condition is not met: nothing is claimed. With the a(t) of the published numbers, everything is.
        seen["a(t) above two"] += 1
        lines = Lines(plan_with(plan, exact), DELTA)
        semi, radius = lines.semi, exact
    costs: dict[tuple[int, ...], float] = {}

    def cost(move: Counts) -> float:
        key = tuple(move.tolist())
        if key not in costs:
            costs[key] = costs[tuple((-move).tolist())] = world.cost(move)
        return costs[key]

    assert semi.epsilon is not None
    promised = float(semi.pure) if isinstance(semi.pure, Fraction) else semi.epsilon
    for x in space:
        for other in space[np.abs(space - x).sum(axis=1) <= 2 * radius]:
            assert cost(other - x) <= promised * (1 + 1e-9)
            seen["pairs"] += 1
    leaf = plan.levels[-1]
    secrets = [Secret(name="", within=level) for level in LEVELS]
    secrets += [*attribute_secrets(plan), *geography_secrets(plan)]
    unbounded = listed(World(plan, no_bounds(world), world.parents), world.facts.records or 0)
    for secret in secrets:
        found = lines.about(secret)
        if found.epsilon is None:
            continue
        stated = float(found.pure) if isinstance(found.pure, Fraction) else found.epsilon
        otherwise = found.condition.otherwise if found.condition else None
        for c, y in product(range(world.facts.cells), repeat=2):
            if c == y or not within(world, secret, c, y):
                continue
            for x in space[space[:, c] > 0]:
                distance, moves = fewest(space, x, c, y)
                if not len(moves):
                    continue
                worst = max(cost(move) for move in moves)
                alone = distance == fewest(unbounded, x, c, y)[0]
                if alone and found.condition is None:
                    assert worst <= stated * (1 + 1e-9)
                elif alone and np.all(distance == 1):
                    assert worst <= stated * (1 + 1e-9)
                    seen["alone"] += 1
                else:
                    assert otherwise is not None, (secret, leaf)
                    assert worst <= max(float(otherwise), stated) * (1 + 1e-9)
                    seen["compensated"] += 1
                    seen["above the first number"] += worst > stated * (1 + 1e-9)


def plan_with(plan: HierarchicalPlan, adjacency: int) -> HierarchicalPlan:
    return replace(plan, known_adjacency=adjacency)


def no_bounds(world: World) -> TableFacts:
    """The same facts without the published bounds."""
    exact = tuple(row for row in world.facts.bounds if row[1] == row[2] and is_invariant(world, row[0]))
    return TableFacts(cells=world.facts.cells, values=(), records=world.facts.records, bounds=exact)


def is_invariant(world: World, row: tuple[int, ...]) -> bool:
    return any(row == tuple(each.tolist()) for fact in world.plan.invariants for each in world.rows(*fact))


def fewest(space: Counts, x: Counts, c: int, y: int) -> tuple[int, Counts]:
    """Fewest records that change when one goes from c to y, and the changes of the histogram with so many."""
    reached = space[space[:, y] > 0]
    if not len(reached):
        return 0, reached
    rest, target = x.copy(), reached.copy()
    rest[c] -= 1
    target[:, y] -= 1
    records = 1 + np.abs(target - rest).sum(axis=1) // 2
    return int(records.min()), reached[records == records.min()] - x


def run(worlds: int, seed: int, **about: object) -> Counter[str]:
    rng = random.Random(seed)
    seen: Counter[str] = Counter()
    for _ in range(worlds):
        check(random_world(rng, **about), seen)  # type: ignore[arg-type]
    return seen


def test_no_number_is_below_the_truth_beside_bounds() -> None:
    seen = run(60, seed=1, bounded=True)
    assert seen["compensated"] > 20
    assert seen["above the first number"] > 0  # without its condition the first number would be below the truth
    assert seen["pairs"] > 500


def test_no_number_is_below_the_truth_without_bounds() -> None:
    assert run(20, seed=2, bounded=False)["pairs"] > 200


def test_no_number_is_below_the_truth_of_two_releases_together() -> None:
    assert run(20, seed=3, bounded=True, releases=2)["pairs"] > 50


@pytest.mark.slow
@pytest.mark.parametrize(
    ("worlds", "about"),
    [
        (300, {"bounded": True}),
        (120, {"bounded": False}),
        (120, {"bounded": True, "releases": 2}),
    ],
)
def test_no_number_is_below_the_truth_in_hundreds_of_worlds(worlds: int, about: dict[str, object]) -> None:
    seen = run(worlds, seed=10, **about)
    assert seen["pairs"] > 1000
    assert not about["bounded"] or seen["a(t) above two"] > 0  # the worlds in which the assumption fails are among them


def presence_worlds(worlds: int, seed: int) -> Counter[str]:
    """Add or remove one record: alone where the bounds allow it, and with a replacement where they do not."""
    rng = random.Random(seed)
    seen: Counter[str] = Counter()
    while sum(seen[key] for key in ("alone", "replaced")) < worlds * 5:
        world = random_world(rng, bounded=True, present=True)
        found = presence_sections(world.plan, DELTA)["effective"][0]
        people = world.facts.records or 0
        spaces = {n: listed(world, n) for n in (people - 1, people) if n > 0}
        members = {tuple(x) for space in spaces.values() for x in space.tolist()}
        for x in spaces[people]:
            for c in np.flatnonzero(x):
                without = x - np.eye(len(x), dtype=np.int64)[c]
                if people > 1 and tuple(without.tolist()) in members:
                    assert world.cost(without - x) <= found["epsilon"] * (1 + 1e-9)
                    seen["alone"] += 1
                else:
                    for other in spaces[people]:
                        if np.abs(other - x).sum() == 2 and other[c] < x[c]:
                            assert world.cost(other - x) <= found["condition"]["otherwise_epsilon"] * (1 + 1e-9)
                            seen["replaced"] += 1
    return seen


def test_presence_beside_bounds_costs_no_more_than_is_quoted() -> None:
    seen = presence_worlds(15, seed=4)
    assert min(seen["alone"], seen["replaced"]) > 5


@pytest.mark.slow
def test_presence_in_many_worlds() -> None:
    seen = presence_worlds(150, seed=5)
    assert min(seen["alone"], seen["replaced"]) > 50
