"""One table of all accountants through one set of promises, and the costs of single events."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from das.accounting.agreement import refuse_disagreement
from das.accounting.events import (
    ACCOUNTANTS,
    Event,
    ExactEvent,
    GaussianEvent,
    KNormEvent,
    LaplaceEvent,
    NotSupported,
    UnknownEvent,
    pure_epsilon,
    total_loss,
    zcdp_rho,
)
from das.accounting.moves import Move, move_loss, worst_loss
from das.accounting.small_table.margins import cycle_moves
from das.errors import BudgetError, ConfigError

WHERE = {"level": "us", "query": "detailed"}
EVENTS: dict[str, Event] = {
    "discrete gaussian": GaussianEvent(**WHERE, sigma2=Fraction(3)),
    "gaussian": GaussianEvent(**WHERE, sigma2=Fraction(3), support="reals"),
    "double geometric": LaplaceEvent(**WHERE, scale=Fraction(5, 2)),
    "laplace": LaplaceEvent(**WHERE, scale=Fraction(5, 2), support="reals"),
    "k-norm": KNormEvent(**WHERE, epsilon=Fraction(1, 3), generators=((1, -1),)),
    "exact": ExactEvent(**WHERE),
    "unknown": UnknownEvent(**WHERE, description="another mechanism"),
}


@pytest.mark.parametrize("accountant", sorted(ACCOUNTANTS))
@pytest.mark.parametrize("name", sorted(EVENTS))
def test_conformance(accountant: str, name: str) -> None:
    cost, event = ACCOUNTANTS[accountant], EVENTS[name]
    nothing, once, twice = (cost(event, change) for change in ((0, 0), (1, -1), (2, -2)))
    if name == "unknown":
        # never zero, not even for a change that cannot be seen
        assert all(isinstance(loss, NotSupported) for loss in (nothing, once, twice))
        return
    assert nothing == 0
    if isinstance(once, NotSupported):
        assert (accountant, name) == ("gdp", "discrete gaussian")
        return
    assert once > 0
    assert twice >= once
    if once == math.inf:
        assert name == "exact" or (accountant == "pure" and "gaussian" in name)
    else:
        assert isinstance(once, Fraction)


def test_known_costs() -> None:
    assert zcdp_rho(EVENTS["discrete gaussian"], (1, -1)) == Fraction(1, 3)
    assert pure_epsilon(EVENTS["double geometric"], (1, -1, 1, -1)) == Fraction(8, 5)
    # the independent cells of a Laplace event cost less one by one than as one pure loss
    rho = zcdp_rho(EVENTS["laplace"], (1, -1))
    assert float(rho) == pytest.approx(2 * 0.4 * math.tanh(0.2))


def test_k_norms_of_two_way_margins() -> None:
    squares, hexagons = cycle_moves(3, 3, 2), cycle_moves(3, 3, 3)
    by_squares = KNormEvent(**WHERE, epsilon=Fraction(1), generators=tuple(map(tuple, squares.tolist())))
    by_hexagons = KNormEvent(**WHERE, epsilon=Fraction(1), generators=tuple(map(tuple, hexagons.tolist())))
    assert by_squares.norm(tuple(squares[0].tolist())) == 1
    assert by_squares.norm(tuple(hexagons[0].tolist())) == 2
    assert by_hexagons.norm(tuple(squares[0].tolist())) == Fraction(4, 3)
    assert by_squares.norm((1, -1, 0, 0, 0, 0, 0, 0, 0)) == math.inf
    assert isinstance(by_squares.norm((1, -1)), NotSupported)


@settings(max_examples=50)
@given(st.lists(st.integers(-4, 4), min_size=3, max_size=3).filter(lambda v: not sum(v)))
def test_root_polytope_norm_is_half_the_l1_norm(change: list[int]) -> None:
    roots = tuple(
        tuple(int(e) for e in np.eye(3, dtype=int)[i] - np.eye(3, dtype=int)[j]) for i, j in ((0, 1), (1, 2), (0, 2))
    )
    event = KNormEvent(**WHERE, epsilon=Fraction(1), generators=roots)
    assert event.norm(tuple(change)) == Fraction(sum(map(abs, change)), 2)


def test_sums_keep_unknown_and_infinite_apart() -> None:
    assert total_loss([]) == 0
    assert total_loss([Fraction(1), math.inf]) == math.inf
    assert isinstance(total_loss([math.inf, NotSupported("x")]), NotSupported)


def test_worst_of_no_moves_is_nothing_but_unknown_stays_unknown() -> None:
    assert worst_loss([], (EVENTS["gaussian"],))[0] == 0
    assert isinstance(worst_loss([], (EVENTS["unknown"],))[0], NotSupported)
    move = Move(description="", records=1, changes={("us", "detailed"): (1, -1)})
    assert isinstance(move_loss(move, (EVENTS["gaussian"], EVENTS["unknown"])), NotSupported)


@pytest.mark.parametrize("bad", [0, Fraction(-1), 0.5, "1", True, None])
def test_parameters_are_positive_rationals(bad: object) -> None:
    with pytest.raises(ConfigError, match="sigma2"):
        GaussianEvent(**WHERE, sigma2=bad)
    with pytest.raises(ConfigError, match="scale"):
        LaplaceEvent(**WHERE, scale=bad)


def test_ledger_must_equal_plan_exactly() -> None:
    planned = [EVENTS["gaussian"], EVENTS["laplace"], EVENTS["laplace"]]
    refuse_disagreement(planned, planned[::-1])
    almost = GaussianEvent(**WHERE, sigma2=Fraction(3) + Fraction(1, 10**30), support="reals")
    with pytest.raises(BudgetError) as caught:
        refuse_disagreement(planned, [almost, EVENTS["laplace"], EVENTS["laplace"]])
    assert len(caught.value.problems) == 2
    assert caught.value.exit_code == 5
    with pytest.raises(BudgetError, match="planned but not measured"):
        refuse_disagreement(planned, planned[:-1])
