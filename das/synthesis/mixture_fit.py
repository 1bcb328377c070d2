"""Gradient steps on the logits of a mixture of products, towards noisy marginals.

The objective is that of the maximum-entropy fit (`das.synthesis.graphical.fit`) with a bound in place of the entropy:

    sum_c |y_c - N M_c p|^2 / (2 v_c)  +  tau N sum_j I(k; x_j)

The mutual information of the component k and attribute j, summed over j, is at least the Kullback-Leibler divergence of
p from independent attributes. Without it components describe the noise, and what was not measured follows from chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from das.synthesis.curator import Measurement
from das.synthesis.domain import Constraints, Domain
from das.synthesis.rows import systematic_counts

__all__ = ["Goal", "Goals", "Mixture", "fitted", "goals_of"]

Values = NDArray[np.float64]
_ZERO_WEIGHT = 10.0
"""How much more an impossible cell weighs than the most precise measurement."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """Weights of the components, and for each attribute the probabilities of its labels in each component."""

    weights: Values
    tables: tuple[Values, ...]

    @classmethod
    def start(cls, shape: Sequence[int], components: int) -> Mixture:
        """Return components that differ at random, always the same: a start that favours no label."""
        generator = np.random.default_rng(0)
        return cls(
            np.full(components, 1.0 / components),
            tuple(_softmax(generator.normal(0.0, 0.5, (components, size))) for size in shape),
        )

    def marginal(self, axes: Sequence[int]) -> Values:
        """Return the probabilities of a marginal, flat."""
        left, last = _left(self.tables, axes), self.tables[axes[-1]]
        return np.asarray((self.weights[:, None] * left).T @ last).reshape(-1)

    def rows(self, n: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """Return n rows: components and, in each, single attributes have their shares within one."""
        counts = systematic_counts(np.array([n]), self.weights[None, :], generator)[0]
        component = np.repeat(np.arange(len(counts)), counts)
        out = np.empty((n, len(self.tables)), dtype=np.int64)
        for axis, table in enumerate(self.tables):
            split = systematic_counts(counts, table, generator)
            labels = np.repeat(np.tile(np.arange(table.shape[1]), len(counts)), split.reshape(-1))
            shuffled = generator.permutation(n)
            out[shuffled[np.argsort(component[shuffled], kind="stable")], axis] = labels
        return out


@dataclass(frozen=True, eq=False)
class Goal:
    """Shares that a marginal should have, and how much each counts."""

    axes: tuple[int, ...]
    shares: Values
    weight: Values


@dataclass(frozen=True, eq=False)
class Goals:
    """All of them, and the weight of the dependence on components; the most precise measurement has weight one."""

    marginals: tuple[Goal, ...]
    penalty: float = 0.0


def goals_of(
    measured: Sequence[Measurement], domain: Domain, constraints: Constraints, *, total: float, tau: Fraction
) -> Goals:
    """Return measurements weighted by their precision, and the zeros, as shares."""
    goals = []
    most = max(1.0 / each.noise.variance() for each in measured)
    for each in measured:
        key = domain.ordered(each.attributes)
        possible = constraints.possible(key, domain.shape_of(key)).reshape(-1)
        answers = np.transpose(each.answers, [each.attributes.index(name) for name in key]).reshape(-1)
        weight = np.where(possible, 1.0 / each.noise.variance(), _ZERO_WEIGHT * most)
        goals.append(Goal(domain.axes(key), np.where(possible, answers / total, 0.0), weight / most))
    covered = {goal.axes for goal in goals}
    for zero in constraints.zeros:
        if (axes := domain.axes(zero.attributes)) not in covered:
            empty = zero.impossible.reshape(-1)
            goals.append(Goal(axes, np.zeros(len(empty)), np.where(empty, _ZERO_WEIGHT, 0.0)))
    return Goals(tuple(goals), 2 * float(tau) / (most * total))


def fitted(start: Mixture, goals: Goals, *, steps: int, rate: float = 0.1) -> Mixture:
    """Return a mixture after Adam steps (Kingma and Ba 2015) on the weighted squared distance to all goals.

    The step size falls to zero along half a cosine, so that the last steps settle.

    Examples
    --------
    >>> goal = Goal((0, 1), np.array([0.4, 0.1, 0.1, 0.4]), np.ones(4))
    >>> found = fitted(Mixture.start((2, 2), 4), Goals((goal,)), steps=300)
    >>> found.marginal((0, 1)).round(2).tolist()
    [0.4, 0.1, 0.1, 0.4]
    """
    logits = [np.log(np.maximum(start.weights, 1e-12)), *(np.log(np.maximum(t, 1e-12)) for t in start.tables)]
    first, second = [np.zeros_like(each) for each in logits], [np.zeros_like(each) for each in logits]
    for step in range(1, steps + 1):
        mixture = Mixture(_softmax(logits[0]), tuple(_softmax(each) for each in logits[1:]))
        gradients = _gradients(mixture, goals)
        size = rate * 0.5 * (1 + np.cos(np.pi * step / steps))
        for place, gradient in enumerate(gradients):
            first[place] = 0.9 * first[place] + 0.1 * gradient
            second[place] = 0.999 * second[place] + 0.001 * gradient**2
            mean = first[place] / (1 - 0.9**step)
            spread = np.sqrt(second[place] / (1 - 0.999**step))
            logits[place] = logits[place] - size * mean / (spread + 1e-12)
    return Mixture(_softmax(logits[0]), tuple(_softmax(each) for each in logits[1:]))


def _gradients(mixture: Mixture, goals: Goals) -> list[Values]:
    """Return the gradient with respect to the logits of the weights and of each table."""
    by_weight = np.zeros_like(mixture.weights)
    by_table = []
    for table in mixture.tables:
        apart = np.log((table + 1e-12) / (mixture.weights @ table + 1e-12))
        by_weight += goals.penalty * (table * apart).sum(axis=1)
        by_table.append(goals.penalty * mixture.weights[:, None] * apart)
    for goal in goals.marginals:
        left, last = _left(mixture.tables, goal.axes), mixture.tables[goal.axes[-1]]
        weighted = mixture.weights[:, None] * left
        residual = 2 * goal.weight * ((weighted.T @ last).reshape(-1) - goal.shares)
        slope = residual.reshape(left.shape[1], last.shape[1])
        by_table[goal.axes[-1]] += weighted @ slope
        of_left = last @ slope.T
        by_weight += (left * of_left).sum(axis=1)
        of_left *= mixture.weights[:, None]
        for place in range(len(goal.axes) - 2, -1, -1):
            # split the product of the first attributes into all but its last, and that one
            inner = _left(mixture.tables, goal.axes[: place + 1])
            table = mixture.tables[goal.axes[place]]
            cube = of_left.reshape(len(table), inner.shape[1], table.shape[1])
            by_table[goal.axes[place]] += np.einsum("kab,ka->kb", cube, inner)
            of_left = np.einsum("kab,kb->ka", cube, table)
    return [_through_softmax(mixture.weights, by_weight)] + [
        _through_softmax(table, gradient) for table, gradient in zip(mixture.tables, by_table, strict=True)
    ]


def _left(tables: Sequence[Values], axes: Sequence[int]) -> Values:
    """Return, for each component, the product over all attributes but the last: components x cells."""
    out = np.ones((len(tables[0]), 1))
    for axis in axes[:-1]:
        out = (out[:, :, None] * tables[axis][:, None, :]).reshape(len(out), -1)
    return out


def _through_softmax(probabilities: Values, gradient: Values) -> Values:
    return np.asarray(probabilities * (gradient - (probabilities * gradient).sum(axis=-1, keepdims=True)))


def _softmax(logits: Values) -> Values:
    weight = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weight / weight.sum(axis=-1, keepdims=True))
