"""One key, one release: whatever the runner, the retries, the cuts into files or the order of the records."""

from __future__ import annotations

import gzip
import json
import pickle
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import das
from das.demo.starter import write_starter
from das.runner import find_runner
from das.storage import shards
from pipelines.elements.arrays import Arrays

if TYPE_CHECKING:
    from conftest import World

Tree = Callable[[Path], dict[str, str]]
MULTI_PROCESS = ("--runner=multi-process", "--direct_num_workers=2")


def again(world: World, out: Path, key: str, options: Sequence[str] = ()) -> Path:
    das.run(world.plan, out=out, testing_key=key, options=options)
    return out / "release"


def test_another_key_gives_other_measurements_of_the_same_facts(country: World, tmp_path: Path, tree: Tree) -> None:
    find_runner().run(country.plan, tmp_path / "other", upto="measure", testing_key="another")
    ours, theirs = (tree(release) for release in (tmp_path / "other" / "release", country.release))
    for name in ours:
        if name.endswith(".parquet"):
            assert (ours[name] == theirs[name]) == name.startswith("facts/")


@pytest.mark.slow
def test_the_same_key_gives_the_same_bytes(world: World, tmp_path: Path, tree: Tree) -> None:
    assert tree(again(world, tmp_path / "same", world.out.parent.name[:-1])) == tree(world.release)


def test_bundles_that_run_twice_change_nothing_and_no_element_is_pickled(
    country: World, tmp_path: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a runner may do after a lost worker: run a bundle again, its results already there."""

    def refuse(*_: object) -> None:
        raise TypeError("an element was pickled")

    monkeypatch.setattr(Arrays, "__reduce_ex__", refuse, raising=False)
    with pytest.raises(TypeError):
        pickle.dumps(Arrays({}))
    repeated = again(country, tmp_path / "repeated", "country", ("--direct_runner_bundle_repeat=2",))
    assert tree(repeated) == tree(country.release)


@pytest.mark.slow
def test_worker_processes_change_nothing(world: World, tmp_path: Path, tree: Tree) -> None:
    assert tree(again(world, tmp_path / "out", world.out.parent.name[:-1], MULTI_PROCESS)) == tree(world.release)


@pytest.mark.slow
@pytest.mark.usefixtures("unconfined")
def test_levels_cut_into_shards_hold_the_same(
    country: World, tmp_path: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "NUMBERS_PER_SHARD", 40)  # three units of 13 numbers
    cut = again(country, tmp_path / "cut", "country")
    names = set(tree(cut))
    assert {
        "measurements/village.parquet/part-00003-of-00004.parquet",
        "counts/district.parquet/part-00001-of-00002.parquet",
    } <= names
    for level in country.plan.levels:
        assert (country.counts(level, cut) == country.counts(level)).all()
        for kind in ("measurements", "counts", "counts/diagnostics"):
            one, several = (pd.read_parquet(r / kind / f"{level}.parquet") for r in (country.release, cut))
            assert several.equals(one.astype(several.dtypes.to_dict()))
    assert {n: d for n, d in tree(cut / "tables").items() if n[0] != "_"} == {
        n: d for n, d in tree(country.release / "tables").items() if n[0] != "_"
    }
    assert sorted(path.name for path in (cut / "microdata").iterdir()) == [
        "_committed.json",
        "records.csv",
        "records.parquet",
    ]
    one, several = (r / "microdata" / "records.csv" for r in (country.release, cut))
    assert several.read_bytes() == one.read_bytes()
    assert pd.read_parquet(several.with_suffix(".parquet")).equals(pd.read_parquet(one.with_suffix(".parquet")))
    facts = pd.concat(pd.read_parquet(path) for path in sorted((cut / "facts").glob("prov*")))
    assert facts.astype(str).equals(pd.read_parquet(country.release / "facts" / "province.parquet").astype(str))
    before = tree(cut)
    assert tree(again(country, tmp_path / "cut", "country")) == before


def test_the_order_and_the_files_of_the_records_do_not_matter(country: World, tmp_path: Path, tree: Tree) -> None:
    """The same people shuffled, and split over a compressed CSV file and a Parquet file of many row groups."""
    config = write_starter(tmp_path / "input")
    header, *rows = (tmp_path / "input" / "people.csv").read_text().splitlines()
    random.Random(7).shuffle(rows)
    with gzip.open(tmp_path / "input" / "some.csv.gz", "wt") as file:
        file.write("\n".join([header, *rows[:60]]) + "\n")
    columns = zip(*(row.split(",") for row in rows[60:]), strict=True)
    table = pa.table(dict(zip(header.split(","), map(list, columns), strict=True)))
    pq.write_table(table, tmp_path / "input" / "more.parquet", row_group_size=7)
    config.write_text(config.read_text().replace('"people.csv"', '["some.csv.gz", "*.parquet"]'))
    find_runner().run(das.load(config), tmp_path / "out", upto="measure", testing_key="country")
    ours, theirs = (tree(release) for release in (tmp_path / "out" / "release", country.release))
    assert {name for name in ours if ours[name] != theirs[name]} == {"measurements/_committed.json"}
    record = json.loads((tmp_path / "out" / "release" / "measurements" / "_committed.json").read_bytes())
    # The config's own words, and neither the files' names nor their number.
    assert [each["name"] for each in record["inputs"]] == ["some.csv.gz, *.parquet"]
