"""The files of a synthetic release: records in two formats, the statement and, where there is one, the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from das.release.tables import csv_bytes
from das.storage.files import json_bytes, write_atomically

__all__ = ["STATEMENT", "write_release"]

STATEMENT = "privacy.json"


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
