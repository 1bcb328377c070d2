"""A finished release against the truth: ``das evaluate``.

Errors are exact functions of confidential counts, and no noise protects them. The result is written on the confidential
side and nowhere else, and what is printed is for people who are cleared for the data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill
from typing import Any

from das.evaluation.areas import compare_areas
from das.evaluation.bias import WINDOW, jason_b, jason_b_window
from das.evaluation.bins import by_population, mean_by_population
from das.evaluation.format import finite, table
from das.evaluation.hardest_hit import by_group, warnings
from das.evaluation.health import solver_health
from das.evaluation.intervals import WIDTH, covered
from das.evaluation.long_table import table_of
from das.evaluation.metrics import summary
from das.evaluation.opened import Opened, open_release
from das.evaluation.places import describe
from das.evaluation.shares import shares_of
from das.evaluation.truth import Compared, compare_counts, measured_rmse, queries_of
from das.plan.describe import SHARING_EFFECT
from das.storage.files import json_bytes, write_atomically
from das.storage.layout import ReleaseFolder
from das.storage.shards import parquet_bytes

__all__ = ["evaluate", "evaluate_release", "evaluation_text", "row_of"]

NOTES = {
    "confidential": "errors are computed from confidential counts and protected by nothing; keep them inside",
    "cells": "geounits times answers, impossible and empty ones included",
    "mape": "in percent, over the cells with somebody in them; mape_left_out says how many have nobody",
    "jason_b": "a single run: all cells of the row are combined; in a bin of population it is the mean over the bin's "
    f"areas of B in a moving window of {WINDOW} areas",
    "measured_rmse": "of the noisy measurements, before estimation; noise_std_dev is what the plan says of them",
    "groups": "each answer of the query by itself, and by its own true size",
    "shares": "of a group among the people of a place, in percentage points, by the true share; places that are empty "
    "on either side are left out; largest_group_within is the share of places in which the share of the largest group "
    "is within five points",
    "places": "totals of places: empty_published_inhabited are places without people that were published with some; "
    "consumer_* are of places of a published size, producer_* of places of a true size",
    "coverage": f"share of the intervals, linear estimate +- {WIDTH} std_dev, that hold the truth; what is known "
    "exactly has none",
}


QUOTED = ("policy", "epsilon", "status")


def evaluate(folder: Path) -> dict[str, Any]:
    """Compare a finished release with the true counts, by level and area, query by query.

    Writes ``confidential/evaluation.json`` and ``evaluation.parquet`` (mode 0600) and nothing on the release side. What
    it returns shows errors of confidential counts: print it only to people who are cleared for the data.

    Parameters
    ----------
    folder : Path
        The folder that ``das run`` was given, with its confidential side.

    Returns
    -------
    dict
        Under ``levels`` a row for each level and query, measured or tabulated, and for each kind of area off the spine:
        cells, mae, rmse, mape, bias, jason_b and the other measures of :func:`das.evaluation.metrics.summary`;
        ``measured_rmse`` where the query was measured at the level; ``coverage`` and ``intervals`` where linear
        estimates were published; ``bins`` of the true count; ``groups``, the answers one by one, each by size; and
        ``shares``, errors of the groups' shares. Under ``places`` what :func:`das.evaluation.places.describe` tells of
        the totals of each level and kind of area. Under ``solver`` the health of the solver, under ``privacy`` the
        effective epsilon, under ``warnings`` sentences about sizes and groups that are hit hardest. A number that is
        not defined is ``None``.

    Raises
    ------
    UsageError
        The folder holds no finished release, or its confidential side is not there or is of another release.
    """
    return evaluate_release(open_release(folder))


def evaluate_release(opened: Opened) -> dict[str, Any]:
    """Evaluate a release that has been opened, and write the result beside its true counts."""
    plan, spine, truth, release = opened.plan, opened.spine, opened.truth, opened.layout.release
    noise = measured_rmse(plan, spine, truth, release) if plan.mechanism_stage.measures else {}
    intervals = covered(plan, spine, truth, release)
    planned = {(m.level, m.query.name): m.std_dev for m in plan.measurements}
    queries = queries_of(plan)
    rows = []
    for compared in (
        *compare_counts(plan, spine, truth, release, queries),
        *compare_areas(plan, spine, truth, release, opened.areas, queries),
    ):
        row = row_of(compared)
        name = compared.level, compared.query.name
        row["on_spine"] = compared.level in plan.levels
        row |= {"measured_rmse": noise.get(name), "noise_std_dev": planned.get(name)}
        if name in intervals:
            row |= {"intervals": intervals[name].intervals, "coverage": intervals[name].share}
        rows.append(row)
    result: dict[str, Any] = finite(
        {
            "release": plan.name,
            "plan_digest": plan.digest,
            "data": plan.settings.input.data,
            "estimate": plan.settings.estimate.model_dump(mode="json"),
            "privacy": _privacy(release),
            "notes": NOTES,
            "levels": rows,
            "places": [describe(each) for each in opened.places()],
            "solver": solver_health(plan, release),
            "warnings": warnings(rows),
        }
    )
    if plan.mechanism_stage.measures and plan.settings.estimate.prior == "sharing":
        result["prior_effect"] = SHARING_EFFECT
    inside = opened.layout.confidential.path
    write_atomically(inside / "evaluation.json", json_bytes(result))
    write_atomically(inside / "evaluation.parquet", parquet_bytes(table_of(result)))
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
    sizes = [
        # B of one run pools places of similar size: among fewer places than that, it would be the same for all sizes
        {"level": row["level"], **part} | ({} if row["cells"] > WINDOW else {"jason_b": None})
        for row in rows
        if row["query"] == "total"
        for part in row.get("bins", ())
    ]
    if sizes:
        parts += ["Totals by true size", table(_SIZES, sizes)]
    if evaluation.get("warnings"):
        parts += ["Hit hardest", "\n".join(evaluation["warnings"])]
    if evaluation.get("prior_effect"):
        parts += ["Prior", fill(evaluation["prior_effect"], 115)]
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


def row_of(compared: Compared) -> dict[str, Any]:
    """Summarise one query at one level or kind of area: as a whole, by size, by group and by share."""
    errors = compared.published - compared.true
    return {
        "level": compared.level,
        "query": compared.query.name,
        **summary(compared.published, compared.true, unlisted=compared.unlisted),
        "jason_b": float(jason_b(errors)),
        "jason_b_same_sign": float(jason_b(errors, means="same-sign")),
        "bins": _bins(compared),
        "groups": by_group(compared),
        "shares": shares_of(compared),
    }


def _privacy(release: ReleaseFolder) -> dict[str, Any]:
    """Quote the epsilons of the privacy statement; with none computed anew."""
    statement = json.loads(release.statement.read_bytes())
    effective = [{name: quote.get(name) for name in QUOTED} for quote in statement.get("effective") or ()]
    return {"nominal_epsilon": statement["nominal"]["epsilon"], "effective": effective}


def _bins(compared: Compared) -> list[dict[str, Any]]:
    """Bins of the true count, with B of the cells around each cell."""
    errors = compared.published - compared.true
    around = jason_b_window(errors, compared.true, unlisted=compared.unlisted)
    bins = by_population(compared.published, compared.true, unlisted=compared.unlisted)
    lean = mean_by_population(around, compared.true)
    return [row | {"jason_b": lean.get(row["bin"])} for row in bins]
