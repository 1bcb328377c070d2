"""Histograms of a small domain: the geometric mechanism with clamping, and the exponential mechanism on {0..n}.

See ``histogram.md`` for the proofs and the bias that clamping adds to empty cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import exp, expm1

import numpy as np

from das.errors import BudgetError, ConfigError, Problem
from das.noise import DiscreteLaplace
from das.synthesis.curator import Curator
from das.synthesis.domain import Constraints
from das.synthesis.table_model import LARGEST, CellModel, dense, possible_table, require_dense

__all__ = ["HistogramOptions", "clamping_bias", "fit_exponential", "fit_histogram"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramOptions:
    """There is nothing to choose."""


def clamping_bias(epsilon: Fraction, changed: int) -> float:
    """Return what clamping at zero adds to the mean of an empty cell: a / (1 - a^2) with a = exp(-epsilon / changed).

    Examples
    --------
    >>> round(clamping_bias(Fraction(1), 2), 4)
    0.9595
    """
    step = float(epsilon) / changed
    return exp(-step) / -expm1(-2 * step)


def fit_histogram(
    curator: Curator, constraints: Constraints, total: int | None, options: HistogramOptions | None = None
) -> CellModel:
    """Measure every cell once and clamp; impossible cells are empty. Spends the whole budget, a pure epsilon."""
    _checked(curator, constraints, total, "histogram")
    domain = curator.domain
    _require_rows(curator, total)
    measured = curator.measure(domain.names, curator.left)
    table = np.where(possible_table(domain, constraints), np.maximum(measured.answers, 0), 0).astype(np.float64)
    return dense(domain, table, float(total if total is not None else table.sum()))


def fit_exponential(
    curator: Curator, constraints: Constraints, total: int | None, options: HistogramOptions | None = None
) -> CellModel:
    """Draw each count from P(k) proportional to exp(-epsilon |k - count| / 2 changed) on {0..n}; no clamping."""
    _checked(curator, constraints, total, "exponential")
    n = total if total is not None else curator.public_total
    if n is None:
        reason = "the exponential mechanism on {0..n} needs a public n"
        raise ConfigError(Problem("privacy.records", reason, "state it, or use `histogram`"))
    cost = curator.left
    noise = DiscreteLaplace(Fraction(2 * curator.changed) / cost)
    if noise.scale > n:  # nearly uniform on {0..n}, and redrawing until a draw is inside would not end
        reason = f"noise of scale {float(noise.scale):.3g} is larger than the {n} records"
        raise BudgetError(Problem("budget", reason, f"give an epsilon of at least {2 * curator.changed}/{n}"))
    counts = curator.draw_within(curator.domain.names, noise, n, cost)
    table = np.where(possible_table(curator.domain, constraints), counts, 0).astype(np.float64)
    return dense(curator.domain, table, float(n))


def _require_rows(curator: Curator, total: int | None) -> None:
    """Refuse, before anything is spent, noise that would be written as more rows than can be held."""
    rows = 0.0 if total is not None else curator.domain.size * clamping_bias(curator.left, curator.changed)
    if rows > LARGEST:
        reason = f"clamped noise alone would be about {rows:.3g} rows (at most {LARGEST:.3g})"
        raise BudgetError(Problem("budget", reason, "give a larger one, or use `stability`"))


def _checked(curator: Curator, constraints: Constraints, total: int | None, method: str) -> None:
    require_dense(curator.domain, method)
    constraints.check(curator.domain, total)
    if constraints.invariants:
        reason, remedy = "a histogram of noisy cells does not keep them", "use `pairs`, `aim` or `mst`"
        raise ConfigError(Problem("invariants", reason, remedy))
