"""Confidence regions in a plane, drawn like the other charts: closed curves with a dash of their own, and the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import SubElement

from markupsafe import Markup

from das.report.charts import BOTTOM, LEFT, RIGHT, TOP, _markup, _picture, _text

__all__ = ["Region", "region_chart"]

STEPS = 4


@dataclass(frozen=True, slots=True)
class Region:
    """A labelled closed curve around its centre."""

    label: str
    centre: tuple[float, float]
    outline: Sequence[tuple[float, float]]


def region_chart(
    name: str, title: str, regions: Sequence[Region], truth: tuple[float, float], *, across: str, up: str
) -> Markup:
    """Draw regions and mark the truth with a cross; the axes just hold all of them.

    Examples
    --------
    >>> square = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)]
    >>> svg = region_chart("a", "A", [Region("naive", (0.5, 0.5), square)], (2.0, 2.0), across="slope", up="intercept")
    >>> svg.count("<path"), svg.count("<circle"), "slope" in svg
    (2, 1, True)
    """
    points = [truth, *(point for region in regions for point in region.outline)]
    (left, right), (low, high) = (_range([point[axis] for point in points]) for axis in (0, 1))

    def place(point: tuple[float, float]) -> tuple[float, float]:
        return 1000 * (point[0] - left) / (right - left), 1000 * (high - point[1]) / (high - low)

    said = "; ".join(f"{each.label}: centre {each.centre[0]:.3g}, {each.centre[1]:.3g}" for each in regions)
    svg = _picture(name, title, f"{up} against {across}; truth {truth[0]:g}, {truth[1]:g}. {said}", height=BOTTOM + 52)
    for step in range(STEPS + 1):
        share = step / STEPS
        y = BOTTOM - (BOTTOM - TOP) * share
        line = {"x1": f"{LEFT}%", "x2": f"{RIGHT}%", "y1": f"{y:.1f}", "y2": f"{y:.1f}"}
        SubElement(svg, "line", {**line, "class": "axis" if step == 0 else "grid"})
        _text(svg, f"{low + (high - low) * share:.3g}", f"{LEFT}%", y + 4, "tick end", dx="-7")
        x = LEFT + (RIGHT - LEFT) * share
        _text(svg, f"{left + (right - left) * share:.3g}", f"{x:.2f}%", BOTTOM + 20, "tick middle")
    _text(svg, up, f"{LEFT}%", 14, "label")
    _text(svg, across, f"{RIGHT}%", BOTTOM + 44, "label end")
    plot = {"x": f"{LEFT}%", "y": str(TOP), "width": f"{RIGHT - LEFT}%", "height": str(BOTTOM - TOP)}
    stretched = SubElement(svg, "svg", {**plot, "viewBox": "0 0 1000 1000", "preserveAspectRatio": "none"})
    for order, region in enumerate(regions):
        steps = (f"{x:.1f} {y:.1f}" for x, y in map(place, region.outline))
        SubElement(stretched, "path", {"d": "M" + "L".join(steps) + "Z", "class": f"curve dash-{order % 5}"})
        x, y = place(region.centre)
        middle = {"cx": f"{LEFT + (RIGHT - LEFT) * x / 1000:.2f}%", "cy": f"{TOP + (BOTTOM - TOP) * y / 1000:.1f}"}
        SubElement(svg, "circle", {**middle, "r": "3", "class": "point"})
    x, y = place(truth)
    cross = f"M{x - 12:.1f} {y:.1f}H{x + 12:.1f}M{x:.1f} {y - 24:.1f}V{y + 24:.1f}"
    SubElement(stretched, "path", {"d": cross, "class": "curve truth"})
    return _markup(svg)


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = 0.06 * (high - low) or 1.0
    return low - margin, high + margin
