"""Checks of public options that the methods for confidential data share, and what describes a release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from fractions import Fraction
from math import inf
from typing import Any

from scipy.special import ndtri, stdtrit

from das.errors import ConfigError, Problem
from das.inference.confidential.grid import Grid
from das.inference.confidential.parts import PartOptions
from das.inference.confidential.row_statistics import Statistic

__all__ = ["checked_share", "critical_value", "described", "refuse_too_small"]


def described(method: str, statistic: Statistic, grids: Sequence[Grid], options: PartOptions) -> dict[str, Any]:
    """Return everything public about a release, for its digest."""
    public = {name: value for name, value in asdict(options).items() if name != "workers"}
    bounds = [[str(grid.lower), str(grid.upper), grid.bits] for grid in grids]
    return {"method": method, "statistic": statistic.name, "bounds": bounds, "options": public}


def checked_share(name: str, share: Fraction, *, above_zero: bool = False) -> Fraction:
    """Return a part of a budget if it is a fraction of at least 0 and below 1."""
    if type(share) not in (int, Fraction) or not 0 <= share < 1 or (above_zero and not share):
        least = "above 0" if above_zero else "of at least 0"
        raise ConfigError(Problem(name, f"{share!r} is not a fraction {least} and below 1", "write for example 1/4"))
    return Fraction(share)


def refuse_too_small(relative: float, what: str, instead: str = "or the number of parts") -> None:
    """Refuse a budget whose noise is wider than what it is added to: nothing could be read off the result."""
    if relative > 1 / 2:
        reason = f"is too small: the standard deviation of the noise would be {relative:.2g} times {what}"
        raise ConfigError(Problem("budget", reason, f"raise the budget, {instead}"))


def critical_value(confidence: float, freedom: float = inf) -> float:
    """Return the quantile of a two-sided interval: normal, or Student's t.

    Examples
    --------
    >>> round(critical_value(0.95), 4), round(critical_value(0.95, 10), 4)
    (1.96, 2.2281)
    """
    if not 0 < confidence < 1:
        raise ConfigError(Problem("confidence", f"{confidence!r} is not between 0 and 1", "write for example 0.95"))
    middle = (1 + confidence) / 2
    return float(ndtri(middle) if freedom == inf else stdtrit(freedom, middle))
