"""Least budget whose linear variances meet the targets: a convex problem in the precision of each measurement.

The variances are those of a typical geounit (:mod:`das.estimation.linear.typical`): traces of F' M(w)^-1 F, with M
linear in the precisions w. Blocks whose matrices commute are diagonalised, and their traces are sums of c / (a' w).
Under zCDP a precision costs rho in proportion. Under pure DP it costs its square root, which is concave: the cost is
linearised at the last solution and solved again, which lowers it every time and ends at a local optimum.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from das.errors import Problem, UsageError
from das.estimation.linear.basis import Floats
from das.estimation.linear.typical import Measured, Term
from das.plan.plan import Plan

__all__ = ["LEAST", "Solution", "costs_of", "exact_shares", "least_precisions", "weights_of"]

LEAST = Fraction(1, 2000)
"""Least share of a measurement: estimation needs something of each level, and what no target asks for gets this."""

DENOMINATOR = 10_000
_STEPS = 8
_COMMUTES = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """Precisions of least cost, and for each target its price: how much cost its last percent of variance causes."""

    weights: Mapping[Measured, float]
    prices: tuple[float, ...]


def weights_of(plan: Plan) -> dict[Measured, float]:
    """Precision of each measurement of a plan."""
    return {(m.level, m.query.name): 1.0 / m.mechanism.variance() for m in plan.measurements}


def costs_of(plan: Plan, weights: Mapping[Measured, float]) -> dict[Measured, float]:
    """Budget that each precision costs, as if noise were continuous.

    zCDP: rho = w D_2^2 / 2. Pure DP: the variance is 2 (D_1 / epsilon)^2, so epsilon = D_1 sqrt(2 w).
    """
    found = {}
    for m in plan.measurements:
        name = m.level, m.query.name
        change = m.query.sensitivity(plan.settings.privacy.neighbours, units=2)
        if plan.framework == "zcdp":
            found[name] = weights[name] * change.l2_squared / 2
        else:
            found[name] = change.l1 * math.sqrt(2 * weights[name])
    return found


def least_precisions(
    plan: Plan, terms: Sequence[Sequence[Term]], allowed: Sequence[float], idle: frozenset[Measured] = frozenset()
) -> Solution:
    """Find the precisions of least cost for which each target's variance is at most what is allowed.

    Parameters
    ----------
    plan : Plan
        Which measurements there are, and what they cost.
    terms : sequence
        For each target the terms of its mean variance.
    allowed : sequence of float
        For each target its largest variance.
    idle : frozenset
        Measurements that need no budget.
    """
    names = [(m.level, m.query.name) for m in plan.measurements if (m.level, m.query.name) not in idle]
    start = _scaled({name: w for name, w in weights_of(plan).items() if name in set(names)}, terms, allowed)
    unit = max(start.values())
    # Without a floor a precision may be zero where no target needs it, and a linearised cost would be without bound.
    least = 1e-6
    current = start
    prices: tuple[float, ...] = ()
    for _ in range(_STEPS if plan.framework == "pure" else 1):
        cost = _slopes(plan, names, current)
        found, prices = _solve(names, cost, terms, allowed, unit, least)
        before, current = current, _scaled(found, terms, allowed)
        change = max(abs(math.log(current[name] / before[name])) for name in names)
        if change < 1e-3:
            break
    return Solution(weights=current | dict.fromkeys(idle, 0.0), prices=prices)


def _slopes(plan: Plan, names: Sequence[Measured], weights: Mapping[Measured, float]) -> Floats:
    """Cost of one more unit of each precision."""
    whole = {(m.level, m.query.name): weights.get((m.level, m.query.name), 1.0) for m in plan.measurements}
    costs = costs_of(plan, whole)
    power = 1.0 if plan.framework == "zcdp" else 0.5
    return np.array([power * costs[name] / whole[name] for name in names])


def _scaled(
    weights: Mapping[Measured, float], terms: Sequence[Sequence[Term]], allowed: Sequence[float]
) -> dict[Measured, float]:
    """Multiply all precisions until the targets just hold: variances are inverse to them."""
    factors = [sum(t.value(weights)[0] for t in each) / most for each, most in zip(terms, allowed, strict=True)]
    return {name: weight * max(factors) for name, weight in weights.items()}


def _solve(
    names: Sequence[Measured],
    cost: Floats,
    terms: Sequence[Sequence[Term]],
    allowed: Sequence[float],
    unit: float,
    least: float,
) -> tuple[dict[Measured, float], tuple[float, ...]]:
    """Solve one convex problem with cvxpy; precisions are in units of ``unit``."""
    import cvxpy as cp

    x: Any = cp.Variable(len(names))
    limits: list[Any] = []
    for each, most in zip(terms, allowed, strict=True):
        variance: Any = 0.0
        for term in each:
            grams = [term.grams.get(name, np.zeros((len(term.factor),) * 2)) for name in names]
            variance = variance + _trace(cp, term.factor / math.sqrt(most * unit), grams, x)
        limits.append(variance <= 1)
    scale = float(cost.max())
    problem: Any = cp.Problem(cp.Minimize((cost / scale) @ x), [x >= least, *limits])
    with warnings.catch_warnings():
        # A solution that is not quite accurate is scaled until it meets the targets, and its values say how good it is.
        warnings.simplefilter("ignore", UserWarning)
        problem.solve(solver=cp.CLARABEL)
    if x.value is None:
        raise UsageError(Problem("targets", f"no shares were found ({problem.status})", "state fewer targets"))
    weights = {name: unit * max(float(value), least) for name, value in zip(names, x.value, strict=True)}
    return weights, tuple(max(0.0, float(limit.dual_value)) for limit in limits)


def _trace(cp: Any, factor: Floats, grams: Sequence[Floats], x: Any) -> Any:
    """Write the trace of F' (sum of x_i A_i)^-1 F for cvxpy."""
    rng = np.random.Generator(np.random.PCG64(1))
    mixed = sum(rng.uniform(1, 2) * gram / max(float(np.trace(gram)), 1e-300) for gram in grams if gram.any())
    _, vectors = np.linalg.eigh(mixed)
    turned = [vectors.T @ gram @ vectors for gram in grams]
    apart = all(
        np.abs(each - np.diag(np.diag(each))).max(initial=0.0) <= _COMMUTES * max(np.abs(each).max(initial=0.0), 1e-300)
        for each in turned
    )
    if apart:
        rows = np.array([np.diag(each) for each in turned]).T  # dimensions x measurements
        weight = ((vectors.T @ factor) ** 2).sum(axis=1)
        kept = weight > 1e-12 * weight.sum()
        size = rows[kept].max(axis=1)  # so that each reciprocal is about as large as its weight
        return (weight[kept] / size) @ cp.inv_pos((rows[kept] / size[:, None]) @ x)
    return cp.matrix_frac(factor, sum(x[i] * gram for i, gram in enumerate(grams) if gram.any()))


def exact_shares(
    plan: Plan, weights: Mapping[Measured, float]
) -> tuple[dict[str, Fraction], dict[str, dict[str, Fraction]]]:
    """Round shares of the budget to exact fractions: of the levels and, inside each, of its queries.

    What costs nothing is left out; anything else gets at least :data:`LEAST` of its level, and each level of the whole.
    """
    costs = {name: cost for name, cost in costs_of(plan, weights).items() if weights[name] > 0}
    whole = {level: sum(cost for (at, _), cost in costs.items() if at == level) for level in plan.levels}
    queries = {level: _rounded({q: cost for (at, q), cost in costs.items() if at == level}) for level in plan.levels}
    return _rounded(whole), queries


def _rounded(parts: Mapping[str, float]) -> dict[str, Fraction]:
    """Fractions of one denominator that sum to one, by largest remainders.

    Examples
    --------
    >>> {name: str(share) for name, share in _rounded({"a": 2.0, "b": 1.0, "c": 0.0}).items()}
    {'a': '3331/5000', 'b': '3333/10000', 'c': '1/2000'}
    """
    whole, least = sum(parts.values()), int(LEAST * DENOMINATOR)
    wanted = {name: max(DENOMINATOR * part / whole, least) for name, part in parts.items()}
    over = sum(wanted.values()) - DENOMINATOR
    largest = max(wanted, key=lambda name: wanted[name])
    wanted[largest] -= over
    counts = {name: math.floor(part) for name, part in wanted.items()}
    for name in sorted(parts, key=lambda name: counts[name] - wanted[name])[: DENOMINATOR - sum(counts.values())]:
        counts[name] += 1
    return {name: Fraction(count, DENOMINATOR) for name, count in counts.items()}
