"""Public bounds: one compensating record is enough where facts nest, by enumeration; where they cross it may not be."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from das.accounting.bounds import compensation_is_proved, crossing_facts
from das.accounting.events import GaussianEvent
from das.accounting.hierarchy import HierarchicalPlan
from das.accounting.moves import adjacency
from das.accounting.small_table.dataspace import TableFacts, data_space, semi_adjacency

QUERIES = {"total": (None, None), "sex": ((0, 1), None), "age": (None, (0, 1, 2)), "both": ((0, 1), (0, 1, 2))}


def nested_family(rng: random.Random, cells: int, wanted: int) -> list[tuple[int, ...]]:
    """Sets of cells that nest, as rows of zeros and ones: the parts of parts of all cells."""
    family: list[list[int]] = []

    def split(part: list[int]) -> None:
        if len(part) > 1:
            shuffled = rng.sample(part, len(part))
            at = rng.randint(1, len(part) - 1)
            for half in (shuffled[:at], shuffled[at:]):
                family.append(half)
                split(half)

    split(list(range(cells)))
    chosen = rng.sample(family, min(wanted, len(family)))
    return [tuple(int(cell in part) for cell in range(cells)) for part in chosen]


def world(rng: random.Random, rows: list[tuple[int, ...]], cells: int, records: int) -> TableFacts:
    """Public facts on these sets that a random data set keeps: exact, or bounds that are often tight."""
    truth = Counter(rng.randrange(cells) for _ in range(records))
    invariants, values, bounds = [], [], []
    for row in rows:
        count = sum(truth[cell] for cell in range(cells) if row[cell])
        if rng.random() < 0.25:
            invariants.append(row)
            values.append(count)
        else:
            high = rng.randint(count, count + 1) if rng.random() < 0.7 else records
            bounds.append((row, rng.randint(max(0, count - 1), count), high))
    free = [cell for cell in range(cells) if not truth[cell]]
    return TableFacts(
        cells=cells,
        invariants=tuple(invariants),
        values=tuple(values),
        records=records,
        bounds=tuple(bounds),
        zeros=frozenset(free[:1] if rng.random() < 0.2 else ()),
    )


def found_adjacencies(worlds: int, seed: int) -> Counter[int]:
    rng = random.Random(seed)
    found: Counter[int] = Counter()
    for _ in range(worlds):
        cells, records = rng.randint(3, 5), rng.randint(1, 4)
        facts = world(rng, nested_family(rng, cells, rng.randint(1, 5)), cells, records)
        found[semi_adjacency(facts)] += 1
    return found


def test_one_compensating_record_is_enough_where_facts_nest() -> None:
    found = found_adjacencies(100, seed=1)
    assert max(found) == 2
    assert found[2] > 40  # bounds that bind are among them


@pytest.mark.slow
def test_one_compensating_record_is_enough_in_five_hundred_worlds() -> None:
    found = found_adjacencies(500, seed=2)
    assert max(found) == 2
    assert found[2] > 200


def test_no_number_need_be_known_for_it() -> None:
    """Also where every class holds exactly what its lower bounds ask for, the theorem holds."""
    groups = ((1, 1, 0, 0), (0, 0, 1, 1))
    facts = TableFacts(
        cells=4, values=(), records=3, bounds=tuple((row, low, 3) for row, low in zip(groups, (1, 2), strict=True))
    )
    assert semi_adjacency(facts) == 2


def test_the_exchange_theorem_itself() -> None:
    """For x and x'' and every y with x''_y > x_y, some v with x_v > x''_v: x + e_y - e_v keeps all facts."""
    rng = random.Random(3)
    checked = 0
    for _ in range(60):
        cells = rng.randint(3, 5)
        space = data_space(world(rng, nested_family(rng, cells, 4), cells, rng.randint(1, 4)))
        members = {tuple(row) for row in space.tolist()}
        for x in space:
            for other in space:
                for y in np.flatnonzero(other > x):
                    swaps = (x + np.eye(cells, dtype=int)[y] - np.eye(cells, dtype=int)[v]
                             for v in np.flatnonzero(x > other))  # fmt: skip
                    assert any(tuple(swap.tolist()) in members for swap in swaps)
                    checked += 1
    assert checked > 500


def test_presence_needs_at_most_one_replacement() -> None:
    """Without a fixed number of records: x - e_c keeps the bounds, or x - e_c + e_v does for some v."""
    rng = random.Random(4)
    taken_alone = replaced = 0
    for _ in range(60):
        cells, rows = 4, None
        rows = nested_family(rng, cells, 3)
        facts = world(rng, rows, cells, 3)
        bounds = [*facts.bounds, *((row, v, v) for row, v in zip(facts.invariants, facts.values or (), strict=True))]
        spaces = [
            data_space(TableFacts(cells=cells, values=(), records=n, bounds=tuple(bounds), zeros=facts.zeros))
            for n in range(1, 6)
            if _is_possible(cells, n, tuple(bounds), facts.zeros)
        ]
        members = {tuple(row) for space in spaces for row in space.tolist()}
        for x in members:
            for c in range(cells):
                if not x[c]:
                    continue
                less = tuple(n - (cell == c) for cell, n in enumerate(x))
                if sum(less) and less in members:
                    taken_alone += 1
                elif sum(less):
                    assert any(tuple(n + (cell == v) for cell, n in enumerate(less)) in members for v in range(cells))
                    replaced += 1
    assert taken_alone > 50
    assert replaced > 50


def _is_possible(cells: int, records: int, bounds: tuple[tuple[tuple[int, ...], int, int], ...], zeros: object) -> bool:
    try:
        data_space(TableFacts(cells=cells, values=(), records=records, bounds=bounds, zeros=frozenset(zeros)))
    except Exception:  # no data set agrees with the facts
        return False
    return True


def test_crossing_bounds_may_need_two_others() -> None:
    """The example of the note: at most one record in A or B, at most one in B or D, three records."""
    facts = TableFacts(cells=4, values=(), records=3, bounds=(((1, 1, 0, 0), 0, 1), ((0, 1, 0, 1), 0, 1)))
    assert semi_adjacency(facts) == 3


def hierarchy(invariants: object, bounds: object, units: tuple[int, ...] = (1, 3, 9)) -> HierarchicalPlan:
    event = GaussianEvent(level="block", query="both", sigma2=Fraction(4))
    return HierarchicalPlan(
        levels=("state", "county", "block"),
        units=units,
        attributes=(("sex", 2), ("age", 3)),
        queries=QUERIES,
        events=(event,),
        invariants=tuple(invariants),
        bounds=tuple(bounds),
    )


@pytest.mark.parametrize(
    ("invariants", "bounds", "nest"),
    [
        ([("state", "total")], [("block", "sex")], True),
        ([("state", "total"), ("county", "sex")], [("county", "both"), ("block", "both")], True),
        ([("county", "total")], [("state", "sex")], False),
        ([], [("block", "sex"), ("block", "age")], False),
        ([], [("county", "sex"), ("block", "total")], False),
        ([("block", "total")], [("block", "sex")], True),
    ],
)
def test_whether_facts_nest_is_decided_from_the_declarations(invariants: object, bounds: object, nest: bool) -> None:
    plan = hierarchy(invariants, bounds)
    assert (not crossing_facts(plan)) is nest
    assert compensation_is_proved(plan) is nest
    assert adjacency(plan) == 2


def test_levels_with_the_same_geounits_are_one_level() -> None:
    assert crossing_facts(hierarchy([], [("county", "sex"), ("block", "total")], units=(1, 3, 3))) == ()


def crosses(one: set[int], two: set[int]) -> bool:
    return bool(one & two and one - two and two - one)


@pytest.mark.parametrize("seed", range(8))
def test_declared_nesting_is_nesting_of_the_sets(seed: int) -> None:
    """Whatever is declared to nest does so as sets of (block, cell), written out."""
    rng = random.Random(seed)
    pairs = [(level, query) for level in ("state", "county", "block") for query in QUERIES]
    plan = hierarchy([], rng.sample(pairs, 3))
    cells = [(sex, age) for sex in range(2) for age in range(3)]
    parts = {"state": 9, "county": 3, "block": 1}

    def sets_of(level: str, query: str) -> list[set[int]]:
        maps = QUERIES[query]
        found: dict[tuple[int, ...], set[int]] = {}
        for block in range(9):
            for number, cell in enumerate(cells):
                key = [block // parts[level], *(m[v] for m, v in zip(maps, cell, strict=True) if m is not None)]
                found.setdefault(tuple(key), set()).add(block * 6 + number)
        return list(found.values())

    everything = [part for pair in plan.bounds for part in sets_of(*pair)]
    crossing = any(crosses(one, two) for one in everything for two in everything)
    assert crossing == bool(crossing_facts(plan))
