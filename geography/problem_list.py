"""Collecting problems: where a row is, how many to list, and which name was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from geography.arrays import Indices
from geography.problem import Problem

LISTED = 20
"""Problems of one kind that are listed; the rest are counted."""

LONGEST_NAME = 200
MOST_NAMES = 5000
"""Names that are compared with a misspelt one."""

NAMES_SHOWN = 100

AS_TEXT = "write and read the geocode column as text, so that leading zeros survive"


class SizedIterable(Sized, Iterable[int], Protocol):
    """A collection with a length and an iterator: a list or an array of positions."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where rows come from, so that a problem can name file and row.

    Parameters
    ----------
    name : str
        The file.
    first_row : int
        The number of the first data row: 2 in a CSV file, whose header is row 1; 1 in a Parquet file.
    rows : Indices or None
        The row of each value, where the values are not simply the rows in order.

    Examples
    --------
    >>> Source("geo.csv", first_row=2).row(0)
    'geo.csv, row 2'
    """

    name: str
    first_row: int = 1
    rows: Indices | None = None

    @classmethod
    def of(cls, path: str | Path) -> Source:
        """Return the source that counts rows as the kind of file does."""
        return cls(str(path), first_row=1 if Path(path).suffix == ".parquet" else 2)

    def number(self, position: int) -> int:
        """Return the row number of the value at a position."""
        return int(position) + self.first_row if self.rows is None else int(self.rows[position])

    def row(self, position: int) -> str:
        """Return file and row of the value at a position."""
        return f"{self.name}, row {self.number(position)}"


def listed(positions: SizedIterable, describe: Callable[[int], Problem], source: Source) -> list[Problem]:
    """Describe the first problems of one kind and count the others.

    Examples
    --------
    >>> found = listed(range(50), lambda i: Problem(f"row {i}", "is blank"), Source("geo.csv"))
    >>> len(found), str(found[-1])
    (21, 'geo.csv: and 30 more of this kind')
    """
    found = [describe(int(position)) for position, _ in zip(positions, range(LISTED), strict=False)]
    if len(positions) > LISTED:
        found.append(Problem(source.name, f"and {len(positions) - LISTED} more of this kind"))
    return found


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the remedy for an unknown name: the known one it resembles, or all of them.

    Examples
    --------
    >>> nearest("contry", ["state", "county"])
    "did you mean 'county'?"
    >>> nearest("x", ["state", "county"])
    "known: 'state', 'county'"
    """
    names = list(known)
    # Comparing takes the product of two lengths; what is longer than this was not misspelt.
    alike = [each for each in names[:MOST_NAMES] if len(each) <= LONGEST_NAME] if len(name) <= LONGEST_NAME else []
    close = difflib.get_close_matches(name, alike, n=1)
    return f"did you mean {close[0]!r}?" if close else all_of(names)


def all_of(names: Sequence[str]) -> str:
    """Return the remedy that names what there is.

    Examples
    --------
    >>> all_of(["f", "m"])
    "known: 'f', 'm'"
    """
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    return "known: " + ", ".join(repr(each) for each in names[:NAMES_SHOWN]) + more
