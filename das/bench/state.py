"""A generated state end to end: the time and memory of each stage and step, and the runner's share of the time.

The runner is found, never imported; it reports the time of its pipeline and that of our own steps in it. Its share is
the difference: building and optimising the pipeline, encoding, grouping and copying elements, calling the steps. With
several workers, the time they wait for one another counts as the runner's, too.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from das.bench.disk import bytes_below, bytes_by_kind
from das.bench.process_tree import ProcessTree
from das.demo.starter import write_demo
from das.plan.geography import areas_of
from das.plan.load import load
from das.plan.plan import Plan, numbers_per_unit
from das.runner import StageTime, find_runner
from das.storage.layout import Layout
from das.storage.shards import families
from geography import Spine

__all__ = ["measured_run", "rows"]

BLOCKS = 25_000
PEOPLE_PER_BLOCK = 40
GB = 1e9


def rows(*, blocks: int = BLOCKS, options: Sequence[str] = ()) -> dict[str, Any]:
    """Run the state and return one object: what ``das bench state --json`` prints.

    The redistricting schema and budget, full information, integer counts, all invariants and bounds. Seconds are wall
    time, those of the stages add up to the whole; ``cpu_seconds`` are those of this process, of the one behind the wall
    and of all workers, which other work on the machine disturbs less. A peak is the resident memory of the one process
    that has most.

    Parameters
    ----------
    blocks : int
        Size of the state; forty people a block.
    options : sequence of str
        Beam's options, for example ``["--runner=multi-process"]``.
    """
    with TemporaryDirectory(prefix="das-bench-state-") as folder:
        out = Path(folder) / "out"
        people = PEOPLE_PER_BLOCK * blocks
        plan = load(write_demo(out, blocks=blocks, people=people))
        return {"blocks": blocks, "people": people} | measured_run(plan, out, options, "das bench state")


def measured_run(plan: Plan, out: Path, options: Sequence[str], testing_key: str) -> dict[str, Any]:
    """Run a plan and return what it cost: time, memory and disk, by stage and step."""
    load_before = os.getloadavg()[0]
    workers = _workers(options)
    with ProcessTree(followed=workers > 1) as tree:  # workers end with each stage; a thread forbids to fork
        recorder = _StageRecorder(workers, tree)
        find_runner().run(plan, out, options=options, testing_key=testing_key, stopwatch=recorder.ended)
    release = Layout(out).release
    spine = Spine.load(release.facts / "spine.parquet")
    seconds = sum(stage["seconds"] for stage in recorder.stages.values())
    return {
        "seconds": seconds,
        "peak_gb": max(stage["peak_gb"] for stage in recorder.stages.values()),
        "beam_share": sum(stage["beam_seconds"] for stage in recorder.stages.values()) / seconds,
        "cells": plan.schema.size,
        "stages": {name: stage["seconds"] for name, stage in recorder.stages.items()},
        "geounits": {level: spine.size(level) for level in spine.levels},
        "families": {level: len(families(spine, level)) - 1 for level in spine.levels},
        "numbers_per_geounit": {level: numbers_per_unit(plan.at(level)) for level in spine.levels},
        "cpu_seconds": sum(stage["cpu_seconds"] for stage in recorder.stages.values()),
        "disk_gb": bytes_below(release.path) / GB,
        "disk": bytes_by_kind(release),
        "areas": {name: len(areas.codes) for name, areas in areas_of(plan, spine).items()},
        "confidential_gb": bytes_below(Layout(out).confidential.path) / GB,
        "details": recorder.stages,
        "options": list(options),
        "workers": recorder.workers,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load_before": load_before,
    }


def _workers(options: Sequence[str]) -> int:
    """How many workers share the steps of a stage, as far as the options say."""
    if "--runner=multi-process" not in options:
        return 1
    named = [int(o.split("=", 1)[1]) for o in options if o.startswith("--direct_num_workers=")]
    return named[-1] if named else os.cpu_count() or 1


class _StageRecorder:
    """Records the time and memory of each stage when it has ended."""

    def __init__(self, workers: int, tree: ProcessTree) -> None:
        self.workers, self._tree, self._cpu = workers, tree, 0.0
        self.stages: dict[str, dict[str, Any]] = {}

    def ended(self, time: StageTime) -> None:
        """Record a stage."""
        cpu = self._tree.cpu_seconds()
        steps = {
            name: {"calls": step.calls, "seconds": step.seconds, "cpu_seconds": step.cpu_seconds}
            for name, step in time.steps.items()
        }
        ours = sum(step.seconds for step in time.steps.values()) / self.workers
        beam = max(0.0, time.pipeline_seconds - ours)
        self.stages[time.stage] = {
            "seconds": time.seconds,
            "cpu_seconds": cpu - self._cpu,
            "beam_seconds": beam,
            "beam_share": beam / time.seconds,
            "peak_gb": self._tree.take_peak_bytes() / GB,
            "steps": steps,
        }
        self._cpu = cpu
