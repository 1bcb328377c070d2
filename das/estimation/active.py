"""Guess which cells are positive and which limits bind, solve the linear equations that follow, correct the guess.

A primal-dual active-set method (Hintermüller, Ito and Kunisch 2003), which is a semismooth Newton method: from a fair
guess it ends after a few steps with the optimum itself. Given the positive cells F and the binding limits,

    curvature x_c + price + B'multiplier = linear  on F,   x_c = 0 off F,   sum over c of x_c = parent,   B x_c = bound

Each child is eliminated by itself, through the inverse of its small block; the children meet in one system for the
prices of the cells. Between steps few children change, and only those are eliminated again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from das.estimation.problem import Quadratic
from das.estimation.tables import Rows

__all__ = ["ActiveSet", "Settled", "inverse_of", "settle"]

_STEPS = 12
_ROUNDING = 1e-10


@dataclass(frozen=True, slots=True)
class ActiveSet:
    """A guess: the positive cells, and where each child's limits bind (-1 below, +1 above); children first."""

    positive: NDArray[np.bool_]
    binding: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Settled:
    """The optimum and the multipliers of the limits; children first."""

    x: NDArray[np.float64]
    multipliers: NDArray[np.float64]
    steps: int


def settle(
    distance: Quadratic,
    parent: NDArray[np.float64] | None,
    free: NDArray[np.bool_],
    rows: Rows,
    guess: ActiveSet,
) -> Settled | None:
    """Correct the guess until it stands; ``None`` if it does not within a few steps, or leads to no solution.

    Examples
    --------
    Two children share three people in each of two cells; the first would rather have none of the second cell.

    >>> distance = Quadratic(curvature=np.eye(2), reference=np.array([[2.0, -3.0], [1.0, 2.0]]), pull=np.zeros((2, 2)),
    ...                      constant=0.0, modulus=1.0)
    >>> nothing = Rows(np.zeros((0, 2)), np.zeros((0, 2)), np.zeros((0, 2)))
    >>> everywhere = np.ones((2, 2), dtype=bool)
    >>> guess = ActiveSet(everywhere, np.zeros((2, 0), dtype=np.int64))
    >>> settle(distance, np.array([3.0, 3.0]), everywhere, nothing, guess).x.round(9).tolist()
    [[2.0, 0.0], [1.0, 3.0]]
    """
    positive, binding = guess.positive & free, guess.binding
    lower, upper = rows.lower.T, rows.upper.T
    exact = rows.exact.T & (upper > 0)
    linear = -distance.slope(np.zeros_like(distance.pull))
    equations = _Equations(distance, linear, parent, rows)
    for step in range(1, _STEPS + 1):
        _open_binding(positive, binding, free, rows)
        found = equations.solve(positive, binding)
        if found is None:
            return None
        x, pressed, multipliers = found
        # A cell may be exactly zero with nothing pressing it down; rounding must not drive it in and out for ever.
        scale = _ROUNDING * max(1.0, float(x.max(initial=0.0)))
        still = np.where(positive, x > -scale, pressed < -_ROUNDING) & free
        held = binding
        if len(rows):
            sums = x @ rows.members.T
            held = np.where(~exact & (binding * multipliers < -_ROUNDING), 0, binding)
            held[(binding == 0) & (sums > upper + scale)] = 1
            held[(binding == 0) & (sums < lower - scale)] = -1
        if np.array_equal(still, positive) and np.array_equal(held, binding):
            return Settled(x, multipliers, step)
        positive, binding = still, held
    return None


def inverse_of(matrix: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Invert a positive definite matrix, which is overwritten; ``None`` if it is not positive definite.

    Examples
    --------
    >>> inverse_of(np.array([[2.0, 1.0], [1.0, 1.0]])).round(12).tolist()
    [[1.0, -1.0], [-1.0, 2.0]]
    """
    if not len(matrix):
        return matrix
    triangle, failed = lapack.dpotrf(matrix.T, lower=1, overwrite_a=1)
    if failed:
        return None
    triangle, _ = lapack.dpotri(triangle, lower=1, overwrite_c=1)
    inverse = triangle + triangle.T
    inverse.ravel(order="K")[:: len(inverse) + 1] *= 0.5
    return np.asarray(inverse)


def _open_binding(positive: NDArray[np.bool_], binding: NDArray[np.int64], free: NDArray[np.bool_], rows: Rows) -> None:
    """Open the cells of each limit that binds while all its cells are at zero: it could not hold otherwise."""
    empty = (binding != 0) & (positive @ rows.members.T == 0)
    if empty.any():
        positive |= (empty @ rows.members > 0) & free


@dataclass(frozen=True, slots=True)
class _Eliminated:
    """A child's cells as an affine function of their prices: x = alone - inverse price."""

    at: NDArray[np.int64]
    flat: NDArray[np.int64]  # positions of the child's block in the system of prices
    inverse: NDArray[np.float64]
    alone: NDArray[np.float64]
    active: NDArray[np.int64]  # limits that bind
    toward: NDArray[np.float64]  # cells x active limits


class _Equations:
    """The linear equations of a guess; children whose guess did not change stay eliminated."""

    def __init__(
        self,
        distance: Quadratic,
        linear: NDArray[np.float64],
        parent: NDArray[np.float64] | None,
        rows: Rows,
    ) -> None:
        self.distance, self.linear, self.parent, self.rows = distance, linear, parent, rows
        n, m = linear.shape
        self.system = np.zeros((m, m))
        self.children: list[_Eliminated | None] = [None] * n
        self.positive, self.binding = np.zeros((n, m), dtype=bool), np.zeros((n, len(rows)), dtype=np.int64)

    def solve(
        self, positive: NDArray[np.bool_], binding: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]] | None:
        """Return x, the gradient of the Lagrangian off the positive cells, and the multipliers of the limits."""
        changed = (positive != self.positive).any(axis=1) | (binding != self.binding).any(axis=1)
        flat_system = self.system.reshape(-1)
        for c in np.flatnonzero(changed).tolist():
            before, now = self.children[c], self._eliminate(c, positive[c], binding[c])
            if now is None:
                return None
            if before is not None:
                flat_system[before.flat] -= before.inverse
            flat_system[now.flat] += now.inverse
            self.children[c] = now
        self.positive, self.binding = positive, binding

        x, multipliers = np.zeros_like(self.linear), np.zeros(binding.shape)
        eliminated = [(c, child) for c, child in enumerate(self.children) if child is not None]
        for c, child in eliminated:
            x[c, child.at] = child.alone
        price = np.zeros(self.linear.shape[1])
        if self.parent is not None:
            # Where limits fix every child's total the prices have a level that does not matter; a ridge chooses one.
            system = self.system.copy()
            diagonal = system.reshape(-1)[:: len(system) + 1]
            diagonal += np.where(positive.any(axis=0), 1e-12 * diagonal.mean(), 1.0)
            _, price, failed = lapack.dposv(system.T, x.sum(axis=0) - self.parent, overwrite_a=1)
            if failed:
                return None
            for c, child in eliminated:
                x[c, child.at] -= child.inverse @ price[child.at]
        pressed = self.distance.slope(x) + price
        for c, child in eliminated:
            if len(child.active):
                multipliers[c, child.active] = -(pressed[c, child.at] @ child.toward)
        if len(self.rows):
            pressed += multipliers @ self.rows.members
        return x, pressed, multipliers

    def _eliminate(self, c: int, positive: NDArray[np.bool_], binding: NDArray[np.int64]) -> _Eliminated | None:
        at = positive.nonzero()[0]
        flat = at[:, None] * len(positive) + at
        inverse = inverse_of(self.distance.block(c, at))
        if inverse is None:
            return None
        alone = inverse @ self.linear[c, at]
        active = binding.nonzero()[0]
        toward = np.zeros((len(at), 0))
        if len(active):
            members = self.rows.members[active[:, None], at]
            spread = inverse @ members.T
            gram = members @ spread
            # Limits may say the same twice (a total and all its parts): a ridge makes either of them do.
            gram.reshape(-1)[:: len(gram) + 1] += 1e-13 * gram.trace()
            back = lapack.dposv(gram, spread.T)[1]
            toward = np.asarray(back).T
            bound = np.where(binding[active] > 0, self.rows.upper[active, c], self.rows.lower[active, c])
            alone += toward @ (bound - members @ alone)
            inverse -= toward @ spread.T
        return _Eliminated(at, flat, inverse, alone, active, toward)
