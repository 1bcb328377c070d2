"""Raw noise, least squares and conditioned noise at one effective epsilon, on the data of a config: ``das compare``.

Every contender runs several times with testing keys, in a private folder that is removed (`das.evaluation.repeat`), and
is compared with the truth level by level. Such distances are exact functions of the data, and no noise protects them.
They are therefore not part of a release, and neither ``privacy.html`` nor any other file of ``release/`` contains or
links them. The comparison of a run is written where ``das evaluate`` writes, on the confidential side. The comparison
of a config is written where the caller says, for data that are public or generated.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from das.errors import Problem, UsageError
from das.evaluation.compare.example_table import Distance
from das.evaluation.compare.matching import POLICY, Contender, contenders_of, why_not_congenial
from das.evaluation.compare.page import render_levels
from das.evaluation.format import finite, table
from das.evaluation.repeat import World, for_testing
from das.evaluation.truth import Compared, compare_counts
from das.exact import quoted
from das.noise.rational import Rational, positive_rational
from das.plan.load import load
from das.plan.plan import Measurement, Plan, numbers_per_unit
from das.release.measurements import read_measurements
from das.runner import Progress
from das.storage.files import json_bytes, write_atomically
from das.storage.layout import Layout, ReleaseFolder
from das.storage.shards import shards_of

__all__ = ["compare_folder", "compare_levels", "levels_text"]

RAW, SQUARES = "raw noise", "nonnegative least squares"
Found = tuple[float, float, float]
Where = tuple[str, str]
"""A level and a query that is measured there."""


def compare_levels(
    plan: Plan,
    *,
    runs: int = 5,
    epsilon: Rational | None = None,
    workdir: Path,
    options: Sequence[str] = (),
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Compare the methods on a plan's own data, for every level and query that it measures.

    Parameters
    ----------
    plan : Plan
        With any method. Where its counts do not form a tree, congenial draws are left out, and ``left_out`` says why.
        Its input is read; the data set's ledger is not touched.
    runs : int
        Runs of each contender.
    epsilon : Fraction, int or str, optional
        The effective epsilon of all; that of the plan's measured noise unless given.
    workdir : Path
        Where to make the private folder of the runs, which is removed in the end.
    options : sequence of str
        Options of the runner.
    progress : callable, optional
        Called with ``"compare"``, the number of runs done, and the number of all runs.

    Returns
    -------
    dict
        Plain data. ``matched``: which promise, and its status; ``contenders``: budget and promise of each;
        ``promises``: all other promises beside each other, which are not matched; ``levels``: for each level and query
        the mean L1 and L2 distance of a geounit's table from the truth, with standard errors over runs.
    """
    if runs < 2:
        raise UsageError(Problem("comparison", "there are no averages of fewer than two runs", "give --runs 2 or more"))
    report = progress or (lambda stage, done, of: None)
    contenders = contenders_of(plan, None if epsilon is None else positive_rational(epsilon, "epsilon"))
    found: dict[Where, dict[str, list[Found]]] = defaultdict(lambda: defaultdict(list))
    workdir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="comparison-", dir=workdir) as private:
        home = Path(private)
        plans = {each.name: for_testing(each.plan, home / "ledger.sqlite") for each in contenders}
        world = World.tabulate(plans, home, options)
        geounits = {level: int(world.spine.real(level).sum()) for level in plan.levels}
        report("compare", 0, runs * len(plans))
        for run in range(runs):
            for number, name in enumerate(plans):
                folder = home / f"run-{run}-{number}"
                world.run(name, folder, f"compare-{run}", options)
                for method, distances in _distances(world, name, Layout(folder).release).items():
                    for where, distance in distances.items():
                        found[where][method].append(distance)
                shutil.rmtree(folder)
                report("compare", run * len(plans) + number + 1, runs * len(plans))
    first, *conditioned = contenders
    named = {RAW: first, SQUARES: first} | {each.name: each for each in conditioned}
    leaf = plan.levels[-1]
    content: dict[str, Any] = finite(
        {
            "comparison": f"COMPARISON: {runs} runs of each with testing keys; nothing here is a release, no budget is "
            "charged; as confidential as the data",
            "table": f"{plan.name}: {geounits[leaf]:,} geounits of level {leaf}, {plan.schema.size:,} cells",
            "runs": runs,
            "epsilon": first.epsilon,
            "matched": _matched(first, conditioned),
            "left_out": {} if conditioned else {"congenial": why_not_congenial(plan)},
            "contenders": [each.to_json() | {"name": name} for name, each in named.items()],
            "promises": _beside(contenders),
            "levels": [
                {
                    "level": level,
                    "query": query,
                    "geounits": geounits[level],
                    "contenders": [asdict(_mean(name, methods[name], each.epsilon)) for name, each in named.items()],
                }
                for (level, query), methods in found.items()
            ],
        }
    )
    return content


def compare_folder(folder: Path, **asked: Any) -> dict[str, Any]:
    """Compare on the data of a run, and write ``comparison.json`` and ``comparison.html`` beside ``evaluation.json``.

    Both are written on the confidential side (mode 0600) and nowhere else. The run's config and input are read where
    they were; its release stays as it is.

    Parameters
    ----------
    folder : Path
        The folder that ``das run`` was given, with its confidential side.
    **asked
        As for :func:`compare_levels`, but for ``workdir``.
    """
    inside = Layout(folder).confidential
    if not inside.origin.exists() or not Layout(folder).run.exists():
        remedy = "name a config, or run it where the confidential side of the run lies"
        raise UsageError(Problem(str(folder), "holds no run, or its confidential side is not here", remedy))
    plan = load(json.loads(inside.origin.read_bytes())["config"])
    if plan.digest != json.loads(Layout(folder).run.read_bytes())["plan_digest"]:
        remedy = "restore the config with which the run began"
        raise UsageError(Problem(str(plan.source), "is not the plan of this run any more", remedy))
    found = compare_levels(plan, workdir=inside.path, **asked)
    write_atomically(inside.path / "comparison.json", json_bytes(found))
    write_atomically(inside.path / "comparison.html", render_levels(found).encode())
    return found


def _matched(measured: Contender, conditioned: Sequence[Contender]) -> dict[str, Any]:
    plan = measured.plan
    return {
        "promise": f"policy {POLICY}: at most a(t) records change that need each other to keep what is public",
        "a": measured.matched["a"],
        "epsilon": measured.epsilon,
        "delta": float(plan.settings.privacy.delta) if plan.framework == "zcdp" else 0.0,
        "status": {RAW: measured.matched["status"]} | {each.name: each.matched["status"] for each in conditioned[:1]},
        # Available for unconditioned noise alone, and therefore not matched.
        "tight_epsilon_of_raw_noise": measured.matched["tight_epsilon"],
    }


def _beside(contenders: Sequence[Contender]) -> list[dict[str, Any]]:
    """Each promise of the account with the epsilon and the status of every contender."""
    names = [f"{RAW}, least squares", *(each.name for each in contenders[1:])]
    return [
        {
            "promise": rows[0]["promise"],
            "epsilon": {name: row["epsilon"] for name, row in zip(names, rows, strict=True)},
            "status": {name: row["status"] for name, row in zip(names, rows, strict=True)},
        }
        for rows in zip(*(each.promises for each in contenders), strict=True)
    ]


def _distances(world: World, name: str, release: ReleaseFolder) -> dict[str, dict[Where, Found]]:
    """Distances of one run: of its counts and, if it measured, of the noisy numbers too."""
    plan = world.plans[name]
    measured = {(m.level, m.query.name) for m in plan.measurements}
    queries = {m.query.name: m.query for m in plan.measurements}
    compared = compare_counts(plan, world.spine, world.truth, release, queries.values())
    counted = {where: _counted(each) for each in compared if (where := (each.level, each.query.name)) in measured}
    if plan.mechanism_stage.sampler:
        return {name: counted}
    return {RAW: _raw(world, plan, release), SQUARES: counted}


def _counted(compared: Compared) -> Found:
    """Mean L1 and L2 distance of a geounit's answers; what is not listed is zero on both sides."""
    geounits = compared.cells // compared.query.size
    away = compared.published - compared.true
    _, unit = np.unique(compared.key // compared.query.size, return_inverse=True)
    l1, l2 = np.abs(away).sum(), np.sqrt(np.bincount(unit, away * away)).sum()
    return float(l1 / geounits), float(l2 / geounits), float((compared.published < 0).sum() / compared.cells)


def _raw(world: World, plan: Plan, release: ReleaseFolder) -> dict[Where, Found]:
    """Return the same for the noisy numbers as they were measured; answers that are structural zeros are known."""
    return {(m.level, m.query.name): _raw_of(world, plan, m, release) for m in plan.measurements}


def _raw_of(world: World, plan: Plan, measurement: Measurement, release: ReleaseFolder) -> Found:
    level, query = measurement.level, measurement.query
    before = [m.query.name for m in plan.at(level)].index(query.name)
    at = numbers_per_unit(plan.at(level)[:before])
    possible = np.zeros(query.size, dtype=np.bool_)
    possible[query.index[plan.schema.possible]] = True
    real, here = world.spine.real(level), world.truth[level]
    sums = np.zeros(3)
    for shard in shards_of(world.spine, level, numbers_per_unit(plan.at(level))):
        local = here.within(shard.start, shard.stop)
        values = read_measurements(plan, level, shard.path(release.measurements))[:, at : at + query.size]
        shown = np.ix_(real[shard.start : shard.stop], possible)
        noisy = values[shown].astype(np.float64)
        away = noisy - local.answers(query, shard.stop - shard.start)[shown]
        sums += np.abs(away).sum(), np.sqrt((away * away).sum(axis=1)).sum(), (noisy < 0).sum() / query.size
    l1, l2, negative = sums / real.sum()
    return float(l1), float(l2), float(negative)


def _mean(name: str, runs: Sequence[Found], epsilon: float) -> Distance:
    values = np.array(runs)
    (l1, l2, negative), errors = values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return Distance(
        name=name,
        epsilon=epsilon,
        runs=len(values),
        l1=float(l1),
        l1_error=float(errors[0]),
        l2=float(l2),
        l2_error=float(errors[1]),
        negative=float(negative),
    )


def levels_text(found: Mapping[str, Any]) -> str:
    """Lay out what :func:`compare_levels` found for a terminal.

    Examples
    --------
    >>> row = {"name": "raw noise", "epsilon": 1.0, "l1": 4.0, "l1_error": 0.1, "l2": 2.0, "l2_error": 0.1,
    ...        "negative": 0.25}
    >>> matched = {"promise": "policy irreducible", "epsilon": 1.0, "delta": 0.0, "status": {"raw noise": "proved"}}
    >>> print(levels_text({"comparison": "COMPARISON: 2 runs", "matched": matched,
    ...                    "levels": [{"level": "block", "query": "detailed", "contenders": [row]}]}))
    COMPARISON: 2 runs
    matched: effective epsilon 1.000 at delta 0, policy irreducible (raw noise: proved)
    <BLANKLINE>
    level  query     contender  effective epsilon  mean L1    +-  mean L2    +-  < 0 %
    block  detailed  raw noise               1.00     4.00  0.10     2.00  0.10  25.00
    """
    matched = found["matched"]
    grounds = "; ".join(f"{name}: {status}" for name, status in matched["status"].items())
    heading = (
        f"matched: effective epsilon {quoted(matched['epsilon'])} at delta {matched['delta']:g}, {matched['promise']}"
    )
    columns = {
        "level": "level",
        "query": "query",
        "name": "contender",
        "epsilon": "effective epsilon",
        "l1": "mean L1",
        "l1_error": "+-",
        "l2": "mean L2",
        "l2_error": "+-",
        "percent": "< 0 %",
    }
    rows = [
        {"level": level["level"], "query": level["query"], "percent": 100 * row["negative"], **row}
        for level in found["levels"]
        for row in level["contenders"]
    ]
    left_out = "".join(f"\nleft out: {name}: {reason}" for name, reason in found.get("left_out", {}).items())
    return f"{found['comparison']}\n{heading} ({grounds}){left_out}\n\n{table(columns, rows)}"
