"""The promise by enumeration: exact laws of what is released for all neighbouring tiny data sets, over all partitions.

A loss above the claim is a failure; and with noise of three quarters of the scale the same computation finds one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import permutations, product
from math import log

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from das.inference.confidential.density import density
from das.inference.confidential.grid import Grid
from das.inference.confidential.parts import PartOptions, PartsState, step
from das.inference.confidential.row_statistics import BUILT_IN, as_statistic
from das.inference.confidential.sample_aggregate import release_parts as release_mean
from das.inference.confidential.udp import release_parts
from das.noise import DiscreteGaussian, DiscreteLaplace
from das.schema.query import Neighbours
from das.storage.single_release import Budget, Charge, single_release

PARTS, GRID = 2, Grid(0, 1, bits=2)
VALUES = (-1.0, 0.25, 0.5, 3.0)
REACH = 100
OPTIONS = PartOptions(parts=PARTS, rows=3)
OUTPUTS = np.arange(-REACH, REACH + 1)


def extreme(rows: np.ndarray) -> float:
    """A statistic that one row moves from one end of the range to the other, whatever the partition."""
    return 1e9 if (rows == 3).any() else -1e9


def failing(rows: np.ndarray) -> float:
    """A statistic that fails on parts with a certain row in them, and on empty ones."""
    if (rows == 3).any():
        raise ValueError
    return 1e9 * rows[0, 0]


def estimates(rows: tuple[float, ...], label: tuple[int, ...], statistic) -> np.ndarray:
    """Estimates of the parts of one given partition, by the code itself."""
    order = np.argsort(label, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(label, minlength=PARTS))]).astype(np.intp)
    state = PartsState(np.array(rows).reshape(-1, 1)[order], starts, 3, 1, np.empty((0, 1)))
    while state.done < PARTS:
        state, _ = step(state, as_statistic(statistic), OPTIONS)
    return state.estimates


def partitions(n: int, neighbours: Neighbours) -> list[tuple[int, ...]]:
    if neighbours is Neighbours.ADD_REMOVE:
        return list(product(range(PARTS), repeat=n))
    return [tuple(map(int, each)) for each in permutations(np.arange(n) % PARTS)]


def neighbouring(neighbours: Neighbours) -> Iterator[tuple[tuple[float, ...], tuple[float, ...]]]:
    for rows in product(VALUES, repeat=3):
        for i in range(3):
            if neighbours is Neighbours.ADD_REMOVE:
                yield rows, rows[:i] + rows[i + 1 :]
            else:
                yield from ((rows, (*rows[:i], value, *rows[i + 1 :])) for value in VALUES if value != rows[i])


def shifted(noise, shift: int) -> np.ndarray:
    """Log-probabilities of shift + noise at OUTPUTS; the normalising constant is computed once."""
    return noise.log_pmf(OUTPUTS - shift)


def law_of_sum(rows, neighbours, statistic, noise) -> np.ndarray:
    """Log-probabilities of the released integer: the mean over all partitions of the shifted law of the noise."""
    splits = partitions(len(rows), neighbours)
    shifts = Counter(int(GRID.integers(estimates(rows, label, statistic)[:, 0]).sum()) for label in splits)
    weights = [log(times / len(splits)) for times in shifts.values()]
    laws = [weight + shifted(noise, shift) for weight, shift in zip(weights, shifts, strict=True)]
    return np.asarray(logsumexp(laws, axis=0))


def worst(pairs, law, divergence=lambda one, two: np.abs(one - two).max()) -> float:
    """The largest divergence over neighbouring data sets."""
    known = {rows: law(rows) for rows in {rows for pair in pairs for rows in pair}}
    return max(float(divergence(known[one], known[two])) for one, two in pairs)


@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize(
    ("statistic", "loss"), [(BUILT_IN["mean"], None), (failing, None), (extreme, 0.5)], ids=["mean", "fails", "extreme"]
)
def test_sample_and_aggregate_never_costs_more_than_epsilon(neighbours: Neighbours, statistic, loss) -> None:
    budget = Budget("pure", "1/2", neighbours)
    noise = budget.noise(Fraction(1), l1=GRID.steps, l2_squared=GRID.steps**2)
    pairs = list(neighbouring(neighbours))
    found = worst(pairs, lambda rows: law_of_sum(rows, neighbours, statistic, noise))
    assert 0.1 < found <= 0.5 + 1e-9
    if loss is not None:  # where the whole range is moved, the claim is met exactly, and too little noise shows
        assert found == pytest.approx(loss)
        weak = DiscreteLaplace(noise.parameter * Fraction(3, 4))
        assert worst(pairs, lambda rows: law_of_sum(rows, neighbours, statistic, weak)) > 0.6


def test_the_gaussian_mean_never_costs_more_than_rho() -> None:
    budget = Budget("zcdp", "1/8")
    noise = budget.noise(Fraction(1), l1=GRID.steps, l2_squared=GRID.steps**2)
    assert isinstance(noise, DiscreteGaussian)
    pairs = [((-1.0, 0.25, 3.0), (-1.0, 0.25, each)) for each in (-1.0, 0.25, 0.5)]

    def divergence(noise: DiscreteGaussian, alpha: float) -> float:
        def renyi(one: np.ndarray, two: np.ndarray) -> float:
            return float(logsumexp(alpha * one + (1 - alpha) * two)) / (alpha - 1)

        return worst(pairs, lambda rows: law_of_sum(rows, Neighbours.REPLACE, extreme, noise), renyi)

    for alpha in (1.5, 4.0):
        assert divergence(noise, alpha) == pytest.approx(alpha / 8, rel=1e-6)
        assert divergence(noise, alpha) <= alpha / 8 * (1 + 1e-9)
    assert divergence(DiscreteGaussian(noise.sigma2 * Fraction(9, 16)), 4.0) > 4 / 8


class Given:
    """In the place of a release: noise that the test chooses."""

    def __init__(self, *draws: int) -> None:
        self.draws = list(draws)

    def draw(self, noise, purpose: str, n: int = 1) -> np.ndarray:
        return np.array([self.draws.pop(0) for _ in range(n)])


def law_of_udp(rows, noise: DiscreteLaplace, count_noise: DiscreteLaplace, budget: Budget) -> np.ndarray:
    """P(sum = s, count = c) as the code releases them: the side of the count follows from the noisy sum."""
    reach = 40
    outputs, counts = np.arange(-reach, reach + 1), np.arange(-reach, reach + 1)
    splits = partitions(len(rows), Neighbours.REPLACE)
    law = np.zeros((len(outputs), len(counts)))
    of_count = {count: np.exp(count_noise.log_pmf(counts - count)) for count in range(PARTS + 1)}
    for label in splits:
        theta = estimates(rows, label, BUILT_IN["mean"])
        total = int(GRID.integers(theta[:, 0]).sum())
        of_sum = np.exp(noise.log_pmf(outputs - total))
        for i, s in enumerate(outputs):
            found = release_parts(theta, GRID, budget, Fraction(1, 4), Given(int(s) - total, 0))  # type: ignore[arg-type]
            assert found.mean == pytest.approx(float(GRID.step) * s / PARTS)
            count = round(found.share * PARTS)
            law[i] += of_sum[i] * of_count[count]
    return np.log(law / len(splits))


def test_udp_never_costs_more_than_both_parts_together() -> None:
    budget = Budget("pure", 1)
    noise = budget.noise(Fraction(3, 4), l1=GRID.steps, l2_squared=GRID.steps**2)
    count_noise = budget.noise(Fraction(1, 4), l1=1, l2_squared=1)
    pairs = [((-1.0, 3.0, each), (-1.0, 3.0, other)) for each in VALUES for other in VALUES if each < other]
    loss = worst(pairs, lambda rows: law_of_udp(rows, noise, count_noise, budget))
    assert 0.3 < loss <= 1 + 1e-9


def test_the_side_of_the_count_follows_from_the_released_mean() -> None:
    budget, theta = Budget("pure", 1), np.array([[5.0], [-5.0], [-5.0]])  # most lie below
    below = release_parts(theta, GRID, budget, Fraction(1, 4), Given(0, 0))  # type: ignore[arg-type]
    assert (below.upper_side, below.share) == (False, pytest.approx(2 / 3))
    above = release_parts(theta, GRID, budget, Fraction(1, 4), Given(6, 0))  # type: ignore[arg-type]
    assert (above.upper_side, above.share) == (True, pytest.approx(1 / 3))


@pytest.mark.parametrize(("neighbours", "l1"), [(Neighbours.REPLACE, 2), (Neighbours.ADD_REMOVE, 1)])
def test_a_row_moves_the_histogram_by_its_sensitivity(neighbours: Neighbours, l1: int) -> None:
    """The noise is the one that the largest change of counts needs, and no smaller."""
    found = set()
    for pair in neighbouring(neighbours):
        counts = [np.bincount(np.clip(np.floor(np.array(rows) * 3), 0, 2).astype(int), minlength=3) for rows in pair]
        found.add(int(np.abs(counts[0] - counts[1]).sum()))
    assert max(found) == l1
    released = density(
        np.linspace(0, 1, 100),
        (0, 1),
        Budget("pure", "1/2", neighbours),
        charge=Charge(testing_key="k", data="generated"),
        bins=3,
        rows=100,
    )
    assert released.privacy["noise"] == {"counts": DiscreteLaplace(2 * l1).name}


SCALE = Fraction(13, 10)


def p_value(draws: np.ndarray, noise) -> float:
    """Of integer draws against a law, in ten cells of about equal probability."""
    k = np.arange(-2000, 2001)
    below = np.cumsum(np.exp(noise.log_pmf(k)))
    places = np.unique(np.searchsorted(below, np.arange(0.1, 1, 0.1)))
    cells, edges = k[places], below[places]
    expected = np.diff([0.0, *edges, 1.0]) * len(draws)
    observed = np.bincount(np.searchsorted(cells, draws), minlength=len(cells) + 1)
    return float(stats.chisquare(observed, expected).pvalue)


@pytest.mark.parametrize(
    ("budget", "wrong"),
    [
        (Budget("zcdp", "1/2"), lambda noise: DiscreteGaussian(noise.sigma2 * SCALE**2)),
        (Budget("pure", 1), lambda noise: DiscreteLaplace(noise.scale * SCALE)),
    ],
    ids=["zcdp", "pure"],
)
def test_released_means_have_noise_of_the_stated_scale(budget: Budget, wrong) -> None:
    theta, grid = np.linspace(-1, 2, 50)[:, None], Grid(0, 1, bits=3)
    noise = budget.noise(Fraction(1), l1=grid.steps, l2_squared=grid.steps**2)
    truth, draws = int(grid.integers(theta[:, 0]).sum()), []
    for key in range(1000):
        with single_release(Charge(testing_key=str(key), data="generated"), budget, {}, "") as release:
            (mean,) = release_mean(theta, (grid,), budget, Fraction(0), release)
        draws.append(round(mean.value / float(grid.step) * len(theta)) - truth)
        assert mean.noise_variance == pytest.approx(noise.variance() * float(grid.step / len(theta)) ** 2)
    assert p_value(np.array(draws), noise) > 1e-6
    assert p_value(np.array(draws), wrong(noise)) < 1e-6


def test_released_histograms_have_noise_of_the_stated_scale() -> None:
    rows = np.random.default_rng(1).uniform(size=60_000)
    found = density(rows, (0, 1), Budget("pure", "1/2"), charge=Charge(testing_key="k", data="generated"), bins=3000)
    draws = np.array(found.counts) - np.bincount((rows * 3000).astype(int), minlength=3000)
    assert p_value(draws, DiscreteLaplace(4)) > 1e-6
    assert p_value(draws, DiscreteLaplace(4 * SCALE)) < 1e-6
