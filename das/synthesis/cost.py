"""What was spent, step by step and exactly: ready to be charged to the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from typing import Any

from das.accounting.conversion import epsilon_upper
from das.errors import BudgetError, Problem

__all__ = ["Spent", "Step", "epsilon_of_selection", "rho_for", "selection_cost"]

_DIGITS = 10**12
_RHO_GRID = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One use of the records: what was asked, by which mechanism, at which exact cost."""

    what: str
    mechanism: str
    cost: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """All uses of the records; costs add (Bun and Steinke 2016 for rho, basic composition for epsilon).

    Parameters
    ----------
    framework : str
        ``"zcdp"``: costs are rho. ``"pure"``: costs are epsilon.
    steps : tuple of Step
        In the order in which they happened.
    delta : Fraction
        What is lost beside it, zero unless a mechanism has a delta of its own.

    Examples
    --------
    >>> half = Step(what="sex * age", mechanism="discrete-gaussian(sigma2=1)", cost=Fraction(1, 2))
    >>> Spent(framework="zcdp", steps=(half, half)).total
    Fraction(1, 1)
    """

    framework: str
    steps: tuple[Step, ...]
    delta: Fraction = Fraction(0)

    @property
    def total(self) -> Fraction:
        """The exact sum, which the ledger is charged with."""
        return sum((step.cost for step in self.steps), Fraction(0))

    def to_json(self) -> dict[str, Any]:
        """Plain data for ``privacy.json``."""
        steps = [{"what": s.what, "mechanism": s.mechanism, "cost": str(s.cost)} for s in self.steps]
        return {"framework": self.framework, "total": str(self.total), "delta": str(self.delta), "steps": steps}


def epsilon_of_selection(rho: Fraction) -> Fraction:
    """Return the largest epsilon on a grid of 1e-12 whose exponential mechanism costs at most rho.

    An epsilon-DP exponential mechanism is epsilon-bounded-range and so epsilon^2/8-zCDP (Cesar and Rogers 2021,
    arXiv 2004.07223, Lemma 3.2; the proof note is ``exponential.md``).

    Examples
    --------
    >>> epsilon_of_selection(Fraction(1, 2)), selection_cost(Fraction(2))
    (Fraction(2, 1), Fraction(1, 2))
    """
    return Fraction(isqrt(int(8 * rho * _DIGITS**2)), _DIGITS)


def selection_cost(epsilon: Fraction) -> Fraction:
    """Return the exact rho of an exponential mechanism with this epsilon."""
    return epsilon**2 / 8


def rho_for(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the largest rho on a grid of 1e-9 that promises (epsilon, delta), by the conversion of the accountant.

    Examples
    --------
    >>> round(float(rho_for(Fraction(1), Fraction(1, 10**9))), 6)
    0.014973
    """
    low, high = 0, _RHO_GRID
    while epsilon_upper(Fraction(high, _RHO_GRID), delta) <= epsilon:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if epsilon_upper(Fraction(middle, _RHO_GRID), delta) <= epsilon:
            low = middle
        else:
            high = middle
    if low == 0:
        reason = f"no rho promises epsilon {epsilon} at delta {delta}"
        raise BudgetError(Problem("budget", reason, "give a larger epsilon or delta"))
    return Fraction(low, _RHO_GRID)
