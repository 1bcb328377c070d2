"""Exact rejection sampling of a table: propose noise on the free cells, solve for the others, accept or reject.

With proposals u on the free cells drawn from the noise, and the solved cells then off by v, a table that keeps every
inequality is accepted with probability ``product over solved cells of w(v)``, ``w(0) = 1``. What is accepted has the
law p* exactly: integer draws are exact, and the coin ``exp(-rational)`` is tossed in rational arithmetic. A proposal is
accepted with probability ``Z(x) P(0)^free``; the running time depends on the table, so it must not be published.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from das.accounting.conditioning import SamplerError
from das.accounting.small_table.dataspace import TableFacts
from das.errors import Problem, UsageError
from das.noise.bernoulli import bernoulli_exp
from das.noise.stream import MAX_POSITIONS, Bundle
from das.noise.two_sided import TwoSidedNoise
from das.table.proposal import Proposing
from das.table.systems import agreeing

__all__ = ["RejectionLaw", "RejectionSampler"]

_FIRST_PROPOSALS = 1024
_MOST_PROPOSALS = 1 << 22


@dataclass(frozen=True)
class RejectionSampler(Proposing):
    """The conditional mechanism of one table by rejection, for any facts with a sufficient acceptance rate.

    Examples
    --------
    >>> from das.noise import DiscreteLaplace, RunKey
    >>> law = RejectionSampler(TableFacts(cells=3, values=(), records=9), DiscreteLaplace(2), (0,)).given([4, 3, 2])
    >>> bundle = RunKey.for_testing("doc").streams(b"").bundle([("table", "", "detailed", "congenial")])
    >>> law.draw(bundle, 5).sum(axis=-1).tolist()
    [[9, 9, 9, 9, 9]]
    """

    facts: TableFacts
    noise: TwoSidedNoise
    solved: tuple[int, ...]

    @property
    def error(self) -> SamplerError:
        """Zero: accepted proposals have the law p* exactly."""
        return SamplerError(total_variation=Fraction(0), status="proved")

    def acceptance(self, log_normalizer: float) -> float:
        """Return the probability ``Z P(0)^free`` that a proposal is accepted; confidential as Z is.

        Examples
        --------
        >>> from das.noise import DiscreteLaplace
        >>> sampler = RejectionSampler(TableFacts(cells=2, values=(), records=4), DiscreteLaplace(2), (0,))
        >>> round(sampler.acceptance(0.5), 6)
        0.403803
        """
        return math.exp(log_normalizer + len(self.cells.free) * math.log(self.noise.pmf(0)))

    def given(self, x: ArrayLike) -> RejectionLaw:
        """Return the law around a confidential table."""
        return RejectionLaw(self, np.array(agreeing(self.facts, x), dtype=np.int64))


@dataclass(frozen=True, slots=True)
class RejectionLaw:
    """The conditional law around one confidential table."""

    sampler: RejectionSampler
    centre: NDArray[np.int64] = field(repr=False)

    def draw(self, bundle: Bundle, n: int) -> NDArray[np.int64]:
        """Return n tables from each stream: an array (streams, n, cells).

        Proposal i of a stream is a function of the stream and i; the tables are its accepted ones in that order.
        """
        free, proposals = len(self.sampler.cells.free), _FIRST_PROPOSALS
        while True:
            noise = self.sampler.noise.draw(bundle, proposals * free).reshape(bundle.count, proposals, free)
            accepted = [self._accepted(noise[stream], bundle, stream, n) for stream in range(bundle.count)]
            if all(len(tables) == n for tables in accepted):
                return np.array(accepted, dtype=np.int64).reshape(bundle.count, n, self.sampler.facts.cells)
            proposals *= 2  # the same proposals come first again
            if proposals * bundle.count > _MOST_PROPOSALS:
                remedy = "draw fewer tables at once, or use das.table.quotient.TableSampler"
                raise UsageError(Problem("rejection", "too few proposals are accepted", remedy))

    def _accepted(self, noise: NDArray[np.int64], bundle: Bundle, stream: int, n: int) -> list[NDArray[np.int64]]:
        tables, which = self.sampler.cells.complete(self.centre, noise)
        away = (tables - self.centre)[:, list(self.sampler.solved)]
        weights = self.sampler.noise.weights
        accepted: list[NDArray[np.int64]] = []
        for table, off, proposal in zip(tables, away.tolist(), which.tolist(), strict=True):
            if len(accepted) == n:
                break
            coin = bundle.bits(stream, MAX_POSITIONS + 1 + proposal)  # the noise has the positions up to there
            if bernoulli_exp(coin, sum(map(weights.exponent, off), Fraction(0))):
                accepted.append(table)
        return accepted
