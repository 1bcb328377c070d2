"""Charts as inline SVG that stretches with the page while its text keeps its size.

Horizontal positions are percentages and vertical ones pixels, so a chart is as readable on a phone as on paper. Colours
and fonts come from the page's style sheet by class; marks differ by label or dash, not by colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from xml.etree.ElementTree import Element, SubElement, tostring

from markupsafe import Markup

from das.accounting.conversion import epsilon_upper
from das.report.wording import one_in_upper, quoted_upper, superscript

__all__ = ["Bar", "Point", "bar_chart", "dash_sample", "delta_chart"]

LABELS, BAR_SHARE = 38, 40  # percent of the width for the labels and for the longest bar; the rest is for its number
OPEN_SHARE = 24  # of a bar whose length is not known: its text may be long
PITCH, THICKNESS = 34, 20
LEFT, RIGHT, TOP, BOTTOM = 9.0, 97.0, 28, 258  # the plot area of the curves: percent across, pixels down


@dataclass(frozen=True, slots=True)
class Bar:
    """One labelled length; None is a length that is not known, infinity one without end."""

    label: str
    length: float | None
    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class Point:
    """One promise (delta, epsilon) with its label."""

    label: str
    delta: Fraction
    epsilon: float


def bar_chart(name: str, title: str, bars: Sequence[Bar]) -> Markup:
    """Draw horizontal bars, each with its label before it and its number after it.

    Examples
    --------
    >>> svg = bar_chart("costs", "Costs", [Bar("nominal <1>", 17.1, "17.2", "nominal")])
    >>> "nominal &lt;1&gt;" in svg and "17.2" in svg and 'role="img"' in svg
    True
    """
    longest = max((bar.length for bar in bars if bar.length is not None and math.isfinite(bar.length)), default=0.0)
    description = "; ".join(f"{bar.label}: {bar.text}" for bar in bars)
    svg = _picture(name, title, description, height=PITCH * len(bars))
    for row, bar in enumerate(bars):
        y = PITCH * row + PITCH // 2
        known = bar.length is not None and math.isfinite(bar.length)
        width = BAR_SHARE * (bar.length or 0.0) / (longest or 1.0) if known else OPEN_SHARE
        _text(svg, bar.label, "0", y + 5, "label")
        place = {"x": f"{LABELS}%", "y": str(y - THICKNESS // 2), "width": f"{width:.2f}%", "height": str(THICKNESS)}
        SubElement(svg, "rect", {**place, "class": f"bar {bar.kind if known else 'open'}"})
        _text(svg, bar.text, f"{LABELS + width:.2f}%", y + 5, "number", dx="8")
    axis = {"x1": f"{LABELS}%", "x2": f"{LABELS}%", "y1": "0", "y2": str(PITCH * len(bars))}
    SubElement(svg, "line", {**axis, "class": "axis"})
    return _markup(svg)


def delta_chart(name: str, title: str, rhos: Sequence[Fraction], points: Sequence[Point]) -> Markup:
    """Draw epsilon against delta on a logarithmic axis: each rho-zCDP curve, and the promises that are made.

    Every value is :func:`das.accounting.conversion.epsilon_upper` at an exact delta.

    Examples
    --------
    >>> svg = delta_chart("trade", "Trade", [Fraction(1)], [])
    >>> svg.count("<path"), "10⁻¹²" in svg
    (1, True)
    """
    decades = max([14, *(_decade(point.delta) + 1 for point in points)])
    # floor(10^(k/4)), exactly: quarter decades of 1/delta
    deltas = [(k / 4, Fraction(1, math.isqrt(math.isqrt(10**k)))) for k in range(4, 4 * decades + 1)]
    drawn = [[(decade, epsilon_upper(rho, delta)) for decade, delta in deltas] for rho in rhos]
    ends = [point.epsilon for point in points] + [epsilon for curve in drawn for _, epsilon in curve]
    ticks = list(_ticks(max(ends, default=1.0)))
    description = "; ".join(
        f"{p.label}: epsilon {quoted_upper(p.epsilon)} at delta {one_in_upper(p.delta)}" for p in points
    )
    svg = _picture(name, title, f"Epsilon grows as delta shrinks. {description}", height=BOTTOM + 52)

    def x(decade: float) -> float:
        return LEFT + (RIGHT - LEFT) * (decade - 1) / (decades - 1)

    def y(epsilon: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * epsilon / ticks[-1]

    for tick in ticks:
        across = {"x1": f"{LEFT}%", "x2": f"{RIGHT}%", "y1": f"{y(tick):.1f}", "y2": f"{y(tick):.1f}"}
        SubElement(svg, "line", {**across, "class": "axis" if tick == 0 else "grid"})
        _text(svg, f"{tick:g}", f"{LEFT}%", y(tick) + 4, "tick end", dx="-7")
    for decade in range(2, decades + 1, 2 * math.ceil(decades / 16)):
        _text(svg, f"10{superscript(-decade)}", f"{x(decade):.2f}%", BOTTOM + 20, "tick middle")
    _text(svg, "ε", f"{LEFT}%", 14, "label middle")
    _text(svg, "δ, what is added (smaller to the right)", f"{RIGHT}%", BOTTOM + 44, "label end")
    plot = {"x": f"{LEFT}%", "y": str(TOP), "width": f"{RIGHT - LEFT}%", "height": str(BOTTOM - TOP)}
    stretched = SubElement(svg, "svg", {**plot, "viewBox": "0 0 1000 1000", "preserveAspectRatio": "none"})
    for order, curve in enumerate(drawn):
        steps = (f"{1000 * (d - 1) / (decades - 1):.1f} {1000 * (1 - epsilon / ticks[-1]):.1f}" for d, epsilon in curve)
        SubElement(stretched, "path", {"d": "M" + "L".join(steps), "class": f"curve dash-{order % 5}"})
    for point in points:
        power = -math.log10(point.delta)
        place = {"cx": f"{x(power):.2f}%", "cy": f"{y(point.epsilon):.1f}", "r": "5"}
        SubElement(svg, "circle", {**place, "class": "point"})
    return _markup(svg)


def dash_sample(order: int) -> Markup:
    """Draw the line of the curve of this order, for a legend; it says nothing that the text beside it does not.

    Examples
    --------
    >>> "dash-1" in dash_sample(1)
    True
    """
    svg = Element("svg", {"class": "sample", "width": "36", "height": "10", "aria-hidden": "true"})
    SubElement(svg, "line", {"x1": "0", "x2": "36", "y1": "5", "y2": "5", "class": f"curve dash-{order % 5}"})
    return _markup(svg)


def _picture(name: str, title: str, description: str, *, height: int) -> Element:
    """Start an SVG that a screen reader announces by its title and description."""
    named = {"role": "img", "aria-labelledby": f"{name}-title {name}-text"}
    svg = Element("svg", {"class": "chart", "width": "100%", "height": str(height), **named})
    SubElement(svg, "title", {"id": f"{name}-title"}).text = title
    SubElement(svg, "desc", {"id": f"{name}-text"}).text = description
    return svg


def _text(svg: Element, text: str, x: str, y: float, kind: str, dx: str = "0") -> None:
    SubElement(svg, "text", {"x": x, "y": f"{y:.1f}", "dx": dx, "class": kind}).text = text


def _markup(svg: Element) -> Markup:
    """Serialise; ElementTree has escaped all text, so the result is safe in a page."""
    return Markup(tostring(svg, encoding="unicode"))


def _ticks(maximum: float) -> Iterator[float]:
    """Round steps of 1, 2 or 5 from zero past the maximum, about five of them."""
    maximum = maximum or 1.0
    rough = maximum / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= rough * (1 - 1e-9))
    for k in range(math.ceil(maximum / step * (1 - 1e-9)) + 1):
        yield k * step


def _decade(delta: Fraction) -> int:
    return math.ceil(-math.log10(delta))
