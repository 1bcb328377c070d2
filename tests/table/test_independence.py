"""The paper's sampler: pure steps, its law in the long run, its bound, and what it must refuse."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from das.accounting.conditioning import SamplerError, conditional_law
from das.accounting.events import LaplaceEvent, NotSupported
from das.accounting.small_table.dataspace import TableFacts, data_space
from das.accounting.small_table.margins import margin_invariants
from das.errors import ConfigError, UsageError
from das.noise import DiscreteGaussian, DiscreteLaplace, RunKey
from das.table.continuous import uniforms
from das.table.continuous_noise import RealGaussian, RealLaplace
from das.table.effective_sample_size import autocorrelation_time, effective_samples
from das.table.example import COUNTS, SEX_BY_AGE, SOLVED
from das.table.independence import IndependenceSampler
from das.table.quotient import TableSampler
from das.table.systems import agrees, public_start

PUBLISHED = Path(__file__).resolve().parents[1] / "data" / "vectors" / "sex_by_age.json"
MARGINS = TableFacts(cells=6, invariants=margin_invariants((2, 3), [(0,), (1,)]), values=(5, 4, 3, 2, 4), records=9)
TABLE = (2, 1, 2, 1, 1, 2)
NOISE = DiscreteLaplace(2)


def streams(text: str = "independence"):
    return RunKey.for_testing(text).streams(b"")


def law_after(chain, start: int, space: np.ndarray, law: np.ndarray, steps: int) -> np.ndarray:
    """The exact law of the chain after some steps: transition matrix of independence proposals, written out."""
    sampler = chain.sampler
    free = sampler.cells.free
    proposal = np.exp(sampler.proposal.log_pmf(space[:, free] - np.array(TABLE)[free]).sum(axis=1))
    weight = law / proposal
    matrix = proposal * np.minimum(1, weight[None, :] / weight[:, None])
    matrix[np.diag_indices(len(space))] += 1 - matrix.sum(axis=1)
    return np.linalg.matrix_power(matrix, steps)[start]


def target(noise: DiscreteLaplace = NOISE) -> tuple[np.ndarray, np.ndarray]:
    space = data_space(MARGINS)
    return space, conditional_law(space, TABLE, LaplaceEvent(level="t", query="q", scale=noise.scale))


def test_step_and_run_are_the_same_chain() -> None:
    chain = IndependenceSampler(MARGINS, NOISE, DiscreteLaplace("5/3"), (0, 1, 2, 3)).given(TABLE)
    trace = chain.run(streams(), 400, public_start(MARGINS))
    state, seen = chain.init(public_start(MARGINS)), []
    names = [("independence sampler", "0", part, "") for part in ("proposals", "coins")]
    noise = chain.sampler.proposal.draw(streams().bundle(names[:1]), 400 * 2).reshape(400, 2)
    coins = uniforms(streams().bundle(names[1:]), 400)[0]
    accepted = feasible = 0
    for row, coin in zip(noise, coins.tolist(), strict=True):
        before = state
        state, info = chain.step(state, row, coin)
        assert info.accepted == (state is not before)
        accepted, feasible = accepted + info.accepted, feasible + info.feasible
        seen.append(state.position.tolist())
    # a place is counted from the step that reaches it
    assert np.repeat(trace.visited, trace.stays, axis=0).tolist() == seen
    assert (trace.acceptance, trace.feasible, trace.steps) == (accepted / 400, feasible, 400)
    assert agrees(MARGINS, trace.visited).all()


def test_long_run_law() -> None:
    space, law = target()
    chain = IndependenceSampler(MARGINS, NOISE, NOISE, (0, 1, 2, 3)).given(TABLE)
    trace = chain.run(streams(), 100_000, public_start(MARGINS))
    tables = np.repeat(trace.visited, trace.stays, axis=0)
    place = {tuple(row): i for i, row in enumerate(space.tolist())}
    numbers = np.array([place[tuple(row)] for row in trace.visited.tolist()])
    share = np.bincount(numbers, weights=trace.stays, minlength=len(space)) / len(tables)
    wrong = target(DiscreteLaplace("13/5"))[1]
    time = max(autocorrelation_time(trace.values(numbers == i)) for i in np.argsort(-law)[:3])

    def p_value(truth: np.ndarray) -> float:
        expected = truth * len(tables) / time
        often = expected >= 5
        statistic = ((share[often] * len(tables) / time - expected[often]) ** 2 / expected[often]).sum()
        return float(stats.chi2.sf(statistic, often.sum()))

    assert p_value(law) > 1e-6
    assert p_value(wrong) < 1e-9


@pytest.mark.parametrize("scale", ["2", "3"])
def test_the_bound_is_a_bound_for_every_table(scale: str) -> None:
    chain = IndependenceSampler(MARGINS, NOISE, DiscreteLaplace(scale), (0, 1, 2, 3)).given(TABLE)
    space, law = target()
    for steps in (1, 10, 60, 200):
        error = chain.sampler.error_upper(steps)
        assert isinstance(error, SamplerError)
        worst = max(np.abs(law_after(chain, i, space, law, steps) - law).sum() / 2 for i in range(len(space)))
        assert worst <= float(error.total_variation) + 1e-12
    assert float(chain.sampler.error_upper(2000).total_variation) < 1e-20


def test_what_has_no_bound_says_so() -> None:
    lighter = IndependenceSampler(MARGINS, NOISE, DiscreteLaplace("5/3"), (0, 1, 2, 3))
    assert isinstance(lighter.error_upper(10**6), NotSupported)
    assert isinstance(
        IndependenceSampler(MARGINS, NOISE, DiscreteGaussian(4), (0, 1, 2, 3)).error_upper(9), NotSupported
    )
    real = IndependenceSampler(MARGINS, RealLaplace(2.0), RealLaplace(2.0), (0, 1, 2, 3))
    assert isinstance(real.error_upper(9), NotSupported)
    example = IndependenceSampler(SEX_BY_AGE, NOISE, NOISE, next(iter(SOLVED.values())))
    assert float(example.error_upper(10**9).total_variation) > 0.999  # proved, and of no use


def test_a_chain_never_begins_at_the_confidential_table() -> None:
    chain = IndependenceSampler(MARGINS, NOISE, NOISE, (0, 1, 2, 3)).given(TABLE)
    with pytest.raises(UsageError, match="may not begin at the confidential table"):
        chain.init(TABLE)
    assert str(list(TABLE))[1:-1] not in repr(chain)
    start = public_start(MARGINS)
    assert np.array_equal(start, public_start(MARGINS))


@pytest.mark.parametrize(
    ("solved", "reason"),
    [((0, 1), "determine 4 cells, not 2"), ((0, 1, 3, 4), "do not determine them"), ((0, 0, 1, 2), "not 3")],
)
def test_cells_that_cannot_be_solved_for(solved: tuple[int, ...], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        IndependenceSampler(MARGINS, NOISE, NOISE, solved)


def test_cells_that_would_not_be_integers() -> None:
    facts = TableFacts(cells=3, invariants=((2, 0, 1),), values=(4,), records=5)
    with pytest.raises(ConfigError, match="not always be integers"):
        IndependenceSampler(facts, NOISE, NOISE, (0, 1))
    IndependenceSampler(facts, NOISE, NOISE, (1, 2))


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_continuous_noise_given_a_total(kind: str) -> None:
    """Two cells far from zero, given their sum: density exp(-2 |u| / b) (Laplace), variance halved (Gaussian)."""
    facts = TableFacts(cells=2, values=(), records=200)
    noise = RealLaplace(2.0) if kind == "laplace" else RealGaussian(4.0)
    proposal = RealLaplace(2.0) if kind == "laplace" else RealGaussian(4.0)
    chain = IndependenceSampler(facts, noise, proposal, (0,)).given([90, 110])
    trace = chain.run(streams(), 60_000, [100, 100])
    values = np.repeat(trace.visited[:, 1], trace.stays)[100::12] - 110
    law = stats.laplace(scale=1.0) if kind == "laplace" else stats.norm(scale=np.sqrt(2))
    wrong = stats.laplace(scale=1.3) if kind == "laplace" else stats.norm(scale=1.3 * np.sqrt(2))
    assert stats.kstest(values, law.cdf).pvalue > 1e-5
    assert stats.kstest(values, wrong.cdf).pvalue < 1e-7
    assert np.allclose(trace.visited.sum(axis=1), 200)


def test_autocorrelation_time_of_a_known_series() -> None:
    rng = np.random.default_rng(3)
    for rho in (0.0, 0.5, 0.9):
        series = np.zeros(60_000)
        for i, noise in enumerate(rng.normal(size=len(series) - 1)):
            series[i + 1] = rho * series[i] + noise
        assert autocorrelation_time(series) == pytest.approx((1 + rho) / (1 - rho), rel=0.15)
    assert effective_samples(np.ones(10)) == 0


def test_acceptance_on_the_example() -> None:
    """The published 1.68 % at 0.6; 0.7 to 1.9 % by solved cells, and more at 0.6 or 0.65 than at 0.5 and 0.8."""
    start = TableSampler(SEX_BY_AGE, NOISE).given(COUNTS).draw(streams().bundle([("", "", "", "")]), 1)[0, 0]
    accepted = {}
    for name, solved in SOLVED.items():
        for scale in ("2", "5/3", "20/13", "5/4"):
            chain = IndependenceSampler(SEX_BY_AGE, NOISE, DiscreteLaplace(scale), solved).given(COUNTS)
            accepted[name, scale] = chain.run(streams(), 100_000, start).acceptance
        assert 0.007 <= accepted[name, "5/3"] <= 0.019
        assert max(accepted[name, "5/3"], accepted[name, "20/13"]) > max(accepted[name, "2"], accepted[name, "5/4"])
    first = next(iter(SOLVED))
    peak = json.loads(PUBLISHED.read_text(encoding="utf-8"))["expected"]["mis_acceptance_peak"]
    assert peak["proposal"] == 0.6
    # Eight runs with other keys gave 1.48 to 1.75 %: the chain is sticky, so its runs spread by 0.1 to 0.2 points.
    assert accepted[first, "5/3"] == pytest.approx(peak["about"], abs=0.003)
    assert accepted[first, "5/3"] == max(accepted[name, "5/3"] for name in SOLVED)  # large cells solved for
