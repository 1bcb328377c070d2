"""A family with more cells than a matrix can hold: accelerated gradient on sums by group, no curvature being formed.

    minimise  1/2 sum over queries q of |Q_q x - y_q|^2 / v_q   over tables x  with limits L <= B x <= U

Queries of two kinds are treated differently. *Fine* ones have many small groups: their curvature has no negative entry,
so D minus it is positive semidefinite for D the diagonal of its row sums (Gershgorin 1931), and a step of 1/D in each
cell never overshoots. *Coarse* ones, limits among them, have few large groups, and would make such steps tiny: so each
step keeps them exactly, as prices on their groups. Given prices p the best table is found cell by cell; Newton's method
finds p (semismooth, Qi and Sun 1993), which is as many numbers as there are coarse groups.

Steps have Nesterov's momentum (Beck and Teboulle 2009), dropped when it leads uphill (O'Donoghue and Candes 2015).
Limits with too many groups for prices enter by an augmented Lagrangian (Rockafellar 1976).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from das.estimation.problem import FamilyProblem, Solution
from das.estimation.solvers.first_order.dual_newton import held
from das.estimation.solvers.first_order.groups import Large
from das.estimation.solvers.first_order.kernels import Floats
from das.estimation.solvers.reference import closed_form, solve
from das.estimation.support import SupportLimits, free_cells, limits_on_support
from das.estimation.verify import objective, residual, tolerance

__all__ = ["LARGE", "solve_first_order"]

LARGE = 3000
"""With more cells than this a dense curvature is slow (72 MB); with a hundred times as many it is impossible."""
_STEPS = 4000
_LOOK = 6
"""Steps between two certificates after the first few: one costs about as much as a step."""
_UNSOLVED, _REFERENCE = 1e-3, 200_000
"""A gap that is no solution, and how many counts the reference can still find in reasonable time and memory."""
_MENDINGS = 200


def solve_first_order(problem: FamilyProblem, gap: float = 1e-6) -> Solution:
    """Find the nonnegative least-squares solution of one family, no matrix of its cells being formed.

    Without a measurement of every cell nothing bounds the result from below, and the cvxpy reference takes over; so it
    does where this fails, if the family is not too large for it.

    Examples
    --------
    >>> from das.estimation.problem import Measured
    >>> from das.schema.schema import Attribute, Schema
    >>> from das.schema.query import parse_query
    >>> schema = Schema((Attribute("sex", ("f", "m")),))
    >>> noisy = Measured(query=parse_query(schema, "detailed"), values=np.array([[5, -3], [2, 6]]), variance=1.0)
    >>> family = FamilyProblem(level="tract", geocodes=("1", "2"), cells=np.arange(2), parent=np.array([5, 4]),
    ...                        measured=(noisy,), limits=())
    >>> found = solve_first_order(family)
    >>> found.solver, found.x.round(4).tolist(), found.gap <= 1e-6
    ('large', [[4.0, 0.0], [1.0, 4.0]], True)
    """
    known = limits_on_support(problem)
    free = free_cells(problem, known)
    closed = closed_form(problem, known, free)
    if closed is not None:
        return closed
    inhabited = np.asarray(free.any(axis=0))
    if not inhabited.all():  # what can only be empty is no variable
        parent = None if problem.parent is None else problem.parent[inhabited]
        found = solve_first_order(replace(problem, cells=problem.cells[inhabited], parent=parent), gap)
        x: NDArray[np.float64] = np.zeros(problem.shape)
        x[:, inhabited] = found.x
        return replace(found, x=x)
    # Nothing ties siblings without a parent to one another.
    count = len(problem.geocodes)
    each = [slice(0, count)] if problem.parent is not None else [slice(c, c + 1) for c in range(count)]
    x = np.zeros(problem.shape)
    bound, steps = 0.0, 0
    for children in each:
        part = Large.of(problem, known, free, children)
        if part.modulus <= 0.0:
            return solve(problem)
        x[children], lower, taken = _minimise(part, gap, tolerance(problem))
        bound, steps = bound + lower, steps + taken
    x = _mended(problem, known, free, x)
    value, missed = objective(problem, x) / 2.0, residual(problem, known, x)
    off = max(0.0, (value - bound) / max(value, 0.5))
    if (off > _UNSOLVED or missed > tolerance(problem)) and x.size <= _REFERENCE:
        return solve(problem)
    return Solution(x=x, solver="large", residual=missed, gap=off, iterations=steps)


def _minimise(family: Large, gap: float, allowed: float) -> tuple[Floats, float, int]:
    """Return a table, a number that no table is below, and the steps taken."""
    fine, coarse = family.fine, family.coarse
    steep = fine.steepness()
    shift = np.zeros(fine.low.shape)  # multipliers of fine limits over their weights; zero for measurements
    prices = np.zeros(coarse.low.shape)
    x = family.nearest(np.zeros(family.free.shape))
    ahead, momentum, best, last = x, 1.0, -np.inf, np.inf
    for step in range(_STEPS):
        if step < 3 or step % _LOOK == 0:
            found = _certify(family, x, shift, prices)
            best = max(best, found.bound)
            if found.value - best <= gap * max(found.value, 0.5) and found.missed <= allowed:
                return x, best, step
            # Once what is left to gain is small beside what is owed to the limits, their multipliers move.
            if fine.limit.any() and found.left <= max(abs(found.owed) / 10.0, gap * max(found.value, 0.5) / 4.0):
                shift = np.where(fine.limit, fine.outside(fine.sums(x) + shift), 0.0)
                if found.missed > max(last / 4.0, allowed):  # limits resist: hold them more firmly
                    firmer = np.where(fine.limit, 2.0, 1.0)
                    fine, shift = replace(fine, weight=fine.weight * firmer), shift / firmer
                    family, steep = replace(family, fine=fine), fine.steepness()
                last, ahead, momentum = found.missed, x, 1.0
        half_gradient = fine.spread(fine.weight * fine.outside(fine.sums(ahead) + shift))
        following, prices = held(family, ahead - half_gradient / steep, steep, prices, allowed)
        move = following - x
        if float((steep * (ahead - following) * move).sum()) > 0.0:
            momentum = 1.0
        grown = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        ahead = following + ((momentum - 1.0) / grown) * move
        x, momentum = following, grown
    return x, best, _STEPS


@dataclass(frozen=True, slots=True)
class _Certificate:
    value: float  # of the table
    bound: float  # no table that keeps the limits is below
    left: float  # what could be gained at the present prices of limits
    owed: float  # what these prices pay for beyond what the limits allow
    missed: float  # persons by which a limit is missed at most


def _certify(family: Large, x: Floats, shift: Floats, prices: Floats) -> _Certificate:
    """Bound the value of every table from below.

    F(y) >= F(x) + F'(x).(y - x) + modulus/2 |y - x|^2, and prices p of limits add p.By - (p.U or p.L) <= 0 for every y
    that keeps them; the least of the right side over all tables is one projection (Rockafellar 1970, section 31).
    """
    value, owed, missed = 0.0, 0.0, 0.0
    half_gradient = np.zeros_like(x)
    for groups, limit_prices in ((family.fine, None), (family.coarse, prices)):
        sums = groups.sums(x)
        misfit = groups.outside(sums)
        missed = max(missed, float(np.abs(misfit[:, groups.limit]).max(initial=0.0)))
        value += 0.5 * float((groups.weight * misfit * misfit)[:, ~groups.limit].sum())
        price = groups.weight * groups.outside(sums + shift) if limit_prices is None else limit_prices
        price = np.where(groups.limit, price, 0.0)
        # A price may only push from an end that there is.
        price = np.where(np.isfinite(groups.high), price, np.minimum(price, 0.0))
        owed += float((price * (sums - np.where(price > 0.0, groups.high, groups.low))).sum())
        half_gradient += groups.spread(np.where(groups.limit, price, groups.weight * misfit))
    step = family.nearest(x - half_gradient / family.modulus) - x
    left = -float((step * (half_gradient + 0.5 * family.modulus * step)).sum())
    return _Certificate(value, value + owed - left, left, owed, missed)


def _mended(problem: FamilyProblem, known: tuple[SupportLimits, ...], free: NDArray[np.bool_], x: Floats) -> Floats:
    """Make what holds nearly hold to rounding, by scaling sums in turn (Deming and Stephan 1940); zeros stay."""
    x = np.where(free, np.maximum(x, 0.0), 0.0)
    for _ in range(_MENDINGS):
        if residual(problem, known, x) <= tolerance(problem) / 2.0:
            break
        for facts in known:
            sums = facts.grouping.sums(x)
            wanted = np.clip(sums, facts.lower, facts.upper)
            factor = np.divide(wanted, sums, out=np.ones_like(sums), where=sums > 0.0)
            if (factor != 1.0).any():
                x *= factor[:, facts.grouping.index]
        if problem.parent is not None:
            total = x.sum(axis=0)
            x *= np.divide(problem.parent, total, out=np.ones_like(total), where=total > 0.0)
    return x
