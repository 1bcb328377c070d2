"""Files that a config names, each for one purpose, so that a misspelt name is not answered with a file of another."""

from __future__ import annotations

from pathlib import Path

from das.errors import InputError, Problem
from das.plan.plan import Plan
from geography.reading import similar_file

__all__ = ["named_file", "remedy_for_missing"]


def named_file(plan: Plan, name: str) -> Path:
    """Return the path of a file that the config names.

    Raises
    ------
    InputError
        There is no such file; the message suggests none that the config names for another purpose.
    """
    path = plan.folder / name
    if not path.exists():
        raise InputError(Problem(str(path), "does not exist", remedy_for_missing(plan, name) or "check the path"))
    return path


def remedy_for_missing(plan: Plan, name: str) -> str:
    """Return which file was probably meant; nothing where the config names every similar one for another purpose."""
    settings = plan.settings
    purposes: tuple[list[str | None], ...] = (
        [settings.geography.units, settings.geography.crosswalk],
        [area.file for area in settings.geography.areas],
        [*(bound.source for bound in plan.bounds), *(table.source for table in plan.published)],
        list(settings.input.files),
    )
    others = {(plan.folder / other).resolve() for named in purposes if name not in named for other in named if other}
    return similar_file(plan.folder / name, others)
