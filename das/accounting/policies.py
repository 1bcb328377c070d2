"""Who is protected against learning what: the adjacency policies, and the guarantee each of them gives.

====================  ==============================================================================================
``semi``              any at most a(t) records change and nothing public changes (Cho and Awan 2024): the headline
``irreducible``       at most a(t) records change that need each other to keep what is public
``nearest``           the smallest change of the data that keeps what is public (Gong and Meng 2020): the weakest
``unconstrained``     one record changes, as if nothing were public: the nominal number
====================  ==============================================================================================

`secret_guarantee` is the fifth, secret-pair: one record changes in a stated way and as few others as possible
compensate it. Costs are summed over the events for each move and only then is the largest taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

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
from das.accounting.small_table.dataspace import TableFacts, data_space, semi_adjacency
from das.accounting.small_table.enumeration import net_moves
from das.accounting.small_table.plan import TablePlan, secret_pair_moves

__all__ = [
    "Guarantee",
    "Policy",
    "attribute_secrets",
    "geography_secrets",
    "guarantee",
    "nominal_secret_guarantee",
    "policy_moves",
    "secret_guarantee",
]

Policy = Literal["semi", "irreducible", "nearest", "unconstrained"]
Status = Literal[
    "proved",
    "not supported",
    "VACUOUS - data determined by invariants",
    "conditioning: numerically verified, not proved",
]
VACUOUS: Status = "VACUOUS - data determined by invariants"
UNPROVED: Status = "conditioning: numerically verified, not proved"


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
        ``proved``, ``not supported``, the vacuous case, which is never an epsilon of 0, or what conditioned noise has
        been tried on but not proved for.
    assumptions : tuple of str
        What must be true for the promise to hold, beyond the plan.
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
    found = _account(plan, policy, moves, delta)
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
    result = _account(plan, "secret-pair", moves, delta)
    return replace(result, secret=name, assumptions=_assumptions(plan, "secret-pair"))


def nominal_secret_guarantee(plan: HierarchicalPlan, secret: Secret, delta: Fraction) -> Guarantee:
    """Account a plan for one secret as if nothing were public: the numbers of the Bureau's certificates."""
    moves = tuple(unconstrained_moves(plan, secret))
    return replace(_account(plan, "unconstrained", moves, delta), secret=secret.name)


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


def policy_moves(
    plan: HierarchicalPlan | TablePlan, policy: Policy
) -> tuple[tuple[Move, ...] | NotSupported, int | None]:
    """Give the moves a policy compares, largest ones only, and the a(t) it rests on."""
    if isinstance(plan, TablePlan):
        return _table_moves(plan, policy)
    match policy:
        case "unconstrained":
            return tuple(unconstrained_moves(plan)), None
        case "nearest":
            finest = finest_invariant(plan)
            if isinstance(finest, NotSupported) and not can_change_alone(plan):
                return finest, None
            return tuple(within_class_moves(plan)), None
        case "semi" | "irreducible":
            a = adjacency(plan)
            if isinstance(a, NotSupported):
                return a, None
            groups = (ball_moves(plan, a),) if policy == "semi" else (within_class_moves(plan), exchange_moves(plan))
            moves: list[Move] = []
            for group in groups:
                if isinstance(group, NotSupported):
                    return group, a
                moves.extend(group)
            return tuple(moves), a


def _table_moves(plan: TablePlan, policy: Policy) -> tuple[tuple[Move, ...] | NotSupported, int | None]:
    if policy == "unconstrained":
        free = TableFacts(cells=plan.facts.cells, zeros=plan.facts.zeros)
        return plan.seen(net_moves(free, 1), "anything about one person"), None
    if plan.facts.values is None or plan.facts.records is None:
        return NotSupported("a(t) of a table needs the published values"), None
    a = semi_adjacency(plan.facts)
    match policy:
        case "semi":
            return plan.ball(a), a
        case "irreducible":
            return plan.irreducible(a), a
        case _:
            sizes = (plan.ball(size) for size in range(1, a + 1))
            return next((moves for moves in sizes if moves), ()), None


def _account(
    plan: HierarchicalPlan | TablePlan, policy: str, moves: tuple[Move, ...] | NotSupported, delta: Fraction
) -> Guarantee:
    exact = checked_delta(delta)
    if isinstance(moves, NotSupported):
        return Guarantee(
            policy=policy, delta=exact, rho=moves, pure=moves, mu_squared=moves, epsilon=None, status="not supported"
        )
    rho, move = worst_loss(moves, plan.events, "zcdp")
    pure, _ = worst_loss(moves, plan.events, "pure")
    mu_squared, _ = worst_loss(moves, plan.events, "gdp")
    epsilons = [
        *(epsilon_upper(loss, exact) for loss in (rho,) if isinstance(loss, Fraction)),
        *(math.nextafter(float(loss), math.inf) for loss in (pure,) if isinstance(loss, Fraction)),
        *(gdp_epsilon_upper(_root_upper(loss), exact) for loss in (mu_squared,) if isinstance(loss, Fraction)),
    ]
    found = Guarantee(
        policy=policy, delta=exact, rho=rho, pure=pure, mu_squared=mu_squared, epsilon=None, status="proved", move=move
    )
    if not epsilons and all(isinstance(loss, NotSupported) for loss in (rho, pure, mu_squared)):
        return replace(found, status="not supported")
    if policy != "unconstrained" and not _data_can_change(plan):
        return replace(found, status=VACUOUS)
    return replace(found, epsilon=0.0 if rho == 0 else min(epsilons, default=math.inf))


def _root_upper(square: Fraction) -> float:
    return math.sqrt(square) * (1 + 2.0**-50)


def _data_can_change(plan: HierarchicalPlan | TablePlan) -> bool:
    """Tell whether the public facts leave more than one histogram."""
    if isinstance(plan, TablePlan):
        return plan.facts.values is None or plan.facts.records is None or len(data_space(plan.facts)) > 1
    return can_change_alone(plan)


def _assumptions(plan: HierarchicalPlan | TablePlan, policy: str) -> tuple[str, ...]:
    if policy == "unconstrained":
        return ("nothing is public",)
    if isinstance(plan, TablePlan):
        return ("exactly the declared facts are public",)
    public = [f"{level} {query}" for level, query in plan.invariants]
    public += [f"bounds on {level} {query}" for level, query in plan.bounds]
    stated = [f"exactly this is public: {', '.join(public) or 'nothing'}"]
    if plan.bounds:
        stated.append("each person has a stand-in whom no public bound holds in place")
    return tuple(stated)
