"""Find the runner that executes a plan. ``das`` imports none: a runner registers an entry point and is looked up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from das.errors import Problem, UsageError

if TYPE_CHECKING:
    from das.plan.plan import Plan

__all__ = ["STAGES", "Finding", "Progress", "Runner", "StageTime", "StepTime", "Stopwatch", "find_runner"]

STAGES = ("tabulate", "measure", "estimate", "publish", "report")
"""The stages of a release, in order; each begins where the one before it was made durable."""

Progress = Callable[[str, int, int], None]
"""Called with the stage, how many of its files are written, and how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Calls and seconds of one step of das, summed over all workers."""

    calls: int
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTime:
    """Seconds of a stage: in all, in the runner's pipeline, and there in each step of das."""

    stage: str
    seconds: float
    pipeline_seconds: float = 0.0
    steps: Mapping[str, StepTime] = field(default_factory=dict)


Stopwatch = Callable[[StageTime], None]
"""Called with the times of each stage, once it has ended."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a machine offers or lacks, and what follows from it."""

    name: str
    value: str
    means: str = ""


class Runner(Protocol):
    """Runs the stages of a plan up to a given one, continuing where an earlier run of the same plan stopped.

    A runner may also have a method ``findings``, which returns what it finds on this machine: ``das doctor`` shows it.
    """

    def run(
        self,
        plan: Plan,
        out: Path,
        *,
        upto: str = STAGES[-1],
        options: Sequence[str] = (),
        testing_key: str | None = None,
        unprotected: bool = False,
        progress: Progress | None = None,
        stopwatch: Stopwatch | None = None,
    ) -> None:
        """Run the plan into the folder ``out``; ``unprotected`` allows a testing key for confidential data."""


def find_runner(name: str = "beam") -> Runner:
    """Load the runner that is registered under the entry point group ``das.runner``."""
    for entry in entry_points(group="das.runner", name=name):
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        root.setLevel(logging.CRITICAL)  # Beam warns on import about clients that are not installed
        try:
            runner: Runner = entry.load()()
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
        return runner
    raise UsageError(Problem(f"runner {name!r}", "is not installed", "install the project with its pipelines package"))
