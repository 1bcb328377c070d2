"""The curator: holds the confidential records and answers only with noise, within a budget that it checks first.

This module stands on the confidential side. Whatever leaves it has passed an exact mechanism and has a step in
:class:`das.synthesis.cost.Spent`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from das.errors import BudgetError, InputError, Problem
from das.noise.discrete_gaussian import DiscreteGaussian
from das.noise.discrete_laplace import DiscreteLaplace
from das.noise.mechanisms import FRAMEWORKS
from das.noise.stream import Bits, Streams
from das.noise.two_sided import TwoSidedNoise
from das.schema.query import Neighbours
from das.synthesis.cost import Spent, Step, epsilon_of_selection, selection_cost
from das.synthesis.domain import Constraints, Domain
from das.synthesis.exponential import choose

__all__ = ["Curator", "Measurement", "Meter", "Records"]

_FINENESS = 2**16
"""Model counts are rounded to this fraction of one before they are compared with true counts."""


@dataclass(frozen=True, eq=False)
class Measurement:
    """A marginal with noise: public."""

    attributes: tuple[str, ...]
    answers: NDArray[np.int64]
    noise: TwoSidedNoise


class Records:
    """Confidential records as label positions; their text form shows nothing.

    Examples
    --------
    >>> Records(Domain(("sex",), (2,)), np.array([[0], [1], [1]]))
    Records(confidential)
    """

    __slots__ = ("_codes", "domain")

    def __init__(self, domain: Domain, codes: NDArray[np.int64]) -> None:
        codes = np.asarray(codes, dtype=np.int64)
        if codes.ndim != 2 or codes.shape[1] != len(domain.shape):
            raise InputError(Problem("records", "do not have one column for each attribute"))
        if codes.size and (codes.min() < 0 or (codes >= np.array(domain.shape)).any()):
            raise InputError(Problem("records", "a label position is outside its attribute", "check the labels"))
        self.domain = domain
        self._codes = codes

    def __repr__(self) -> str:
        return "Records(confidential)"

    def __len__(self) -> int:
        return len(self._codes)

    def counts(self, attributes: Sequence[str]) -> NDArray[np.int64]:
        """True counts of a marginal."""
        shape = self.domain.shape_of(attributes)
        axes = self.domain.axes(attributes)
        if not axes:
            return np.array(len(self._codes))
        cells = np.ravel_multi_index(tuple(self._codes[:, axis] for axis in axes), shape)
        return np.bincount(cells, minlength=int(np.prod(shape))).reshape(shape).astype(np.int64)

    def cells(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Non-empty cells as rows of label positions in lexicographic order, and their counts."""
        found, counts = np.unique(self._codes, axis=0, return_counts=True)
        return found, counts.astype(np.int64)

    def columns(self) -> NDArray[np.int64]:
        """Label positions, an attribute a row."""
        return self._codes.T

    def check(self, constraints: Constraints) -> None:
        """Refuse records that break a structural zero or an invariant, without saying which record."""
        problems = [
            Problem(f"structural zero {' * '.join(zero.attributes)}", "some records are in cells declared impossible")
            for zero in constraints.zeros
            if self.counts(zero.attributes)[zero.impossible].any()
        ]
        problems += [
            Problem(f"invariant {' * '.join(each.attributes)}", "is not the count of these records")
            for each in constraints.invariants
            if not np.array_equal(self.counts(each.attributes), each.counts)
        ]
        if problems:
            raise InputError(*problems)


class Meter:
    """A budget and keyed noise: every step is charged before it is drawn."""

    def __init__(
        self,
        streams: Streams,
        *,
        framework: str,
        budget: Fraction,
        neighbours: Neighbours,
        before: Callable[[], None] | None = None,
    ) -> None:
        if budget <= 0:
            raise BudgetError(Problem("budget", "is not positive", "give a positive rational"))
        self._streams = streams
        self._before = before
        self._steps: list[Step] = []
        self._delta = Fraction(0)
        self.framework = framework
        self.budget = budget
        self.neighbours = neighbours
        self.changed = 2 if neighbours is Neighbours.REPLACE else 1
        """By how much one neighbour moves the counts of a marginal, in L1 and in squared L2."""

    @property
    def left(self) -> Fraction:
        """What has not been spent."""
        return self.budget - self.spent.total

    @property
    def spent(self) -> Spent:
        """Every step so far."""
        return Spent(framework=self.framework, steps=tuple(self._steps), delta=self._delta)

    def bits(self, what: str) -> Bits:
        """Keyed bits that need no charge: for rounding a public model, never for noise on records."""
        return self._streams.bits(("synthesis", "", what, "rows"))

    def _charge(self, what: str, mechanism: str, cost: Fraction) -> int:
        """Add a step before anything is drawn; refuse it if the budget does not hold it."""
        if cost <= 0:
            raise BudgetError(Problem(what, "its share of the budget is not positive", "give every step a share"))
        if cost > self.left:
            reason = f"needs {cost} and {self.left} is left of {self.budget}"
            raise BudgetError(Problem(what, reason, "give the method a larger budget"))
        if self._before is not None and not self._steps:
            self._before()
        self._steps.append(Step(what=what, mechanism=mechanism, cost=cost))
        return len(self._steps)

    def _noisy(self, position: int, name: str, truth: NDArray[np.int64], noise: TwoSidedNoise) -> NDArray[np.int64]:
        """Add noise from the step's own stream."""
        bundle = self._streams.bundle([("synthesis", str(position), name, noise.name)])
        answers = np.asarray(truth + noise.draw(bundle, truth.size)[0].reshape(truth.shape))
        answers.flags.writeable = False
        return answers

    def _second_moments(self, vectors: NDArray[np.int64], norm: int, cost: Fraction) -> NDArray[np.int64]:
        """Measure the sum of x x' over integer vectors of norm at most ``norm`` at rho = cost (`gaussian.md`)."""
        if (np.einsum("ij,ij->i", vectors, vectors) > norm * norm).any():
            raise InputError(Problem("vectors", "one is longer than the norm", "clip them first"))
        sigma2 = Fraction(self.changed * norm**4) / (2 * cost)
        on, off = DiscreteGaussian(sigma2), DiscreteGaussian(sigma2 / 2)
        position = self._charge("second moments", f"{on.name} on the diagonal, half of sigma2 off it", cost)
        sums = vectors.T @ vectors
        upper = np.triu_indices(len(sums), 1)
        out = np.zeros_like(sums)
        out[upper] = self._noisy(position, "second moments, off", sums[upper], off)
        out += out.T
        np.fill_diagonal(out, self._noisy(position, "second moments, on", np.diag(sums), on))
        return out

    def _choose(self, position: int, scores: Sequence[int], epsilon: Fraction, sensitivity: int) -> int:
        bits = self._streams.bits(("synthesis", str(position), "selection", "exponential"))
        return choose(bits, scores, epsilon=epsilon, sensitivity=sensitivity)


class Curator(Meter):
    """Records behind a budget: every answer is noisy, exact in law, and charged before it is drawn.

    Parameters
    ----------
    records : Records
        The confidential records.
    streams : Streams
        Keyed noise; each step has a stream of its own.
    framework : str
        ``"zcdp"`` or ``"pure"``.
    budget : Fraction
        What may be spent in all, rho or epsilon.
    neighbours : Neighbours
        Which two sets of records are compared.
    before : callable, optional
        Called once, before the first noise: where the ledger is charged.

    Examples
    --------
    >>> from das.noise.stream import RunKey
    >>> records = Records(Domain(("sex",), (2,)), np.array([[0], [1], [1]]))
    >>> curator = Curator(records, RunKey.for_testing("doc").streams(b""), framework="zcdp", budget=Fraction(1),
    ...                   neighbours=Neighbours.ADD_REMOVE)
    >>> curator.measure(("sex",), Fraction(1, 2)).noise.name, curator.left
    ('discrete-gaussian(sigma2=1)', Fraction(1, 2))
    >>> curator.measure(("sex",), Fraction(2, 3))
    Traceback (most recent call last):
    das.errors.BudgetError: sex: needs 2/3 and 1/2 is left of 1; give the method a larger budget
    """

    def __init__(
        self,
        records: Records,
        streams: Streams,
        *,
        framework: str,
        budget: Fraction,
        neighbours: Neighbours,
        before: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(streams, framework=framework, budget=budget, neighbours=neighbours, before=before)
        self._records = records
        self.domain = records.domain

    @property
    def public_total(self) -> int | None:
        """The number of records where neighbours share it, else None: then it is confidential."""
        return len(self._records) if self.neighbours is Neighbours.REPLACE else None

    def measure(self, attributes: Sequence[str], cost: Fraction) -> Measurement:
        """Measure a marginal with the noise that spends exactly ``cost``."""
        noise = FRAMEWORKS[self.framework].spending(cost, l1=self.changed, l2_squared=self.changed)
        return self.measure_with(attributes, noise, cost)

    def measure_with(self, attributes: Sequence[str], noise: TwoSidedNoise, cost: Fraction) -> Measurement:
        """Measure a marginal with a noise whose cost the caller has worked out."""
        name = " * ".join(attributes) or "total"
        position = self._charge(name, noise.name, cost)
        answers = self._noisy(position, name, self._records.counts(attributes), noise)
        return Measurement(tuple(attributes), answers, noise)

    def draw_within(
        self, attributes: Sequence[str], noise: TwoSidedNoise, largest: int, cost: Fraction
    ) -> NDArray[np.int64]:
        """Draw each count from its noisy law conditioned on {0..largest}, by redrawing what lies outside."""
        name = " * ".join(attributes)
        position = self._charge(name, f"{noise.name} conditioned on 0..{largest}", cost)
        truth = self._records.counts(attributes).reshape(-1)
        out = np.full(truth.size, -1, dtype=np.int64)
        attempt = 0
        while (waiting := np.flatnonzero(out < 0)).size:
            bundle = self._streams.bundle([("synthesis", f"{position}/{attempt}", name, noise.name)])
            drawn = truth[waiting] + noise.draw(bundle, waiting.size)[0]
            inside = (drawn >= 0) & (drawn <= largest)
            out[waiting[inside]] = drawn[inside]
            attempt += 1
        return out.reshape(self.domain.shape_of(attributes))

    def stable_cells(
        self, noise: TwoSidedNoise, threshold: int, cost: Fraction, delta: Fraction
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Release non-empty cells whose noisy count is above a threshold, in lexicographic order (`stability.md`)."""
        position = self._charge(f"cells above {threshold}", f"{noise.name} on non-empty cells", cost)
        self._delta += delta
        cells, counts = self._records.cells()
        bundle = self._streams.bundle([("synthesis", str(position), "stability", noise.name)])
        noisy = counts + noise.draw(bundle, len(counts))[0]
        kept = noisy > threshold
        return cells[kept], noisy[kept]

    def select(
        self,
        candidates: Sequence[Sequence[str]],
        estimates: Sequence[NDArray[np.float64]],
        penalties: Sequence[float],
        cost: Fraction,
        weights: Sequence[int] | None = None,
    ) -> int:
        """Choose the marginal that a model describes worst, by the exponential mechanism at rho = ``cost``.

        The score of a marginal is weight times (L1 distance of its counts to the estimate minus its penalty). Estimates
        and penalties are public; one neighbour moves the distance by 1 (add-remove) or 2 (replace).
        """
        return self.select_several(candidates, estimates, penalties, cost, 1, weights)[0]

    def select_several(
        self,
        candidates: Sequence[Sequence[str]],
        estimates: Sequence[NDArray[np.float64]],
        penalties: Sequence[float],
        cost: Fraction,
        number: int,
        weights: Sequence[int] | None = None,
    ) -> list[int]:
        """Choose several marginals one after the other, without replacement, each at rho = ``cost``; see `select`."""
        epsilon = epsilon_of_selection(cost) if self.framework == "zcdp" else cost
        charged = selection_cost(epsilon) if self.framework == "zcdp" else epsilon
        factors = weights if weights is not None else [1] * len(candidates)
        sensitivity = self.changed * _FINENESS * max(factors)
        left, scores, chosen = list(range(len(candidates))), None, []
        for _ in range(number):
            position = self._charge(f"selection among {len(left)} marginals", f"exponential({epsilon})", charged)
            if scores is None:  # after the first charge
                scores = [
                    factor * (self._distance(attributes, estimate) - round(penalty * _FINENESS))
                    for attributes, estimate, penalty, factor in zip(
                        candidates, estimates, penalties, factors, strict=True
                    )
                ]
            chosen.append(left.pop(self._choose(position, [scores[k] for k in left], epsilon, sensitivity)))
        return chosen

    def select_cell(
        self, marginals: Sequence[tuple[str, ...]], estimates: Sequence[NDArray[np.float64]], cost: Fraction
    ) -> tuple[int, int]:
        """Choose the single count that a model describes worst: which marginal, and which of its cells.

        One neighbour moves a count, and so the score |count - estimate|, by at most one.
        """
        epsilon = epsilon_of_selection(cost) if self.framework == "zcdp" else cost
        charged = selection_cost(epsilon) if self.framework == "zcdp" else epsilon
        position = self._charge("selection of a count", f"exponential({epsilon})", charged)
        parts = [
            np.abs(self._records.counts(each) * _FINENESS - np.rint(estimate * _FINENESS).astype(np.int64)).reshape(-1)
            for each, estimate in zip(marginals, estimates, strict=True)
        ]
        starts = np.cumsum([0, *(len(part) for part in parts)])
        chosen = self._choose(position, np.concatenate(parts).tolist(), epsilon, _FINENESS)
        marginal = int(np.searchsorted(starts, chosen, side="right")) - 1
        return marginal, chosen - int(starts[marginal])

    def first_above(
        self,
        marginals: Sequence[tuple[str, ...]],
        estimates: Sequence[NDArray[np.float64]],
        begin: int,
        threshold: int,
        cost: Fraction,
    ) -> int | None:
        """Return the first of a sequence of counts that is far from its estimate, or None (`pmw.md`).

        Counts of all marginals stand side by side; the sequence begins at ``begin`` and goes round once. The threshold
        has noise of scale 2 / cost and every distance one of scale 4 / cost, so that the answer is cost-DP however many
        counts are looked at.
        """
        on_threshold, on_counts = DiscreteLaplace(2 / cost), DiscreteLaplace(4 / cost)
        position = self._charge(f"first count off by {threshold}", f"above-threshold({cost})", cost)
        parts = [
            np.abs(self._records.counts(each) - np.rint(estimate).astype(np.int64)).reshape(-1)
            for each, estimate in zip(marginals, estimates, strict=True)
        ]
        distance = np.roll(np.concatenate(parts), -begin)
        noisy = self._noisy(position, "distances", distance, on_counts)
        limit = self._noisy(position, "threshold", np.array([threshold]), on_threshold)[0]
        above = np.flatnonzero(noisy >= limit)
        return int(above[0] + begin) % len(distance) if len(above) else None

    def measure_cell(self, attributes: Sequence[str], cell: int, cost: Fraction) -> int:
        """Measure one count of a marginal; one neighbour moves it by at most one."""
        noise = FRAMEWORKS[self.framework].spending(cost, l1=1, l2_squared=1)
        name = f"{' * '.join(attributes)} [{cell}]"
        position = self._charge(name, noise.name, cost)
        return int(self._noisy(position, name, self._records.counts(attributes).reshape(-1)[cell : cell + 1], noise)[0])

    def measure_scores(self, scores: Sequence[NDArray[np.int64]], norm: int, cost: Fraction) -> NDArray[np.int64]:
        """Measure second moments of public integer scores of the labels (`gaussian.md`)."""
        columns = [score[column] for score, column in zip(scores, self._records.columns(), strict=True)]
        return self._second_moments(np.stack(columns, axis=1), norm, cost)

    def _distance(self, attributes: Sequence[str], estimate: NDArray[np.float64]) -> int:
        rounded = np.rint(estimate * _FINENESS).astype(np.int64)
        return int(np.abs(self._records.counts(attributes) * _FINENESS - rounded).sum())
