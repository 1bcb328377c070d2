"""Statistics of a part of the data: built-in ones that take many weightings at once, and a function of one's own.

A statistic is a function of rows (an array, rows x columns) and weights, which are not negative and of which a part may
be zero. A batched one takes weights of the shape (weightings, rows) and returns one line for each weighting.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from das.errors import Problem, UsageError
from geography.problem_list import nearest

__all__ = ["BUILT_IN", "Statistic", "as_statistic", "mean", "median", "named_statistic", "ols", "proportion"]

Reals = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Statistic:
    """A function of rows and weights, and how it is called.

    Parameters
    ----------
    function : callable
        ``function(rows, weights)``, or ``function(rows)`` if it takes no weights.
    name : str
        Its public name, in messages and in the ledger.
    batched : bool
        Whether it takes weights of the shape (weightings, rows).
    weighted : bool
        Whether it takes weights at all; without them there are no bootstraps.
    columns : pair
        The least and the largest number of columns, or None.
    numbers : int, optional
        How many numbers it returns, where that is known beforehand.

    Examples
    --------
    >>> rows = np.array([[1.0], [2.0], [6.0]])
    >>> mean(rows, np.array([[1.0, 1.0, 1.0], [4.0, 0.0, 0.0]])).tolist()
    [3.0, 1.0]
    """

    function: Callable[..., Any]
    name: str
    batched: bool = False
    weighted: bool = True
    columns: tuple[int, int | None] = (1, None)
    numbers: int | None = None

    def check_bounds(self, count: int) -> None:
        """Refuse another number of bounds than there are numbers to bound."""
        if self.numbers is not None and count != self.numbers:
            reason = f"{count} pairs are given, and {self.name!r} has {self.numbers} number{'s' * (self.numbers > 1)}"
            raise UsageError(Problem("bounds", reason, "give one pair for each number; nothing was spent"))

    def check_columns(self, count: int) -> None:
        """Refuse a number of columns that the statistic does not take."""
        least, most = self.columns
        if count < least or (most is not None and count > most):
            needs = f"{least} column{'s' * (least > 1)}" if least == most else f"at least {least} columns"
            where, reason = f"statistic {self.name!r}", f"takes {needs}, not {count}"
            raise UsageError(Problem(where, reason, "name as many"))

    def values(self, rows: Reals, weights: Reals | None) -> Reals:
        """Return one line of estimates for each weighting, or one line if there are no weights."""
        if weights is None or not self.weighted:
            ones = np.ones((1, len(rows)))
            found = self.function(rows, ones if self.batched else ones[0]) if self.weighted else self.function(rows)
            return np.asarray(found, dtype=np.float64).reshape(1, -1)
        if self.batched:
            found = self.function(rows, weights)
        else:
            found = [np.asarray(self.function(rows, each), dtype=np.float64).reshape(-1) for each in weights]
        return np.asarray(found, dtype=np.float64).reshape(len(weights), -1)


def mean(rows: Reals, weights: Reals) -> Reals:
    """Return the weighted mean of the first column."""
    return np.asarray(weights @ rows[:, 0] / weights.sum(axis=-1))


def proportion(rows: Reals, weights: Reals) -> Reals:
    """Return the weighted share of rows whose first column is not zero.

    Examples
    --------
    >>> proportion(np.array([[0.0], [1.0], [1.0], [3.0]]), np.ones((1, 4))).tolist()
    [0.75]
    """
    return np.asarray(weights @ (rows[:, 0] != 0).astype(np.float64) / weights.sum(axis=-1))


def median(rows: Reals, weights: Reals) -> Reals:
    """Return the weighted median of the first column: the middle of the interval of medians, if there is more than one.

    Examples
    --------
    >>> median(np.array([[4.0], [1.0], [3.0]]), np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])).tolist()
    [3.0, 2.5]
    """
    order = np.argsort(rows[:, 0], kind="stable")
    values = rows[order, 0]
    below = np.cumsum(weights[..., order], axis=-1)
    half = below[..., -1:] / 2
    first = np.argmax(below >= half, axis=-1)
    last = np.argmax(below > half, axis=-1)
    return np.asarray((values[first] + values[last]) / 2)


def ols(rows: Reals, weights: Reals) -> Reals:
    """Return the weighted least-squares coefficient of the second column, of the first on the others with an intercept.

    Examples
    --------
    >>> x = np.arange(5.0)
    >>> ols(np.column_stack([2 + 3 * x, x]), np.ones((1, 5))).round(9).tolist()
    [3.0]
    """
    y = rows[:, 0]
    design = np.column_stack([rows[:, 1:], np.ones(len(rows))])
    products = (design[:, :, None] * design[:, None, :]).reshape(len(rows), -1)
    size = design.shape[1]
    gram = (weights @ products).reshape(*weights.shape[:-1], size, size)
    moment = (weights * y) @ design
    return np.asarray(np.linalg.solve(gram, moment[..., None])[..., 0, 0])


BUILT_IN = {
    "mean": Statistic(mean, "mean", batched=True, columns=(1, 1), numbers=1),
    "median": Statistic(median, "median", batched=True, columns=(1, 1), numbers=1),
    "proportion": Statistic(proportion, "proportion", batched=True, columns=(1, 1), numbers=1),
    "ols": Statistic(ols, "ols", batched=True, columns=(2, None), numbers=1),
}
"""What the commands know by name; `ols` takes the response first, then the regressor that is asked about."""


def named_statistic(name: str) -> Statistic:
    """Return a built-in statistic, or the function that ``module:function`` names; the module may lie in this folder.

    Examples
    --------
    >>> named_statistic("meen")
    Traceback (most recent call last):
    das.errors.UsageError: statistic 'meen': is not known; did you mean 'mean'? or write module:function
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    where = f"statistic {name!r}"
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise UsageError(Problem(where, "is not known", f"{nearest(name, BUILT_IN)} or write module:function"))
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        function = getattr(import_module(module), attribute)
    except Exception as error:  # whatever a user's module raises
        reason = f"cannot be imported ({type(error).__name__})"
        raise UsageError(Problem(where, reason, "check the names, and that the module can be imported here")) from None
    if not callable(function):
        raise UsageError(Problem(where, "is not a function", "name a function of (rows, weights)"))
    return as_statistic(function, name)


def as_statistic(function: Statistic | Callable[..., Any], name: str = "") -> Statistic:
    """Return a function as a Statistic. It takes weights if it has two positional parameters.

    An attribute ``batched`` says that it takes many weightings at once.

    Examples
    --------
    >>> as_statistic(lambda rows: rows.max(), "largest").weighted
    False
    """
    if isinstance(function, Statistic):
        return function
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    try:
        weighted = sum(each.kind in kinds for each in signature(function).parameters.values()) >= 2
    except (ValueError, TypeError):  # some functions in C do not say
        weighted = False
    name = name or f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', type(function).__name__)}"
    return Statistic(function, name, batched=bool(getattr(function, "batched", False)), weighted=weighted)
