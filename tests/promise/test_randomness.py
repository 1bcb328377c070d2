"""What the noise's generator adds to delta: a small cipher by enumeration, and the nation by arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from das.plan.geography import spine_of
from das.promise.account import account
from das.promise.randomness import Generator, generator_of

BLOCKS = 32  # of a cipher with blocks of five bits, each a draw
COUNT = 3
LAW = np.repeat(np.arange(-4, 5), [1, 2, 3, 5, 10, 5, 3, 2, 1])  # the noise that each block gives


def laws(shift: np.ndarray, *, permutation: bool) -> dict[tuple[int, ...], float]:
    """Law of the noisy answers when true answers are `shift`, by enumeration of all blocks."""
    grid = np.stack(np.meshgrid(*[np.arange(BLOCKS)] * COUNT, indexing="ij")).reshape(COUNT, -1)
    if permutation:
        grid = grid[:, np.all([grid[i] != grid[j] for i, j in combinations(range(COUNT), 2)], axis=0)]
    answers = LAW[grid] + shift[:, None]
    seen, times = np.unique(answers, axis=1, return_counts=True)
    return dict(zip(map(tuple, seen.T.tolist()), times / grid.shape[1], strict=True))


def delta(p: dict[tuple[int, ...], float], q: dict[tuple[int, ...], float], epsilon: float) -> float:
    return sum(max(0.0, mass - math.exp(epsilon) * q.get(answer, 0.0)) for answer, mass in p.items())


@pytest.mark.parametrize("shift", [(1, 0, 0), (0, 1, -1)])
def test_a_permutation_adds_no_more_than_is_priced(shift: tuple[int, ...]) -> None:
    """delta <= (delta* + E) / p with E of the note, and E has no factor e^epsilon."""
    here, there = np.zeros(COUNT, dtype=int), np.array(shift)
    ideal = [laws(each, permutation=False) for each in (here, there)]
    true = [laws(each, permutation=True) for each in (here, there)]
    different = math.prod((BLOCKS - k) / BLOCKS for k in range(COUNT))
    mass = dict(zip(*np.unique(LAW, return_counts=True), strict=True))
    # E (g/f)^2 over a uniform block, infinite answers apart: they are in delta* already
    square = sum(mass[v] / BLOCKS * (mass.get(v + 1, 0) / mass[v]) ** 2 for v in mass)
    changed = sum(s != 0 for s in shift)
    bound = (COUNT**2 + changed**2 * square**2) / (2 * BLOCKS)
    grown = 0
    for epsilon in (0.25, 0.5, 1.0, 2.0, 3.0):
        claimed = delta(*ideal, epsilon)
        found = delta(*true, epsilon)
        assert found <= (claimed + bound) / different
        grown += found > claimed + 1e-12
    assert grown  # the price is not for nothing: a permutation does lose something


def test_the_nation_is_priced_without_a_factor() -> None:
    nation = Generator(streams=10**8, lane_blocks=2**31, deep_blocks=2**34, word_blocks=0, changed=520)
    added = float(nation.added_delta(2 * 6.9))
    assert added == pytest.approx(10.0**16 / 2**97, rel=1e-3)  # the names; the permutation is far below
    assert added < 1e-10 / 1000
    assert math.exp(30.9) * added > 1  # what the general bound would have charged


def test_the_price_stands_in_the_statement_with_its_condition(country) -> None:
    plan = country.plan()
    spine = spine_of(plan)
    found = account(plan, spine).sections["randomness"]
    units = {level: spine.size(level) for level in plan.levels}
    assert found["streams"] == sum(units[m.level] for m in plan.measurements)
    draws = sum(units[m.level] * m.query.size for m in plan.measurements)
    lanes = sum(units[m.level] * math.ceil(m.query.size / 8) for m in plan.measurements)
    assert found["blocks"] == draws + lanes
    assert 0 < found["delta"] < 1e-20
    assert "pseudorandom permutation" in found["condition"]["words"]
    assert Fraction(found["delta"]) >= Fraction(found["streams"] ** 2, 2**97)


def test_the_congenial_sampler_pays_for_its_words(country) -> None:
    strategy = {
        "geolevels": {"state": "1/6", "county": "1/3", "block": "1/2"},
        "queries": {"all": {"total": "1"}, "block": {"detailed": "1"}},
    }
    plan = country.plan(strategy=strategy, estimate={"method": "congenial"})
    found = generator_of(plan, spine_of(plan))
    assert found.word_blocks > sum(m.query.size for m in plan.measurements)
    assert found.word_variation == Fraction(found.word_blocks**2, 2**129)
