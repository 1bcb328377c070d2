"""The manifest: what a release folder holds, from what it was made, and by which versions; written last."""

from __future__ import annotations

import json
from importlib.metadata import version

import pyarrow.parquet as pq

from das.errors import Problem
from das.storage.files import sha256_file
from das.storage.layout import ReleaseFolder

__all__ = ["VERSIONED", "files_of", "verify_release"]

VERSIONED = ("das", "apache-beam", "cryptography", "cvxpy", "numpy", "ortools", "pandas", "piqp", "pyarrow", "scipy")


def files_of(release: ReleaseFolder) -> dict[str, dict[str, str | int]]:
    """List every file of the release but the manifest itself, by relative name: bytes, sha256, and rows of tables."""
    out: dict[str, dict[str, str | int]] = {}
    for path in sorted(release.path.rglob("*")):
        relative = path.relative_to(release.path)
        if path.is_file() and path != release.manifest and not any(part.startswith(".") for part in relative.parts):
            entry: dict[str, str | int] = {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
            if path.suffix == ".parquet":
                entry["rows"] = pq.read_metadata(path).num_rows
            out[relative.as_posix()] = entry
    return out


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
