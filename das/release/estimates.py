"""Best linear unbiased estimates as files: every geounit, every query, with the standard deviation of each answer."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from das.estimation.linear.basis import Basis
from das.estimation.linear.blue import RELATIVE_ZERO, LinearEstimate
from das.plan.plan import Plan
from das.schema.query import answer_names, answers_of

__all__ = ["LABELS", "RECURRING", "table_of_estimates", "table_of_labels"]

LABELS = "labels.parquet"
"""The file beside the estimates that says what each number of each query counts."""

RECURRING = ("geocode", "query", "std_dev.list.element")
"""Columns whose values recur; estimates are real numbers, and each is another."""


def table_of_estimates(
    plan: Plan, basis: Basis, level: str, geocodes: NDArray[np.str_], known: LinearEstimate
) -> pa.Table:
    """Lay out estimates as rows: geocode, query, estimate and std_dev, one number per answer.

    They are unbiased, may be negative and do not use that counts are not; their errors are normal to a good
    approximation, so an interval is the estimate plus and minus a multiple of its standard deviation.
    """
    queries = [m.query for m in plan.at(level)]
    cells = basis.to_cells(known.mean)
    largest = max(float(np.abs(block).max()) for block in known.covariance)
    estimates, deviations = answers_of(queries, cells), []
    for query in queries:
        variances = basis.variances(query, known.covariance)
        # What is known exactly has no deviation; rounding leaves traces of its cells' variances.
        exact = variances <= RELATIVE_ZERO * largest * (plan.schema.size / query.size)
        deviation = np.sqrt(np.where(exact, 0.0, variances)).astype(np.float32)
        # Geounits that share a covariance, as leaves do, share their deviations.
        deviations.append(deviation if known.kind_of is None else deviation[known.kind_of])
    sizes = np.array([query.size for query in queries], dtype=np.int64)
    units, each = np.arange(len(geocodes)), np.arange(len(queries))
    offsets = pa.array(np.append(0, np.cumsum(np.tile(sizes, len(geocodes)))).astype(np.int64))
    lists = {
        name: pa.LargeListArray.from_arrays(
            offsets, np.concatenate(parts, axis=1, dtype=np.float32, casting="same_kind").reshape(-1)
        )
        for name, parts in (("estimate", estimates), ("std_dev", deviations))
    }
    return pa.table(
        {
            "geocode": pa.array(geocodes.tolist(), pa.string()).take(pa.array(np.repeat(units, len(queries)))),
            "query": pa.array([query.name for query in queries], pa.string()).take(pa.array(np.tile(each, len(units)))),
            **{name: column.cast(pa.list_(pa.float32())) for name, column in lists.items()},
        }
    )


def table_of_labels(plan: Plan) -> pa.Table:
    """Lay out what the lists of numbers hold: a row per query and position, with the labels that it counts.

    One small file for all levels, so that a list of two thousand numbers does not carry two thousand names a row.

    Examples
    --------
    >>> from das.plan.load import load
    >>> from das.plan.presets import folder
    >>> table = table_of_labels(load(folder() / "demo.toml"))
    >>> [row for row in table.to_pylist() if row["query"] == "votingage"]
    [{'query': 'votingage', 'position': 0, 'answer': '0-17'}, {'query': 'votingage', 'position': 1, 'answer': '18+'}]
    """
    queries = {m.query.name: m.query for m in plan.measurements}
    rows = [(name, at, label) for name, query in queries.items() for at, label in enumerate(answer_names(query))]
    names, positions, labels = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {
            "query": pa.array(names, pa.string()),
            "position": pa.array(positions, pa.int32()),
            "answer": pa.array(labels, pa.string()),
        }
    )
