"""Events: what was measured, as frozen data, and the privacy cost of each when its true answer changes.

An event states its noise law, its parameter and nothing else. The *change* of an answer is the tuple of its non-zero
entries: two people who exchange cells change it by ``(1, -1, 1, -1)`` or ``(2, -2)``.

Infinite and not supported are different answers. ``math.inf`` says that the loss is known to be unbounded (an exact
count was published). `NotSupported` says that the accountant does not know, which is never read as zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from das.accounting.conversion import mu_of_pure_upper, rho_of_pure_upper
from das.errors import ConfigError, Problem

__all__ = [
    "ACCOUNTANTS",
    "Change",
    "Event",
    "ExactEvent",
    "GaussianEvent",
    "KNormEvent",
    "LaplaceEvent",
    "Loss",
    "NotSupported",
    "UnknownEvent",
    "gaussian_mu_squared",
    "pure_epsilon",
    "total_loss",
    "zcdp_rho",
]

Change = tuple[int, ...]
Support = Literal["integers", "reals"]


@dataclass(frozen=True, slots=True)
class NotSupported:
    """The accountant does not know this cost, and the reason.

    Examples
    --------
    >>> print(NotSupported("state/total: sparse vector technique"))
    not supported: state/total: sparse vector technique
    """

    reason: str

    def __str__(self) -> str:
        return f"not supported: {self.reason}"


Loss = Fraction | float | NotSupported


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianEvent:
    """A query measured with Gaussian noise; on the integers ``P(u)`` is proportional to ``exp(-u^2 / (2 sigma2))``.

    Examples
    --------
    >>> event = GaussianEvent(level="state", query="total", sigma2=Fraction(9, 2))
    >>> zcdp_rho(event, (1, -1))
    Fraction(2, 9)
    """

    level: str
    query: str
    sigma2: Fraction
    support: Support = "integers"

    def __post_init__(self) -> None:
        _positive(self, "sigma2", self.sigma2)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaplaceEvent:
    """A query measured with Laplace or double-geometric noise, ``P(u)`` proportional to ``exp(-|u| / scale)``.

    Examples
    --------
    >>> pure_epsilon(LaplaceEvent(level="state", query="total", scale=Fraction(4)), (1, -1))
    Fraction(1, 2)
    """

    level: str
    query: str
    scale: Fraction
    support: Support = "integers"

    def __post_init__(self) -> None:
        _positive(self, "scale", self.scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class KNormEvent:
    """A query measured with density proportional to ``exp(-epsilon ||u||_K)``.

    K is the convex hull of the generators and their negatives. A change is here the whole vector of the answer.

    Examples
    --------
    >>> event = KNormEvent(level="table", query="detailed", epsilon=Fraction(1), generators=((1, -1, 0), (0, 1, -1)))
    >>> pure_epsilon(event, (1, 0, -1))
    Fraction(2, 1)
    """

    level: str
    query: str
    epsilon: Fraction
    generators: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        _positive(self, "epsilon", self.epsilon)

    def norm(self, change: Change) -> Fraction | float | NotSupported:
        """Return the K-norm of a change exactly, infinite outside the span of K.

        ``||v||_K = min sum(lambda), generators' lambda = v``. The linear program proposes, exact rationals decide.
        """
        columns = np.array(self.generators, dtype=np.int64).T
        if columns.shape[0] != len(change):
            return NotSupported(f"{_name(self)}: a K-norm needs the whole answer of {columns.shape[0]} cells")
        both = np.hstack([columns, -columns])
        from scipy.optimize import linprog  # half of the time to import this module

        solution = linprog(np.ones(both.shape[1]), A_eq=both, b_eq=np.array(change), method="highs")
        if solution.status == 2:
            return math.inf
        weights = [Fraction(float(w)).limit_denominator(10**6) for w in solution.x]
        if any(sum((w * int(e) for w, e in zip(weights, row, strict=True)), Fraction(0)) != v
               for row, v in zip(both, change, strict=True)):  # fmt: skip
            return NotSupported(f"{_name(self)}: the K-norm could not be certified exactly")
        return sum(weights, Fraction(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactEvent:
    """A query published without noise: free where the public facts fix it, infinite where they do not."""

    level: str
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownEvent:
    """A release by a mechanism for which the accountant has no theorem."""

    level: str
    query: str
    description: str


Event = GaussianEvent | LaplaceEvent | KNormEvent | ExactEvent | UnknownEvent


def pure_epsilon(event: Event, change: Change) -> Loss:
    """Epsilon of one event for one change of its answer: ``||change||_1 / scale``, or ``epsilon ||change||_K``.

    Examples
    --------
    >>> pure_epsilon(GaussianEvent(level="us", query="total", sigma2=Fraction(1)), (1, -1))
    inf
    >>> print(pure_epsilon(UnknownEvent(level="us", query="total", description="a smooth sensitivity release"), ()))
    not supported: us/total: a smooth sensitivity release
    """
    match event:
        case UnknownEvent():
            return NotSupported(f"{_name(event)}: {event.description}")
        case _ if not any(change):
            return Fraction(0)
        case LaplaceEvent(scale=scale):
            return Fraction(sum(map(abs, change))) / scale
        case KNormEvent():
            norm = event.norm(change)
            return norm if isinstance(norm, NotSupported) else norm * event.epsilon
        case GaussianEvent() | ExactEvent():
            return math.inf
        case _:
            # Of a class that is not in the union: never a number.
            return NotSupported(f"{_name(event)}: no theorem for {type(event).__name__}")  # type: ignore[unreachable]


def zcdp_rho(event: Event, change: Change) -> Loss:
    """Rho of one event for one change of its answer: ``||change||_2^2 / (2 sigma2)``.

    Bun and Steinke (2016, Proposition 1.6) for reals; Canonne, Kamath and Steinke (2020, Theorem 4) for integers. Pure
    events are converted; the independent cells of a Laplace event one by one, which is less than the whole at once.

    Examples
    --------
    >>> zcdp_rho(GaussianEvent(level="us", query="total", sigma2=Fraction(2)), (2, -2))
    Fraction(2, 1)
    >>> zcdp_rho(ExactEvent(level="us", query="total"), (1,))
    inf
    """
    if isinstance(event, GaussianEvent):
        return Fraction(sum(entry * entry for entry in change)) / (2 * event.sigma2)
    return _through_pure(event, change, rho_of_pure_upper)


def gaussian_mu_squared(event: Event, change: Change) -> Loss:
    """Square of the mu of one event for one change: ``||change||_2^2 / sigma2``, for noise on the reals only.

    Examples
    --------
    >>> gaussian_mu_squared(GaussianEvent(level="us", query="total", sigma2=Fraction(2), support="reals"), (1, -1))
    Fraction(1, 1)
    >>> print(gaussian_mu_squared(GaussianEvent(level="us", query="total", sigma2=Fraction(2)), (1, -1)))
    not supported: us/total: the discrete Gaussian is not mu-GDP
    """
    if isinstance(event, GaussianEvent):
        if event.support == "integers" and any(change):
            return NotSupported(f"{_name(event)}: the discrete Gaussian is not mu-GDP")
        return Fraction(sum(entry * entry for entry in change)) / event.sigma2
    return _through_pure(event, change, lambda epsilon: math.nextafter(mu_of_pure_upper(epsilon) ** 2, math.inf))


ACCOUNTANTS: Mapping[str, Callable[[Event, Change], Loss]] = {
    "pure": pure_epsilon,
    "zcdp": zcdp_rho,
    "gdp": gaussian_mu_squared,
}


def total_loss(losses: Iterable[Loss]) -> Loss:
    """Add losses: one unknown makes the sum unknown, otherwise one infinity makes it infinite, otherwise it is exact.

    Examples
    --------
    >>> total_loss([Fraction(1, 3), Fraction(1, 6)])
    Fraction(1, 2)
    >>> print(total_loss([math.inf, NotSupported("a"), NotSupported("b")]))
    not supported: a; b
    """
    seen = list(losses)
    unknown = [loss.reason for loss in seen if isinstance(loss, NotSupported)]
    if unknown:
        return NotSupported("; ".join(dict.fromkeys(unknown)))
    known = [loss for loss in seen if not isinstance(loss, NotSupported)]
    return math.inf if math.inf in known else sum((Fraction(loss) for loss in known), Fraction(0))


def _through_pure(event: Event, change: Change, convert: Callable[[Fraction], float]) -> Loss:
    cells = [(entry,) for entry in change] if isinstance(event, LaplaceEvent) else [change]
    losses: list[Loss] = []
    for epsilon in (pure_epsilon(event, cell) for cell in cells):
        losses.append(Fraction(convert(epsilon)) if isinstance(epsilon, Fraction) and epsilon else epsilon)
    return total_loss(losses)


def _name(event: Event) -> str:
    return f"{event.level}/{event.query}"


def _positive(event: Event, field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | Fraction) or value <= 0:
        raise ConfigError(
            Problem(f"{_name(event)}.{field}", f"{value!r} is not a positive rational", 'write it as "9/2"')
        )
