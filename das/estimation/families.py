"""The fast solver of a family: two closed-form halves, accelerated, stopped by a certified gap.

    minimise distance(x)  over tables x (each cell's people shared among the children)  with limits L <= B x <= U

Douglas and Rachford (1956), as in Eckstein and Bertsekas (1992): one half minimises the quadratic, by one matrix
multiplication for all children; the other projects each cell onto a simplex and each limited sum onto its interval.
Limits that are exact for every child join the first half. Anderson's acceleration (1965; Walker and Ni 2011) takes the
place of hundreds of iterations. Neither half's word is taken: now and then a feasible table and a lower bound for all
tables are computed, and the iteration ends when the two meet.
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
from das.estimation.tables import Rows, Shares, lower_bound, nearest_within
from das.estimation.verify import residual, tolerance

__all__ = ["solve_fast"]

Table = NDArray[np.float64]  # cells x children, unlike elsewhere: a cell's shares lie side by side

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
    rows = Rows.of(problem, known)
    x = np.zeros(problem.shape)
    # A cell that one child alone may fill is no variable: it is filled, and the rest is solved given it.
    settled = free.sum(axis=0) <= 1
    if problem.parent is not None and settled.any():
        x[:, settled] = np.where(free, problem.parent, 0.0)[:, settled]
        distance = _given(distance, x, settled)
        rows = rows.given(x.T, settled)
    else:
        settled = np.zeros_like(settled)
    shares = Shares.of(None if problem.parent is None else problem.parent[~settled], free.T[~settled])
    found = _iterate(distance, shares, rows, gap)
    if found is None:
        return solve(problem)
    table, certified, iterations = found
    x[:, ~settled] = table.T
    x = clean(problem, x)
    missed = residual(problem, known, x)
    if missed > tolerance(problem):
        return solve(problem)
    return Solution(x=x, solver="fast", residual=missed, gap=certified, iterations=iterations)


def _given(distance: Quadratic, x: NDArray[np.float64], settled: NDArray[np.bool_]) -> Quadratic:
    """Restrict a distance to the cells that are not settled."""
    there = distance.around(np.where(settled, x, distance.reference))
    left = np.flatnonzero(~settled)
    return Quadratic(
        curvature=there.curvature[..., left[:, None], left],
        reference=there.reference[:, left],
        pull=there.pull[:, left],
        constant=there.constant,
        modulus=there.modulus,
    )


def _iterate(distance: Quadratic, shares: Shares, rows: Rows, gap: float) -> tuple[Table, float, int] | None:
    """Iterate until a feasible table and a lower bound meet.

    The state stacks a table and the limited sums, as steps from the linear solution.
    """
    exact = rows.exact.all(axis=1)
    loose = rows.pick(~exact)
    start = _linear(distance, shares.parent, rows.pick(exact))
    distance = distance.around(np.ascontiguousarray(start.T))
    half = _QuadraticHalf.of(distance, rows.pick(exact), loose)
    m = len(start)
    norm = np.sqrt(loose.members.sum(axis=1, keepdims=True))
    summed = loose.members @ start
    lower, upper = (loose.lower - summed) / norm, (loose.upper - summed) / norm

    anderson = _Anderson.of((m + len(loose), start.shape[1]))
    state = anderson.state
    # Arrays of a large family do not fit the allocator's cache: everything below is computed in place.
    projected, outside, answer = np.empty_like(state), np.empty_like(state), np.empty_like(state)
    table, ordered, averages = np.empty_like(start), np.empty_like(start), np.empty_like(start)
    opened = start + shares.offset
    trigger = gap * max(distance.constant, 1.0)
    checked = 0
    for iteration in range(1, _ITERATIONS + 1):
        np.add(state[:m], opened, out=table)
        shares.settle(table, ordered, averages)
        np.subtract(table, start, out=projected[:m])
        if len(loose):
            np.minimum(np.maximum(state[m:], lower), upper, out=projected[m:])
        np.subtract(state, projected, out=outside)
        step = anderson.step
        half.minimise(np.subtract(projected, outside, out=step), out=answer)
        np.subtract(answer, projected, out=step)
        length = float(np.vdot(step, step))
        if half.rho * length <= trigger or iteration - checked >= 50:
            checked = iteration
            multipliers = np.empty_like(rows.lower)
            multipliers[~exact] = half.rho * outside[m:] / norm
            multipliers[exact] = half.exact_multipliers(distance, answer, answer - projected + outside)
            bound = lower_bound(distance, shares, rows, answer[:m] + start, multipliers)
            off = abs(distance.value(table.T) - bound) / max(bound, 1.0)
            # Only a table that is nearly optimal and nearly keeps the limits is worth moving onto them.
            feasible = table if not len(rows) else nearest_within(shares, rows, table) if off <= 50.0 * gap else None
            if feasible is not None:
                value = distance.value(feasible.T)
                off = (value - bound) / max(value, 1.0)
                if off <= gap:
                    return feasible, max(off, 0.0), iteration
            trigger = half.rho * length * min(0.7, max(0.2, gap / off))
        step *= _RELAXATION
        state = anderson.advance(length)
    return None


def _linear(distance: Quadratic, parent: NDArray[np.float64] | None, exact: Rows) -> Table:
    """Minimise without signs and inequalities."""
    table = np.empty((distance.pull.shape[1], distance.pull.shape[0]))
    shared = distance.curvature.ndim == 2
    curvatures = distance.curvature[None] if shared else distance.curvature
    for c, curvature in enumerate(curvatures):
        children = slice(None) if shared else slice(c, c + 1)
        factor = lapack.dpotrf(curvature.T)[0]
        solved = lapack.dpotrs(factor, np.concatenate([distance.pull[children], exact.members]).T)[0]
        count = solved.shape[1] - len(exact)
        part = distance.reference[children].T + solved[:, :count]
        if len(exact):
            toward = solved[:, count:]
            short = exact.lower[:, children] - exact.members @ part
            part += toward @ (np.linalg.pinv(exact.members @ toward) @ short)
        table[:, children] = part
    if parent is not None:
        table += ((parent - table.sum(axis=1)) / table.shape[1])[:, None]
    return table


@dataclass(frozen=True, slots=True)
class _QuadraticHalf:
    """Minimise distance + rho |A x - target|^2 over x; A stacks the cells and the scaled sums of the loose rows.

    Everything is a step from the distance's reference. The answer is A x, affine in the target.
    """

    rho: float
    scaled: NDArray[np.float64]  # loose rows of A, each of length one
    matrix: NDArray[np.float64]  # for all children, or one for each
    constant: NDArray[np.float64]
    exact_inverse: NDArray[np.float64]

    @classmethod
    def of(cls, distance: Quadratic, exact: Rows, loose: Rows) -> _QuadraticHalf:
        curvatures = distance.curvature if distance.curvature.ndim == 3 else distance.curvature[None]
        m = curvatures.shape[1]
        # The mean of the diagonal sits between the curvature of single cells and that of large sums.
        rho = float(np.einsum("cjj->", curvatures)) / (len(curvatures) * m)
        scaled = loose.members / np.sqrt(loose.members.sum(axis=1, keepdims=True))
        metric = rho * (scaled.T @ scaled)
        metric[np.diag_indices(m)] += rho
        stack = np.concatenate([np.eye(m), scaled])
        inverses = [_inverse(curvature + metric, exact.members) for curvature in curvatures]
        if len(loose):
            inverses = [stack @ inverse @ stack.T for inverse in inverses]
        matrix = inverses[0] if distance.curvature.ndim == 2 else np.stack(inverses)
        constant = _times(matrix[..., :m], distance.pull.T)
        matrix *= rho
        return cls(rho, scaled, matrix, constant, np.linalg.pinv(exact.members))

    def minimise(self, target: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Compute A x at the minimum."""
        if self.matrix.ndim == 2:
            np.matmul(self.matrix, target, out=out)
        else:
            np.copyto(out, _times(self.matrix, target))
        out += self.constant

    def exact_multipliers(
        self, distance: Quadratic, answer: NDArray[np.float64], away: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Multipliers of the exact rows: what their gradients must add for the minimum's gradient to vanish."""
        m = distance.pull.shape[1]
        left = distance.pull.T - distance.bend(answer[:m].T).T - self.rho * (away[:m] + self.scaled.T @ away[m:])
        return self.exact_inverse.T @ left


def _times(matrix: NDArray[np.float64], columns: NDArray[np.float64]) -> NDArray[np.float64]:
    if matrix.ndim == 2:
        return matrix @ columns
    return np.matmul(matrix, columns.T[:, :, None])[:, :, 0].T


def _inverse(matrix: NDArray[np.float64], exact: NDArray[np.float64]) -> NDArray[np.float64]:
    """Invert a positive definite matrix on the steps that leave the exact rows' sums alone."""
    triangle = lapack.dpotri(lapack.dpotrf(matrix.T, lower=1, overwrite_a=1)[0], lower=1, overwrite_c=1)[0]
    inverse = triangle + triangle.T
    inverse[np.diag_indices(len(inverse))] *= 0.5
    if len(exact):
        toward = inverse @ exact.T
        inverse -= toward @ np.linalg.pinv(exact @ toward) @ toward.T
    return np.ascontiguousarray(inverse)


@dataclass(slots=True)
class _Anderson:
    """The state and step of a fixed-point iteration, and the last few of them, whose best combination comes next."""

    state: NDArray[np.float64]
    step: NDArray[np.float64]
    last_state: NDArray[np.float64]
    last_step: NDArray[np.float64]
    steps: NDArray[np.float64]  # differences of steps
    moves: NDArray[np.float64]  # differences of states plus those of steps
    gram: NDArray[np.float64]
    count: int = -1
    shortest: float = np.inf

    @classmethod
    def of(cls, shape: tuple[int, int]) -> _Anderson:
        past = (_MEMORY, *shape)
        return cls(*(np.zeros(shape) for _ in range(4)), np.zeros(past), np.zeros(past), np.zeros((_MEMORY, _MEMORY)))

    def advance(self, length: float) -> NDArray[np.float64]:
        """Return the next state; a step that grew in length says that the past misleads."""
        if length > 4.0 * self.shortest:
            self.count, self.shortest = -1, np.inf
        self.shortest = min(self.shortest, length)
        self.count += 1
        weights = self._weights() if self.count else None
        # The old arrays become scratch for the next state and step.
        following = self.last_state
        np.add(self.state, self.step, out=following)
        if weights is not None:
            correction = self.last_step.reshape(-1)
            np.matmul(weights, self.moves[: len(weights)].reshape(len(weights), -1), out=correction)
            following -= self.last_step
        self.last_state, self.state = self.state, following
        self.last_step, self.step = self.step, self.last_step
        return following

    def _weights(self) -> NDArray[np.float64] | None:
        """Combine past steps so that the step vanishes as nearly as it can (least squares)."""
        slot = (self.count - 1) % _MEMORY
        used = min(self.count, _MEMORY)
        np.subtract(self.step, self.last_step, out=self.steps[slot])
        np.subtract(self.state, self.last_state, out=self.moves[slot])
        self.moves[slot] += self.steps[slot]
        past = self.steps[:used].reshape(used, -1)
        self.gram[slot, :used] = self.gram[:used, slot] = past @ self.steps[slot].reshape(-1)
        gram = self.gram[:used, :used] * (1.0 + 1e-10 * np.eye(used))
        _, weights, failed = lapack.dposv(gram, past @ self.step.reshape(-1))
        if failed:
            self.count = 0
            return None
        return np.asarray(weights)
