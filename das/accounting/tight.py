"""A tighter epsilon for a policy, from the exact privacy-loss distributions of its moves instead of their zCDP bound.

For discrete Gaussian noise and nested invariants the worst move in zCDP is the worst at every epsilon: fewer, larger
entries reveal at least as much (``pld.md``). So it is enough to compose the largest moves.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from das.accounting.events import Event, NotSupported
from das.accounting.hierarchy import HierarchicalPlan
from das.accounting.moves import Move
from das.accounting.pld import LossDistribution, loss_distribution
from das.accounting.policies import Policy, policy_moves
from das.accounting.small_table.plan import TablePlan

__all__ = ["move_distribution", "tight_epsilon_upper"]


def move_distribution(move: Move, events: Iterable[Event]) -> LossDistribution | NotSupported:
    """Compose all events for one move of the data."""
    return loss_distribution((event, move.change(event)) for event in events)


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
    if isinstance(moves, NotSupported):
        return moves
    if isinstance(plan, HierarchicalPlan):
        if any(abs(entry) > 2 for move in moves for change in move.changes.values() for entry in change):
            return NotSupported("which move is worst is proved for at most two records")
        moves = _undominated(moves)
    largest = 0.0
    for move in moves:
        composed = move_distribution(move, plan.events)
        if isinstance(composed, NotSupported):
            return composed
        largest = max(largest, composed.epsilon_upper(delta))
    return largest


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
