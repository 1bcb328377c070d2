"""One step of a large family that keeps its coarse groups exactly: prices on them, found by Newton's method.

Given prices the best table is found cell by cell. What prices are worth is a concave function of them whose slope is
piecewise linear: Newton's method on the piece at hand (semismooth, Qi and Sun 1993) ends in a few steps, each of which
is kept only if the worth grows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from das.estimation.solvers.first_order.groups import Groups, Large
from das.estimation.solvers.first_order.kernels import Floats, dual_hessian

__all__ = ["held"]

_NEWTON, _HALVINGS = 40, 16
_CANDIDATES = 20_000


def held(family: Large, point: Floats, steep: Floats, prices: Floats, allowed: float) -> tuple[Floats, Floats]:
    """Find the table nearest to a point as :func:`_priced` does, looking only at cells that may be positive.

    Without a parent most cells end at zero: those that are far below it at the present prices are left out, and taken
    in again if the new prices lift them.
    """
    if len(family.parent) or not len(family.coarse.weight):
        return _priced(family, point, steep, prices, allowed)
    hope = point - family.coarse.spread(prices) / steep
    count = max(_CANDIDATES, 4 * int((hope > 0.0).sum()))
    while count < hope.size:
        cells = np.sort(np.argpartition(-hope[0], count)[:count])
        _, prices = _priced(family.of_cells(cells), point[:, cells], steep[cells], prices, allowed)
        hope = point - family.coarse.spread(prices) / steep
        x = family.nearest(hope)
        if np.count_nonzero(x) == np.count_nonzero(x[:, cells]):
            return x, prices
        count *= 2
    return _priced(family, point, steep, prices, allowed)


def _priced(family: Large, point: Floats, steep: Floats, prices: Floats, allowed: float) -> tuple[Floats, Floats]:
    """Find the table nearest to a point in the metric ``steep``, the misfit of the coarse groups being added exactly.

    With prices p on the groups it is the nearest table to point - p spread / steep. The prices are right where each
    measured sum s is off by what its price pays for, s - y = p / weight, and each limit's sum is inside, or at an end
    that its price pushes from. Newton's steps, halved until the dual value grows.
    """
    coarse = family.coarse
    if not len(coarse.weight):
        return family.nearest(point), prices
    slack = np.where(coarse.limit, 0.0, 1.0 / coarse.weight)
    interval = coarse.low < coarse.high
    matrix = np.empty((prices.size, prices.size))

    def at(these: Floats) -> _Priced:
        x = family.nearest(point - coarse.spread(these) / steep)
        sums = coarse.sums(x)
        return _Priced(these, x, sums, _worth(coarse, x, point, steep, these, sums, slack))

    here = at(prices)
    for _ in range(_NEWTON):
        wanted = np.clip(here.sums + here.prices / coarse.weight, coarse.low, coarse.high)
        wanted = np.where(coarse.limit, wanted, coarse.low)
        idle = coarse.limit & (coarse.low < wanted) & (wanted < coarse.high)  # a price that pushes from nowhere
        off = np.where(idle, -here.prices / coarse.weight, here.sums - wanted - here.prices * slack)
        if float(np.abs(off).max(initial=0.0)) <= allowed / 100.0:
            break
        # A price pushes down from the upper end or up from the lower one, and does not pass through zero.
        end = np.where(here.prices > 0.0, coarse.high, np.where(here.prices < 0.0, coarse.low, wanted))
        half_gradient = here.sums - end - here.prices * slack
        most = np.where(interval & (end < coarse.high), 0.0, np.inf)
        least = np.where(interval & (end > coarse.low), 0.0, -np.inf)
        dual_hessian(here.x, coarse.index, steep, len(family.parent) > 0, matrix)
        bare = matrix.diagonal()
        # A group in which nobody is yet answers as if one cell were about to be positive.
        diagonal = bare + np.broadcast_to(slack, prices.shape).reshape(-1)
        diagonal = diagonal + np.where(bare > 0.0, 1e-9 * float(bare.mean()), 1.0 / float(steep.max()))
        grown = None
        for step in _directions(matrix, diagonal, np.where(idle, -here.prices, off), idle, half_gradient):
            grown = _uphill(at, here, step, least, most)
            if grown is not None:
                break
        if grown is None:
            break
        here = grown
    return here.x, here.prices


@dataclass(frozen=True, slots=True)
class _Priced:
    """Prices, the best table at them, its coarse sums, and what the prices are worth."""

    prices: Floats
    x: Floats
    sums: Floats
    value: float


def _directions(
    matrix: Floats, diagonal: Floats, off: Floats, idle: NDArray[np.bool_], half_gradient: Floats
) -> Iterator[Floats]:
    """Yield Newton's step, idle prices going to zero; and should it lead nowhere, one along the slope."""
    busy = np.flatnonzero(~idle.reshape(-1))
    part = matrix[np.ix_(busy, busy)]
    part[np.diag_indices(len(busy))] = diagonal[busy]
    step = off.reshape(-1).copy()
    _, step[busy], failed = lapack.dposv(part, step[busy])
    if not failed:
        yield step.reshape(off.shape)
    yield half_gradient / diagonal.reshape(off.shape)


def _uphill(
    at: Callable[[Floats], _Priced], here: _Priced, step: Floats, least: Floats, most: Floats
) -> _Priced | None:
    """Follow a step, halved until the prices are worth more than before; ``None`` if they never are."""
    for _ in range(_HALVINGS):
        there = at(np.clip(here.prices + step, least, most))
        if there.value > here.value + 1e-14 * abs(here.value):
            return there
        step = step / 2.0
    return None


def _worth(
    coarse: Groups, x: Floats, point: Floats, steep: Floats, prices: Floats, sums: Floats, slack: Floats
) -> float:
    """Value of prices: what the best table costs with them, less what they pay for."""
    apart = x - point
    end = np.where(prices > 0.0, coarse.high, coarse.low)
    paid = prices * (sums - end) - 0.5 * slack * prices**2
    return 0.5 * float((steep * apart * apart).sum()) + float(paid.sum())
