"""Closed forms for conditioned double-geometric noise: one total over cells, with and without non-negativity.

Every cell has noise P(u) proportional to q^|u|, q = e^-epsilon0, conditioned on the total n; r = q^2 = e^(-2 epsilon0).
Normalisers are of the weights q^|s - x|, so that Z = 1 for a set with x alone. Loss is what Gong and Meng (2020) call
(1 + gamma) k epsilon: the largest log-ratio of the conditioned law between two data sets k steps apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, exp, expm1, fsum, log

import numpy as np
from numpy.typing import NDArray

from das.errors import ConfigError, Problem

__all__ = ["Example", "gamma", "gamma_examples", "two_cell_law", "two_cell_log_z", "two_cell_loss", "vertex_loss"]


def two_cell_log_z(epsilon0: float, total: int, first: int) -> float:
    """Return log Z of two non-negative cells (first, total - first): Z = (1 + r - r^(s+1) - r^(n-s+1)) / (1 - r).

    Examples
    --------
    >>> round(two_cell_log_z(0.5, 20, 5), 6)
    0.770123
    """
    _check(epsilon0, total, first)
    step = -2.0 * epsilon0
    return log((1.0 + exp(step) - exp(step * (first + 1)) - exp(step * (total - first + 1))) / -expm1(step))


def two_cell_law(epsilon0: float, total: int, first: int) -> NDArray[np.float64]:
    """Return P(s = 0), ..., P(s = total) of the first of two non-negative cells: r^|s - first| / Z.

    Examples
    --------
    >>> two_cell_law(0.5, 2, 0).round(4).tolist()
    [0.6652, 0.2447, 0.09]
    """
    away = np.abs(np.arange(total + 1) - first)
    law: NDArray[np.float64] = np.exp(-2.0 * epsilon0 * away - two_cell_log_z(epsilon0, total, first))
    return law


def two_cell_loss(epsilon0: float, total: int, first: int, other: int) -> float:
    """Return the loss from (first, total - first) to (other, total - other): 2 epsilon0 |move| + log Z' - log Z.

    Examples
    --------
    >>> round(two_cell_loss(0.5, 20, 0, 1), 8), round(two_cell_loss(0.5, 20, 1, 0), 8)
    (1.20908045, 0.79091955)
    """
    change = two_cell_log_z(epsilon0, total, other) - two_cell_log_z(epsilon0, total, first)
    return 2.0 * epsilon0 * abs(first - other) + change


def vertex_loss(epsilon0: float, cells: int, total: int) -> float:
    """Return the loss when everybody is in one cell of several and one person moves to an empty cell.

    Z = sum over t <= n of C(t+d-2, d-2) r^t and Z' = sum over j + u <= n of C(u+d-3, d-3) q^(|1-j-u| + |j-1| + u),
    where j is the count of the receiving cell and u that of the d - 2 others. As n grows the loss tends to
    2 epsilon0 + log(1 + (1 - r) - (1 - r)^d), `das.accounting.conditioning.geometric_vertex_limit`.

    Examples
    --------
    >>> round(vertex_loss(0.5, 2, 20), 8) == round(two_cell_loss(0.5, 20, 0, 1), 8)
    True
    >>> round(vertex_loss(0.5, 8, 60) - 1.0, 5)
    0.47414
    """
    _check(epsilon0, total, 0)
    if cells < 2 or total < 1:
        raise ConfigError(Problem("vertex", "it needs two cells and one person at least", "give more of them"))
    others = cells - 2
    before = fsum(comb(t + others, others) * exp(-2.0 * epsilon0 * t) for t in range(total + 1))
    after = fsum(
        (comb(u + others - 1, others - 1) if others else 1) * exp(-epsilon0 * (abs(1 - j - u) + abs(j - 1) + u))
        for u in range(total + 1 if others else 1)
        for j in range(total + 1 - u)
    )
    return 2.0 * epsilon0 + log(after) - log(before)


def gamma(loss: float, steps: int, epsilon: float) -> float:
    """Return gamma of Gong and Meng (2020), loss = (1 + gamma) k epsilon, for a mechanism that is epsilon-DP a step.

    It is only a notation for the loss and depends on what is called a step. Report the loss.

    Examples
    --------
    >>> gamma(0.5, 2, 0.5), gamma(0.5, 1, 0.5)
    (-0.5, 0.0)
    """
    return loss / (steps * epsilon) - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One line of the table of gammas: what is conditioned on, what a step is, and what follows."""

    conditioned_on: str
    step: str
    steps: int
    epsilon: float
    loss: float

    @property
    def gamma(self) -> float:
        """Gamma as the paper defines it."""
        return gamma(self.loss, self.steps, self.epsilon)


def gamma_examples(epsilon: float) -> tuple[Example, ...]:
    """Return the paper's closed-form cases, for two cells with double-geometric noise of scale 2/epsilon each.

    The move is (1, -1): one person changes cells. That is one substitution, or two steps of adding and removing. The
    unconditioned answers are epsilon-DP for a substitution (they move by 2 in L1) and epsilon/2-DP for one addition or
    removal (they move by 1). Given the total the first cell has the law q^(2|s - x|), so the loss is epsilon.

    - Nothing is conditioned on: gamma = 0.
    - The outcome is fixed altogether: the loss is 0, gamma = -1, and nothing about the data is released.
    - The total: gamma = 0 in both conventions. The often quoted -1/2 takes epsilon from the one and k from the other.

    Examples
    --------
    >>> [(e.conditioned_on, e.step, e.loss, e.gamma) for e in gamma_examples(0.5)][2:]
    [('the total', 'substitution', 0.5, 0.0), ('the total', 'addition or removal', 0.5, 0.0),
     ('the total', 'mixed', 0.5, -0.5)]
    """
    return (
        Example(conditioned_on="nothing", step="substitution", steps=1, epsilon=epsilon, loss=epsilon),
        Example(conditioned_on="the whole table", step="substitution", steps=1, epsilon=epsilon, loss=0.0),
        Example(conditioned_on="the total", step="substitution", steps=1, epsilon=epsilon, loss=epsilon),
        Example(conditioned_on="the total", step="addition or removal", steps=2, epsilon=epsilon / 2, loss=epsilon),
        Example(conditioned_on="the total", step="mixed", steps=2, epsilon=epsilon, loss=epsilon),
    )


def _check(epsilon0: float, total: int, first: int) -> None:
    if not epsilon0 > 0:
        raise ConfigError(Problem("epsilon0", "it is not positive", "give the loss of one cell by one"))
    if not 0 <= first <= total:
        raise ConfigError(Problem("two cells", "a count lies outside 0 to the total", "give counts of the table"))
