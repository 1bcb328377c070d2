"""What a release holds, and how to read it: tables, records, measurements and estimates, by file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from das.errors import Problem, UsageError
from das.storage.layout import ReleaseFolder

__all__ = ["Contents", "PublishedFile", "contents_of", "published_files"]

WHAT = {
    "tables": "counts keyed by GEOID, one file a place and query",
    "tables/areas": "which leaves each area consists of",
    "microdata": "protected records, one row each",
    "measurements": "noisy answers as they were drawn, with their variances",
    "estimates": "best linear unbiased estimates, with standard deviations",
    "counts": "protected counts, sparse: cells not listed are zero",
    "facts": "what is public: the spine, invariants, bounds",
}
"""The folders of a release, as a reader wants them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFile:
    """One file, or one folder of shards that reads as a file; its rows are those of the manifest."""

    folder: str
    name: str
    rows: int
    columns: tuple[str, ...]
    is_folder: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """A release as a list of what can be read."""

    path: Path
    name: str
    finished: str | None
    files: tuple[PublishedFile, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain data: ``das open --json``."""
        files = [asdict(file) | {"columns": list(file.columns)} for file in self.files]
        for file in files:
            del file["is_folder"]
        return {"release": self.name, "path": str(self.path), "finished": self.finished, "files": files}

    def text(self) -> str:
        """For people: what there is, and one way to read it in each of four tools."""
        when = f", finished {self.finished[:10]}" if self.finished else ""
        lines = [
            f"{self.name}{when}",
            f"statement    {self.path / 'privacy.html'} (for machines: privacy.json)",
            f"codebook     {self.path / 'datapackage.json'}: what each column means",
            "",
        ]
        for folder, what in WHAT.items():
            files = [file for file in self.files if file.folder == folder]
            if files:
                lines.append(f"{folder + '/':<14}{what}")
                width = max(len(file.name) for file in files) + 2
                lines += [f"  {file.name:<{width}}{file.rows:>12,} rows  {_columns(file.columns)}" for file in files]
        return "\n".join([*lines, "", *self._reading()])

    def _reading(self) -> list[str]:
        lines: list[str] = []
        tables = [file.name for file in self.files if file.folder == "tables"]
        if tables:
            path = self.path / "tables" / tables[0]
            text = path.with_suffix(".csv")
            lines += ["Read a table (GEOID is text: its leading zeros matter)", f'  pandas   pd.read_parquet("{path}")']
            if text.exists():
                lines.append(f'           pd.read_csv("{text}", dtype={{"GEOID": str}})')
            lines.append(f'  R        arrow::read_parquet("{path}")')
            if text.exists():
                lines.append(f'           readr::read_csv("{text}", col_types = readr::cols(GEOID = "c"))')
            lines.append(f"  DuckDB   SELECT * FROM '{path}'")
            lines.append(f'  Python   das.open("{self.path.parent}").table("PLACE", "QUERY")')
        if any(file.folder == "microdata" for file in self.files):
            text = self.path / "microdata" / "records.csv"
            lines += ["Read the records", f'  pandas   pd.read_parquet("{text.with_suffix(".parquet")}")']
            if text.exists():
                lines.append(f'           pd.read_csv("{text}", sep="|", skiprows=1, dtype=str)')
                as_text = 'col_types = readr::cols(.default = "c")'
                lines.append(f'  R        readr::read_delim("{text}", delim = "|", skip = 1, {as_text})')
        return [*lines, "All files as views of DuckDB", f"  cd {self.path} && duckdb -init duckdb.sql"]


def _columns(columns: tuple[str, ...], listed: int = 4) -> str:
    more = f", ... ({len(columns)} columns)" if len(columns) > listed else ""
    return ", ".join(columns[:listed]) + more


def published_files(release: ReleaseFolder) -> tuple[PublishedFile, ...]:
    """List the Parquet files of a release; of each, or of the first of its shards, the footer is read."""
    listed = json.loads(release.manifest.read_bytes())["outputs"] if release.manifest.exists() else {}
    rows: dict[str, int] = {}
    for name, entry in listed.items():
        above, _, _ = name.rpartition("/")
        whole = above if above.endswith(".parquet") else name
        rows[whole] = rows.get(whole, 0) + int(entry.get("rows", 0))
    found = []
    for folder in WHAT:
        for path in sorted((release.path / folder).glob("*.parquet")):
            first = min(path.glob("*.parquet"), default=None) if path.is_dir() else path
            columns = tuple(pq.read_schema(first).names) if first else ()
            found.append(
                PublishedFile(
                    folder=folder,
                    name=path.name,
                    rows=rows.get(f"{folder}/{path.name}", 0),
                    columns=columns,
                    is_folder=path.is_dir(),
                )
            )
    return tuple(found)


def contents_of(release: ReleaseFolder) -> Contents:
    """List the files of a finished release; only footers of Parquet files are read.

    Raises
    ------
    UsageError
        The folder holds no finished release.
    """
    if not release.manifest.exists():
        reason, remedy = "holds no finished release", "name the folder that `das run --out` was given"
        raise UsageError(Problem(str(release.path.parent), reason, remedy))
    manifest = json.loads(release.manifest.read_bytes())
    name = json.loads(release.statement.read_bytes()).get("release", release.path.parent.name)
    return Contents(path=release.path, name=name, finished=manifest.get("finished"), files=published_files(release))
