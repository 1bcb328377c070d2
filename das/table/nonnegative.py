"""The nearest table of non-negative integers that keeps the public facts: post-processing of a noisy table.

It reads the noisy table and public facts and nothing else, so it costs nothing. Floating point proposes; integers are
checked against the facts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp, nnls

from das.accounting.small_table.dataspace import TableFacts
from das.errors import InfeasibleError, Problem
from das.table.systems import agrees, facts_rows

__all__ = ["nearest_nonnegative"]

_WEIGHT = 1e4


def nearest_nonnegative(facts: TableFacts, noisy: NDArray[np.int64]) -> NDArray[np.int64]:
    """Project on the non-negative tables with these totals (least squares), then round to the nearest integers.

    Examples
    --------
    >>> nearest_nonnegative(TableFacts(cells=3, values=(), records=9), np.array([8, -2, 3])).tolist()
    [7, 0, 2]
    """
    if agrees(facts, noisy):
        return noisy.copy()
    rows, low, high = facts_rows(facts)
    exact, allowed = low == high, list(facts.allowed)
    stacked = np.vstack([np.eye(len(allowed)), _WEIGHT * rows[exact][:, allowed]])
    target = np.concatenate([noisy[allowed], _WEIGHT * low[exact]])
    projected = np.zeros(facts.cells)
    projected[allowed] = nnls(stacked.astype(np.float64), target.astype(np.float64))[0]
    # minimise the sum of |s - projected|: one more variable a cell, which is at least both differences
    cells, eye = facts.cells, np.eye(facts.cells)
    constraints = [
        LinearConstraint(np.hstack([rows, np.zeros((len(rows), cells))]), low, high),
        LinearConstraint(np.hstack([eye, -eye]), -np.inf, projected),
        LinearConstraint(np.hstack([-eye, -eye]), -np.inf, -projected),
    ]
    most = float(facts.records or 0)
    top = np.concatenate([np.where(np.isin(np.arange(cells), sorted(facts.zeros)), 0.0, most), np.full(cells, np.inf)])
    integral = np.concatenate([np.ones(cells), np.zeros(cells)])
    objective = np.concatenate([np.zeros(cells), np.ones(cells)])
    with _quiet():
        found = milp(objective, constraints=constraints, integrality=integral, bounds=Bounds(0, top))
    rounded = None if found.x is None else np.rint(found.x[:cells]).astype(np.int64)
    if rounded is None or not agrees(facts, rounded):
        reason, remedy = "no non-negative table was found that agrees with all of them", "check them against each other"
        raise InfeasibleError(Problem("facts", reason, remedy))
    return np.asarray(rounded)


@contextmanager
def _quiet() -> Iterator[None]:
    """Send what the solver prints nowhere: it writes lines to standard output, where ``--json`` prints a document."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
