"""Integer counts near a real table that meet several exact marginals: controlled rounding as an integer program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from das.errors import InfeasibleError, Problem
from das.synthesis.domain import Constraints

__all__ = ["round_to_invariants"]

_WIDENINGS = 4


def round_to_invariants(
    expected: NDArray[np.float64],
    names: Sequence[str],
    constraints: Constraints,
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """Round a table over the attributes of all invariants so that every invariant holds exactly.

    Each count stays within one of its real value if that can be, and the box is widened if not. An invariant that
    counts every attribute is the answer itself.

    Examples
    --------
    >>> from das.synthesis.domain import Invariant
    >>> facts = Constraints(invariants=(Invariant(("sex",), np.array([3, 2])), Invariant(("age",), np.array([1, 4]))))
    >>> rounded = round_to_invariants(np.array([[0.6, 2.4], [0.4, 1.6]]), ("sex", "age"), facts,
    ...                               np.random.default_rng(1))
    >>> rounded.sum(axis=1).tolist(), rounded.sum(axis=0).tolist()
    ([3, 2], [1, 4])
    """
    for each in constraints.invariants:
        if len(each.attributes) == len(names):
            return np.asarray(each.counts)
    cells = np.flatnonzero(constraints.possible(names, expected.shape).reshape(-1))
    value = expected.reshape(-1)[cells]
    codes = dict(zip(names, np.unravel_index(cells, expected.shape), strict=True))
    rows, wanted = [], []
    for each in constraints.invariants:
        at = np.ravel_multi_index([codes[name] for name in each.attributes], each.counts.shape)
        rows.append(
            sparse.csr_array((np.ones(len(cells)), (at, np.arange(len(cells)))), (each.counts.size, len(cells)))
        )
        wanted.append(each.counts.reshape(-1))
    matrix, exact = sparse.vstack(rows), np.concatenate(wanted)
    # the chance of rounding up is the fraction, so that no cell is favoured
    cost = -(value - np.floor(value)) + generator.uniform(-0.5, 0.5, len(value))
    for widening in range(_WIDENINGS):
        width = 0 if widening == 0 else 4**widening
        box = Bounds(np.maximum(np.floor(value) - width, 0), np.ceil(value) + width)
        found = milp(
            cost, constraints=LinearConstraint(matrix, exact, exact), bounds=box, integrality=np.ones(len(value))
        )
        if found.status == 0:
            out = np.zeros(expected.size, dtype=np.int64)
            out[cells] = np.rint(found.x).astype(np.int64)
            return out.reshape(expected.shape)
    raise InfeasibleError(Problem("invariants", "no whole-numbered table meets them", "check them for consistency"))
