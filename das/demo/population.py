"""What a generated population is: people per block and cell, facilities, areas; and how it is written to files."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from das.errors import Problem, UsageError

__all__ = ["CELLS", "CENRACE", "HHGQ", "HISPANIC", "RACES", "VOTINGAGE", "Area", "Population"]

HHGQ = (
    "household",
    "correctional",
    "juvenile",
    "nursing",
    "other-institutional",
    "college",
    "military",
    "other-noninstitutional",
)
VOTINGAGE = ("0-17", "18+")
HISPANIC = ("no", "yes")
RACES = ("white", "black", "aian", "asian", "nhopi", "sor")
CENRACE = tuple("-".join(races) for size in range(1, len(RACES) + 1) for races in combinations(RACES, size))

AXES = {"hhgq": HHGQ, "votingage": VOTINGAGE, "hispanic": HISPANIC, "cenrace": CENRACE}
SHAPE = tuple(len(labels) for labels in AXES.values())
CELLS = len(HHGQ) * len(VOTINGAGE) * len(HISPANIC) * len(CENRACE)
ROWS_AT_ONCE = 1 << 20
SHUFFLE = 1790  # seed of the order of the rows, which has no meaning


@dataclass(frozen=True, slots=True, eq=False)
class Area:
    """An area off the spine: a code, a name and the positions of its leaves."""

    code: str
    name: str
    leaves: NDArray[np.int64]

    def __post_init__(self) -> None:
        self.leaves.flags.writeable = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Population:
    """People, facilities and areas over the sorted leaves of a spine.

    Parameters
    ----------
    geocodes : ndarray of str
        Every leaf, the empty ones too, in ascending order.
    leaf, cell, count : ndarray of int
        The histogram where it is not zero: ``count`` people in ``cell`` (row-major over hhgq, votingage, hispanic,
        cenrace) of leaf number ``leaf``; sorted by leaf and cell, each pair once.
    facilities : ndarray of int
        Leaves by the eight labels of hhgq; the column of households is zero, a household is not a facility.
    places, districts : tuple of Area
        Areas off the spine. Districts cover each leaf once, places leave some out.

    Examples
    --------
    >>> from das.demo import generate
    >>> town = generate(blocks=40, people=500)
    >>> len(town.geocodes), town.people, str(town.geocodes[0])
    (40, 500, '030010101001000')
    """

    geocodes: NDArray[np.str_]
    leaf: NDArray[np.int64]
    cell: NDArray[np.int64]
    count: NDArray[np.int64]
    facilities: NDArray[np.int64]
    places: tuple[Area, ...]
    districts: tuple[Area, ...]

    def __post_init__(self) -> None:
        if not bool((self.geocodes[1:] > self.geocodes[:-1]).all()):
            raise ValueError("geocodes must ascend, each of them once")
        if not len(self.leaf) == len(self.cell) == len(self.count) or bool((self.count < 1).any()):
            raise ValueError("leaf, cell and count must be equally long, and each count positive")
        if not bool((np.diff(self.leaf * CELLS + self.cell) > 0).all()):
            raise ValueError("leaf and cell must be sorted, each pair once")
        if self.facilities.shape != (len(self.geocodes), len(HHGQ)):
            raise ValueError("facilities must have a row per leaf and a column per label of hhgq")
        for array in (self.geocodes, self.leaf, self.cell, self.count, self.facilities):
            array.flags.writeable = False

    @property
    def people(self) -> int:
        """How many people there are."""
        return int(self.count.sum())

    def write(self, folder: str | Path, microdata: Literal["parquet", "csv"] = "parquet") -> None:
        """Write the files that a release of this population reads; the same population gives the same bytes.

        ``persons.parquet`` or ``persons.csv`` has a row per person, shuffled so that the order says nothing;
        ``geography.csv`` every leaf; ``facilities.csv`` the leaves with group quarters; ``places.csv`` and
        ``districts.csv`` a row per area and leaf. Missing folders are made, files of these names replaced.

        Examples
        --------
        >>> import tempfile
        >>> from das.demo import generate
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     generate(blocks=40, people=500).write(folder, "csv")
        ...     sorted(path.name for path in Path(folder).iterdir())
        ['districts.csv', 'facilities.csv', 'geography.csv', 'persons.csv', 'places.csv']
        """
        if microdata not in ("parquet", "csv"):
            raise UsageError(Problem("microdata", f"{microdata!r} is not a format", "say 'parquet' or 'csv'"))
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"persons.{microdata}"
        (self._write_parquet if microdata == "parquet" else self._write_csv)(path)
        _write_rows(folder / "geography.csv", ["GEOID"], ([code] for code in self.geocodes))
        quarters = np.flatnonzero(self.facilities.any(axis=1))
        _write_rows(
            folder / "facilities.csv",
            ["GEOID", *HHGQ[1:]],
            ([self.geocodes[leaf], *self.facilities[leaf, 1:]] for leaf in quarters),
        )
        for name, areas in (("places", self.places), ("districts", self.districts)):
            rows = ([area.code, code, area.name] for area in areas for code in self.geocodes[area.leaves])
            _write_rows(folder / f"{name}.csv", ["area", "geocode", "name"], rows)

    def _persons(self) -> Iterator[pa.RecordBatch]:
        """People in shuffled order, in batches that bound the memory taken."""
        order = np.repeat(np.arange(len(self.count)), self.count)
        np.random.Generator(np.random.PCG64(SHUFFLE)).shuffle(order)
        geocodes = pa.array(self.geocodes.tolist(), pa.string())
        labels = [pa.array(axis, pa.string()) for axis in AXES.values()]
        for start in range(0, max(1, len(order)), ROWS_AT_ONCE):
            rows = order[start : start + ROWS_AT_ONCE]
            codes = np.unravel_index(self.cell[rows], SHAPE)
            columns = [axis.take(pa.array(code)) for axis, code in zip(labels, codes, strict=True)]
            yield pa.record_batch([geocodes.take(pa.array(self.leaf[rows])), *columns], names=["GEOID", *AXES])

    def _write_parquet(self, path: Path) -> None:
        schema = pa.schema([(name, pa.string()) for name in ("GEOID", *AXES)])
        with pa.parquet.ParquetWriter(path, schema) as writer:
            for batch in self._persons():
                writer.write_batch(batch)

    def _write_csv(self, path: Path) -> None:
        # The header is written apart because arrow would quote it.
        plain = pa.csv.WriteOptions(include_header=False, quoting_style="none")
        with path.open("wb") as file:
            file.write((",".join(("GEOID", *AXES)) + "\n").encode())
            for batch in self._persons():
                pa.csv.write_csv(batch, file, plain)


def _write_rows(path: Path, header: Sequence[str], rows: Iterator[list[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
