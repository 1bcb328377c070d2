"""Models that are a table of all cells, or a list of some: histograms and multiplicative weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from das.errors import ConfigError, Problem
from das.synthesis.domain import Constraints, Domain

__all__ = ["LARGEST", "CellModel", "dense", "possible_table", "require_dense"]

LARGEST = 20_000_000
"""Cells up to which a table of all of them is made."""


@dataclass(frozen=True, eq=False)
class CellModel:
    """Non-negative weights of some cells; the others have none.

    Examples
    --------
    >>> model = CellModel(Domain(("sex", "age"), (2, 2)), np.array([[0, 0], [1, 1]]), np.array([3.0, 1.0]), total=4.0)
    >>> model.marginal(("sex",)).tolist(), model.rows(4, np.random.default_rng(1)).tolist()
    ([3.0, 1.0], [[0, 0], [0, 0], [0, 0], [1, 1]])
    """

    domain: Domain
    cells: NDArray[np.int64]
    """One row of label positions for each cell."""
    weights: NDArray[np.float64]
    total: float

    def marginal(self, attributes: Iterable[str]) -> NDArray[np.float64]:
        """Return expected counts of a marginal."""
        named = tuple(attributes)
        shape = self.domain.shape_of(named)
        whole = float(self.weights.sum()) or 1.0
        if not named:
            return np.array(self.total)
        at = np.ravel_multi_index(tuple(self.cells[:, axis] for axis in self.domain.axes(named)), shape)
        sums = np.bincount(at, weights=self.weights, minlength=int(np.prod(shape)))
        return np.asarray(sums.reshape(shape) * (self.total / whole))

    def rows(self, n: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """Return n rows: each cell's expected count rounded up or down, the sum exact."""
        from das.synthesis.rows import systematic_counts

        counts = systematic_counts(np.array([n]), self.weights[None, :], generator)[0]
        return np.repeat(self.cells, counts, axis=0)


def dense(domain: Domain, table: NDArray[np.float64], total: float) -> CellModel:
    """Return the model of a table of all cells; empty ones are left out."""
    held = np.flatnonzero(table.reshape(-1) > 0)
    cells = np.stack(np.unravel_index(held, domain.shape), axis=1).astype(np.int64)
    return CellModel(domain, cells, table.reshape(-1)[held].astype(np.float64), total)


def require_dense(domain: Domain, method: str, largest: int = LARGEST) -> None:
    """Refuse a domain whose cells cannot all be held, and name methods that can.

    Raises
    ------
    ConfigError
        Before anything is spent.
    """
    if domain.size > largest:
        reason = f"has {domain.size:.3g} cells, and `{method}` makes a table of all of them (at most {largest:.3g})"
        remedy = "use `mst` or `aim`, whose models are smaller, or `stability`, which sees non-empty cells alone"
        raise ConfigError(Problem("domain", reason, remedy))


def possible_table(domain: Domain, constraints: Constraints) -> NDArray[np.bool_]:
    """Return a flag for each cell of the domain."""
    return constraints.possible(domain.names, domain.shape)
