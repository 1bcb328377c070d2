"""Compile every kernel of estimation, unless its machine code is there: for an installation, while it waits."""

from __future__ import annotations

import numpy as np

from das.estimation.linear.products import add_product
from das.estimation.problem import FamilyProblem, Measured
from das.estimation.solvers.active_set import solve_fast
from das.schema.query import parse_query
from das.schema.schema import Attribute, Schema

__all__ = ["compile_kernels"]


def compile_kernels() -> None:
    """Call each kernel once, on the smallest arguments."""
    schema = Schema((Attribute("any", ("one", "other")),))
    measured = Measured(query=parse_query(schema, "detailed"), values=np.zeros((1, 2), dtype=np.int64), variance=1.0)
    family = FamilyProblem(
        level="any",
        geocodes=("1",),
        cells=np.arange(2),
        parent=np.zeros(2, dtype=np.int64),
        measured=(measured,),
        limits=(),
    )
    solve_fast(family)
    one = np.ones((1, 1))
    at = np.zeros((1, 1), dtype=np.int64)
    add_product(one, at[0], at, one, at, one.copy())
