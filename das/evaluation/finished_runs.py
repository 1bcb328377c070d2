"""Runs of a simulation, each a file once it is finished, so that an interrupted simulation continues.

A file has the tallies and the interval coverage of all plans in one run. It is written under another name first, and
renamed when it is whole. Runs are independent, so several processes do them at once.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from das.evaluation.intervals import Covered, covered
from das.evaluation.repeat import World, for_testing
from das.evaluation.tally import Tally
from das.plan.plan import Plan
from das.storage.files import write_atomically
from das.storage.hardening import harden
from das.storage.layout import Layout

__all__ = ["FinishedRun", "all_cores", "finished_runs"]

Where = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class FinishedRun:
    """One run of every plan: tallies and covered intervals by level and query, and seconds of estimation."""

    tallies: Mapping[str, Mapping[Where, Tally]]
    intervals: Mapping[str, Mapping[Where, Covered]]
    seconds: Mapping[str, float]

    def save(self, path: Path) -> None:
        """Write it; the file appears whole or not at all."""
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        content = []
        for number, (name, tallies) in enumerate(self.tallies.items()):
            rows = []
            for at, (where, tally) in enumerate(tallies.items()):
                for part in ("key", "true", "squares"):
                    arrays[f"{number}-{at}-{part}"] = getattr(tally, part)
                rows.append([*where, tally.cells, tally.scores[0], list(tally.bins)])
            held = [[*where, c.intervals, c.hold] for where, c in self.intervals[name].items()]
            content.append({"name": name, "tallies": rows, "intervals": held, "seconds": self.seconds[name]})
        about = np.array(json.dumps(content))
        write_atomically(path, lambda file: np.savez_compressed(file, allow_pickle=False, content=about, **arrays))

    @classmethod
    def load(cls, path: Path) -> FinishedRun:
        """Read it."""
        tallies: dict[str, dict[Where, Tally]] = {}
        intervals: dict[str, dict[Where, Covered]] = {}
        seconds: dict[str, float] = {}
        with np.load(path, allow_pickle=False) as arrays:
            for number, plan in enumerate(json.loads(str(arrays["content"]))):
                name = plan["name"]
                seconds[name] = plan["seconds"]
                intervals[name] = {(level, query): Covered(n, held) for level, query, n, held in plan["intervals"]}
                tallies[name] = {}
                for at, (level, query, cells, scores, bins) in enumerate(plan["tallies"]):
                    parts = {part: arrays[f"{number}-{at}-{part}"] for part in ("key", "true", "squares")}
                    tallies[name][level, query] = Tally(cells=cells, scores=(scores,), bins=tuple(bins), **parts)
        return cls(tallies=tallies, intervals=intervals, seconds=seconds)


def finished_runs(
    plans: Mapping[str, Plan], home: Path, runs: int, options: Sequence[str], workers: int
) -> Iterator[int]:
    """Do the runs whose files are missing; yield how many are finished, from the beginning on.

    The files are ``run-0.npz`` and so on in ``home``, where the tabulated data are too.
    """
    missing = [run for run in range(runs) if not _path(home, run).exists()]
    yield runs - len(missing)
    if workers <= 1 or len(missing) <= 1:
        world = World.tabulate(plans, home, options) if missing else None
        for done, run in enumerate(missing, start=runs - len(missing) + 1):
            if world is not None:
                _one_run(world, home, run, options)
            yield done
        return
    World.tabulate(plans, home, options)  # once, before all
    pool = ProcessPoolExecutor(min(workers, len(missing)), mp_context=get_context("spawn"), initializer=harden)
    try:
        started = [pool.submit(_in_process, dict(plans), home, run, tuple(options)) for run in missing]
        for done, finished in enumerate(as_completed(started), start=runs - len(missing) + 1):
            finished.result()
            yield done
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_worlds: dict[str, World] = {}


def _in_process(plans: dict[str, Plan], home: Path, run: int, options: tuple[str, ...]) -> None:
    """Do one run in a process that keeps the tabulated data for the next one."""
    if str(home) not in _worlds:
        _worlds[str(home)] = World.opened(plans, home)
    _one_run(_worlds[str(home)], home, run, options)


def _one_run(world: World, home: Path, run: int, options: Sequence[str]) -> None:
    """Measure and estimate every plan with the key of a run, compare with the truth, and keep only the comparison."""
    ledger = home / f"ledger-{run}.sqlite"  # runs go on side by side, so each has one of its own
    world = replace(world, plans={name: for_testing(plan, ledger) for name, plan in world.plans.items()})
    folders: dict[tuple[str, Path], Path] = {}
    tallies: dict[str, dict[Where, Tally]] = {}
    intervals: dict[str, dict[Where, Covered]] = {}
    seconds: dict[str, float] = {}
    try:
        for number, (name, plan) in enumerate(world.plans.items()):
            # What was measured for this very plan is only estimated anew.
            folder = folders.setdefault((plan.digest, plan.folder), home / f"run-{run}-{number}")
            if folder.exists() and folder == home / f"run-{run}-{number}":
                shutil.rmtree(folder)  # of a process that was killed
            seconds[name] = world.run(name, folder, f"simulate-{run}", options)
            compared = world.compared(name, folder)
            tallies[name] = {(each.level, each.query.name): Tally.of(each) for each in compared}
            intervals[name] = covered(plan, world.spine, world.truth, Layout(folder).release)
    finally:
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)
        for path in home.glob(f"{ledger.name}*"):
            path.unlink()
    FinishedRun(tallies=tallies, intervals=intervals, seconds=seconds).save(_path(home, run))


def _path(home: Path, run: int) -> Path:
    return home / f"run-{run}.npz"


def all_cores() -> int:
    """How many processes this machine can run at once."""
    return len(os.sched_getaffinity(0))
