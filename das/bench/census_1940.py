"""A population of the shape of the 1940 census, end to end: 132 million people in 158,374 geounits and 44,544 cells.

The shape is that of the published comparisons: nation, 49 states (the District among them), 3,108 counties and 155,216
enumeration districts; eight kinds of quarters, two sexes, 116 ages, two origins, six races and two citizenships. The
people are generated: each district draws its counts from a distribution of its state, district by district, so that
memory does not grow with the nation. They are about nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from das.bench.state import measured_run
from das.plan.load import load

__all__ = ["rows", "write_census"]

PEOPLE, STATES, COUNTIES, DISTRICTS = 132_000_000, 49, 3_108, 155_216
ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "hhgq": tuple(f"quarters {i}" for i in range(8)),
    "sex": ("male", "female"),
    "age": tuple(str(i) for i in range(116)),
    "hispanic": ("no", "yes"),
    "race": tuple(f"race {i}" for i in range(6)),
    "citizen": ("yes", "no"),
}
CELLS = prod(map(len, ATTRIBUTES.values()))
DISTRICTS_AT_ONCE = 500
SEED = 1940

CONFIG = """\
[release]
name = "the shape of 1940"

[privacy]
framework = "zcdp"
rho = "1"
delta = "1/10000000000"
unit = "person"
neighbours = "replace"

[input]
data = "generated"
histograms = "counts.parquet"
geocode = "geocode"

[geography]
units = "geography.parquet"
column = "geocode"
levels = [
    { name = "nation", width = 1 },
    { name = "state", width = 2 },
    { name = "county", width = 4 },
    { name = "district", width = 6 },
]

[strategy.geolevels]
nation = "1/4"
state = "1/4"
county = "1/4"
district = "1/4"

[strategy.queries.all]
hhgq = "1/4"
"grown * hispanic * race * citizen" = "1/4"
detailed = "1/2"

[[invariant]]
query = "total"
level = "state"
reason = "Apportionment"

[estimate]
information = "level"   # each level given the one above it, as in TopDown

[output]
tables = ["total", "hhgq"]
"""


def rows(*, share: float = 1.0, options: Sequence[str] = ()) -> dict[str, Any]:
    """Generate the population, run it, and return one object: what ``das bench 1940 --json`` prints.

    Parameters
    ----------
    share : float
        The part of the districts, counties, states and people that is generated, for a trial.
    options : sequence of str
        Beam's options, for example ``["--runner=multi-process"]``.
    """
    with TemporaryDirectory(prefix="das-bench-1940-") as folder:
        config, people = write_census(Path(folder), share)
        found = measured_run(load(config), Path(folder) / "out", options, "das bench 1940")
    units = sum(found["geounits"].values())
    each = {stage: 1000 * detail["cpu_seconds"] / units for stage, detail in found["details"].items()}
    return {
        "share": share,
        "people": people,
        "cpu_milliseconds_per_geounit": each,
        "disk_kb_per_geounit": 1e6 * (found["disk_gb"] + found["confidential_gb"]) / units,
    } | found


def write_census(folder: Path, share: float) -> tuple[Path, int]:
    """Write config, geography and counts into a folder; return the config's path and the number of people."""
    codes = _codes(share)
    pq.write_table(pa.table({"geocode": pa.array(codes)}), folder / "geography.parquet")
    attributes = "".join(
        f"\n[[schema.attribute]]\nname = {name!r}\nlabels = {list(labels)!r}\n{_recodes(name)}"
        for name, labels in ATTRIBUTES.items()
    )
    (folder / "config.toml").write_text(CONFIG + attributes)
    people, writer = 0, None
    for table, counted in _counts(codes, share):
        writer = writer or pq.ParquetWriter(folder / "counts.parquet", table.schema, compression="zstd")
        writer.write_table(table)
        people += counted
    if writer:
        writer.close()
    return folder / "config.toml", people


def _recodes(name: str) -> str:
    """The one recode: people of 21 years and more are grown."""
    if name != "age":
        return ""
    minors, grown = list(ATTRIBUTES["age"][:21]), list(ATTRIBUTES["age"][21:])
    return f"recodes = {{ grown = {{ minor = {minors!r}, grown = {grown!r} }} }}\n"


def _codes(share: float) -> list[str]:
    """Geocodes of the districts, spread over counties and those over states as evenly as numbers allow."""
    states, counties, districts = (max(1, round(share * n)) for n in (STATES, COUNTIES, DISTRICTS))
    county_of = np.arange(districts) * counties // districts
    state_of = county_of * states // counties
    return [
        f"1{state:02d}{county:04d}{district:06d}"
        for district, (county, state) in enumerate(zip(county_of.tolist(), state_of.tolist(), strict=True))
    ]


def _counts(codes: list[str], share: float) -> Iterator[tuple[pa.Table, int]]:
    """Counts of some districts at a time, and how many people they hold."""
    sizes = np.random.default_rng(SEED).gamma(3.0, size=len(codes))
    sizes = np.floor(sizes * (PEOPLE * min(1.0, share) / sizes.sum())).astype(np.int64)
    shape = tuple(map(len, ATTRIBUTES.values()))
    for first in range(0, len(codes), DISTRICTS_AT_ONCE):
        some = slice(first, min(first + DISTRICTS_AT_ONCE, len(codes)))
        generator = np.random.default_rng((SEED, first))
        unit = np.repeat(np.arange(some.stop - first), sizes[some])
        cell = np.searchsorted(_cumulative(int(codes[first][1:3])), generator.random(len(unit)), side="right")
        key, count = np.unique(unit * CELLS + cell, return_counts=True)
        where = pa.DictionaryArray.from_arrays(pa.array(key // CELLS, pa.int32()), pa.array(codes[some]))
        columns: dict[str, pa.Array] = {"geocode": where.cast(pa.string())}
        for (name, labels), at in zip(ATTRIBUTES.items(), np.unravel_index(key % CELLS, shape), strict=True):
            columns[name] = pa.DictionaryArray.from_arrays(pa.array(at, pa.int32()), pa.array(labels))
        yield pa.table(columns | {"count": pa.array(count)}), len(unit)


def _cumulative(state: int) -> NDArray[np.float64]:
    """The distribution of a state's people over cells, summed up: many children, races that vary by state."""
    generator = np.random.default_rng((SEED, 1_000_000 + state))
    age = np.exp(-np.arange(116) / 28.0)
    race = np.array([0.88, 0.10, 0.01, 0.005, 0.003, 0.002]) * generator.gamma(4.0, size=6)
    quarters = np.array([0.97, 0.01, 0.006, 0.005, 0.004, 0.002, 0.002, 0.001])
    parts = (quarters, np.array([0.5, 0.5]), age, np.array([0.985, 0.015]), race, np.array([0.93, 0.07]))
    cells = np.ones(1)
    for part in parts:
        cells = np.multiply.outer(cells, part / part.sum()).reshape(-1)
    total: NDArray[np.float64] = np.cumsum(cells)
    total /= total[-1]
    return total
