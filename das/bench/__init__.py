"""The project's benchmarks, each against a peer in the same process and run; one module a benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from das.errors import Problem, UsageError

__all__ = ["NAMES", "measure"]

NAMES = ("noise", "estimate", "state", "congenial", "accuracy", "coverage", "synthesis")
"""Each is a module of this package with a function ``rows``."""


def measure(
    name: str,
    *,
    blocks: int | None = None,
    counts: Path | None = None,
    runs: int | None = None,
    options: Sequence[str] = (),
) -> list[dict[str, Any]] | dict[str, Any]:
    """Run one benchmark and return its rows (for ``state`` one object): what ``das bench NAME --json`` prints."""
    of_accuracy = {key: value for key, value in (("counts", counts), ("runs", runs)) if value is not None}
    if of_accuracy and name != "accuracy":
        remedy = "use it with `das bench accuracy`"
        raise UsageError(Problem(f"--{next(iter(of_accuracy))}", f"means nothing to `das bench {name}`", remedy))
    rows = import_module(f"das.bench.{name}").rows
    if name == "state":
        found: dict[str, Any] = rows(options=options) if blocks is None else rows(blocks=blocks, options=options)
        return found
    for given, option in ((blocks is not None, "--blocks"), (bool(options), "BEAM OPTIONS")):
        if given:
            raise UsageError(Problem(option, f"means nothing to `das bench {name}`", "use it with `das bench state`"))
    listed: list[dict[str, Any]] = rows(**of_accuracy)
    return listed
