"""Conversions between privacy definitions (zCDP, GDP, pure and approximate DP), rounded so that the promise holds.

Every function that rounds states the direction in its name. The search for the best order does not affect correctness:
each order gives a true statement and the search only makes it sharp. What remains is the rounding of one closed
formula, for which a margin is added. ``conversion.md`` has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from scipy.special import erfcx, erfinv, log_expit, ndtr, ndtri_exp

from das.errors import ConfigError, Problem

__all__ = [
    "checked_delta",
    "delta_upper",
    "epsilon_upper",
    "gdp_delta_upper",
    "gdp_epsilon_upper",
    "mu_of_pure_upper",
    "rho_of_pure_upper",
]

# Every elementary operation below is correct to 2**-50 relative; no formula chains more than twenty of them.
ROUNDING = 2.0**-44
TINIEST = math.nextafter(0.0, 1.0)


def checked_delta(delta: Fraction) -> Fraction:
    """Return delta if it is an exact probability strictly between 0 and 1.

    Examples
    --------
    >>> checked_delta(Fraction(1, 10**10))
    Fraction(1, 10000000000)
    >>> checked_delta(Fraction(1))
    Traceback (most recent call last):
    das.errors.ConfigError: delta: 1 is not strictly between 0 and 1; give a small rational such as "1/10000000000"
    """
    exact = _exact("delta", delta)
    if not 0 < exact < 1:
        remedy = 'give a small rational such as "1/10000000000"'
        raise ConfigError(Problem("delta", f"{exact} is not strictly between 0 and 1", remedy))
    if exact < Fraction(1, 10**300):
        raise ConfigError(Problem("delta", "it is below 1e-300, where floats end", "give a larger delta"))
    return exact


def epsilon_upper(rho: Fraction, delta: Fraction) -> float:
    """Smallest epsilon that rho-zCDP promises at delta by the Canonne-Kamath-Steinke conversion, rounded up.

    With order ``1 + t``, every t > 0 gives a valid epsilon (Canonne, Kamath and Steinke 2020, arXiv:2004.00010,
    Proposition 12)::

        epsilon(t) = (1 + t) rho + log(t / (1 + t)) + (log(1/delta) - log(1 + t)) / t

    and the derivative vanishes where ``rho t^2 + log(1 + t) = log(1/delta)``, whose left side increases.

    Examples
    --------
    >>> round(epsilon_upper(Fraction(542, 339) ** 2, Fraction(1, 10**10)), 4)
    17.1436
    >>> epsilon_upper(Fraction(0), Fraction(1, 10**10))
    0.0
    """
    cost, log_inverse = _cost("rho", rho), _log_inverse(checked_delta(delta))
    if cost == 0.0 or math.isinf(cost):
        return cost
    low = min(math.sqrt(log_inverse / (2 * cost)), math.expm1(log_inverse / 2))
    high = min(math.sqrt(log_inverse / cost), math.expm1(log_inverse))
    t = _root(lambda t: cost * t * t + math.log1p(t) - log_inverse, low, high)
    terms = ((1 + t) * cost, -math.log1p(1 / t), log_inverse / t, -math.log1p(t) / t)
    return max(0.0, _sum_upper(terms))


def delta_upper(rho: Fraction, epsilon: float | Fraction) -> float:
    """Smallest delta that rho-zCDP promises at epsilon by the Canonne-Kamath-Steinke conversion, rounded up.

    For every t > 0, with order ``1 + t`` (Canonne, Kamath and Steinke 2020, Proposition 12)::

        log delta(t) = t ((1 + t) rho - epsilon) + t log t - (1 + t) log(1 + t)

    Its derivative ``(1 + 2t) rho - epsilon + log(t / (1 + t))`` increases in t.

    Examples
    --------
    >>> f"{delta_upper(Fraction(542, 339) ** 2, 17.1436):.3e}"
    '9.999e-11'
    """
    cost, loss = _cost("rho", rho), _cost("epsilon", epsilon)
    if cost == 0.0:
        return 0.0
    if math.isinf(cost):
        return 1.0
    low, high = 1.0, max(1.0, (loss + math.log(2)) / (2 * cost))
    while (1 + 2 * low) * cost - loss - math.log1p(1 / low) > 0 and low > 1e-300:
        low /= 16
    t = _root(lambda t: (1 + 2 * t) * cost - loss - math.log1p(1 / t), low, high)
    # t log t - (1 + t) log(1 + t), written without cancellation
    terms = (t * (1 + t) * cost, -t * loss, -t * math.log1p(1 / t), -math.log1p(t))
    return min(1.0, max(TINIEST, _up(math.exp(min(0.0, _sum_upper(terms))))))


def gdp_delta_upper(mu: float, epsilon: float | Fraction) -> float:
    """Exact delta of mu-Gaussian differential privacy at epsilon, rounded up.

    ``delta = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2)`` (Dong, Roth and Su 2022, arXiv:1905.02383,
    Corollary 2.13). With x, y = epsilon/mu -+ mu/2 and T(x) = e^(x^2/2) (1 - Phi(x)) this is
    ``e^(-x^2/2) (T(x) - T(y))``, which neither over- nor underflows early; what the subtraction may lose is added.

    Examples
    --------
    >>> round(gdp_delta_upper(1.0, 1.0), 9)
    0.126936738
    """
    scale, loss = _cost("mu", mu), _cost("epsilon", epsilon)
    if scale == 0.0 or math.isinf(loss):
        return 0.0
    if math.isinf(scale):
        return 1.0
    x, y = loss / scale - scale / 2, loss / scale + scale / 2
    if x > 0:
        above_x = _scaled_tail(x)
        log_delta = -x * x / 2 + math.log(max(above_x - _scaled_tail(y), 0.0) + 2.0**-46 * above_x)
    else:
        difference = float(ndtr(-x)) - math.exp(-x * x / 2) * _scaled_tail(y)
        log_delta = math.log(max(difference, 0.0) + 2.0**-46 * (1 + y * y))
    # an error of 2**-50 relative in x moves log phi(x) by x^2 2**-50
    log_delta += 2.0**-47 * (1 + y * y)
    return min(1.0, max(TINIEST, _up(math.exp(min(0.0, log_delta)))))


def gdp_epsilon_upper(mu: float, delta: Fraction) -> float:
    """Smallest epsilon that mu-Gaussian differential privacy promises at delta, rounded up.

    The returned value is one at which `gdp_delta_upper` was seen to be at most delta.

    Examples
    --------
    >>> round(gdp_epsilon_upper(1.0, Fraction(1, 10**10)), 6)
    6.547924
    """
    scale, exact = _cost("mu", mu), checked_delta(delta)
    if math.isinf(scale):
        return math.inf
    if gdp_delta_upper(scale, 0.0) <= exact:
        return 0.0
    # mu-GDP is mu^2/2-zCDP, so the Bun-Steinke value is enough
    high = scale * scale / 2 + scale * math.sqrt(2 * _log_inverse(exact)) + 1e-9
    return _smallest(lambda epsilon: gdp_delta_upper(scale, epsilon) <= exact, 0.0, high)


def mu_of_pure_upper(epsilon: float | Fraction) -> float:
    """Smallest mu such that every epsilon-DP mechanism is mu-GDP, ``-2 Phi^-1(1 / (1 + e^epsilon))``, rounded up.

    Examples
    --------
    >>> round(mu_of_pure_upper(1), 7)
    1.2320354
    """
    loss = _cost("epsilon", epsilon)
    if loss == 0.0 or math.isinf(loss):
        return loss
    # the quantile as an inverse error function keeps small epsilons, as a function of log p large ones
    half = math.sqrt(2) * float(erfinv(math.tanh(loss / 2))) if loss < 1 else -float(ndtri_exp(float(log_expit(-loss))))
    return 2 * half * (1 + 2.0**-40)


def rho_of_pure_upper(epsilon: float | Fraction) -> float:
    """Smallest rho such that every epsilon-DP mechanism is rho-zCDP, ``epsilon tanh(epsilon / 2)``, rounded up.

    Never above the ``epsilon^2 / 2`` of Bun and Steinke (2016, Proposition 1.4). The proof is in ``conversion.md``.

    Examples
    --------
    >>> round(rho_of_pure_upper(1), 7)
    0.4621172
    """
    loss = _cost("epsilon", epsilon)
    return _up(loss * math.tanh(loss / 2)) if loss else 0.0


def _exact(name: str, value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | Fraction):
        reason = f"{value!r} is a {type(value).__name__}, not an exact rational"
        raise ConfigError(Problem(name, reason, 'write it as "1/1000"'))
    return Fraction(value)


def _cost(name: str, value: object) -> float:
    """Return a non-negative number as a float; `ROUNDING` covers the rounding of the cast."""
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction) or not value >= 0:
        raise ConfigError(Problem(name, f"{value!r} is not a number of at least 0", "give a non-negative number"))
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _log_inverse(delta: Fraction) -> float:
    return -math.log1p(-float(1 - delta)) if 2 * delta > 1 else -math.log(float(delta))


def _scaled_tail(x: float) -> float:
    """Return ``e^(x^2/2) (1 - Phi(x))``."""
    return float(erfcx(x / math.sqrt(2))) / 2


def _sum_upper(terms: tuple[float, ...]) -> float:
    return math.fsum(terms) + ROUNDING * math.fsum(abs(term) for term in terms)


def _up(value: float) -> float:
    return math.nextafter(value * (1 + ROUNDING), math.inf)


def _root(increasing: Callable[[float], float], low: float, high: float) -> float:
    """Root of an increasing function of a positive number, by bisection of its logarithm; never outside [low, high]."""
    left, right = math.log(low), math.log(max(low, high))
    for _ in range(90):
        middle = (left + right) / 2
        if increasing(math.exp(middle)) > 0:
            right = middle
        else:
            left = middle
    return math.exp(left)


def _smallest(holds: Callable[[float], bool], fails_at: float, holds_at: float) -> float:
    """Smallest float found by bisection at which a monotone condition was seen to hold."""
    while fails_at < (middle := (fails_at + holds_at) / 2) < holds_at:
        if holds(middle):
            holds_at = middle
        else:
            fails_at = middle
    return holds_at
