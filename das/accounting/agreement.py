"""Check that a run measured exactly what was planned, event by event, in exact rationals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from das.accounting.events import Event
from das.errors import BudgetError, Problem

__all__ = ["refuse_disagreement"]


def refuse_disagreement(planned: Iterable[Event], spent: Iterable[Event]) -> None:
    """Fail unless the ledger holds exactly the planned events, each as often as planned.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from das.accounting.events import GaussianEvent
    >>> total = GaussianEvent(level="us", query="total", sigma2=Fraction(4))
    >>> refuse_disagreement([total], [total])
    >>> refuse_disagreement([total], [total, total])
    Traceback (most recent call last):
    das.errors.BudgetError: us/total: measured but not planned (sigma2 = 4); do not publish; find out what ran
    """
    plan, ledger = Counter(planned), Counter(spent)
    differences = [("measured but not planned", ledger - plan), ("planned but not measured", plan - ledger)]
    problems = [
        Problem(f"{event.level}/{event.query}", f"{words}{_parameter(event)}", "do not publish; find out what ran")
        for words, events in differences
        for event in sorted(events.elements(), key=lambda event: (event.level, event.query))
    ]
    if problems:
        raise BudgetError(problems)


def _parameter(event: Event) -> str:
    for name in ("sigma2", "scale", "epsilon"):
        if hasattr(event, name):
            return f" ({name} = {getattr(event, name)})"
    return ""
