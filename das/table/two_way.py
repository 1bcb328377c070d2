"""Draws of a two-way table given both margins, column by column, with the proved error of `das.table.quotient`.

The state is the sum so far of every row but the largest. One column, with its total c_j, is one factor

    f_j(a) = product over rows of w(a_i - x_ij),   a_1 + ... + a_r = c_j,

and the weights of all states are its convolutions F_k = F_(k-1) * f_k, in integers. Columns are drawn from the last to
the first. For 2 x c tables this is one total; the graph of `das.table.class_graph`, which goes cell by cell, serves any
facts but holds every step. ``two_way.md`` has the proof.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike, NDArray

from das.accounting.conditioning import SamplerError
from das.accounting.small_table.dataspace import TableFacts
from das.errors import ConfigError, Problem
from das.noise.stream import Bundle
from das.noise.two_sided import TwoSidedNoise
from das.table.fixed_point import FixedPoint, fixed_point
from das.table.integer_convolution import Grid, convolved, packed_digits
from das.table.neighbours import crossing_sets
from das.table.systems import agreeing, agrees, public_start
from das.table.walks import WORD_BITS, words

__all__ = ["TwoWayLaw", "TwoWaySampler", "TwoWayTable"]

LARGEST_DIGITS = 30_000_000
"""Decimal digits of one product of packed weights: some seconds and less than a gigabyte."""
DIRECT = 2_000_000
"""Products of two weights that are added one by one."""
KEPT = 200
"""States that offer fewer columns are kept from one draw to the next."""

Offers = tuple[NDArray[np.int64], list[int]]
"""What a column can be, all rows but the last, and the running sums of the weights."""


@dataclass(frozen=True)
class TwoWayTable:
    """A table with both margins public, as the walk sees it: all of it follows from the facts.

    Parameters
    ----------
    row_totals : tuple of int
        The largest last.
    column_totals : tuple of int
        In the order of the walk: the second largest first, the largest last.
    cells : array (rows, columns)
        The cell of each row and column; -1 for a structural zero.

    Examples
    --------
    >>> from das.accounting.small_table.margins import margin_invariants
    >>> rows = margin_invariants((3, 2), [(0,), (1,)])
    >>> TwoWayTable.of(TableFacts(cells=6, invariants=rows, values=(2, 1, 4, 3, 4), records=7)).row_totals
    (3, 4)
    """

    row_totals: tuple[int, ...]
    column_totals: tuple[int, ...]
    cells: NDArray[np.int64]

    @classmethod
    def of(cls, facts: TableFacts) -> TwoWayTable | None:
        """Return the table if the facts are two crossing sets of totals with at most one cell in each crossing."""
        sets = () if any(low < high for _, low, high in facts.bounds) else crossing_sets(facts)
        allowed = list(facts.allowed)
        if len(sets) != 2 or len({(sets[0][cell], sets[1][cell]) for cell in allowed}) < len(allowed):
            return None
        start = public_start(facts)
        ways = [_arranged(np.array(a), np.array(b), allowed, start) for a, b in (sets, sets[::-1])]
        return min(ways, key=lambda table: math.prod(total + 1 for total in table.row_totals[:-1]))

    def ranges(self, k: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the least and the largest sums of all rows but the last after k columns."""
        rows = np.array(self.row_totals[:-1], dtype=np.int64)
        before, after = sum(self.column_totals[:k]), sum(self.column_totals[k:])
        return np.maximum(rows - after, 0), np.minimum(rows, before)

    def box(self, k: int) -> tuple[int, ...]:
        """Return how many values each row but the last has in column k."""
        return tuple(min(total, self.column_totals[k]) + 1 for total in self.row_totals[:-1])

    def states(self, k: int) -> tuple[int, ...]:
        """Return the shape of the states after k columns."""
        low, high = self.ranges(k)
        return tuple((high - low + 1).tolist())


def _arranged(
    rows: NDArray[np.int64], columns: NDArray[np.int64], allowed: list[int], x: NDArray[np.int64]
) -> TwoWayTable:
    totals = [np.bincount(labels[allowed], weights=x[allowed]).astype(np.int64) for labels in (rows, columns)]
    row_names = sorted(set(rows[allowed].tolist()), key=lambda name: int(totals[0][name]))
    column_names = sorted(set(columns[allowed].tolist()), key=lambda name: int(totals[1][name]))
    column_names = [*column_names[-2:-1], *column_names[:-2], *column_names[-1:]]
    cells = np.full((len(row_names), len(column_names)), -1, dtype=np.int64)
    for cell in allowed:
        cells[row_names.index(rows[cell]), column_names.index(columns[cell])] = cell
    return TwoWayTable(
        tuple(int(totals[0][name]) for name in row_names), tuple(int(totals[1][name]) for name in column_names), cells
    )


@dataclass(frozen=True)
class TwoWaySampler:
    """The conditional mechanism of a two-way table with both margins; built from public facts alone.

    Raises
    ------
    ConfigError
        The facts are of another kind, or there are too many states.

    Examples
    --------
    >>> from das.accounting.small_table.margins import margin_invariants
    >>> from das.noise import DiscreteLaplace, RunKey
    >>> facts = TableFacts(cells=4, invariants=margin_invariants((2, 2), [(0,), (1,)]), values=(5, 2, 4, 3), records=7)
    >>> law = TwoWaySampler(facts, DiscreteLaplace(2)).given([3, 2, 1, 1])
    >>> bundle = RunKey.for_testing("doc").streams(b"").bundle([("table", "", "detailed", "congenial")])
    >>> round(law.log_normalizer, 6), law.draw(bundle, 2).shape
    (0.239545, (1, 2, 4))
    """

    facts: TableFacts
    noise: TwoSidedNoise

    def __post_init__(self) -> None:
        for k in range(1, len(self.table.column_totals) - 1):
            digits = packed_digits(self.table.states(k), self.table.box(k), self.arithmetic.bits)
            if self._products(k) > DIRECT and digits > LARGEST_DIGITS:
                reason = (
                    f"after {k + 1} columns the sums of {len(self.table.row_totals) - 1} rows have "
                    f"{math.prod(self.table.states(k + 1)):,} values, too many for exact weights"
                )
                raise ConfigError(Problem("facts", reason, "publish one margin, or a coarser table"))

    @cached_property
    def table(self) -> TwoWayTable:
        """The rows and columns of the walk."""
        found = TwoWayTable.of(self.facts)
        if found is None:
            reason = "they are not both margins of a two-way table"
            raise ConfigError(Problem("facts", reason, "use the sampler of class totals"))
        return found

    def _products(self, k: int) -> int:
        """Bound the products of weights that column k adds to the states."""
        free = len(self.table.row_totals) - 1
        ways = min(math.comb(self.table.column_totals[k] + free, free), math.prod(self.table.box(k)))
        return ways * math.prod(self.table.states(k))

    @cached_property
    def arithmetic(self) -> FixedPoint:
        """Reach and precision of the fixed-point weights, chosen so that `error` holds."""
        table, columns = self.table, len(self.table.column_totals)
        values = sum(math.prod(table.box(k)) + math.prod(table.states(k + 1)) for k in range(columns))
        top = min(max(table.row_totals), max(table.column_totals))
        return fixed_point(self.noise.weights, cells=len(self.facts.allowed), top=top, values=values)

    @property
    def error(self) -> SamplerError:
        """The total variation distance from p*, for every data set: proved, and none of it depends on the data."""
        return SamplerError(total_variation=self.arithmetic.lost, status="proved")

    def given(self, x: ArrayLike) -> TwoWayLaw:
        """Return the law around a confidential table."""
        return TwoWayLaw(self, agreeing(self.facts, x))


@dataclass(frozen=True)
class TwoWayLaw:
    """The conditional law around one confidential table; only a draw of it may be published."""

    sampler: TwoWaySampler
    centre: tuple[int, ...] = field(repr=False)

    @cached_property
    def columns(self) -> tuple[Grid, ...]:
        """The factors f_k, rounded down; index a holds the counts of all rows but the last."""
        one, table, found = self.sampler.arithmetic, self.sampler.table, []
        for k, total in enumerate(table.column_totals):
            weights = [
                [one.weight(a - self.centre[cell]) if cell >= 0 else int(a == 0) << one.bits for a in range(total + 1)]
                for cell in table.cells[:, k].tolist()
            ]
            shape = table.box(k)
            used = np.add.outer(0, 0)
            factor: NDArray[np.object_] = np.array(1, dtype=object)
            for row, size in enumerate(shape):
                used = np.add.outer(used, np.arange(size))
                factor = np.multiply.outer(factor, np.array(weights[row][:size], dtype=object))
            rest = np.array([*weights[-1], 0], dtype=object)[np.where(used <= total, total - used, total + 1)]
            found.append((factor * rest).reshape(shape) >> (one.bits * len(shape)))
        return tuple(found)

    @cached_property
    def sums(self) -> tuple[Grid, ...]:
        """For each k from 1 on, without the last: the weights of all states after k columns, rounded down."""
        table, one = self.sampler.table, self.sampler.arithmetic
        low, high = table.ranges(1)
        found = [self.columns[0][tuple(slice(a, b + 1) for a, b in zip(low, high, strict=True))]]
        for k in range(1, len(table.column_totals) - 1):
            before, (low, high) = table.ranges(k)[0], table.ranges(k + 1)
            direct = self.sampler._products(k) <= DIRECT
            exact = convolved(found[-1], self.columns[k], low - before, high - before, one.bits, direct=direct)
            found.append(exact >> one.bits)
        return tuple(found)

    def offers(self, k: int, state: tuple[int, ...]) -> Offers:
        """Return what column k can be if the rows sum to a state after it, with running sums of exact weights."""
        table = self.sampler.table
        low, high = table.ranges(k)
        at = np.array(state, dtype=np.int64)
        least, most = np.maximum(at - high, 0), np.minimum(at - low, np.array(table.box(k)) - 1)
        if np.any(least > most):
            return np.zeros((0, len(at)), dtype=np.int64), []
        factor = self.columns[k][tuple(slice(a, b + 1) for a, b in zip(least, most, strict=True))]
        if k:
            first, last = at - most - low, at - least - low
            before = self.sums[k - 1][tuple(slice(a, b + 1) for a, b in zip(first, last, strict=True))]
            factor = factor * np.flip(before)
        places = np.flatnonzero(factor)
        chosen = np.stack(np.unravel_index(places, factor.shape), axis=1) + least
        return chosen, list(accumulate(factor.reshape(-1)[places].tolist()))

    @cached_property
    def _last(self) -> Offers:
        return self.offers(len(self.columns) - 1, self.sampler.table.row_totals[:-1])

    @cached_property
    def log_normalizer(self) -> float:
        """``log Z(x)``, ``Z(x) = sum over s in S* of product w(s_c - x_c)`` with ``w(0) = 1``."""
        scale = self.sampler.arithmetic.bits * (2 if len(self.columns) > 1 else 1)
        return math.log(self._last[1][-1]) - scale * math.log(2)

    def log_density(self, s: ArrayLike) -> NDArray[np.float64]:
        """Return ``log p*(s | x)`` for tables along the last axis; minus infinity where the facts do not hold."""
        tables, weights = np.asarray(s), self.sampler.noise.weights
        away = np.abs(tables - np.array(self.centre))
        exponent = float(weights.quadratic) * (away * away).sum(axis=-1) + float(weights.linear) * away.sum(axis=-1)
        return np.where(agrees(self.sampler.facts, tables), -exponent - self.log_normalizer, -np.inf)

    def draw(self, bundle: Bundle, n: int) -> NDArray[np.int64]:
        """Return n tables from each stream: an array (streams, n, cells).

        Table i is a function of its stream and of i alone, however the draws are divided among calls.
        """
        steps = len(self.columns)
        uniform = words(bundle, n * steps)
        tables = np.zeros((bundle.count, n, self.sampler.facts.cells), dtype=np.int64)
        seen: dict[tuple[int, tuple[int, ...]], Offers] = {}
        for stream in range(bundle.count):
            for i in range(n):
                tables[stream, i] = self._table(uniform[stream], bundle, stream, i * steps, seen)
        return tables

    def _table(
        self,
        uniform: NDArray[np.uint32],
        bundle: Bundle,
        stream: int,
        position: int,
        seen: dict[tuple[int, tuple[int, ...]], Offers],
    ) -> NDArray[np.int64]:
        table = self.sampler.table
        drawn = np.zeros(self.sampler.facts.cells, dtype=np.int64)
        state = np.array(table.row_totals[:-1], dtype=np.int64)
        for step, k in enumerate(reversed(range(len(self.columns)))):
            where = (k, tuple(state.tolist()))
            offered, running = seen.get(where) or (self.offers(*where) if step else self._last)
            if len(running) < KEPT:
                seen[where] = offered, running
            place = choose_running(running, int(uniform[position + step]), bundle, stream, position + step)
            column = np.append(offered[place], table.column_totals[k] - int(offered[place].sum()))
            there = table.cells[:, k] >= 0
            drawn[table.cells[there, k]] = column[there]
            state -= offered[place]
        return drawn


def choose_running(running: list[int], word: int, bundle: Bundle, stream: int, position: int) -> int:
    """Return place i with probability (its weight) / (sum of weights) exactly, from a word and further bits.

    `running` are the sums of the weights up to each place. The word and further bits are the binary digits of a point
    of [0, 1); digits are taken until its interval lies within one share.
    """
    total, digits, point, source = running[-1], WORD_BITS, word, None
    while True:
        place = bisect_right(running, (point * total) >> digits)
        if (point + 1) * total <= running[place] << digits:
            return place
        source = source or bundle.bits(stream, position)
        point = (point << WORD_BITS) | source.take(WORD_BITS)
        digits += WORD_BITS
