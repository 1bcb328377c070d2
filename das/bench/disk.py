"""Bytes of a release by kind of file, and what each kind grows with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from das.plan.plan import Plan, numbers_per_unit
from das.release.table_tasks import INTERVALS, LONGEST_INTERVALS, table_tasks
from das.schema.query import parse_query
from das.storage.layout import ReleaseFolder

__all__ = ["amounts_of", "bytes_below", "bytes_by_kind"]


def bytes_below(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def bytes_by_kind(release: ReleaseFolder) -> dict[str, int]:
    """Bytes of each folder of a release; tables of intervals apart, because long ones are left out."""
    folders = (release.measurements, release.estimates, release.counts, release.facts, release.microdata)
    kinds = {folder.name: bytes_below(folder) for folder in folders}
    intervals = sum(path.stat().st_size for path in release.tables.glob(f"*{INTERVALS}.*"))
    return kinds | {release.tables.name: bytes_below(release.tables) - intervals, "intervals": intervals}


def amounts_of(
    plan: Plan, geounits: Mapping[str, float], areas: Mapping[str, float], people: float
) -> dict[str, float]:
    """What the bytes of each kind are in proportion to: numbers, geounits, people, cells of tables, rows of intervals.

    Parameters
    ----------
    plan : Plan
        What is measured and published.
    geounits, areas : mapping
        How many there are, by level and by kind of area.
    people : float
        How many are counted.
    """
    numbers = sum(geounits[level] * numbers_per_unit(plan.at(level)) for level in plan.levels)
    full = plan.settings.estimate.information == "full" and plan.mechanism_stage.measures
    places = {**areas, **geounits}
    cells = [places[task.place] * parse_query(plan.schema, task.query).size for task in table_tasks(plan)]
    rows = [each for each in cells if each <= LONGEST_INTERVALS] if full and plan.settings.output.intervals else []
    return {
        "measurements": numbers if plan.mechanism_stage.measures else 0.0,
        "estimates": numbers if full else 0.0,
        "counts": sum(geounits.values()),
        "facts": sum(geounits.values()),
        "microdata": people if plan.settings.output.microdata else 0.0,
        "tables": sum(cells),
        "intervals": sum(rows),
    }
