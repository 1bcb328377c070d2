"""One whole run of the installed program on a generated data set, compared number by number with what is repeated here.

The other checks repeat the functions that a run calls, thousands of times, in memory. This one ties them to the
program: the stages up to the mechanism run as `das run` runs them, under a testing key and with a ledger of their own,
in a private folder that is removed. What they wrote must be what the repeated functions give under the same key, and
the noise that the files state must be what the accountant was told.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from das.evaluation.privacy_audit.checks import Check
from das.evaluation.privacy_audit.claims import accounted_events
from das.evaluation.privacy_audit.measured_list import check_measured
from das.evaluation.privacy_audit.mechanism_runs import Facts, Mechanism, facts_between
from das.evaluation.privacy_audit.small_world import Counts, SmallWorld
from das.evaluation.privacy_audit.worst_pair import Pair
from das.evaluation.repeat import for_testing
from das.noise.stream import RunKey
from das.plan.plan import Plan, numbers_per_unit
from das.plan.settings import GeographySettings, InputSettings, LevelSettings
from das.release.audit import measured_events
from das.release.measurements import read_measurements
from das.runner import find_runner
from das.schema.query import answer_names
from das.storage.counts import read_counts
from das.storage.layout import Layout, ReleaseFolder
from das.storage.shards import shards_of

__all__ = ["check_whole_run", "run_plan"]

NAME = "A whole run writes what the repeated functions give"


def check_whole_run(mechanism: Mechanism, pair: Pair, seed: str) -> tuple[Check, Check]:
    """Run the stages once on the first data set of a pair; return what the numbers say, and what the files state."""
    key = f"{seed}, whole run"
    with TemporaryDirectory(prefix="das-audit-") as private:
        home = Path(private)
        facts = facts_between(mechanism.world, pair.one, pair.other)
        plan = run_plan(mechanism.world, pair.one, facts, home)
        find_runner().run(plan, home / "out", upto="measure", testing_key=key, unprotected=True)
        release = Layout(home / "out").release
        world = replace(mechanism.world, plan=plan)
        written = _written(world, release)
        again = replace(mechanism, world=world).prepare(pair.one, facts)  # type: ignore[type-var]
        streams = RunKey.for_testing(key).streams(plan.digest.encode())
        expected = again(streams)
        streams.wipe()
        events = check_measured(measured_events(plan, release), accounted_events(plan, world.spine), "a whole run")
    different = int((written != expected).sum()) if written.shape == expected.shape else len(expected)
    detail = f"{len(expected):,} numbers, {different} differ"
    return Check(name=NAME, verdict="VIOLATED" if different else "consistent", detail=detail), events


def run_plan(world: SmallWorld, data: Counts, facts: Facts, folder: Path) -> Plan:
    """Write a data set and its public facts as files, and return the plan that reads them."""
    plan, spine = world.plan, world.spine
    names = list(plan.schema.names)
    people = np.repeat(np.arange(world.columns), data)
    leaves, cells = np.divmod(people, len(world.cells))
    codes = plan.schema.labels_of(world.cells[cells])
    labels = [[plan.schema.attribute(name).labels[code] for code in codes[name].tolist()] for name in names]
    _write(folder / "people.csv", ["geocode", *names], zip(spine.leaves[leaves].tolist(), *labels, strict=True))
    bounds = []
    for number, bound in enumerate(plan.bounds):
        path = folder / f"bound-{number}.csv"
        values = facts[bound.level, bound.query.name][bound.sense == "<="]
        rows = ([code, *row] for code, row in zip(spine.geocodes(bound.level).tolist(), values.tolist(), strict=True))
        _write(path, ["geocode", *answer_names(bound.query)], rows)
        bounds.append(replace(bound, source=str(path), geocode="geocode"))
    settings = plan.settings
    update: dict[str, object] = {
        "input": InputSettings(data="generated", microdata=(str(folder / "people.csv"),)),
    }
    if not world.is_whole:
        path = folder / "places.csv"
        above = [spine.geocodes(level)[_ancestors(world, level)].tolist() for level in plan.levels]
        _write(path, plan.levels, zip(*above, strict=True))
        levels = tuple(LevelSettings(name=level) for level in plan.levels)
        update["geography"] = GeographySettings(levels=levels, crosswalk=str(path))
    changed = replace(plan, settings=settings.model_copy(update=update), bounds=tuple(bounds))
    return for_testing(changed, folder / "ledger.sqlite")


def _ancestors(world: SmallWorld, level: str) -> Counts:
    """The unit of a level that each leaf lies in."""
    return np.repeat(np.arange(world.spine.size(level)), np.diff(world.spine.leaf_ranges(level)))


def _written(world: SmallWorld, release: ReleaseFolder) -> Counts:
    """The released answers, in the order of the world's rows."""
    plan, spine = world.plan, world.spine
    if plan.mechanism_stage.measures:
        return np.concatenate(
            [
                read_measurements(plan, level, shard.path(release.measurements)).astype(np.int64).reshape(-1)
                for level in plan.levels
                if plan.at(level)
                for shard in shards_of(spine, level, numbers_per_unit(plan.at(level)))
            ]
        )
    leaf = plan.levels[-1]
    counts = read_counts(spine, leaf, release.counts / f"{leaf}.parquet")
    dense = np.zeros((spine.size(leaf), plan.schema.size), dtype=np.int64)
    np.add.at(dense, (counts.unit, counts.cell), counts.count)
    return np.asarray(world.rows @ dense[:, world.cells].reshape(-1))


def _write(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
