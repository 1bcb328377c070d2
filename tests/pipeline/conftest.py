"""Two small worlds released once, the truth about them worked out without das, and das in processes of its own."""

from __future__ import annotations

import csv
import hashlib
import multiprocessing
import re
import runpy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import das
from das.demo.starter import write_demo, write_starter
from das.errors import UsageError
from das.plan.load import load
from das.plan.plan import Plan
from pipelines.runners.cluster import Cluster
from pipelines.runners.clusters import FLINK, SPARK

RUN_DAS = Path(__file__).with_name("run_das.py")


@dataclass(frozen=True)
class World:
    """A plan, the folder of its run, and the truth: every leaf with its ancestors, every person with their labels."""

    plan: Plan
    out: Path
    ancestors: pd.DataFrame  # a row per leaf, a column per level
    people: pd.DataFrame  # a row per person: leaf, and a column per attribute

    @property
    def release(self) -> Path:
        return self.out / "release"

    @property
    def labels(self) -> dict[str, tuple[str, ...]]:
        return {a.name: a.labels for a in self.plan.settings.schema_.attribute}

    def units(self, level: str) -> list[str]:
        return sorted(set(self.ancestors[level]))

    def dense(self, level: str, leaf: pd.Series, columns: pd.DataFrame, weight: Any = 1) -> NDArray[np.int64]:
        """Count rows: units of the level x the labels of each attribute."""
        place = {unit: i for i, unit in enumerate(self.units(level))}
        up = dict(zip(self.ancestors.iloc[:, -1], self.ancestors[level], strict=True))
        out = np.zeros((len(place), *map(len, self.labels.values())), dtype=np.int64)
        index = [[place[up[code]] for code in leaf]]
        index += [[labels.index(label) for label in columns[name]] for name, labels in self.labels.items()]
        np.add.at(out, tuple(np.array(i, dtype=np.int64) for i in index), weight)
        return out

    def truth(self, level: str) -> NDArray[np.int64]:
        return self.dense(level, self.people["leaf"], self.people)

    def counts(self, level: str, folder: Path | None = None) -> NDArray[np.int64]:
        """The published counts of one level, densely, by their labels and not by their cell numbers."""
        found = pd.read_parquet((folder or self.release) / "counts" / f"{level}.parquet")
        place = {unit: i for i, unit in enumerate(self.units(level))}
        out = np.zeros((len(place), *map(len, self.labels.values())), dtype=np.int64)
        index = [[place[code] for code in found["geocode"]]]
        index += [[labels.index(label) for label in found[name]] for name, labels in self.labels.items()]
        np.add.at(out, tuple(np.array(i, dtype=np.int64) for i in index), found["count"].to_numpy())
        return out

    def groups(self, axes: dict[str, str]) -> dict[str, dict[str, tuple[str, ...]]]:
        """What a query keeps: for each attribute the groups of labels that it counts together, in order."""
        kept: dict[str, dict[str, tuple[str, ...]]] = {}
        for attribute in self.plan.settings.schema_.attribute:
            name = axes.get(attribute.name, "*")
            if name == "*":
                kept[attribute.name] = {"": attribute.labels}
            elif name == attribute.name:
                kept[attribute.name] = {label: (label,) for label in attribute.labels}
            else:
                kept[attribute.name] = {g: tuple(members) for g, members in attribute.recodes[name].items()}
        return kept

    def axes(self, query: str) -> dict[str, str]:
        """Read a query's name: the recode that it keeps of each attribute."""
        if query == "detailed":
            return {name: name for name in self.labels}
        owner = {r: a.name for a in self.plan.settings.schema_.attribute for r in (a.name, *a.recodes)}
        return {owner[part]: part for part in query.split(" * ") if part != "total"}

    def answer(self, counts: NDArray[np.int64], axes: dict[str, str]) -> NDArray[np.int64]:
        """A query's answers with one dense 0/1 matrix per attribute: units x answers."""
        out = counts
        for axis, (name, groups) in enumerate(self.groups(axes).items(), start=1):
            matrix = np.array([[label in members for label in self.labels[name]] for members in groups.values()])
            out = np.moveaxis(np.tensordot(out, matrix.astype(np.int64), axes=(axis, 1)), -1, axis)
        return out.reshape(len(counts), -1)

    def answer_names(self, axes: dict[str, str]) -> list[str]:
        kept = [list(groups) for name, groups in self.groups(axes).items() if name in axes]
        return [" * ".join(labels) for labels in product(*kept)] if kept else ["total"]

    def columns(self, axes: dict[str, str]) -> list[str]:
        """Columns of a table: letters, digits and underscores; what begins with a digit follows its attribute."""

        def part(name: str, label: str) -> str:
            plain = re.sub(r"\W+", "_", label.replace("+", " plus")).strip("_")
            return f"{name}_{plain}" if plain[0].isdigit() else plain

        kept = [
            [part(axes[name], label) for label in groups] for name, groups in self.groups(axes).items() if name in axes
        ]
        return ["_by_".join(parts) for parts in product(*kept)] if kept else ["total"]


def read_country(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The starter's people and places; a village without a district stands for its own."""
    with (folder / "places.csv").open() as file:
        rows = [{**row, "district": row["district"] or row["village"]} for row in csv.DictReader(file)]
    people = pd.read_csv(folder / "people.csv", dtype=str)
    return pd.DataFrame(rows)[["province", "district", "village"]], people.rename(columns={"village": "leaf"})


def read_town(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The demo's people and blocks; a geocode's parents are its beginnings."""
    blocks = pd.read_csv(folder / "geography.csv", dtype=str)["GEOID"]
    widths = {"state": 2, "county": 5, "tract": 11, "block_group": 12, "block": 15}
    people = pd.read_parquet(folder / "persons.parquet")
    ancestors = pd.DataFrame({level: blocks.str[:width] for level, width in widths.items()})
    return ancestors, people.rename(columns={"GEOID": "leaf"})


@pytest.fixture(scope="session")
def country(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The starter, pure DP, with a branch that skips a level and two empty villages."""
    folder = tmp_path_factory.mktemp("country")
    plan = load(write_starter(folder / "input"))
    das.run(plan, out=folder / "out", testing_key="country")
    return World(plan, folder / "out", *read_country(folder / "input"))


@pytest.fixture(scope="session")
def town(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The demo in small, zCDP: 60 blocks, 800 people, areas off the spine, bounds, a structural zero."""
    out = tmp_path_factory.mktemp("town") / "out"
    config = write_demo(out, blocks=60, people=800)
    plan = load(config)
    das.run(plan, out=out, testing_key="town")
    return World(plan, out, *read_town(config.parent))


@pytest.fixture(params=["country", "town"])
def world(request: pytest.FixtureRequest) -> World:
    released: World = request.getfixturevalue(request.param)
    return released


@pytest.fixture(scope="session")
def tree() -> Callable[[Path], dict[str, str]]:
    """Every file below a folder, hidden ones too: relative name to sha256."""

    def tree_of(folder: Path) -> dict[str, str]:
        return {
            path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }

    return tree_of


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it said."""

    code: int | None
    stdout: str
    stderr: str


class Processes:
    """Starts ``das`` in processes forked from one that has already imported it, so that many are affordable."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.numbers = folder, count()
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(
            ["das.cli", "das.checks", "das.promise.joint", "das.demo.starter", "pipelines.run", "das.report.progress"]
        )

    def start(self, arguments: list[object], **job: object) -> tuple[Any, Path]:
        outputs = self.folder / str(next(self.numbers))
        outputs.mkdir()
        job |= {"arguments": [str(argument) for argument in arguments], "outputs": str(outputs)}
        process = self.context.Process(target=runpy.run_path, args=(str(RUN_DAS), {"JOB": job}, "__main__"))
        process.start()
        return process, outputs

    def end(self, process: Any, outputs: Path) -> Ended:
        process.join(120)
        if process.is_alive():
            process.kill()
            process.join()
        ended = Ended(process.exitcode, (outputs / "stdout").read_text(), (outputs / "stderr").read_text())
        process.close()
        return ended

    def __call__(self, *arguments: object, **job: object) -> Ended:
        return self.end(*self.start(list(arguments), **job))


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Processes:
    return Processes(tmp_path_factory.mktemp("processes"))


@pytest.fixture
def starter(tmp_path: Path) -> Path:
    """A fresh copy of the starter; its config's path."""
    return write_starter(tmp_path / "input")


@contextmanager
def running(cluster: Cluster) -> Iterator[None]:
    """Start a cluster on this machine, and stop it again unless it ran before."""
    was_up = cluster.is_up()
    try:
        cluster.up()
    except UsageError as error:
        pytest.skip(f"no {cluster.title} cluster: {error}")
    yield
    if not was_up:
        cluster.down()


@pytest.fixture(scope="session")
def flink() -> Iterator[None]:
    with running(FLINK):
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[None]:
    with running(SPARK):
        yield
