"""From noisy measurements and public facts to counts that conform."""

from __future__ import annotations

from collections.abc import Callable

from das.estimation.families import solve_fast
from das.estimation.known import known_groups
from das.estimation.nonnegative import solve
from das.estimation.problem import Diagnostics, FamilyEstimate, FamilyProblem, Solution
from das.estimation.rounding import round_family
from das.estimation.verify import require_feasible

__all__ = ["SOLVERS", "estimate_family"]

SOLVERS: dict[str, Callable[[FamilyProblem], Solution]] = {"cvxpy": solve, "fast": solve_fast}
"""Solvers of the real-valued problem by name; all of them find the same optimum."""


def estimate_family(problem: FamilyProblem, solver: str = "cvxpy") -> FamilyEstimate:
    """Estimate the counts of one family: solve, verify, round, verify.

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
    solution = SOLVERS[solver](problem)
    residual = require_feasible(problem, known_groups(problem), solution.x)
    rounded = round_family(problem, solution.x)
    return FamilyEstimate(
        cells=problem.cells,
        counts=rounded.counts,
        diagnostics=Diagnostics(
            solver=solution.solver,
            residual=residual,
            gap=solution.gap,
            iterations=solution.iterations,
            rounding_distance=rounded.distance,
            widened=rounded.widened,
        ),
    )
