"""CSV files as text, in bounded memory: the header, the rows in batches, and the place where a file is damaged.

Nothing here infers types, and no message shows what a file holds: a file may be confidential.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv

from geography.problem_list import LISTED

__all__ = ["UNREADABLE", "Span", "UnevenRows", "batches_of", "fault_in", "header_of", "spans_of"]

UNREADABLE = (pa.ArrowException, OSError, EOFError, ValueError, OverflowError, zlib.error, csv.Error)
"""What reading a damaged file raises; a ``UnicodeDecodeError`` is a ``ValueError``."""

HEADER_BYTES = 1 << 20
"""How long the first line may be: all that is unpacked to learn the columns' names."""

BLOCK_BYTES = 16 << 20
"""How long a row may be, and what is held in memory at a time."""

NEW_LINE = b"\n"

_STEP = 1 << 16


@dataclass(slots=True)
class UnevenRows:
    """Rows with another number of fields than the header: the first of them, and how many there are.

    A damaged file may have as many as it has bytes, so only those that will be shown are kept.
    """

    count: int = 0
    first: list[tuple[int, int, int]] = field(default_factory=list)
    """Number of the row, its fields, and the header's."""
    before: int = 0
    """Rows before those that are read."""

    def note(self, row: pa_csv.InvalidRow) -> str:
        """Note a row, and tell Arrow to go on."""
        self.count += 1
        if len(self.first) < LISTED:
            self.first.append((self.before + (row.number or 0), row.actual_columns, row.expected_columns))
        return "skip"


def header_of(path: Path) -> tuple[str, ...]:
    """Return the fields of a CSV file's first line; raises one of `UNREADABLE` where it has none that can be read."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        start = file.read(HEADER_BYTES)
    is_whole = len(start) < HEADER_BYTES
    if not is_whole and b"\n" not in start and b"\r" not in start:
        raise ValueError("the first line does not end")
    text = codecs.getincrementaldecoder("utf-8-sig")().decode(start, final=is_whole)
    return tuple(next(csv.reader(io.StringIO(text, newline="")), ()))


@dataclass(frozen=True, slots=True)
class Span:
    """Whole rows of a CSV file: their bytes, and the number of the first; the header is row 1 and in no span."""

    start: int
    stop: int
    first_row: int


def spans_of(path: Path, length: int) -> list[Span]:
    """Cut a CSV file into spans of about that many bytes, at line ends; an empty list if it must be read as a whole.

    Whether a line end is the end of a row is certain only where nothing is quoted. So a file with a quote anywhere is
    not cut, nor one that is compressed, or whose lines end in other ways.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "a.csv"
    ...     _ = path.write_bytes(b"a,b\\n1,2\\n3,4\\n5,6")
    ...     [(span.start, span.stop, span.first_row) for span in spans_of(path, 5)]
    [(4, 12, 2), (12, 15, 4)]
    """
    if path.suffix == ".gz":
        return []
    spans: list[Span] = []
    with path.open("rb") as file:
        row, start = 2, len(file.readline(HEADER_BYTES))
        file.seek(0)
        if not _cuts_safely(file.read(start).removeprefix(codecs.BOM_UTF8)):
            return []
        while block := file.read(length):
            if not block.endswith(NEW_LINE):
                block += file.readline(BLOCK_BYTES)
            if not _cuts_safely(block) or not (block.endswith(NEW_LINE) or not file.read(1)):
                return []
            stop = start + len(block)
            spans.append(Span(start, stop, row))
            row, start = row + block.count(NEW_LINE), stop
            file.seek(start)
    return spans


def _cuts_safely(block: bytes) -> bool:
    plain = b'"' not in block and codecs.BOM_UTF8 not in block
    return plain and block.count(b"\r") == block.count(b"\r\n")


def batches_of(
    path: Path, columns: Sequence[str], uneven: UnevenRows, span: Span | None = None
) -> Iterator[pa.RecordBatch]:
    """Read columns as text, batch by batch; a row with another number of fields than the header goes to `uneven`.

    Raises one of `UNREADABLE`; `fault_in` then says where.
    """
    source, names = pa.input_stream(str(path), compression="detect") if span is None else _bytes_of(path, span), None
    if span is not None:
        names, uneven.before = list(header_of(path)), span.first_row - 1
    reader = pa_csv.open_csv(
        source,
        # One thread, because only then does Arrow know the number of a bad row. With this encoding text is decoded
        # before it is parsed; otherwise a bad row that is not UTF-8 ends in a traceback on standard error.
        read_options=pa_csv.ReadOptions(
            use_threads=False, block_size=BLOCK_BYTES, encoding="utf-8-sig", column_names=names
        ),
        parse_options=pa_csv.ParseOptions(ignore_empty_lines=False, invalid_row_handler=uneven.note),
        convert_options=pa_csv.ConvertOptions(
            include_columns=list(columns), column_types=dict.fromkeys(columns, pa.string()), strings_can_be_null=False
        ),
    )
    yield from reader


def _bytes_of(path: Path, span: Span) -> pa.BufferReader:
    with path.open("rb") as file:
        file.seek(span.start)
        return pa.BufferReader(file.read(span.stop - span.start))


def fault_in(path: Path, error: BaseException) -> str:
    """Say why a file cannot be read, and where: the byte at which it is damaged, or the row that is not text.

    Parameters
    ----------
    path : Path
    error : BaseException
        What reading it raised; its own words may quote the file, so only its kind is shown.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     damaged = Path(folder) / "a.csv.gz"
    ...     _ = damaged.write_bytes(gzip.compress(b"a,b")[:-8])
    ...     fault_in(damaged, EOFError())
    'its gzip data end too early, after byte 15'
    """
    if path.suffix == ".parquet":
        return f"{type(error).__name__}: truncated or damaged"
    row, length = 1, 0
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for piece in _unpacked(path) if path.suffix == ".gz" else _pieces(path):
            decoder.decode(piece)
            row += piece.count(b"\n")
            length = len(piece) - 1 - piece.rfind(b"\n") + (length if b"\n" not in piece else 0)
            if length > (HEADER_BYTES if row == 1 else BLOCK_BYTES):
                return f"row {row} does not end"
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as wrong:
        return f"row {row + wrong.object[: wrong.start].count(NEW_LINE)} is not UTF-8 text"
    except _DamageError as damage:
        return str(damage)
    except OSError as refused:
        return refused.strerror or type(refused).__name__
    return f"{type(error).__name__}: truncated or damaged"


class _DamageError(Exception):
    """Where compressed data are damaged."""


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_STEP):
            yield piece


def _unpacked(path: Path) -> Iterator[bytes]:
    """Unpack gzip data, a bounded piece at a time, one member after the other."""
    unpack, data, read = zlib.decompressobj(wbits=31), b"", 0
    with path.open("rb") as file:
        while True:
            if not data:
                data = file.read(_STEP)
                read += len(data)
            try:
                piece = unpack.decompress(data, _STEP)
            except zlib.error:
                raise _DamageError(f"its gzip data are damaged at or before byte {read:,}") from None
            if not data and not piece and not unpack.eof:
                raise _DamageError(f"its gzip data end too early, after byte {read:,}")
            yield piece
            data = unpack.unconsumed_tail
            if unpack.eof:
                data = unpack.unused_data or file.read(_STEP)
                read += 0 if unpack.unused_data else len(data)
                if not data:
                    return
                unpack = zlib.decompressobj(wbits=31)
