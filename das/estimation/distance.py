"""The distance from a family's measurements as one quadratic on its support."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from das.estimation.grouping import group_cells
from das.estimation.problem import FamilyProblem, Quadratic

__all__ = ["quadratic_distance"]


def quadratic_distance(problem: FamilyProblem) -> Quadratic:
    """Write the sum of squared misfits, each over its variance, as a quadratic in the supported cells.

    Answers that no supported cell reaches are constants and left out. The modulus is the precision of queries that see
    every supported cell by itself; what other queries add to the curvature is positive semidefinite.

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
    >>> distance = quadratic_distance(family)
    >>> distance.curvature.tolist(), distance.modulus, distance.value(np.array([[5.0, 1.0]]))
    ([[3.0, 2.0], [2.0, 3.0]], 1.0, 2.0)
    """
    if problem.correlated is not None:
        return problem.correlated
    n, m = problem.shape
    groups = [group_cells(measured.query, problem.cells) for measured in problem.measured]
    weights = [1.0 / measured.variance for measured in problem.measured]
    reference = np.zeros((n, m))
    modulus = 0.0
    for measured, grouping, weight in zip(problem.measured, groups, weights, strict=True):
        if grouping.size == m:
            modulus += weight
            reference[:] = measured.values[:, grouping.answers[grouping.index]]
    if not groups:
        return Quadratic(curvature=np.zeros((m, m)), reference=reference, pull=reference, constant=0.0, modulus=0.0)

    # All queries stacked: a cell counts towards one row of each, so the matrix is known by its row numbers.
    sizes = [grouping.size for grouping in groups]
    starts = np.cumsum([0, *sizes])
    rows = np.stack([grouping.index for grouping in groups]) + starts[:-1, None]
    ones = np.ones(rows.size)
    stacked = sparse.csc_array((ones, rows.T.ravel(), np.arange(0, rows.size + 1, len(groups))), (starts[-1], m))
    values = np.concatenate([q.values[:, g.answers] for q, g in zip(problem.measured, groups, strict=True)], axis=1)
    misfit = values - (stacked @ reference.T).T
    weighted = misfit * np.repeat(weights, sizes)
    return Quadratic(
        curvature=_curvature([grouping.index for grouping in groups], sizes, weights),
        reference=reference,
        pull=weighted[:, rows].sum(axis=1),
        constant=float((weighted * misfit).sum()),
        modulus=modulus,
    )


def _curvature(indices: list[NDArray[np.int64]], sizes: list[int], weights: list[float]) -> NDArray[np.float64]:
    """Add, for each pair of cells, the precisions of the queries that count the two together.

    Which of up to eight queries join a pair is one byte, and the sum of their precisions a table of 256 numbers.
    """
    m = len(indices[0])
    always = sum(weight for weight, size in zip(weights, sizes, strict=True) if size == 1)
    alone = sum(weight for weight, size in zip(weights, sizes, strict=True) if 1 < size == m)
    curvature = np.diag(np.full(m, alone)) + always
    short = np.int16 if m < 2**15 else np.int32
    rest = [(index.astype(short), w) for index, size, w in zip(indices, sizes, weights, strict=True) if 1 < size < m]
    for start in range(0, len(rest), 8):
        joined = np.zeros((m, m), dtype=np.uint8)
        sums = np.zeros(1)
        for bit, (index, weight) in enumerate(rest[start : start + 8]):
            joined |= np.equal(index[:, None], index).view(np.uint8) * np.uint8(1 << bit)
            sums = np.concatenate([sums, sums + weight])
        curvature += sums.take(joined)
    return curvature
