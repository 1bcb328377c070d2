"""Exact shares of a budget, the number of records, and whether selection steps can tell anything apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from fractions import Fraction
from typing import Any

from das.errors import BudgetError, ConfigError, Problem
from das.synthesis.cost import epsilon_of_selection
from das.synthesis.curator import Curator

__all__ = ["check_options", "proportional", "require_selection", "settle_total"]

_GRID = 10**9
_TOTAL_SHARE = Fraction(1, 50)


def check_options(options: Any, *, may_be_zero: Sequence[str] = ()) -> None:
    """Refuse shares outside of (0, 1) and numbers below 1: they would fail after the first noise was paid for.

    Raises
    ------
    ConfigError
        It names each option.
    """
    problems = []
    for each in fields(options):
        value, least = getattr(options, each.name), 0 if each.name in may_be_zero else 1
        if isinstance(value, Fraction) and not 0 < value < 1:
            problems.append(
                Problem(f"options.{each.name}", "is not strictly between 0 and 1", f'like "{each.default}"')
            )
        if isinstance(value, int) and value < least:
            problems.append(Problem(f"options.{each.name}", f"is below {least}", f"like {each.default}"))
    if problems:
        raise ConfigError(problems)


def proportional(budget: Fraction, weights: Sequence[float]) -> list[Fraction]:
    """Split a budget exactly, in proportion to weights up to one part in 10^9.

    Examples
    --------
    >>> sum(proportional(Fraction(1, 7), [1.0, 2.0**0.5, 5.0])) == Fraction(1, 7)
    True
    """
    whole = sum(weights)
    shares = [Fraction(int(weight / whole * _GRID), _GRID) for weight in weights]
    largest = max(range(len(shares)), key=shares.__getitem__)
    shares[largest] += 1 - sum(shares)
    return [budget * share for share in shares]


def settle_total(curator: Curator, total: int | None) -> float:
    """Return the number of records: as published, as neighbours share it, or measured with a share of the budget."""
    known = total if total is not None else curator.public_total
    if known is not None:
        return float(known)
    measured = curator.measure((), curator.budget * _TOTAL_SHARE)
    return float(max(1, int(measured.answers)))


def require_selection(curator: Curator, cost: Fraction, total: int | None) -> None:
    """Refuse, before anything is spent, a selection whose scores cannot matter: all distances weigh less than one nat.

    Raises
    ------
    BudgetError
        It names a method without selection steps.
    """
    epsilon = epsilon_of_selection(cost) if curator.framework == "zcdp" else cost
    known = total if total is not None else curator.public_total
    # a distance between two tables of n records is at most 2 n
    if epsilon <= 0 or (known is not None and epsilon * known / curator.changed < 1):
        reason = f"a selection step has {float(cost):.3g} of it and would choose blindly"
        raise BudgetError(Problem("budget", reason, "give a larger one, or use `pairs` with triples = 0"))
