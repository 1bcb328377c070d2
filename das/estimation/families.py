"""The fast solver of a family: guess the active set by splitting, settle it by Newton, certify the result.

    minimise distance(x)  over tables x (each cell's people shared among the children)  with limits L <= B x <= U

The guess comes from a few iterations of Douglas and Rachford (1956; Eckstein and Bertsekas 1992): one half minimises
the quadratic, by one matrix multiplication for all children; the other projects each cell onto a simplex and each
limited sum onto its interval. Limits that are exact for every child join the first half. Anderson's acceleration (1965;
Walker and Ni 2011) makes ten iterations do for a hundred. The active-set method takes it from there to the optimum, and
a lower bound on all tables says how good that is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from das.estimation.active import ActiveSet, inverse_of, settle
from das.estimation.distance import quadratic_distance
from das.estimation.known import free_cells, known_groups
from das.estimation.nonnegative import clean, closed_form, solve
from das.estimation.problem import FamilyProblem, Quadratic, Solution
from das.estimation.tables import Rows, Shares, lower_bound
from das.estimation.verify import residual, tolerance

__all__ = ["solve_fast"]

_GUESS_AFTER = (12, 12, 24, 48)
"""Iterations before the first guess, and before each further one if the one before did not settle."""
_RELAXATION = 1.6
_MEMORY = 6


def solve_fast(problem: FamilyProblem, gap: float = 1e-6) -> Solution:
    """Find the nonnegative least-squares solution of one family to a certified relative gap.

    What this does not solve goes to the cvxpy reference, whose solver the solution then names.

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
    parent = None if problem.parent is None else problem.parent.astype(np.float64)
    x = np.zeros(problem.shape)
    left = np.ones(len(problem.cells), dtype=bool)
    if parent is not None:
        # A cell that one child alone may fill is no variable: it is filled, and the rest is solved given it.
        left = free.sum(axis=0) > 1
        x[:, ~left] = np.where(free, parent, 0.0)[:, ~left]
        parent = parent[left]
        if not left.all():
            distance, rows, free = distance.given(x, ~left), rows.given(x.T, ~left), free[:, left]
    shares = Shares.of(parent, free.T)
    for iterations, guess in _guesses(distance, shares, rows):
        settled = settle(distance, parent, free, rows, guess)
        if settled is None:
            continue
        bound = lower_bound(distance, shares, rows, settled.x.T, settled.multipliers.T)
        x[:, left] = settled.x
        x = clean(problem, x)
        value = distance.value(x[:, left])
        off = (value - bound) / max(value, 1.0)
        missed = residual(problem, known, x)
        if off <= gap and missed <= tolerance(problem):
            steps = iterations + settled.steps
            return Solution(x=x, solver="fast", residual=missed, gap=max(off, 0.0), iterations=steps)
    return solve(problem)


def _guesses(distance: Quadratic, shares: Shares, rows: Rows) -> Iterator[tuple[int, ActiveSet]]:
    """Iterate, and say now and then which cells are positive and which limits bind.

    The state stacks a table (cells x children) and the limited sums, as steps from the distance's reference.
    """
    exact = np.asarray(rows.exact.all(axis=1))
    loose = rows.pick(~exact)
    half = _QuadraticHalf.of(distance, rows.pick(exact), loose, shares.parent)
    if half is None:
        return
    start = half.start
    m = len(start)
    summed = loose.members @ start
    lower, upper = (loose.lower - summed) / half.norm, (loose.upper - summed) / half.norm
    anderson = _Anderson.of((m + len(loose), start.shape[1]))
    # Arrays of a large family do not fit the allocator's cache: everything below is computed in place.
    projected, target = np.empty_like(anderson.state), np.empty_like(anderson.state)
    table, ordered, averages = np.empty_like(start), np.empty_like(start), np.empty_like(start)
    opened = start + shares.offset
    done = 0
    for pause in _GUESS_AFTER:
        for _ in range(pause):
            state, step = anderson.state, anderson.step
            np.add(state[:m], opened, out=table)
            shares.settle(table, ordered, averages)
            np.subtract(table, start, out=projected[:m])
            if len(loose):
                np.minimum(np.maximum(state[m:], lower), upper, out=projected[m:])
            np.multiply(projected, 2.0, out=target)
            target -= state
            np.matmul(half.matrix, target, out=step)
            step += half.constant
            step -= projected
            length = float(np.vdot(step, step))
            step *= _RELAXATION
            anderson.advance(length)
        done += pause
        binding = np.zeros(rows.lower.shape, dtype=np.int64)
        sums = anderson.state[m:]
        binding[~exact] = (sums > upper).astype(np.int64) - (sums < lower)
        binding[rows.exact] = 1
        binding[rows.upper <= 0] = 0
        positive = shares.nearest(anderson.state[:m] + start) > 0
        yield done, ActiveSet(np.ascontiguousarray(positive.T), np.ascontiguousarray(binding.T))


@dataclass(frozen=True, slots=True)
class _QuadraticHalf:
    """Minimise distance + rho |A s - target|^2 over steps s from a start; A stacks cells and scaled sums of loose rows.

    The answer A s is affine in the target. Children with curvatures of their own are treated alike: this is a guess.
    """

    start: NDArray[np.float64]  # cells x children, near the linear solution
    norm: NDArray[np.float64]
    matrix: NDArray[np.float64]
    constant: NDArray[np.float64]

    @classmethod
    def of(
        cls, distance: Quadratic, exact: Rows, loose: Rows, parent: NDArray[np.float64] | None
    ) -> _QuadraticHalf | None:
        curvature = distance.typical()
        m = len(curvature)
        # The mean of the diagonal sits between the curvature of single cells and that of large sums.
        rho = float(curvature.trace()) / m
        norm = np.sqrt(loose.members.sum(axis=1, keepdims=True))
        scaled = loose.members / norm
        metric = curvature + rho * (scaled.T @ scaled) if len(loose) else curvature.copy()
        metric[np.diag_indices(m)] += rho
        inverse = inverse_of(metric)
        if inverse is None:
            return None
        reference, pull = distance.reference.T, distance.pull.T
        start = reference
        if len(exact):
            toward = inverse @ exact.members.T
            back = toward @ np.linalg.pinv(exact.members @ toward, hermitian=True)
            inverse = inverse - back @ toward.T
            start = start + back @ (exact.lower - exact.members @ start)
        # Three proximal steps towards the linear solution, then the sums.
        drive = pull - curvature @ (start - reference)
        step = inverse @ drive
        for _ in range(2):
            step = inverse @ (drive + rho * (step + scaled.T @ (scaled @ step)))
        start = start + step
        if parent is not None:
            start = start + ((parent - start.sum(axis=1)) / start.shape[1])[:, None]
        constant = inverse @ (pull - curvature @ (start - reference))
        matrix = inverse
        if len(loose):
            stack = np.concatenate([np.eye(m), scaled])
            matrix = stack @ inverse @ stack.T
            constant = stack @ constant
        return cls(start, norm, rho * matrix, constant)


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
        now, past = [np.zeros(shape) for _ in range(4)], [np.zeros((_MEMORY, *shape)) for _ in range(2)]
        return cls(now[0], now[1], now[2], now[3], past[0], past[1], np.zeros((_MEMORY, _MEMORY)))

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
