"""The comparison as one page that needs no other file, no script and no network."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from das.report.charts import Bar, bar_chart, dash_sample
from das.report.lines import Line, line_chart

__all__ = ["render_comparison"]

TITLE = "Raw noise, least squares, congenial"
NOTE = "Five counts and all sums are those of the published example; the other counts are made up to fit them."
CAPTION = (
    "Privacy is matched: the noise of each contender is scaled so that its proved effective epsilon, for one record "
    "that changes its cell while the public totals stay, is {epsilon:g}. Raw noise and its post-processing lose 2e at "
    "e a cell; conditioning on totals and nonnegativity may lose 2e + log(2 − exp(−2e)), so congenial noise is wider. "
    "The dashed bar keeps the raw noise’s scale instead, and loses up to {other}."
)


def render_comparison(found: Mapping[str, Any], *, title: str = TITLE, note: str = NOTE) -> str:
    """Write the page.

    Parameters
    ----------
    found : Mapping
        What `das.congenial.comparison.compare_example` gives; ``chain`` may be absent. The contenders may be any.
    title, note : str
        What stands above.

    Examples
    --------
    >>> row = {"name": "a <b>", "epsilon": 1.0, "runs": 3, "l1": 4.0, "l1_error": 0.1, "l2": 2.0, "l2_error": 0.1,
    ...        "negative": 0.0}
    >>> page = render_comparison({"table": "a table", "epsilon": 1.0, "contenders": [row]})
    >>> "a &lt;b&gt;" in page and "<script" not in page
    True
    """
    rows, epsilon = found["contenders"], found["epsilon"]
    others = [f"{row['epsilon']:.2f}" for row in rows if row["epsilon"] is not None and row["epsilon"] > epsilon]
    caption = CAPTION.format(epsilon=epsilon, other=" and ".join(others))
    if not others:
        caption = caption[: caption.index(" The dashed bar")]
    return _template().render(
        found=found,
        title=title,
        note=note,
        caption=caption,
        l1=_bars("l1", "Mean L1 distance", rows, epsilon),
        l2=_bars("l2", "Mean L2 distance", rows, epsilon),
        chain=_chain(found["chain"]) if found.get("chain") else None,
    )


def _bars(key: str, title: str, rows: list[Mapping[str, Any]], epsilon: float) -> str:
    bars = [
        Bar(
            row["name"],
            row[key],
            f"{row[key]:.1f}",
            "matched" if row["epsilon"] is None or row["epsilon"] <= epsilon else "other",
        )
        for row in rows
    ]
    return bar_chart(key, title, bars)


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


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("das.congenial", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("comparison.html.j2")
