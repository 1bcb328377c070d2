"""The arrays that the compiled solver reads, by name. Numba takes named tuples as they are.

Children and cells of all families of a batch lie one after the other; a family has the same structures with its own
slices. Queries of a family are measured and limited alike.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bools", "EstimateArrays", "Families", "Floats", "Ints", "LimitArrays", "MeasurementArrays", "Numbers"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Numbers = NDArray[np.uint32]
"""Positions in arrays. They are unsigned, so that a compiled loop does not test for negative ones."""


class LimitArrays(NamedTuple):
    """Counts of the parent, and limits on sums of cells: one column for each answer of each limited query."""

    parent: Floats  # one for each cell; empty at the top of the spine
    column_of: Ints  # limited queries x cells: the query's column that each cell counts towards
    columns: Ints  # where each query's columns start
    lower: Ints  # children x columns
    upper: Ints


class MeasurementArrays(NamedTuple):
    """Noisy answers, queries with the finest first; no queries if the objective comes from linear estimates."""

    column_of: Ints  # queries x cells: the query's column that each cell counts towards
    finer: Ints  # for each query an earlier one that it can be summed from, or -1
    precision: Floats  # of each query, one over the variance
    columns: Ints  # where each query's columns start
    values: Ints  # children x columns


class EstimateArrays(NamedTuple):
    """A quadratic around linear estimates, see :class:`das.estimation.problem.Quadratic`; empty with measurements."""

    table: Floats  # Hessian entries: children, or one row for all, x kinds
    kinds: Ints  # cells x cells: the kind of each pair
    reference: Floats  # children x cells
    linear: Floats  # children x cells
    constant: float
    modulus: float  # every Hessian is at least this times the identity


class Families(NamedTuple):
    """Families that were measured and are limited alike; or one, with linear estimates of its own."""

    child_start: Ints
    cell_start: Ints
    limits: LimitArrays
    measurements: MeasurementArrays
    estimates: EstimateArrays
