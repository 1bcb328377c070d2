"""The public facts of a family on its support, and the contradictions among them that can be named."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from das.errors import InfeasibleError, Problem
from das.estimation.grouping import Grouping, answer_label, group_cells
from das.estimation.problem import NO_LIMIT, FamilyProblem
from das.query import Query

__all__ = ["Known", "conflicts", "free_cells", "infeasible", "known_groups"]

_VIOLATED = 1e-3
"""Limits and parents are integers: a contradiction costs whole persons, or simple fractions of one, not thousandths."""
_REMEDY = "make the declared invariants and bounds of the family agree with one another and with its parent"


@dataclass(frozen=True, slots=True)
class Known:
    """Limits of one query on the groups of supported cells; at least one of them excludes something."""

    query: Query
    grouping: Grouping
    lower: NDArray[np.int64]  # children x groups, not negative
    upper: NDArray[np.int64]  # children x groups, NO_LIMIT where nothing is known


def known_groups(problem: FamilyProblem) -> tuple[Known, ...]:
    """Restrict each limit to the support; limits that exclude nothing fall away.

    Raises
    ------
    InfeasibleError
        Where a limit contradicts itself, or asks for people in cells where nobody can be.
    """
    found: list[Known] = []
    wrong: list[Problem] = []
    for limits in problem.limits:
        grouping = group_cells(limits.query, problem.cells)
        lower, upper = np.maximum(limits.lower, 0), limits.upper
        unreached = np.ones(limits.query.size, dtype=bool)
        unreached[grouping.answers] = False
        for bad, reason in (
            (lower > upper, "the lower limit is above the upper one"),
            ((lower > 0) & unreached, "somebody must be there, but no cell of it can hold anybody"),
        ):
            wrong.extend(_named(problem, limits.query, c, a, reason) for c, a in np.argwhere(bad))
        lower, upper = lower[:, grouping.answers], upper[:, grouping.answers]
        if (lower > 0).any() or (upper < NO_LIMIT).any():
            found.append(Known(limits.query, grouping, lower, upper))
    if wrong:
        raise InfeasibleError(wrong)
    return tuple(found)


def free_cells(problem: FamilyProblem, known: tuple[Known, ...]) -> NDArray[np.bool_]:
    """Cells of each child that may be positive: no limit holds a group of theirs at zero, and the parent has somebody.

    An interior-point solver needs an interior, so what can only be zero is left out rather than constrained.
    """
    free = np.ones(problem.shape, dtype=bool)
    if problem.parent is not None:
        free &= problem.parent > 0
    for facts in known:
        free &= (facts.upper > 0)[:, facts.grouping.index]
    return free


def conflicts(problem: FamilyProblem) -> tuple[Problem, ...]:
    """Name limits that cannot hold together with the others and with the parent; empty if all can.

    The limits are made elastic and their total violation is minimised by a linear program; those that still give way
    take part in a contradiction (Chinneck and Dravnieks 1991, the elastic filter's first step).
    """
    known = known_groups(problem)
    n, m = problem.shape
    cells = n * m
    if not known:
        return ()
    child, cell = np.divmod(np.arange(cells), m)
    rows, below, above = [], [], []
    names: list[tuple[Query, int, int]] = []
    for facts in known:
        k = facts.grouping.size
        group = child * k + facts.grouping.index[cell]
        rows.append(sparse.csr_array((np.ones(cells), (group, np.arange(cells))), (n * k, cells)))
        below.append(facts.lower.ravel())
        above.append(facts.upper.ravel())
        names.extend((facts.query, c, int(a)) for c in range(n) for a in facts.grouping.answers)
    counts = sparse.vstack(rows, format="csr")
    lower, upper = np.concatenate(below).astype(np.float64), np.concatenate(above).astype(np.float64)
    slack = sparse.eye_array(len(lower))
    none = sparse.csr_array((len(lower), len(lower)))
    finite = upper < NO_LIMIT
    parent = sparse.hstack([sparse.kron(np.ones((1, n)), sparse.eye_array(m)), sparse.csr_array((m, 2 * len(lower)))])
    result = linprog(
        np.concatenate([np.zeros(cells), np.ones(2 * len(lower))]),
        A_ub=sparse.vstack(
            [sparse.hstack([-counts, -slack, none]), sparse.hstack([counts, none, -slack], format="csr")[finite]]
        ),
        b_ub=np.concatenate([-lower, upper[finite]]),
        A_eq=None if problem.parent is None else parent,
        b_eq=None if problem.parent is None else problem.parent,
        method="highs",
    )
    if result.x is None:
        raise ArithmeticError(f"{problem.name}: the linear program of the elastic limits did not end")
    short, over = result.x[cells:].reshape(2, -1)
    return tuple(
        _named(problem, query, child, answer, reason)
        for (query, child, answer), low, high in zip(names, short, over, strict=True)
        for amount, reason in (
            (low, "the lower limit cannot be met together with the other limits and the parent"),
            (high, "the upper limit cannot be met together with the other limits and the parent"),
        )
        if amount > _VIOLATED
    )


def infeasible(problem: FamilyProblem) -> InfeasibleError | None:
    """Return the error that names the family's contradictions, if there are any."""
    named = conflicts(problem)
    return InfeasibleError(named) if named else None


def _named(problem: FamilyProblem, query: Query, child: int, answer: int, reason: str) -> Problem:
    where = f"{problem.level} {problem.geocodes[child]}, query {query.name!r}, answer {answer_label(query, answer)!r}"
    return Problem(where, reason, _REMEDY)
