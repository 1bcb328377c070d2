"""The public geography that a plan names: its spine, and its areas off the spine."""

from __future__ import annotations

import numpy as np

from das.plan.files import named_file
from das.plan.plan import Plan
from geography import Areas, Spine, from_geocodes, read_areas, read_crosswalk, read_text_columns
from geography.arrays import Codes
from geography.names import read_names
from geography.problem_list import Source

__all__ = ["areas_of", "names_of", "spine_of"]


def spine_of(plan: Plan) -> Spine:
    """Read the spine from the file that the config names; the data never decide which geounits exist."""
    settings = plan.settings.geography
    if settings.units:
        path = named_file(plan, settings.units)
        codes = read_text_columns(path, [settings.column])[settings.column]
        levels = [(level.name, level.width or 0) for level in settings.levels]
        rows = np.arange(len(codes), dtype=np.int64) + Source.of(path).first_row
        return from_geocodes(codes, levels, source=settings.units, rows=rows)
    return read_crosswalk(
        named_file(plan, str(settings.crosswalk)),
        [level.name for level in settings.levels],
        layout=settings.layout,
        nested=settings.nested,
    )


def areas_of(plan: Plan, spine: Spine) -> dict[str, Areas]:
    """Read each kind of area off the spine."""
    return {
        area.name: read_areas(named_file(plan, area.file), spine, area=area.area, geocode=area.geocode, name=area.names)
        for area in plan.settings.geography.areas
    }


def names_of(plan: Plan, spine: Spine) -> dict[str, Codes]:
    """Read what the places of each level are called, in spine order, for the levels whose names the config points to.

    The names of areas come with them (:func:`areas_of`).
    """
    settings = plan.settings.geography
    columns = {level.name: level.names for level in settings.levels if level.names}
    if not columns:
        return {}
    path = plan.folder / str(settings.units or settings.crosswalk)
    if settings.units:
        widths = dict(
            zip(plan.levels, np.cumsum([level.width or 0 for level in settings.levels]).tolist(), strict=True)
        )
        return read_names(path, spine, columns, geocode=settings.column, widths=widths)
    return read_names(path, spine, columns, layout=settings.layout, nested=settings.nested)
