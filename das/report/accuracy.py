"""The accuracy report: how far a release is from the truth, as one page that a person can read and print.

It shows errors of true counts. For confidential data the page is as confidential as they are, and says so on top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from das.exact import quoted
from das.report.charts import Bar, bar_chart, dash_sample
from das.report.error_charts import Spread, bias_chart, lean_chart, spread_chart
from das.report.pages import page_template
from das.report.wording import named

__all__ = ["MapFigure", "render_accuracy"]

MANY_PLACES = 30
"""Fewer places have no running average worth a picture."""
FEW_PLACES = 20
"""Fewer places have no quantiles worth a sentence."""
MOST_GROUPS = 14
"""Groups shown by size; a query with more answers shows the most numerous ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapFigure:
    """A drawn map with its legend and what has to be said about it."""

    svg: Markup
    legend: Sequence[Mapping[str, str]]
    level: str
    note: str


def render_accuracy(
    evaluation: Mapping[str, Any],
    *,
    others: Sequence[Mapping[str, Any]] = (),
    labels: Sequence[str] = (),
    figure: MapFigure | None = None,
) -> str:
    """Write ``accuracy.html``: one page that needs no other file, no script and no network.

    Parameters
    ----------
    evaluation : Mapping
        What ``das.evaluation.evaluate.evaluate`` returns, the content of ``evaluation.json``.
    others : sequence of Mapping
        Evaluations of other releases of the same data, shown beside this one.
    labels : sequence of str
        What to call this release and the others, where there are others.
    figure : MapFigure, optional
        A map.

    Returns
    -------
    str
        The same arguments give the same text.
    """
    totals = [row for row in evaluation["levels"] if row["query"] == "total"] or []
    spreads = [
        Spread(named(place["level"]), list(place["error_quantiles"].values()))
        for place in evaluation["places"]
        if place["places"] > 1
    ]
    return page_template("das.report", "accuracy.html.j2", FILTERS).render(
        evaluation=evaluation,
        is_confidential=evaluation["data"] == "confidential",
        totals=totals,
        sentences=list(_sentences(evaluation, totals)),
        effective=_effective(evaluation),
        spread=spread_chart("spread", "Errors of totals by level", spreads) if spreads else None,
        grid=_grid(evaluation["levels"]),
        curves=[_curve(place, number) for number, place in enumerate(evaluation["places"]) if _is_many(place)],
        prior_effect=next((one["prior_effect"] for one in (evaluation, *others) if "prior_effect" in one), None),
        samples=[dash_sample(order) for order in range(2)],
        views=[place for place in evaluation["places"] if _is_many(place)] or evaluation["places"][-1:],
        groups=list(_groups(evaluation)),
        shares=[row for row in evaluation["levels"] if row.get("shares")],
        beside=_beside([evaluation, *others], labels) if others else None,
        figure=figure,
    )


def _is_many(place: Mapping[str, Any]) -> bool:
    return bool(place["places"] >= MANY_PLACES)


def _sentences(evaluation: Mapping[str, Any], totals: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """What a reader should know first, in words."""
    for row in totals:
        if 1 < row["cells"] < FEW_PLACES:
            yield (
                named(row["level"]),
                f"the {row['cells']} totals are off by {_people(row['largest_absolute_error'])} at most.",
            )
        elif row["cells"] > 1:
            yield (
                named(row["level"]),
                f"half of the {row['cells']:,} totals are within {_people(row['median_absolute_error'])} of the truth, "
                f"nineteen in twenty within {_people(row['p95_absolute_error'])}; the worst is off by "
                f"{row['largest_absolute_error']:,.0f}.",
            )
    for place in evaluation["places"]:
        if place["empty"] and place["empty_published_inhabited"]:
            yield (
                "Empty places",
                f"{place['empty_published_inhabited']:,} of {place['empty']:,} places of level {named(place['level'])} "
                "without anybody were published with people"
                + (
                    f"; {place['inhabited_published_empty']:,} with people were published as empty."
                    if place["inhabited_published_empty"]
                    else "."
                ),
            )


def _people(number: float) -> str:
    rounded = f"{number:,.0f}" if number == round(number) or number >= 10 else f"{number:.1f}"
    return f"{rounded} {'person' if rounded == '1' else 'people'}"


def _effective(evaluation: Mapping[str, Any]) -> list[tuple[str, str]]:
    quotes = evaluation["privacy"]["effective"]
    found = [(f"effective epsilon, policy {quote['policy']}", quoted(quote["epsilon"])) for quote in quotes[:2]]
    return [*found, ("nominal epsilon: public facts ignored", quoted(evaluation["privacy"]["nominal_epsilon"]))]


def _grid(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean absolute error by query and level."""
    levels, queries = (list(dict.fromkeys(row[key] for row in rows)) for key in ("level", "query"))
    found = {(row["query"], row["level"]): row for row in rows}
    return {
        "levels": levels,
        "rows": [(query, [found.get((query, level)) for level in levels]) for query in queries],
    }


def _curve(place: Mapping[str, Any], number: int) -> dict[str, Any]:
    noise = place.get("stated_std_dev") or place["noise_std_dev"]
    level = named(place["level"])
    running = [row for row in place["running"] if row["bias"] is not None]
    return {
        "level": level,
        "noise": noise,
        "window": max((row["places"] for row in running if row["size"] > 0), default=0),
        "bias": bias_chart(f"bias-{number}", f"Error against size, {level}", place["dots"], running, noise),
        "lean": lean_chart(
            f"lean-{number}",
            f"JASON's B against size, {level}",
            running,
            noise,
            max((size for size, _ in place["dots"]), default=1.0),
        ),
    }


def _groups(evaluation: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Groups by size at the two lowest levels, of the query that tells most groups apart: the most numerous ones."""
    levels = list(dict.fromkeys(row["level"] for row in evaluation["levels"] if row["on_spine"]))[-2:]
    for level in reversed(levels):
        rows = [row for row in evaluation["levels"] if row["level"] == level and row["groups"]]
        if not rows:
            continue
        chosen = max(rows, key=lambda row: len(row["groups"]))
        largest = sorted(chosen["groups"], key=lambda group: -group["true_total"])[:MOST_GROUPS]
        groups = [group for group in chosen["groups"] if group in largest]
        bins = list(dict.fromkeys(size["bin"] for group in groups for size in group["bins"]))
        bins.sort(key=lambda name: int(name.replace(",", "").rstrip("+").split("-")[0]))
        yield {
            "level": named(level),
            "query": named(chosen["query"]),
            "bins": bins,
            "rows": [(group, [_size(group, name) for name in bins]) for group in groups],
            "left_out": len(chosen["groups"]) - len(groups),
        }


def _size(group: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    size = next((size for size in group["bins"] if size["bin"] == name), None)
    if size is None or size["bias"] is None:
        return None
    share = size["bias"] / size["true_mean"] if size["true_mean"] else None
    kind = "" if share is None else _shade(share)
    return {"bias": size["bias"], "share": share, "kind": kind, "cells": size["cells"]}


def _shade(share: float) -> str:
    rank = sum(abs(share) >= border for border in (0.05, 0.15, 0.3))
    return "" if not rank else f"{'many' if share > 0 else 'few'}-{rank}"


def _beside(evaluations: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> dict[str, Any]:
    """Releases of the same data: how each was made, what it promises, and mean absolute errors as bars."""
    first = evaluations[0]
    wanted = [(row["level"], row["query"]) for row in first["levels"] if row["query"] in ("total", "detailed")]
    every = [{(row["level"], row["query"]): row for row in one["levels"]} for one in evaluations]
    charts = []
    for number, (level, query) in enumerate(wanted):
        rows = [found.get((level, query)) for found in every]
        if not all(rows) or not any(row["mae"] for row in rows if row):
            continue
        bars = [
            Bar(label, row["mae"], f"{row['mae']:,.2f}" if row["mae"] >= 0.095 else f"{row['mae']:.3g}", "matched")
            for label, row in zip(labels, rows, strict=True)
            if row
        ]
        title = f"{named(level)}: {named(query)}"
        charts.append((title, bar_chart(f"beside-{number}", f"Mean absolute error, {title}", bars)))
    return {
        "releases": [
            {
                "label": label,
                "estimate": one["estimate"],
                "effective": _effective(one),
                "empty": [
                    f"{place['empty_published_inhabited']:,} of {place['empty']:,}"
                    for place in one["places"]
                    if place["empty"]
                ],
            }
            for label, one in zip(labels, evaluations, strict=True)
        ],
        "charts": charts,
    }


def _number(value: float | None, digits: int = 2) -> str:
    """Show a number with a true minus sign; a dash where it is not defined.

    Examples
    --------
    >>> _number(-1234.567), _number(None), _number(0.00123)
    ('−1,234.57', '–', '0.0012')
    """
    if value is None:
        return "–"
    small = value != 0 and abs(value) < 10.0**-digits
    return (f"{value:.2g}" if small else f"{value:,.{digits}f}").replace("-", "−")


def _percent(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{100 * value:,.{digits}f} %".replace("-", "−")


FILTERS: dict[str, Callable[..., Any]] = {"named": named, "number": _number, "percent": _percent}
