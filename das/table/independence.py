"""The Metropolised independence sampler of Gong and Meng (2020, arXiv:2008.10202), for study and for comparison.

Target: ``p*(s) proportional to product p(s_c - x_c)`` on ``{A s = a, B s >= b}``. A proposal adds noise to all cells
but a few; those few are *solved for* from the equalities, and what breaks an inequality is rejected. From s to s' the
move is accepted with probability ``min(1, w(s') / w(s))``, w the product of p over all cells over that of q over the
proposed ones.

Its law approaches the target only in the long run, its proved bound is useless on tables of real size, and the exact
samplers are faster, so no release uses it. ``init`` and ``step`` are pure functions. A chain never begins at the
confidential table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from das.accounting.conditioning import SamplerError
from das.accounting.events import NotSupported
from das.accounting.small_table.dataspace import TableFacts
from das.errors import Problem, UsageError
from das.noise.stream import Bundle, Streams
from das.noise.two_sided import TwoSidedNoise
from das.table.continuous import uniforms
from das.table.proposal import Proposing
from das.table.systems import agreeing

__all__ = ["Chain", "ChainState", "IndependenceSampler", "Noise", "StepInfo", "Trace"]

Floats = NDArray[np.float64]
_PROPOSALS_AT_ONCE = 10_000


class Noise(Protocol):
    """Noise of one cell: the discrete ones of `das.noise`, or the continuous ones of `das.table.continuous_noise`."""

    def log_pmf(self, k: NDArray[Any]) -> Floats:
        """Return the log probability, or log density, of each value."""

    def draw(self, bundle: Bundle, n: int) -> NDArray[Any]:
        """Return n draws from each stream."""


@dataclass(frozen=True, slots=True)
class ChainState:
    """The current table of a chain, and its log weight ``log w``."""

    position: NDArray[Any]
    log_weight: float


@dataclass(frozen=True, slots=True)
class StepInfo:
    """What one step did: whether its proposal kept the inequalities, and whether it was taken."""

    feasible: bool
    accepted: bool


@dataclass(frozen=True, slots=True)
class Trace:
    """A run of a chain: its tables in order, and the number of steps it stayed at each.

    Every table but the first was an accepted proposal.
    """

    visited: NDArray[Any]
    stays: NDArray[Any]
    feasible: int

    @property
    def steps(self) -> int:
        """How many proposals were made."""
        return int(self.stays.sum())

    @property
    def acceptance(self) -> float:
        """Share of the proposals that were accepted."""
        return (len(self.visited) - 1) / self.steps

    def values(self, of_tables: ArrayLike) -> Floats:
        """Repeat one number for each table into one for each step."""
        return np.repeat(np.asarray(of_tables, dtype=np.float64), self.stays)


@dataclass(frozen=True)
class IndependenceSampler(Proposing):
    """The sampler: public facts, noise of each cell, noise of the proposals, and the cells that are solved for.

    Examples
    --------
    >>> from das.noise import DiscreteLaplace, RunKey
    >>> facts = TableFacts(cells=3, values=(), records=9)
    >>> chain = IndependenceSampler(facts, DiscreteLaplace(2), DiscreteLaplace(2), solved=(0,)).given([4, 3, 2])
    >>> state = chain.init([3, 3, 3])
    >>> state, info = chain.step(state, np.array([1, 0]), 0.5)
    >>> state.position.tolist(), info.accepted
    ([3, 4, 2], True)
    >>> trace = chain.run(RunKey.for_testing("doc").streams(b""), 1000, [3, 3, 3])
    >>> 0.2 < trace.acceptance < 0.9
    True
    """

    facts: TableFacts
    noise: Noise
    proposal: Noise
    solved: tuple[int, ...]

    def given(self, x: ArrayLike) -> Chain:
        """Return the chain around a table."""
        return Chain(self, np.array(agreeing(self.facts, x), dtype=np.int64))

    def error_upper(self, steps: int) -> SamplerError | NotSupported:
        """Bound the total variation distance after this many steps, from any start and for every data set.

        ``(1 - 1/w*)^steps``, ``w* = sup p*/q`` (Mengersen and Tweedie 1996, theorem 2.1). With ``Z >= 1`` and weights
        below the proposals', ``w* <= (sum of the proposal's weights)^proposed``; lighter proposals have no bound.
        """
        if not isinstance(self.noise, TwoSidedNoise) or not isinstance(self.proposal, TwoSidedNoise):
            return NotSupported("no proved bound for continuous noise in floating point")
        target, proposed = self.noise.weights, self.proposal.weights
        if proposed.linear > target.linear or proposed.quadratic > target.quadratic:
            return NotSupported("the proposals have lighter tails than the noise, so their ratio has no bound")
        least = len(self.cells.free) * math.log(self.proposal.pmf(0)) - 1e-9  # log 1/w*, rounded down
        return SamplerError(total_variation=Fraction(math.exp(-steps * math.exp(least)) * (1 + 1e-12)), status="proved")


@dataclass(frozen=True)
class Chain:
    """The chain around one table."""

    sampler: IndependenceSampler
    centre: NDArray[Any] = field(repr=False)

    def init(self, position: ArrayLike) -> ChainState:
        """Begin at a table that agrees with the facts, but not at the confidential one."""
        table = np.array(agreeing(self.sampler.facts, position), dtype=np.int64)
        if np.array_equal(table, self.centre):
            remedy = "use das.table.systems.public_start"
            raise UsageError(Problem("start", "a chain may not begin at the confidential table", remedy))
        return ChainState(table, float(self._log_weights(table[None])[0]))

    def step(self, state: ChainState, noise: NDArray[Any], uniform: float) -> tuple[ChainState, StepInfo]:
        """Propose the centre plus `noise` on the free cells, and take it if ``uniform < w(new) / w(old)``."""
        tables, _ = self.sampler.cells.complete(self.centre, np.asarray(noise)[None])
        if not len(tables):
            return state, StepInfo(feasible=False, accepted=False)
        log_weight = float(self._log_weights(tables)[0])
        if math.log(uniform) < log_weight - state.log_weight:
            return ChainState(tables[0], log_weight), StepInfo(feasible=True, accepted=True)
        return state, StepInfo(feasible=True, accepted=False)

    def run(self, streams: Streams, steps: int, start: ArrayLike) -> Trace:
        """Make many steps; proposals do not depend on the state, so they are drawn and checked many at once."""
        sampler, state = self.sampler, self.init(start)
        visited, arrived, feasible = [state.position], [0], 0
        for begin in range(0, steps, _PROPOSALS_AT_ONCE):
            size = min(_PROPOSALS_AT_ONCE, steps - begin)
            noise, coins = (
                streams.bundle([("independence sampler", str(begin), use, "")]) for use in ("proposals", "coins")
            )
            drawn = sampler.proposal.draw(noise, size * len(sampler.cells.free)).reshape(size, -1)
            tables, which = sampler.cells.complete(self.centre, drawn)
            logs = np.log(uniforms(coins, size)[0][which]).tolist()
            weights = self._log_weights(tables).tolist() if len(tables) else []
            feasible += len(tables)
            for table, place, log_weight, log_coin in zip(tables, which.tolist(), weights, logs, strict=True):
                if log_coin < log_weight - state.log_weight:
                    state = ChainState(table, log_weight)
                    visited.append(table)
                    arrived.append(begin + place)
        return Trace(np.array(visited), np.diff([*arrived, steps]), feasible)

    def _log_weights(self, tables: NDArray[Any]) -> Floats:
        away = tables - self.centre
        target = self.sampler.noise.log_pmf(away[:, list(self.sampler.facts.allowed)]).sum(axis=1)
        return np.asarray(target - self.sampler.proposal.log_pmf(away[:, self.sampler.cells.free]).sum(axis=1))
