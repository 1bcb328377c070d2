"""The estimation problem of one family: a parent's counts, its children's measurements, and limits on the children.

There is no field through which a true histogram could arrive: measurements, public facts and the parent's protected
counts are all that an estimator sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from das.schema.limits import Limits
from das.schema.query import Query

__all__ = ["Diagnostics", "FamilyEstimate", "FamilyProblem", "Measured", "Quadratic", "Solution"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Noisy answers of one query for each child, and the exact variance of their noise."""

    query: Query
    values: NDArray[np.signedinteger[Any]]  # children x query.size, in integers as small as hold them
    variance: float

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape[1] != self.query.size:
            raise ValueError(f"measured {self.query.name!r} needs children x {self.query.size} values")
        if not 0 < self.variance < np.inf:
            raise ValueError(f"measured {self.query.name!r}: an exact answer is a limit, not a measurement")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quadratic:
    """A quadratic in the children's counts x around a reference r: the distance to linear estimates, with priors.

        constant + sum over children of  [(x - r)' hessian (x - r) - 2 linear . (x - r)]

    ``hessian`` is half the second derivative. The reference is near the answer and keeps the terms as small as the
    noise, however large the counts. Children share one Hessian, or each has its own: then pairs of cells come in a few
    ``kinds`` (do they agree in age, in race, ...), and a child's Hessian is one number for each kind.
    """

    hessian: NDArray[np.float64]  # cells x cells; with kinds, children x kinds
    kinds: NDArray[np.int64] | None = None  # cells x cells
    reference: NDArray[np.float64]  # children x cells
    linear: NDArray[np.float64]  # children x cells
    constant: float
    modulus: float  # every hessian is at least this times the identity

    def value(self, x: NDArray[np.float64]) -> float:
        """Distance of counts, children x cells.

        Examples
        --------
        >>> square = Quadratic(hessian=np.eye(2), reference=np.array([[3.0, 4.0]]), linear=np.zeros((1, 2)),
        ...                    constant=0.0, modulus=1.0)
        >>> square.value(np.zeros((1, 2)))
        25.0
        """
        step = x - self.reference
        return self.constant + float((step * (self.hessian_product(step) - 2.0 * self.linear)).sum())

    def half_gradient(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Half the gradient of the distance."""
        return self.hessian_product(x - self.reference) - self.linear

    def hessian_product(self, step: NDArray[np.float64]) -> NDArray[np.float64]:
        """Multiply each child's row by its Hessian."""
        if self.kinds is None:
            return np.asarray(step @ self.hessian)
        return np.stack([row.take(self.kinds) @ of_child for row, of_child in zip(self.hessian, step, strict=True)])

    def block(self, child: int, cells: NDArray[np.int64]) -> NDArray[np.float64]:
        """Hessian of a child on some of the cells, as an array of its own."""
        if self.kinds is None:
            return self.hessian.take(cells[:, None] * len(self.hessian) + cells)
        return np.asarray(self.hessian[child]).take(self.kinds.take(cells[:, None] * len(self.kinds) + cells))


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyProblem:
    """One family to estimate.

    ``cells`` are the cells in which anybody can be (structural zeros left out and, below the top, only those where the
    parent is positive), ascending; ``parent`` holds the parent's counts there and is ``None`` at the top of the spine.
    ``correlated`` is the distance to linear estimates that use all levels; without it, the distance is that to what was
    measured at this level.
    """

    level: str
    geocodes: tuple[str, ...]
    cells: NDArray[np.int64]
    parent: NDArray[np.int64] | None
    measured: tuple[Measured, ...]
    limits: tuple[Limits, ...]
    correlated: Quadratic | None = None

    def __post_init__(self) -> None:
        if not self.geocodes:
            raise ValueError(f"a family at level {self.level!r} has no children")
        if self.parent is not None and self.parent.shape != self.cells.shape:
            raise ValueError(f"family of {self.geocodes[0]!r}: the parent needs one count for each cell")
        rows = {m.values.shape[0] for m in self.measured} | {limits.lower.shape[0] for limits in self.limits}
        if rows - {len(self.geocodes)}:
            raise ValueError(f"family of {self.geocodes[0]!r}: one row for each of {len(self.geocodes)} children")
        if self.correlated is not None and self.correlated.linear.shape != self.shape:
            raise ValueError(
                f"family of {self.geocodes[0]!r}: linear estimates need one number for each child and cell"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Children and cells of the solution."""
        return len(self.geocodes), len(self.cells)

    @property
    def name(self) -> str:
        """The family as a user would point at it: never a count."""
        first, last = self.geocodes[0], self.geocodes[-1]
        return f"{self.level} {first}" if len(self.geocodes) == 1 else f"{self.level} {first} to {last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """A real-valued solution, nonnegative and with the parent's sums, and its residual and gap, recomputed from it."""

    x: NDArray[np.float64]  # children x len(cells)
    solver: str
    residual: float
    gap: float
    iterations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostics:
    """How well one family was solved, recomputed from the solution rather than reported by the solver."""

    solver: str
    residual: float  # largest violation of any constraint by the real-valued solution, in persons
    gap: float  # relative duality gap, recomputed from a lower bound (:mod:`das.estimation.certificate`)
    iterations: int
    rounding_distance: float  # L1 distance of the integer solution to the real-valued one
    widened: int  # how often the box of the rounding had to be widened


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyEstimate:
    """Protected integer counts of each child on ``cells``; every other cell is zero."""

    cells: NDArray[np.int64]
    counts: NDArray[np.int64]  # children x len(cells)
    diagnostics: Diagnostics
