"""Outlines of places from a file, joined on GEOID: GeoJSON, or GeoParquet with geometries as well-known binary."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from das.errors import InputError, Problem, UsageError

__all__ = ["Joined", "Rings", "join_shapes", "read_shapes"]

Rings = list[NDArray[np.float64]]
NAMES = ("GEOID", "GEOID20", "GEOID10", "geoid", "geocode")
"""Columns or properties that may hold the geocode, the first that is there."""
NAMED = 5
"""How many codes that do not join a message names."""
POLYGON, MULTIPOLYGON = 3, 6


def read_shapes(path: Path) -> dict[str, Rings]:
    """Read the outline of each GEOID: rings of points, of which every second one is a hole (even-odd rule).

    Raises
    ------
    InputError
        The file is neither of the two formats, has no GEOID, names one twice, or holds something other than polygons.
    """
    try:
        pairs = list(_geojson(path) if path.suffix.lower() in (".json", ".geojson") else _geoparquet(path))
    except (ValueError, KeyError, TypeError, IndexError, struct.error, OSError, pa.ArrowException) as error:
        reason = f"cannot be read as {'GeoJSON' if 'json' in path.suffix.lower() else 'GeoParquet'} ({error})"
        raise InputError(Problem(str(path), reason, "give polygons with a GEOID each, as GeoJSON or WKB")) from error
    found: dict[str, Rings] = {}
    for code, rings in pairs:
        if code in found:
            raise InputError(Problem(str(path), f"GEOID {code!r} has two geometries", "give each place one"))
        found[code] = rings
    return found


@dataclass(frozen=True, slots=True)
class Joined:
    """Outlines by place of one level or kind of area, and what did not join on either side."""

    level: str
    shapes: Mapping[str, Rings]
    strangers: tuple[str, ...]
    without: tuple[str, ...]

    def sentence(self) -> str:
        """Say how many geometries did not join, and which; empty where all did.

        Examples
        --------
        >>> Joined("tract", {"01": []}, ("07", "08"), ("02",)).sentence()
        '2 geometries are of no tract of this release (07, 08); 1 of its places have no geometry (02).'
        """
        parts = []
        if self.strangers:
            named = _some(self.strangers)
            parts.append(f"{len(self.strangers):,} geometries are of no {self.level} of this release ({named})")
        if self.without:
            parts.append(f"{len(self.without):,} of its places have no geometry ({_some(self.without)})")
        return "; ".join(parts) + ("." if parts else "")


def _some(codes: Sequence[str]) -> str:
    return ", ".join(codes[:NAMED]) + (", ..." if len(codes) > NAMED else "")


def join_shapes(shapes: Mapping[str, Rings], places: Mapping[str, Sequence[str]], source: str) -> Joined:
    """Join outlines with the level or kind of area that has most of their codes.

    Raises
    ------
    UsageError
        No geometry has the code of any place.

    Examples
    --------
    >>> join_shapes({"011": [], "02": []}, {"county": ["01"], "tract": ["011", "012"]}, "a.geojson").level
    'tract'
    """
    matches = {level: set(codes) & set(shapes) for level, codes in places.items()}
    level = max(matches, key=lambda name: len(matches[name]))
    if not matches[level]:
        example = ", ".join(list(shapes)[:NAMED])
        known = next(iter(places[list(places)[-1]]), "")
        reason = f"none of its {len(shapes):,} geometries ({example}) is of a place of this release, such as {known}"
        raise UsageError(Problem(source, reason, "give geometries whose GEOID is a geocode of the release"))
    return Joined(
        level,
        {code: shapes[code] for code in places[level] if code in shapes},
        tuple(sorted(set(shapes) - matches[level])),
        tuple(code for code in places[level] if code not in shapes),
    )


def _geojson(path: Path) -> Iterator[tuple[str, Rings]]:
    for feature in json.loads(path.read_text(encoding="utf-8"))["features"]:
        properties = feature.get("properties") or {}
        code = next((properties[name] for name in NAMES if name in properties), feature.get("id"))
        geometry = feature["geometry"]
        if code is None or not isinstance(code, str):
            raise ValueError("a feature has no GEOID as text")
        if geometry["type"] not in ("Polygon", "MultiPolygon"):
            raise ValueError(f"{code}: a {geometry['type']} is not an outline")
        polygons = geometry["coordinates"] if geometry["type"] == "MultiPolygon" else [geometry["coordinates"]]
        yield code, [np.array([point[:2] for point in ring], dtype=np.float64) for each in polygons for ring in each]


def _geoparquet(path: Path) -> Iterator[tuple[str, Rings]]:
    table = pq.read_table(path)
    metadata = json.loads((table.schema.metadata or {}).get(b"geo", b"{}"))
    column = metadata.get("primary_column", "geometry")
    code = next((name for name in NAMES if name in table.column_names), None)
    if code is None or column not in table.column_names:
        raise ValueError(f"it needs columns GEOID and {column}")
    for geoid, content in zip(table[code].to_pylist(), table[column].to_pylist(), strict=True):
        yield str(geoid), _WellKnownBinary(content).rings()


class _WellKnownBinary:
    """Polygons in the OGC's well-known binary, with or without heights."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def rings(self) -> Rings:
        """Read a polygon or a multipolygon."""
        order, kind, size = self._head()
        if kind == POLYGON:
            return self._polygon(order, size)
        if kind == MULTIPOLYGON:
            return [ring for _ in range(self._number(order)) for ring in self.rings()]
        raise ValueError(f"geometry type {kind} is not an outline")

    def _head(self) -> tuple[str, int, int]:
        order = "<" if self.content[self.at] else ">"
        self.at += 1
        kind = self._number(order)
        size = 2 + bool(kind & 0x80000000) + bool(kind & 0x40000000)  # EWKB says heights in flags, ISO in thousands
        if kind & 0x20000000:
            self._number(order)  # the reference system, which a picture does not need
        kind &= 0x0FFFFFFF
        return order, kind % 1000, size + (0, 1, 1, 2)[kind // 1000]

    def _number(self, order: str) -> int:
        (value,) = struct.unpack_from(f"{order}I", self.content, self.at)
        self.at += 4
        return int(value)

    def _polygon(self, order: str, size: int) -> Rings:
        found = []
        for _ in range(self._number(order)):
            points = self._number(order)
            ring: Any = np.frombuffer(self.content, f"{order}f8", points * size, self.at).reshape(points, size)
            self.at += points * size * 8
            found.append(ring[:, :2].astype(np.float64))
        return found
