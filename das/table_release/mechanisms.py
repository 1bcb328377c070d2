"""The three mechanisms for one table, calibrated to one promise under `semi`, with the cost of every move.

======================  ===========================================================  =============
``gaussian``            discrete Gaussian on the lattice of moves                    zCDP
``k-norm``              exponential mechanism with the hull of the moves, on the     pure
                        same lattice
``conditioning``        double-geometric noise given all facts and non-negativity    pure
======================  ===========================================================  =============

A pure mechanism also serves a budget of rho: epsilon-DP is epsilon tanh(epsilon/2)-zCDP.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from das.accounting.conditioning import ConstraintSystem, conditioned_geometric, with_sampler_error_upper
from das.accounting.conversion import epsilon_upper, rho_of_pure_upper
from das.accounting.events import NotSupported
from das.errors import ConfigError, Problem, ProblemsFound
from das.exact import delta_text
from das.noise import DiscreteLaplace, RunKey
from das.noise.stream import Streams
from das.synthesis.cost import rho_for
from das.table.lattice_gaussian import LatticeGaussian
from das.table.lattice_k_norm import LatticeKNorm
from das.table.neighbours import Neighbours
from das.table.projected_gaussian import chi_mean
from das.table.quotient import TableSampler
from das.table.systems import public_start
from das.table.two_way import TwoWaySampler, TwoWayTable
from das.table_release.settings import PrivacySection

__all__ = ["DELTA", "MECHANISMS", "Cost", "Loss", "Promise", "TableMechanism", "naive_costs", "promise_of"]

DELTA = Fraction(1, 10**10)
_GRID = 10**9
_COST_DRAWS = 400


@dataclass(frozen=True, slots=True)
class Promise:
    """What is promised under `semi`: rho of zCDP, or epsilon at delta (0 for pure differential privacy)."""

    rho: Fraction | None
    epsilon: Fraction | None
    delta: Fraction

    @property
    def text(self) -> str:
        """The promise in a line."""
        if self.rho is not None:
            return f"rho {self.rho} of zCDP"
        return f"epsilon {self.epsilon}" + (f" at delta {self.delta}" if self.delta else ", pure")

    def text_with(self, sampler_delta: float) -> str:
        """The promise in a line, of a sampler that may differ from its law by this much.

        Examples
        --------
        >>> Promise(None, Fraction(1), Fraction(0)).text_with(2.9e-30)
        "epsilon 1 at delta 2.9e-30, the sampler's error"
        >>> Promise(None, Fraction(1), Fraction(0)).text_with(0.0)
        'epsilon 1, pure'
        >>> Promise(Fraction(1, 8), None, Fraction(0)).text_with(2.9e-30)
        "rho 1/8 of zCDP at delta 2.9e-30, the sampler's error"
        """
        if sampler_delta <= self.delta:
            return self.text
        amount = self.text if self.rho is not None else f"epsilon {self.epsilon}"
        return f"{amount} at delta {delta_text(sampler_delta)}, the sampler's error"

    def pure(self) -> Fraction:
        """Return the largest epsilon on a grid whose pure promise implies this one."""
        if self.epsilon is not None:
            return self.epsilon
        rho = self.rho or Fraction(0)
        return _largest(lambda epsilon: Fraction(rho_of_pure_upper(epsilon)) <= rho, "privacy.rho")

    def zcdp(self) -> Fraction:
        """Return the largest rho whose promise implies this one.

        Raises
        ------
        ConfigError
            The promise is pure.
        """
        if self.rho is not None:
            return self.rho
        if not self.delta or self.epsilon is None:
            reason = "Gaussian noise makes no pure promise"
            raise ConfigError(Problem("gaussian", reason, "give rho, or a delta beside epsilon"))
        return rho_for(self.epsilon, self.delta)


def promise_of(privacy: PrivacySection) -> Promise:
    """Return the promise of a config."""
    return Promise(privacy.rho, privacy.epsilon, privacy.delta or Fraction(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The loss of one move: rho where it is known, and an epsilon at delta, rounded up."""

    rho: Fraction | None = None
    epsilon: float
    delta: Fraction


@dataclass(frozen=True, slots=True)
class Cost:
    """Expected L2 length of the error; `error` is the standard error of a simulation, 0 for a formula."""

    mean: float
    error: float
    grounds: str


class TableMechanism(Protocol):
    """A mechanism that was calibrated; nothing in it depends on the confidential table."""

    @property
    def name(self) -> str:
        """Its name in the config."""

    @property
    def framework(self) -> str:
        """``"zcdp"`` or ``"pure"``: what `amount` is."""

    @property
    def amount(self) -> Fraction:
        """Its rho or epsilon under `semi`."""

    @property
    def noise(self) -> str:
        """Its law, with the rational parameter."""

    def loss(self, moves: NDArray[np.int64], delta: Fraction) -> Loss:
        """Return the largest loss of these moves."""

    def nominal(self, delta: Fraction) -> Loss | None:
        """Return the loss of one record as if nothing were public; None where the law is not defined then."""

    def prepare(self) -> None:
        """Refuse what could fail after the charge; public."""

    def draw(self, streams: Streams, table: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the released table."""

    def expected_l2(self) -> Cost:
        """Return the expected length of the error."""


@dataclass(frozen=True)
class GaussianMechanism:
    """The lattice Gaussian with ``sigma2 = l2_squared / (2 rho)``."""

    neighbours: Neighbours
    amount: Fraction
    name: str = "gaussian"
    framework: str = "zcdp"

    @classmethod
    def keeping(cls, promise: Promise, neighbours: Neighbours) -> GaussianMechanism:
        """Calibrate it to a promise."""
        return cls(neighbours, promise.zcdp())

    @cached_property
    def lattice_noise(self) -> LatticeGaussian:
        """The noise."""
        return LatticeGaussian(self.neighbours.lattice, self.neighbours.l2_squared / (2 * self.amount))

    @property
    def noise(self) -> str:
        """Its law, with the rational parameter."""
        return self.lattice_noise.name

    def loss(self, moves: NDArray[np.int64], delta: Fraction) -> Loss:
        """Return the largest loss of these moves."""
        return self._loss(int((moves * moves).sum(axis=1).max(initial=0)), delta)

    def nominal(self, delta: Fraction) -> Loss | None:
        """Return the loss of one record as if nothing were public."""
        return self._loss(2, delta)

    def _loss(self, l2_squared: int, delta: Fraction) -> Loss:
        rho, at = self.lattice_noise.rho(l2_squared), delta or DELTA
        return Loss(rho=rho, epsilon=epsilon_upper(rho, at) if rho else 0.0, delta=at)

    def prepare(self) -> None:
        """Build the noise."""
        _ = self.lattice_noise

    def draw(self, streams: Streams, table: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the released table."""
        bundle = streams.bundle([("table", "", "detailed", self.noise)])
        return np.asarray(table + self.lattice_noise.draw(bundle, 1)[0, 0])

    def expected_l2(self) -> Cost:
        """Return sigma chi_mean(rank)."""
        return Cost(self.lattice_noise.expected_l2(), 0.0, "formula of the continuous Gaussian")


@dataclass(frozen=True)
class KNormMechanism:
    """The lattice K-norm noise with the epsilon of the promise."""

    neighbours: Neighbours
    amount: Fraction
    name: str = "k-norm"
    framework: str = "pure"

    @classmethod
    def keeping(cls, promise: Promise, neighbours: Neighbours) -> KNormMechanism:
        """Calibrate it to a promise."""
        return cls(neighbours, promise.pure())

    @cached_property
    def lattice_noise(self) -> LatticeKNorm:
        """The noise."""
        near = self.neighbours
        return LatticeKNorm(near.facts, near.lattice, near.body, self.amount)

    @property
    def noise(self) -> str:
        """Its law, with the rational parameter."""
        return self.lattice_noise.name

    def loss(self, moves: NDArray[np.int64], delta: Fraction) -> Loss:
        """Return the largest loss of these moves: epsilon times their norm, which is at most 1 up to a(t) records."""
        if moves.any() and not self.neighbours.is_symmetric_body:
            return _pure_loss(self.amount, Fraction(0))
        norms = {tuple(move) if move[np.flatnonzero(move)[0]] > 0 else tuple(-move) for move in moves if move.any()}
        largest = max((self.neighbours.body.norm(np.array(move)) for move in norms), default=Fraction(0))
        return _pure_loss(self.amount * largest, Fraction(0))

    def nominal(self, delta: Fraction) -> Loss | None:
        """A single record leaves the lattice, where the law is not defined."""
        return None

    def prepare(self) -> None:
        """Refuse a table on which draws would not end."""
        self.lattice_noise.trial()

    def draw(self, streams: Streams, table: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the released table."""
        return np.asarray(table + self.lattice_noise.draw(streams, 1)[0])

    def expected_l2(self) -> Cost:
        """Simulate from a public key."""
        drawn = self.lattice_noise.trial(_COST_DRAWS).draws
        return _simulated(drawn, f"{len(drawn)} draws from a public key")


@dataclass(frozen=True)
class ConditioningMechanism:
    """Double-geometric noise in every cell, given the facts and non-negativity (Gong and Meng 2020)."""

    neighbours: Neighbours
    amount: Fraction
    epsilon0: Fraction
    name: str = "conditioning"
    framework: str = "pure"

    @classmethod
    def keeping(cls, promise: Promise, neighbours: Neighbours) -> ConditioningMechanism:
        """Calibrate it to a promise: the largest epsilon0 of a cell whose conditioned loss is within epsilon."""
        epsilon, l1, system = promise.pure(), neighbours.l1, _system(neighbours)
        epsilon0 = _largest(lambda each: conditioned_geometric(each, l1, system).cost <= epsilon, "privacy")
        return cls(neighbours, epsilon, epsilon0)

    @property
    def noise(self) -> str:
        """Its law, with the rational parameter."""
        return f"conditioned-double-geometric(epsilon={self.epsilon0} a cell)"

    @cached_property
    def sampler(self) -> TableSampler | TwoWaySampler:
        """The exact table sampler, for both margins of a larger table column by column; else the table is refused."""
        facts, noise = self.neighbours.facts, DiscreteLaplace(1 / self.epsilon0)
        try:
            try:
                return TableSampler(facts, noise)
            except ConfigError:
                if TwoWayTable.of(facts) is None:
                    raise
                return TwoWaySampler(facts, noise)
        except ConfigError as error:
            reason = error.problems[0].reason
            raise ConfigError(Problem("conditioning", reason, "use `gaussian`, which is exact at this size")) from None

    def loss(self, moves: NDArray[np.int64], delta: Fraction) -> Loss:
        """Return the largest loss of these moves, with the delta of the sampler's error."""
        l1 = int(np.abs(moves).sum(axis=1).max(initial=0))
        cost = conditioned_geometric(self.epsilon0, l1, _system(self.neighbours)).cost
        return _pure_loss(Fraction(cost), self._delta(float(cost)))

    def _delta(self, epsilon: float) -> Fraction:
        found = with_sampler_error_upper(epsilon, Fraction(1, 2**200), self.sampler.error)
        if isinstance(found, NotSupported):
            raise ArithmeticError(str(found))
        return found

    def nominal(self, delta: Fraction) -> Loss | None:
        """Return the loss of one record as if nothing were public and nothing were conditioned."""
        return _pure_loss(2 * self.epsilon0, Fraction(0))

    def prepare(self) -> None:
        """Build the sampler."""
        _ = self.sampler.arithmetic

    def draw(self, streams: Streams, table: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the released table."""
        bundle = streams.bundle([("table", "", "detailed", self.noise)])
        return np.asarray(self.sampler.given(table).draw(bundle, 1)[0, 0])

    def expected_l2(self) -> Cost:
        """Simulate around a public table that agrees with the facts; at the confidential one it may differ."""
        start = public_start(self.neighbours.facts)
        bundle = RunKey.for_testing("cost").streams(b"").bundle([("table", "", "detailed", self.noise)])
        drawn = self.sampler.given(start).draw(bundle, _COST_DRAWS)[0]
        return _simulated(drawn - start, f"{_COST_DRAWS} draws around a public table that agrees with the facts")


Keeping = Callable[[Promise, Neighbours], TableMechanism]
MECHANISMS: dict[str, Keeping] = {
    "gaussian": GaussianMechanism.keeping,
    "k-norm": KNormMechanism.keeping,
    "conditioning": ConditioningMechanism.keeping,
}


def naive_costs(promise: Promise, neighbours: Neighbours) -> dict[str, Cost]:
    """Return the cost of independent noise in every cell for a(t) changed records: it keeps no total."""
    cells, a = len(neighbours.facts.allowed), neighbours.adjacency
    found: dict[str, Cost] = {}
    try:
        sigma2 = a * a / promise.zcdp()  # a records that change alike: squared length 2 a^2
        found["naive gaussian"] = Cost(math.sqrt(sigma2) * chi_mean(cells), 0.0, "formula of the continuous Gaussian")
    except ProblemsFound:
        pass
    noise = DiscreteLaplace(2 * a / promise.pure())
    bundle = RunKey.for_testing("cost").streams(b"").bundle([("table", "", "naive", noise.name)])
    drawn = noise.draw(bundle, _COST_DRAWS * cells).reshape(_COST_DRAWS, cells)
    found["naive geometric"] = _simulated(drawn, f"{_COST_DRAWS} draws from a public key")
    return found


def _simulated(errors: NDArray[np.int64], grounds: str) -> Cost:
    lengths = np.linalg.norm(errors, axis=-1)
    return Cost(float(lengths.mean()), float(lengths.std(ddof=1) / math.sqrt(len(lengths))), grounds)


def _system(neighbours: Neighbours) -> ConstraintSystem:
    """What the noise is conditioned on: bounds on single cells are a box, other inequalities are not."""
    others = (row for row, low, high in neighbours.facts.bounds if low < high)
    return "equalities and box" if all(sorted(map(abs, row))[-2:] in ([0, 1], [1]) for row in others) else "any"


def _pure_loss(epsilon: Fraction, delta: Fraction) -> Loss:
    rho = Fraction(rho_of_pure_upper(epsilon)) if epsilon and not delta else None
    near = float(epsilon)
    return Loss(rho=rho, epsilon=near if Fraction(near) >= epsilon else math.nextafter(near, math.inf), delta=delta)


def _largest(holds: Callable[[Fraction], bool], where: str) -> Fraction:
    """Return the largest number on a grid of 1e-9 for which a falling condition holds."""
    low, high = 0, _GRID
    while holds(Fraction(high, _GRID)):
        low, high = high, 2 * high
        if high > _GRID * 10**4:
            raise ConfigError(Problem(where, "the budget is so large that it protects nothing", "lower it"))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(Fraction(middle, _GRID)) else (low, middle)
    if not low:
        raise ConfigError(Problem(where, "the budget is too small for noise that can be drawn", "raise it"))
    return Fraction(low, _GRID)
