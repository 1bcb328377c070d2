"""What a plan claims under each policy: the numbers that its statement quotes, computed by the same functions."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from das.accounting.events import Event, NotSupported
from das.accounting.joint import Drawn
from das.accounting.moves import Move, presence_move
from das.accounting.policies import POLICIES, Guarantee, guarantee, guarantee_of_moves, policy_moves
from das.accounting.tight import move_distributions
from das.plan.for_accountant import hierarchical_plan
from das.plan.plan import Plan
from das.promise.lines import Lines, quoted_epsilon
from das.schema.query import Neighbours
from geography import Spine

__all__ = ["ADD_REMOVE", "Claim", "accounted_events", "claims_of"]

ADD_REMOVE = "add-remove"
"""The policy under which one record is there or not; the statement lists it as ``unconstrained``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """An upper bound on epsilon, and when it holds.

    Parameters
    ----------
    policy, meaning : str
        Which data sets are compared.
    delta : Fraction
        Zero where the promise is pure.
    epsilon : float, optional
        The smallest epsilon that is claimed at delta; None where nothing is.
    quoted : float, optional
        The epsilon of the statement, which an exact distribution may undercut.
    adjacency : int
        How many records change at most.
    status, condition : str
        On what grounds, and when.
    """

    policy: str
    meaning: str
    delta: Fraction
    epsilon: float | None
    quoted: float | None
    adjacency: int
    status: str
    condition: str = ""


def claims_of(plan: Plan, spine: Spine | None) -> dict[str, Claim]:
    """List what a plan claims, policy by policy, as its statement does.

    A plan whose records are added or removed claims that alone. Where noise is conditioned on the public facts nothing
    is claimed for data sets that differ in them, so the policy that ignores facts is left out.
    """
    whole, delta = hierarchical_plan(plan, spine), plan.settings.privacy.delta
    sampler = plan.mechanism_stage.sampler
    lines = Lines(whole, delta, () if sampler is None else (Drawn(plan=whole, sampler=sampler),))
    if plan.settings.privacy.neighbours is Neighbours.ADD_REMOVE:
        moves: tuple[Move, ...] = (presence_move(whole),)
        found = guarantee_of_moves(whole, "unconstrained", moves, delta)
        return {ADD_REMOVE: _claim(lines, ADD_REMOVE, found, moves, "One record is there, or is not.")}
    claims = {}
    for name, entry in POLICIES.items():
        if sampler is not None and not entry.is_effective:
            continue
        found = lines.under(name) if entry.is_effective else guarantee(whole, name, delta)
        listed, _ = policy_moves(whole, name)
        records = {1: "One record changes", 2: "Up to two records change"}
        many = records.get(found.adjacency or 1, f"Up to {found.adjacency} records change")
        claims[name] = _claim(lines, name, found, listed, entry.meaning.format(records=many))
    return claims


def accounted_events(plan: Plan, spine: Spine | None) -> tuple[Event, ...]:
    """What the accountant is told was measured."""
    return hierarchical_plan(plan, spine).events


def _claim(lines: Lines, name: str, found: Guarantee, moves: tuple[Move, ...] | NotSupported, meaning: str) -> Claim:
    quoted = quoted_epsilon(found)
    number = quoted if isinstance(quoted, float) else None
    tight = None
    if not lines.drawn and found.epsilon is not None and not isinstance(moves, NotSupported):
        tight = lines.tight(found, move_distributions(lines.whole, moves))
    is_pure = not lines.drawn and isinstance(found.pure, Fraction)
    return Claim(
        policy=name,
        meaning=meaning,
        delta=Fraction(0) if is_pure else lines.delta,
        epsilon=min((each for each in (number, tight) if isinstance(each, float)), default=None),
        quoted=number,
        adjacency=found.adjacency or 1,
        status=found.status,
        condition=found.condition.words if found.condition else "",
    )
