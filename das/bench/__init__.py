"""The project's benchmarks, each against a peer in the same process and run; one module a benchmark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from das.errors import Problem, UsageError

__all__ = ["NAMES", "measure"]

NAMES = ("noise", "estimate", "state", "leaves", "congenial", "accuracy", "matched", "coverage", "synthesis", "1940")
"""Each is a module of this package with a function ``rows``; a name that is a number stands for ``census_`` and it."""
TAKERS = {
    "blocks": ("--blocks", ("state", "leaves")),
    "counts": ("--counts", ("accuracy", "matched", "coverage")),
    "share": ("--share", ("1940",)),
    "runs": ("--runs", ("accuracy", "matched")),
    "options": ("BEAM OPTIONS", ("state", "leaves", "1940")),
}
"""What a user may add, as it is typed, and the benchmarks that take it."""


def measure(
    name: str,
    *,
    blocks: int | None = None,
    counts: Path | None = None,
    share: float | None = None,
    runs: int | None = None,
    options: Sequence[str] = (),
    finished: Callable[[dict[str, Any]], None] | None = None,
) -> list[dict[str, Any]] | dict[str, Any]:
    """Run one benchmark; return what ``das bench NAME --json`` prints: rows; for ``state`` and ``1940`` one object.

    ``finished`` is told each row of a long benchmark as soon as it is there (`coverage`).
    """
    asked = {"blocks": blocks, "counts": counts, "share": share, "runs": runs, "options": tuple(options) or None}
    given: dict[str, Any] = {key: value for key, value in asked.items() if value is not None}
    for key in given:
        typed, takers = TAKERS[key]
        if name not in takers:
            remedy = f"use it with `das bench {'`, `'.join(takers)}`"
            raise UsageError(Problem(typed, f"means nothing to `das bench {name}`", remedy))
    if finished is not None and name == "coverage":
        given["finished"] = finished
    module = import_module(f"das.bench.census_{name}" if name.isdigit() else f"das.bench.{name}")
    found: list[dict[str, Any]] | dict[str, Any] = module.rows(**given)
    return found
