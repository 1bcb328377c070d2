"""Families of one level as the compiled solver takes them: children and cells of all of them one after the other.

Families of a level are measured alike and limited alike, and each is small. One call solves and certifies all of them,
so Python's overhead is paid once for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from das.estimation.grouping import Grouping, answers_of_cells, group_cells
from das.estimation.problem import FamilyProblem, Quadratic
from das.estimation.solvers.active_set.layout import (
    EstimateArrays,
    Families,
    Floats,
    Ints,
    LimitArrays,
    MeasurementArrays,
)
from das.schema.query import Query

__all__ = ["Batch", "batches"]

_ALL = 256
"""Queries with at most so many answers get a column for each; others, one for each that the families' cells reach."""
_REMEMBERED = 64


@dataclass(frozen=True, slots=True)
class Batch:
    """Families that were measured and are limited alike; or one, with linear estimates of its own."""

    families: Families

    @classmethod
    def of(cls, problems: Sequence[FamilyProblem]) -> Batch:
        """Lay out families that belong together, see :func:`batches`."""
        first, cells = problems[0], np.concatenate([problem.cells for problem in problems])
        order = _order_of([] if first.correlated is not None else [measured.query for measured in first.measured])
        groupings = order.groupings(cells)
        measured = [
            [
                problem.measured[query].values.take(grouping.answers, axis=1)
                for query, grouping in zip(order.order, groupings, strict=True)
            ]
            for problem in problems
        ]
        limits = LimitArrays(
            parent=np.concatenate([np.zeros(0), *(p.parent for p in problems if p.parent is not None)]),
            column_of=_stacked([answers_of_cells(limits.query, cells) for limits in first.limits], cells),
            columns=_starts([limits.query.size for limits in first.limits]),
            lower=_laid_out([[limits.lower for limits in problem.limits] for problem in problems], problems),
            upper=_laid_out([[limits.upper for limits in problem.limits] for problem in problems], problems),
        )
        measurements = MeasurementArrays(
            column_of=_stacked([grouping.index for grouping in groupings], cells),
            finer=order.finer,
            precision=np.array([1.0 / first.measured[query].variance for query in order.order]),
            columns=_starts([values.shape[1] for values in measured[0]]),
            values=_laid_out(measured, problems),
        )
        families = Families(
            child_start=_starts([len(problem.geocodes) for problem in problems]),
            cell_start=_starts([len(problem.cells) for problem in problems]),
            limits=limits,
            measurements=measurements,
            estimates=_estimates(first.correlated),
        )
        return cls(families)

    def solve(self) -> tuple[list[Floats], Floats]:
        """Return a table for each family, children x cells, and a row: solved or not, gap, violation, products.

        Examples
        --------
        >>> from das.schema.schema import Attribute, Schema
        >>> from das.schema.query import parse_query
        >>> from das.estimation.problem import Measured
        >>> schema = Schema((Attribute("sex", ("f", "m")),))
        >>> noisy = Measured(query=parse_query(schema, "detailed"), values=np.array([[5, -3], [2, 6]]), variance=1.0)
        >>> family = FamilyProblem(level="tract", geocodes=("1", "2"), cells=np.arange(2), parent=np.array([5, 4]),
        ...                        measured=(noisy,), limits=())
        >>> tables, report = Batch.of([family, family]).solve()
        >>> [table.round(6).tolist() for table in tables], report[:, 0].tolist()
        ([[[4.0, 0.0], [1.0, 4.0]], [[4.0, 0.0], [1.0, 4.0]]], [1.0, 1.0])
        """
        from das.estimation.solvers.active_set.kernel import solve_all

        children, cells = np.diff(self.families.child_start), np.diff(self.families.cell_start)
        x, report = np.zeros(int(children @ cells)), np.zeros((len(children), 4))
        solve_all(self.families, x, report)
        ends = np.cumsum(children * cells)
        return [x[end - n * m : end].reshape(n, m) for end, n, m in zip(ends, children, cells, strict=True)], report


def batches(problems: Sequence[FamilyProblem]) -> Iterator[list[FamilyProblem]]:
    """Cut a sequence of families into runs that were measured and are limited alike."""
    for _, run in groupby(problems, key=_likeness):
        yield list(run)


def _likeness(problem: FamilyProblem) -> tuple[object, ...]:
    if problem.correlated is not None:
        return (id(problem),)
    measured = ((id(each.query), each.variance) for each in problem.measured)
    return (problem.parent is None, *measured, *(limits.query.name for limits in problem.limits))


def _starts(sizes: Sequence[int]) -> Ints:
    return np.cumsum([0, *sizes])


def _laid_out(pieces: list[list[NDArray[Any]]], problems: Sequence[FamilyProblem]) -> Ints:
    """Put the arrays of a family beside one another, and the families below one another."""
    columns, rows = _starts([each.shape[1] for each in pieces[0]]), _starts([len(each.geocodes) for each in problems])
    out = np.empty((rows[-1], columns[-1]), dtype=np.int64)
    for family, first, last in zip(pieces, rows, rows[1:], strict=False):
        for each, start, stop in zip(family, columns, columns[1:], strict=False):
            out[first:last, start:stop] = each
    return out


def _stacked(rows: Sequence[Ints], cells: Ints) -> Ints:
    return np.stack(rows) if rows else np.zeros((0, len(cells)), dtype=np.int64)


def _estimates(own: Quadratic | None) -> EstimateArrays:
    if own is None:
        none = np.zeros((0, 0))
        return EstimateArrays(none, none.astype(np.int64), none, none, 0.0, 0.0)
    table, kinds = own.hessian, own.kinds
    if kinds is None:
        # A matrix that all children share is a table in which every pair of cells is of a kind of its own.
        table, kinds = table.reshape(1, table.size), np.arange(table.size).reshape(table.shape)
    return EstimateArrays(
        table=_own(table, np.float64),
        kinds=_own(kinds, np.int64),
        reference=_own(own.reference, np.float64),
        linear=_own(own.linear, np.float64),
        constant=float(own.constant),
        modulus=float(own.modulus),
    )


def _own(array: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Return an array in the one form that the solver is compiled for: contiguous and writable."""
    return np.require(array, dtype, ["C_CONTIGUOUS", "WRITEABLE"])


class _Order:
    """Queries in an order in which each can be summed from an earlier one, finest first; the same for every family."""

    def __init__(self, queries: Sequence[Query]) -> None:
        self.queries = tuple(queries)  # kept, so that no other query can take one's identity
        self.order = sorted(range(len(queries)), key=lambda at: -queries[at].size)
        self.ordered = [queries[at] for at in self.order]
        finer = []
        for at, query in enumerate(self.ordered):
            finer.append(next((k for k in reversed(range(at)) if self.ordered[k].refines(query)), -1))
        self.finer = np.array(finer, dtype=np.int64)

    def groupings(self, cells: Ints) -> list[Grouping]:
        """Column of each query that each of the cells counts towards, and which answers these columns are."""
        return [
            Grouping(answers_of_cells(query, cells), np.arange(query.size))
            if query.size <= _ALL
            else group_cells(query, cells)
            for query in self.ordered
        ]


_ORDERS: dict[tuple[int, ...], _Order] = {}


def _order_of(queries: Sequence[Query]) -> _Order:
    """Find or make the order of some queries: a level's families all have the same, as objects."""
    identity = tuple(map(id, queries))
    if identity not in _ORDERS:
        if len(_ORDERS) >= _REMEMBERED:
            _ORDERS.clear()
        _ORDERS[identity] = _Order(queries)
    return _ORDERS[identity]
