"""Many marginals of one table with few passes over it, and the transpose: a sum of marginal functions on the table.

Every pair of attributes misses one of any three attributes. So the marginals of all pairs follow from three partial
sums, each over one axis, and so on within these; the table itself is read three times and not once for each pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Axes", "Projection", "projection"]

Axes = tuple[int, ...]
Tables = Mapping[Axes, NDArray[np.float64]]


@dataclass(frozen=True)
class Projection:
    """A table over ``axes``: whether it is wanted itself, and the smaller tables that all others are read from."""

    axes: Axes
    shape: tuple[int, ...]
    wanted: bool
    parts: tuple[Projection, ...]

    def marginals(self, table: NDArray[np.float64]) -> dict[Axes, NDArray[np.float64]]:
        """Return every wanted marginal of a table.

        Examples
        --------
        >>> plan = projection((0, 1), (2, 3), [(0,), (1,)])
        >>> {axes: found.tolist() for axes, found in sorted(plan.marginals(np.ones((2, 3))).items())}
        {(0,): [3.0, 3.0], (1,): [2.0, 2.0, 2.0]}
        """
        found: dict[Axes, NDArray[np.float64]] = {}
        self._collect(table, found)
        return found

    def _collect(self, table: NDArray[np.float64], found: dict[Axes, NDArray[np.float64]]) -> None:
        if self.wanted:
            found[self.axes] = table
        for part in self.parts:
            summed = tuple(place for place, axis in enumerate(self.axes) if axis not in part.axes)
            part._collect(table.sum(axis=summed), found)

    def spread(self, values: Tables) -> NDArray[np.float64]:
        """Return the table whose entry is the sum of each function's value there: the transpose of `marginals`.

        Examples
        --------
        >>> plan = projection((0, 1), (2, 2), [(0,), (1,)])
        >>> plan.spread({(0,): np.array([0.0, 10.0]), (1,): np.array([1.0, 2.0])}).tolist()
        [[1.0, 2.0], [11.0, 12.0]]
        """
        out = np.zeros(self.shape)
        if self.wanted:
            out += values[self.axes]
        for part in self.parts:
            sizes = dict(zip(part.axes, part.shape, strict=True))
            out += part.spread(values).reshape(tuple(sizes.get(axis, 1) for axis in self.axes))
        return out


def projection(axes: Axes, shape: tuple[int, ...], wanted: Iterable[Axes]) -> Projection:
    """Plan the partial sums: drop the longest axis that some wanted marginal lacks, serve all that lack it, go on.

    Parameters
    ----------
    axes : tuple of int
        Axes of the table in ascending order.
    shape : tuple of int
        Their lengths.
    wanted : iterable of tuple of int
        Marginals as ascending axes.
    """
    sizes = dict(zip(axes, shape, strict=True))
    rest = set(wanted)
    own = axes in rest
    rest.discard(axes)
    parts = []
    while rest:
        dropped = max((axis for axis in axes if any(axis not in each for each in rest)), key=sizes.__getitem__)
        served = {each for each in rest if dropped not in each}
        kept = tuple(axis for axis in axes if any(axis in each for each in served))
        parts.append(projection(kept, tuple(sizes[axis] for axis in kept), served))
        rest -= served
    return Projection(axes, shape, own, tuple(parts))
