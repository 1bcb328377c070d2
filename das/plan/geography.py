"""The public geography that a plan names: its spine, and its areas off the spine."""

from __future__ import annotations

import numpy as np

from das.plan.plan import Plan
from geography import Areas, Spine, from_geocodes, read_areas, read_crosswalk, read_text_columns
from geography.problem_list import Source

__all__ = ["areas_of", "spine_of"]


def spine_of(plan: Plan) -> Spine:
    """Read the spine from the file that the config names; the data never decide which geounits exist."""
    settings = plan.settings.geography
    if settings.units:
        path = plan.folder / settings.units
        codes = read_text_columns(path, [settings.column])[settings.column]
        levels = [(level.name, level.width or 0) for level in settings.levels]
        rows = np.arange(len(codes), dtype=np.int64) + Source.of(path).first_row
        return from_geocodes(codes, levels, source=settings.units, rows=rows)
    return read_crosswalk(
        plan.folder / str(settings.crosswalk),
        [level.name for level in settings.levels],
        layout=settings.layout,
        nested=settings.nested,
    )


def areas_of(plan: Plan, spine: Spine) -> dict[str, Areas]:
    """Read each kind of area off the spine."""
    return {
        area.name: read_areas(plan.folder / area.file, spine, area=area.area, geocode=area.geocode)
        for area in plan.settings.geography.areas
    }
