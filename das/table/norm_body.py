"""Norms whose unit ball is the convex hull of the moves, evaluated exactly: rational numbers with a certificate.

    ||v||_K = min sum(lambda)  subject to  sum(lambda_i move_i) = v, lambda >= 0
            = max <y, v>       subject to  |<y, move_i>| <= 1

`MaximumNorm` is the closed form for nested totals and for two crossing pairs of totals (``lattice_k_norm.md``);
`HullNorm` solves the linear programme. A solver in floating point proposes both solutions; rationals decide whether
they are feasible and equal, and if not, an exact simplex method is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

__all__ = ["HullNorm", "MaximumNorm", "NormBody"]

_DENOMINATOR = 5040


class NormBody(Protocol):
    """A norm on moves that is at most 1 for every neighbour's move, and its largest L1 norm at norm 1."""

    @property
    def l1(self) -> int:
        """The largest L1 norm of a move: ``||v||_1 / l1 <= ||v||_K``."""

    def norm(self, move: NDArray[np.int64]) -> Fraction:
        """Return the norm exactly."""


@dataclass(frozen=True, slots=True)
class MaximumNorm:
    """``max(||v||_1 / l1, |<cap, v>|)``: nested totals (no cap), or totals of two crossing pairs of groups.

    Examples
    --------
    >>> MaximumNorm(4).norm(np.array([1, -1, 0])), MaximumNorm(6, (1, 0, 0, 0)).norm(np.array([1, -1, -1, 1]))
    (Fraction(1, 2), Fraction(1, 1))
    """

    l1: int
    cap: tuple[int, ...] = ()

    def norm(self, move: NDArray[np.int64]) -> Fraction:
        """Return the norm exactly."""
        size = Fraction(int(np.abs(move).sum()), self.l1)
        return max(size, Fraction(abs(int(np.dot(self.cap, move))))) if self.cap else size


@dataclass(frozen=True)
class HullNorm:
    """The norm whose unit ball is the hull of listed moves; `free` are cells that determine a move.

    Examples
    --------
    >>> from das.table.sensitivity_space import hexagon_moves, square_moves
    >>> body = HullNorm(square_moves(3, 3), (0, 1, 3, 4))
    >>> body.norm(hexagon_moves(3, 3)[0]), body.exactly(hexagon_moves(3, 3)[0][[0, 1, 3, 4]])
    (Fraction(2, 1), Fraction(2, 1))
    """

    moves: NDArray[np.int64]
    free: tuple[int, ...]

    @cached_property
    def l1(self) -> int:
        """The largest L1 norm of a move."""
        return int(np.abs(self.moves).sum(axis=1).max())

    @cached_property
    def points(self) -> NDArray[np.int64]:
        """The moves and their negatives in the coordinates of the free cells, each once."""
        short = self.moves[:, list(self.free)]
        return np.asarray(np.unique(np.concatenate([short, -short]), axis=0))

    def norm(self, move: NDArray[np.int64]) -> Fraction:
        """Return the norm exactly."""
        short = np.asarray(move, dtype=np.int64)[list(self.free)]
        if not short.any():
            return Fraction(0)
        found = linprog(np.ones(len(self.points)), A_eq=self.points.T, b_eq=short, method="highs")
        if found.status == 0:
            certified = self._certified(short, found.x, found.eqlin.marginals)
            if certified is not None:
                return certified
        return self.exactly(short)

    def _certified(
        self, short: NDArray[np.int64], weights: NDArray[np.float64], dual: NDArray[np.float64]
    ) -> Fraction | None:
        """Round both solutions to rationals; return their common value if both are feasible and it is one value."""
        primal = {i: Fraction(weights[i]).limit_denominator(_DENOMINATOR) for i in np.flatnonzero(weights > 1e-9)}
        if any(
            sum((w * int(self.points[i, c]) for i, w in primal.items()), Fraction(0)) != int(v)
            for c, v in enumerate(short)
        ):
            return None
        y = [Fraction(float(entry)).limit_denominator(_DENOMINATOR) for entry in dual]
        common = int(np.lcm.reduce([entry.denominator for entry in y]))
        scaled = np.array([int(entry * common) for entry in y], dtype=np.int64)
        if np.abs(self.points @ scaled).max() > common:
            return None
        value = Fraction(int(scaled @ short), common)
        return value if sum(primal.values(), Fraction(0)) == value else None

    def exactly(self, short: NDArray[np.int64]) -> Fraction:
        """Return the norm by the simplex method in rationals with Bland's rule, from y = 0; slow, always right."""
        size = len(self.free)
        rows = [[Fraction(int(e)) for e in (*p, *(-p))] for p in self.points]  # y = first half - second half
        rest = [Fraction(1)] * len(rows)
        gain = [Fraction(int(e)) for e in (*short, *(-short))]
        basic, idle = list(range(2 * size, 2 * size + len(rows))), list(range(2 * size))
        value = Fraction(0)
        while entering := [c for c in range(2 * size) if gain[c] > 0]:
            c = min(entering, key=lambda column: idle[column])
            limits = [(rest[r] / rows[r][c], basic[r], r) for r in range(len(rows)) if rows[r][c] > 0]
            r = min(limits)[2]  # the ball is bounded, so some row limits the step
            pivot = rows[r][c]
            rows[r] = [e / pivot for e in rows[r]]
            rows[r][c] = 1 / pivot
            rest[r] /= pivot
            for other in range(len(rows)):
                if other != r and (factor := rows[other][c]):
                    rows[other] = [a - factor * b for a, b in zip(rows[other], rows[r], strict=True)]
                    rows[other][c] = -factor / pivot
                    rest[other] -= factor * rest[r]
            factor = gain[c]
            gain = [a - factor * b for a, b in zip(gain, rows[r], strict=True)]
            gain[c] = -factor / pivot
            value += factor * rest[r]
            basic[r], idle[c] = idle[c], basic[r]
        return value
