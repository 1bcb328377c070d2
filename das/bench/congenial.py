"""Effective samples per second on the sex-by-age table: the exact sampler against the paper's chain, turn by turn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from statistics import median
from time import process_time
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from das.noise import DiscreteLaplace, RunKey, Streams
from das.table.effective_sample_size import effective_samples
from das.table.example import COUNTS, SEX_BY_AGE, SOLVED
from das.table.independence import Chain, IndependenceSampler, Trace
from das.table.quotient import TableLaw, TableSampler
from das.table.rejection import RejectionSampler

__all__ = ["rows"]

TABLE = "2 x 23 sex by age, totals of sex and of voting age"
NOISE = DiscreteLaplace(2)
PROPOSAL = DiscreteLaplace("5/3")  # 0.6, the paper's choice
UNIT = "effective samples per CPU second"
BATCH = 10_000  # tables a call
REJECTED = 20  # tables of the third peer

Result = TypeVar("Result")


def rows(
    *, repetitions: int = 5, draws: int = 100_000, steps: int = 400_000, single_steps: int = 3_000
) -> list[dict[str, Any]]:
    """Return one row for each peer: what ``das bench congenial --json`` prints.

    Ours are independent exact draws. A chain is worth its length over the longest autocorrelation time among the 46
    counts and the L1 distance to the truth. It begins at an exact draw, in equilibrium, and its proposals come from our
    noise; in the first row they are made one at a time as published, in the second in batches. The third peer is exact
    rejection. ``setup_seconds`` are those of our tables, once for each confidential table and not in the rate.
    """
    streams = RunKey.for_testing("bench").streams(b"congenial")
    fresh = (f"repetition {i}" for i in count())
    TableSampler(SEX_BY_AGE, NOISE).given(COUNTS).draw(_bundle(streams, next(fresh)), 1)  # compiles
    begun = process_time()
    law = TableSampler(SEX_BY_AGE, NOISE).given(COUNTS)
    start = law.draw(_bundle(streams, next(fresh)), 1)[0, 0]
    setup = process_time() - begun
    solved = next(iter(SOLVED.values()))
    chain = IndependenceSampler(SEX_BY_AGE, NOISE, PROPOSAL, solved).given(COUNTS)
    rejection = RejectionSampler(SEX_BY_AGE, NOISE, solved).given(COUNTS)
    chain.run(streams, 10, start)

    ours, batches, singles, rejected, traces = [], [], [], [], []

    def exact() -> None:
        for _ in range(draws // BATCH):
            law.draw(_bundle(streams, next(fresh)), BATCH)

    def wait() -> None:
        rejection.draw(_bundle(streams, next(fresh)), REJECTED)

    for _ in range(repetitions):
        again = RunKey.for_testing(next(fresh)).streams(b"")
        ours.append(draws / _timed(exact)[0])
        spent, trace = _timed(partial(chain.run, again, steps, start))
        worth = worst_effective_samples(trace) / steps
        traces.append(trace)
        batches.append(worth * steps / spent)
        singles.append(worth * single_steps / _timed(partial(_one_at_a_time, chain, again, single_steps, start))[0])
        rejected.append(REJECTED / _timed(wait)[0])
    checked = _check(law, law.draw(_bundle(streams, next(fresh)), draws)[0], traces)
    acceptance = float(np.mean([trace.acceptance for trace in traces]))
    return [
        {
            "name": f"congenial sex by age, against {name}",
            "ours": median(ours),
            "peer": median(peer),
            "ratio": median(ours) / median(peer),
            "unit": UNIT,
            "checked": checked,
            "table": TABLE,
            "repetitions": repetitions,
            "setup_seconds": setup,
            **more,
        }
        for name, peer, more in (
            ("the independence sampler step by step", singles, {"acceptance": acceptance, "steps": single_steps}),
            ("the independence sampler in batches", batches, {"acceptance": acceptance, "steps": steps}),
            ("exact rejection", rejected, {"acceptance": rejection.sampler.acceptance(law.log_normalizer)}),
        )
    ]


def worst_effective_samples(trace: Trace) -> float:
    """Return how many independent draws a run is worth for that count, or the distance to the truth, it knows least."""
    distance = np.abs(trace.visited - np.array(COUNTS)).sum(axis=1)
    return min(effective_samples(trace.values(of)) for of in (*trace.visited.T, distance))


def _bundle(streams: Streams, name: str) -> Any:
    return streams.bundle([("bench", name, "", "congenial")])


def _timed(work: Callable[[], Result]) -> tuple[float, Result]:
    """Return the CPU time of a call, which other work disturbs less than the clock on the wall, and its result."""
    begun = process_time()
    result = work()
    return max(process_time() - begun, 1e-9), result


def _one_at_a_time(chain: Chain, streams: Streams, steps: int, start: NDArray[np.int64]) -> None:
    """Run the chain as it is published: propose, solve, toss, and again."""
    state = chain.init(start)
    proposals = chain.sampler.proposal.draw(_bundle(streams, "steps"), steps * len(chain.sampler.cells.free))
    for noise, coin in zip(proposals.reshape(steps, -1), np.linspace(0.001, 0.999, steps).tolist(), strict=True):
        state, _ = chain.step(state, noise, coin)


def _check(law: TableLaw, drawn: NDArray[np.int64], traces: list[Trace]) -> str:
    """Say how the exact draws and the chain fared: minors among the girls, and the mean distance to the truth."""
    share = girls_under_18(law)
    observed = np.bincount(drawn[:, :4].sum(axis=1), minlength=len(share))
    often = share * len(drawn) >= 10
    expected = np.append(share[often], share[~often].sum()) * len(drawn)
    seen = np.append(observed[often], observed[~often].sum())
    p = float(chdtrc(len(expected) - 1, ((seen - expected) ** 2 / expected).sum()))
    truth = np.array(COUNTS)
    exact = np.abs(drawn - truth).sum(axis=1)
    runs = [trace.values(np.abs(trace.visited - truth).sum(axis=1)) for trace in traces]
    error = np.sqrt(np.mean([run.var() / effective_samples(run) for run in runs]) / len(runs))
    away = abs(np.mean([run.mean() for run in runs]) - exact.mean()) / error
    verdict = "same distribution" if p > 1e-6 and away < 5 else "NOT the same distribution"
    return (
        f"{verdict}: chi-square of a class total against its exact law, ours p = {p:.2g} ({len(drawn)} draws); "
        f"mean L1 distance {exact.mean():.2f}, chains {away:.1f} standard errors away"
    )


def girls_under_18(law: TableLaw) -> NDArray[np.float64]:
    """Return the exact law of one class total, by convolution in floating point: no code shared with the sampler."""
    ratio = np.exp(-1 / float(NOISE.scale))
    size = sum(COUNTS) + 1

    def convolved(counts: tuple[int, ...]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = np.ones(1)
        for own in counts:
            found = np.convolve(found, ratio ** np.abs(np.arange(size) - own))[:size]
        return found

    girls, women, boys, men = map(convolved, (COUNTS[:4], COUNTS[4:23], COUNTS[23:27], COUNTS[27:]))
    minors, female, male = sum(COUNTS[:4] + COUNTS[23:27]), sum(COUNTS[:23]), sum(COUNTS[23:])
    g = np.arange(minors + 1)
    weight = girls[g] * women[female - g] * boys[minors - g] * men[male - minors + g]
    return np.asarray(weight / weight.sum())
