"""Constraints and objective recomputed from a solution alone, so that no solver's own report is trusted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from das.estimation.grouping import group_cells
from das.estimation.problem import FamilyProblem
from das.estimation.support import SupportLimits

__all__ = [
    "VerificationError",
    "half_gradient",
    "keeps",
    "objective",
    "require_exact",
    "require_feasible",
    "residual",
    "tolerance",
]


class VerificationError(ArithmeticError):
    """A solver's answer violates a constraint: a defect of this package, not of the user's input."""


def residual(problem: FamilyProblem, known: tuple[SupportLimits, ...], x: NDArray[np.float64]) -> float:
    """Largest violation of any constraint, in persons.

    Examples
    --------
    >>> family = FamilyProblem(level="tract", geocodes=("1", "2"), cells=np.array([0, 5]),
    ...                        parent=np.array([3, 4]), measured=(), limits=())
    >>> residual(family, (), np.array([[1.0, 4.5], [2.0, -0.25]]))
    0.25
    """
    worst = [0.0, float(-x.min(initial=0.0))]
    if problem.parent is not None:
        worst.append(float(np.abs(x.sum(axis=0) - problem.parent).max(initial=0.0)))
    for facts in known:
        answer = facts.grouping.sums(x)
        worst.append(float((facts.lower - answer).max(initial=0.0)))
        worst.append(float((answer - facts.upper).max(initial=0.0)))
    return max(worst)


def tolerance(problem: FamilyProblem) -> float:
    """Largest violation allowed in a real-valued solution, in persons: 1e-6, or 1e-8 of the largest answer if more."""
    size = 1.0 if problem.parent is None else float(problem.parent.sum())
    for measured in problem.measured:
        size = max(size, float(np.abs(measured.values).max(initial=0)))
    return max(1e-6, 1e-8 * size)


def objective(problem: FamilyProblem, x: NDArray[np.float64]) -> float:
    """Distance to the linear estimates or, without them, to the measurements that the support can reach."""
    if problem.correlated is not None:
        return problem.correlated.value(x)
    total = 0.0
    for measured in problem.measured:
        grouping = group_cells(measured.query, problem.cells)
        residuals = grouping.sums(x) - measured.values[:, grouping.answers]
        total += float((residuals * residuals).sum()) / measured.variance
    return total


def half_gradient(problem: FamilyProblem, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Half the gradient of the objective."""
    if problem.correlated is not None:
        return problem.correlated.half_gradient(x)
    gradient = np.zeros(problem.shape)
    for measured in problem.measured:
        grouping = group_cells(measured.query, problem.cells)
        residuals = grouping.sums(x) - measured.values[:, grouping.answers]
        gradient += (residuals / measured.variance)[:, grouping.index]
    return gradient


def require_feasible(problem: FamilyProblem, known: tuple[SupportLimits, ...], x: NDArray[np.float64]) -> float:
    """Return the residual of a real-valued solution, or raise if it is not one."""
    if x.shape != problem.shape or not np.isfinite(x).all():
        raise VerificationError(f"{problem.name}: the solution has the wrong shape or is not finite")
    violation = residual(problem, known, x)
    if violation > tolerance(problem):
        raise VerificationError(f"{problem.name}: a constraint is missed by {violation:.2g} persons")
    return violation


def keeps(known: tuple[SupportLimits, ...], counts: NDArray[np.int64]) -> bool:
    """Whether integer counts satisfy every limit exactly."""
    sums = ((facts, facts.grouping.sums(counts)) for facts in known)
    return all(bool(((answer >= facts.lower) & (answer <= facts.upper)).all()) for facts, answer in sums)


def require_exact(problem: FamilyProblem, known: tuple[SupportLimits, ...], counts: NDArray[np.int64]) -> None:
    """Raise unless integer counts satisfy every constraint exactly.

    Examples
    --------
    >>> family = FamilyProblem(level="tract", geocodes=("1", "2"), cells=np.array([0, 5]),
    ...                        parent=np.array([3, 4]), measured=(), limits=())
    >>> require_exact(family, (), np.array([[1, 4], [2, 1]]))
    Traceback (most recent call last):
    das.estimation.verify.VerificationError: tract 1 to 2: children do not sum to their parent
    """
    if counts.shape != problem.shape or counts.dtype != np.int64:
        raise VerificationError(f"{problem.name}: counts must be integers, one for each child and cell")
    if (counts < 0).any():
        raise VerificationError(f"{problem.name}: a count is negative")
    if problem.parent is not None and not np.array_equal(counts.sum(axis=0), problem.parent):
        raise VerificationError(f"{problem.name}: children do not sum to their parent")
    for facts in known:
        if not keeps((facts,), counts):
            raise VerificationError(f"{problem.name}: a limit of {facts.query.name!r} does not hold")
