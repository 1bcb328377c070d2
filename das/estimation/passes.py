"""Estimation in passes: some queries are estimated first, and their integer answers are constraints of later passes.

The 2020 production system estimated totals before anything else, so that the noise of many small counts could not move
them (Abowd et al. 2022, "The 2020 Census Disclosure Avoidance System TopDown Algorithm", HDSR, section 4). A pass needs
no more cells than its queries and the limits distinguish: one cell represents all that they do not distinguish. Its
integer answers can always be split further, because the people of a cell may go to any child.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from das.estimation.grouping import group_cells
from das.estimation.problem import FamilyEstimate, FamilyProblem, Measured
from das.schema.limits import Limits
from das.schema.query import Query

__all__ = ["in_passes"]


def in_passes(
    problem: FamilyProblem, passes: tuple[tuple[str, ...], ...], estimate: Callable[[FamilyProblem], FamilyEstimate]
) -> FamilyEstimate:
    """Estimate a family by one pass after the other.

    Parameters
    ----------
    problem
        The whole family; without linear estimates from other levels.
    passes
        Names of measured queries, each in one pass.
    estimate
        How one pass is solved and rounded.

    Examples
    --------
    >>> from das.estimation import estimate_family
    >>> from das.schema.query import parse_query
    >>> from das.schema.schema import Attribute, Schema
    >>> schema = Schema((Attribute("sex", ("f", "m")),))
    >>> total = Measured(query=parse_query(schema, "total"), values=np.array([[6], [3]]), variance=1.0)
    >>> noisy = Measured(query=parse_query(schema, "detailed"), values=np.array([[5, -3], [2, 6]]), variance=1.0)
    >>> family = FamilyProblem(level="tract", geocodes=("1", "2"), cells=np.arange(2), parent=np.array([5, 4]),
    ...                        measured=(total, noisy), limits=())
    >>> in_passes(family, (("total",), ("detailed",)), estimate_family).counts.tolist()
    [[5, 1], [0, 3]]
    """
    kept = {limits.query.name: limits for limits in problem.limits}
    earlier = []
    for names in passes[:-1]:
        whole = replace(problem, limits=tuple(kept.values()))
        reduced = _reduced(whole, tuple(m for m in problem.measured if m.query.name in names))
        solved = estimate(reduced)
        earlier.append(solved.diagnostics)
        for query in _finest([measured.query for measured in reduced.measured]):
            answers = _answers(query, reduced.cells, solved.counts)
            kept[query.name] = Limits(query=query, lower=answers, upper=answers)
    left = tuple(m for m in problem.measured if m.query.name in passes[-1])
    last = estimate(replace(problem, measured=left, limits=tuple(kept.values())))
    every = [*earlier, last.diagnostics]
    how = replace(
        last.diagnostics,
        solver="+".join(dict.fromkeys(d.solver for d in every)),
        residual=max(d.residual for d in every),
        gap=float(np.max([d.gap for d in every])),
        iterations=sum(d.iterations for d in every),
        widened=max(d.widened for d in every),
    )
    return replace(last, diagnostics=how)


def _reduced(problem: FamilyProblem, measured: tuple[Measured, ...]) -> FamilyProblem:
    """Let one cell represent all that neither the measured queries nor the limits distinguish."""
    group: NDArray[np.int64] = np.zeros(len(problem.cells), dtype=np.int64)
    for query in [*(m.query for m in measured), *(limits.query for limits in problem.limits)]:
        grouping = group_cells(query, problem.cells)
        group = group * grouping.size + grouping.index
        group = np.unique(group, return_inverse=True)[1].astype(np.int64)
    first = np.unique(group, return_index=True)[1]
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    parent = None
    if problem.parent is not None:
        parent = np.zeros(len(order), dtype=np.int64)
        np.add.at(parent, place[group], problem.parent)
    return replace(problem, cells=problem.cells[first[order]], parent=parent, measured=measured)


def _finest(queries: list[Query]) -> list[Query]:
    """Leave out queries whose answers are sums of another's."""
    return [q for q in queries if not any(o is not q and o.refines(q) and not q.refines(o) for o in queries)]


def _answers(query: Query, cells: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    grouping = group_cells(query, cells)
    answers = np.zeros((len(counts), query.size), dtype=np.int64)
    answers[:, grouping.answers] = grouping.sums(counts)
    return answers
