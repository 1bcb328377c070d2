"""Whether the disk has room for a run, by a forecast, before anything is charged or drawn.

What a run writes is nearly in proportion to its noisy numbers, geounits times numbers a geounit: the measurements, and
with full information a linear estimate and a deviation for each. The bytes a number are those of generated populations:
``das bench state --blocks 6000 --json`` wrote 4.4 bytes a number with full information, ``das bench 1940 --share 0.001
--json`` 1.7 bytes without linear estimates.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Protocol

from das.errors import Problem, UsageError
from das.plan.plan import Plan, numbers_per_unit

__all__ = ["bytes_needed", "require_room"]

MEASURED_BYTES, ESTIMATED_BYTES = 1.7, 2.7
GB = 1e9


class HasSizes(Protocol):
    """Something that knows how many geounits a level has; :class:`geography.Spine` does."""

    def size(self, level: str) -> int:
        """Return the number of geounits of a level."""


def bytes_needed(plan: Plan, spine: HasSizes) -> float:
    """Bytes that the release will have, by the forecast; none for a congenial one, whose counts are few."""
    if not plan.mechanism_stage.measures:
        return 0.0
    each = MEASURED_BYTES + (ESTIMATED_BYTES if plan.settings.estimate.information == "full" else 0.0)
    return each * sum(spine.size(level) * numbers_per_unit(plan.at(level)) for level in plan.levels)


def require_room(plan: Plan, spine: HasSizes, folder: Path) -> None:
    """Refuse a run whose release will not fit the disk of its folder; what is there already counts as room.

    Raises
    ------
    UsageError
        Less is free than the forecast needs.
    """
    needed = bytes_needed(plan, spine)
    there = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0
    free = shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.is_dir())).free + there
    if free < needed:
        reason = f"has room for {free / GB:.3g} GB, and the release will need about {needed / GB:.3g} GB"
        remedy = (
            'free space, name another --out, or measure fewer numbers (`das plan`); information = "level" needs less'
        )
        raise UsageError(Problem(str(folder), reason, f"{remedy}; nothing was drawn or charged"))
