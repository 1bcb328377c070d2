"""Guess which cells are positive and which limits bind, solve the linear equations that follow, correct the guess.

A primal-dual active-set method (Hintermüller, Ito and Kunisch 2003), which is a semismooth Newton method: close to the
optimum it ends after a few steps with the optimum itself. Given the positive cells F and the binding limits, with
multipliers nu of the cells' sums and lambda of the limits,

    curvature x_c + nu + B'lambda = linear  on F,    x_c = 0 off F,    sum over c of x_c = parent,    B x_c = bound

Each child is eliminated by itself, through the inverse of its small block, and the children meet in one system for nu.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from das.estimation.problem import Quadratic
from das.estimation.tables import Rows

__all__ = ["ActiveSet", "Settled", "settle"]

_STEPS = 12
_ROUNDING = 1e-10


@dataclass(frozen=True, slots=True)
class ActiveSet:
    """A guess: the positive cells, children x cells, and for each child and limit -1 at the lower bound, +1 at the upper."""

    positive: NDArray[np.bool_]
    binding: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Settled:
    """The optimum and the multipliers of the limits, both children first."""

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
    """Correct the guess until it stands; ``None`` if it does not within a few steps, or leads to no solution."""
    positive, binding = guess.positive & free, guess.binding
    lower, upper = rows.lower.T, rows.upper.T
    exact = rows.exact.T & (upper > 0)
    for step in range(1, _STEPS + 1):
        found = _solve(distance, parent, free, rows, positive, binding)
        if found is None:
            return None
        x, price, multipliers = found
        pressed = distance.slope(x) + price + multipliers @ rows.members
        sums = x @ rows.members.T
        scale = _ROUNDING * max(1.0, float(np.abs(x).max(initial=0.0)))
        still = np.where(positive, x > 0.0, pressed < -_ROUNDING) & free
        held = binding.copy()
        held[~exact & (binding * multipliers < 0)] = 0
        held[(binding == 0) & (sums > upper + scale)] = 1
        held[(binding == 0) & (sums < lower - scale)] = -1
        if np.array_equal(still, positive) and np.array_equal(held, binding):
            return Settled(x, multipliers, step)
        positive, binding = still, held
    return None


def _solve(
    distance: Quadratic,
    parent: NDArray[np.float64] | None,
    free: NDArray[np.bool_],
    rows: Rows,
    positive: NDArray[np.bool_],
    binding: NDArray[np.int64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]] | None:
    """Solve the equations of one guess for x, the prices of the cells and the multipliers of the limits."""
    n, m = positive.shape
    x, multipliers = np.zeros((n, m)), np.zeros((n, len(rows)))
    linear = -distance.slope(x)
    system, excess = np.zeros((m, m)), np.zeros(m)
    parts = []
    for c in range(n):
        active = np.flatnonzero(binding[c])
        if len(active):
            # A limit that must bind, with all its cells at zero, needs its cells.
            empty = active[~(rows.members[active] @ positive[c] > 0)]
            positive[c] |= (rows.members[empty].any(axis=0)) & free[c]
        at = np.flatnonzero(positive[c])
        triangle, failed = lapack.dpotrf(distance.block(c, at).T, lower=1, overwrite_a=1)
        if failed:
            return None
        triangle, _ = lapack.dpotri(triangle, lower=1, overwrite_c=1)
        inverse = triangle + triangle.T
        inverse[np.diag_indices(len(at))] *= 0.5
        shift, toward = 0.0, None
        if len(active):
            members = rows.members[active][:, at]
            spread = inverse @ members.T
            toward = spread @ np.linalg.pinv(members @ spread, rcond=1e-11, hermitian=True)
            inverse -= toward @ spread.T
            bound = np.where(binding[c, active] > 0, rows.upper[active, c], rows.lower[active, c])
            shift = toward @ bound
        x[c, at] = inverse @ linear[c, at] + shift
        system[at[:, None], at] += inverse
        parts.append((at, inverse, toward, active))
    price = np.zeros(m)
    if parent is not None:
        excess = x.sum(axis=0) - parent
        # Where limits fix every child's total the prices have a level that does not matter.
        system[np.diag_indices(m)] += 1e-12 * np.trace(system) / m + (system.diagonal() == 0)
        _, price, failed = lapack.dposv(system, excess)
        if failed:
            return None
    for c, (at, inverse, toward, active) in enumerate(parts):
        x[c, at] -= inverse @ price[at]
        if toward is not None:
            left = linear[c, at] - price[at] - distance.block(c, at) @ x[c, at]
            multipliers[c, active] = toward.T @ left
    return x, price, multipliers
