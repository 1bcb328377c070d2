"""``accuracy.html``: the evaluation of a release as one page, others beside it, and a map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from das.demo.layout import made_up_shapes
from das.errors import Problem, UsageError
from das.evaluation.evaluate import evaluate_release
from das.evaluation.geometries import Rings, join_shapes, read_shapes
from das.evaluation.opened import Opened, open_release
from das.evaluation.places import Places
from das.report.accuracy import MapFigure, render_accuracy
from das.report.error_map import MapPlace, error_map, legend_of
from das.storage.files import write_atomically

__all__ = ["evaluate_and_report"]

MOST_OUTLINES = 2_000
"""A level with more places is not drawn without being asked: nobody could see them."""
FEWEST_OUTLINES = 4
MADE_UP = "The outlines are made up, like the data: neighbours in the list of places are neighbours on this map."


def evaluate_and_report(
    folders: Sequence[Path], *, html: Path | None = None, geometries: Path | None = None, publishable: bool = False
) -> dict[str, Any]:
    """Evaluate a release, and others of the same data beside it; write the page.

    Parameters
    ----------
    folders : sequence of Path
        Folders of runs, with their confidential sides; the page is about the first.
    html : Path, optional
        Where to write the page instead of ``confidential/accuracy.html``. The file is private (0600).
    geometries : Path, optional
        Outlines of places for a map.
    publishable : bool
        Make the page readable by all; refused unless the data of all releases are generated or public.

    Raises
    ------
    UsageError
        A folder cannot be evaluated, a release is of other data, no geometry joins, or confidential errors would be
        published.
    """
    opened = [open_release(folder) for folder in folders]
    first = opened[0]
    for other in opened[1:]:
        _require_same_data(first, other)
    if publishable:
        _require_no_protection(opened)
    evaluations = [evaluate_release(each) for each in opened]
    labels = [f"{each.plan.name} ({folder.name})" for each, folder in zip(opened, folders, strict=True)]
    figure = _figure(first, geometries)
    page = render_accuracy(evaluations[0], others=evaluations[1:], labels=labels, figure=figure)
    path = html or first.layout.confidential.path / "accuracy.html"
    write_page(path, page, publishable=publishable)
    return {**evaluations[0], "page": str(path), "map": figure.note if figure else None}


def _require_same_data(first: Opened, other: Opened) -> None:
    """Refuse to compare releases of different people, places or schemas."""
    leaf = first.plan.levels[-1]
    same = other.plan.schema == first.plan.schema and other.spine == first.spine
    if not (same and other.truth[leaf].equals(first.truth[leaf])):
        reason = f"is not a release of the same data, geography and schema as {first.layout.root}"
        raise UsageError(
            Problem(str(other.layout.root), reason, "compare releases that differ in strategy or estimation")
        )


def _require_no_protection(opened: Sequence[Opened]) -> None:
    for each in opened:
        if each.plan.settings.input.data == "confidential":
            reason = "its errors are exact functions of confidential counts, and nothing protects them"
            remedy = "leave out --publishable; it is for data that the config declares generated or public"
            raise UsageError(Problem(str(each.layout.root), reason, remedy))


def write_page(path: Path, page: str, *, publishable: bool) -> None:
    """Write a page for the owner alone, or for all."""
    if not path.parent.is_dir():
        raise UsageError(Problem(str(path), "is in a folder that does not exist", "make it, or name another place"))
    write_atomically(path, page.encode(), mode=0o644 if publishable else 0o600)


def _figure(opened: Opened, geometries: Path | None) -> MapFigure | None:
    """Draw a map from a file of outlines, or made-up outlines of generated data."""
    every = {places.level: places for places in opened.places()}
    if geometries is not None:
        joined = join_shapes(
            read_shapes(geometries), {name: one.codes.tolist() for name, one in every.items()}, str(geometries)
        )
        return _drawn(every[joined.level], joined.shapes, joined.sentence())
    if opened.plan.settings.input.data != "generated":
        return None
    fitting = [one for one in every.values() if one.on_spine and FEWEST_OUTLINES <= len(one.codes) <= MOST_OUTLINES]
    if not fitting:
        return None
    places, spine = fitting[-1], opened.spine
    shown = spine.real(places.level)
    ends = spine.leaf_ranges(places.level)
    unit_of_leaf = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    outlines = made_up_shapes(unit_of_leaf, len(ends) - 1)
    shapes = {str(code): outlines[at] for code, at in zip(places.codes, np.flatnonzero(shown).tolist(), strict=True)}
    return _drawn(places, shapes, MADE_UP)


def _drawn(places: Places, shapes: Mapping[str, Rings], note: str) -> MapFigure:
    """Colour outlines by the error of their place; classes are multiples of the level's root mean squared error."""
    typical = float(np.sqrt(np.mean(places.errors**2)))
    drawn = [
        MapPlace(code=str(code), rings=shapes[str(code)], true=int(true), published=int(published))
        for code, true, published in zip(places.codes, places.true, places.published, strict=True)
        if str(code) in shapes
    ]
    svg = error_map("map", f"Errors of totals, {places.level}", drawn, typical)
    return MapFigure(svg=svg, legend=legend_of(typical), level=places.level, note=note)
