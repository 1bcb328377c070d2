"""Health of the solver, from the diagnostics that a release publishes: a row for each level."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from das.plan.plan import Plan
from das.storage.layout import ReleaseFolder

__all__ = ["solver_health"]


def solver_health(plan: Plan, release: ReleaseFolder) -> list[dict[str, Any]]:
    """Summarise the families of each level: how many, by which solver, and their worst residual and certified gap.

    Empty where nothing was solved, as with the congenial method.
    """
    rows = []
    for level in plan.levels:
        path = release.counts / "diagnostics" / f"{level}.parquet"
        if not path.exists():
            continue
        found = pq.read_table(path)
        column = {name: np.asarray(found[name]) for name in found.column_names if name not in ("parent", "solver")}
        if not found.num_rows:
            continue
        rows.append(
            {
                "level": level,
                "families": found.num_rows,
                "solvers": dict(Counter(found["solver"].to_pylist())),
                "largest_residual": float(column["residual"].max()),
                "largest_gap": float(column["gap"].max()),
                "median_iterations": float(np.median(column["iterations"])),
                "rounding_distance": float(column["rounding_distance"].sum()),
                "widened": int((column["widened"] > 0).sum()),
            }
        )
    return rows
