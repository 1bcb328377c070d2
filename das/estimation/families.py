"""Choose a solver for each family, solve, verify and round; ``README.md`` in this folder explains the method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from das.estimation.passes import in_passes
from das.estimation.problem import Diagnostics, FamilyEstimate, FamilyProblem, Solution
from das.estimation.rounding import round_family
from das.estimation.solvers.active_set import solve_families
from das.estimation.solvers.first_order import LARGE, solve_first_order
from das.estimation.solvers.reference import solve
from das.estimation.solvers.separable import solve_separable
from das.estimation.support import limits_on_support
from das.estimation.verify import require_feasible, residual, tolerance
from das.schema.limits import Limits
from das.schema.selection import Selection

__all__ = ["SOLVERS", "estimate_families", "estimate_family"]

SOLVERS: dict[str, Callable[[Sequence[FamilyProblem]], list[Solution]]] = {
    "cvxpy": lambda problems: [solve(problem) for problem in problems],
    "fast": solve_families,
    "large": lambda problems: [solve_first_order(problem) for problem in problems],
}
"""Solvers of the real-valued problem by name; all of them find the same optimum."""


def estimate_family(
    problem: FamilyProblem, solver: str = "cvxpy", passes: tuple[tuple[str, ...], ...] = ()
) -> FamilyEstimate:
    """Estimate the counts of one family: solve, verify, round, verify; with several passes, do so for each.

    Raises
    ------
    InfeasibleError
        If the public facts contradict one another or the parent's counts.

    Examples
    --------
    >>> import numpy as np
    >>> from das.schema.schema import Attribute, Schema
    >>> from das.schema.query import parse_query
    >>> from das.estimation.problem import Measured
    >>> schema = Schema((Attribute("sex", ("f", "m")),))
    >>> noisy = Measured(query=parse_query(schema, "detailed"), values=np.array([[5, -3], [2, 6]]), variance=1.0)
    >>> family = FamilyProblem(level="tract", geocodes=("1", "2"), cells=np.arange(2), parent=np.array([5, 4]),
    ...                        measured=(noisy,), limits=())
    >>> estimate_family(family).counts.tolist()
    [[4, 0], [1, 4]]
    """
    return estimate_families([problem], solver, passes)[0]


def estimate_families(
    problems: Sequence[FamilyProblem], solver: str = "cvxpy", passes: tuple[tuple[str, ...], ...] = ()
) -> list[FamilyEstimate]:
    """Estimate families of one level; the fast solver takes them in batches, with the same result as one by one."""
    if len(passes) > 1:
        return [in_passes(problem, passes, lambda one: estimate_family(one, solver)) for problem in problems]
    solutions: dict[int, Solution] = {}
    by_solver: dict[str, list[int]] = {}
    for number, problem in enumerate(problems):
        separable = solve_separable(problem) if solver == "fast" else None
        if separable is not None:
            solutions[number] = separable
        else:
            by_solver.setdefault(_solver_of(problem, solver), []).append(number)
    for name, numbers in by_solver.items():
        solutions |= zip(numbers, _solve([problems[number] for number in numbers], SOLVERS[name]), strict=True)
    return [_rounded(problem, solutions[number]) for number, problem in enumerate(problems)]


def _solver_of(problem: FamilyProblem, solver: str) -> str:
    is_large = problem.correlated is None and len(problem.cells) > LARGE
    return "large" if solver == "fast" and is_large else solver


def _rounded(problem: FamilyProblem, solution: Solution) -> FamilyEstimate:
    """Verify a solution and round it."""
    missed = require_feasible(problem, limits_on_support(problem), solution.x)
    rounded = round_family(problem, solution.x)
    return FamilyEstimate(
        cells=problem.cells,
        counts=rounded.counts,
        diagnostics=Diagnostics(
            solver=solution.solver,
            residual=missed,
            gap=solution.gap,
            iterations=solution.iterations,
            rounding_distance=rounded.distance,
            widened=rounded.widened,
        ),
    )


def _solve(
    problems: list[FamilyProblem], solver: Callable[[Sequence[FamilyProblem]], list[Solution]]
) -> list[Solution]:
    """Solve without joint limits first, and add those that the solution violates: there may be many, and few bind."""
    joint = [[limits for limits in problem.limits if isinstance(limits.query, Selection)] for problem in problems]
    used = [
        tuple(limits for limits in problem.limits if not isinstance(limits.query, Selection)) for problem in problems
    ]
    solutions: dict[int, Solution] = {}
    unsolved = list(range(len(problems)))
    while unsolved:
        solved = solver([replace(problems[at], limits=used[at]) for at in unsolved])
        solutions |= zip(unsolved, solved, strict=True)
        again = []
        for at in unsolved:
            violated = [limits for limits in joint[at] if _violates(problems[at], limits, solutions[at])]
            if violated:
                used[at] = (*used[at], *violated)
                joint[at] = [limits for limits in joint[at] if all(limits is not one for one in violated)]
                again.append(at)
        unsolved = again
    return [solutions[at] for at in range(len(problems))]


def _violates(problem: FamilyProblem, limits: Limits, solution: Solution) -> bool:
    known = limits_on_support(replace(problem, limits=(limits,)))
    return residual(problem, known, solution.x) > tolerance(problem)
