"""Accuracy of a plan over repeated runs on data whose true counts are known: ``das simulate``.

The data are tabulated once. Then each run measures them with a testing key of its own (``simulate-0``, ``simulate-1``,
and so on) and estimates, in a private folder that is removed when the run has been compared with the truth. The noise
of such a run is known to everybody: nothing of it is a release, and it is entered as testing in a ledger inside
that folder. The accuracy in the result is an exact function of the data: use generated or public data, or keep the
result confidential.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from das.errors import Problem, UsageError
from das.evaluation.format import finite, table
from das.evaluation.intervals import Covered, covered
from das.evaluation.repeat import World, for_testing
from das.evaluation.tally import NOTHING, Tally, mean_and_error
from das.plan.plan import Plan
from das.runner import Progress
from das.storage.layout import Layout

__all__ = ["compare", "comparison_text", "simulate", "simulation_text"]


def simulate(
    plan: Plan,
    runs: int,
    *,
    workdir: Path,
    options: Sequence[str] = (),
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure how accurate a plan is, over several runs with testing keys.

    Parameters
    ----------
    plan : Plan
        What to repeat; its input is read once.
    runs : int
        How many times.
    workdir : Path
        Where to make the private folder of the runs, which is removed in the end.
    options : sequence of str
        Options of the runner.
    progress : callable, optional
        Called with ``"simulate"``, the number of runs done, and the number of all runs.

    Returns
    -------
    dict
        Under ``levels`` a row for each level and query: mean over runs of bias, mae and rmse, each with its standard
        error (``_se``, ``None`` for a single run), and the mean over areas of JASON's B of an area over runs; for the
        total, ``bins`` of true population; where linear estimates are made, ``coverage`` of their 95 % intervals.
    """
    found = compare({plan.name: plan}, runs, workdir=workdir, options=options, progress=progress)
    return {"simulation": found["simulation"], "runs": runs, **found["plans"][plan.name]}


def compare(
    plans: Mapping[str, Plan],
    runs: int,
    *,
    workdir: Path,
    options: Sequence[str] = (),
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Simulate several plans on the same true data with the same keys.

    Plans that differ only in how they estimate, or in name, estimate from the very same measurements.

    Parameters
    ----------
    plans : Mapping
        Name to plan; all must describe the same data over the same geography and schema.
    runs, workdir, options, progress
        As for :func:`simulate`.

    Returns
    -------
    dict
        Under ``plans`` what :func:`simulate` returns for each; under ``changes`` how much each measure of each further
        plan differs from that of the first, in percent, with the standard error of a ratio of paired means.

    Raises
    ------
    UsageError
        There is nothing to run, or the plans are not about the same data.
    """
    if not plans or runs < 1:
        raise UsageError(Problem("simulation", "needs at least one plan and one run", "ask for --runs 1 or more"))
    report = progress or (lambda stage, done, of: None)
    workdir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="simulation-", dir=workdir) as private:
        home = Path(private)
        testing = {name: for_testing(plan, home / "ledger.sqlite") for name, plan in plans.items()}
        world = World.tabulate(testing, home, options)
        tallies: dict[str, dict[tuple[str, str], Tally]] = {name: {} for name in plans}
        intervals: dict[str, list[dict[tuple[str, str], Covered]]] = {name: [] for name in plans}
        seconds: dict[str, list[float]] = {name: [] for name in plans}
        report("simulate", 0, runs * len(plans))
        for run in range(runs):
            folders: dict[tuple[str, Path], Path] = {}
            for number, (name, plan) in enumerate(testing.items()):
                # What was measured for this very plan is only estimated anew.
                folder = folders.setdefault((plan.digest, plan.folder), home / f"run-{run}-{number}")
                seconds[name].append(world.run(name, folder, f"simulate-{run}", options))
                for compared in world.compared(name, folder):
                    where = compared.level, compared.query.name
                    tallies[name][where] = tallies[name].get(where, NOTHING).plus(compared)
                intervals[name].append(covered(plan, world.spine, world.truth, Layout(folder).release))
                report("simulate", run * len(plans) + number + 1, runs * len(plans))
            for folder in folders.values():
                shutil.rmtree(folder)
    results = {name: _result(plans[name], tallies[name], intervals[name], seconds[name]) for name in plans}
    first, *others = plans
    notice = (
        f"SIMULATION: {runs} {'run' if runs == 1 else 'runs'} with testing keys from simulate-0 on; nothing here is a "
        "release, the noise is known, no budget was charged; as confidential as the data"
    )
    changes = [
        {"plan": name, "against": first, "level": level, "query": query}
        | tally.change_from(tallies[first][level, query])
        for name in others
        for (level, query), tally in tallies[name].items()
    ]
    content: dict[str, Any] = finite({"simulation": notice, "runs": runs, "plans": results, "changes": changes})
    return content


def _result(
    plan: Plan,
    tallies: Mapping[tuple[str, str], Tally],
    intervals: Sequence[Mapping[tuple[str, str], Covered]],
    seconds: Sequence[float],
) -> dict[str, Any]:
    noise = {(m.level, m.query.name): m.std_dev for m in plan.measurements}
    coverage = {
        name: {"intervals": intervals[0][name].intervals}
        | mean_and_error("coverage", [run[name].share for run in intervals])
        for name in intervals[0]
    }
    return {
        "release": plan.name,
        "estimate": plan.settings.estimate.model_dump(mode="json"),
        "estimate_seconds": float(np.mean(seconds)),
        "levels": [
            {"level": level, "query": query, "noise_std_dev": noise.get((level, query)), **tally.row()}
            | coverage.get((level, query), {})
            for (level, query), tally in tallies.items()
        ],
    }


def simulation_text(simulation: Mapping[str, Any]) -> str:
    """Lay out what :func:`simulate` found.

    Examples
    --------
    >>> row = {"level": "tract", "query": "total", "cells": 2, "bias": 0.0, "mae": 1.5, "mae_se": 0.1, "rmse": 1.6}
    >>> print(simulation_text({"simulation": "SIMULATION: 2 runs", "levels": [row]}))
    SIMULATION: 2 runs
    <BLANKLINE>
    level  query  cells  bias  +-  mean |error|    +-  RMSE  +-  JASON B  noise sd  coverage
    tract  total      2  0.00   -          1.50  0.10  1.60   -        -         -         -
    """
    columns = {
        "level": "level",
        "query": "query",
        "cells": "cells",
        "bias": "bias",
        "bias_se": "+-",
        "mae": "mean |error|",
        "mae_se": "+-",
        "rmse": "RMSE",
        "rmse_se": "+-",
        "jason_b": "JASON B",
        "noise_std_dev": "noise sd",
        "coverage": "coverage",
    }
    return f"{simulation['simulation']}\n\n{table(columns, simulation['levels'])}"


def comparison_text(comparison: Mapping[str, Any]) -> str:
    """Lay out what :func:`compare` found: each plan's table, then the changes.

    Examples
    --------
    >>> change = {"plan": "full", "against": "level", "level": "tract", "query": "total", "mae": -24.0, "mae_se": 1.0}
    >>> print(comparison_text({"simulation": "SIMULATION: 20 runs", "plans": {}, "changes": [change]}))
    SIMULATION: 20 runs
    <BLANKLINE>
    plan  against  level  query  mean |error| %    +-  RMSE %  +-
    full  level    tract  total          -24.00  1.00       -   -
    """
    tables = [
        f"{name}: {found['estimate_seconds']:.1f} s to estimate\n"
        + simulation_text({"simulation": "", "levels": found["levels"]}).strip()
        for name, found in comparison["plans"].items()
    ]
    columns = {
        "plan": "plan",
        "against": "against",
        "level": "level",
        "query": "query",
        "mae": "mean |error| %",
        "mae_se": "+-",
        "rmse": "RMSE %",
        "rmse_se": "+-",
    }
    changes = [table(columns, comparison["changes"])] if comparison["changes"] else []
    return "\n\n".join([comparison["simulation"], *tables, *changes])
