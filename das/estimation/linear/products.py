"""Products of many short vectors with one small matrix, which leaves need by the million."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["add_product"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


def add_product(
    source: Floats,
    rows: Indices,
    inward: Indices,
    matrix: Floats,
    outward: Indices,
    target: Floats,
    *,
    sign: float = 1.0,
) -> None:
    """Add vectors of some rows, times a matrix, to other columns of the same rows.

    Parameters
    ----------
    source, target : ndarray
        Geounits x numbers; both may be one array if no column is read and written.
    rows : ndarray of int
        Which geounits.
    inward, outward : ndarray of int
        Columns of each vector, and of its product: copies x size.
    matrix : ndarray
        Size x size.
    sign : float
        What to multiply the product with.

    Examples
    --------
    >>> target = np.zeros((2, 3))
    >>> add_product(np.array([[1.0, 2.0, 0.0], [5.0, 5.0, 5.0]]), np.array([0]), np.array([[0, 1]]),
    ...             np.array([[3.0], [4.0]]), np.array([[2]]), target)
    >>> target.tolist()
    [[0.0, 0.0, 11.0], [0.0, 0.0, 0.0]]
    """
    from das.estimation.linear.product_kernel import add_products  # Numba is imported where something is estimated

    # One form of each, because a kernel is compiled for every form that it meets.
    own = np.array(matrix, dtype=np.float64, order="C")
    arguments = (source, rows, np.ascontiguousarray(inward), own, sign, np.ascontiguousarray(outward), target)
    add_products(*arguments)
