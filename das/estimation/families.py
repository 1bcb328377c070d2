"""The fast solver of a family: two closed-form halves, accelerated, stopped by a certified gap.

    minimise distance(x)  over tables x in S (each cell's people shared among the children)  with limits L <= B x <= U

Douglas and Rachford (1956), as in Eckstein and Bertsekas (1992), with rho the mean of the curvature's diagonal: one half
minimises the quadratic, by one matrix multiplication for all children; the other projects each cell onto a simplex and each
limited sum onto its interval. Limits that are exact for every child join the first half. Anderson's acceleration (1965; Walker and Ni
2011) of the fixed-point iteration takes the place of hundreds of iterations. Neither half's word is taken: every few
iterations a feasible table and a lower bound on all of them are computed, and the iteration ends when the two meet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from das.estimation.distance import quadratic_distance
from das.estimation.known import free_cells, known_groups
from das.estimation.nonnegative import clean, closed_form, solve
from das.estimation.problem import FamilyProblem, Quadratic, Solution
from das.estimation.simplex import Rows, Shares, lower_bound, nearest_within
from das.estimation.verify import residual, tolerance

__all__ = ["solve_fast"]

_RELAXATION = 1.6
_MEMORY = 6
_ITERATIONS = 400


def solve_fast(problem: FamilyProblem, gap: float = 1e-6) -> Solution:
    """Find the nonnegative least-squares solution of one family to a certified relative gap.

    What the iteration does not solve goes to the cvxpy reference, whose solver the solution then names.

    Examples
    --------
    >>> from das.schema import Attribute, Schema
    >>> from das.query import parse_query
    >>> from das.estimation.problem import Measured
    >>> schema = Schema((Attribute("sex", ("f", "m")),))
    >>> noisy = Measured(query=parse_query(schema, "detailed"), values=np.array([[5, -3], [2, 6]]), variance=1.0)
    >>> family = FamilyProblem(level="tract", geocodes=("1", "2"), cells=np.arange(2), parent=np.array([5, 4]),
    ...                        measured=(noisy,), limits=())
    >>> found = solve_fast(family)
    >>> found.solver, found.x.round(6).tolist(), found.gap < 1e-6
    ('fast', [[4.0, 0.0], [1.0, 4.0]], True)
    """
    known = known_groups(problem)
    free = free_cells(problem, known)
    closed = closed_form(problem, known, free)
    if closed is not None:
        return closed
    distance = quadratic_distance(problem)
    if distance.modulus <= 0:
        return solve(problem)
    shares = Shares.of(problem.parent, free.T)
    rows = Rows.of(problem, known)
    found = _iterate(distance, shares, rows, gap)
    if found is None:
        return solve(problem)
    table, certified, iterations = found
    x = clean(problem, table.T)
    missed = residual(problem, known, x)
    if missed > tolerance(problem):
        return solve(problem)
    return Solution(x=x, solver="fast", residual=missed, gap=certified, iterations=iterations)


def _iterate(
    distance: Quadratic, shares: Shares, rows: Rows, gap: float
) -> tuple[NDArray[np.float64], float, int] | None:
    """Iterate until a feasible table and a lower bound meet; cells x children throughout."""
    everyone = (rows.lower == rows.upper).all(axis=1)
    exact, loose = rows.pick(everyone), rows.pick(~everyone)
    start = _unconstrained(distance, shares.parent, exact)
    distance = distance.around(start.T)
    half = _QuadraticHalf.of(distance, exact, loose)
    cells = len(start)
    scale = np.sqrt(loose.members.sum(axis=1, keepdims=True))
    summed = loose.members @ start
    lower, upper = (loose.lower - summed) / scale, (loose.upper - summed) / scale

    state = np.zeros((cells + len(loose), start.shape[1]))
    anderson = _Anderson.of(state.size)
    trigger = gap * max(distance.constant, 1.0)
    checked = 0
    for iteration in range(1, _ITERATIONS + 1):
        table = shares.nearest(state[:cells] + start)
        projected = np.concatenate([table - start, np.clip(state[cells:], lower, upper)])
        reflected = 2.0 * projected - state
        answer = half.minimise(reflected)
        step = _RELAXATION * (answer - projected)
        size = half.rho * float(np.vdot(step, step))
        if size <= trigger or iteration - checked >= 50:
            checked = iteration
            multiplier = half.multipliers(distance, exact, answer, reflected, state - projected)
            feasible = table if not len(rows) else nearest_within(shares, rows, table)
            if feasible is not None:
                value = distance.value(feasible.T)
                bound = lower_bound(distance, shares, half.rows, answer[:cells] + start, multiplier)
                certified = (value - bound) / max(value, 1.0)
                if certified <= gap:
                    return feasible, max(certified, 0.0), iteration
                trigger = size * min(0.7, max(0.1, gap / certified))
            else:
                trigger = 0.3 * size
        state = anderson.advance(state, step)
    return None


def _unconstrained(
    distance: Quadratic, parent: NDArray[np.float64] | None, exact: Rows
) -> NDArray[np.float64]:
    """Minimise without signs and inequalities: the linear solution, cells x children."""
    table = distance.reference.T.copy()
    if distance.curvature.ndim == 2:
        factor = lapack.dpotrf(distance.curvature.T)[0]
        solved = lapack.dpotrs(factor, np.concatenate([distance.pull.T, exact.members.T], axis=1))[0]
        table += solved[:, : table.shape[1]]
        toward = solved[:, table.shape[1] :]
        if len(exact):
            table += toward @ (np.linalg.pinv(exact.members @ toward) @ (exact.lower - exact.members @ table))
    else:
        for child, curvature in enumerate(distance.curvature):
            factor = lapack.dpotrf(curvature.T)[0]
            solved = lapack.dpotrs(factor, np.column_stack([distance.pull[child], exact.members.T]))[0]
            table[:, child] += solved[:, 0]
            if len(exact):
                toward = solved[:, 1:]
                short = exact.lower[:, child] - exact.members @ table[:, child]
                table[:, child] += toward @ (np.linalg.pinv(exact.members @ toward) @ short)
    if parent is not None:
        table += ((parent - table.sum(axis=1)) / table.shape[1])[:, None]
    return table


@dataclass(frozen=True, slots=True)
class _QuadraticHalf:
    """Minimise distance + rho |A x - reflected|^2 over x, with A the cells and the scaled sums of limited rows.

    Everything is a step from the distance's reference. The answer is A x, affine in the reflected point.
    """

    rho: float
    rows: Rows  # loose, then exact
    scaled: NDArray[np.float64]  # loose rows of A
    matrix: NDArray[np.float64]  # A-rows x A-rows, or one for each child
    constant: NDArray[np.float64]
    inverse_exact: NDArray[np.float64]

    @classmethod
    def of(cls, distance: Quadratic, exact: Rows, loose: Rows) -> _QuadraticHalf:
        shared = distance.curvature.ndim == 2
        cells = distance.pull.shape[1]
        curvatures = distance.curvature[None] if shared else distance.curvature
        rho = float(np.einsum("cjj->", curvatures)) / (len(curvatures) * cells)
        scaled = loose.members / np.sqrt(loose.members.sum(axis=1, keepdims=True))
        metric = rho * (scaled.T @ scaled)
        metric[np.diag_indices(cells)] += rho
        matrices = np.stack([_inverse(curvature + metric, exact.members) for curvature in curvatures])
        if len(loose):
            with_rows = np.concatenate([np.eye(cells), scaled])
            matrices = with_rows @ matrices @ with_rows.T
        matrix = matrices[0] if shared else matrices
        constant = matrix[:, :cells] @ distance.pull.T if shared else _each(matrix[:, :, :cells], distance.pull.T)
        return cls(
            rho=rho,
            rows=Rows(*(np.concatenate(part) for part in zip(_parts(loose), _parts(exact), strict=True))),
            scaled=scaled,
            matrix=rho * matrix,
            constant=constant,
            inverse_exact=np.linalg.pinv(exact.members),
        )

    def minimise(self, reflected: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return A x at the minimum."""
        bent = self.matrix @ reflected if self.matrix.ndim == 2 else _each(self.matrix, reflected)
        bent += self.constant
        return bent

    def multipliers(
        self,
        distance: Quadratic,
        exact: Rows,
        answer: NDArray[np.float64],
        reflected: NDArray[np.float64],
        outside: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Multipliers of the rows, loose then exact, as the two halves see them."""
        cells = len(answer) - len(self.scaled)
        norm = np.sqrt((self.scaled > 0).sum(axis=1, keepdims=True))
        loose = self.rho * outside[cells:] / norm
        if not len(exact):
            return loose
        off = answer - reflected
        left = distance.pull.T - distance.bend(answer[:cells].T).T
        left -= self.rho * (off[:cells] + self.scaled.T @ off[cells:])
        return np.concatenate([loose, self.inverse_exact.T @ left])


def _each(matrices: NDArray[np.float64], columns: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.matmul(matrices, columns.T[:, :, None])[:, :, 0].T


def _parts(rows: Rows) -> tuple[NDArray[np.float64], ...]:
    return rows.members, rows.lower, rows.upper


def _inverse(matrix: NDArray[np.float64], exact: NDArray[np.float64]) -> NDArray[np.float64]:
    """Invert a positive definite matrix on the steps that leave the exact rows' sums alone."""
    factor = lapack.dpotrf(matrix.T, lower=1)[0]
    triangle = lapack.dpotri(factor, lower=1)[0]
    inverse = np.tril(triangle) + np.tril(triangle, -1).T
    if len(exact):
        toward = inverse @ exact.T
        inverse -= toward @ np.linalg.pinv(exact @ toward) @ toward.T
    return inverse


@dataclass(slots=True)
class _Anderson:
    """The last few steps of a fixed-point iteration, and the combination of them that makes the next one shortest."""

    steps: NDArray[np.float64]  # differences of steps
    moves: NDArray[np.float64]  # differences of states plus those of steps
    gram: NDArray[np.float64]
    count: int = 0
    last: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
    shortest: float = np.inf

    @classmethod
    def of(cls, size: int) -> _Anderson:
        return cls(np.zeros((_MEMORY, size)), np.zeros((_MEMORY, size)), np.zeros((_MEMORY, _MEMORY)))

    def advance(self, state: NDArray[np.float64], step: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the next state."""
        length = float(np.vdot(step, step))
        if length > 4.0 * self.shortest:  # the past misleads: forget it
            self.count, self.last, self.shortest = 0, None, np.inf
        self.shortest = min(self.shortest, length)
        if self.last is None:
            self.last = state, step
            return state + step
        slot = self.count % _MEMORY
        np.subtract(step, self.last[1], out=self.steps[slot].reshape(step.shape))
        np.subtract(state, self.last[0], out=self.moves[slot].reshape(step.shape))
        self.moves[slot] += self.steps[slot]
        self.count += 1
        used = min(self.count, _MEMORY)
        self.gram[slot] = self.gram[:, slot] = self.steps @ self.steps[slot]
        gram = self.gram[:used, :used].copy()
        gram[np.diag_indices(used)] *= 1.0 + 1e-10
        weights = np.linalg.solve(gram, self.steps[:used] @ step.ravel())
        self.last = state, step
        return state + step - (weights @ self.moves[:used]).reshape(step.shape)
