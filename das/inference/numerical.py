"""Derivatives by central differences, for models that give none; and small problems on one thread."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

__all__ = ["derivatives", "gradients", "one_thread"]

Array = NDArray[np.float64]


@lru_cache(maxsize=1)
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[object]:
    """Keep numerical libraries to one thread: those of a pool wait for each other on matrices of four rows.

    On two busy cores the maximum of a regression's likelihood took ten times the CPU time otherwise.
    """
    held: AbstractContextManager[object] = _libraries().limit(limits=1)
    return held


def _steps(at: Array, power: float) -> Array:
    """One step for each parameter, as a row of a diagonal matrix."""
    return np.diag(np.finfo(np.float64).eps ** power * np.maximum(1.0, np.abs(at)))


def gradients(function: Callable[[Array], Array], at: Array) -> Array:
    """Return the derivative by each parameter of a function with values (n,): an array (n, parameters).

    Examples
    --------
    >>> gradients(lambda t: np.array([t[0] ** 2, t[0] * t[1]]), np.array([3.0, 2.0])).round(6).tolist()
    [[6.0, 0.0], [2.0, 3.0]]
    """
    columns = [(function(at + step) - function(at - step)) / (2 * step.sum()) for step in _steps(at, 1 / 3)]
    return np.stack(columns, axis=-1)


def derivatives(function: Callable[[Array], float], at: Array) -> Array:
    """Return the matrix of second derivatives.

    Examples
    --------
    >>> derivatives(lambda t: t[0] ** 2 * t[1], np.array([3.0, 2.0])).round(4).tolist()
    [[4.0, 6.0], [6.0, 0.0]]
    """
    steps = _steps(at, 1 / 4)
    found = np.empty((len(at), len(at)))
    for i, a in enumerate(steps):
        for j, b in enumerate(steps[: i + 1]):
            corners = function(at + a + b) - function(at + a - b) - function(at - a + b) + function(at - a - b)
            found[i, j] = found[j, i] = corners / (4 * a.sum() * b.sum())
    return found
