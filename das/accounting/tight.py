"""A tighter epsilon for a policy, from the exact privacy-loss distributions of its moves instead of their zCDP bound.

For discrete Gaussian noise and nested invariants the worst move in zCDP is the worst at every epsilon: fewer, larger
entries reveal at least as much (``pld.md``). So it is enough to compose the largest moves.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache

from das.accounting.events import Change, Event, NotSupported, pure_epsilon
from das.accounting.hierarchy import HierarchicalPlan
from das.accounting.moves import Move
from das.accounting.pld import LossDistribution, loss_distribution
from das.accounting.policies import Policy, policy_moves
from das.accounting.small_table.plan import TablePlan

__all__ = ["move_distribution", "move_distributions", "tight_epsilon_upper"]


def move_distribution(move: Move, events: Iterable[Event]) -> LossDistribution | NotSupported:
    """Compose all events for one move of the data."""
    return _composed(tuple((event, change) for event in events if (change := move.change(event)) or _is_unknown(event)))


@lru_cache(maxsize=64)  # several secrets have the same worst move
def _composed(measured: tuple[tuple[Event, Change], ...]) -> LossDistribution | NotSupported:
    return loss_distribution(measured)


def _is_unknown(event: Event) -> bool:
    """Whether the accountant knows nothing of an event, not even that it costs nothing where no answer changes."""
    return isinstance(pure_epsilon(event, ()), NotSupported)


def tight_epsilon_upper(plan: HierarchicalPlan | TablePlan, policy: Policy, delta: Fraction) -> float | NotSupported:
    """Epsilon at delta from the exact loss distributions of the moves of a policy, rounded up.

    It is a guarantee like the one from zCDP. For discrete Gaussian plans it is smaller, otherwise never much larger.

    Examples
    --------
    >>> from das.accounting.events import GaussianEvent
    >>> plan = HierarchicalPlan(
    ...     levels=("us",), units=(1,), attributes=(("sex", 2),), queries={"sex": ((0, 1),)},
    ...     events=(GaussianEvent(level="us", query="sex", sigma2=Fraction(4)),))
    >>> round(tight_epsilon_upper(plan, "semi", Fraction(1, 10**10)), 2)
    4.48
    """
    moves, _ = policy_moves(plan, policy)
    found = moves if isinstance(moves, NotSupported) else move_distributions(plan, moves)
    if isinstance(found, NotSupported):
        return found
    return max((each.epsilon_upper(delta) for each in found), default=0.0)


def move_distributions(
    plan: HierarchicalPlan | TablePlan, moves: Iterable[Move]
) -> tuple[LossDistribution, ...] | NotSupported:
    """Compose all events for each of these moves that no other exceeds."""
    listed = tuple(moves)
    if isinstance(plan, HierarchicalPlan):
        if any(abs(entry) > 2 for move in listed for change in move.changes.values() for entry in change):
            return NotSupported("which move is worst is proved for at most two records")
        listed = _undominated(listed)
    found: list[LossDistribution] = []
    for move in listed:
        composed = move_distribution(move, plan.events)
        if isinstance(composed, NotSupported):
            return composed
        found.append(composed)
    return tuple(found)


def _undominated(moves: tuple[Move, ...]) -> tuple[Move, ...]:
    """Leave out moves that another exceeds in every answer, in the order () < (1, -1) < (1, -1, 1, -1) < (2, -2)."""
    pairs = sorted({pair for move in moves for pair in move.changes})
    size = {
        tuple((max(map(abs, change), default=0), len(change)) for change in (m.changes.get(p, ()) for p in pairs)): m
        for m in moves
    }
    return tuple(
        move
        for key, move in size.items()
        if not any(key != other and all(a <= b for a, b in zip(key, other, strict=True)) for other in size)
    )
