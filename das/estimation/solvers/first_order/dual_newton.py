"""Dual Newton method for one proximal step of a large family, with its coarse groups treated exactly.

Given dual variables on the coarse groups the nearest table is found cell by cell. The dual value is a concave function
of them with a piecewise linear gradient: Newton's method on the current piece (semismooth, Qi and Sun 1993) ends in a
few steps, each of which is kept only if the dual value grows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from das.estimation.solvers.first_order.groups import Groups, Large
from das.estimation.solvers.first_order.kernels import Floats, dual_hessian

__all__ = ["nearest_table"]

_NEWTON, _HALVINGS = 40, 16
_CANDIDATES = 20_000


def nearest_table(family: Large, point: Floats, metric: Floats, dual: Floats, allowed: float) -> tuple[Floats, Floats]:
    """Find the nearest table to a point as :func:`_dual_newton` does, on the cells that may be positive.

    Without a parent most cells end at zero: those far below it at the present dual variables are left out, and taken in
    again if the new ones make them positive.
    """
    if len(family.parent) or not len(family.coarse.weight):
        return _dual_newton(family, point, metric, dual, allowed)
    trial = point - family.coarse.spread(dual) / metric
    count = max(_CANDIDATES, 4 * int((trial > 0.0).sum()))
    while count < trial.size:
        cells = np.sort(np.argpartition(-trial[0], count)[:count])
        _, dual = _dual_newton(family.of_cells(cells), point[:, cells], metric[cells], dual, allowed)
        trial = point - family.coarse.spread(dual) / metric
        x = family.nearest(trial)
        if np.count_nonzero(x) == np.count_nonzero(x[:, cells]):
            return x, dual
        count *= 2
    return _dual_newton(family, point, metric, dual, allowed)


def _dual_newton(family: Large, point: Floats, metric: Floats, dual: Floats, allowed: float) -> tuple[Floats, Floats]:
    """Minimise the squared distance to a point in a diagonal metric plus the coarse groups' terms, over tables.

    With dual variables p on the groups the minimiser is the nearest table to point - p spread / metric. At the optimum
    each measured sum s has s - y = p / weight, and each limited sum is inside its interval with p = 0, or at an end
    with p of that sign. Newton's steps are halved until the dual value grows.
    """
    coarse = family.coarse
    if not len(coarse.weight):
        return family.nearest(point), dual
    slack = np.where(coarse.limit, 0.0, 1.0 / coarse.weight)
    interval = coarse.low < coarse.high
    matrix = np.empty((dual.size, dual.size))

    def evaluate(trial: Floats) -> _DualPoint:
        x = family.nearest(point - coarse.spread(trial) / metric)
        sums = coarse.sums(x)
        return _DualPoint(trial, x, sums, _dual_value(coarse, x, point, metric, trial, sums, slack))

    current = evaluate(dual)
    for _ in range(_NEWTON):
        wanted = np.clip(current.sums + current.dual / coarse.weight, coarse.low, coarse.high)
        wanted = np.where(coarse.limit, wanted, coarse.low)
        idle = coarse.limit & (coarse.low < wanted) & (wanted < coarse.high)  # inside the interval: p = 0
        residual = np.where(idle, -current.dual / coarse.weight, current.sums - wanted - current.dual * slack)
        if float(np.abs(residual).max(initial=0.0)) <= allowed / 100.0:
            break
        # A dual variable belongs to the upper end or to the lower one, and does not pass through zero.
        end = np.where(current.dual > 0.0, coarse.high, np.where(current.dual < 0.0, coarse.low, wanted))
        gradient = current.sums - end - current.dual * slack
        most = np.where(interval & (end < coarse.high), 0.0, np.inf)
        least = np.where(interval & (end > coarse.low), 0.0, -np.inf)
        dual_hessian(current.x, coarse.index, metric, len(family.parent) > 0, matrix)
        bare = matrix.diagonal()
        # An empty group gets the derivative that it would have with one positive cell.
        diagonal = bare + np.broadcast_to(slack, dual.shape).reshape(-1)
        diagonal = diagonal + np.where(bare > 0.0, 1e-9 * float(bare.mean()), 1.0 / float(metric.max()))
        grown = None
        for step in _directions(matrix, diagonal, np.where(idle, -current.dual, residual), idle, gradient):
            grown = _uphill(evaluate, current, step, least, most)
            if grown is not None:
                break
        if grown is None:
            break
        current = grown
    return current.x, current.dual


@dataclass(frozen=True, slots=True)
class _DualPoint:
    """Dual variables, the minimising table at them, its coarse sums, and the dual value."""

    dual: Floats
    x: Floats
    sums: Floats
    value: float


def _directions(
    matrix: Floats, diagonal: Floats, residual: Floats, idle: NDArray[np.bool_], gradient: Floats
) -> Iterator[Floats]:
    """Yield Newton's step, with idle dual variables going to zero; then a scaled gradient step if that fails."""
    busy = np.flatnonzero(~idle.reshape(-1))
    block = matrix[np.ix_(busy, busy)]
    block[np.diag_indices(len(busy))] = diagonal[busy]
    step = residual.reshape(-1).copy()
    _, step[busy], failed = lapack.dposv(block, step[busy])
    if not failed:
        yield step.reshape(residual.shape)
    yield gradient / diagonal.reshape(residual.shape)


def _uphill(
    evaluate: Callable[[Floats], _DualPoint], current: _DualPoint, step: Floats, least: Floats, most: Floats
) -> _DualPoint | None:
    """Follow a step, halved until the dual value is larger than before; ``None`` if it never is."""
    for _ in range(_HALVINGS):
        trial = evaluate(np.clip(current.dual + step, least, most))
        if trial.value > current.value + 1e-14 * abs(current.value):
            return trial
        step = step / 2.0
    return None


def _dual_value(
    coarse: Groups, x: Floats, point: Floats, metric: Floats, dual: Floats, sums: Floats, slack: Floats
) -> float:
    """Dual value: the Lagrangian at its minimiser."""
    step = x - point
    end = np.where(dual > 0.0, coarse.high, coarse.low)
    terms = dual * (sums - end) - 0.5 * slack * dual**2
    return 0.5 * float((metric * step * step).sum()) + float(terms.sum())
