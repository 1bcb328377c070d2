"""The manifest: what a release folder holds, from what it was made, and by which versions; written last."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import pyarrow.parquet as pq

from das.errors import Problem
from das.release.durable import sha256_file
from das.release.layout import ReleaseFolder

__all__ = ["VERSIONED", "commitment", "files_of", "json_bytes", "verify_release"]

VERSIONED = ("das", "apache-beam", "cryptography", "cvxpy", "numpy", "ortools", "pandas", "piqp", "pyarrow", "scipy")


def commitment(sha256: str, salt: bytes) -> str:
    """HMAC-SHA256 of a confidential file's hash under a secret salt.

    A plain hash of the input would be an exact function of the data: whoever knows all records but one could try each
    value of the last against it, and no noise would help. The salt stays in the confidential folder, where an auditor
    can check the commitment.
    """
    return hmac.new(salt, bytes.fromhex(sha256), hashlib.sha256).hexdigest()


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


def json_bytes(content: Mapping[str, Any]) -> bytes:
    """Write plain data as readable JSON, the same bytes for the same content.

    Examples
    --------
    >>> json_bytes({"a": 1})
    b'{\\n  "a": 1\\n}\\n'
    """
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


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
