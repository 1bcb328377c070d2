"""The manifest: what a release folder holds, from what it was made, and by which versions; written last."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version

import pyarrow as pa
import pyarrow.parquet as pq

from das.errors import Problem
from das.storage.files import sha256_file
from das.storage.layout import ReleaseFolder

__all__ = ["VERSIONED", "Entry", "entry_of", "files_of", "names_of", "verify_release", "versions"]

VERSIONED = ("das", "apache-beam", "cryptography", "cvxpy", "numpy", "ortools", "pandas", "piqp", "pyarrow", "scipy")


Entry = dict[str, str | int]
"""What the manifest says of a file: bytes, sha256, and rows of tables."""


def files_of(release: ReleaseFolder, known: Mapping[str, Entry] | None = None) -> dict[str, Entry]:
    """List every file of the release but the manifest itself, by relative name; files that are known are not read."""
    return {name: (known or {}).get(name) or entry_of(release, name) for name in names_of(release)}


def names_of(release: ReleaseFolder) -> list[str]:
    """Relative names of every file of the release but the manifest itself, in order."""
    names = []
    for path in sorted(release.path.rglob("*")):
        relative = path.relative_to(release.path)
        if path.is_file() and path != release.manifest and not any(part.startswith(".") for part in relative.parts):
            names.append(relative.as_posix())
    return names


def entry_of(release: ReleaseFolder, name: str) -> Entry:
    """Hash a file of the release."""
    path = release.path / name
    entry: Entry = {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
    if path.suffix == ".parquet":
        with suppress(pa.ArrowException):  # a damaged file has another hash
            entry["rows"] = pq.read_metadata(path).num_rows
    return entry


def versions() -> dict[str, str]:
    """Give the versions of what decides the bytes."""
    return {name: version(name) for name in VERSIONED}


def verify_release(release: ReleaseFolder) -> list[Problem]:
    """Compare every file with the manifest."""
    if not release.manifest.exists():
        return [Problem(str(release.manifest), "is missing: the release is not complete", "run the same command again")]
    recorded = json.loads(release.manifest.read_bytes())["outputs"]
    found = files_of(release)
    problems = []
    for name in sorted(recorded.keys() | found.keys()):
        if name not in found:
            problems.append(Problem(name, "is missing", "restore it from a copy"))
        elif name not in recorded:
            problems.append(Problem(name, "is not in the manifest", "move it away"))
        elif found[name]["sha256"] != recorded[name]["sha256"]:
            problems.append(Problem(name, "has changed since the release", "restore it from a copy"))
    return problems
