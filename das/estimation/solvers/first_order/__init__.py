"""Solver for families with too many cells for a matrix: accelerated gradient on group sums, without forming a Hessian.

    minimise  1/2 sum over queries q of |Q_q x - y_q|^2 / v_q   over tables x  with limits L <= B x <= U

Queries of two kinds are treated differently. *Fine* ones have many small groups: their Hessian has no negative entry,
so D minus it is positive semidefinite for D the diagonal of its row sums (Gershgorin 1931). D is the metric of the
proximal step, and a step of 1/D in each cell never overshoots. *Coarse* ones, limits among them, have few large groups,
and would make such steps tiny: so each step treats them exactly, by dual variables on their groups. Given the dual
variables the best table is found cell by cell, and a dual Newton method finds them (semismooth, Qi and Sun 1993); there
are as many as coarse groups.

Steps have Nesterov's momentum (Beck and Teboulle 2009), restarted when it leads uphill (O'Donoghue and Candes 2015).
Limits with too many groups for dual variables enter by an augmented Lagrangian (Rockafellar 1976).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from das.estimation.problem import FamilyProblem, Solution
from das.estimation.solvers.first_order.dual_newton import nearest_table
from das.estimation.solvers.first_order.groups import Large
from das.estimation.solvers.first_order.kernels import Floats
from das.estimation.solvers.reference import closed_form, solve
from das.estimation.support import SupportLimits, free_cells, limits_on_support
from das.estimation.verify import objective, residual, tolerance

__all__ = ["LARGE", "solve_first_order"]

LARGE = 3000
"""With more cells than this a dense Hessian is slow (72 MB); with a hundred times as many it is impossible."""
_STEPS = 4000
_LOOK = 6
"""Steps between two certificates after the first few: one costs about as much as a step."""
_UNSOLVED, _REFERENCE = 1e-3, 200_000
"""A gap above which the result is not accepted, and the largest table that the reference solves in reasonable time."""
_SCALINGS = 200


def solve_first_order(problem: FamilyProblem, gap: float = 1e-6) -> Solution:
    """Find the nonnegative least-squares solution of one family without forming a matrix of its cells.

    Without a measurement of every cell the objective is not strongly convex, and the cvxpy reference takes over; so it
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
    >>> solution = solve_first_order(family)
    >>> solution.solver, solution.x.round(4).tolist(), solution.gap <= 1e-6
    ('large', [[4.0, 0.0], [1.0, 4.0]], True)
    """
    known = limits_on_support(problem)
    free = free_cells(problem, known)
    closed = closed_form(problem, known, free)
    if closed is not None:
        return closed
    inhabited = np.asarray(free.any(axis=0))
    if not inhabited.all():  # cells that can only be empty are not variables
        parent = None if problem.parent is None else problem.parent[inhabited]
        reduced = solve_first_order(replace(problem, cells=problem.cells[inhabited], parent=parent), gap)
        x: NDArray[np.float64] = np.zeros(problem.shape)
        x[:, inhabited] = reduced.x
        return replace(reduced, x=x)
    # Without a parent, siblings are independent problems.
    count = len(problem.geocodes)
    independent = [slice(0, count)] if problem.parent is not None else [slice(c, c + 1) for c in range(count)]
    x = np.zeros(problem.shape)
    bound, steps = 0.0, 0
    for children in independent:
        large = Large.of(problem, known, free, children)
        if large.modulus <= 0.0:
            return solve(problem)
        x[children], lower, taken = _minimise(large, gap, tolerance(problem))
        bound, steps = bound + lower, steps + taken
    x = _scaled(problem, known, free, x)
    value, missed = objective(problem, x) / 2.0, residual(problem, known, x)
    relative = max(0.0, (value - bound) / max(value, 0.5))  # half of both: as a share of the objective or of 1
    if (relative > _UNSOLVED or missed > tolerance(problem)) and x.size <= _REFERENCE:
        return solve(problem)
    return Solution(x=x, solver="large", residual=missed, gap=relative, iterations=steps)


def _minimise(family: Large, gap: float, allowed: float) -> tuple[Floats, float, int]:
    """Return a table, a lower bound on half the objective of all tables, and the number of steps."""
    fine, coarse = family.fine, family.coarse
    metric = fine.metric()
    shift = np.zeros(fine.low.shape)  # multipliers of fine limits over their weights; zero for measurements
    dual = np.zeros(coarse.low.shape)
    x = family.nearest(np.zeros(family.free.shape))
    ahead, momentum, best, last = x, 1.0, -np.inf, np.inf
    for step in range(_STEPS):
        if step < 3 or step % _LOOK == 0:
            certificate = _certify(family, x, shift, dual)
            best = max(best, certificate.bound)
            if certificate.value - best <= gap * max(certificate.value, 0.5) and certificate.missed <= allowed:
                return x, best, step
            # Once the decrease that is left is small beside the limits' Lagrangian terms, their multipliers move.
            enough = max(abs(certificate.lagrangian) / 10.0, gap * max(certificate.value, 0.5) / 4.0)
            if fine.limit.any() and certificate.left <= enough:
                shift = np.where(fine.limit, fine.outside(fine.sums(x) + shift), 0.0)
                if certificate.missed > max(last / 4.0, allowed):  # the violation falls too slowly: a larger penalty
                    factor = np.where(fine.limit, 2.0, 1.0)
                    fine, shift = replace(fine, weight=fine.weight * factor), shift / factor
                    family, metric = replace(family, fine=fine), fine.metric()
                last, ahead, momentum = certificate.missed, x, 1.0
        half_gradient = fine.spread(fine.weight * fine.outside(fine.sums(ahead) + shift))
        following, dual = nearest_table(family, ahead - half_gradient / metric, metric, dual, allowed)
        move = following - x
        if float((metric * (ahead - following) * move).sum()) > 0.0:
            momentum = 1.0
        grown = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        ahead = following + ((momentum - 1.0) / grown) * move
        x, momentum = following, grown
    return x, best, _STEPS


@dataclass(frozen=True, slots=True)
class _Certificate:
    value: float  # of the table
    bound: float  # on all tables that keep the limits
    left: float  # decrease that is still possible at the present dual variables of limits
    lagrangian: float  # dual variables times violations of the limits
    missed: float  # largest violation of a limit, in persons


def _certify(family: Large, x: Floats, shift: Floats, dual: Floats) -> _Certificate:
    """Bound half the objective of every table from below, as :mod:`das.estimation.certificate` does.

    F(y) >= F(x) + F'(x).(y - x) + modulus/2 |y - x|^2, and dual variables p of limits add p.By - (p.U or p.L) <= 0 for
    every y that keeps them; the minimum of the right side over all tables is one projection (Rockafellar 1970,
    section 31).
    """
    value, lagrangian, missed = 0.0, 0.0, 0.0
    half_gradient = np.zeros_like(x)
    for groups, given in ((family.fine, None), (family.coarse, dual)):
        sums = groups.sums(x)
        residuals = groups.outside(sums)
        missed = max(missed, float(np.abs(residuals[:, groups.limit]).max(initial=0.0)))
        value += 0.5 * float((groups.weight * residuals * residuals)[:, ~groups.limit].sum())
        multiplier = groups.weight * groups.outside(sums + shift) if given is None else given
        multiplier = np.where(groups.limit, multiplier, 0.0)
        # Dual feasibility: without an upper limit a multiplier is not positive.
        multiplier = np.where(np.isfinite(groups.high), multiplier, np.minimum(multiplier, 0.0))
        lagrangian += float((multiplier * (sums - np.where(multiplier > 0.0, groups.high, groups.low))).sum())
        half_gradient += groups.spread(np.where(groups.limit, multiplier, groups.weight * residuals))
    step = family.nearest(x - half_gradient / family.modulus) - x
    left = -float((step * (half_gradient + 0.5 * family.modulus * step)).sum())
    return _Certificate(value, value + lagrangian - left, left, lagrangian, missed)


def _scaled(problem: FamilyProblem, known: tuple[SupportLimits, ...], free: NDArray[np.bool_], x: Floats) -> Floats:
    """Remove small violations by iterative proportional fitting (Deming and Stephan 1940); zeros stay."""
    x = np.where(free, np.maximum(x, 0.0), 0.0)
    for _ in range(_SCALINGS):
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
