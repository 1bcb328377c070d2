"""Is everything that a run measures accounted for? The list of what is released against the accountant's events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from das.accounting.events import Event
from das.evaluation.privacy_audit.checks import Check
from das.plan.plan import Plan

__all__ = ["check_measured", "released_events"]

NAME = "Everything that is measured is accounted for"


def released_events(plan: Plan) -> tuple[Event, ...]:
    """What the mechanism releases at each level, by what its noise says of itself."""
    return tuple(m.mechanism.event(level, m.query.name) for level in plan.levels for m in plan.at(level))


def check_measured(released: Sequence[Event], accounted: Sequence[Event], where: str) -> Check:
    """Compare what was released with what was accounted, event by event.

    Examples
    --------
    >>> from das.noise import DiscreteGaussian
    >>> one, two = (DiscreteGaussian(4).event("state", query) for query in ("total", "sex"))
    >>> check_measured([one, two], [one], "a run").detail
    'a run: measured but not accounted: state/sex'
    """
    measured, known = Counter(map(repr, released)), Counter(map(repr, accounted))
    names = {repr(event): f"{event.level}/{event.query}" for event in (*released, *accounted)}
    forgotten = sorted({names[each] for each in measured - known})
    unmade = sorted({names[each] for each in known - measured})
    if forgotten:
        return Check(
            name=NAME, verdict="VIOLATED", detail=f"{where}: measured but not accounted: {', '.join(forgotten)}"
        )
    words = f"; accounted but not measured: {', '.join(unmade)}" if unmade else ""
    return Check(name=NAME, verdict="consistent", detail=f"{where}: {sum(measured.values())} events{words}")
