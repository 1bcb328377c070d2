"""Forecast the cost of a run of another size from costs measured on generated states, for any number of workers.

Each step of a stage is measured in CPU seconds on states of two sizes or more. The cost of a step that works on a level
is a constant plus an amount per geounit of that level; that of all other steps, and of the driver, a constant plus an
amount per block. Disk is by folder: measurements and linear estimates grow with the noisy numbers, geounits times
numbers a geounit, records with people, tables with their cells, counts and facts with geounits; tables of intervals
that would be too long are left out, as a run leaves them out. The spine, which a worker may hold, is in proportion to
the geounits. Memory is a constant plus an amount per block in each stage; tables are held some rows at a time, so what
they need stops growing. With n workers a step takes its work divided by n, or by its number of pieces where
those are fewer; steps that wait for one another follow one another. The driver's work is done by the driver alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from das.bench.disk import amounts_of
from das.demo.geography import BLOCKS_PER_GROUP, GROUPS_PER_TRACT, TRACTS_PER_COUNTY
from das.errors import Problem, UsageError
from das.plan import presets
from das.plan.load import load
from das.plan.plan import Plan, numbers_per_unit
from das.storage.shards import NUMBERS_PER_SHARD

__all__ = ["NATION", "Projection", "StageCost", "measure_states", "project", "read_measured"]

NATION = 5_900_000
"""Inhabited blocks of the United States."""

BLOCKS_PER_STATE = NATION / 51
CALIBRATION = (2_000, 12_000)
"""Blocks of the states that are run for a forecast: in smaller ones constants hide what grows."""
WARM_UP = 100
"""Blocks of one that is run before them: what has to be compiled is compiled then."""
INDEPENDENT = ("measure", "publish")
"""Stages whose steps need not wait for one another."""

TABLES, ROWS_HELD = "publish", 100_000
"""The stage that writes tables, and how many rows of one it holds at a time."""

SPINE_BYTES = 4 * 15 + 8 + 1 + 8 + 8
"""Bytes of a geounit in the arrays of a spine: a geocode of 15 characters, parent, flag, order, first child."""

Run = Mapping[str, Any]
"""What ``das bench state --json`` printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCost:
    """One stage: wall time with the workers, CPU time of all steps, and of it the driver's own."""

    stage: str
    seconds: float
    cpu_seconds: float
    driver_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """The expected cost of a run, and the measurements and assumptions behind it."""

    blocks: int
    workers: int
    stages: tuple[StageCost, ...]
    geounits: Mapping[str, int]
    milliseconds_per_geounit: Mapping[str, float]
    worker_gb: float
    in_memory_gb: float
    disk_gb: float
    disk: Mapping[str, float]
    numbers: int
    spine_gb: float
    measured: tuple[tuple[int, float], ...]
    extrapolated: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Wall time of the whole run."""
        return sum(stage.seconds for stage in self.stages)

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the whole run."""
        return sum(stage.cpu_seconds for stage in self.stages)

    @property
    def cpu_hours(self) -> float:
        """CPU hours: the cost where only work is paid for."""
        return self.cpu_seconds / 3600

    @property
    def worker_hours(self) -> float:
        """Worker hours: the cost where workers are paid for while they wait."""
        return self.workers * self.seconds / 3600

    def to_json(self) -> dict[str, Any]:
        """Return all values as plain data."""
        totals = {"seconds": self.seconds, "cpu_hours": self.cpu_hours, "worker_hours": self.worker_hours}
        measured = [{"blocks": blocks, "cpu_seconds": cpu} for blocks, cpu in self.measured]
        return totals | asdict(self) | {"stages": [asdict(stage) for stage in self.stages], "measured": measured}

    def text(self) -> str:
        """Return the forecast as a table for the terminal."""
        ran = ", ".join(f"{blocks:,} blocks ({cpu:.0f} CPU s)" for blocks, cpu in self.measured)
        lines = [
            f"Scale: {self.blocks:,} blocks with {self.workers} workers",
            "",
            f"{'stage':<12}{'wall':>12}{'CPU':>12}{'of it driver':>14}",
        ]
        lines += [
            f"{stage.stage:<12}{_span(stage.seconds):>12}{_span(stage.cpu_seconds):>12}{_span(stage.driver_seconds):>14}"
            for stage in self.stages
        ]
        lines += [f"{'in all':<12}{_span(self.seconds):>12}{_span(self.cpu_seconds):>12}", ""]
        lines += [f"{'level':<20}{'geounits':>12}{'CPU ms each':>14}"]
        lines += [
            f"{level:<20}{units:>12,}{self.milliseconds_per_geounit[level]:>14.2f}"
            for level, units in self.geounits.items()
        ]
        lines += [
            "",
            f"cost      {self.cpu_hours:,.1f} CPU hours, {self.worker_hours:,.1f} worker hours",
            f"memory    {self.worker_gb:.1f} GB a worker; {self.in_memory_gb:.1f} GB in one process that does all",
            f"spine     {self.spine_gb:.2g} GB in each process that holds all of it",
            f"disk      {self.disk_gb:,.3g} GB of release, for {self.numbers:,} noisy numbers: "
            + ", ".join(f"{kind} {gb:,.2g}" for kind, gb in self.disk.items() if gb),
            f"measured  {ran}",
            *(f"{'assumed' if not i else '':<10}{assumption}" for i, assumption in enumerate(self.extrapolated)),
        ]
        return "\n".join(lines)


def project(plan: Plan, runs: Sequence[Run], *, blocks: int = NATION, workers: int = 1) -> Projection:
    """Extrapolate measured runs to another size.

    Parameters
    ----------
    plan : Plan
        Whose levels and numbers per geounit the run would have.
    runs : sequence of mappings
        What ``das bench state --json`` printed, of one size at least, better two.
    blocks : int
        Leaves of the spine.
    workers : int
        Processes, each with a core of its own.
    """
    largest = max(runs, key=lambda run: int(run["blocks"]))
    geounits = _geounits(plan.levels, blocks)
    like = {level: _counterpart(plan.levels, level, largest) for level in plan.levels}
    numbers = {level: numbers_per_unit(plan.at(level)) for level in plan.levels}
    weight = {level: numbers[level] / largest["numbers_per_geounit"][like[level]] for level in plan.levels}
    shards = {level: max(1, ceil(geounits[level] * numbers[level] / NUMBERS_PER_SHARD)) for level in plan.levels}
    per_unit = dict.fromkeys(plan.levels, 0.0)
    stages = []
    for stage, detail in largest["details"].items():
        took: list[tuple[float, int]] = []  # the work of each step, and its number of pieces
        for name in detail["steps"]:
            known = [(run, steps[name]) for run in runs if name in (steps := run["details"][stage]["steps"])]
            of = _level_of(name, largest)
            if of is None:
                line = _Line.through([(run["blocks"], step["cpu_seconds"]) for run, step in known])
                pieces = shards[plan.levels[-1]] if name == "records" else detail["steps"][name]["calls"]
                took.append((line.at(blocks), pieces))
                continue
            line = _Line.through([(run["geounits"][of], step["cpu_seconds"]) for run, step in known])
            for level in plan.levels:
                if like[level] == of:
                    work = weight[level] * line.at(geounits[level])
                    took.append((work, detail["steps"][name]["calls"] if stage == "publish" else shards[level]))
                    per_unit[level] += 1000 * work / geounits[level]
        driver = _Line.through([(run["blocks"], _beside_steps(run["details"][stage])) for run in runs])
        stages.append(_cost(stage, took, driver.at(blocks), workers))
    peaks = {
        stage: _Line.through([(_held(stage, run["blocks"]), run["details"][stage]["peak_gb"]) for run in runs])
        for stage in largest["details"]
    }
    amount = sum(geounits[level] * numbers[level] for level in plan.levels)
    disk = _disk(plan, runs, geounits, blocks)
    return Projection(
        blocks=blocks,
        workers=workers,
        stages=tuple(stages),
        geounits=geounits,
        milliseconds_per_geounit=per_unit,
        worker_gb=max(
            peak.at(_held(stage, blocks)) if stage == TABLES else peak.fixed for stage, peak in peaks.items()
        ),
        in_memory_gb=max(peak.at(_held(stage, blocks)) for stage, peak in peaks.items()),
        disk_gb=sum(disk.values()),
        disk=disk,
        numbers=amount,
        spine_gb=SPINE_BYTES * sum(geounits.values()) / 1e9,
        measured=tuple((int(run["blocks"]), float(run["cpu_seconds"])) for run in runs),
        extrapolated=tuple(_assumptions(plan, largest, blocks, like, weight)),
    )


def _held(stage: str, blocks: int) -> int:
    """Blocks that the memory of a stage grows with: tables are written some rows at a time."""
    return min(blocks, ROWS_HELD) if stage == TABLES else blocks


def _disk(plan: Plan, runs: Sequence[Run], geounits: Mapping[str, int], blocks: int) -> dict[str, float]:
    """GB of each kind of file; of areas of a kind that was not measured there are as many as of the most frequent."""
    ran = load(presets.folder() / "demo.toml")
    spread = {name: _Line.through([(run["blocks"], run["areas"][name]) for run in runs]) for name in runs[0]["areas"]}
    most = max((line.at(blocks) for line in spread.values()), default=0.0)
    areas = {
        area.name: spread[area.name].at(blocks) if area.name in spread else most
        for area in plan.settings.geography.areas
    }
    people = blocks * max(run["people"] / run["blocks"] for run in runs)
    wanted = amounts_of(plan, geounits, areas, people)
    known = [amounts_of(ran, run["geounits"], run["areas"], run["people"]) for run in runs]
    lines = {
        kind: _Line.through([(of[kind], run["disk"][kind] / 1e9) for of, run in zip(known, runs, strict=True)])
        for kind in wanted
    }
    return {kind: lines[kind].at(amount) if amount else 0.0 for kind, amount in wanted.items()}


def _cost(stage: str, took: Sequence[tuple[float, int]], driver: float, workers: int) -> StageCost:
    work = sum(cpu for cpu, _ in took)
    if stage in INDEPENDENT:
        longest = max((cpu / pieces for cpu, pieces in took), default=0.0)
        wall = max(work / workers, longest)
    else:
        wall = sum(cpu / min(workers, pieces) for cpu, pieces in took)
    return StageCost(stage=stage, seconds=wall + driver, cpu_seconds=work + driver, driver_seconds=driver)


@dataclass(frozen=True, slots=True)
class _Line:
    """A constant and a cost per unit, neither negative."""

    fixed: float
    each: float

    def at(self, size: float) -> float:
        return self.fixed + self.each * size

    @classmethod
    def through(cls, points: Sequence[tuple[float, float]]) -> _Line:
        """Fit a line to the costs at these sizes by least squares of relative errors."""
        size, took = np.array(points, dtype=np.float64).T
        if len(set(size.tolist())) == 1:  # one size does not determine the constant
            return cls(0.0, float(took.mean() / size[0]))
        weight = 1.0 / np.maximum(took, 1e-3)
        (fixed, each), _ = nnls(np.column_stack([weight, weight * size]), weight * took)
        return cls(float(fixed), float(each))


def _beside_steps(detail: Mapping[str, Any]) -> float:
    """The driver's own CPU time: that of the process less that of the steps, which all ran in it."""
    steps = sum(float(step["cpu_seconds"]) for step in detail["steps"].values())
    return max(0.0, float(detail["cpu_seconds"]) - steps)


def _level_of(step: str, run: Run) -> str | None:
    last = step.rpartition(" ")[2]
    return last if last in run["geounits"] else None


def _geounits(levels: Sequence[str], blocks: int) -> dict[str, int]:
    """Number of geounits per level: that of generated states of this size; other levels are interpolated."""
    states = max(1, round(blocks / BLOCKS_PER_STATE))
    groups = max(1, round(blocks / states / BLOCKS_PER_GROUP))
    tracts = max(1, round(groups / sum(probability * n for n, probability in enumerate(GROUPS_PER_TRACT, start=1))))
    counties = max(min(3, tracts), round(tracts / TRACTS_PER_COUNTY))
    per_state = {"state": 1, "county": counties, "tract": tracts, "block_group": groups}
    known = {level: states * per_state[level] for level in levels if level in per_state} | {levels[-1]: blocks}
    known.setdefault(levels[0], 1)
    positions = [levels.index(level) for level in levels if level in known]
    logs = np.interp(range(len(levels)), positions, [np.log(known[levels[i]]) for i in positions])
    return {level: round(float(np.exp(log))) for level, log in zip(levels, logs, strict=True)}


def _counterpart(levels: Sequence[str], level: str, run: Run) -> str:
    """The measured level whose cost a level is assumed to have: its namesake, or as near to the leaves or the top."""
    measured: list[str] = list(run["geounits"])
    if level in measured:
        return level
    if level == levels[-1]:
        return measured[-1]
    return measured[0] if level == levels[0] else measured[max(0, len(measured) - 2)]


def _assumptions(
    plan: Plan, run: Run, blocks: int, like: Mapping[str, str], weight: Mapping[str, float]
) -> Iterable[str]:
    times = f"{blocks / run['blocks']:.3g} times its size"
    yield f"costs are straight lines beyond the largest state measured, to {times}"
    yield "cores as fast as this machine's, each worker with one of its own, and storage that keeps up"
    others = [f"{level} like {other}" for level, other in like.items() if level != other]
    if others:
        yield f"levels that were not measured cost what others do: {', '.join(others)}"
    if any(abs(w - 1) > 1e-9 for w in weight.values()):
        yield "cost in proportion to the numbers measured of a geounit, which differ from those of the measured states"
    yield f"states like the generated one, {run['people'] / run['blocks']:g} people a block"


def measure_states(sizes: Sequence[int] = CALIBRATION) -> list[dict[str, Any]]:
    """Run generated states, each in a new process, as a release is; a tiny one comes first and does not count."""
    program = "from das.cli import main; main()"
    found = []
    for blocks in (WARM_UP, *sizes):
        command = [sys.executable, "-c", program, "bench", "state", "--json", "--blocks", str(blocks)]
        ended = subprocess.run(command, capture_output=True, check=False)
        if ended.returncode:
            lines = ended.stderr.decode(errors="replace").strip().splitlines()
            raise UsageError(
                Problem("das bench state", lines[-1] if lines else "failed", "run it by itself to see why")
            )
        found.append(json.loads(ended.stdout))
    return found[1:]


def read_measured(path: Path) -> dict[str, Any]:
    """Read what ``das bench state --json`` printed."""
    try:
        run = json.loads(path.read_bytes())
    except ValueError:
        run = None
    if (
        not isinstance(run, dict)
        or not {"blocks", "geounits", "areas", "details", "disk", "numbers_per_geounit"} <= run.keys()
    ):
        raise UsageError(Problem(str(path), "is not what `das bench state --json` prints", "measure it again"))
    if run["options"]:
        raise UsageError(Problem(str(path), "was measured with BEAM OPTIONS", "measure in one process, without any"))
    return run


def _span(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
