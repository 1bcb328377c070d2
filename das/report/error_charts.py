"""Charts of errors: their distribution by level, and their average along the size of places.

Errors of a few people matter beside errors of hundreds, so the axes of errors are compressed away from zero: distances
grow with the inverse hyperbolic sine, which is linear near zero and logarithmic far from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element, SubElement

from markupsafe import Markup

from das.report.charts import _markup, _picture, _text

__all__ = ["Spread", "bias_chart", "lean_chart", "spread_chart"]

LABELS, END = 25.0, 97.0  # percent of the width: where the plot of the distributions begins and ends
PITCH, HEAD = 38, 26
LEFT, RIGHT, TOP, BOTTOM = 10.0, 97.0, 26, 286
STEPS = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)


@dataclass(frozen=True, slots=True)
class Spread:
    """Quantiles of the errors of one row: 1, 5, 25, 50, 75, 95 and 99 %."""

    label: str
    quantiles: Sequence[float]


def spread_chart(name: str, title: str, rows: Sequence[Spread]) -> Markup:
    """Draw a box for each row: thin from the 1st to the 99th percentile, thick from the 5th to the 95th, a mark inside.

    Examples
    --------
    >>> svg = spread_chart("errors", "Errors", [Spread("tract", [-9, -5, -2, 0, 2, 5, 9])])
    >>> svg.count('class="box"'), "tract" in svg
    (1, True)
    """
    limit = max((abs(q) for row in rows for q in row.quantiles), default=1.0)
    description = "; ".join(
        f"{row.label}: half within {row.quantiles[2]:+,.0f} to {row.quantiles[4]:+,.0f}, nine in ten within "
        f"{row.quantiles[1]:+,.0f} to {row.quantiles[5]:+,.0f}"
        for row in rows
    )
    height = HEAD + PITCH * len(rows) + 44
    svg = _picture(name, title, description, height=height)
    base = HEAD + PITCH * len(rows)

    def x(error: float) -> float:
        return LABELS + (END - LABELS) * (0.5 + 0.5 * _bent(error) / _bent(max(limit, 1.0)))

    for tick in _errors_shown(limit, room=3):
        _line(svg, x(tick), x(tick), HEAD - 8, base, "axis" if tick == 0 else "grid")
        _text(svg, _signed(tick), f"{x(tick):.2f}%", base + 18, "tick middle")
    for number, row in enumerate(rows):
        y = HEAD + PITCH * number + PITCH / 2 - 4
        q = [x(value) for value in row.quantiles]
        _text(svg, row.label, "0", y + 5, "label")
        _line(svg, q[0], q[6], y, y, "whisker")
        _bar(svg, q[1], q[5], y - 5, 10, "wide-box")
        _bar(svg, q[2], q[4], y - 9, 18, "box")
        _line(svg, q[3], q[3], y - 11, y + 11, "median")
    _text(svg, "people too few", f"{LABELS}%", base + 40, "tick")
    _text(svg, "people too many", f"{END}%", base + 40, "tick end")
    return _markup(svg)


def bias_chart(
    name: str,
    title: str,
    dots: Sequence[Sequence[float]],
    running: Sequence[Mapping[str, Any]],
    noise: float | None,
) -> Markup:
    """Draw errors against the true size: each place a dot, the running average a line, the noise's scale a band.

    Examples
    --------
    >>> rows = [{"size": 0.0, "bias": 2.0}, {"size": 5.0, "bias": 1.0}, {"size": 50.0, "bias": -1.0}]
    >>> svg = bias_chart("bias", "Bias", [[0, 3], [50, -2]], rows, 4.0)
    >>> svg.count("<circle"), svg.count("curve"), "noise" in svg
    (3, 1, True)
    """
    largest = max([*(size for size, _ in dots), *(row["size"] for row in running), 1.0])
    limit = max([*(abs(error) for _, error in dots), *(abs(row["bias"]) for row in running), noise or 0.0, 1.0])
    ends = f"{running[0]['bias']:+.1f} at the smallest, {running[-1]['bias']:+.1f} at the largest" if running else ""
    svg = _picture(name, title, f"Error against true size. Running average: {ends}", height=BOTTOM + 52)

    def y(error: float) -> float:
        return (TOP + BOTTOM) / 2 - (BOTTOM - TOP) / 2 * _bent(error) / _bent(limit)

    if noise:
        place = {"x": f"{LEFT}%", "width": f"{RIGHT - LEFT}%", "y": f"{y(noise):.1f}"}
        SubElement(svg, "rect", {**place, "height": f"{y(-noise) - y(noise):.1f}", "class": "noise"})
    for tick in _errors_shown(limit, room=4):
        _line(svg, LEFT, RIGHT, y(tick), y(tick), "axis" if tick == 0 else "grid")
        _text(svg, _signed(tick), f"{LEFT}%", y(tick) + 4, "tick end", dx="-7")
    _sizes(svg, largest, noise)
    for size, error in dots:
        SubElement(
            svg, "circle", {"cx": f"{_across(size, largest):.2f}%", "cy": f"{y(error):.1f}", "r": "2.2", "class": "dot"}
        )
    _curve(svg, [(_across(row["size"], largest), y(row["bias"])) for row in running if row["size"] > 0])
    for row in running:
        if row["size"] == 0:  # empty places are not the neighbours of small ones: a mark of their own
            at = {"cx": f"{_across(0, largest):.2f}%", "cy": f"{y(row['bias']):.1f}", "r": "6"}
            SubElement(svg, "circle", {**at, "class": "point"})
    _text(svg, "error, people", "0", 14, "label")
    _text(svg, "true size of the place, people", f"{RIGHT}%", BOTTOM + 44, "label end")
    return _markup(svg)


def lean_chart(
    name: str, title: str, running: Sequence[Mapping[str, Any]], noise: float | None, largest: float = 1.0
) -> Markup:
    """Draw JASON's B along the true size: +1 where all errors are upwards, -1 where all are downwards.

    ``largest`` is the size that the axis reaches at least, so that two charts have the same axis.

    Examples
    --------
    >>> rows = [{"size": 1.0, "jason_b": 0.9, "jason_b_same_sign": 0.8}]
    >>> rows += [{"size": 9.0, "jason_b": -0.1, "jason_b_same_sign": None}, {**rows[0], "size": 20.0}]
    >>> lean_chart("b", "B", rows, None).count("<path")
    2
    """
    largest = max([*(row["size"] for row in running), largest])
    bottom = TOP + 150
    svg = _picture(name, title, "JASON's B against true size, in both readings", height=bottom + 52)

    def y(lean: float) -> float:
        return (TOP + bottom) / 2 - (bottom - TOP) / 2 * lean

    for tick, label in ((1, "+1"), (0, "0"), (-1, "−1")):
        _line(svg, LEFT, RIGHT, y(tick), y(tick), "axis" if tick == 0 else "grid")
        _text(svg, label, f"{LEFT}%", y(tick) + 4, "tick end", dx="-7")
    _sizes(svg, largest, noise, bottom)
    for order, reading in enumerate(("jason_b", "jason_b_same_sign")):
        points = [(_across(row["size"], largest), y(row[reading])) for row in running if row[reading] is not None]
        _curve(svg, points, f"dash-{order}")
    _text(svg, "B", "0", 14, "label")
    _text(svg, "true size of the place, people", f"{RIGHT}%", bottom + 44, "label end")
    return _markup(svg)


def _curve(svg: Element, points: Sequence[tuple[float, float]], kind: str = "") -> None:
    """Draw a line whose horizontal positions are percentages: inside an SVG that is stretched to the chart's size."""
    if len(points) < 2:
        return
    low, high = min(y for _, y in points), max(y for _, y in points)
    height = max(high - low, 1.0)
    place = {"x": "0", "y": f"{low:.1f}", "width": "100%", "height": f"{height:.1f}", "overflow": "visible"}
    stretched = SubElement(svg, "svg", {**place, "viewBox": f"0 0 100 {height:.1f}", "preserveAspectRatio": "none"})
    steps = "L".join(f"{x:.2f} {y - low:.1f}" for x, y in points)
    SubElement(stretched, "path", {"d": f"M{steps}", "class": f"curve {kind}".strip()})


def _sizes(svg: Element, largest: float, noise: float | None, bottom: int = BOTTOM) -> None:
    """Mark sizes below the plot, and where a place is as large as its noise."""
    for tick in (0, *(10**k for k in range(math.ceil(math.log10(largest + 1)) + 1))):
        if tick <= largest:
            _text(svg, f"{tick:,}", f"{_across(tick, largest):.2f}%", bottom + 20, "tick middle")
    if noise and noise <= largest:
        at = _across(noise, largest)
        _line(svg, at, at, TOP, bottom, "noise-line")
        _text(
            svg, f"noise: {noise:,.0f}" if noise >= 3 else f"noise: {noise:.1f}", f"{at:.2f}%", TOP - 6, "tick middle"
        )


def _across(size: float, largest: float) -> float:
    inset = 2.0
    return LEFT + inset + (RIGHT - LEFT - 2 * inset) * math.log1p(size) / math.log1p(max(largest, 1.0))


def _bent(error: float) -> float:
    return math.asinh(error / 2.0)


def _errors_shown(limit: float, room: int) -> list[float]:
    """Round errors to both sides of zero, at most so many to a side, the largest within the limit."""
    steps = [step for step in STEPS if step <= limit * (1 + 1e-9)] or [1]
    spaced = steps[:: -max(1, math.ceil(len(steps) / room))]
    return [*(-step for step in spaced), 0.0, *spaced]


def _signed(value: float) -> str:
    return f"{value:+,.0f}".replace("-", "−") if value else "0"


def _line(svg: Element, x1: float, x2: float, y1: float, y2: float, kind: str) -> None:
    place = {"x1": f"{x1:.2f}%", "x2": f"{x2:.2f}%", "y1": f"{y1:.1f}", "y2": f"{y2:.1f}"}
    SubElement(svg, "line", {**place, "class": kind})


def _bar(svg: Element, x1: float, x2: float, y: float, height: float, kind: str) -> None:
    place = {"x": f"{x1:.2f}%", "width": f"{x2 - x1:.2f}%", "y": f"{y:.1f}", "height": f"{height:.1f}"}
    SubElement(svg, "rect", {**place, "class": kind})
