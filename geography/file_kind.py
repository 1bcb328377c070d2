"""What a file is, whatever its name says: spreadsheets, archives, and text with other separators than commas."""

from __future__ import annotations

import re
from pathlib import Path, PurePath

__all__ = ["ENDINGS", "SAVE_AS_UTF8", "other_kind", "other_separator", "remote_scheme"]

SAVE_AS_UTF8 = "save it as UTF-8; it may be Latin-1 or Windows-1252"
_SAVE_AS_CSV = "save its sheet as CSV (UTF-8, separated by commas)"

ENDINGS = (".csv", ".csv.gz", ".parquet")
_SPREADSHEETS = (".xlsx", ".xls", ".ods")
_BEGINNINGS = {
    b"PK\x03\x04": ("is a spreadsheet or another zip archive, whatever its name", _SAVE_AS_CSV),
    b"\xd0\xcf\x11\xe0": ("is a spreadsheet, whatever its name", _SAVE_AS_CSV),
    b"PAR1": ("is a Parquet file, whatever its name", "rename it to .parquet"),
    b"\x1f\x8b": ("is compressed by gzip, whatever its name", "rename it to .csv.gz"),
}
"""The first bytes of files that are given the name of a CSV file."""
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}


def other_kind(path: Path) -> tuple[str, str] | None:
    """Return what a file is that is not read here, and what to do; None for one that may be read.

    Examples
    --------
    >>> other_kind(Path("people.xlsx"))
    ('is a spreadsheet', 'save its sheet as CSV (UTF-8, separated by commas)')
    """
    if path.suffix.lower() in _SPREADSHEETS:
        return "is a spreadsheet", _SAVE_AS_CSV
    if not path.name.endswith(ENDINGS):
        return "is neither .csv, .csv.gz nor .parquet", "convert or rename it"
    if path.suffix != ".csv":
        return None
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError:
        return None  # said by whoever reads it
    return next((kind for begins, kind in _BEGINNINGS.items() if start.startswith(begins)), None)


def remote_scheme(path: str | PurePath) -> str | None:
    """Return the scheme of an address such as ``gs://bucket/out``, which is no path; None for a path of this machine.

    Examples
    --------
    >>> remote_scheme("s3://bucket/out"), remote_scheme(Path("gs://bucket/out")), remote_scheme("country/out")
    ('s3', 'gs', None)
    """
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", str(path))  # pathlib makes one slash of two
    return found[1].lower() if found else None


def other_separator(names: tuple[str, ...]) -> tuple[str, str] | None:
    """Return which other separator a header of one name shows, and what to do; the name itself may be a record.

    Examples
    --------
    >>> other_separator(("village;sex;age",))
    ('separates its columns by semicolons, not by commas', 'write it again with commas')
    """
    if len(names) != 1:
        return None
    found = next((word for mark, word in _SEPARATORS.items() if mark in names[0]), None)
    return (f"separates its columns by {found}, not by commas", "write it again with commas") if found else None
