"""Certificate of a solution: a lower bound on the objective over all feasible tables, and the relative gap to it.

The bound is Fenchel's dual with a strongly convex part (Rockafellar 1970, *Convex Analysis*, section 31). Let f be the
objective, g half its gradient at x, and mu >= 0 such that f's Hessian is at least 2 mu times the identity. Then, for
every table y,

    f(y) >= f(x) + 2 g.(y - x) + mu |y - x|^2.

Let L <= B y <= U be the limits and l their multipliers: positive ones belong to U, negative ones to L. A table that
keeps the limits has l.(B y - b) <= 0, with b = U where l > 0 and b = L where l < 0. With p the multipliers of the
parent's counts, and r = g + B'l + p,

    f(y) >= f(x) + 2 l.(B x - b) + 2 p.(sum of x - parent) + sum over cells of min over y >= 0 of
            [2 r (y - x) + mu (y - x)^2].

This holds for every x, l and p; at the optimum and its multipliers it is an equality. So l may come from any solver
once the signs that no limit allows are set to zero, and p is chosen here: the best one is that of a projection onto a
simplex in each cell.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from das.estimation.grouping import group_cells
from das.estimation.problem import FamilyProblem
from das.estimation.support import SupportLimits
from das.estimation.verify import half_gradient, objective
from das.schema.limits import NO_LIMIT

__all__ = ["lower_bound", "relative_gap"]

Floats = NDArray[np.float64]


def relative_gap(value: float, bound: float) -> float:
    """Distance of an objective from its lower bound, as a share of the objective or of 1 if that is more.

    Examples
    --------
    >>> relative_gap(50.0, 49.0), relative_gap(0.5, 0.25), relative_gap(3.0, 3.0 + 1e-15)
    (0.02, 0.25, 0.0)
    """
    return max(0.0, (value - bound) / max(value, 1.0))


def lower_bound(
    problem: FamilyProblem,
    known: tuple[SupportLimits, ...],
    free: NDArray[np.bool_],
    x: Floats,
    multipliers: tuple[Floats, ...],
) -> float:
    """Return a number that the objective does not go below at any table that keeps the limits.

    Parameters
    ----------
    problem, known, free
        The family, its limits on the support, and the cells of each child that may be positive.
    x : array, children x cells
        Point at which the objective is linearised; the nearer to the optimum, the better the bound.
    multipliers : tuple of arrays, children x groups
        Half the Lagrange multipliers of each of the limits: positive for upper limits, negative for lower ones.

    Examples
    --------
    >>> from das.estimation.problem import Measured
    >>> from das.schema.query import parse_query
    >>> from das.schema.schema import Attribute, Schema
    >>> schema = Schema((Attribute("sex", ("f", "m")),))
    >>> noisy = Measured(query=parse_query(schema, "detailed"), values=np.array([[5, -3], [2, 6]]), variance=1.0)
    >>> family = FamilyProblem(level="tract", geocodes=("1", "2"), cells=np.arange(2), parent=np.array([5, 4]),
    ...                        measured=(noisy,), limits=())
    >>> best, free = np.array([[4.0, 0.0], [1.0, 4.0]]), np.full((2, 2), True)
    >>> objective(family, best), lower_bound(family, (), free, best, ())
    (15.0, 15.0)
    """
    value, modulus = objective(problem, x), _modulus(problem)
    reduced, bound = half_gradient(problem, x), value
    for facts, multiplier in zip(known, multipliers, strict=True):
        dual = np.where(facts.upper < NO_LIMIT, multiplier, np.minimum(multiplier, 0.0))
        limit = np.where(dual > 0.0, facts.upper, facts.lower)
        bound += 2.0 * float((dual * (facts.grouping.sums(x) - limit)).sum())
        reduced = reduced + dual[:, facts.grouping.index]
    if problem.parent is not None:
        dual = _parent_multipliers(x, reduced, modulus, free, problem.parent)
        bound += 2.0 * float((dual * (x.sum(axis=0) - problem.parent)).sum())
        reduced = reduced + dual
    if modulus > 0.0:
        step = np.where(free, np.maximum(x - reduced / modulus, 0.0), 0.0) - x
        return bound + float((step * (2.0 * reduced + modulus * step)).sum())
    bound -= 2.0 * float((reduced * x).sum())
    if problem.parent is None:
        bound = min(value, bound - _largest_decrease(problem, np.where(free, reduced, 0.0), value))
    # Without a modulus the objective is a sum of squares of measurements.
    return max(bound, 0.0) if problem.correlated is None else bound


def _modulus(problem: FamilyProblem) -> float:
    """Largest number known such that the Hessian is at least twice it: the precision of queries that see each cell."""
    if problem.correlated is not None:
        return problem.correlated.modulus
    cells = len(problem.cells)
    return sum(1.0 / m.variance for m in problem.measured if group_cells(m.query, problem.cells).size == cells)


def _parent_multipliers(
    x: Floats, reduced: Floats, modulus: float, free: NDArray[np.bool_], parent: NDArray[np.int64]
) -> Floats:
    """Multipliers of the parent's counts that make the bound largest, one for each cell.

    With a modulus they are those of the projection of x - reduced / modulus onto a simplex (Held, Wolfe and Crowder
    1974); without one, the smallest half gradient of the cell becomes zero. A cell that no child may fill has none.
    """
    inhabited = free.any(axis=0)
    if modulus <= 0.0:
        return np.where(inhabited, -np.where(free, reduced, np.inf).min(axis=0, initial=np.inf, where=free), 0.0)
    point = np.where(free, x - reduced / modulus, -np.inf)
    ordered = -np.sort(-point, axis=0)
    level = (np.cumsum(ordered, axis=0) - parent) / np.arange(1, len(x) + 1)[:, None]
    return np.where(inhabited, modulus * level.max(axis=0, initial=-np.inf, where=np.isfinite(level)), 0.0)


def _largest_decrease(problem: FamilyProblem, reduced: Floats, value: float) -> float:
    """Most by which 2 r.y can fall below zero at tables y that are no worse than a value.

    Such a table answers each query to within the square root of variance times value; so its sums have upper limits,
    and each query gives a bound of its own. Without a measurement there is none.
    """
    if not problem.measured or problem.correlated is not None:
        return np.inf if (reduced < 0.0).any() else 0.0
    decreases = []
    for measured in problem.measured:
        grouping = group_cells(measured.query, problem.cells)
        most = np.maximum(measured.values[:, grouping.answers] + np.sqrt(measured.variance * value), 0.0)
        descent = np.zeros(most.shape)
        np.maximum.at(descent.T, grouping.index, -reduced.T)
        decreases.append(2.0 * float((descent * most).sum()))
    return min(decreases)
