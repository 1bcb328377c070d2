"""Reference solver of a family's nonnegative weighted least squares, by cvxpy.

    minimise    sum over children c and queries q of |Q_q x_c - y_cq|^2 / v_q
    subject to  x >= 0,  sum over c of x_c = parent,  lower <= Q_q x_c <= upper

(Abowd et al. 2022, "The 2020 Census Disclosure Avoidance System TopDown Algorithm", HDSR, section 4). Marginals are
chained: each one is a variable of its own, summed from the coarsest variable that refines it, so that the quadratic is
diagonal and the matrix has a few entries a column.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from das.estimation.certificate import lower_bound, relative_gap
from das.estimation.grouping import Grouping, group_cells
from das.estimation.problem import FamilyProblem, Measured, Solution
from das.estimation.support import SupportLimits, free_cells, infeasible, limits_on_support
from das.estimation.verify import VerificationError, objective, require_feasible, residual, tolerance
from das.schema.limits import NO_LIMIT

if TYPE_CHECKING:
    from cvxpy.constraints.constraint import Constraint

__all__ = ["Solvers", "closed_form", "solve"]

Solvers = tuple[tuple[str, dict[str, float]], ...]
"""Names that cvxpy knows and their settings, in the order in which they are tried."""
_SOLVERS: Solvers = (
    ("PIQP", {"eps_abs": 1e-9, "eps_rel": 1e-10, "eps_duality_gap_abs": 1e-9, "eps_duality_gap_rel": 1e-10}),
    ("CLARABEL", {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}),
)


def solve(problem: FamilyProblem, solvers: Solvers | None = None) -> Solution:
    """Find the nonnegative least-squares solution of one family.

    PIQP is faster on sparse sums and Clarabel on a dense Hessian; where the first fails the other is tried. The gap is
    recomputed from the solver's multipliers (:mod:`das.estimation.certificate`).

    Raises
    ------
    InfeasibleError
        If the limits contradict one another or the parent; it names them.

    Examples
    --------
    >>> from das.schema.schema import Attribute, Schema
    >>> from das.schema.query import parse_query
    >>> from das.estimation.problem import Measured
    >>> schema = Schema((Attribute("sex", ("f", "m")),))
    >>> noisy = Measured(query=parse_query(schema, "detailed"), values=np.array([[5, -3], [2, 6]]), variance=1.0)
    >>> family = FamilyProblem(level="tract", geocodes=("1", "2"), cells=np.arange(2), parent=np.array([5, 4]),
    ...                        measured=(noisy,), limits=())
    >>> solve(family).x.round(6).tolist()
    [[4.0, 0.0], [1.0, 4.0]]
    """
    known = limits_on_support(problem)
    free = free_cells(problem, known)
    closed = closed_form(problem, known, free)
    if closed is not None:
        return closed

    program = _program(problem, known, free)
    best: Solution | None = None
    for name, settings in solvers or (_SOLVERS if problem.correlated is None else _SOLVERS[::-1]):
        answer = _run(program, name, settings)
        if answer is None:
            continue
        x: NDArray[np.float64] = np.zeros(problem.shape)
        x[free] = answer.values[: np.count_nonzero(free)]
        x = _clean(problem, x)
        bound = lower_bound(problem, known, free, x, program.multipliers(answer))
        solution = Solution(
            x=x,
            solver=name.lower(),
            residual=residual(problem, known, x),
            gap=relative_gap(objective(problem, x), bound),
            iterations=answer.iterations,
        )
        if best is None or solution.residual < best.residual:
            best = solution
        if solution.residual <= tolerance(problem):
            return solution
    contradiction = infeasible(problem)
    if contradiction is not None:
        raise contradiction
    if best is None:
        raise VerificationError(f"{problem.name}: no solver gave an answer, and yet there is one")
    require_feasible(problem, known, best.x)
    return best


def closed_form(problem: FamilyProblem, known: tuple[SupportLimits, ...], free: NDArray[np.bool_]) -> Solution | None:
    """Return the only feasible table where there is one: at most one free child for each cell.

    A cell with people and no child that may have them makes the family infeasible, which is raised here.
    """
    if problem.parent is None:
        if free.any():
            return None
        x: NDArray[np.float64] = np.zeros(problem.shape)
    else:
        choices = free.sum(axis=0)
        if (choices > 1).any() and not ((choices == 0) & (problem.parent > 0)).any():
            return None
        x = np.where(free, problem.parent.astype(np.float64), 0.0)
    missed = residual(problem, known, x)
    if missed > 0:
        raise infeasible(problem) or VerificationError(
            f"{problem.name}: a constraint is missed by {missed:.2g} persons"
        )
    return Solution(x=x, solver="closed-form", residual=0.0, gap=0.0, iterations=0)


@dataclass(frozen=True, slots=True)
class _Program:
    """A quadratic program: minimise s' hessian s + 2 half_gradient' s under linear rows on z = centre + s.

    Around the measured values the objective is as small as the noise, which gives relative tolerances a meaning.
    """

    hessian: sparse.csc_array
    half_gradient: NDArray[np.float64]
    centre: NDArray[np.float64]
    positive: int  # the first so many variables are cells and not negative
    equal: sparse.csr_array
    equal_to: NDArray[np.float64]
    bounded: NDArray[np.int64]  # variables with limits
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    # For each query with limits, children x groups: which are among the last rows of ``equal``, which in ``bounded``.
    limited: tuple[tuple[NDArray[np.bool_], NDArray[np.bool_]], ...]

    def multipliers(self, answer: _Answer) -> tuple[NDArray[np.float64], ...]:
        """Multipliers of each query's limits, children x groups, halved as the gradient is."""
        found = []
        row, variable = len(answer.of_rows) - sum(np.count_nonzero(exact) for exact, _ in self.limited), 0
        for exact, loose in self.limited:
            multiplier = np.zeros(exact.shape)
            last_row, last_variable = row + np.count_nonzero(exact), variable + np.count_nonzero(loose)
            multiplier[exact] = answer.of_rows[row:last_row] / 2.0
            multiplier[loose] = answer.of_limits[variable:last_variable] / 2.0
            row, variable = last_row, last_variable
            found.append(multiplier)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a solver returns: the variables, and the multipliers of the rows and of the limits on variables."""

    values: NDArray[np.float64]
    of_rows: NDArray[np.float64]
    of_limits: NDArray[np.float64]  # positive for upper limits, negative for lower ones
    iterations: int


def _program(problem: FamilyProblem, known: tuple[SupportLimits, ...], free: NDArray[np.bool_]) -> _Program:
    n, m = problem.shape
    child, cell = np.nonzero(free)
    number = np.full((n, m), -1, dtype=np.int64)
    number[child, cell] = np.arange(len(child))

    measured = [(group_cells(q.query, problem.cells), q) for q in problem.measured]
    layout = _Layout.of([g for g, _ in measured] + [facts.grouping for facts in known], n, number)

    hessian, half_gradient, centre = _objective(problem, layout, measured, number)
    rows, right = [layout.chain], [np.zeros(layout.chain.shape[0])]
    if problem.parent is not None:
        rows.append(sparse.csr_array((np.ones(len(cell)), (cell, np.arange(len(cell)))), (m, layout.size)))
        right.append(problem.parent.astype(np.float64))
    bounded, lower, upper, limited = [], [], [], []
    for facts in known:
        at = layout.variables(facts.grouping)
        exact = (facts.lower == facts.upper) & (at >= 0)
        fixed = at[exact]
        rows.append(sparse.csr_array((np.ones(len(fixed)), (np.arange(len(fixed)), fixed)), (len(fixed), layout.size)))
        right.append(facts.lower[exact].astype(np.float64))
        loose = ~exact & (at >= 0) & ((facts.lower > 0) | (facts.upper < NO_LIMIT))
        bounded.append(at[loose])
        lower.append(facts.lower[loose])
        upper.append(facts.upper[loose])
        limited.append((exact, loose))
    keep = [r for r in rows if r.shape[0]]
    return _Program(
        hessian=hessian,
        half_gradient=half_gradient,
        centre=centre,
        positive=len(child),
        equal=sparse.vstack(keep, format="csr") if keep else sparse.csr_array((0, layout.size)),
        equal_to=np.concatenate(right),
        bounded=np.concatenate([*bounded, np.zeros(0, dtype=np.int64)]),
        lower=np.concatenate([*lower, np.zeros(0)]),
        upper=np.concatenate([*upper, np.zeros(0)]),
        limited=tuple(limited),
    )


def _objective(
    problem: FamilyProblem, layout: _Layout, measured: list[tuple[Grouping, Measured]], number: NDArray[np.int64]
) -> tuple[sparse.csc_array, NDArray[np.float64], NDArray[np.float64]]:
    """Squared residuals of the chained sums; or, for correlated estimates, their dense quadratic on the cells."""
    half_gradient = np.zeros(layout.size)
    centre: NDArray[np.float64] = np.zeros(layout.size)
    if problem.correlated is None:
        precision = np.zeros(layout.size)
        for grouping, query in measured:
            at = layout.variables(grouping)
            seen = at >= 0
            precision[at[seen]] += 1.0 / query.variance
            centre[at[seen]] += query.values[:, grouping.answers][seen] / query.variance
        centre = np.divide(centre, precision, out=np.zeros_like(centre), where=precision > 0)
        return sparse.diags_array(precision, format="csc"), half_gradient, centre
    free = number >= 0
    centre[number[free]] = problem.correlated.reference[free]
    # A cell that can only be zero is not a variable, but it was estimated: the gradient is taken with it at zero.
    there = np.where(free, problem.correlated.reference, 0.0)
    half_gradient[number[free]] = problem.correlated.half_gradient(there)[free]
    blocks = [problem.correlated.block(child, np.flatnonzero(row)) for child, row in enumerate(free)]
    rest = layout.size - sum(len(block) for block in blocks)
    return (
        sparse.csc_array(sparse.block_diag([*blocks, sparse.csc_array((rest, rest))], format="csc")),
        half_gradient,
        centre,
    )


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where each partition's sums stand among the variables, and the rows that chain them."""

    size: int
    nodes: tuple[tuple[Grouping, NDArray[np.int64]], ...]
    chain: sparse.csr_array

    @classmethod
    def of(cls, groupings: list[Grouping], n: int, number: NDArray[np.int64]) -> _Layout:
        m = number.shape[1]
        nodes = [(Grouping(np.arange(m), np.arange(m)), number)]
        size = int(number.max(initial=-1)) + 1
        row, column, sign, count = [], [], [], 0
        for grouping in sorted(groupings, key=lambda g: -g.size):
            if any(node.size == grouping.size and np.array_equal(node.index, grouping.index) for node, _ in nodes):
                continue
            finer = ((at, node.coarsen(grouping)) for node, at in reversed(nodes))
            at, into = next((at, into) for at, into in finer if into is not None)
            # A group none of whose cells is free has no variable: its sum is zero.
            reached = np.zeros((n, grouping.size), dtype=bool)
            c, g = np.nonzero(at >= 0)
            reached[c, into[g]] = True
            here = np.where(reached, size + np.cumsum(reached).reshape(reached.shape) - 1, -1)
            equation = np.where(reached, here - size + count, -1)
            row += [equation[c, into[g]], equation[reached]]
            column += [at[c, g], here[reached]]
            sign += [np.ones(len(c)), -np.ones(np.count_nonzero(reached))]
            nodes.append((grouping, here))
            size += int(reached.sum())
            count += int(reached.sum())
        if not row:
            return cls(size, tuple(nodes), sparse.csr_array((0, size)))
        entries = (np.concatenate(sign), (np.concatenate(row), np.concatenate(column)))
        return cls(size, tuple(nodes), sparse.csr_array(entries, (count, size)))

    def variables(self, grouping: Grouping) -> NDArray[np.int64]:
        """Variable of each child and group, -1 where the sum can only be zero."""
        for node, at in self.nodes:
            if node.size == grouping.size and np.array_equal(node.index, grouping.index):
                return at
        raise KeyError("this partition is not in the layout")


def _run(program: _Program, solver: str, settings: dict[str, float]) -> _Answer | None:
    # Loading cvxpy takes most of a second, which a command that solves nothing need not wait for.
    import cvxpy as cp
    from cvxpy.atoms.quad_form import quad_form

    step, centre = cp.Variable(len(program.half_gradient)), program.centre
    loss = quad_form(step, program.hessian, assume_PSD=True) + 2.0 * program.half_gradient @ step
    constraints = [step[: program.positive] >= -centre[: program.positive]]
    equal = least = most = None
    if program.equal.shape[0]:
        equal = program.equal @ step == program.equal_to - program.equal @ centre
        constraints.append(equal)
    bounded, from_centre = step[program.bounded], centre[program.bounded]
    low, high = program.lower > 0, program.upper < NO_LIMIT
    if low.any():
        least = bounded[low] >= (program.lower - from_centre)[low]
        constraints.append(least)
    if high.any():
        most = bounded[high] <= (program.upper - from_centre)[high]
        constraints.append(most)
    task = cp.Problem(cp.Minimize(loss), constraints)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an inaccurate solution is judged by its residual, not by a warning
            task.solve(solver=solver, **settings)  # type: ignore[no-untyped-call]
    except cp.error.SolverError:
        return None
    if step.value is None or not np.isfinite(step.value).all():
        return None
    of_limits = np.zeros(len(program.bounded))
    of_limits[low] -= _dual_values(least, np.count_nonzero(low))
    of_limits[high] += _dual_values(most, np.count_nonzero(high))
    return _Answer(
        values=centre + np.asarray(step.value, dtype=np.float64),
        of_rows=_dual_values(equal, program.equal.shape[0]),
        of_limits=of_limits,
        iterations=int(task.solver_stats.num_iters or 0),
    )


def _dual_values(constraint: Constraint | None, count: int) -> NDArray[np.float64]:
    """Multipliers of a constraint; zeros, which are valid as well, where the solver gives none."""
    values = None if constraint is None else constraint.dual_value
    found = np.zeros(count) if values is None else np.asarray(values, dtype=np.float64).reshape(count)
    return np.where(np.isfinite(found), found, 0.0)


def _clean(problem: FamilyProblem, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Remove violations within a solver's tolerance: no negative count, sums equal to the parent's up to rounding."""
    x = np.maximum(x, 0.0)
    if problem.parent is None:
        return x
    sums = x.sum(axis=0)
    x *= np.divide(problem.parent, sums, out=np.ones_like(sums), where=sums > 0)
    return x
