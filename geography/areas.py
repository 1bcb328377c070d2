"""Areas off the spine: places, districts, anything made of leaves, as a sparse membership."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from geography.arrays import Codes, Indices, frozen
from geography.lost_zeros import lost_here, lost_there, zeros_problems
from geography.problem import Problem, ProblemsFound
from geography.problem_list import Source, listed, nearest
from geography.reading import read_text_columns
from geography.spine import Spine
from geography.summation import sum_members


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Areas:
    """Which leaves of a spine each area consists of; areas may overlap and need not cover.

    Parameters
    ----------
    codes : Codes
        Sorted and unique.
    names : Codes
        One per area, blank where there is none.
    membership : scipy.sparse.csr_array
        Areas x leaves, 0 or 1.

    Examples
    --------
    >>> areas = Areas(np.array(["P1", "P2"]), np.array(["", ""]), sparse.csr_array(np.array([[1, 1, 0], [0, 1, 1]])))
    >>> areas
    Areas(2 areas of 3 leaves)
    >>> areas.tabulate(np.array([10, 20, 30])).tolist()
    [30, 50]
    >>> areas.members("P2").tolist()
    [1, 2]
    """

    codes: Codes
    names: Codes
    membership: Any

    def __post_init__(self) -> None:
        membership = sparse.csr_array(self.membership, dtype=np.int8, copy=True)
        membership.sum_duplicates()
        if not (len(self.codes) == len(self.names) == membership.shape[0]) or (membership.data != 1).any():
            raise ValueError("areas need a code, a name and a row of zeros and ones each")
        if not (self.codes[1:] > self.codes[:-1]).all():
            raise ValueError("area codes must be sorted and unique")
        for array in (membership.data, membership.indices, membership.indptr):
            array.flags.writeable = False
        object.__setattr__(self, "codes", frozen(self.codes))
        object.__setattr__(self, "names", frozen(self.names))
        object.__setattr__(self, "membership", membership)

    def tabulate(self, values: Any) -> Any:
        """Sum leaf values (leading axis leaves; dense, or scipy sparse leaves x cells) over each area."""
        return sum_members(self.membership, values)

    def members(self, code: str) -> Indices:
        """Return the positions of an area's leaves."""
        row = int(np.searchsorted(self.codes, code))
        if row == len(self.codes) or self.codes[row] != code:
            remedy = nearest(code, self.codes.tolist()) if len(self.codes) else ""
            raise ProblemsFound(
                Problem(f"area {code!r}", "is unknown", remedy if "mean" in remedy else "see areas.codes")
            )
        start, end = self.membership.indptr[row : row + 2]
        return np.sort(self.membership.indices[start:end]).astype(np.int64)

    def __repr__(self) -> str:
        return f"Areas({self.membership.shape[0]} areas of {self.membership.shape[1]} leaves)"


def read_areas(
    path: str | Path, spine: Spine, *, area: str = "area", geocode: str = "geocode", name: str | None = None
) -> Areas:
    """Read the membership of leaves in areas: one row per leaf and area.

    Parameters
    ----------
    path : str or Path
        CSV, gzipped CSV or Parquet.
    spine : Spine
    area, geocode : str
        The columns with the area's code and the leaf's geocode. A row with a blank area says that the leaf is in none.
    name : str, optional
        The column with the area's name.

    Raises
    ------
    ProblemsFound
        A geocode is not a leaf of the spine, a row is repeated, or an area has two names.

    Examples
    --------
    >>> import tempfile
    >>> spine = Spine.from_paths(["county"], [np.array(["01001", "01003"])])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "places.csv"
    ...     _ = path.write_text("area,geocode\\nP1,01003\\n,01001\\n")
    ...     read_areas(path, spine).tabulate(np.array([5, 7])).tolist()
    [7]
    """
    source = Source.of(path)
    columns = read_text_columns(path, [area, geocode] if name is None else [area, geocode, name])
    codes, leaves = columns[area], columns[geocode]
    names = np.zeros(len(codes), dtype="<U1") if name is None else columns[name]
    leaf = spine.locate(spine.levels[-1], leaves)
    rows = np.flatnonzero(codes != "")
    if not len(rows):
        raise ProblemsFound(Problem(source.name, f"column {area!r} is blank in every row", "give the areas' codes"))
    known, first, unit = np.unique(codes[rows], return_index=True, return_inverse=True)

    def no_leaf(i: int) -> Problem:
        return Problem(
            source.row(i), f"geocode {str(leaves[i])!r} is not a leaf of the spine", "correct it, or its spine"
        )

    def two_names(i: int) -> Problem:
        earlier = source.number(int(rows[first[unit[np.searchsorted(rows, i)]]]))
        return Problem(source.row(i), f"area {str(codes[i])!r} has another name in row {earlier}", "give it one name")

    pair = np.where(leaf[rows] >= 0, unit * len(spine.leaves) + leaf[rows], -1 - np.arange(len(rows)))
    _, pair_first, pair_of = np.unique(pair, return_index=True, return_inverse=True)
    original = pair_first[pair_of]

    def repeated(k: int) -> Problem:
        i, earlier = int(rows[k]), source.number(int(rows[original[k]]))
        reason = f"area {str(codes[i])!r} already has leaf {str(leaves[i])!r} in row {earlier}"
        return Problem(source.row(i), reason, "keep one of the two rows")

    here, there = lost_here(leaves, spine, spine.levels[-1]), lost_there(leaves, spine, spine.levels[-1])
    problems = [
        *zeros_problems(here, there, source),
        *listed(np.flatnonzero((leaf < 0) & ~here & ~there), no_leaf, source),
        *listed(np.flatnonzero(original != np.arange(len(rows))), repeated, source),
        *listed(rows[names[rows] != names[rows][first][unit]], two_names, source),
    ]
    if problems:
        raise ProblemsFound(problems)
    ones = np.ones(len(rows), dtype=np.int8)
    membership = sparse.csr_array((ones, (unit, leaf[rows])), shape=(len(known), len(spine.leaves)))
    return Areas(known, names[rows][first], membership)
