"""A finished release against the truth: ``das evaluate``.

Errors are exact functions of confidential counts, and no noise protects them. The result is written on the confidential
side and nowhere else, and what is printed is for people who are cleared for the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from das.errors import Problem, UsageError
from das.evaluation.bias import WINDOW, jason_b, jason_b_window
from das.evaluation.bins import by_population, mean_by_population
from das.evaluation.format import finite, table
from das.evaluation.hardest_hit import by_group, warnings
from das.evaluation.intervals import WIDTH, covered
from das.evaluation.metrics import summary
from das.evaluation.truth import Compared, compare_counts, measured_rmse, queries_of, read_truth
from das.plan.load import load
from das.storage.files import json_bytes, write_atomically
from das.storage.hardening import harden
from das.storage.layout import Layout
from das.storage.staging import committed
from geography import Spine

__all__ = ["evaluate", "evaluation_text"]

NOTES = {
    "confidential": "errors are computed from confidential counts and protected by nothing; keep them inside",
    "cells": "geounits times answers, impossible and empty ones included",
    "mape": "in percent, over the cells with somebody in them; mape_left_out says how many have nobody",
    "jason_b": "a single run: all cells of the row are combined; in a bin of population it is the mean over the bin's "
    f"areas of B in a moving window of {WINDOW} areas",
    "measured_rmse": "of the noisy measurements, before estimation; noise_std_dev is what the plan says of them",
    "coverage": f"share of the intervals, linear estimate +- {WIDTH} std_dev, that hold the truth; what is known "
    "exactly has none",
}


def evaluate(folder: Path) -> dict[str, Any]:
    """Compare a finished release with the true counts, level by level and query by query.

    Writes ``confidential/evaluation.json`` (mode 0600) and nothing on the release side. What it returns shows errors of
    confidential counts: print it only to people who are cleared for the data.

    Parameters
    ----------
    folder : Path
        The folder that ``das run`` was given, with its confidential side.

    Returns
    -------
    dict
        Under ``levels`` a row for each level and query, measured or tabulated: cells, mae, rmse, mape, bias, jason_b
        and the other measures of :func:`das.evaluation.metrics.summary`; ``measured_rmse`` where the query was measured
        at the level; ``coverage`` and ``intervals`` where linear estimates were published; ``bins`` of the true count
        and ``groups``, the answers one by one. Under ``warnings`` sentences about sizes and groups that are hit
        hardest. A number that is not defined is ``None``.

    Raises
    ------
    UsageError
        The folder holds no finished release, or its confidential side is not there.
    """
    harden()
    layout = Layout(folder)
    release, histograms = layout.release, layout.confidential.histograms
    if not release.manifest.exists():
        raise UsageError(Problem(str(folder), "holds no finished release", "run `das run` to the end"))
    if committed(histograms) is None:
        remedy = "run it where confidential/histograms of this release lies"
        raise UsageError(Problem(str(folder), "evaluation needs the confidential side, and it is not here", remedy))
    plan = load(release.config)
    spine = Spine.load(release.facts / "spine.parquet")
    truth = read_truth(plan, histograms)
    noise = measured_rmse(plan, spine, truth, release) if plan.mechanism_stage.measures else {}
    intervals = covered(plan, spine, truth, release)
    planned = {(m.level, m.query.name): m.std_dev for m in plan.measurements}
    rows = []
    for compared in compare_counts(plan, spine, truth, release, queries_of(plan)):
        row = _row(compared)
        name = compared.level, compared.query.name
        row |= {"measured_rmse": noise.get(name), "noise_std_dev": planned.get(name)}
        if name in intervals:
            row |= {"intervals": intervals[name].intervals, "coverage": intervals[name].share}
        rows.append(row)
    result: dict[str, Any] = finite(
        {
            "release": plan.name,
            "plan_digest": plan.digest,
            "notes": NOTES,
            "levels": rows,
            "warnings": warnings(rows),
        }
    )
    write_atomically(layout.confidential.path / "evaluation.json", json_bytes(result))
    return result


def evaluation_text(evaluation: Mapping[str, Any]) -> str:
    """Lay out an evaluation for people who are cleared for the data.

    Examples
    --------
    >>> row = {"level": "tract", "query": "total", "cells": 2, "bias": -0.5, "mae": 1.5, "rmse": 1.6, "mape": None}
    >>> print(evaluation_text({"release": "example", "levels": [row]}))
    CONFIDENTIAL: the errors of release example, from true counts; for people who are cleared for them
    <BLANKLINE>
    level  query  cells   bias  mean |error|  RMSE  MAPE %  JASON B  RMSE as measured  coverage
    tract  total      2  -0.50          1.50  1.60       -        -                 -         -
    """
    columns = {
        "level": "level",
        "query": "query",
        "cells": "cells",
        "bias": "bias",
        "mae": "mean |error|",
        "rmse": "RMSE",
        "mape": "MAPE %",
        "jason_b": "JASON B",
        "measured_rmse": "RMSE as measured",
        "coverage": "coverage",
    }
    title = f"CONFIDENTIAL: the errors of release {evaluation['release']}, from true counts; "
    rows = evaluation["levels"]
    parts = [f"{title}for people who are cleared for them", table(columns, rows)]
    sizes = [{"level": row["level"], **part} for row in rows if row["query"] == "total" for part in row.get("bins", ())]
    if sizes:
        parts += ["Totals by true size", table(_SIZES, sizes)]
    if evaluation.get("warnings"):
        parts += ["Hit hardest", "\n".join(evaluation["warnings"])]
    return "\n\n".join(parts)


_SIZES = {
    "level": "level",
    "bin": "people",
    "cells": "places",
    "bias": "bias",
    "mae": "mean |error|",
    "mape": "MAPE %",
    "jason_b": "JASON B",
    "p90_absolute_error": "90th percentile",
}


def _row(compared: Compared) -> dict[str, Any]:
    errors = compared.published - compared.true
    return {
        "level": compared.level,
        "query": compared.query.name,
        **summary(compared.published, compared.true, unlisted=compared.unlisted),
        "jason_b": float(jason_b(errors)),
        "jason_b_same_sign": float(jason_b(errors, means="same-sign")),
        "bins": _bins(compared),
        "groups": by_group(compared),
    }


def _bins(compared: Compared) -> list[dict[str, Any]]:
    """Bins of the true count, with B of the cells around each cell."""
    errors = compared.published - compared.true
    around = jason_b_window(errors, compared.true, unlisted=compared.unlisted)
    bins = by_population(compared.published, compared.true, unlisted=compared.unlisted)
    lean = mean_by_population(around, compared.true)
    return [row | {"jason_b": lean.get(row["bin"])} for row in bins]
