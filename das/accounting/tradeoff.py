"""What an attacker learns, from the whole trade-off between false alarms and missed ones and not from one epsilon.

The attacker knows everything but which of two data sets is the true one, and sees the release. Its law is P under the
one and Q under the other. Everything here is a bound on what anybody can do, taken over all moves that are given;
``tradeoff.md`` has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from das.accounting.pld import LossDistribution

__all__ = ["PRIORS", "Belief", "Learnt", "Losses", "learnt_of", "losses_of_curve", "losses_of_distribution"]

PRIORS = (0.01, 0.1, 0.5)
RARE = 0.01  # of the releases that could have come out, the share in which a belief may be larger
SCALE = 10_000  # four digits
FALSE_ALARMS = (0.0, *(10.0 ** (k / 4) for k in range(-12, -4)), *(k / 20 for k in range(2, 21)))
CURVE_DELTAS = tuple(10.0 ** (-k / 5) for k in range(1, 71)) + tuple(1 - 10.0 ** (-k / 2) for k in range(1, 5))


@dataclass(frozen=True)
class Losses:
    """The law of the privacy loss log P/Q under P: atoms in growing order, and a mass at infinity."""

    values: npt.NDArray[np.float64]
    masses: npt.NDArray[np.float64]
    infinite: float

    @cached_property
    def ratios(self) -> npt.NDArray[np.float64]:
        """Q/P at each atom, e to the minus loss."""
        return np.asarray(np.exp(-self.values), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Belief:
    """What somebody who gave the truth a prior probability believes of it after the release."""

    prior: float
    mean: float
    """At most this on average over all releases that could have come out."""
    rare: float
    """More than this in at most one of a hundred releases that could have come out."""


@dataclass(frozen=True, slots=True)
class Learnt:
    """What anybody can learn about one secret; probabilities are rounded against the promise.

    Parameters
    ----------
    right : float
        Largest probability of a right guess between two values that were equally likely before.
    beliefs : tuple of Belief
        For priors of 1 %, 10 % and 50 %.
    curve : tuple of (float, float)
        False alarms, and the least missed ones beside them.

    Examples
    --------
    >>> learnt = learnt_of([losses_of_curve(lambda delta: 1.0)])  # epsilon 1, whatever delta
    >>> learnt.right, learnt.beliefs[2].mean, learnt.beliefs[0].rare
    (0.7311, 0.6068, 0.0268)
    >>> Learnt.from_json(learnt.to_json()) == learnt
    True
    """

    right: float
    beliefs: tuple[Belief, ...]
    curve: tuple[tuple[float, float], ...]

    def to_json(self) -> dict[str, Any]:
        """Give plain data, as ``privacy.json`` holds it."""
        return {
            "right_guesses": self.right,
            "beliefs": [{"prior": b.prior, "mean": b.mean, "rare": b.rare} for b in self.beliefs],
            "false_and_missed": [list(point) for point in self.curve],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Learnt:
        """Read what `to_json` wrote."""
        return cls(
            content["right_guesses"],
            tuple(Belief(b["prior"], b["mean"], b["rare"]) for b in content["beliefs"]),
            tuple((false, missed) for false, missed in content["false_and_missed"]),
        )


def losses_of_distribution(found: LossDistribution) -> Losses:
    """Read the atoms of a composed distribution, its rounding errors added."""
    values: npt.NDArray[np.float64] = (found.first + np.arange(len(found.masses), dtype=np.float64)) * found.step
    return Losses(np.asarray(values, dtype=np.float64), found.masses * (1 + 2 * found.slack), found.infinite)


def losses_of_curve(epsilon_at: Callable[[float], float]) -> Losses:
    """Find a law of losses that dominates every pair with these (epsilon, delta), in both directions.

    Parameters
    ----------
    epsilon_at : callable
        An epsilon that holds at each delta. It is read at some deltas; between them delta is taken to be linear in
        e^epsilon, which is never less than the truth, because delta is convex there.
    """
    read = {delta: epsilon_at(delta) for delta in sorted(CURVE_DELTAS, reverse=True)}
    # of several deltas with one epsilon the smallest; an epsilon that no float can exponentiate says nothing
    above = {max(0.0, epsilon): delta for delta, epsilon in read.items() if epsilon < 700.0}
    # delta at e^-epsilon follows from the pair in the other direction: 1 - x + x delta(1/x)
    points = {math.exp(epsilon): delta for epsilon, delta in above.items()}
    points |= {math.exp(-e): 1 - math.exp(-e) * (1 - delta) for e, delta in above.items() if e > 0}
    hull = _convex([(0.0, 1.0), *sorted(points.items())])
    xs, ys = np.array(hull).T
    slopes = np.append(np.diff(ys) / np.diff(xs), 0.0)
    masses = xs[1:] * np.diff(slopes)
    # what the hull leaves at its right end is the mass at infinity
    return Losses(np.log(xs[1:]), np.maximum(masses, 0.0) * (1 + 2.0**-30), float(ys[-1]))


def learnt_of(pairs: Sequence[Losses]) -> Learnt:
    """Bound what anybody learns, over all the pairs of data sets that are compared."""
    curves = [_least_missed(losses) for losses in pairs]
    return Learnt(
        _up(max((1 + _delta(losses, 0.0)) / 2 for losses in pairs)),
        tuple(
            Belief(
                prior,
                _up(max(_mean_belief(losses, prior) for losses in pairs)),
                _up(max(_rare_belief(losses, prior) for losses in pairs)),
            )
            for prior in PRIORS
        ),
        tuple(
            (round(false, 6), math.floor(max(0.0, min(curve[k] for curve in curves)) * SCALE) / SCALE)
            for k, false in enumerate(FALSE_ALARMS)
        ),
    )


def _delta(losses: Losses, epsilon: float) -> float:
    short = np.maximum(1 - math.exp(epsilon) * losses.ratios, 0.0)
    return min(1.0, float(short @ losses.masses) + losses.infinite)


def _mean_belief(losses: Losses, prior: float) -> float:
    """Mean under P of prior / (prior + (1 - prior) e^-L), convex and falling in e^-L (``tradeoff.md``)."""
    # a mean cannot exceed one, and masses that were rounded up may
    after = prior / (prior + (1 - prior) * losses.ratios)
    return min(1.0, float(after @ losses.masses) + losses.infinite)


def _rare_belief(losses: Losses, prior: float) -> float:
    """The belief that a test of power `RARE` at the least rate of false alarms could give."""
    if losses.infinite >= RARE:
        return 1.0
    power, false = _cumulated(losses)
    at = float(np.interp(RARE, power, false))
    return prior / (prior + (1 - prior) * at / RARE)


def _least_missed(losses: Losses) -> npt.NDArray[np.float64]:
    """Least share of missed alarms beside each rate of false ones (the Neyman-Pearson test)."""
    power, false = _cumulated(losses)
    end = max(float(false[-1]), 1.0)
    missed: npt.NDArray[np.float64] = 1 - np.minimum(
        1.0, np.interp(np.array(FALSE_ALARMS), np.append(false, end), np.append(power, 1.0))
    )
    return missed


def _cumulated(losses: Losses) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """P and Q of the sets on which the loss is large, from the largest loss down; infinite losses first."""
    order = slice(None, None, -1)
    masses = losses.masses[order]
    power = losses.infinite + np.append(0.0, np.cumsum(masses))
    return power, np.append(0.0, np.cumsum(masses * losses.ratios[order]))


def _convex(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Lower hull of points in growing order of x: a convex function below all of them is below it."""
    hull: list[tuple[float, float]] = []
    for x, y in points:
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (x - hull[-2][0]) >= (y - hull[-2][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        hull.append((x, y))
    return hull


def _up(probability: float) -> float:
    return min(1.0, math.ceil(probability * SCALE) / SCALE)
