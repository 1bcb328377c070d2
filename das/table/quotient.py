"""Draws of small tables given any linear public facts (margins, bounds, crossing totals), with a proved error.

    p*(s | x)  proportional to  product over cells of w(s_c - x_c)   on   S* = {s >= 0 : the public facts hold}

Cells with equal weights in every fact form a class, and the facts constrain class totals alone: the *quotient* of the
table. A draw first draws the class totals (dynamic programming over the partial sums of the facts), then splits each
total among the cells of its class (convolutions and backward sampling). With two-way margins every class has one cell,
and the states are partial row sums. ``quotient.md`` has the proof of the error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from das.accounting.conditioning import SamplerError
from das.accounting.small_table.dataspace import TableFacts
from das.noise.stream import Bits, Bundle
from das.noise.two_sided import TwoSidedNoise
from das.table.class_graph import ClassGraph, class_graph
from das.table.fixed_point import FixedPoint, fixed_point
from das.table.systems import agreeing, agrees, no_exact_sampler
from das.table.walks import LARGEST_AMOUNT, Choice, Walks, choose, draw_tables, flatten, words

__all__ = ["TableLaw", "TableSampler"]

SPLIT_LIMIT = 5_000_000


@dataclass(frozen=True)
class TableSampler:
    """The conditional mechanism of one table; built from public facts alone.

    Parameters
    ----------
    facts : TableFacts
        The public facts, with their values and the number of records.
    noise : DiscreteLaplace or DiscreteGaussian
        The noise of every cell before conditioning.

    Raises
    ------
    InfeasibleError
        No table agrees with the facts.
    ConfigError
        The graph of class totals is too large; the message names nested facts that can be sampled as a tree.

    Examples
    --------
    >>> from das.accounting.small_table.margins import margin_invariants
    >>> from das.noise import DiscreteLaplace, RunKey
    >>> facts = TableFacts(cells=4, invariants=margin_invariants((2, 2), [(0,), (1,)]), values=(5, 2, 4, 3), records=7)
    >>> law = TableSampler(facts, DiscreteLaplace(2)).given([3, 2, 1, 1])
    >>> bundle = RunKey.for_testing("doc").streams(b"").bundle([("table", "", "detailed", "congenial")])
    >>> law.draw(bundle, 1).shape
    (1, 1, 4)
    >>> round(law.log_normalizer, 6), round(float(np.exp(law.log_density([3, 2, 1, 1]))), 6)
    (0.239545, 0.786986)
    """

    facts: TableFacts
    noise: TwoSidedNoise

    def __post_init__(self) -> None:
        if max(self.graph.tops) > LARGEST_AMOUNT:
            raise no_exact_sampler(self.facts, f"a class total may exceed {LARGEST_AMOUNT:,}")
        sizes = ((len(cells) - 1, top + 1) for cells, top in zip(self.graph.cells, self.graph.tops, strict=True))
        if sum(cells * totals * min(totals, 2 * self.arithmetic.reach + 1) for cells, totals in sizes) > SPLIT_LIMIT:
            raise no_exact_sampler(self.facts, f"more than {SPLIT_LIMIT:,} ways to split the class totals")

    @cached_property
    def graph(self) -> ClassGraph:
        """The graph of class totals that the facts allow."""
        return class_graph(self.facts)

    @cached_property
    def arithmetic(self) -> FixedPoint:
        """Reach and precision of the fixed-point weights, chosen so that `error` holds."""
        nodes = self.graph.size + sum(
            len(cells) * (top + 1) for cells, top in zip(self.graph.cells, self.graph.tops, strict=True)
        )
        return fixed_point(self.noise.weights, cells=len(self.facts.allowed), top=max(self.graph.tops), values=nodes)

    @property
    def error(self) -> SamplerError:
        """The total variation distance from p*, for every data set: proved, and none of it depends on the data."""
        return SamplerError(total_variation=self.arithmetic.lost, status="proved")

    def given(self, x: ArrayLike) -> TableLaw:
        """Return the law around a confidential table."""
        return TableLaw(self, agreeing(self.facts, x))


@dataclass(frozen=True)
class TableLaw:
    """The conditional law around one confidential table; only a draw of it may be published."""

    sampler: TableSampler
    centre: tuple[int, ...] = field(repr=False)

    @cached_property
    def log_normalizer(self) -> float:
        """``log Z(x)``, ``Z(x) = sum over s in S* of product w(s_c - x_c)`` with ``w(0) = 1``."""
        return math.log(self._ahead[0][0]) - self.sampler.arithmetic.bits * math.log(2)

    def log_density(self, s: ArrayLike) -> NDArray[np.float64]:
        """Return ``log p*(s | x)`` for tables along the last axis; minus infinity where the facts do not hold.

        With the released table as `s` this is the likelihood of a confidential table, for analysts who know the facts.
        """
        tables = np.asarray(s)
        weights = self.sampler.noise.weights
        away = np.abs(tables - np.array(self.centre))
        exponent = float(weights.quadratic) * (away * away).sum(axis=-1) + float(weights.linear) * away.sum(axis=-1)
        return np.where(agrees(self.sampler.facts, tables), -exponent - self.log_normalizer, -np.inf)

    def draw(self, bundle: Bundle, n: int) -> NDArray[np.int64]:
        """Return n tables from each stream: an array (streams, n, cells).

        Table i is a function of its stream and of i alone, however the draws are divided among calls.
        """
        graph = self.sampler.graph
        steps = len(graph.cells) + sum(len(cells) - 1 for cells in graph.cells)
        uniform = words(bundle, n * steps).reshape(bundle.count * n, steps)
        tables = np.empty((bundle.count * n, self.sampler.facts.cells), dtype=np.int64)
        tables[:, sorted(self.sampler.facts.zeros)] = 0
        members = np.array([cell for cells in graph.cells for cell in cells], dtype=np.int64)
        member_first = np.cumsum([0, *map(len, graph.cells)])
        walks = self._walks
        arrays = (walks.first, walks.threshold, walks.amount, walks.following, walks.guide)
        tops = np.array(graph.tops, dtype=np.int64)
        decided = draw_tables(*arrays, self._entries, tops, member_first, members, uniform, tables)
        for row in np.flatnonzero(~decided).tolist():
            stream, table = divmod(row, n)
            tables[row] = self.decide(uniform[row].tolist(), bundle, stream, table * steps)
        return tables.reshape(bundle.count, n, -1)

    def decide(self, uniform: list[int], bundle: Bundle, stream: int, position: int) -> NDArray[np.int64]:
        """Draw one table in rational arithmetic, for words on a threshold; elsewhere the same as the fast draw."""
        graph = self.sampler.graph
        table = np.zeros(self.sampler.facts.cells, dtype=np.int64)

        def take(choice: Choice, step: int) -> int:
            def more() -> Bits:
                return bundle.bits(stream, position + step)

            return choose(choice.weights, uniform[step], more)

        totals, node, step = [], 0, 0
        for level in range(len(graph.cells)):
            choice = self._of_class(level, node)
            place = take(choice, step)
            totals.append(choice.amounts[place])
            node, step = choice.following[place], step + 1
        for k, cells in enumerate(graph.cells):
            left = totals[k]
            for j, cell in enumerate(cells[:-1]):
                choice = self._of_member(k, j, left)
                table[cell] = choice.amounts[take(choice, step)]
                left, step = left - int(table[cell]), step + 1
            table[cells[-1]] = left
        return table

    @cached_property
    def _rests(self) -> tuple[tuple[list[int], ...], ...]:
        """For each class, member and remaining total: the weight of all splits among this member and those after it."""
        one, found = self.sampler.arithmetic, []
        for cells, top in zip(self.sampler.graph.cells, self.sampler.graph.tops, strict=True):
            rests = [[one.weight(left - self.centre[cells[-1]]) for left in range(top + 1)]]
            for cell in reversed(cells[:-1]):
                after, splits = rests[0], (self._splits(cell, left) for left in range(top + 1))
                sums = (sum(weight * after[left - s] for s, weight in split) for left, split in enumerate(splits))
                rests.insert(0, [total >> one.bits for total in sums])
            found.append(tuple(rests))
        return tuple(found)

    @cached_property
    def _ahead(self) -> tuple[list[int], ...]:
        """For each level and node: the total weight of all walks from there on."""
        graph, bits = self.sampler.graph, self.sampler.arithmetic.bits
        ahead = [[1 << bits]]
        for level in reversed(range(len(graph.cells))):
            weight, after = self._rests[level][0], ahead[0]
            sums = (sum(weight[amount] * after[node] for amount, node in edges) for edges in graph.edges[level])
            ahead.insert(0, [total >> bits for total in sums])
        if not ahead[0][0]:
            raise ArithmeticError("the table lies outside the reach of its own noise")
        return tuple(ahead)

    def _of_class(self, level: int, node: int) -> Choice:
        weight, after = self._rests[level][0], self._ahead[level + 1]
        return _sorted([(weight[a] * after[n], a, n) for a, n in self.sampler.graph.edges[level][node]])

    def _of_member(self, k: int, j: int, left: int) -> Choice:
        after = self._rests[k][j + 1]
        splits = self._splits(self.sampler.graph.cells[k][j], left)
        return _sorted([(weight * after[left - s], s, left - s) for s, weight in splits] or [(0, 0, 0)])

    def _splits(self, cell: int, left: int) -> list[tuple[int, int]]:
        """Counts that a cell can take of the remaining total, within the reach of its noise, with their weights."""
        own, one = self.centre[cell], self.sampler.arithmetic
        return [(s, one.weight(s - own)) for s in range(max(0, own - one.reach), min(left, own + one.reach) + 1)]

    @cached_property
    def _entries(self) -> NDArray[np.int64]:
        """Index of the first node of each class in the flat arrays: after those of the quotient, class by class."""
        graph = self.sampler.graph
        sizes = [(len(cells) - 1) * (top + 1) for cells, top in zip(graph.cells, graph.tops, strict=True)]
        return np.cumsum([graph.size, *sizes[:-1]])

    @cached_property
    def _walks(self) -> Walks:
        return flatten(self._numbered())

    def _numbered(self) -> Iterator[Choice]:
        """Every node in the order of the flat arrays, with following nodes numbered likewise."""
        graph = self.sampler.graph
        begin = 0
        for level, edges in enumerate(graph.edges):
            begin += len(edges)
            for node in range(len(edges)):
                yield _shifted(self._of_class(level, node), begin)
        for k, (cells, top) in enumerate(zip(graph.cells, graph.tops, strict=True)):
            begin = int(self._entries[k])
            for j in range(len(cells) - 1):
                begin += top + 1
                for left in range(top + 1):
                    yield _shifted(self._of_member(k, j, left), begin)


def _sorted(offers: list[tuple[int, int, int]]) -> Choice:
    """Put the heaviest first, so that few comparisons decide; leave out what cannot be, if anything can."""
    offers.sort(key=lambda offer: (-offer[0], offer[1]))
    while len(offers) > 1 and not offers[-1][0]:
        offers.pop()
    weights, amounts, following = zip(*offers, strict=True)
    return Choice(amounts, weights if weights[0] else (1,), following)


def _shifted(choice: Choice, begin: int) -> Choice:
    return Choice(choice.amounts, choice.weights, tuple(begin + node for node in choice.following))
