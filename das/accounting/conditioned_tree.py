"""Privacy cost of noise on a tree of counts that is conditioned on the public facts.

The congenial method draws counts from the noise *given* that they add up, are not negative and keep the public facts.
Its cost is that of the noise plus the log-ratio of two normalisers, which can be bounded on a tree.
``conditioned_tree.md`` has the proofs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from das.accounting.conversion import checked_delta
from das.accounting.events import GaussianEvent, LaplaceEvent, NotSupported
from das.accounting.hierarchy import HierarchicalPlan
from das.accounting.policies import POLICIES, UNPROVED, Guarantee

__all__ = ["PROMISED", "TreeSampler", "conditioned_on_tree", "geometric_on_tree_upper", "integer_order_epsilon_upper"]

ROUNDING = 2.0**-44


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSampler:
    """Proved bounds on the distance of the sampler's law from the claimed one, for every data set; fixed in advance.

    Parameters
    ----------
    total_variation : Fraction
        Bound on the total variation, from windows and finite random words.
    log_ratio : Fraction
        Bound on the log-ratio of each probability, from rounding.
    """

    total_variation: Fraction
    log_ratio: Fraction


PROMISED = TreeSampler(total_variation=Fraction(1, 2**90), log_ratio=Fraction(1, 2**13))
"""The bounds that the congenial sampler proves for every draw before it makes it, for every data set."""


def integer_order_epsilon_upper(rho: Fraction, delta: Fraction) -> float:
    """Smallest epsilon at delta when Rényi divergences of integer order alpha are at most alpha rho, rounded up.

    The conversion of Canonne, Kamath and Steinke (2020, Proposition 12), order by order: with ``t = alpha - 1``,
    ``epsilon(t) = (1 + t) rho + log(t / (1 + t)) + (log(1/delta) - log(1 + t)) / t``. It falls and then rises in t.

    Examples
    --------
    >>> from das.accounting.conversion import epsilon_upper
    >>> rho, delta = Fraction(542, 339) ** 2, Fraction(1, 10**10)
    >>> round(integer_order_epsilon_upper(rho, delta), 4), round(epsilon_upper(rho, delta), 4)
    (17.1504, 17.1436)
    >>> integer_order_epsilon_upper(Fraction(0), delta)
    0.0
    """
    cost, log_inverse = float(rho) * (1 + ROUNDING), -math.log(checked_delta(delta))
    if cost == 0:
        return 0.0

    def epsilon(t: int) -> float:
        terms = ((1 + t) * cost, -math.log1p(1 / t), log_inverse / t, -math.log1p(t) / t)
        return math.fsum(terms) + ROUNDING * math.fsum(map(abs, terms))

    t = 1
    while t < 2**60 and epsilon(2 * t) < epsilon(t):
        t *= 2
    low, high = max(1, t // 2), 2 * t  # the smallest value lies between: bisect on the sign of the difference
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if epsilon(middle) <= epsilon(middle + 1) else (middle + 1, high)
    return max(0.0, epsilon(low))


def geometric_on_tree_upper(loss: Fraction, smallest: Fraction) -> float:
    """Epsilon of conditioned double-geometric noise whose unconditioned loss for a move is ``loss``, rounded up.

    ``smallest`` is the smallest epsilon of a single count that the move changes, zero for one that is bounded but not
    measured: ``E + log(1 + e^(E - 2e) (1 - e^-E))``.

    Examples
    --------
    >>> round(geometric_on_tree_upper(Fraction(1), Fraction(1, 2)), 5)  # one total: 2 eps0 + log(2 - e^(-2 eps0))
    1.48988
    """
    whole, least = float(loss), float(smallest)
    if whole == 0:
        return 0.0
    # log(1 + e^(E - 2e) - e^(-2e)), without overflow where E is large
    exponent = whole - 2 * least
    above = exponent + math.log1p(math.exp(-exponent) * -math.expm1(-2 * least)) if exponent > 30 else None
    rest = above if above is not None else math.log1p(math.exp(exponent) * -math.expm1(-whole))
    return (whole + rest) * (1 + ROUNDING)


def conditioned_on_tree(found: Guarantee, plan: HierarchicalPlan, sampler: TreeSampler) -> Guarantee:
    """Turn the guarantee of unconditioned noise into that of conditioned noise, for the same moves.

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
    if found.status != "proved":
        return found
    if all(isinstance(event, GaussianEvent) for event in plan.events) and isinstance(found.rho, Fraction):
        return _gaussian(found, found.rho, sampler)
    scales = [event.scale for event in plan.events if isinstance(event, LaplaceEvent)]
    if len(scales) == len(plan.events) and isinstance(found.pure, Fraction):
        measured = {(event.level, event.query) for event in plan.events}
        # A bounded count that is not measured constrains the draw without noise: its epsilon is zero.
        smallest = 1 / max(scales) if scales and measured.issuperset(plan.bounds) else Fraction(0)
        return _geometric(found, found.pure, smallest, sampler)
    unknown = NotSupported("conditioned noise of several kinds")
    return replace(found, rho=unknown, pure=unknown, mu_squared=unknown, epsilon=None, status="not supported")


def _is_covered(found: Guarantee) -> bool:
    """Whether the theorem on Gaussian noise covers the moves of a guarantee: one record, or a policy that it names."""
    if found.policy == "secret-pair" or found.adjacency == 1:
        return True
    return found.policy in POLICIES and POLICIES[found.policy].is_covered_on_trees


def _gaussian(found: Guarantee, rho: Fraction, sampler: TreeSampler) -> Guarantee:
    kept = found.delta * Fraction(1023, 1024)
    epsilon = integer_order_epsilon_upper(rho, kept) + 2 * float(sampler.log_ratio)
    unknown = NotSupported("conditioned noise is accounted at integer orders only")
    if _factor_upper(sampler) * kept + _added_delta(epsilon, sampler) > found.delta:
        return _error_too_large(found)
    return replace(
        found,
        mu_squared=unknown,
        epsilon=epsilon if rho else 0.0,
        status="proved" if _is_covered(found) else UNPROVED,
        assumptions=(*found.assumptions, "rho at integer orders"),
    )


def _geometric(found: Guarantee, loss: Fraction, smallest: Fraction, sampler: TreeSampler) -> Guarantee:
    epsilon = geometric_on_tree_upper(loss, smallest) + 2 * float(sampler.log_ratio)
    added = _added_delta(epsilon, sampler)
    if added > found.delta:  # e^epsilon times the total variation exceeds delta for large epsilon
        return _error_too_large(found)
    words = f"and delta {float(added):.1e}, which the sampler's windows add" if added else "and no delta"
    unknown = NotSupported("conditioned noise of the Laplace kind is accounted by its pure loss")
    pure = Fraction(epsilon) if loss else Fraction(0)
    assumptions = (*found.assumptions, words)
    return replace(found, rho=unknown, mu_squared=unknown, pure=pure, epsilon=float(pure), assumptions=assumptions)


def _added_delta(epsilon: float, sampler: TreeSampler) -> Fraction:
    """Delta that the total variation adds: ``(e^lambda + e^epsilon) eta``."""
    grown = Fraction(math.exp(min(epsilon, 700.0)) * (1 + ROUNDING))
    return (_factor_upper(sampler) + grown) * sampler.total_variation


def _factor_upper(sampler: TreeSampler) -> Fraction:
    """Upper bound on ``e^lambda``, for lambda at most 1."""
    return 1 + sampler.log_ratio + sampler.log_ratio**2


def _error_too_large(found: Guarantee) -> Guarantee:
    reason = NotSupported("the sampler's error exceeds what delta leaves for it")
    return replace(found, rho=reason, pure=reason, mu_squared=reason, epsilon=None, status="not supported")
