"""Output formats as one table: how rows are written to a file, piece by piece; a new format is an entry here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from das.plan.settings import OutputSettings
from das.release.tables import csv_bytes, in_form

__all__ = ["FORMATS", "Format", "Style", "TableWriter", "formats_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """What a product asks of a text format."""

    delimiter: str = ","
    comment: str = ""
    geoid: str = "plain"


class TableWriter(Protocol):
    """Writes a table that comes in pieces, each with the same columns."""

    def write(self, piece: pa.Table) -> None:
        """Write the next rows."""

    def close(self) -> None:
        """Write what ends the file; the file itself is closed by whoever opened it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One output format."""

    ending: str
    open: Callable[[BinaryIO, Style], TableWriter]
    is_wanted: Callable[[OutputSettings], bool]


def formats_of(settings: OutputSettings) -> Sequence[Format]:
    """Return the formats in which a release writes its tables and records."""
    return [entry for entry in FORMATS.values() if entry.is_wanted(settings)]


class _Parquet:
    def __init__(self, file: BinaryIO, _style: Style) -> None:
        self._file = file
        self._writer: pq.ParquetWriter | None = None

    def write(self, piece: pa.Table) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._file, piece.schema, compression="zstd", write_statistics=False)
        self._writer.write_table(piece, row_group_size=max(1, piece.num_rows))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class _Csv:
    def __init__(self, file: BinaryIO, style: Style) -> None:
        self._file, self._style, self._is_first = file, style, True

    def write(self, piece: pa.Table) -> None:
        comment = self._style.comment if self._is_first else ""
        style = self._style
        text = csv_bytes(
            in_form(piece, style.geoid),
            delimiter=style.delimiter,
            comment=comment,
            header=self._is_first,
            quoted=style.geoid == "quoted",
        )
        self._file.write(text)
        self._is_first = False

    def close(self) -> None:
        pass


FORMATS: dict[str, Format] = {
    "parquet": Format(ending="parquet", open=_Parquet, is_wanted=lambda settings: True),
    "csv": Format(ending="csv", open=_Csv, is_wanted=lambda settings: settings.csv),
}
"""Formats by name."""
