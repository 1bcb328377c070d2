"""Moves, classes and a(t) against brute force and against known tables."""

from __future__ import annotations

from itertools import permutations, product
from math import comb, factorial, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from das.accounting.small_table.dataspace import TableFacts, data_space, semi_adjacency
from das.accounting.small_table.enumeration import (
    irreducible_moves,
    irreducible_relabellings,
    net_moves,
    record_classes,
    sensitivity,
)
from das.accounting.small_table.margins import cycle_moves, margin_invariants, two_way_adjacency
from das.errors import ConfigError, InfeasibleError

PER_GEOGRAPHY = ((1, 1, 1, 0, 0, 0), (0, 0, 0, 1, 1, 1))


def norms(moves: np.ndarray, workload: object = None) -> tuple[float, float, float]:
    l1, l2_squared, linf = sensitivity(moves, workload)
    return (l1, sqrt(l2_squared), linf)


def move_rank(moves: np.ndarray) -> int:
    """Dimension of the space that the moves span: how many numbers the invariants leave free."""
    return int(np.linalg.matrix_rank(moves)) if len(moves) else 0


def cycle_count(rows: int, columns: int, q: int) -> int:
    """Number of cycles: choose the rows and columns, then one of ``q! (q-1)! / 2`` cycles, in two directions."""
    return comb(rows, q) * comb(columns, q) * factorial(q) * factorial(q - 1)


def brute_force_databases(facts: TableFacts) -> list[tuple[int, ...]]:
    """All ordered databases that agree with the facts: the definition, with no histogram trick."""
    allowed = [
        x
        for x in product(facts.allowed, repeat=facts.records)
        if all(sum(row[c] for c in x) == v for row, v in zip(facts.invariants, facts.values, strict=True))
        and all(low <= sum(row[c] for c in x) <= high for row, low, high in facts.bounds)
    ]
    return allowed


def brute_force_adjacency(facts: TableFacts) -> int:
    databases = brute_force_databases(facts)
    largest = 0
    for x in databases:
        for i in range(len(x)):
            for y in {other[i] for other in databases} - {x[i]}:
                distances = [sum(a != b for a, b in zip(x, z, strict=True)) for z in databases if z[i] == y]
                largest = max(largest, min(distances))
    return largest


def brute_force_irreducible(facts: TableFacts, size: int) -> set[tuple[int, ...]]:
    """Nets of irreducible relabellings over cells, by trying every list of record changes."""
    found = set()
    changes = [(c, y) for c in facts.allowed for y in facts.allowed if c != y]
    columns = np.array(facts.invariants, dtype=int).reshape(len(facts.invariants), facts.cells)

    def keeps(part: tuple[tuple[int, int], ...]) -> bool:
        return not np.any(sum((columns[:, y] - columns[:, c] for c, y in part), np.zeros(len(columns), dtype=int)))

    for h in range(1, size + 1):
        for some in product(changes, repeat=h):
            if list(some) != sorted(some) or not keeps(some):
                continue
            parts = product([False, True], repeat=h)
            if any(
                any(chosen) and not all(chosen) and keeps(tuple(c for c, k in zip(some, chosen, strict=True) if k))
                for chosen in parts
            ):
                continue
            net = np.zeros(facts.cells, dtype=int)
            for c, y in some:
                net[c] -= 1
                net[y] += 1
            if net.any():
                found.add(tuple(net.tolist()))
    return found


def facts_of(shape: tuple[int, ...], *kept: tuple[int, ...], **more: object) -> TableFacts:
    return TableFacts(cells=int(np.prod(shape)), invariants=margin_invariants(shape, kept), **more)


# --- name, facts, a(t), norms inside classes, across classes and in the ball, rank

SUBSTITUTION = (2, sqrt(2), 1)
TABLE = [
    ("none", TableFacts(cells=5, values=(), records=3), 1, SUBSTITUTION, None, SUBSTITUTION, 4),
    (
        "total per geography",
        TableFacts(cells=6, invariants=PER_GEOGRAPHY, values=(2, 2), records=4),
        2, SUBSTITUTION, (4, 2, 1), (4, 2 * sqrt(2), 2), 4,
    ),
    (
        "one-way margins, 2 by 2",
        facts_of((2, 2), (0,), (1,), values=(2, 1, 2, 1), records=3),
        3, None, (4, 2, 1), (4, 2, 1), 1,
    ),
    (
        "one-way margins, 3 by 3",
        facts_of((3, 3), (0,), (1,), values=(1,) * 6, records=3),
        3, None, (6, sqrt(6), 1), (6, sqrt(6), 1), 4,
    ),
    (
        "all two-way margins, 2 by 2 by 2",
        facts_of((2, 2, 2), (0, 1), (0, 2), (1, 2), values=(1,) * 12, records=4),
        4, None, (8, 2 * sqrt(2), 1), (8, 2 * sqrt(2), 1), 1,
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_the_table_of_sensitivity_spaces(row: tuple) -> None:
    _, facts, a, within, across, ball, rank = row
    assert semi_adjacency(facts) == a
    whole = net_moves(facts, a)
    single = net_moves(facts, 1)
    assert norms(whole) == pytest.approx(ball)
    assert norms(single) == pytest.approx(within or (0, 0, 0))
    assert move_rank(whole) == rank
    if across is not None:
        crossing = [r for r in irreducible_relabellings(facts, a) if len(r) > 1]
        assert crossing
        assert norms(irreducible_moves(facts, a)) == pytest.approx(across)


def test_queries_above_the_geographies() -> None:
    facts = TableFacts(cells=6, invariants=PER_GEOGRAPHY)
    national = np.hstack([np.eye(3, dtype=int)] * 2)
    assert norms(irreducible_moves(facts, 2), national) == pytest.approx((4, 2 * sqrt(2), 2))
    assert norms(net_moves(facts, 2), PER_GEOGRAPHY) == (0, 0, 0)


def test_one_way_margins_of_three_attributes() -> None:
    facts = facts_of((2, 2, 2), (0,), (1,), (2,), values=(3, 1) * 3, records=4)
    assert semi_adjacency(facts) == 4  # the bound J + 1 of moves.md, for J = 3 attributes
    assert norms(net_moves(facts, 2)) == pytest.approx((4, 2, 1))
    assert norms(net_moves(facts, 3)) == pytest.approx((6, 2 * sqrt(2), 2))
    assert norms(net_moves(facts, 4)) == pytest.approx((8, 4, 2))
    assert move_rank(net_moves(facts, 4)) == 4


def test_sex_total_and_voting_age_total() -> None:
    # two sexes, three ages of which the last two may vote: classes of 1, 2, 1, 2 cells, three independent constraints
    facts = TableFacts(
        cells=6, invariants=((1, 1, 1, 0, 0, 0), (0, 1, 1, 0, 1, 1), (1,) * 6), values=(2, 2, 4), records=4
    )
    assert [len(cells) for cells in record_classes(facts)] == [1, 2, 1, 2]
    assert semi_adjacency(TableFacts(cells=6, invariants=facts.invariants, values=(1, 1, 3), records=3)) == 3
    assert norms(net_moves(facts, 3)) == pytest.approx((6, 3 * sqrt(2), 3))
    assert move_rank(net_moves(facts, 3)) == 6 - 3
    # size 2 gives squares only, size 3 more: see moves.md
    assert norms(irreducible_moves(facts, 2)) == pytest.approx((4, 2, 1))
    assert norms(irreducible_moves(facts, 3)) == pytest.approx((6, 2 * sqrt(2), 2))
    assert {tuple(m) for m in irreducible_moves(facts, 3)} == brute_force_irreducible(facts, 3)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (facts_of((2, 2), (0,), (1,), values=(2, 1, 2, 1), records=3), 3),
        (facts_of((3, 3), (0,), (1,), values=(1,) * 6, records=3), 3),
        (facts_of((2, 2), (0,), (1,), values=(2, 2, 2, 2), records=4), 2),
        (facts_of((2, 2, 2), (0,), (1,), (2,), values=(3, 1) * 3, records=4), 4),
        (TableFacts(cells=4, invariants=((1, 1, 0, 0), (0, 0, 1, 1)), values=(1, 2), records=3), 2),
    ],
)
def test_adjacency_is_the_definition(facts: TableFacts, expected: int) -> None:
    assert semi_adjacency(facts) == expected == brute_force_adjacency(facts)


@st.composite
def small_facts(draw: st.DrawFn) -> TableFacts:
    cells = draw(st.integers(2, 4))
    rows = draw(st.lists(st.tuples(*[st.integers(-1, 2)] * cells), max_size=2))
    data = draw(st.lists(st.integers(0, cells - 1), min_size=1, max_size=4))
    bound = draw(st.lists(st.tuples(*[st.integers(0, 1)] * cells), max_size=1))
    return TableFacts(
        cells=cells,
        invariants=tuple(rows),
        values=tuple(sum(row[c] for c in data) for row in rows),
        records=len(data),
        bounds=tuple((row, min(1, sum(row[c] for c in data)), sum(row[c] for c in data) + 1) for row in bound),
    )


@settings(max_examples=60)
@given(facts=small_facts())
def test_any_small_system_equals_brute_force(facts: TableFacts) -> None:
    databases = brute_force_databases(facts)
    histograms = {tuple(np.bincount(x, minlength=facts.cells).tolist()) for x in databases}
    assert {tuple(x) for x in data_space(facts).tolist()} == histograms
    a = semi_adjacency(facts)
    assert a == brute_force_adjacency(facts)
    moves = {tuple(m) for m in net_moves(facts, 3).tolist()}
    for x, z in permutations(histograms, 2):
        difference = tuple(b - a for a, b in zip(x, z, strict=True))
        if sum(map(abs, difference)) <= 6:
            assert difference in moves
    assert {tuple(m) for m in irreducible_moves(facts, 2).tolist()} == brute_force_irreducible(facts, 2)
    assert {tuple(m) for m in irreducible_moves(facts, 2).tolist()} <= moves


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=5))
def test_two_way_adjacency_formula_equals_brute_force(people: list[tuple[int, int]]) -> None:
    rows = tuple(sum(r == k for r, _ in people) for k in range(3))
    columns = tuple(sum(c == k for _, c in people) for k in range(2))
    facts = facts_of((3, 2), (0,), (1,), values=(*rows, *columns), records=len(people))
    assert two_way_adjacency(rows, columns) == semi_adjacency(facts)


@pytest.mark.parametrize(
    ("k", "size", "expected"),
    [
        (2, 2, (4, 2.0, 1, 1, 2)),
        (3, 2, (4, 2.0, 1, 4, 18)),
        (4, 2, (4, 2.0, 1, 9, 72)),
        (4, 3, (6, sqrt(6), 1, 9, 264)),
    ],
)
def test_vectors_of_one_way_margins(k: int, size: int, expected: tuple[float, ...]) -> None:
    moves = net_moves(facts_of((k, k), (0,), (1,)), size)
    assert (*norms(moves), move_rank(moves), len(moves)) == pytest.approx(expected)


@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (3, 3), (3, 4)])
def test_squares_and_hexagons_are_the_irreducible_moves(rows: int, columns: int) -> None:
    facts = facts_of((rows, columns), (0,), (1,))
    squares, hexagons = cycle_moves(rows, columns, 2), cycle_moves(rows, columns, 3)
    assert len(squares) == cycle_count(rows, columns, 2)
    assert len(hexagons) == cycle_count(rows, columns, 3)
    both = {tuple(m) for m in np.vstack([squares, hexagons]).tolist()}
    assert {tuple(m) for m in net_moves(facts, 3).tolist()} == both
    assert {tuple(m) for m in irreducible_moves(facts, 3).tolist()} == both


def test_graver_basis_of_three_by_three_has_thirty_elements_none_of_degree_four() -> None:
    moves = [np.array(m) for m in net_moves(facts_of((3, 3), (0,), (1,)), 4)]
    minimal = [
        m
        for m in moves
        if not any(
            np.all(part * m >= 0) and np.all(np.abs(part) <= np.abs(m)) and not np.array_equal(part, m)
            for part in moves
            if np.abs(part).sum() < np.abs(m).sum()
        )
    ]
    assert len(minimal) == 30
    assert max(np.abs(m).sum() for m in minimal) == 6


def test_bounds_can_raise_the_adjacency() -> None:
    # one group quarters keeps at least one person: its only resident can leave only if somebody else arrives
    free = TableFacts(cells=2, records=2, values=())
    kept = TableFacts(cells=2, records=2, values=(), bounds=(((1, 0), 1, 2), ((0, 1), 1, 2)))
    assert semi_adjacency(free) == 1
    assert semi_adjacency(kept) == 2


def test_bad_facts_are_named_errors() -> None:
    with pytest.raises(InfeasibleError, match="no data set"):
        data_space(TableFacts(cells=2, invariants=((1, 1),), values=(3,), records=2))
    with pytest.raises(ConfigError, match="not an integer"):
        TableFacts(cells=2, invariants=((1, 1),), values=(1.5,), records=2)
    with pytest.raises(ConfigError, match="3 weights for 2 cells"):
        TableFacts(cells=2, invariants=((1, 1, 1),))
    with pytest.raises(ConfigError, match="published values"):
        semi_adjacency(TableFacts(cells=2, invariants=((1, 1),)))
    with pytest.raises(ConfigError, match="low end"):
        TableFacts(cells=2, bounds=(((1, 1), 2, 1),))
    with pytest.raises(ConfigError, match="to enumerate"):
        net_moves(TableFacts(cells=400), 4)
    with pytest.raises(InfeasibleError, match="different sums"):
        two_way_adjacency((1, 2), (1, 1))
