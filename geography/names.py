"""What places are called: names from the file that lists them, one for each geounit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from geography.arrays import Codes, Flags, Indices
from geography.crosswalk import EDGE_COLUMNS, nest
from geography.problem import Problem, ProblemsFound
from geography.problem_list import Source, listed
from geography.reading import read_text_columns
from geography.spine import Spine

__all__ = ["read_names"]


def read_names(
    path: str | Path,
    spine: Spine,
    columns: Mapping[str, str],
    *,
    layout: Literal["wide", "edges"] = "wide",
    nested: bool = False,
    geocode: str | None = None,
    widths: Mapping[str, int] | None = None,
) -> dict[str, Codes]:
    """Read the names of the geounits of some levels, in spine order; blank where the file gives none.

    Parameters
    ----------
    path : str or Path
        The crosswalk, or the list of fixed-width geocodes.
    spine : Spine
        The spine that was read from it.
    columns : mapping
        Level to the column of its names.
    layout, nested
        Of a crosswalk; see `read_crosswalk`.
    geocode, widths
        Of a list of fixed-width geocodes: its column, and how many characters of it are a level's whole code.

    Raises
    ------
    ProblemsFound
        A column is missing, or a place has two names.

    Examples
    --------
    >>> import tempfile
    >>> spine = Spine.from_paths(["state", "county"], [np.array(["01", "01"]), np.array(["01001", "01003"])])
    >>> text = "state,county,called\\n01,01001,Autauga\\n01,01003,Baldwin\\n"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "geo.csv"
    ...     _ = path.write_text(text)
    ...     read_names(path, spine, {"county": "called"})["county"].tolist()
    ['Autauga', 'Baldwin']
    """
    if geocode is not None and widths is not None:
        keys: tuple[str, ...] = (geocode,)
    else:
        keys = EDGE_COLUMNS if layout == "edges" else spine.levels
    read = read_text_columns(path, list(dict.fromkeys([*keys, *columns.values()])))
    whole = dict(zip(keys, nest([read[key] for key in keys]), strict=True)) if nested else read
    found: dict[str, Codes] = {}
    problems: list[Problem] = []
    for level, column in columns.items():
        if geocode is not None and widths is not None:
            codes = read[geocode].astype(f"<U{widths[level]}")
        elif layout == "edges":
            codes = np.where(read["level"] == level, read["geocode"], "")
        else:
            codes = whole[level]
        names = np.strings.strip(read[column])
        unit = np.where(codes == "", -1, spine.locate(level, codes))
        found[level], twice = _first_name(unit, names, spine.size(level))

        def describe(i: int, level: str = level, codes: Codes = codes) -> Problem:
            return Problem(Source.of(path).row(i), f"{level} {str(codes[i])!r} has another name above", "give it one")

        problems += listed(np.flatnonzero(twice), describe, Source.of(path))
    if problems:
        raise ProblemsFound(problems)
    return found


def _first_name(unit: Indices, names: Codes, units: int) -> tuple[Codes, Flags]:
    """The name of each unit, from the first row that has one, and the rows that give it another."""
    rows = np.flatnonzero((unit >= 0) & (names != ""))
    known, first = np.unique(unit[rows], return_index=True)
    out = np.zeros(units, dtype=names.dtype)
    out[known] = names[rows[first]]
    other = np.zeros(len(names), dtype=np.bool_)
    other[rows] = out[unit[rows]] != names[rows]
    return out, other
