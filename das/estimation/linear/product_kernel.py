"""Products of many short vectors with one small matrix, compiled: what leaves need, thousands of times."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from das.compiled import compiled

__all__ = ["add_products"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@compiled
def add_products(
    source: Floats, rows: Indices, inward: Indices, matrix: Floats, sign: float, outward: Indices, target: Floats
) -> None:
    """Add the product of a vector with a matrix to each of some rows, for each copy of the vector in it.

    Sums are in the order of the vector's entries and nothing is contracted, as NumPy's own loop has it. So the last bit
    of an estimate depends neither on the processor nor on how many geounits are worked on together.
    """
    size, width = matrix.shape
    sums = np.empty(width)
    for row in rows:
        for copy in range(len(inward)):
            sums[:] = 0.0
            at = 0
            while at + 4 <= size:  # four at a time, so that sums are loaded and stored less often
                a, b = source[row, inward[copy, at]], source[row, inward[copy, at + 1]]
                c, d = source[row, inward[copy, at + 2]], source[row, inward[copy, at + 3]]
                for j in range(width):
                    first = (sums[j] + a * matrix[at, j]) + b * matrix[at + 1, j]
                    sums[j] = (first + c * matrix[at + 2, j]) + d * matrix[at + 3, j]
                at += 4
            for last in range(at, size):
                a = source[row, inward[copy, last]]
                for j in range(width):
                    sums[j] += a * matrix[last, j]
            for j in range(width):
                target[row, outward[copy, j]] += sign * sums[j]
