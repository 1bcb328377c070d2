"""The distance from a family's measurements, or from linear estimates, as one quadratic on its support.

Measurements of a level give all children one curvature, a sum of groups' indicators over variances. It is never written
out: a product with it sums cells into groups, finer groups into coarser ones, weighs, and goes back the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from das.estimation.problem import FamilyProblem, Quadratic
from das.query import Query

__all__ = ["Distance", "distance_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_DENSE = 1 << 16
"""Up to this many cells a table of the whole schema is kept with the queries; beyond it, cells are looked up."""
_REMEMBERED = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """A quadratic in the children's counts, around a reference, whose curvature is a chain of sums or a table of kinds.

    See :class:`das.estimation.problem.Quadratic`, which says the same with a matrix. Here children lie side by side.
    """

    # A chain: edges (part, whole) between nodes, of which cells are the first, and the weights of nodes;
    edges: NDArray[np.uint32] = field(default_factory=lambda: np.zeros((0, 2), dtype=np.uint32))
    weights: Floats = field(default_factory=lambda: np.zeros(0))
    common: float = 0.0  # of the weights, what counts whole children
    own: float = 1.0  # of the weights that a cell is part of, all others
    # or a table, children (or one row for all) x kinds, and the kind of each pair of cells.
    table: Floats = field(default_factory=lambda: np.zeros((1, 0)))
    kinds: Ints = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    reference: Floats  # cells x children
    pull: Floats  # cells x children
    constant: float
    modulus: float

    @property
    def scale(self) -> float:
        """Curvature of a typical cell."""
        return float(self.weights.max()) if len(self.weights) else float(self.table[0, self.kinds[0, 0]])

    @property
    def firmness(self) -> Floats:
        """What all pairs of a child's cells have in common, in units of what a cell has beyond that."""
        if len(self.weights):
            return np.full(self.reference.shape[1], self.common / self.own)
        common = np.maximum(self.table.min(axis=1), 0.0)
        beyond = float((self.table[:, self.kinds[0, 0]] - common).mean())
        children = self.reference.shape[1]
        return np.broadcast_to(common / beyond, children).copy() if beyond > 0 else np.zeros(children)

    def bend(self, step: Floats) -> Floats:
        """Multiply each child's column by its curvature."""
        from das.estimation.chain_kernels import bend_chain, bend_kinds

        m, n = step.shape
        if not len(self.weights):
            out = np.zeros((m, n))
            bend_kinds(self.table, self.kinds, step, out)
            return out
        sums = np.empty((len(self.weights), n))
        sums[:m] = step
        bend_chain(self.edges, self.weights, m, sums)
        return sums[:m]


def distance_of(problem: FamilyProblem, left: Ints | None = None, x: Floats | None = None) -> Distance:
    """Write a family's distance as a function of its cells or of those left, if the others are settled as in ``x``.

    Answers that none of those cells reaches are constants and left out. The modulus is the precision of queries that
    see every supported cell by itself; what other queries add to the curvature is positive semidefinite.

    Examples
    --------
    >>> from das.schema import Attribute, Schema
    >>> from das.query import parse_query
    >>> from das.estimation.problem import Measured
    >>> schema = Schema((Attribute("sex", ("f", "m")),))
    >>> total = Measured(query=parse_query(schema, "total"), values=np.array([[7]]), variance=0.5)
    >>> detailed = Measured(query=parse_query(schema, "detailed"), values=np.array([[5, 1]]), variance=1.0)
    >>> family = FamilyProblem(level="us", geocodes=("1",), cells=np.arange(2), parent=None,
    ...                        measured=(total, detailed), limits=())
    >>> distance = distance_of(family)
    >>> distance.bend(np.eye(2)[:, :1]).tolist(), distance.modulus, distance.reference.tolist()
    ([[3.0], [2.0]], 1.0, [[5.0], [1.0]])
    """
    whole = problem.correlated
    if whole is None:
        return _of_measurements(problem, left, x)
    if left is None or x is None:
        return _of_quadratic(whole)
    settled = np.ones(len(problem.cells), dtype=bool)
    settled[left] = False
    return _of_quadratic(whole.given(x, settled))


def _of_quadratic(given: Quadratic) -> Distance:
    m = given.pull.shape[1]
    # A matrix that all children share is a table in which every pair of cells is of a kind of its own.
    table, kinds = given.curvature, given.kinds
    if kinds is None:
        table, kinds = table.reshape(1, m * m), np.arange(m * m).reshape(m, m)
    return Distance(
        table=np.ascontiguousarray(table),
        kinds=np.ascontiguousarray(kinds, dtype=np.int64),
        reference=np.ascontiguousarray(given.reference.T),
        pull=np.ascontiguousarray(given.pull.T),
        constant=given.constant,
        modulus=given.modulus,
    )


def _of_measurements(problem: FamilyProblem, left: Ints | None, x: Floats | None) -> Distance:
    from das.estimation.chain_kernels import misfits, take_off

    plan = _plan_of([measured.query for measured in problem.measured])
    answers = plan.answers(problem.cells)
    there = answers if left is None else answers.take(left, axis=1)
    m, n = there.shape[1], len(problem.geocodes)
    groups = _Groups.of(there, plan.finer)
    per = np.diff(groups.starts)
    precision = 1.0 / np.array([measured.variance for measured in problem.measured])[plan.order]
    weight = np.repeat(precision, per)
    values = np.concatenate(
        [
            problem.measured[query].values.take(groups.answer[start:stop], axis=1).T
            for query, start, stop in zip(plan.order.tolist(), groups.starts, groups.starts[1:], strict=False)
        ],
        dtype=np.float64,
    )
    if left is not None and x is not None:
        # Each query's groups have their answers in ascending order only by chance, so they are sorted to be found.
        order = np.lexsort((groups.answer, np.repeat(np.arange(len(per)), per)))
        settled = np.delete(np.arange(answers.shape[1]), left)
        taken = answers.take(settled, axis=1)
        take_off(taken, groups.starts, groups.answer[order], order, x.take(settled, axis=1), values)
    reference: Floats = np.zeros((m, n))
    detailed = np.flatnonzero(per == m)
    for q in detailed[-1:]:
        at = slice(groups.starts[q], groups.starts[q + 1])
        reference[groups.node[at]] = values[at]
    weights = np.bincount(groups.node, weight, minlength=groups.nodes).astype(np.float64)
    pull: Floats = np.empty((m, n))
    sums, forces = np.empty((groups.nodes, n)), np.zeros((groups.nodes, n))
    constant = misfits(values, groups.node, weight, groups.edges, reference, sums, forces, pull)
    return Distance(
        edges=groups.edges,
        weights=weights,
        common=float(precision[per == 1].sum()),
        own=float(precision[per > 1].sum()) or 1.0,
        reference=reference,
        pull=pull,
        constant=constant,
        modulus=float(precision[detailed].sum()),
    )


@dataclass(frozen=True, slots=True)
class _Groups:
    """Groups of some cells, each with its node; groups of one part share the part's node."""

    node: Ints
    answer: Ints  # of the group's query
    starts: Ints  # where each query's groups start
    edges: NDArray[np.uint32]
    nodes: int

    @classmethod
    def of(cls, answers: Ints, finer: Ints) -> _Groups:
        """Chain queries, given the answer of each that each cell counts towards."""
        from das.estimation.chain_kernels import link

        q, m = answers.shape
        span = int(answers.max(initial=0)) + 1
        names = None
        if span > _DENSE:  # answers by rank, so that no table of them all is needed
            names, ranks = np.unique(answers, return_inverse=True)
            answers, span = ranks.reshape(q, m), len(names)
        fresh = np.full(span + (q + 1) * m, -1)
        scratch, edges = np.empty((3, q * m), dtype=np.int64), np.empty((q * m, 2), dtype=np.uint32)
        starts = np.zeros(q + 1, dtype=np.int64)
        nodes, used = link(
            answers, finer, fresh[:span], fresh[span:], scratch[0].reshape(q, m), scratch[1], scratch[2], starts, edges
        )
        node, answer = scratch[1:, : starts[-1]]
        return cls(node, answer if names is None else names[answer], starts, edges[:used], nodes)


class _Plan:
    """Queries in an order in which each can be summed from an earlier one, finest first; the same for every family."""

    def __init__(self, queries: Sequence[Query]) -> None:
        self.queries = tuple(queries)  # kept, so that no other query can take one's identity
        sizes = np.array([query.size for query in queries])
        self.order = np.argsort(-sizes, kind="stable")
        self.ordered = [queries[i] for i in self.order]
        finer = []
        for at, query in enumerate(self.ordered):
            finer.append(next((k for k in reversed(range(at)) if self.ordered[k].refines(query)), -1))
        self.finer = np.array(finer)

    @cached_property
    def _index(self) -> Ints:
        return np.stack([query.index for query in self.ordered])

    def answers(self, cells: Ints) -> Ints:
        """Answer of each query that each of the cells counts towards."""
        if self.queries[0].schema.size <= _DENSE:
            return self._index.take(cells, axis=1)
        return np.stack([query.group_of(cells) for query in self.ordered])


_PLANS: dict[tuple[int, ...], _Plan] = {}


def _plan_of(queries: Sequence[Query]) -> _Plan:
    """Find or make the plan of some queries: a level's families all have the same, as objects."""
    identity = tuple(map(id, queries))
    if identity not in _PLANS:
        if len(_PLANS) >= _REMEMBERED:
            _PLANS.clear()
        _PLANS[identity] = _Plan(queries)
    return _PLANS[identity]
