"""K-norm noise on the lattice of moves: the exponential mechanism with the hull of the moves, drawn exactly.

    P(v)  proportional to  exp(-epsilon ||v||_K)   on   L = {v integer : A v = 0}

Every neighbour's move has norm at most 1 and shifts the lattice onto itself, so the loss is at most epsilon.
``lattice_k_norm.md`` has the proofs of the cost and of the sampler, and up to which size it is practical.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import islice
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from das.accounting.small_table.dataspace import TableFacts
from das.errors import ConfigError, Problem
from das.noise import DiscreteLaplace
from das.noise.bernoulli import bernoulli_exp
from das.noise.interval_arithmetic import enclose_exp_minus, is_tabled
from das.noise.rational import positive_rational
from das.noise.stream import MAX_POSITIONS, RunKey, Streams
from das.table.exact_coins import toss_exp
from das.table.lattice import MoveLattice, equality_rows
from das.table.norm_body import NormBody

__all__ = ["LatticeKNorm", "Trial", "solved_by"]

CHUNK = 1 << 13
SLOW_CHUNK = 1 << 6
"""Proposals at a time, and where the noise is so wide that each draw is made one by one."""
TRIAL_PROPOSALS = 1 << 22
TRIAL_NORMS = 600
TRIAL_DRAWS = 3


LEAST_EPSILON = 2**40
"""One over the least epsilon: draws then fit 64 bits with room to spare."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What draws from a public key showed: how many were made, and how much work they took."""

    draws: NDArray[np.int64]
    proposals: int
    norms: int


@dataclass(frozen=True)
class LatticeKNorm:
    """Noise on a lattice of moves with the law exp(-epsilon ||v||_K); no part of it depends on the data.

    Parameters
    ----------
    facts : TableFacts
    lattice : MoveLattice
        The moves of these facts.
    body : NormBody
    epsilon : Fraction

    Examples
    --------
    >>> from das.table.lattice import move_lattice
    >>> from das.table.norm_body import MaximumNorm
    >>> facts = TableFacts(cells=4, values=(), records=9)
    >>> noise = LatticeKNorm(facts, move_lattice(facts), MaximumNorm(2), Fraction(1))
    >>> noise.draw(RunKey.for_testing("doc").streams(b""), 3).sum(axis=-1).tolist()
    [0, 0, 0]
    """

    facts: TableFacts
    lattice: MoveLattice
    body: NormBody
    epsilon: Fraction
    status: ClassVar[str] = "exact"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive_rational(self.epsilon, "epsilon"))
        if self.epsilon * LEAST_EPSILON < 1:
            raise ConfigError(Problem("k-norm", "its noise would be far beyond any count", "spend more"))

    @property
    def name(self) -> str:
        """The canonical name, part of the streams' names."""
        return f"lattice-k-norm(epsilon={self.epsilon}, rank={self.lattice.rank})"

    def proposal(self, copies: int) -> DiscreteLaplace:
        """Noise of a free cell that occurs so many times in a move, ``exp(-copies epsilon |u| / l1)``."""
        return DiscreteLaplace(self.body.l1 / (copies * self.epsilon))

    def draw(self, streams: Streams, n: int) -> NDArray[np.int64]:
        """Return n noise vectors, an array (n, cells); draw i is a function of the streams and of i alone."""
        found = self._accepted(streams, _Work())
        return np.array([next(found) for _ in range(n)], dtype=np.int64).reshape(n, self.lattice.cells)

    def trial(self, draws: int = TRIAL_DRAWS) -> Trial:
        """Draw from a public key, and refuse a table whose draws take too much work; nothing here is confidential.

        Raises
        ------
        ConfigError
            Fewer than three draws come of four million proposals or six hundred norms.
        """
        work = _Work(is_limited=True)
        streams = RunKey.for_testing("trial").streams(self.name.encode())
        drawn = list(islice(self._accepted(streams, work), draws))
        if len(drawn) < TRIAL_DRAWS:
            reason = (
                f"of {work.proposals:,} proposals in {self.lattice.rank} dimensions {len(drawn)} were accepted: "
                "exact draws are made by rejection, and at this size that would not end"
            )
            raise ConfigError(Problem("k-norm", reason, "use `gaussian`, which is exact at this size"))
        return Trial(np.array(drawn), work.proposals, work.norms)

    def _accepted(self, streams: Streams, work: _Work) -> Iterator[NDArray[np.int64]]:
        """Yield accepted draws; the law of the proposals is that of the L1 norm, given the equalities."""
        parts = [self._of_component(streams, number, work) for number in range(len(self._solutions))]
        attempt = 0
        while not work.is_over:
            move = np.zeros(self.lattice.cells, dtype=np.int64)
            for (free, solved, _), part in zip(self._solutions, parts, strict=True):
                drawn = next(part, None)
                if drawn is None:  # a trial's limit
                    return
                move[free], move[solved] = drawn
            work.norms += 1
            excess = self.body.norm(move) - Fraction(int(np.abs(move).sum()), self.body.l1)
            coin = streams.bits(("table", str(attempt), "k-norm accept", self.name))
            attempt += 1
            if bernoulli_exp(coin, self.epsilon * excess):
                yield move

    def _of_component(
        self, streams: Streams, number: int, work: _Work
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield moves of one component with the law exp(-epsilon ||v||_1 / l1): free cells drawn, the others solved."""
        free, _, matrix = self._solutions[number]
        alone = (np.abs(matrix).sum(axis=1) == 1)[:, None] * np.abs(matrix)
        copies = 1 + alone.sum(axis=0)  # a solved cell that mirrors one free cell weighs with it
        rest = matrix[~alone.any(axis=1)]
        rate, chunk = self.epsilon / self.body.l1, 0
        together = CHUNK if is_tabled(self.proposal(1).weights) else SLOW_CHUNK
        while not work.is_over:
            drawn = np.empty((together, len(free)), dtype=np.int64)
            for times in np.unique(copies).tolist():
                name = ("table", f"{number}.{chunk}.{times}", "k-norm propose", self.name)
                size = int((copies == times).sum())
                block = self.proposal(times).draw(streams.bundle([name]), together * size)
                drawn[:, copies == times] = block.reshape(together, size)
            sizes = np.abs(drawn @ rest.T).sum(axis=1)
            bundle = streams.bundle([("table", f"{number}.{chunk}", "k-norm solve", self.name)])
            words = bundle.words(np.zeros(together, dtype=np.intp), np.arange(together, dtype=np.intp))[:, 0]
            work.proposals += together
            work.tried += CHUNK  # one by one costs as much as a chunk
            for i in np.flatnonzero(words <= self._thresholds(sizes)).tolist():
                more = bundle.bits(0, MAX_POSITIONS + 1 + i)
                if toss_exp(int(words[i]), more.take, rate * int(sizes[i])):
                    yield drawn[i], -matrix @ drawn[i]
            chunk += 1

    @cached_property
    def _solutions(self) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]], ...]:
        """Free cells, solved cells and the matrix of each component."""
        return tuple(solved_by(self.facts, component) for component in self.lattice.components)

    def _thresholds(self, sizes: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return upper bounds of 2^64 exp(-epsilon size / l1): a word above is rejected, others are decided exactly."""
        distinct, where = np.unique(sizes, return_inverse=True)
        rate = self.epsilon / self.body.l1
        limits = [min((1 << 64) - 1, enclose_exp_minus(rate * int(size), 64)[1]) for size in distinct]
        return np.array(limits, dtype=np.uint64)[where]


def solved_by(
    facts: TableFacts, cells: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return cells that are free, cells that the equalities then determine, and how: ``solved = -matrix @ free``.

    Raises
    ------
    ConfigError
        Some cells would not always be integers.

    Examples
    --------
    >>> free, solved, matrix = solved_by(TableFacts(cells=3, values=(), records=9), np.arange(3))
    >>> free.tolist(), solved.tolist(), matrix.tolist()
    ([1, 2], [0], [[1, 1]])
    """
    rows = [[Fraction(int(w)) for w in row] for row in equality_rows(facts)[:, cells]]
    pivots: list[int] = []
    for column in range(len(cells)):
        at = next((r for r in range(len(pivots), len(rows)) if rows[r][column]), None)
        if at is None:
            continue
        rows[len(pivots)], rows[at] = rows[at], rows[len(pivots)]
        lead = [w / rows[len(pivots)][column] for w in rows[len(pivots)]]
        rows = [[a - row[column] * b for a, b in zip(row, lead, strict=True)] if row[column] else row for row in rows]
        rows[len(pivots)] = lead
        pivots.append(column)
    free = [column for column in range(len(cells)) if column not in pivots]
    matrix = [[row[column] for column in free] for row in rows[: len(pivots)]]
    if any(entry.denominator != 1 for row in matrix for entry in row):
        reason = "the invariants determine some cells only as fractions"
        raise ConfigError(Problem("k-norm", reason, "use `gaussian`, which needs no such cells"))
    whole = np.array([[int(entry) for entry in row] for row in matrix], dtype=np.int64).reshape(len(pivots), len(free))
    return cells[free], cells[pivots], whole


@dataclass(slots=True)
class _Work:
    """How much was tried; a trial stops at its limits, and a release does not."""

    proposals: int = 0
    tried: int = 0
    norms: int = 0
    is_limited: bool = False

    @property
    def is_over(self) -> bool:
        return self.is_limited and (self.tried >= TRIAL_PROPOSALS or self.norms >= TRIAL_NORMS)
