"""A family's limits restricted to its support, the cells left free, and minimal sets of contradictory limits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from das.errors import InfeasibleError, Problem
from das.estimation.grouping import Grouping, answer_label, group_cells
from das.estimation.problem import FamilyProblem
from das.facts.irreducible import System, irreducible
from das.schema.limits import NO_LIMIT
from das.schema.query import Query

__all__ = ["SupportLimits", "conflicts", "free_cells", "infeasible", "limits_on_support"]

_REMEDY = "mend or drop any one of these"


@dataclass(frozen=True, slots=True)
class SupportLimits:
    """Limits of one query on the groups of supported cells; at least one of them excludes something."""

    query: Query
    grouping: Grouping
    lower: NDArray[np.int64]  # children x groups, not negative
    upper: NDArray[np.int64]  # children x groups, NO_LIMIT where nothing is known


def limits_on_support(problem: FamilyProblem) -> tuple[SupportLimits, ...]:
    """Restrict each limit to the support; limits that exclude nothing fall away.

    Raises
    ------
    InfeasibleError
        Where a limit contradicts itself, or asks for people in cells where nobody can be.
    """
    found: list[SupportLimits] = []
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
            if bad.any():
                wrong.extend(_named(problem, limits.query, c, a, reason) for c, a in np.argwhere(bad))
        lower, upper = lower[:, grouping.answers], upper[:, grouping.answers]
        if (lower > 0).any() or (upper < NO_LIMIT).any():
            found.append(SupportLimits(limits.query, grouping, lower, upper))
    if wrong:
        raise InfeasibleError(wrong)
    return tuple(found)


def free_cells(problem: FamilyProblem, known: tuple[SupportLimits, ...]) -> NDArray[np.bool_]:
    """Cells of each child that may be positive: no limit fixes a group of theirs at zero, and the parent is positive.

    An interior-point solver needs an interior, so cells that can only be zero are left out rather than constrained.
    """
    free = np.ones(problem.shape, dtype=bool)
    if problem.parent is not None:
        free &= problem.parent > 0
    for facts in known:
        free &= (facts.upper > 0)[:, facts.grouping.index]
    return free


def conflicts(problem: FamilyProblem) -> tuple[Problem, ...]:
    """Name a minimal set of limits that cannot hold together with the parent's counts; empty if all can.

    Drop any one of them and the others can. All facts were checked before any noise was drawn
    (:mod:`das.facts.collect`), so here only a family made by hand, or a defect, can be infeasible.
    """
    known = limits_on_support(problem)
    n, m = problem.shape
    cells = n * m
    if not known:
        return ()
    child, cell = np.divmod(np.arange(cells), m)
    rows = []
    names: list[tuple[Query, int, int]] = []
    for facts in known:
        k = facts.grouping.size
        group = child * k + facts.grouping.index[cell]
        rows.append(sparse.csr_array((np.ones(cells), (group, np.arange(cells))), (n * k, cells)))
        names.extend((facts.query, c, int(a)) for c in range(n) for a in facts.grouping.answers)
    parent = None if problem.parent is None else sparse.csr_array(sparse.kron(np.ones((1, n)), sparse.eye_array(m)))
    lower = np.concatenate([facts.lower.ravel() for facts in known])
    upper = np.concatenate([facts.upper.ravel() for facts in known])
    nothing, everything = np.zeros_like(lower), np.full_like(upper, NO_LIMIT)
    system = System(
        sparse.vstack(rows * 2, format="csr"),
        np.concatenate([lower, nothing]),
        np.concatenate([everything, upper]),
        parent,
        problem.parent,
    )
    named = []
    for row in irreducible(system).tolist():
        side = "lower" if row < len(names) else "upper"
        reason = f"the {side} limit cannot be met together with the others named here and the parent"
        query, of, answer = names[row % len(names)]
        named.append(_named(problem, query, of, answer, reason))
    return tuple(named)


def infeasible(problem: FamilyProblem) -> InfeasibleError | None:
    """Return the error that names the family's contradictions, if there are any."""
    named = conflicts(problem)
    return InfeasibleError(named) if named else None


def _named(problem: FamilyProblem, query: Query, child: int, answer: int, reason: str) -> Problem:
    where = f"{problem.level} {problem.geocodes[child]}, query {query.name!r}, answer {answer_label(query, answer)!r}"
    return Problem(where, reason, _REMEDY)
