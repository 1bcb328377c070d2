"""The fast solver of families: an active-set method, and a certificate of the result.

    minimise objective(x)  over x >= 0  with sum over children of x_c = parent,  L <= B x_c <= U for each child c

The active-set method finds the optimum itself; a lower bound on the objective of all feasible tables shows how far from
optimal the result can be. The folder, in the order of the work:

- ``batch``, ``layout``: families of one level as arrays, one after the other;
- ``setup``, ``hessian``: presolve, which fixes determined cells, and constraints and objective of the others;
- ``iterate``, ``state``: the active set and its correction;
- ``face``, ``descent``: projection onto one face, and conjugate gradients on it;
- ``certificate``: the lower bound;
- ``kernel``: all of it for all families, in one compiled call.
"""

from __future__ import annotations

from collections.abc import Sequence

from das.estimation.problem import FamilyProblem, Solution
from das.estimation.solvers.active_set.batch import Batch, batches
from das.estimation.solvers.reference import closed_form, solve
from das.estimation.support import free_cells, limits_on_support

__all__ = ["solve_families", "solve_fast"]

_VIOLATION = 1e-6
"""Largest violation of a sum or a limit that is accepted, in persons; more for counts whose rounding is larger."""
_ROUNDING = 1e-13


def solve_fast(problem: FamilyProblem, gap: float = 1e-6) -> Solution:
    """Find the nonnegative least-squares solution of one family to a certified relative gap.

    A family that is not solved here goes to the cvxpy reference; the solution names the solver.

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
    >>> solution = solve_fast(family)
    >>> solution.solver, solution.x.round(6).tolist(), solution.gap < 1e-6
    ('fast', [[4.0, 0.0], [1.0, 4.0]], True)
    """
    return solve_families([problem], gap)[0]


def solve_families(problems: Sequence[FamilyProblem], gap: float = 1e-6) -> list[Solution]:
    """Solve families, those of one level together."""
    solutions: list[Solution] = []
    for run in batches(problems):
        if not run[0].measured and run[0].correlated is None:
            solutions += [_solve_otherwise(problem) for problem in run]
            continue
        tables, report = Batch.of(run).solve()
        for problem, x, (solved, reached, violation, products) in zip(run, tables, report.tolist(), strict=True):
            # A bound above the value shows that there is no feasible table.
            if solved and abs(reached) <= gap and violation <= max(_VIOLATION, _ROUNDING * float(x.sum())):
                solutions.append(
                    Solution(x=x, solver="fast", residual=violation, gap=max(reached, 0.0), iterations=int(products))
                )
            else:
                solutions.append(_solve_otherwise(problem))
    return solutions


def _solve_otherwise(problem: FamilyProblem) -> Solution:
    """Solve in closed form if every cell is determined; else by the reference, which names contradictions."""
    known = limits_on_support(problem)
    return closed_form(problem, known, free_cells(problem, known)) or solve(problem)
