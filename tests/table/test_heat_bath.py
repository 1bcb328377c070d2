"""Heat baths on tables small enough to write out: stationary, bounded for every data set, connected or refused."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from das.accounting.conditioning import (
    conditional_law,
    conditioned_geometric,
    delta_between,
    with_sampler_error_upper,
)
from das.accounting.events import LaplaceEvent
from das.accounting.small_table.dataspace import TableFacts
from das.accounting.small_table.margins import cycle_moves, margin_invariants
from das.errors import ConfigError
from das.noise import DiscreteLaplace, RunKey
from das.table.heat_bath import HeatBath

FACTS = TableFacts(cells=9, invariants=margin_invariants((3, 3), [(0,), (1,)]), values=(3, 2, 2, 3, 2, 2), records=7)
NOISE = DiscreteLaplace(2)
EVENT = LaplaceEvent(level="t", query="q", scale=Fraction(2))


@pytest.fixture(scope="module")
def bath() -> HeatBath:
    return HeatBath(FACTS, NOISE, cycle_moves(3, 3, 2))


def test_the_target_is_stationary_and_the_step_reversible(bath: HeatBath) -> None:
    for x in bath.space[::7]:
        law = conditional_law(bath.space, x, EVENT)
        transition = bath.given(x).transition
        assert transition.sum(axis=1) == pytest.approx(np.ones(len(law)))
        assert law @ transition == pytest.approx(law, abs=1e-14)
        flow = law[:, None] * transition
        assert flow == pytest.approx(flow.T, abs=1e-14)


def test_the_bound_holds_for_every_data_set_and_start(bath: HeatBath) -> None:
    for steps in (64, 192, 640):
        bound = float(bath.error_upper(steps).total_variation)
        worst = 0.0
        for x in bath.space:
            reached = np.linalg.matrix_power(bath.given(x).transition, steps)
            law = conditional_law(bath.space, x, EVENT)
            worst = max(worst, float(np.abs(reached - law).sum(axis=1).max()) / 2)
        assert worst <= bound + 1e-12
        assert bound < 1
    assert bath.error_upper(20_000).total_variation < Fraction(1, 10**30)
    assert bath.error_upper(63).total_variation >= 1  # too few steps: nothing is promised


def test_the_ledgers_delta_covers_the_chain(bath: HeatBath) -> None:
    """Two neighbours, chains of 640 steps from the public start: the exact delta is within what the ledger adds."""
    steps, epsilon = 640, conditioned_geometric(Fraction(1, 2), 4, "equalities and box").cost
    laws = {}
    for x in bath.space.tolist():
        laws[tuple(x)] = np.linalg.matrix_power(bath.given(x).transition, steps)[bath.start]
    allowed = float(with_sampler_error_upper(epsilon, Fraction(1, 10**12), bath.error_upper(steps)))
    pairs = [(x, y) for x in laws for y in laws if np.abs(np.array(x) - np.array(y)).sum() == 4]
    assert pairs
    assert max(delta_between(laws[x], laws[y], epsilon) for x, y in pairs) <= allowed


def test_the_steps_taken_are_those_of_the_matrix(bath: HeatBath) -> None:
    law = bath.given(bath.space[5])
    bits = RunKey.for_testing("bath").streams(b"").bits(("", "", "", ""))
    n = 4000
    seen = np.bincount([law.step(bath.start, bits) for _ in range(n)], minlength=len(bath.space))
    share = law.transition[bath.start]
    assert not seen[share == 0].any()
    often = share * n >= 5
    z = (seen - n * share)[often] / np.sqrt(n * share * (1 - share))[often]
    assert np.abs(z).max() < 5
    ends = law.run(RunKey.for_testing("bath").streams(b"").bundle([("", "", "", "")]), 3, 20)
    assert ends.shape == (1, 3, 9)
    assert (ends.reshape(3, 3, 3).sum(axis=2) == [3, 2, 2]).all()


def test_moves_that_do_not_connect_are_refused() -> None:
    squares = cycle_moves(3, 3, 2)
    with pytest.raises(ConfigError, match="do not lead from every table"):
        HeatBath(FACTS, NOISE, squares[:1])
    with pytest.raises(ConfigError, match="do not lead from every table"):
        HeatBath(FACTS, NOISE, np.zeros((0, 9), dtype=np.int64))


def test_a_single_table_needs_no_moves() -> None:
    facts = TableFacts(cells=2, invariants=((1, 0),), values=(3,), records=5)
    bath = HeatBath(facts, NOISE)
    assert bath.error_upper(64).total_variation < Fraction(1, 2**100)
    bundle = RunKey.for_testing("bath").streams(b"").bundle([("", "", "", "")])
    assert bath.given([3, 2]).draw(bundle, 2).tolist() == [[[3, 2], [3, 2]]]
