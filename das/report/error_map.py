"""A map of errors as inline SVG: each place filled by how far its published total is from the truth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from das.report.charts import _markup

__all__ = ["MapPlace", "class_of", "error_map", "legend_of"]

WIDTH = 1000.0
CLASSES = (-2.0, -1.0, -0.5, 0.5, 1.0, 2.0)
"""Borders of the seven classes, as multiples of the typical error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapPlace:
    """One place: its outline as rings of points, its true and its published total."""

    code: str
    rings: Sequence[NDArray[np.float64]]
    true: int
    published: int


def error_map(name: str, title: str, places: Sequence[MapPlace], typical: float) -> Markup:
    """Draw the places; ``typical`` is the error that separates the classes, in people.

    Coordinates in degrees are shown with the aspect of their middle latitude; others as they are.

    Examples
    --------
    >>> square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> svg = error_map("map", "Map", [MapPlace(code="01", rings=[square], true=9, published=4)], 2.0)
    >>> 'class="land few-3"' in svg and "01: published 4, true 9 (−5)" in svg
    True
    """
    points = [ring for place in places for ring in place.rings if len(ring)]
    if not points:
        return Markup("")
    every = np.concatenate(points)
    narrowed = np.array([_aspect(every), 1.0])
    low, high = every.min(axis=0) * narrowed, every.max(axis=0) * narrowed
    scale = WIDTH / max(high[0] - low[0], 1e-12)
    height = max(float((high[1] - low[1]) * scale), 1.0)
    frame = {"viewBox": f"0 0 {WIDTH:.0f} {height:.0f}", "width": "100%", "class": "map", "role": "img"}
    svg = Element("svg", {**frame, "aria-labelledby": f"{name}-title"})
    SubElement(svg, "title", {"id": f"{name}-title"}).text = title
    for place in places:
        drawn = "".join(_path((ring * narrowed - low) * scale, height) for ring in place.rings)
        if drawn:
            error = place.published - place.true
            shape = SubElement(
                svg, "path", {"d": drawn, "class": f"land {class_of(error, typical)}", "fill-rule": "evenodd"}
            )
            turn = f"{error:+,}".replace("-", "−") if error else "0"
            SubElement(
                shape, "title"
            ).text = f"{place.code}: published {place.published:,}, true {place.true:,} ({turn})"
    return _markup(svg)


def class_of(error: float, typical: float) -> str:
    """Name the class of an error.

    Examples
    --------
    >>> [class_of(error, 4.0) for error in (-9, -5, -3, 0, 3, 5, 9)]
    ['few-3', 'few-2', 'few-1', 'right', 'many-1', 'many-2', 'many-3']
    """
    far = abs(error) / typical if typical > 0 else math.copysign(0.0, error)
    rank = sum(far > border for border in CLASSES[3:])
    return "right" if not rank else f"{'many' if error > 0 else 'few'}-{rank}"


def legend_of(typical: float) -> list[Mapping[str, str]]:
    """Name the classes with their errors in people.

    Examples
    --------
    >>> [entry["text"] for entry in legend_of(4.0)][2:5]
    ['2 to 4 too few', 'within 2', '2 to 4 too many']
    """
    half, one, two = (
        f"{border * typical:,.0f}" if typical >= 4 else f"{border * typical:.2g}" for border in CLASSES[3:]
    )
    sizes = (f"more than {two}", f"{one} to {two}", f"{half} to {one}")
    few = [{"kind": f"few-{3 - i}", "text": f"{size} too few"} for i, size in enumerate(sizes)]
    many = [{"kind": f"many-{3 - i}", "text": f"{size} too many"} for i, size in enumerate(sizes)]
    return [*few, {"kind": "right", "text": f"within {half}"}, *reversed(many)]


def _aspect(points: NDArray[np.float64]) -> float:
    """How much narrower a degree of longitude is than one of latitude in the middle; 1 if these are not degrees."""
    x, y = np.abs(points).T
    in_degrees = x.max() <= 180 and y.max() <= 90 and max(x.max(), y.max()) > 1.5  # the unit square is not in degrees
    return math.cos(math.radians(float(points[:, 1].min() + points[:, 1].max()) / 2)) if in_degrees else 1.0


def _path(ring: NDArray[np.float64], height: float) -> str:
    """Close a ring; points that coincide at a tenth of a unit are written once."""
    steps: list[str] = []
    for x, y in ring.tolist():
        step = f"{x:.1f} {height - y:.1f}"
        if not steps or steps[-1] != step:
            steps.append(step)
    return f"M{'L'.join(steps)}Z" if len(steps) > 2 else ""
