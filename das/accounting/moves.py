"""Moves of a hierarchical plan: the changes of the data that each policy promises to hide, as changes of the answers.

With nested invariants the finest of them sorts record types into classes, and every move is a sum of changes of single
records inside their classes. So three shapes are enough: one record inside its class; two records that trade classes,
which is one change inside each of two classes; and the ball of radius a, whose worst case is a records making the same
change. ``moves.md`` has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from types import MappingProxyType

from das.accounting.events import ACCOUNTANTS, Change, Event, Loss, NotSupported, total_loss
from das.accounting.hierarchy import (
    HierarchicalPlan,
    RecordChange,
    attribute_changes,
    finest_invariant,
    implied,
    separable_cells,
)

__all__ = [
    "Move",
    "Secret",
    "adjacency",
    "ball_moves",
    "can_change_alone",
    "determined_queries",
    "exchange_moves",
    "move_loss",
    "presence_move",
    "secret_moves",
    "unconstrained_moves",
    "within_class_moves",
    "worst_loss",
]

AnswerChange = Callable[[int, str], Change]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A change of the data as the answers see it.

    Parameters
    ----------
    description : str
        What happens, in words.
    records : int
        How many records change.
    changes : mapping of (level, query) to Change
        The non-zero entries by which each answer changes; a pair that is left out does not change.
    """

    description: str
    records: int
    changes: Mapping[tuple[str, str], Change]

    def __post_init__(self) -> None:
        object.__setattr__(self, "changes", MappingProxyType(dict(self.changes)))

    def change(self, event: Event) -> Change:
        """How the answer to what this event measured changes."""
        return self.changes.get((event.level, event.query), ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """What somebody may want to hide: which attributes may be otherwise, and inside which geounit.

    Parameters
    ----------
    name : str
        In words.
    attributes : frozenset of str, optional
        The attributes that may be otherwise; None for all, empty for none.
    within : str, optional
        The level whose geounit stays the same; None for anywhere.
    """

    name: str
    attributes: frozenset[str] | None = None
    within: str | None = None


def move_loss(move: Move, events: Iterable[Event], accountant: str = "zcdp") -> Loss:
    """Sum of the costs of all events for one move, by one of `ACCOUNTANTS`."""
    cost = ACCOUNTANTS[accountant]
    return total_loss(cost(event, move.change(event)) for event in events)


def worst_loss(moves: Iterable[Move], events: tuple[Event, ...], accountant: str = "zcdp") -> tuple[Loss, Move | None]:
    """Largest of the summed costs over the moves, which is less than the sum of the largest costs.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from das.accounting.events import LaplaceEvent
    >>> events = tuple(LaplaceEvent(level="us", query=q, scale=Fraction(1)) for q in ("a", "b"))
    >>> moves = [Move(description=q, records=1, changes={("us", q): (1,)}) for q in ("a", "b")]
    >>> worst_loss(moves, events, "pure")[0]
    Fraction(1, 1)
    """
    worst: tuple[Loss, Move | None] = (total_loss(ACCOUNTANTS[accountant](event, ()) for event in events), None)
    for move in moves:
        loss = move_loss(move, events, accountant)
        if isinstance(loss, NotSupported):
            return loss, move
        if worst[1] is None or (not isinstance(worst[0], NotSupported) and loss > worst[0]):
            worst = (loss, move)
    return worst


def adjacency(plan: HierarchicalPlan) -> int | NotSupported:
    """The semi-adjacency parameter a(t) of nested invariants: 1 inside classes, 2 when there are two classes to trade.

    It is the value for data in which at least two classes are inhabited. Public bounds keep it at 2 where all facts
    nest (``bounds.md``). Where they cross it is known if the published numbers were looked at, and assumed to be 2
    otherwise (`das.accounting.bounds.compensation_is_proved`).
    """
    if plan.known_adjacency is not None:
        return plan.known_adjacency
    finest = finest_invariant(plan)
    if isinstance(finest, NotSupported):
        return finest
    if finest is None:
        return 2 if plan.bounds else 1
    level, query = finest
    cells = math.prod(len(set(kept)) for kept in plan.queries[query] if kept is not None)
    return 2 if plan.bounds or plan.units[plan.depth(level)] * cells > 1 else 1


def presence_move(plan: HierarchicalPlan) -> Move:
    """One record is there or not: each measured answer changes by one, at most.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from das.accounting.events import LaplaceEvent
    >>> plan = HierarchicalPlan(levels=("us",), units=(1,), attributes=(("sex", 2),), queries={"sex": ((0, 1),)},
    ...     events=(LaplaceEvent(level="us", query="sex", scale=Fraction(2)),))
    >>> move_loss(presence_move(plan), plan.events, "pure")
    Fraction(1, 2)
    """
    return _move("one record is added or removed", 1, plan, lambda depth, query: (1,))


def unconstrained_moves(plan: HierarchicalPlan, secret: Secret | None = None) -> Iterator[Move]:
    """One record changes as it likes, whatever is public: the nominal statement."""
    wanted = secret or Secret(name="anything about one person")
    place = _divergence(plan, wanted, -1)
    for separated in attribute_changes(plan, only=wanted.attributes):
        yield _move(wanted.name, 1, plan, _same_changes((RecordChange(place, separated),)))


def within_class_moves(plan: HierarchicalPlan, secret: Secret | None = None) -> Iterator[Move]:
    """One record changes and every invariant stays as it is."""
    wanted = secret or Secret(name="one person, nothing public changes")
    for change in _within_class(plan, wanted):
        yield _move(wanted.name, 1, plan, _same_changes((change,)))


def exchange_moves(plan: HierarchicalPlan, secret: Secret | None = None) -> Iterator[Move] | NotSupported:
    """Two records trade classes of the finest invariant: the irreducible moves of two records.

    With a secret, the first record makes a change the secret allows and the second only compensates it.
    """
    finest = finest_invariant(plan)
    if isinstance(finest, NotSupported):
        return finest
    return iter(()) if finest is None else _exchanges(plan, finest, secret)


def ball_moves(plan: HierarchicalPlan, radius: int) -> Iterator[Move] | NotSupported:
    """At most `radius` records change and every invariant stays: at worst each changes inside its class, all alike."""
    if radius > 1 and isinstance(finest := finest_invariant(plan), NotSupported):
        return finest
    words = f"{radius} people change, nothing public changes"
    inside = tuple(_within_class(plan, Secret(name="")))
    return (
        _move(words, radius, plan, _same_changes(chosen)) for chosen in combinations_with_replacement(inside, radius)
    )


def secret_moves(plan: HierarchicalPlan, secret: Secret) -> Iterator[Move] | NotSupported:
    """One record changes as the secret allows, with the fewest others changing to keep what is public."""
    alone = within_class_moves(plan, secret)
    if not _touches_invariants(plan, secret):
        return alone
    exchanges = exchange_moves(plan, secret)
    if isinstance(exchanges, NotSupported):
        return exchanges
    return (move for moves in (alone, exchanges) for move in moves)


def can_change_alone(plan: HierarchicalPlan) -> bool:
    """Return whether some record can change while no public fact and no other record changes.

    With nested invariants, that nobody can means that the data are determined by what is public.
    """
    if plan.diverging(max((plan.depth(level) for level, _ in plan.invariants), default=-1)) < len(plan.levels):
        return True
    everything = tuple(tuple(range(size)) for _, size in plan.attributes)
    asked = replace(plan, queries={**plan.queries, "": everything})
    keep = frozenset(query for _, query in plan.invariants)
    return any("" in seen for seen in attribute_changes(asked, keep=keep))


def determined_queries(plan: HierarchicalPlan) -> tuple[tuple[str, str], ...]:
    """Measured (level, query) pairs whose exact value follows from an invariant: they cost nothing and hide nothing."""

    def public(level: str, query: str) -> bool:
        # the number of records never changes by a substitution
        whole = plan.units[plan.depth(level)] == 1 and all(m is None or len(set(m)) == 1 for m in plan.queries[query])
        return whole or any(implied(plan, level, query, by=pair) for pair in plan.invariants)

    return tuple(pair for pair in dict.fromkeys((e.level, e.query) for e in plan.events) if public(*pair))


def _divergence(plan: HierarchicalPlan, secret: Secret, after: int) -> int:
    """First depth at which the places may differ: below the invariants and below the geounit of the secret."""
    return plan.diverging(max(after, -1 if secret.within is None else plan.depth(secret.within)))


def _touches_invariants(plan: HierarchicalPlan, secret: Secret) -> bool:
    seen = attribute_changes(plan, only=secret.attributes)
    place = _divergence(plan, secret, -1)
    return any(RecordChange(place, s).seen_by(plan.depth(lv), q) for s in seen for lv, q in plan.invariants)


def _within_class(plan: HierarchicalPlan, secret: Secret) -> Iterator[RecordChange]:
    deepest = max((plan.depth(level) for level, _ in plan.invariants), default=-1)
    place = _divergence(plan, secret, deepest)
    keep = frozenset(query for _, query in plan.invariants)
    return (RecordChange(place, seen) for seen in attribute_changes(plan, keep=keep, only=secret.attributes))


def _exchanges(plan: HierarchicalPlan, finest: tuple[str, str], secret: Secret | None) -> Iterator[Move]:
    level, query = finest
    bottom = plan.depth(level)
    inside = tuple(_within_class(plan, Secret(name="")))
    wanted = secret or Secret(name="two people trade places, nothing public changes")

    def trade(first: RecordChange, meet: Callable[[int, str], bool]) -> AnswerChange:
        def change(depth: int, name: str) -> Change:
            if not any(c.seen_by(depth, name) for c in inside):
                return ()
            if not first.seen_by(depth, name):
                return (1, -1)  # the first record does not show; the second is one record that changed
            return (2, -2) if meet(depth, name) else (1, -1, 1, -1)

        return change

    # the two classes are in different geounits, which first differ at one of these depths
    start = -1 if wanted.within is None else plan.depth(wanted.within)
    for place in range(start + 1, bottom + 1):
        if plan.diverging(place - 1) == place:
            for seen in attribute_changes(plan, only=wanted.attributes):
                yield _move(wanted.name, 2, plan, trade(RecordChange(place, seen), _in_one_geounit_above(place)))
    # the two classes are different cells of the finest invariant in one geounit
    for apart in dict.fromkeys(separable_cells(plan, query)):
        for seen in attribute_changes(plan, only=wanted.attributes):
            if query in seen:
                first = RecordChange(_divergence(plan, wanted, bottom), seen)
                yield _move(wanted.name, 2, plan, trade(first, _in_one_cell_unless(apart)))


def _same_changes(changes: tuple[RecordChange, ...]) -> AnswerChange:
    """All records that show in an answer leave one cell for one other: the largest change that many can make."""

    def change(depth: int, query: str) -> Change:
        shown = sum(change.seen_by(depth, query) for change in changes)
        return (shown, -shown) if shown else ()

    return change


def _in_one_geounit_above(place: int) -> Callable[[int, str], bool]:
    return lambda depth, query: depth < place


def _in_one_cell_unless(apart: frozenset[str]) -> Callable[[int, str], bool]:
    return lambda depth, query: query not in apart


def _move(words: str, records: int, plan: HierarchicalPlan, change: AnswerChange) -> Move:
    pairs = dict.fromkeys((event.level, event.query) for event in plan.events)
    changes = {(level, query): change(plan.depth(level), query) for level, query in pairs}
    return Move(
        description=words, records=records, changes={pair: entries for pair, entries in changes.items() if entries}
    )
