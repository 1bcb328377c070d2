"""Accuracy of a plan over repeated runs on data whose true counts are known: ``das simulate``.

The data are tabulated once. Then each run measures them with a testing key of its own (``simulate-0``, ``simulate-1``,
and so on) and estimates, in a private folder that is removed when the run has been compared with the truth. The noise
of such a run is known to everybody: nothing of it is a release, and it is entered as testing in a ledger inside
that folder. The accuracy in the result is an exact function of the data: use generated or public data, or keep the
result confidential. Runs are done on several processes, and a folder that is kept continues after an interruption.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from das.errors import Problem, UsageError
from das.evaluation.finished_runs import FinishedRun, finished_runs
from das.evaluation.format import finite, table
from das.evaluation.intervals import Covered
from das.evaluation.repeat import for_testing
from das.evaluation.tally import NOTHING, Tally, mean_and_error
from das.exact import digest_of
from das.plan.load import to_toml
from das.plan.plan import Plan
from das.runner import Progress
from das.storage.files import exclusive_lock, write_atomically
from das.storage.hardening import harden
from das.storage.permissions import make_new

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
    workers: int = 1,
    keep: Path | None = None,
    people: str = "as confidential as the data",
) -> dict[str, Any]:
    """Simulate several plans on the same true data with the same keys.

    Plans that differ only in how they estimate, or in name, estimate from the very same measurements.

    Parameters
    ----------
    plans : Mapping
        Name to plan; all must describe the same data over the same geography and schema.
    runs, workdir, options, progress
        As for :func:`simulate`.
    workers : int
        Processes that do runs at once.
    keep : Path, optional
        A private folder in which tabulated data and finished runs are kept; the same call continues there.
    people : str
        Whose data these are, in words, for the notice.

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
    harden()  # what was kept of earlier runs is as confidential as their data
    report = progress or (lambda stage, done, of: None)
    with _home(plans, workdir, keep) as home:
        testing = {name: for_testing(plan, home / "ledger.sqlite") for name, plan in plans.items()}
        for done in finished_runs(testing, home, runs, options, workers):
            report("simulate", done * len(plans), runs * len(plans))
        finished = [FinishedRun.load(home / f"run-{run}.npz") for run in range(runs)]
    tallies: dict[str, dict[tuple[str, str], Tally]] = {name: {} for name in plans}
    for each in finished:
        for name in plans:
            for where, tally in each.tallies[name].items():
                tallies[name][where] = tallies[name].get(where, NOTHING).plus(tally)
    intervals = {name: [each.intervals[name] for each in finished] for name in plans}
    seconds = {name: [each.seconds[name] for each in finished] for name in plans}
    results = {name: _result(plans[name], tallies[name], intervals[name], seconds[name]) for name in plans}
    first, *others = plans
    notice = (
        f"SIMULATION: {runs} {'run' if runs == 1 else 'runs'} with testing keys from simulate-0 on; nothing here is a "
        f"release, the noise is known, no budget was charged; {people}"
    )
    changes = [
        {"plan": name, "against": first, "level": level, "query": query}
        | tally.change_from(tallies[first][level, query])
        for name in others
        for (level, query), tally in tallies[name].items()
    ]
    content: dict[str, Any] = finite({"simulation": notice, "runs": runs, "plans": results, "changes": changes})
    return content


@contextmanager
def _home(plans: Mapping[str, Plan], workdir: Path, keep: Path | None) -> Iterator[Path]:
    """Give the private folder of the runs: one that is removed in the end, or one that is kept for these plans."""
    workdir.mkdir(parents=True, exist_ok=True)
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="simulation-", dir=workdir) as private:
            yield Path(private)
        return
    keep.absolute().parent.mkdir(parents=True, exist_ok=True)
    make_new(keep, private=True, empty=False)
    with exclusive_lock(keep):
        about = digest_of({name: [str(plan.folder), to_toml(plan.settings)] for name, plan in plans.items()})
        mark = keep / "plans.txt"
        if mark.exists() and mark.read_text() != about:
            reason = "holds runs of other plans or of other people"
            raise UsageError(Problem(str(keep), reason, "name another folder with --out, or remove it"))
        write_atomically(mark, about.encode())
        yield keep


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
