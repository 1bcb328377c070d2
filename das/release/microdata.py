"""Protected records: one row per person of the protected counts.

`LAYOUTS` is the table of layouts: the redistricting schema comes out with the column names and codes of the Bureau's
privacy-protected microdata files (PPMF); any other schema with its geocode and a column per attribute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from das.plan.plan import Plan
from das.schema.column_names import label_columns
from das.schema.counts import ProtectedCounts
from das.schema.schema import Schema

__all__ = ["LAYOUTS", "RecordLayout", "codes_of", "comment_of", "table_of_records"]

REDISTRICTING = {"hhgq": 8, "votingage": 2, "hispanic": 2, "cenrace": 63}
CENSUS_LEVELS = ("state", "county", "tract", "block_group", "block")
CENSUS_COLUMNS = ("TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK")
HOUSEHOLD = 0


def comment_of(plan: Plan, *, seeded: bool) -> str:
    """Say in the first line of the file what it is."""
    if seeded:
        return f"TEST RUN of {plan.name}: the noise key is known, so these records are protected from nobody"
    return f"protected records of release {plan.name}, plan {plan.digest[:16]}; no row is a person"


def table_of_records(plan: Plan, geocodes: NDArray[np.str_], counts: ProtectedCounts) -> pa.Table:
    """Repeat each cell as often as it is counted; ``counts.unit`` are positions in ``geocodes``."""
    unit, cell = np.repeat(counts.unit, counts.count), np.repeat(counts.cell, counts.count)
    return pa.table(_layout(plan).columns(plan, geocodes, unit, plan.schema.labels_of(cell)))


def codes_of(plan: Plan) -> dict[str, tuple[str, dict[str, str]]]:
    """Columns that hold an attribute: its name, and the label of each code."""
    return _layout(plan).codes(plan)


def _layout(plan: Plan) -> RecordLayout:
    return next(layout for layout in LAYOUTS.values() if layout.is_for(plan.schema))


def _by_attribute(
    plan: Plan, geocodes: NDArray[np.str_], unit: NDArray[np.int64], codes: dict[str, NDArray[np.int64]]
) -> dict[str, pa.Array]:
    """A column per attribute, with its labels."""
    columns = _geography(plan, geocodes, unit)
    for column, (name, labels) in _labels(plan).items():
        columns[column] = _coded(codes[name], list(labels))
    return columns


def _labels(plan: Plan) -> dict[str, tuple[str, dict[str, str]]]:
    attributes = plan.schema.attributes
    columns = label_columns([attribute.name for attribute in attributes], list(CENSUS_COLUMNS))
    return {
        column: (attribute.name, {label: label for label in attribute.labels})
        for column, attribute in zip(columns, attributes, strict=True)
    }


def _ppmf(
    plan: Plan, geocodes: NDArray[np.str_], unit: NDArray[np.int64], codes: dict[str, NDArray[np.int64]]
) -> dict[str, pa.Array]:
    """Column names and codes of the 2020 redistricting person file (census2020 settings, "Output formats")."""
    n = len(unit)
    first = np.searchsorted(unit, unit)  # records are ordered by unit: number them within it
    columns: dict[str, pa.Array] = {
        "SCHEMA_TYPE_CODE": _coded(np.zeros(n, np.int64), ["MPD"]),
        "SCHEMA_BUILD_ID": _coded(np.zeros(n, np.int64), ["1.1.0"]),
    }
    columns |= _geography(plan, geocodes, unit)
    columns["EPNUM"] = pa.array(np.arange(n) - first + 1, pa.int64())
    columns["RTYPE"] = _coded((codes["hhgq"] != HOUSEHOLD).astype(np.int64), ["3", "5"])
    return columns | {column: _coded(codes[name], list(known)) for column, (name, known) in _ppmf_codes(plan).items()}


def _ppmf_codes(plan: Plan) -> dict[str, tuple[str, dict[str, str]]]:
    codes = {
        "GQTYPE_PL": ("hhgq", [str(i) for i in range(8)]),
        "VOTING_AGE": ("votingage", ["1", "2"]),
        "CENHISP": ("hispanic", ["1", "2"]),
        "CENRACE": ("cenrace", [f"{i:02d}" for i in range(1, 64)]),
    }
    return {
        column: (name, dict(zip(known, plan.schema.attribute(name).labels, strict=True)))
        for column, (name, known) in codes.items()
    }


def _geography(plan: Plan, geocodes: NDArray[np.str_], unit: NDArray[np.int64]) -> dict[str, pa.Array]:
    """Split the leaf's geocode as the Bureau does where the levels are its own; otherwise keep it whole."""
    levels = plan.settings.geography.levels
    if tuple(level.name for level in levels) != CENSUS_LEVELS or plan.settings.geography.units is None:
        return {"GEOID": _coded(unit, geocodes.tolist())}
    widths = [level.width or 0 for level in levels]
    cuts = np.cumsum([0, *widths])
    out = {
        name: _coded(unit, [code[cuts[i] : cuts[i + 1]] for code in geocodes.tolist()])
        for i, name in enumerate(CENSUS_COLUMNS[:-1])
    }
    # A published block number has four digits, of which the first is its block group.
    out[CENSUS_COLUMNS[-1]] = _coded(unit, [code[-4:] for code in geocodes.tolist()])
    return out


def _coded(code: NDArray[np.int64], labels: list[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(code, pa.int32()), pa.array(labels, pa.string())).dictionary_decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLayout:
    """Columns of a file of records, and the schemas that it is for."""

    is_for: Callable[[Schema], bool]
    columns: Callable[[Plan, NDArray[np.str_], NDArray[np.int64], dict[str, NDArray[np.int64]]], dict[str, pa.Array]]
    codes: Callable[[Plan], dict[str, tuple[str, dict[str, str]]]]


LAYOUTS: dict[str, RecordLayout] = {
    "ppmf": RecordLayout(
        is_for=lambda schema: dict(zip(schema.names, schema.shape, strict=True)) == REDISTRICTING,
        columns=_ppmf,
        codes=_ppmf_codes,
    ),
    "by attribute": RecordLayout(is_for=lambda schema: True, columns=_by_attribute, codes=_labels),
}
"""Layouts by name; the first that is for a plan's schema is taken."""
