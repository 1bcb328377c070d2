"""From noisy measurements and public facts to counts that conform."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from das.estimation.families import solve_fast
from das.estimation.known import known_groups
from das.estimation.large import LARGE, solve_large
from das.estimation.nonnegative import solve
from das.estimation.passes import in_passes
from das.estimation.problem import Diagnostics, FamilyEstimate, FamilyProblem, Solution
from das.estimation.rounding import round_family
from das.estimation.separable import solve_separable
from das.estimation.verify import require_feasible, residual, tolerance
from das.selection import Selection

__all__ = ["SOLVERS", "estimate_family"]

SOLVERS: dict[str, Callable[[FamilyProblem], Solution]] = {"cvxpy": solve, "fast": solve_fast, "large": solve_large}
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
    >>> from das.schema import Attribute, Schema
    >>> from das.query import parse_query
    >>> from das.estimation.problem import Measured
    >>> schema = Schema((Attribute("sex", ("f", "m")),))
    >>> noisy = Measured(query=parse_query(schema, "detailed"), values=np.array([[5, -3], [2, 6]]), variance=1.0)
    >>> family = FamilyProblem(level="tract", geocodes=("1", "2"), cells=np.arange(2), parent=np.array([5, 4]),
    ...                        measured=(noisy,), limits=())
    >>> estimate_family(family).counts.tolist()
    [[4, 0], [1, 4]]
    """
    if len(passes) > 1:
        return in_passes(problem, passes, lambda one: estimate_family(one, solver))
    if solver == "fast" and problem.correlated is None and len(problem.cells) > LARGE:
        solver = "large"
    solution = (solve_separable(problem) if solver == "fast" else None) or _solve(problem, solver)
    missed = require_feasible(problem, known_groups(problem), solution.x)
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


def _solve(problem: FamilyProblem, solver: str) -> Solution:
    """Solve with those joint limits alone that do not hold by themselves: there may be many, and few bind."""
    joint = [limits for limits in problem.limits if isinstance(limits.query, Selection)]
    used = tuple(limits for limits in problem.limits if not isinstance(limits.query, Selection))
    while True:
        solution = SOLVERS[solver](replace(problem, limits=used))
        missed = [
            limits
            for limits in joint
            if residual(problem, known_groups(replace(problem, limits=(limits,))), solution.x) > tolerance(problem)
        ]
        if not missed:
            return solution
        used = (*used, *missed)
        joint = [limits for limits in joint if all(limits is not one for one in missed)]
