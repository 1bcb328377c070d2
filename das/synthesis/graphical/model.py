"""A fitted graphical model: probabilities of a calibrated junction tree, any marginal of it, and integer rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from das.synthesis.domain import Constraints, Domain
from das.synthesis.graphical.calibration import eliminate
from das.synthesis.graphical.junction_tree import JunctionTree
from das.synthesis.graphical.projection import Axes, projection

__all__ = ["Convergence", "GraphicalModel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Convergence:
    """How a fit ended.

    ``chi_square`` is the mean of squared residuals over noise variances. At the truth it is 1 on average, and a
    converged fit has less; a fit that has more did not converge, or its measurements contradict the constraints.
    ``gradient`` is the largest remaining residual of an optimality condition, in counts.
    """

    iterations: int
    gradient: float
    chi_square: float
    numbers: int
    converged: bool


@dataclass(frozen=True, eq=False)
class GraphicalModel:
    """A distribution on the domain times a total; read-only.

    Examples
    --------
    >>> from das.noise import DiscreteGaussian
    >>> from das.synthesis.curator import Measurement
    >>> from das.synthesis.graphical.fit import fit
    >>> seen = Measurement(("sex",), np.array([30, 70]), DiscreteGaussian("1/100"))
    >>> model = fit([seen], Domain(("sex", "age"), (2, 2)), total=100)
    >>> model.marginal(("sex", "age")).round(2).tolist()
    [[15.0, 15.0], [35.0, 35.0]]
    """

    domain: Domain
    constraints: Constraints
    total: float
    tree: JunctionTree
    tables: tuple[NDArray[np.float64], ...]
    parameters: Mapping[tuple[str, ...], NDArray[np.float64]]
    convergence: Convergence

    def marginal(self, attributes: Iterable[str]) -> NDArray[np.float64]:
        """Return expected counts of a marginal, axes in the order given."""
        named = tuple(attributes)
        ordered = self.domain.ordered(named)
        return np.transpose(self.marginals([ordered])[ordered], [ordered.index(name) for name in named])

    def marginals(self, wanted: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], NDArray[np.float64]]:
        """Return several marginals, attributes in axis order: those within one node share their partial sums."""
        by_node: dict[int, list[Axes]] = {}
        apart: list[Axes] = []
        for attributes in wanted:
            axes = self.domain.axes(attributes)
            node = self.tree.holder(axes)
            apart.append(axes) if node is None else by_node.setdefault(node, []).append(axes)
        found = {axes: eliminate(self.tree, self.tables, axes) for axes in apart}
        for node, sets in by_node.items():
            table = self.tables[node]
            found |= projection(self.tree.nodes[node], table.shape, sets).marginals(table)
        return {tuple(self.domain.names[a] for a in axes): self.total * table for axes, table in found.items()}

    def rows(
        self, n: int, generator: np.random.Generator, targets: Sequence[tuple[str, ...]] | None = None
    ) -> NDArray[np.int64]:
        """Return n integer rows whose marginals follow the model's; see :func:`das.synthesis.rows.controlled_rows`."""
        from das.synthesis.rows import controlled_rows

        return controlled_rows(self, n, generator, targets)
