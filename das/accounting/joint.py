"""Noise of different kinds, conditioned or not, as one loss: several releases of the same people together.

Each release is independent noise of its own, so between two data sets Rényi divergences of one order add up, and pure
epsilons do. Gaussian noise gives a divergence of ``order * rho``; noise of the Laplace kind the smaller of ``order *
rho`` and its epsilon. Conditioned noise is accounted on the same pair of data sets: both keep the facts of every
release, so they keep its own. ``joint.md`` has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from das.accounting.conditioned_tree import TreeSampler, integer_order_epsilon_upper
from das.accounting.conversion import epsilon_upper
from das.accounting.events import Change, Event, GaussianEvent, LaplaceEvent, NotSupported, pure_epsilon, zcdp_rho
from das.accounting.hierarchy import HierarchicalPlan, finest_invariant, implied
from das.accounting.moves import Move
from das.accounting.parts import Parts
from das.accounting.policies import Guarantee

__all__ = ["Drawn", "conditioned_on_tree", "given_noise", "is_mixed", "not_supported", "parts_of"]

ROUNDING = 2.0**-44
INTEGER_ORDERS = "rho holds at integer Rényi orders, and epsilon is computed from these alone"
RESERVED = Fraction(1, 1024)  # of delta, for the errors of each sampler
TOGETHER: Change = (2, -2)


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A release whose noise was conditioned: its own plan, whose facts it keeps, and the errors of its sampler."""

    plan: HierarchicalPlan
    sampler: TreeSampler

    @property
    def is_gaussian(self) -> bool:
        """Whether all its noise is Gaussian; otherwise it is of the Laplace kind."""
        return all(isinstance(event, GaussianEvent) for event in self.plan.events)

    @property
    def is_known(self) -> bool:
        """Whether its noise is of one kind: nothing is proved of conditioned noise of several."""
        return self.is_gaussian or all(isinstance(event, LaplaceEvent) for event in self.plan.events)

    @property
    def smallest(self) -> Fraction:
        """Smallest epsilon of one count that is measured or bounded, for Theorem 3 of ``conditioned_tree.md``."""
        scales = [event.scale for event in self.plan.events if isinstance(event, LaplaceEvent)]
        measured = {(event.level, event.query) for event in self.plan.events}
        # A bounded count that is not measured constrains the draw without noise: its epsilon is zero.
        return 1 / max(scales) if scales and measured.issuperset(self.plan.bounds) else Fraction(0)


def is_mixed(plan: HierarchicalPlan) -> bool:
    """Tell whether some noise is Gaussian and some is not.

    Examples
    --------
    >>> events = (GaussianEvent(level="us", query="sex", sigma2=Fraction(4)),
    ...           LaplaceEvent(level="us", query="sex", scale=Fraction(4)))
    >>> plan = HierarchicalPlan(levels=("us",), units=(1,), attributes=(("sex", 2),), queries={"sex": ((0, 1),)},
    ...                         events=events)
    >>> is_mixed(plan)
    True
    """
    return len({isinstance(event, GaussianEvent) for event in plan.events}) > 1


def parts_of(
    whole: HierarchicalPlan, drawn: Sequence[Drawn], moves: Iterable[Move]
) -> tuple[Parts, ...] | NotSupported:
    """Split the cost of each move by kind of noise; `whole` has the events of all releases, the drawn ones included."""
    if any(not each.is_known for each in drawn):
        return NotSupported("conditioned noise of several kinds")
    finest = found if isinstance(found := finest_invariant(whole), tuple) else None
    plain = list(whole.events)
    for each in drawn:
        for event in each.plan.events:
            plain.remove(event)
    priced = []
    for move in moves:
        gaussian, pure, pure_rho = Fraction(0), Fraction(0), Fraction(0)
        for event in plain:
            if isinstance(event, GaussianEvent):
                gaussian += _known(zcdp_rho(event, move.change(event)))
                continue
            losses = pure_epsilon(event, move.change(event)), zcdp_rho(event, move.change(event))
            if not all(isinstance(loss, Fraction) for loss in losses):
                return NotSupported(f"{event.level}/{event.query}: it has no finite loss beside conditioned noise")
            pure, pure_rho = pure + _known(losses[0]), pure_rho + _known(losses[1])
        conditioned = []
        for each in drawn:
            if each.is_gaussian:
                gaussian += _conditioned_rho(each, move, _has_classes(whole, finest, each.plan))
            else:
                loss = sum((_known(pure_epsilon(e, move.change(e))) for e in each.plan.events), Fraction(0))
                conditioned.append((loss, each.smallest))
        priced.append(Parts(gaussian=gaussian, pure=pure, pure_rho=pure_rho, conditioned=tuple(conditioned)))
    return tuple(priced)


def given_noise(found: Guarantee, parts: Sequence[Parts], drawn: Sequence[Drawn], steps: int = 1) -> Guarantee:
    """Account moves by the parts of their cost, at the delta of a guarantee about the same moves.

    Parameters
    ----------
    found : Guarantee
        What is compared; its numbers are replaced.
    parts : sequence of Parts
        Of each move; with several steps, of what each of as many people may change.
    drawn : sequence of Drawn
        The releases whose noise was conditioned.
    """
    if found.status != "proved":
        return found
    found = replace(found, parts=tuple(parts), steps=steps)
    listed = parts if steps == 1 else (Parts.largest(parts),)
    sampler = TreeSampler(
        total_variation=sum((each.sampler.total_variation for each in drawn), Fraction(0)),
        log_ratio=sum((each.sampler.log_ratio for each in drawn), Fraction(0)),
    )
    apart = [each.without_delta(steps) for each in listed]
    if drawn and not any(each.gaussian for each in listed) and not any(each.is_gaussian for each in drawn):
        return _without_delta(found, max((pure for pure, _ in apart), default=Fraction(0)), sampler)
    kept = found.delta * (1 - len(drawn) * RESERVED)
    in_orders = any(each.is_gaussian for each in drawn)

    def epsilon_of(rho: Fraction) -> float:
        return integer_order_epsilon_upper(rho, kept, steps) if in_orders else epsilon_upper(steps**2 * rho, kept)

    epsilon, rho = 0.0, Fraction(0)
    for each, (pure, pure_rho) in zip(listed, apart, strict=True):
        together = epsilon_of(each.gaussian + pure_rho / steps**2)
        epsilon = max(epsilon, min(together, (float(pure) + epsilon_of(each.gaussian)) * (1 + ROUNDING)))
        rho = max(rho, steps**2 * each.gaussian + pure_rho)
    if epsilon:
        epsilon += 2 * float(sampler.log_ratio)
    if _factor_upper(sampler) * kept + _added_delta(epsilon, sampler) > found.delta:
        return _error_too_large(found)
    needs_delta = bool(drawn) or any(each.gaussian for each in listed)
    return replace(
        found,
        rho=rho,
        pure=math.inf if needs_delta else max((pure for pure, _ in apart), default=Fraction(0)),
        mu_squared=NotSupported("conditioned or mixed noise has no mu"),
        epsilon=epsilon,
        assumptions=(*found.assumptions, *((INTEGER_ORDERS,) if in_orders else ())),
    )


def conditioned_on_tree(found: Guarantee, plan: HierarchicalPlan, sampler: TreeSampler) -> Guarantee:
    """Turn the guarantee of one release's unconditioned noise into that of conditioned noise, for the same moves.

    Examples
    --------
    >>> from das.accounting.policies import guarantee
    >>> plan = HierarchicalPlan(
    ...     levels=("us",), units=(1,), attributes=(("sex", 2),), queries={"total": (None,), "sex": ((0, 1),)},
    ...     events=(GaussianEvent(level="us", query="sex", sigma2=Fraction(4)),), invariants=(("us", "total"),))
    >>> exact = TreeSampler(total_variation=Fraction(0), log_ratio=Fraction(0))
    >>> plain = guarantee(plan, "irreducible", Fraction(1, 10**10))
    >>> given = conditioned_on_tree(plain, plan, exact)
    >>> round(plain.epsilon, 3), round(given.epsilon, 3), given.status
    (4.697, 4.697, 'proved')
    """
    drawn = Drawn(plan=plan, sampler=sampler)
    if found.status != "proved":
        return found
    steps = found.adjacency if found.policy == "semi" and found.adjacency else 1
    if drawn.is_gaussian and isinstance(found.rho, Fraction):
        return given_noise(found, [Parts(gaussian=found.rho / steps**2)], [drawn], steps)
    if drawn.is_known and isinstance(found.pure, Fraction):
        return given_noise(found, [Parts(conditioned=((found.pure, drawn.smallest),))], [drawn])
    return not_supported(found, NotSupported("conditioned noise of several kinds"))


def not_supported(found: Guarantee, reason: NotSupported) -> Guarantee:
    """Replace the numbers of a guarantee by the reason why there are none."""
    return replace(found, rho=reason, pure=reason, mu_squared=reason, epsilon=None, status="not supported")


def _known(loss: object) -> Fraction:
    return loss if isinstance(loss, Fraction) else Fraction(0)


def _conditioned_rho(drawn: Drawn, move: Move, has_classes: bool) -> Fraction:
    """Rho of conditioned Gaussian noise for a move of one record, or of two that trade classes.

    Two records that trade classes of all facts together may change within one class of this release's own facts. Then
    they are two changes in a row, and cost at most what two records cost that change alike (``joint.md``).
    """
    in_a_row = move.records > 1 and not has_classes
    changes: list[tuple[Event, Change]] = [(event, move.change(event)) for event in drawn.plan.events]
    return sum(
        (_known(zcdp_rho(event, TOGETHER if change and in_a_row else change)) for event, change in changes),
        Fraction(0),
    )


def _has_classes(whole: HierarchicalPlan, finest: tuple[str, str] | None, own: HierarchicalPlan) -> bool:
    """Whether the classes of all facts together are those of a release's own facts."""
    mine = finest_invariant(own)
    return isinstance(mine, tuple) and finest is not None and implied(whole, finest[0], finest[1], by=mine)


def _without_delta(found: Guarantee, loss: Fraction, sampler: TreeSampler) -> Guarantee:
    """Account noise of the Laplace kind alone: its loss is pure, but for what the samplers' windows add."""
    epsilon = (float(loss) * (1 + 2.0**-52) + 2 * float(sampler.log_ratio)) if loss else 0.0
    added = _added_delta(epsilon, sampler)
    if added > found.delta:  # e^epsilon times the total variation exceeds delta for large epsilon
        return _error_too_large(found)
    unknown = NotSupported("conditioned noise of the Laplace kind is accounted by its pure loss")
    return replace(found, rho=unknown, mu_squared=unknown, pure=Fraction(epsilon), epsilon=epsilon, added_delta=added)


def _added_delta(epsilon: float, sampler: TreeSampler) -> Fraction:
    """Delta that the total variation adds: ``(e^lambda + e^epsilon) eta``."""
    grown = Fraction(math.exp(min(epsilon, 700.0)) * (1 + ROUNDING))
    return (_factor_upper(sampler) + grown) * sampler.total_variation


def _factor_upper(sampler: TreeSampler) -> Fraction:
    """Upper bound on ``e^lambda``, for lambda at most 1."""
    return 1 + sampler.log_ratio + sampler.log_ratio**2


def _error_too_large(found: Guarantee) -> Guarantee:
    return not_supported(found, NotSupported("the sampler's error exceeds what delta leaves for it"))
