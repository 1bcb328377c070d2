"""Which data sets are compared: the adjacency policies as one table, and the guarantee that each of them gives.

====================  ==============================================================================================
``semi``              up to a(t) records change and nothing public changes (Cho and Awan 2024): the headline
``irreducible``       at most a(t) records change that need each other to keep what is public
``nearest``           the smallest change of the data that keeps what is public (Gong and Meng 2020): the weakest
``unconstrained``     one record changes, as if nothing were public: the nominal number
====================  ==============================================================================================

`secret_guarantee` is the fifth, secret-pair: one record changes in a stated way and as few others as possible
compensate it. Costs are summed over the events for each move, and only then is the largest taken. A new policy is an
entry of `POLICIES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from das.accounting.condition import Condition
from das.accounting.conversion import checked_delta, epsilon_upper, gdp_epsilon_upper
from das.accounting.events import Loss, NotSupported
from das.accounting.hierarchy import HierarchicalPlan, finest_invariant
from das.accounting.moves import (
    Move,
    Secret,
    adjacency,
    ball_moves,
    can_change_alone,
    exchange_moves,
    secret_moves,
    unconstrained_moves,
    within_class_moves,
    worst_loss,
)
from das.accounting.parts import Parts
from das.accounting.small_table.dataspace import TableFacts, data_space, semi_adjacency
from das.accounting.small_table.enumeration import net_moves
from das.accounting.small_table.plan import TablePlan, secret_pair_moves

__all__ = [
    "POLICIES",
    "Guarantee",
    "Policy",
    "PolicyEntry",
    "attribute_secrets",
    "geography_secrets",
    "guarantee",
    "guarantee_of_moves",
    "nominal_secret_guarantee",
    "of_group",
    "policy_moves",
    "secret_guarantee",
]

Policy = str
"""A key of `POLICIES`."""
Status = Literal[
    "proved",
    "not supported",
    "VACUOUS - data determined by invariants",
]
VACUOUS: Status = "VACUOUS - data determined by invariants"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """What is promised under one policy, and on what grounds.

    Parameters
    ----------
    policy, secret : str
        The policy, and for secret-pair what is hidden.
    adjacency : int, optional
        a(t), where the policy has one.
    rho, pure, mu_squared : Fraction, inf or NotSupported
        The zCDP cost, the pure epsilon and, for continuous noise, the squared mu of the worst move.
    epsilon : float, optional
        An epsilon that holds at delta, rounded up; None when it is not known or says nothing.
    move : Move, optional
        A move that costs `rho`.
    status : str
        ``proved``, ``not supported``, or the vacuous case, which is never an epsilon of 0.
    assumptions : tuple of str
        What must be true for the promise to hold, beyond the plan.
    condition : Condition, optional
        When the number holds, and which one holds otherwise; None where it always does.
    parts, steps : tuple of Parts, int
        Where noise is mixed or conditioned: the cost of each move by kind of noise, and how many such moves are made.
    added_delta : Fraction
        Delta that a pure epsilon needs after all: what the windows of a sampler add; also to what holds otherwise.
    """

    policy: str
    delta: Fraction
    rho: Loss
    pure: Loss
    mu_squared: Loss
    epsilon: float | None
    status: Status
    adjacency: int | None = None
    secret: str = ""
    move: Move | None = None
    assumptions: tuple[str, ...] = ()
    condition: Condition | None = None
    parts: tuple[Parts, ...] = ()
    steps: int = 1
    added_delta: Fraction = Fraction(0)


def guarantee(plan: HierarchicalPlan | TablePlan, policy: Policy, delta: Fraction) -> Guarantee:
    """Account a plan under one policy.

    Examples
    --------
    >>> from das.accounting.events import GaussianEvent
    >>> plan = HierarchicalPlan(
    ...     levels=("us", "state"), units=(1, 51), attributes=(("sex", 2),),
    ...     queries={"total": (None,), "sex": ((0, 1),)},
    ...     events=(GaussianEvent(level="us", query="sex", sigma2=Fraction(4)),
    ...             GaussianEvent(level="state", query="total", sigma2=Fraction(4))),
    ...     invariants=(("state", "total"),))
    >>> [guarantee(plan, policy, Fraction(1, 10**10)).rho for policy in ("unconstrained", "irreducible", "semi")]
    [Fraction(1, 2), Fraction(1, 1), Fraction(1, 1)]
    """
    moves, a = policy_moves(plan, policy)
    found = guarantee_of_moves(plan, policy, moves, delta)
    return replace(found, adjacency=a, assumptions=_assumptions(plan, policy))


def secret_guarantee(
    plan: HierarchicalPlan | TablePlan, secret: Secret | tuple[int, int], delta: Fraction
) -> Guarantee:
    """Account a plan for one secret given what is public: a `Secret` of a hierarchy or a pair of cells of a table.

    Examples
    --------
    >>> from das.accounting.events import LaplaceEvent
    >>> plan = HierarchicalPlan(
    ...     levels=("us",), units=(1,), attributes=(("sex", 2), ("age", 3)),
    ...     queries={"sex": ((0, 1), None), "age": (None, (0, 1, 2))},
    ...     events=tuple(LaplaceEvent(level="us", query=q, scale=Fraction(4)) for q in ("sex", "age")))
    >>> secret_guarantee(plan, Secret(name="sex", attributes=frozenset({"sex"})), Fraction(1, 10**10)).pure
    Fraction(1, 2)
    """
    moves: tuple[Move, ...] | NotSupported
    if isinstance(plan, HierarchicalPlan) and isinstance(secret, Secret):
        found = secret_moves(plan, secret)
        moves, name = (found if isinstance(found, NotSupported) else tuple(found)), secret.name
    elif isinstance(plan, TablePlan) and isinstance(secret, tuple):
        before, after = secret
        name = f"cell {before} or cell {after}"
        nets = secret_pair_moves(plan.facts, before, after)
        moves = plan.seen(nets, name) if len(nets) else NotSupported(f"no data set hides {name}: it is unprotected")
    else:
        moves, name = NotSupported("a table has secrets of cells, a hierarchy secrets of attributes and places"), ""
    result = guarantee_of_moves(plan, "secret-pair", moves, delta)
    return replace(result, secret=name, assumptions=_assumptions(plan, "secret-pair"))


def nominal_secret_guarantee(plan: HierarchicalPlan, secret: Secret, delta: Fraction) -> Guarantee:
    """Account a plan for one secret as if nothing were public: the numbers of the Bureau's certificates."""
    moves = tuple(unconstrained_moves(plan, secret))
    return replace(guarantee_of_moves(plan, "unconstrained", moves, delta), secret=secret.name)


def attribute_secrets(plan: HierarchicalPlan) -> tuple[Secret, ...]:
    """Make one secret for each attribute: it could be otherwise, everything else and the place being as it is."""
    leaf = plan.levels[-1]
    return tuple(Secret(name=name, attributes=frozenset({name}), within=leaf) for name, _ in plan.attributes)


def geography_secrets(plan: HierarchicalPlan) -> tuple[Secret, ...]:
    """Make one secret for each level above the leaves, bottom up: the leaf could be another one of the same geounit."""
    leaf = plan.levels[-1]
    return tuple(
        Secret(name=f"{leaf} within {level}", attributes=frozenset(), within=level) for level in plan.levels[-2::-1]
    )


Moves = tuple[tuple[Move, ...] | NotSupported, int | None]
"""The moves that a policy compares, largest ones only, and the a(t) that it rests on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEntry:
    """One policy: its moves, its words, and what it may be used for."""

    title: str
    """The name under which its number is quoted."""
    meaning: str
    """What is compared, in a sentence; ``{records}`` stands for the number of records that change."""
    of_hierarchy: Callable[[HierarchicalPlan], Moves]
    of_table: Callable[[TablePlan], Moves]
    is_effective: bool = True
    """Whether it honours the public facts, so that its number is listed as effective."""
    is_headline: bool = False
    """Whether its number may be the one that a release promises."""
    has_compensation: bool = False
    """Whether the records that must change along, where a public bound is tight, are among those it lets change."""


def policy_moves(plan: HierarchicalPlan | TablePlan, policy: Policy) -> Moves:
    """Give the moves a policy compares, largest ones only, and the a(t) it rests on."""
    entry = POLICIES[policy]
    return entry.of_table(plan) if isinstance(plan, TablePlan) else entry.of_hierarchy(plan)


def _nearest(plan: HierarchicalPlan) -> Moves:
    finest = finest_invariant(plan)
    if isinstance(finest, NotSupported) and not can_change_alone(plan):
        return finest, None
    return tuple(within_class_moves(plan)), None


def _within_adjacency(
    *groups: Callable[[HierarchicalPlan, int], Iterable[Move] | NotSupported],
) -> Callable[[HierarchicalPlan], Moves]:
    """Collect groups of moves of at most a(t) records."""

    def moves_of(plan: HierarchicalPlan) -> Moves:
        a = adjacency(plan)
        if isinstance(a, NotSupported):
            return a, None
        moves: list[Move] = []
        for group in groups:
            found = group(plan, a)
            if isinstance(found, NotSupported):
                return found, a
            moves.extend(found)
        return tuple(moves), a

    return moves_of


def _table_unconstrained(plan: TablePlan) -> Moves:
    free = TableFacts(cells=plan.facts.cells, zeros=plan.facts.zeros)
    return plan.seen(net_moves(free, 1), "anything about one person"), None


def _table_nearest(plan: TablePlan) -> Moves:
    def smallest(a: int) -> tuple[Move, ...] | NotSupported:
        return next((moves for size in range(1, a + 1) if (moves := plan.ball(size))), ())

    return _table_moves(smallest, plan)[0], None


def _table_moves(moves_of: Callable[[int], tuple[Move, ...] | NotSupported], plan: TablePlan) -> Moves:
    if plan.facts.values is None or plan.facts.records is None:
        return NotSupported("a(t) of a table needs the published values"), None
    a = semi_adjacency(plan.facts)
    return moves_of(a), a


POLICIES: dict[Policy, PolicyEntry] = {
    "semi": PolicyEntry(
        title="Effective, Semi-DP",
        meaning="{records}, and all public facts stay true.",
        of_hierarchy=_within_adjacency(ball_moves),
        of_table=lambda plan: _table_moves(plan.ball, plan),
        is_headline=True,
        has_compensation=True,
    ),
    "irreducible": PolicyEntry(
        title="Effective, irreducible",
        meaning="No more records change than the public facts require.",
        of_hierarchy=_within_adjacency(lambda plan, a: within_class_moves(plan), lambda plan, a: exchange_moves(plan)),
        of_table=lambda plan: _table_moves(plan.irreducible, plan),
    ),
    "nearest": PolicyEntry(
        title="Effective, nearest",
        meaning="Only the smallest change that the public facts allow: the weakest comparison.",
        of_hierarchy=_nearest,
        of_table=_table_nearest,
    ),
    "unconstrained": PolicyEntry(
        title="Unconstrained",
        meaning="One record changes; the public facts are ignored.",
        of_hierarchy=lambda plan: (tuple(unconstrained_moves(plan)), None),
        of_table=_table_unconstrained,
        is_effective=False,
    ),
}


def guarantee_of_moves(
    plan: HierarchicalPlan | TablePlan, policy: str, moves: tuple[Move, ...] | NotSupported, delta: Fraction
) -> Guarantee:
    """Account a plan for these moves of the data; the policy only says whether they honour the public facts."""
    exact = checked_delta(delta)
    if isinstance(moves, NotSupported):
        return Guarantee(
            policy=policy, delta=exact, rho=moves, pure=moves, mu_squared=moves, epsilon=None, status="not supported"
        )
    rho, move = worst_loss(moves, plan.events, "zcdp")
    pure, _ = worst_loss(moves, plan.events, "pure")
    mu_squared, _ = worst_loss(moves, plan.events, "gdp")
    found = Guarantee(
        policy=policy, delta=exact, rho=rho, pure=pure, mu_squared=mu_squared, epsilon=None, status="proved", move=move
    )
    if all(isinstance(loss, NotSupported) for loss in (rho, pure, mu_squared)):
        return replace(found, status="not supported")
    if _honours_facts(policy) and not _data_can_change(plan):
        return replace(found, status=VACUOUS)
    return replace(found, epsilon=_epsilon_of(found))


def of_group(found: Guarantee, people: int) -> Guarantee:
    """Turn a guarantee about one record into that about as many records that change alike, each in its own way.

    The changes of the answers add as vectors, so by the triangle inequality sqrt(rho), mu and epsilon grow at most by
    the number of people (``moves.md``). The policy is called ``group``.
    """
    if found.epsilon is None:
        return replace(found, policy="group", adjacency=None)
    group = replace(
        found,
        policy="group",
        adjacency=None,
        rho=_times(found.rho, people**2),
        pure=_times(found.pure, people),
        mu_squared=_times(found.mu_squared, people**2),
        move=None,
        condition=None,
    )
    return replace(group, epsilon=_epsilon_of(group))


def _times(loss: Loss, factor: int) -> Loss:
    return loss if isinstance(loss, NotSupported) else loss * factor


def _epsilon_of(found: Guarantee) -> float:
    """Smallest of the epsilons that hold at delta."""
    if found.rho == 0:
        return 0.0
    epsilons = [
        *(epsilon_upper(loss, found.delta) for loss in (found.rho,) if isinstance(loss, Fraction)),
        *(math.nextafter(float(loss), math.inf) for loss in (found.pure,) if isinstance(loss, Fraction)),
        *(gdp_epsilon_upper(_root_upper(mu), found.delta) for mu in (found.mu_squared,) if isinstance(mu, Fraction)),
    ]
    return min(epsilons, default=math.inf)


def _honours_facts(policy: Policy) -> bool:
    """Whether only data sets are compared in which all public facts are true; secret pairs do as policies do."""
    return policy not in POLICIES or POLICIES[policy].is_effective


def _root_upper(square: Fraction) -> float:
    return math.sqrt(square) * (1 + 2.0**-50)


def _data_can_change(plan: HierarchicalPlan | TablePlan) -> bool:
    """Tell whether the public facts leave more than one histogram."""
    if isinstance(plan, TablePlan):
        return plan.facts.values is None or plan.facts.records is None or len(data_space(plan.facts)) > 1
    return can_change_alone(plan)


def _assumptions(plan: HierarchicalPlan | TablePlan, policy: str) -> tuple[str, ...]:
    if not _honours_facts(policy):
        return ("nothing is public",)
    if isinstance(plan, TablePlan):
        return ("exactly the declared facts are public",)
    public = [f"{level} {query}" for level, query in plan.invariants]
    public += [f"bounds on {level} {query}" for level, query in plan.bounds]
    return (f"exactly this is public: {', '.join(public) or 'nothing'}",)
