"""No data set is refused: random worlds, sparse and crowded, in extended range; the small ones table by table."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from itertools import count, pairwise, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from das.congenial.extended_family import ExtendedFamily, FromAbove, Placed, SentFunctions
from das.congenial.family import Box, Family
from das.congenial.function_store import WindowTooSmall
from das.noise.stream import RunKey, Streams
from das.plan.geography import spine_of
from das.plan.plan import Plan
from das.plan.tree_of_counts import TreeOfCounts, tree_of
from das.schema.limits import NO_LIMIT
from das.storage.shards import families

Table = NDArray[np.int64]
REACHES = (20.0, 40.0, 80.0, 160.0, 320.0)
SCHEMA = {"attribute": [{"name": "sex", "labels": ["f", "m"]}]}
LEVELS = [{"name": "state", "width": 1}, {"name": "county", "width": 1}, {"name": "block", "width": 3}]
QUERIES = (
    {"all": {"detailed": "1"}},
    {"state": {"total": "1"}, "county": {"total": "1"}, "block": {"total": "1/3", "detailed": "2/3"}},
    {"state": {"total": "1"}, "county": {"total": "1/2", "sex": "1/2"}, "block": {"sex": "1"}},
)
BOUNDED = {"all": {"total": "1"}, "block": {"detailed": "1"}}
SHARES = (("1/6", "1/3", "1/2"), ("1/20", "1/20", "9/10"), ("9/10", "1/20", "1/20"))
BUDGETS = {"zcdp": ("1/10000", "1/100", "1", "5"), "pure": ("1", "2", "8", "16")}


def plan_of(
    country: Any,
    blocks: list[int],
    framework: str,
    budget: str,
    shares: tuple[str, ...] = SHARES[0],
    queries: dict[str, Any] | None = None,
    fixed: str | None = "state",
    room: int | None = None,
) -> Plan:
    """A country with so many blocks in each county, and the congenial method."""
    codes = [f"0{county}{block:03d}" for county, size in enumerate(blocks) for block in range(size)]
    country.file("units.csv", "geocode\n" + "".join(f"{code}\n" for code in codes))
    country.file("rooms.csv", "geocode,total\n" + "".join(f"{code},{room}\n" for code in codes))
    bound = [{"query": "total", "level": "block", "sense": "<=", "source": "rooms.csv"}] if room else []
    return country.plan(
        schema=SCHEMA,
        geography={"units": "units.csv", "levels": LEVELS},
        privacy={"framework": framework, ("rho" if framework == "zcdp" else "epsilon"): budget},
        estimate={"method": "congenial"},
        strategy={
            "geolevels": dict(zip(("state", "county", "block"), shares, strict=True)),
            "queries": queries or QUERIES[0],
        },
        invariant=[{"query": "total", "level": fixed, "reason": "law"}] if fixed else [],
        bound=bound,
    )


class World:
    """A plan, its spine, and true counts (blocks x cells)."""

    def __init__(self, plan: Plan, truth: Table, room: int | None = None) -> None:
        self.plan, self.spine, self.truth, self.room = plan, spine_of(plan), truth, room
        self.layers: TreeOfCounts = tree_of(plan)

    def families(self, level: str, reach: float = 0.0) -> Iterator[tuple[int, int, Family]]:
        """The families of a level: the parent's position, the first child's, and the family."""
        offsets = families(self.spine, level)
        ranges = self.spine.leaf_ranges(level)
        counts = np.stack([self.truth[a:b].sum(axis=0) for a, b in pairwise(ranges)])
        depth = self.spine.levels.index(level)
        for parent, (first, stop) in enumerate(pairwise(offsets.tolist())):
            truth = tuple(layer.query.answer(counts[first:stop]) for layer in self.layers[level])
            boxes = []
            for layer, true in zip(self.layers[level], truth, strict=True):
                known = [i for i in self.plan.invariants if (i.level, i.query.name) == (level, layer.query.name)]
                bounded = [b for b in self.plan.bounds if (b.level, b.query.name) == (level, layer.query.name)]
                open_ = np.full(true.shape, self.room if bounded else NO_LIMIT, dtype=np.int64)
                boxes.append(Box(true, true) if known else Box(np.zeros_like(true), open_))
            name = str(self.spine.geocodes(self.spine.levels[depth - 1])[parent]) if depth else ""
            codes = tuple(self.spine.geocodes(level)[first:stop].tolist())
            splits = self.layers.splits(self.spine)
            yield (
                parent,
                first,
                Family(
                    layers=self.layers[level],
                    geocodes=codes,
                    parent=name,
                    truth=truth,
                    boxes=tuple(boxes),
                    reach=reach,
                    splits=splits,
                ),
            )

    def up(self, level: str, parent: int, message: Any) -> dict[tuple[str, int], Any]:
        depth = self.spine.levels.index(level)
        return {(self.spine.levels[depth - 1], parent): message} if depth else {}

    def draw(self, weighed: dict[tuple[str, int], tuple[Any, Any]], streams: Streams) -> Table:
        """Backward sampling; the cells of the blocks."""
        above: dict[int, Table] = {}
        for level in self.spine.levels:
            drawn: dict[int, Table] = {}
            for parent, first, _ in self.families(level):
                family, messages = weighed[level, parent]
                if level == self.spine.levels[0]:
                    coarsest = family.draw_roots(messages, streams)
                else:
                    coarsest = family.draw(messages, above[parent], streams)
                drawn |= {first + k: row for k, row in enumerate(family.refine(messages, coarsest, streams))}
            above = drawn
        return np.stack([above[k] for k in range(len(above))])

    def in_doubles(self) -> Any:
        """The forward pass in doubles at the first reach that holds, or None."""
        for reach in REACHES:
            below: dict[tuple[str, int], Any] = {}
            weighed = {}
            try:
                for level in reversed(self.spine.levels):
                    sent: dict[tuple[str, int], Any] = {}
                    for parent, first, family in self.families(level, reach):
                        mine = [below[level, first + k] for k in range(len(family.geocodes))] if below else None
                        weighed[level, parent] = family, family.forward_pass(mine)
                        depth = self.spine.levels.index(level)
                        if depth:
                            above = self.layers[self.spine.levels[depth - 1]][-1]
                            sent |= self.up(level, parent, family.send_up(weighed[level, parent][1], above))
                    below = sent
                top, messages = weighed[self.spine.levels[0], 0]
                top.draw_roots(messages, RunKey.for_testing("holds").streams(b""))
                return weighed
            except WindowTooSmall:
                continue
        return None

    def extended(self) -> Any:
        """The forward pass in extended range, with the first factor that holds."""
        for k in count():
            try:
                weighed = self.extended_with(2.0**k)
                family, messages = weighed[self.spine.levels[0], 0]
                family.draw_roots(messages, RunKey.for_testing("holds").streams(b""))
                return weighed
            except WindowTooSmall:
                continue
        raise AssertionError

    def extended_with(self, factor: float) -> dict[tuple[str, int], tuple[Any, Any]]:
        cumulants, below = {}, {}
        for level in reversed(self.spine.levels):
            sent: dict[tuple[str, int], Any] = {}
            for parent, first, family in self.families(level):
                mine = [below[level, first + k] for k in range(len(family.geocodes))] if below else None
                found = ExtendedFamily(family, factor).cumulants(mine)
                cumulants[level, parent] = found
                sent |= self.up(level, parent, found[0].own.sum(axis=0))
            below = sent
        placed: dict[tuple[str, int], Placed] = {}
        passed: dict[int, FromAbove] = {}
        for level in self.spine.levels:
            down = {}
            for parent, first, family in self.families(level):
                extended = ExtendedFamily(family, factor)
                placed[level, parent], to = extended.place(cumulants[level, parent], passed.get(parent))
                down |= {first + k: each for k, each in enumerate(to)}
            passed = down
        weighed: dict[tuple[str, int], tuple[Any, Any]] = {}
        messages: dict[tuple[str, int], SentFunctions] = {}
        for level in reversed(self.spine.levels):
            sent = {}
            for parent, first, family in self.families(level):
                extended, windows = ExtendedFamily(family, factor), placed[level, parent]
                mine = [messages[level, first + k] for k in range(len(family.geocodes))] if messages else None
                weighed[level, parent] = extended, extended.forward_pass(windows, mine)
                if windows.above is not None:
                    sent |= self.up(level, parent, extended.send_up(weighed[level, parent][1], windows.sums))
            messages = sent
        return weighed

    def law(self) -> dict[bytes, float]:
        """The conditioned law by its definition: every table that keeps the facts, weighed by the noise."""
        weights = {}
        for cells in product(range(int(self.truth.sum()) + 1), repeat=self.truth.size):
            if sum(cells) != self.truth.sum():
                continue
            table = np.array(cells).reshape(self.truth.shape)
            if not self.keeps(table):
                continue
            log = 0.0
            for measured in self.plan.measurements:
                for a, b in pairwise(self.spine.leaf_ranges(measured.level)):
                    noise = measured.query.answer((table - self.truth)[a:b].sum(axis=0))
                    log += float(measured.mechanism.log_pmf(noise).sum())
            weights[table.tobytes()] = log
        largest = max(weights.values())
        total = math.fsum(math.exp(log - largest) for log in weights.values())
        return {table: math.exp(log - largest) / total for table, log in weights.items()}

    def keeps(self, table: Table) -> bool:
        if self.room is not None and (table.sum(axis=1) > self.room).any():
            return False
        for fact in self.plan.invariants:
            for a, b in pairwise(self.spine.leaf_ranges(fact.level)):
                if (fact.query.answer((table - self.truth)[a:b].sum(axis=0)) != 0).any():
                    return False
        return True


def streams_of(name: str) -> Streams:
    return RunKey.for_testing(name).streams(b"test")


def small(country: Any, seed: int) -> World:
    """A world small enough to list its tables: three blocks of two cells, at most four people."""
    rng = np.random.default_rng(seed)
    framework = ("zcdp", "pure")[seed % 2]
    room = 4 if rng.random() < 0.3 else None
    queries = BOUNDED if room else QUERIES[rng.integers(3)]
    fixed = "state" if queries is QUERIES[0] else ("state", "county")[rng.integers(2)]
    plan = plan_of(
        country,
        [2, 1],
        framework,
        str(rng.choice(BUDGETS[framework])),
        SHARES[rng.integers(3)],
        queries,
        fixed,
        room,
    )
    truth = np.zeros(6, dtype=np.int64)
    people = int(rng.integers(1, 5))
    places = np.full(people, rng.integers(6)) if rng.random() < 0.4 else rng.integers(0, 6, people)
    np.add.at(truth, places, 1)
    return World(plan, truth.reshape(3, 2), room)


def crowded(country: Any, seed: int) -> World:
    """A world of empty blocks with everybody in one of them, or in two, and a total that is known or not."""
    rng = np.random.default_rng(seed)
    framework = ("zcdp", "pure")[seed % 2]
    blocks = [int(rng.integers(1, 30)) for _ in range(int(rng.integers(1, 4)))]
    fixed = (None, "state", "county")[rng.integers(3)]
    queries = BOUNDED if fixed == "county" else QUERIES[0]
    budget = str(rng.choice(BUDGETS[framework]))
    plan = plan_of(country, blocks, framework, budget, SHARES[rng.integers(3)], queries, fixed)
    truth = np.zeros((sum(blocks), 2), dtype=np.int64)
    for _ in range(int(rng.integers(1, 3))):
        truth[rng.integers(len(truth)), rng.integers(2)] += int(10 ** rng.uniform(0, 4))
    return World(plan, truth)


def uniforms(world: World, draws: int, name: str) -> list[float]:
    """Where each draw stands in its law, from rare to common: uniform if, and only if, the law is right."""
    law, weighed = world.law(), world.extended()
    order = sorted(law, key=lambda table: (law[table], table))
    start = dict(zip(order, np.cumsum([0.0, *(law[table] for table in order)]).tolist(), strict=False))
    rng = np.random.default_rng(zlib.crc32(name.encode()))  # other numbers in each world
    seen = [world.draw(weighed, streams_of(f"{name} {k}")).tobytes() for k in range(draws)]
    return [start[table] + law[table] * rng.random() for table in seen]


def p_value(found: list[float]) -> float:
    cells = np.bincount((np.array(found) * 20).astype(np.int64).clip(0, 19), minlength=20)
    expected = len(found) / 20
    return float(chi2.sf(((cells - expected) ** 2 / expected).sum(), 19))


def check_crowded(world: World, name: str) -> bool:
    """Draw once; where doubles hold, they draw the same. Return whether they do."""
    drawn = world.draw(world.extended(), streams_of(name))
    assert (drawn >= 0).all()
    assert world.keeps(drawn)
    doubles = world.in_doubles()
    if doubles is not None:
        assert np.array_equal(world.draw(doubles, streams_of(name)), drawn)
    return doubles is not None


@pytest.mark.slow
def test_draws_of_random_worlds_follow_the_enumerated_law(country: Any) -> None:
    found = [u for seed in range(14) for u in uniforms(small(country, seed), 20, f"small {seed}")]
    assert p_value(found) > 1e-6
    world, wrong = small(country, 3), small(country, 3)
    wrong.truth = world.truth[::-1].copy()  # the law of other true counts is noticed
    law, weighed = wrong.law(), world.extended()
    logs = [np.log(law.get(world.draw(weighed, streams_of(f"w {k}")).tobytes(), 1e-300)) for k in range(40)]
    right = [np.log(p) * p for p in world.law().values()]
    assert np.mean(logs) < sum(right) - 0.5


@pytest.mark.slow
def test_no_random_world_is_refused(country: Any) -> None:
    held = [check_crowded(crowded(country, seed), f"crowd {seed}") for seed in range(14)]
    assert any(held)
    assert not all(held)  # some of them doubles do not hold at any reach


@pytest.mark.slow
def test_two_neighbours_are_both_drawn_where_doubles_hold_neither_or_one(country: Any) -> None:
    """A thousand people in one block of fifty, epsilon 2: the data that used to be refused."""
    plan = plan_of(country, [10] * 5, "pure", "2")
    truth = np.zeros((50, 2), dtype=np.int64)
    truth[0, 0] = 1000
    moved = truth.copy()
    moved[0, 0], moved[7, 1] = 999, 1
    assert World(plan, truth).in_doubles() is None
    for each in (truth, moved):
        world = World(plan, each)
        drawn = world.draw(world.extended(), streams_of("neighbours"))
        assert drawn.sum() == 1000
        assert world.keeps(drawn)


@pytest.mark.slow
def test_a_thousand_million_people_in_one_cell(country: Any) -> None:
    plan = plan_of(country, [3, 3], "zcdp", "1")
    truth = np.zeros((6, 2), dtype=np.int64)
    truth[4, 1] = 10**9
    assert check_crowded(World(plan, truth), "many")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_refusal_in_a_thousand_random_worlds(country: Any) -> None:
    found = [u for seed in range(500) for u in uniforms(small(country, seed), 20, f"small {seed}")]
    assert p_value(found) > 1e-6
    held = [check_crowded(crowded(country, seed), f"crowd {seed}") for seed in range(500)]
    assert 0 < sum(held) < len(held)
