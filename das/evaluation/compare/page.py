"""Comparisons as one page that needs no other file, no script and no network: the example, and a config's own data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from das.exact import quoted
from das.report.charts import Bar, bar_chart, dash_sample
from das.report.lines import Line, line_chart
from das.report.pages import page_template

__all__ = ["render_comparison", "render_levels"]

TITLE = "Raw noise, least squares, congenial"
NOTE = "The counts are those of Gong’s (2020) published example: sex by 23 age groups, 256 people."
CAPTION = (
    "Privacy is matched: the noise of each contender is scaled so that its proved effective epsilon, for one record "
    "that changes its cell while the public totals stay, is {epsilon:g}. Raw noise and its post-processing lose 2e at "
    "e a cell; conditioning on totals and nonnegativity may lose 2e + log(2 − exp(−2e)), so congenial noise is wider. "
    "The dashed bar keeps the raw noise’s scale instead, and loses up to {other}."
)
LEVELS_CAPTION = (
    "Distances are of a geounit’s table from the truth, averaged over the geounits of a level and over {runs} runs. "
    "Privacy is matched: the noise of congenial draws is scaled until their effective epsilon is at most "
    "{epsilon}, that of raw noise and of everything computed from it."
)
DASHED = " The dashed bar keeps the raw noise’s scale instead, at an effective epsilon of {other}."
GROUNDS = (
    "Matched is the effective epsilon of the {promise}, at delta {delta:g}, as a privacy report states it before any "
    "record is read. Status: {status}. The other promises follow from the same noise and are not matched one by one."
)
SHARPER = (
    " For noise that is not conditioned there is a sharper account, by exact privacy-loss distributions: epsilon "
    "{tight}. Matched to that, congenial noise would be wider."
)


def render_comparison(found: Mapping[str, Any], *, title: str = TITLE, note: str = NOTE) -> str:
    """Write the page.

    Parameters
    ----------
    found : Mapping
        The result of `das.evaluation.compare.example_table.compare_example`; ``chain`` may be absent, and the
        contenders may be any.
    title, note : str
        Heading of the page.

    Examples
    --------
    >>> row = {"name": "a <b>", "epsilon": 1.0, "runs": 3, "l1": 4.0, "l1_error": 0.1, "l2": 2.0, "l2_error": 0.1,
    ...        "negative": 0.0}
    >>> page = render_comparison({"table": "a table", "epsilon": 1.0, "contenders": [row]})
    >>> "a &lt;b&gt;" in page and "<script" not in page
    True
    """
    rows, epsilon = found["contenders"], found["epsilon"]
    others = [quoted(row["epsilon"]) for row in rows if _costs_more(row, epsilon)]
    caption = CAPTION.format(epsilon=epsilon, other=" and ".join(others))
    if not others:
        caption = caption[: caption.index(" The dashed bar")]
    return page_template("das.evaluation.compare", "comparison.html.j2").render(
        found=found,
        title=title,
        note=note,
        caption=caption,
        blocks=[_block("", f"over {rows[0]['runs']} tables each", rows, epsilon)],
        promises=(),
        chain=_chain(found["chain"]) if found.get("chain") else None,
    )


def render_levels(found: Mapping[str, Any]) -> str:
    """Write the page of a comparison on a hierarchy: a pair of charts for each level and query.

    Parameters
    ----------
    found : Mapping
        The result of `das.evaluation.compare.levels.compare_levels`.
    """
    matched, epsilon = found["matched"], found["epsilon"]
    tight = matched["tight_epsilon_of_raw_noise"]
    others = [quoted(each["epsilon"]) for each in found["contenders"] if _costs_more(each, epsilon)]
    caption = LEVELS_CAPTION.format(runs=found["runs"], epsilon=quoted(epsilon))
    status = "; ".join(f"{name} {words}" for name, words in matched["status"].items())
    return page_template("das.evaluation.compare", "comparison.html.j2").render(
        found=found,
        title=TITLE,
        note=found["comparison"]
        + "."
        + "".join(f" Left out: {name}: {why}." for name, why in found["left_out"].items()),
        caption=caption + (DASHED.format(other=" and ".join(others)) if others else ""),
        blocks=[
            _block(f"{level['level']}: {level['query']}", _of(level), level["contenders"], epsilon, f"-{number}")
            for number, level in enumerate(found["levels"])
        ],
        promises=found["promises"],
        grounds=GROUNDS.format(promise=matched["promise"], delta=matched["delta"], status=status)
        + (SHARPER.format(tight=quoted(tight)) if isinstance(tight, float) else ""),
        chain=None,
    )


def _of(level: Mapping[str, Any]) -> str:
    geounits = level["geounits"]
    return f"of the table of a {level['level']}" + (f", mean of {geounits:,}" if geounits > 1 else "")


def _costs_more(row: Mapping[str, Any], epsilon: float) -> bool:
    return row["epsilon"] is not None and row["epsilon"] > epsilon


def _block(heading: str, of: str, rows: list[Mapping[str, Any]], epsilon: float, suffix: str = "") -> dict[str, Any]:
    """Both charts of one table, and the numbers."""
    label = f"{heading}: the same as a table" if heading else "The same as a table"
    charts = {key: _bars(key, f"Mean {key.upper()} distance", rows, epsilon, suffix) for key in ("l1", "l2")}
    return {"heading": heading, "of": of, "label": label, "rows": rows, **charts}


def _bars(key: str, title: str, rows: list[Mapping[str, Any]], epsilon: float, suffix: str) -> str:
    bars = [
        Bar(
            row["name"],
            row[key],
            f"{row[key]:.1f}",
            "other" if _costs_more(row, epsilon) else "matched",
        )
        for row in rows
    ]
    return bar_chart(key + suffix, title, bars)


def _chain(chain: Mapping[str, Any]) -> dict[str, Any]:
    names = list(dict.fromkeys(entry["solved"] for entry in chain["acceptance"]))
    curves = [
        Line(name, [(e["proposal"], 100 * e["acceptance"]) for e in chain["acceptance"] if e["solved"] == name])
        for name in names
    ]
    traces = [
        Line(name, [(i * chain["steps"] / (len(entry["distance"]) - 1), v) for i, v in enumerate(entry["distance"])])
        for name, entry in chain["traces"].items()
    ]
    return {
        "acceptance": line_chart(
            "acceptance", "Acceptance of the chain", curves, across="epsilon of the proposals", up="accepted, %"
        ),
        "acceptance_lines": [(dash_sample(order), name) for order, name in enumerate(names)],
        "trace": line_chart("trace", "Trace of the chain", traces, across="step", up="L1 distance"),
        "trace_lines": [
            (dash_sample(order), name, entry) for order, (name, entry) in enumerate(chain["traces"].items())
        ],
    }
