"""The files of a synthetic release: records in two formats, the statement and, where there is one, the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from das.errors import Problem, UsageError
from das.release.tables import csv_bytes
from das.storage.files import json_bytes, write_atomically
from das.storage.permissions import make_new

__all__ = ["STATEMENT", "new_folder", "require_new", "write_release"]

STATEMENT = "privacy.json"


def require_new(out: Path) -> None:
    """Refuse a folder that holds something."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(Problem(str(out), "is not an empty folder", "name a new folder with --out"))


@contextmanager
def new_folder(out: Path, *, private: bool) -> Iterator[None]:
    """Make the folder before anything is charged; if the block fails, an empty one is removed again."""
    make_new(out, private=private)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            out.rmdir()
        raise


def write_release(
    out: Path, table: pa.Table, stated: dict[str, Any], *, private: bool, more: dict[str, dict[str, Any]] | None = None
) -> None:
    """Write records and, last, the statement into a folder that is there; ``more`` are further JSON files by name."""
    mode = 0o600 if private else 0o644
    write_atomically(out / "synthetic.csv", csv_bytes(table), mode=mode)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    write_atomically(out / "synthetic.parquet", sink.getvalue().to_pybytes(), mode=mode)
    for name, content in (more or {}).items():
        write_atomically(out / name, json_bytes(content), mode=mode)
    write_atomically(out / STATEMENT, json_bytes(stated), mode=mode)
