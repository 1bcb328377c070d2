"""Vacuity checks against enumeration of every data set."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from das.accounting.small_table.dataspace import TableFacts, data_space, semi_adjacency
from das.accounting.small_table.margins import margin_invariants
from das.accounting.vacuity import NestedTotals, cell_ranges, table_vacuity
from das.errors import ConfigError, InfeasibleError

SQUARE = margin_invariants((2, 2), [(0,), (1,)])


def coverage_by_counting(facts: TableFacts) -> Fraction:
    space = data_space(facts)
    pairs = [(c, y) for c in facts.allowed for y in facts.allowed if c != y and space[:, c].any()]
    return Fraction(sum(bool(space[:, y].any()) for _, y in pairs), len(pairs)) if pairs else Fraction(0)


@st.composite
def facts_with_data(draw: st.DrawFn) -> TableFacts:
    cells = draw(st.integers(2, 4))
    rows = draw(st.lists(st.tuples(*[st.integers(0, 1)] * cells), max_size=3))
    data = draw(st.lists(st.integers(0, cells - 1), min_size=1, max_size=4))
    free = sorted(set(range(cells)) - set(data))
    zeros = frozenset(draw(st.lists(st.sampled_from(free), max_size=1))) if free else frozenset()
    return TableFacts(
        cells=cells,
        invariants=tuple(rows),
        values=tuple(sum(row[c] for c in data) for row in rows),
        records=len(data),
        zeros=zeros,
    )


@settings(max_examples=40)
@given(facts_with_data())
def test_checks_equal_enumeration(facts: TableFacts) -> None:
    space = data_space(facts)
    assert cell_ranges(facts) == tuple((int(c.min()), int(c.max())) for c in space.T)
    got = table_vacuity(facts)
    assert got.vacuous == (len(space) == 1)
    assert got.coverage == (coverage_by_counting(facts) if len(facts.allowed) > 1 else 0)


def test_a_zero_row_determines_the_table() -> None:
    facts = TableFacts(cells=4, invariants=SQUARE, values=(3, 0, 2, 1), records=3)
    got = table_vacuity(facts)
    assert got.vacuous
    assert got.pinned == (0, 1, 2, 3)
    # 4 of the 6 pairs cannot be hidden
    assert got.coverage == Fraction(2, 6)
    # and yet people can swap labels: anonymity only
    assert semi_adjacency(facts) == 2


def test_one_record_with_margins_hides_nothing() -> None:
    facts = TableFacts(cells=4, invariants=SQUARE, values=(1, 0, 1, 0), records=1)
    assert table_vacuity(facts).coverage == 0
    assert semi_adjacency(facts) == 0


def test_an_ordinary_table_is_not_vacuous() -> None:
    got = table_vacuity(TableFacts(cells=4, invariants=SQUARE, values=(2, 1, 2, 1), records=3))
    assert not got.vacuous
    assert got.pinned == got.unprotected == ()
    assert got.coverage == 1


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), min_size=1, max_size=3))
def test_nested_totals_equal_the_table(classes: list[tuple[int, int]]) -> None:
    totals, cells = zip(*classes, strict=True)
    if not sum(totals):
        return
    owner = [k for k, n in enumerate(cells) for _ in range(n)]
    facts = TableFacts(
        cells=len(owner),
        invariants=tuple(tuple(int(o == k) for o in owner) for k in range(len(cells))),
        values=totals,
        records=sum(totals),
    )
    parts = [NestedTotals.of(np.array([n]), np.array([k])) for n, k in classes]
    nested, table = sum(parts, NestedTotals()), table_vacuity(facts)
    assert nested.vacuous == table.vacuous
    assert nested.coverage == table.coverage
    assert len({owner[c] for c in table.pinned}) == nested.pinned
    assert len({owner[c] for c in table.unprotected}) == nested.unprotected


def test_bad_facts_are_named_errors() -> None:
    with pytest.raises(InfeasibleError, match="no data set"):
        table_vacuity(TableFacts(cells=2, invariants=((1, 1),), values=(3,), records=2))
    with pytest.raises(ConfigError, match="published values"):
        table_vacuity(TableFacts(cells=2))
    with pytest.raises(ConfigError, match="negative"):
        NestedTotals.of(np.array([-1]), np.array([2]))
