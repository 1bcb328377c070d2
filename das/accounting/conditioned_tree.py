"""Privacy cost of noise on a tree of counts that is conditioned on the public facts.

The congenial method draws counts from the noise *given* that they add up, are not negative and keep the public facts.
Its cost is that of the noise plus the log-ratio of two normalisers, which can be bounded on a tree.
``conditioned_tree.md`` has the proofs; ``das.accounting.joint`` puts these costs together with those of other releases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from das.accounting.conversion import checked_delta

__all__ = ["PROMISED", "TreeSampler", "chained_order", "geometric_on_tree_upper", "integer_order_epsilon_upper"]

ROUNDING = 2.0**-44
NEARBY = 3  # orders on each side of the best that are tried where several changes follow one another


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


@lru_cache(maxsize=4096)
def chained_order(steps: int, order: Fraction) -> Fraction:
    """Bound the Rényi divergence of several changes in a row, in units of the rho of one change.

    It is known of each change that the divergence of every integer order n >= 2 is at most n rho. Changes are put
    together by the triangle inequality for Rényi divergences, orders between integers by the convexity of
    ``(order - 1) D`` (``conditioned_tree.md``, Theorem 4). It is ``steps^2 order``, as for zCDP, or hardly more.

    Examples
    --------
    >>> [chained_order(steps, Fraction(2)) for steps in (1, 2, 3, 4, 6)] == [2, 8, 18, 32, 72]
    True
    >>> float(chained_order(5, Fraction(2)) / 50)
    1.0285714285714285
    """
    if order.denominator != 1:
        low, high = math.floor(order), math.ceil(order)
        below = (low - 1) * chained_order(steps, Fraction(low)) if low > 1 else Fraction(0)
        above = (high - 1) * chained_order(steps, Fraction(high))
        return ((high - order) * below + (order - low) * above) / (order - 1)
    if steps == 1:
        return order
    whole, bounds = steps * order, []
    for first in sorted({1, steps // 2, steps - steps // 2, steps - 1}):
        rest = steps - first
        one, two = chained_order(first, (whole - rest) / first), chained_order(rest, whole / rest)
        bounds.append(whole / (whole - rest) * one + two)
    return min(bounds)


def integer_order_epsilon_upper(rho: Fraction, delta: Fraction, steps: int = 1) -> float:
    """Smallest epsilon at delta when Rényi divergences of integer order alpha are at most alpha rho, rounded up.

    With several steps, rho is that of each of as many changes in a row.

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

    def epsilon(t: int, order: float | None = None) -> float:
        divergence = (steps**2 * (1 + t) if order is None else order) * cost
        terms = (divergence, -math.log1p(1 / t), log_inverse / t, -math.log1p(t) / t)
        return math.fsum(terms) + ROUNDING * math.fsum(map(abs, terms))

    t = 1
    while t < 2**60 and epsilon(2 * t) < epsilon(t):
        t *= 2
    low, high = max(1, t // 2), 2 * t  # the smallest value lies between: bisect on the sign of the difference
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if epsilon(middle) <= epsilon(middle + 1) else (middle + 1, high)
    tried = range(max(1, low - NEARBY), low + NEARBY + 1) if steps > 1 else (low,)
    return max(0.0, min(epsilon(t, float(chained_order(steps, Fraction(1 + t)))) for t in tried))


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
