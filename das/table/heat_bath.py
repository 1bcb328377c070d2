"""Heat-bath (Gibbs) sampling of a small table along Markov moves: a chain with a proved error, and exact draws.

A step picks a move m at random and redraws the table along the line ``{s + k m} in S*`` from its exact conditional law.
Both samplers enumerate S*. The chain has a Doeblin bound on its error, computed over every table that agrees with the
facts (``heat_bath.md``). Coupling from the past (Propp and Wilson 1996) has only the rounding error of the weights.
Where S* is too large to enumerate there is no proof, and such a system is refused; `das.table.quotient` draws it.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike, NDArray

from das.accounting.conditioning import SamplerError
from das.accounting.small_table.dataspace import TableFacts, data_space
from das.accounting.small_table.enumeration import irreducible_moves
from das.errors import ConfigError, Problem
from das.noise.bernoulli import uniform_below
from das.noise.interval_arithmetic import enclose_exp_minus
from das.noise.stream import Bits, Bundle
from das.noise.two_sided import TwoSidedNoise
from das.table.systems import agreeing, no_exact_sampler, public_start

__all__ = ["BathLaw", "HeatBath"]

TABLE_LIMIT = 200
_MOVE_SIZE = 3
_WEIGHT_BITS = 160
_BLOCK = 64  # steps whose joint transition matrix is bounded; longer runs are powers of it


@dataclass(frozen=True)
class HeatBath:
    """The conditional mechanism of a small table by Markov moves; built from public facts alone.

    Parameters
    ----------
    facts : TableFacts
        The public facts.
    noise : DiscreteLaplace or DiscreteGaussian
        The noise of every cell before conditioning.
    moves : array, optional
        One move a row, both directions or one; by default the irreducible ones of up to three records.

    Raises
    ------
    ConfigError
        Too many tables agree with the facts, or the moves do not connect them.

    Examples
    --------
    >>> from das.noise import DiscreteLaplace, RunKey
    >>> bath = HeatBath(TableFacts(cells=3, values=(), records=4), DiscreteLaplace(2))
    >>> len(bath.space), bath.error_upper(400).status, float(bath.error_upper(400).total_variation) < 1e-9
    (15, 'proved', True)
    >>> bundle = RunKey.for_testing("doc").streams(b"").bundle([("table", "", "detailed", "congenial")])
    >>> bath.given([2, 1, 1]).draw(bundle, 2).sum(axis=-1).tolist()
    [[4, 4]]
    """

    facts: TableFacts
    noise: TwoSidedNoise
    moves: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if len(self.space) > TABLE_LIMIT:
            raise no_exact_sampler(self.facts, f"a heat bath is proved for {TABLE_LIMIT} tables at most")
        reached = np.arange(len(self.space)) == 0
        while not reached.all():
            before = reached.sum()
            for line in self._lines:
                reached |= np.isin(line, line[reached])
            if reached.sum() == before:
                break
        if not reached.all():
            reason = "they do not lead from every table to every other"
            raise ConfigError(Problem("moves", reason, "give a Markov basis of the invariants"))

    @cached_property
    def space(self) -> NDArray[np.int64]:
        """Every table that agrees with the facts."""
        return data_space(self.facts)

    @cached_property
    def _lines(self) -> NDArray[np.int64]:
        """For each move and table, the index of the table's line. The lines of one move partition the space."""
        moves = irreducible_moves(self.facts, _MOVE_SIZE) if self.moves is None else np.asarray(self.moves)
        kept: list[NDArray[np.int64]] = []
        for move in moves:
            if not any(np.array_equal(move, -other) for other in kept) and np.any(move):
                kept.append(move)
        place = {tuple(table): i for i, table in enumerate(self.space.tolist())}
        lines = np.empty((len(kept), len(self.space)), dtype=np.int64)
        for row, move in enumerate(kept):
            for i, table in enumerate(self.space):
                end = table
                while tuple((end - move).tolist()) in place:
                    end = end - move
                lines[row, i] = place[tuple(end.tolist())]
        return lines

    @cached_property
    def start(self) -> int:
        """Start of every chain: a table that is computed from the facts alone."""
        even = public_start(self.facts)
        return int(np.flatnonzero((self.space == even).all(axis=1))[0])

    @cached_property
    def _doeblin(self) -> float:
        """The least, over all confidential tables, of ``sum over s' of min over s of P^64(s, s')``, rounded down."""
        if len(self.space) == 1:
            return 1.0
        least = 1.0
        for x in self.space:
            transition = BathLaw(self, tuple(x.tolist())).transition
            power = np.linalg.matrix_power(transition, _BLOCK)
            least = min(least, float(power.min(axis=0).sum()))
        return max(0.0, least - 1e-9)  # well above the rounding error of 64 products of 200 numbers

    def error_upper(self, steps: int) -> SamplerError:
        """Bound the total variation distance after this many steps, for every data set.

        If ``P^64(s, .) >= beta nu`` for all s, the distance to the stationary law is at most ``(1 - beta)^(steps/64)``
        (Doeblin; see Rosenthal 1995, theorem 1).
        """
        within = (1 - Fraction(self._doeblin)) ** (steps // _BLOCK)
        return SamplerError(total_variation=within + self._rounded, status="proved")

    @property
    def error(self) -> SamplerError:
        """The error of a draw by coupling from the past: the rounding of the weights alone."""
        return SamplerError(total_variation=self._rounded, status="proved")

    @property
    def _rounded(self) -> Fraction:
        # each weight is less than one unit of 2^-160 off, and the confidential table itself has weight 1
        return Fraction(len(self.space), 1 << _WEIGHT_BITS)

    def given(self, x: ArrayLike) -> BathLaw:
        """Return the law around a confidential table."""
        return BathLaw(self, agreeing(self.facts, x))


@dataclass(frozen=True)
class BathLaw:
    """The conditional law around one confidential table."""

    bath: HeatBath
    centre: tuple[int, ...] = field(repr=False)

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """The integer weight of each table, in units of 2^-160."""
        exponent = self.bath.noise.weights.exponent
        away = (self.bath.space - np.array(self.centre)).tolist()
        floors = (enclose_exp_minus(sum(map(exponent, row), Fraction(0)), _WEIGHT_BITS)[0] for row in away)
        return tuple(max(1, weight) for weight in floors)  # every table keeps a positive weight

    @cached_property
    def transition(self) -> NDArray[np.float64]:
        """The transition matrix of one step."""
        shares = np.array([weight / (1 << _WEIGHT_BITS) for weight in self.weights])
        matrix = np.zeros((len(shares), len(shares)))
        for line in self.bath._lines:
            same = line[:, None] == line[None, :]
            rows = same * shares
            matrix += rows / rows.sum(axis=1, keepdims=True)
        return matrix / len(self.bath._lines)

    @cached_property
    def _cumulated(self) -> tuple[dict[int, tuple[list[int], list[int]]], ...]:
        """For each move and line: the tables on it, and their cumulative weights."""
        lines = []
        for line in self.bath._lines:
            members = {number: np.flatnonzero(line == number).tolist() for number in np.unique(line).tolist()}
            lines.append({n: (m, list(accumulate(self.weights[i] for i in m))) for n, m in members.items()})
        return tuple(lines)

    def step(self, state: int, bits: Bits) -> int:
        """Redraw table number `state` along a random move, exactly."""
        move = uniform_below(bits, len(self._cumulated))
        return _redraw(self._cumulated[move][int(self.bath._lines[move, state])], bits)

    def run(self, bundle: Bundle, n: int, steps: int) -> NDArray[np.int64]:
        """Return the last tables of n chains of `steps` steps, an array (streams, n, cells); see `error_upper`."""
        ends = np.empty((bundle.count, n), dtype=np.int64)
        for stream, i in np.ndindex(bundle.count, n):
            bits, state = bundle.bits(stream, i), self.bath.start
            for _ in range(steps):
                state = self.step(state, bits)
            ends[stream, i] = state
        return self.bath.space[ends]

    def draw(self, bundle: Bundle, n: int) -> NDArray[np.int64]:
        """Return n exact tables from each stream, by coupling from the past: an array (streams, n, cells).

        Every step is a random map of all tables, which sends the tables of one line to one table. Earlier maps are
        composed *before* those already drawn until the composition is constant; its value has the stationary law
        (Propp and Wilson 1996, theorem 3).
        """
        ends = [[self._coupled(bundle.bits(stream, i)) for i in range(n)] for stream in range(bundle.count)]
        return self.bath.space[np.array(ends, dtype=np.int64).reshape(bundle.count, n)]

    def _coupled(self, bits: Bits) -> int:
        reached: NDArray[np.int64] = np.arange(len(self.bath.space))
        while reached.min() != reached.max():
            step = np.empty_like(reached)
            for line in self._cumulated[uniform_below(bits, len(self._cumulated))].values():
                step[line[0]] = _redraw(line, bits)
            reached = reached[step]  # this step is earlier than all steps drawn so far
        return int(reached[0])


def _redraw(line: tuple[list[int], list[int]], bits: Bits) -> int:
    members, sums = line
    return members[bisect_right(sums, uniform_below(bits, sums[-1]))]
