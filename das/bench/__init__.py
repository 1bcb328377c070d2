"""The project's benchmarks, each against a peer in the same process and run; one module a benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from das.errors import Problem, UsageError

__all__ = ["NAMES", "measure"]

NAMES = ("noise", "estimate", "state", "leaves", "congenial", "accuracy", "matched", "coverage", "synthesis")
"""Each is a module of this package with a function ``rows``."""
ON_REAL_COUNTS = ("accuracy", "matched", "coverage")
"""Those that take block counts of a real state."""


def measure(
    name: str, *, blocks: int | None = None, counts: Path | None = None, options: Sequence[str] = ()
) -> list[dict[str, Any]] | dict[str, Any]:
    """Run one benchmark and return its rows (for ``state`` one object): what ``das bench NAME --json`` prints."""
    if counts is not None and name not in ON_REAL_COUNTS:
        remedy = f"use it with `das bench {'`, `'.join(ON_REAL_COUNTS)}`"
        raise UsageError(Problem("--counts", f"means nothing to `das bench {name}`", remedy))
    rows = import_module(f"das.bench.{name}").rows
    if name in ("state", "leaves"):
        found: list[dict[str, Any]] | dict[str, Any]
        found = rows(options=options) if blocks is None else rows(blocks=blocks, options=options)
        return found
    for given, option in ((blocks is not None, "--blocks"), (bool(options), "BEAM OPTIONS")):
        if given:
            remedy = "use it with `das bench state` or `das bench leaves`"
            raise UsageError(Problem(option, f"means nothing to `das bench {name}`", remedy))
    listed: list[dict[str, Any]] = rows() if counts is None else rows(counts=counts)
    return listed
