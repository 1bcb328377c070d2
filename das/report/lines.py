"""Lines over two linear axes, drawn like the other charts: text keeps its size, every line has a dash of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import SubElement

from markupsafe import Markup

from das.report.charts import BOTTOM, LEFT, RIGHT, TOP, _markup, _picture, _text, _ticks

__all__ = ["Line", "line_chart"]


@dataclass(frozen=True, slots=True)
class Line:
    """A labelled sequence of points."""

    label: str
    points: Sequence[tuple[float, float]]


def line_chart(name: str, title: str, lines: Sequence[Line], *, across: str, up: str) -> Markup:
    """Draw lines from zero upwards; what the axes measure is said in words.

    Examples
    --------
    >>> svg = line_chart("a", "A", [Line("one", [(0.0, 1.0), (2.0, 3.0)])], across="time", up="size")
    >>> svg.count("<path"), "time" in svg
    (1, True)
    """
    xs = [x for line in lines for x, _ in line.points] or [0.0, 1.0]
    low, high = min(xs), max(xs)
    width = high - low or 1.0
    ticks = list(_ticks(max((y for line in lines for _, y in line.points), default=1.0)))
    ends = "; ".join(f"{line.label}: {line.points[0][1]:g} to {line.points[-1][1]:g}" for line in lines if line.points)
    svg = _picture(name, title, f"{up} against {across}. {ends}", height=BOTTOM + 52)
    for tick in ticks:
        y = BOTTOM - (BOTTOM - TOP) * tick / ticks[-1]
        place = {"x1": f"{LEFT}%", "x2": f"{RIGHT}%", "y1": f"{y:.1f}", "y2": f"{y:.1f}"}
        SubElement(svg, "line", {**place, "class": "axis" if tick == 0 else "grid"})
        _text(svg, f"{tick:g}", f"{LEFT}%", y + 4, "tick end", dx="-7")
    for step in range(5):
        _text(
            svg,
            f"{low + width * step / 4:,.6g}",
            f"{LEFT + (RIGHT - LEFT) * step / 4:.2f}%",
            BOTTOM + 20,
            "tick middle",
        )
    _text(svg, up, f"{LEFT}%", 14, "label")
    _text(svg, across, f"{RIGHT}%", BOTTOM + 44, "label end")
    plot = {"x": f"{LEFT}%", "y": str(TOP), "width": f"{RIGHT - LEFT}%", "height": str(BOTTOM - TOP)}
    stretched = SubElement(svg, "svg", {**plot, "viewBox": "0 0 1000 1000", "preserveAspectRatio": "none"})
    for order, line in enumerate(lines):
        steps = (f"{1000 * (x - low) / width:.1f} {1000 * (1 - y / ticks[-1]):.1f}" for x, y in line.points)
        SubElement(stretched, "path", {"d": "M" + "L".join(steps), "class": f"curve dash-{order % 5}"})
    return _markup(svg)
