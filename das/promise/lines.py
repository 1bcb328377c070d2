"""The numbers of an account as a statement quotes them: each guarantee with its condition and what can be learnt."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from das.accounting.bounds import compensation_is_proved
from das.accounting.condition import ONE_IS_ENOUGH, Condition, Kind
from das.accounting.conversion import epsilon_upper
from das.accounting.events import LaplaceEvent, NotSupported
from das.accounting.hierarchy import HierarchicalPlan
from das.accounting.joint import Drawn, given_noise, is_mixed, not_supported, parts_of
from das.accounting.moves import Move, Secret, secret_moves, within_class_moves
from das.accounting.pld import LossDistribution, loss_distribution
from das.accounting.policies import (
    POLICIES,
    Guarantee,
    guarantee,
    nominal_secret_guarantee,
    of_group,
    policy_moves,
    secret_guarantee,
)
from das.accounting.quote import Number, Quote
from das.accounting.tight import move_distributions
from das.accounting.tradeoff import Learnt, Losses, learnt_of, losses_of_curve, losses_of_distribution
from das.exact import decimal_upper, float_upper

__all__ = ["Lines", "quoted_epsilon"]

Distributions = tuple[LossDistribution, ...] | NotSupported
Moves = Iterable[Move] | NotSupported


@dataclass(frozen=True)
class Lines:
    """What all numbers of one account share: the plan, delta, and the releases whose noise was conditioned.

    Several releases are one plan here, with the events and the public facts of all of them.
    """

    whole: HierarchicalPlan
    delta: Fraction
    drawn: tuple[Drawn, ...] = ()

    @cached_property
    def semi(self) -> Guarantee:
        """The policy `semi`: what never costs less than a change that a bound makes others join."""
        return self.under("semi")

    @cached_property
    def nearest(self) -> Guarantee:
        """Any change of one record that keeps the invariants, of noise that is not conditioned."""
        return guarantee(self.whole, "nearest", self.delta)

    def under(self, policy: str) -> Guarantee:
        """Give the guarantee of a policy, its condition included."""
        found, entry = guarantee(self.whole, policy, self.delta), POLICIES[policy]
        found = self.priced(found, *self._in_a_row(policy, found.adjacency))
        if not self.whole.bounds or not entry.is_effective or found.epsilon is None:
            return found
        if entry.has_compensation:
            return replace(found, condition=None if compensation_is_proved(self.whole) else _one_compensates())
        return self._given_bounds(found, self.alone(None, found))

    def about(self, secret: Secret) -> Guarantee:
        """Give the guarantee of a secret, its condition included."""
        found = self.priced(secret_guarantee(self.whole, secret, self.delta), secret_moves(self.whole, secret))
        touched = any(_may_touch(self.whole, secret, query) for _, query in self.whole.bounds)
        if not touched or found.epsilon is None:
            return found
        return self._given_bounds(found, self.alone(None if self.drawn else self.nearest, found))

    def _given_bounds(self, found: Guarantee, condition: Condition) -> Guarantee:
        """Add what holds otherwise, and the delta that it may need."""
        return replace(found, condition=condition, added_delta=max(found.added_delta, self.semi.added_delta))

    def group(self, secret: Secret, people: int) -> tuple[Guarantee, Guarantee]:
        """Give the guarantee of people who each change as a secret allows, and that of as many of policy `semi`."""
        alone, semi = secret_guarantee(self.whole, secret, self.delta), guarantee(self.whole, "semi", self.delta)
        moves, steps = self._in_a_row("semi", semi.adjacency)
        return (
            self.priced(of_group(alone, people), secret_moves(self.whole, secret), people),
            self.priced(of_group(semi, people), moves, people * steps),
        )

    def _in_a_row(self, policy: str, adjacency: int | None) -> tuple[Moves, int]:
        """Give the moves of a policy; a ball of conditioned noise as changes in a row (``conditioned_tree.md``)."""
        if self.drawn and POLICIES[policy].has_compensation and adjacency:
            return tuple(within_class_moves(self.whole)), adjacency
        return policy_moves(self.whole, policy)[0], 1

    def priced(self, found: Guarantee, moves: Moves, steps: int = 1) -> Guarantee:
        """Account moves by kind of noise where it is conditioned or mixed; otherwise the guarantee stands."""
        if found.epsilon is None or isinstance(moves, NotSupported) or not (self.drawn or is_mixed(self.whole)):
            return found
        parts = parts_of(self.whole, self.drawn, moves)
        if isinstance(parts, NotSupported):
            return not_supported(found, parts)
        return given_noise(found, parts, self.drawn, steps)

    def policy_line(self, policy: str) -> Quote:
        """Quote a policy."""
        found = self.under(policy)
        moves, _ = policy_moves(self.whole, policy)
        return self.line("effective", {"policy": policy, "a": found.adjacency}, found, moves)

    def secret_line(self, group: str, about: Mapping[str, Any], secret: Secret) -> Quote:
        """Quote a secret, beside the nominal number for the same."""
        moves = secret_moves(self.whole, secret)
        line = self.line(group, about, self.about(secret), moves if isinstance(moves, NotSupported) else tuple(moves))
        nominal = nominal_secret_guarantee(self.whole, secret, self.delta)
        return replace(line, nominal_epsilon=quoted_epsilon(nominal))

    def line(
        self, group: str, about: Mapping[str, Any], found: Guarantee, moves: tuple[Move, ...] | NotSupported
    ) -> Quote:
        """Quote a guarantee, with the exact distributions of its moves where they are known."""
        exact: Distributions = NotSupported("conditioned noise has no such distribution here")
        if not self.drawn and found.epsilon is not None and not isinstance(moves, NotSupported):
            exact = move_distributions(self.whole, moves)
        return Quote(
            group=group,
            about=about,
            rho=_number(found.rho),
            pure_epsilon=_number(found.pure),
            epsilon=quoted_epsilon(found),
            tight_epsilon=self.tight(found, exact),
            status=found.status,
            condition=found.condition,
            assumptions=found.assumptions,
            learnt=self.learnt(found, exact),
            added_delta=decimal_upper(found.added_delta) if found.added_delta else None,
            reason=found.rho.reason if found.status == "not supported" and isinstance(found.rho, NotSupported) else "",
        )

    def tight(self, found: Guarantee, exact: Distributions) -> Number:
        """Epsilon at delta from exact distributions: a guarantee, and below that of zCDP. Pure DP needs none."""
        if self.drawn or found.policy == "group" or found.epsilon is None:
            return None
        if isinstance(found.pure, Fraction):
            return None
        if isinstance(exact, NotSupported):
            return "not supported"
        return _finite(max((each.epsilon_upper(self.delta) for each in exact), default=0.0))

    def learnt(self, found: Guarantee, exact: Distributions) -> Learnt | None:
        """Bound what an attacker learns: from exact distributions, or else from every (epsilon, delta) that holds."""
        if found.epsilon is None or found.epsilon == math.inf:
            return None
        if not isinstance(exact, NotSupported):
            return learnt_of([losses_of_distribution(each) for each in exact]) if exact else None
        return learnt_of([self._losses(found)])

    def _losses(self, found: Guarantee) -> Losses:
        if isinstance(found.pure, Fraction):
            # every epsilon-DP pair is a post-processing of randomised response (Kairouz, Oh and Viswanath 2015)
            response = LaplaceEvent(level="", query="", scale=1 / found.pure) if found.pure else None
            answered = loss_distribution([(response, (1,))] if response else [])
            if isinstance(answered, LossDistribution):
                losses = losses_of_distribution(answered)
                return replace(losses, infinite=losses.infinite + float_upper(found.added_delta))

        def epsilon_at(delta: float) -> float:
            at = replace(found, delta=Fraction(delta), status="proved")
            if not found.parts:
                return epsilon_upper(found.rho, at.delta) if isinstance(found.rho, Fraction) else math.inf
            epsilon = given_noise(at, found.parts, self.drawn, found.steps).epsilon
            return math.inf if epsilon is None else epsilon

        return losses_of_curve(epsilon_at)

    def alone(self, companion: Guarantee | None, found: Guarantee) -> Condition:
        """Say what holds where a published bound makes other records change along (``das/accounting/bounds.md``).

        Records together cost at most (sqrt(rho) + sqrt(rho') + ...)^2, or epsilon + epsilon' + ..., where each further
        one is any change of one record, the companion; and never more than the ball of a(t) records. Conditioned noise
        has the ball's bound alone, in which two changes follow one another (``conditioned_tree.md``, Theorem 4).
        """
        worst, others = quoted_epsilon(self.semi), (self.semi.adjacency or 2) - 1
        if companion is not None and isinstance(found.rho, Fraction) and isinstance(companion.rho, Fraction):
            pair = (math.sqrt(found.rho) + others * math.sqrt(companion.rho)) ** 2 * (1 + 1e-12)
            mixed: float = epsilon_upper(Fraction(pair), found.delta)
            if isinstance(found.pure, Fraction) and isinstance(companion.pure, Fraction):
                mixed = decimal_upper(found.pure + others * companion.pure)
            worst = min(mixed, worst) if isinstance(worst, float) else mixed
        return Condition(
            kind=Kind.ALONE,
            words="if the change alone keeps every published bound",
            otherwise=worst,
            otherwise_if="" if compensation_is_proved(self.whole) else ONE_IS_ENOUGH,
        )


def quoted_epsilon(found: Guarantee) -> Number:
    """Epsilon as the plan's framework means it: without delta where there is a pure one."""
    if found.status == "proved" and isinstance(found.pure, Fraction):
        return decimal_upper(found.pure)
    return None if found.epsilon is None else _finite(found.epsilon)


def _number(loss: Fraction | float | NotSupported) -> Number:
    """A loss as a number rounded up, or in words; what is not known is never zero."""
    if isinstance(loss, NotSupported):
        return "not supported"
    return "infinite" if isinstance(loss, float) and loss == math.inf else decimal_upper(Fraction(loss))


def _one_compensates() -> Condition:
    return Condition(kind=Kind.ONE_COMPENSATES, words=f"if {ONE_IS_ENOUGH}")


def _finite(epsilon: float) -> float | str:
    return "infinite" if epsilon == math.inf else epsilon


def _may_touch(whole: HierarchicalPlan, secret: Secret, query: str) -> bool:
    """Whether another value of the secret may change an answer of a query in some geounit."""
    if secret.within != whole.levels[-1]:
        return True  # another leaf is another geounit of the bound
    kept = {name for (name, _), map_ in zip(whole.attributes, whole.queries[query], strict=True) if map_ is not None}
    return bool(kept if secret.attributes is None else kept & secret.attributes)
