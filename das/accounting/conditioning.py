"""Privacy cost of conditioning noise on public constraints, and of sampling it inexactly.

Conditioning is part of the mechanism: the law of ``s = x + noise given s in S*`` has a normaliser Z(x) that depends on
the data, and its ratio between neighbours adds to the loss. Post-processing is free only if it reads nothing but noisy
output and public facts. ``conditioning.md`` has the proofs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt

from das.accounting.conversion import checked_delta
from das.accounting.events import Event, GaussianEvent, LaplaceEvent, NotSupported
from das.errors import ConfigError, Problem

__all__ = [
    "Conditioned",
    "ConstraintSystem",
    "SamplerError",
    "conditional_law",
    "conditioned_gaussian",
    "conditioned_geometric",
    "delta_between",
    "geometric_loss",
    "geometric_vertex_limit",
    "with_sampler_error_upper",
]

ConstraintSystem = Literal["equalities", "nested equalities and box", "equalities and box", "convex", "any"]
ConditioningStatus = Literal["proved", "conditioning: numerically verified, not proved"]
MARGIN = 2.0**-44


@dataclass(frozen=True, slots=True)
class Conditioned:
    """The cost of a conditioned measurement for one move, and whether it is proved."""

    cost: Fraction | float
    status: ConditioningStatus


def conditioned_geometric(epsilon: Fraction, l1: int, constraints: ConstraintSystem) -> Conditioned:
    """Epsilon of conditioned double-geometric noise, rounded up.

    The noise of each cell has ``P(u)`` proportional to ``exp(-epsilon |u|)`` before conditioning. For a move m
    with ``L = ||m||_1``, and with ``q = exp(-epsilon)``:

    - equalities only: the normaliser is constant, ``epsilon L``;
    - equalities and bounds cell by cell: ``epsilon L + log(1 + q^-(L-2) (1 - q^L))``;
    - any other set common to both data sets: ``2 epsilon L`` (Gong and Meng 2020).

    Examples
    --------
    >>> conditioned_geometric(Fraction(1, 2), 2, "equalities")
    Conditioned(cost=Fraction(1, 1), status='proved')
    >>> round(conditioned_geometric(Fraction(1, 2), 2, "equalities and box").cost, 5)
    1.48988
    """
    if l1 < 0:
        raise ConfigError(Problem("move", "its L1 norm is negative", "give the sum of absolute changes"))
    if constraints == "equalities" or l1 == 0:
        return Conditioned(epsilon * l1, "proved")
    if constraints in ("equalities and box", "nested equalities and box"):
        loss = float(epsilon)
        normaliser = float(np.logaddexp(0.0, (l1 - 2) * loss + math.log(-math.expm1(-l1 * loss))))
        return Conditioned((l1 * loss + normaliser) * (1 + MARGIN), "proved")
    return Conditioned(2 * epsilon * l1, "proved")


def conditioned_gaussian(
    event: GaussianEvent, rho: Fraction, constraints: ConstraintSystem
) -> Conditioned | NotSupported:
    """Rho of conditioned Gaussian noise for a move that costs `rho` without conditioning.

    On the reals conditioning on a convex set adds nothing, in rho and in mu. On the integers equalities add nothing
    (proved); bounds on nested equalities add nothing for ``sigma2 >= 1`` (verified numerically at all orders; proved at
    integer orders, ``conditioned_tree.md``); other constraints are not supported, because it is false in general.

    Examples
    --------
    >>> event = GaussianEvent(level="us", query="detailed", sigma2=Fraction(4))
    >>> conditioned_gaussian(event, Fraction(1, 4), "nested equalities and box").status
    'conditioning: numerically verified, not proved'
    >>> print(conditioned_gaussian(event, Fraction(1, 4), "convex"))
    not supported: us/detailed: condition on the equalities only and make counts non-negative afterwards
    """
    if event.support == "reals" and constraints != "any":
        return Conditioned(rho, "proved")
    if constraints == "equalities":
        return Conditioned(rho, "proved")
    if event.support == "integers" and constraints == "nested equalities and box" and event.sigma2 >= 1:
        return Conditioned(rho, "conditioning: numerically verified, not proved")
    return NotSupported(
        f"{event.level}/{event.query}: condition on the equalities only and make counts non-negative afterwards"
    )


def geometric_vertex_limit(epsilon: float, cells: int) -> float:
    """Normaliser's share of the loss when all records are in one cell and one moves to an empty cell, for large n.

    ``log(1 + (1 - r) - (1 - r)^cells)``, ``r = exp(-2 epsilon)``: how near a table can come to the bound.

    Examples
    --------
    >>> round(geometric_vertex_limit(0.5, 8), 5)
    0.47414
    """
    inside = -math.expm1(-2 * epsilon)
    return math.log1p(inside - inside**cells)


def conditional_law(space: npt.ArrayLike, centre: npt.ArrayLike, event: Event) -> npt.NDArray[np.float64]:
    """Probabilities of the rows of `space` under noise around `centre` given that the result is one of them.

    For small worlds and audits; nothing computed from the confidential centre may be published.

    Examples
    --------
    >>> event = LaplaceEvent(level="t", query="detailed", scale=Fraction(2))
    >>> conditional_law([[0, 1], [1, 0]], [1, 0], event).round(3).tolist()
    [0.269, 0.731]
    """
    away = np.asarray(space, dtype=np.float64) - np.asarray(centre, dtype=np.float64)
    match event:
        case GaussianEvent(sigma2=sigma2):
            logs = -(away**2).sum(axis=1) / (2 * float(sigma2))
        case LaplaceEvent(scale=scale):
            logs = -np.abs(away).sum(axis=1) / float(scale)
        case _:
            raise ConfigError(Problem(f"{event.level}/{event.query}", "only Gaussian and Laplace noise is conditioned"))
    weights = np.exp(logs - logs.max())
    law: npt.NDArray[np.float64] = weights / weights.sum()
    return law


def delta_between(p: npt.NDArray[np.float64], q: npt.NDArray[np.float64], epsilon: float) -> float:
    """Smallest delta at epsilon between two laws on the same outcomes, one way: ``sum (p - e^epsilon q)_+``.

    Examples
    --------
    >>> delta_between(np.array([0.5, 0.5]), np.array([0.25, 0.75]), 0.0)
    0.25
    """
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def geometric_loss(space: npt.ArrayLike, x: npt.ArrayLike, other: npt.ArrayLike, epsilon: float) -> float:
    """Exact effective epsilon from x to another data set: ``epsilon ||m||_1 + log Z(other) - log Z(x)``.

    The largest log-ratio is attained at the outcome x itself. It depends on x: publish a bound, never this number at
    the confidential data.

    Examples
    --------
    >>> twenty = [[s, 20 - s] for s in range(21)]
    >>> round(geometric_loss(twenty, [0, 20], [1, 19], 0.5), 8)
    1.20908045
    """
    rows = np.asarray(space, dtype=np.float64)

    def log_normaliser(centre: npt.ArrayLike) -> float:
        logs = -epsilon * np.abs(rows - np.asarray(centre)).sum(axis=1)
        return float(logs.max() + np.log(np.exp(logs - logs.max()).sum()))

    distance = float(np.abs(np.asarray(x) - np.asarray(other)).sum())
    return epsilon * distance + log_normaliser(other) - log_normaliser(x)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerError:
    """Bound on the distance of a sampler's law from the law it claims, for every data set.

    Parameters
    ----------
    total_variation : Fraction
        Largest total variation distance.
    status : {"proved", "empirical"}
        Only a proved bound can enter the ledger; an estimate from coupled chains is empirical.
    """

    total_variation: Fraction
    status: Literal["proved", "empirical"]


def with_sampler_error_upper(epsilon: float, delta: Fraction, error: SamplerError) -> Fraction | NotSupported:
    """Delta at the same epsilon when the sampler is off by `error`: ``delta + (1 + e^epsilon) eta``, rounded up.

    Examples
    --------
    >>> error = SamplerError(total_variation=Fraction(1, 10**12), status="proved")
    >>> f"{float(with_sampler_error_upper(1.0, Fraction(1, 10**10), error)):.4e}"
    '1.0372e-10'
    >>> print(with_sampler_error_upper(1.0, Fraction(1, 10**10), SamplerError(total_variation=Fraction(0),
    ...     status="empirical")))
    not supported: the sampler's error is an estimate; only a proved bound can enter the ledger
    """
    if error.status != "proved":
        return NotSupported("the sampler's error is an estimate; only a proved bound can enter the ledger")
    factor = Fraction(math.exp(epsilon) * (1 + MARGIN))
    return checked_delta(delta) + (1 + factor) * error.total_variation
