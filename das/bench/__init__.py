"""The project's benchmarks, each against a peer in the same process and run; one module a benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from das.errors import Problem, UsageError

__all__ = ["NAMES", "measure"]

NAMES = ("noise", "estimate", "state", "congenial", "accuracy", "coverage", "synthesis", "1940")
"""Each is a module of this package with a function ``rows``; a name that is a number stands for ``census_`` and it."""


def measure(
    name: str,
    *,
    blocks: int | None = None,
    counts: Path | None = None,
    share: float | None = None,
    options: Sequence[str] = (),
) -> list[dict[str, Any]] | dict[str, Any]:
    """Run one benchmark; return what ``das bench NAME --json`` prints: rows; for ``state`` and ``1940`` one object."""
    if counts is not None and name != "accuracy":
        remedy = "use it with `das bench accuracy`"
        raise UsageError(Problem("--counts", f"means nothing to `das bench {name}`", remedy))
    if share is not None and name != "1940":
        raise UsageError(Problem("--share", f"means nothing to `das bench {name}`", "use it with `das bench 1940`"))
    rows = import_module(f"das.bench.census_{name}" if name.isdigit() else f"das.bench.{name}").rows
    if name == "1940" and blocks is None:
        whole: dict[str, Any] = rows(share=1.0 if share is None else share, options=options)
        return whole
    if name == "state":
        found: dict[str, Any] = rows(options=options) if blocks is None else rows(blocks=blocks, options=options)
        return found
    for given, option in ((blocks is not None, "--blocks"), (bool(options), "BEAM OPTIONS")):
        if given:
            raise UsageError(Problem(option, f"means nothing to `das bench {name}`", "use it with `das bench state`"))
    listed: list[dict[str, Any]] = rows() if counts is None else rows(counts=counts)
    return listed
