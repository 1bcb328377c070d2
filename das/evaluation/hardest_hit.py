"""Who is hit hardest: groups and sizes whose counts a release moves most, and sentences that say so.

A mean over all cells hides them. Errors of small places and of large ones cancel, because the sums are kept: the mean
error of a level is close to zero by construction, whatever happens to its smallest places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from das.evaluation.bins import by_population
from das.evaluation.metrics import summary
from das.evaluation.truth import Compared
from das.schema.query import answer_names

__all__ = ["by_group", "warnings"]

GROUP_EDGES = (0, 1, 5, 10, 50, 100, 250, 1_000)
"""Where the bins of a group's true count in a place begin."""
OF_A_SIZE = ("bin", "cells", "true_mean", "bias", "mae", "rmse")
MOST_GROUPS = 64
"""Queries with more answers are not listed answer by answer."""
NOTABLE_SHARE = 0.1
"""A mean error beyond this share of the true mean is told."""
NOTABLE_ERRORS = 3.0
"""A mean error is told only beyond so many of its standard errors, taking cells as independent."""
FEW_PEOPLE, FEW_COUNTS = 10, 5
"""A group of fewer people in all, or a size of a group with fewer counts, is not told."""
MOST_WARNINGS = 12


def by_group(compared: Compared) -> list[dict[str, Any]]:
    """Summarise each answer of a query by itself: the groups that it counts; none for a total or a very large query."""
    size = compared.query.size
    if not 1 < size <= MOST_GROUPS:
        return []
    places, answer, rows = compared.cells // size, compared.key % size, []
    for number, name in enumerate(answer_names(compared.query)):
        here = answer == number
        sides, unlisted = (compared.published[here], compared.true[here]), places - int(here.sum())
        sizes = by_population(*sides, edges=GROUP_EDGES, unlisted=unlisted)
        rows.append(
            {
                "group": name,
                "true_total": float(compared.true[here].sum()),
                **summary(*sides, unlisted=unlisted),
                "bins": [{measure: size[measure] for measure in OF_A_SIZE} for size in sizes],
            }
        )
    return rows


def warnings(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say in sentences which sizes and groups are hit hardest, the worst first.

    Parameters
    ----------
    rows : sequence of Mapping
        Rows of an evaluation, with ``bins`` and ``groups``.

    Examples
    --------
    >>> empty = {"bin": "0", "cells": 12, "bias": 5.0, "rmse": 5.5, "false_positive_share": 1.0}
    >>> print(*warnings([{"level": "village", "query": "total", "bins": [empty], "groups": []}]), sep="\\n")
    village: 12 of 12 empty places were published with people, 5.0 on average
    """
    found: list[tuple[float, str]] = []
    for row in rows:
        where = f"{row['level']}" if row["query"] == "total" else f"{row['level']}, {row['query']}"
        for part in row.get("bins", ()):
            found += _of_a_size(where, part, "places" if row["query"] == "total" else "counts")
        found += [entry for part in row.get("groups", ()) for entry in _of_a_group(where, part)]
        found += sorted(_of_groups_by_size(where, row.get("groups", ())))[-1:]
    found.sort(key=lambda entry: -entry[0])
    return [text for _, text in found[:MOST_WARNINGS]]


def _of_a_size(where: str, part: Mapping[str, Any], what: str) -> list[tuple[float, str]]:
    if part["bin"] == "0":
        if what != "places" or (part["false_positive_share"] or 0.0) < NOTABLE_SHARE:
            return []
        share = part["false_positive_share"]
        wrong = round(share * part["cells"])
        mean = part["bias"] / share
        text = f"{where}: {wrong} of {part['cells']} empty places were published with people, {mean:.1f} on average"
        return [(10.0 + share, text)]
    if not _is_notable(part):
        return []
    true = part["true_mean"]
    turn = "gain" if part["bias"] > 0 else "lose"
    text = (
        f"{where}: {part['cells']:,} {what} of {part['bin']} people {turn} {abs(part['bias']):.2f} on average, "
        f"{100 * abs(part['bias']) / true:.0f} %"
    )
    return [(abs(part["bias"]) / true, text)]


def _of_groups_by_size(where: str, groups: Sequence[Mapping[str, Any]]) -> list[tuple[float, str]]:
    """Losses of groups where they are not tiny: of one to four people noise hides a large part in any case."""
    return [
        entry
        for part in groups
        for size in part.get("bins", ())
        if size["bin"] not in ("0", "1-4") and size["cells"] >= FEW_COUNTS
        for entry in _of_a_size(f"{where}, {part['group']}", size, "counts")
    ]


def _of_a_group(where: str, part: Mapping[str, Any]) -> list[tuple[float, str]]:
    if part["true_total"] < FEW_PEOPLE or not _is_notable(part):
        return []
    total = part["bias"] * part["cells"]
    turn = "gains" if total > 0 else "loses"
    share = abs(total) / part["true_total"]
    return [
        (share, f"{where}: {part['group']} {turn} {abs(total):,.0f} of {part['true_total']:,.0f}, {100 * share:.0f} %")
    ]


def _is_notable(part: Mapping[str, Any]) -> bool:
    """Whether the mean error is large beside the true mean, and no accident of few cells."""
    cells, true = part["cells"], part["true_mean"]
    if not true or abs(part["bias"]) < NOTABLE_SHARE * true or cells < 2:
        return False
    spread = float(np.sqrt(max(part["rmse"] ** 2 - part["bias"] ** 2, 0.0) / cells))
    return bool(abs(part["bias"]) > NOTABLE_ERRORS * spread)
