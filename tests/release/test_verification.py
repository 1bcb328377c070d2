"""A release read in small pieces: the summaries, put together, say what one reading of everything says."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import das
from das.release.published_shards import PublishedShards
from das.release.verification import Verified, hash_run, recorded_files, runs_of_files, runs_of_shards, verify_run
from das.storage import shards
from das.storage.layout import Layout
from geography import Spine

pytestmark = pytest.mark.slow
CONFIG = """\
[release]
name = "pieces"

[privacy]
framework = "zcdp"
rho = "1"

[input]
data = "generated"
histograms = "counts.csv"

[geography]
units = "units.csv"
levels = [{ name = "state", width = 1 }, { name = "county", width = 1 }, { name = "block", width = 1 }]

[[schema.attribute]]
name = "kind"
labels = ["a", "b", "c"]

[[schema.attribute]]
name = "sex"
labels = ["f", "m"]

[[invariant]]
query = "total"
level = "LEVEL"
reason = "seats"

[[bound]]
query = "kind"
level = "block"
sense = "<="
source = "beds.csv"

[strategy.geolevels]
state = "1/4"
county = "1/4"
block = "1/2"

[strategy.queries.all]
"kind * sex" = "1"
"""


ONE_FAMILY_A_SHARD = """
import sys, das
from das.storage import shards
shards.NUMBERS_PER_SHARD = 1
das.run(das.load(sys.argv[1]), out=sys.argv[2], testing_key="pieces")
"""


slow = pytest.mark.slow


@pytest.fixture(scope="module", params=[pytest.param("state", marks=slow), "county", pytest.param("block", marks=slow)])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of many shards, of which counties lie in several; some blocks have room for one kind alone.

    A process of its own makes it: where this one has several threads, the process behind the wall is no fork of it and
    would not see a patch.
    """
    folder = tmp_path_factory.mktemp("pieces")
    codes = [f"{s}{c}{b}" for s in range(3) for c in range(3) for b in range(5)]
    rng = np.random.default_rng(7)
    beds = np.where(rng.integers(0, 2, (len(codes), 3)) > 0, 9, 0)
    truth = np.minimum(rng.integers(0, 3, (len(codes), 3, 2)), beds[:, :, None])
    rows = [
        f"{code},{'abc'[k]},{'fm'[s]},{truth[i, k, s]}"
        for i, code in enumerate(codes)
        for k in range(3)
        for s in range(2)
    ]
    (folder / "counts.csv").write_text("\n".join(["geocode,kind,sex,count", *rows]) + "\n")
    (folder / "units.csv").write_text("\n".join(["geocode", *codes]) + "\n")
    lines = [",".join([code, *map(str, row)]) for code, row in zip(codes, beds.tolist(), strict=True)]
    (folder / "beds.csv").write_text("\n".join(["geocode,a,b,c", *lines]) + "\n")
    (folder / "config.toml").write_text(CONFIG.replace("LEVEL", request.param))
    command = [sys.executable, "-c", ONE_FAMILY_A_SHARD, folder / "config.toml", folder / "out"]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture
def release(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PublishedShards:
    """A copy of the release, which a test may change."""
    monkeypatch.setattr(shards, "NUMBERS_PER_SHARD", 1)  # a shard for each family
    copied = shutil.copytree(written, tmp_path / "written")
    folder = Layout(copied / "out").release
    return PublishedShards(das.load(copied / "config.toml"), folder, Spine.load(folder.facts / "spine.parquet"))


def read(published: PublishedShards) -> Verified:
    return Verified.of(verify_run(published, run) for run in runs_of_shards(published))


def as_one(published: PublishedShards, folder: Path, monkeypatch: pytest.MonkeyPatch) -> PublishedShards:
    """The same release with one file for each level."""
    one = type(published.release)(folder / "one")
    for name in ("counts", "facts", "measurements"):
        (one.path / name).mkdir(parents=True)
        for level in published.plan.levels:
            parts = [shard.path(published.release.path / name) for shard in published.of(level)]
            # Facts are listed query by query within a file.
            table = pa.concat_tables([pq.read_table(part) for part in parts])
            if name == "facts":
                table = table.sort_by([("query", "ascending"), ("sign", "ascending"), ("geocode", "ascending")])
            pq.write_table(table, one.path / name / f"{level}.parquet")
    monkeypatch.setattr(shards, "NUMBERS_PER_SHARD", 10**6)
    return PublishedShards(published.plan, one, published.spine)


def test_pieces_say_what_the_whole_says(
    release: PublishedShards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(release.of("block")) > 8
    pieces = read(release)
    whole = read(as_one(release, tmp_path, monkeypatch))
    assert pieces.problems == whole.problems == []
    assert set(pieces.stated) == set(whole.stated)
    assert pieces.classes == whole.classes
    assert (pieces.known.empty, pieces.known.exact) == (whole.known.empty, whole.known.exact)
    assert pieces.known.empty > 0
    assert pieces.crossed == whole.crossed
    assert Verified.from_json(json.loads(json.dumps(pieces.to_json()))) == pieces


def test_known_cells_are_those_of_a_count_cell_by_cell(release: PublishedShards) -> None:
    """An independent count: cells that a zero empties, and the only cell left of a total that is not zero."""
    plan, spine = release.plan, release.spine
    (level,) = (fact.level for fact in plan.invariants)
    leaves = spine.size("block")
    possible = np.ones((leaves, plan.schema.size), dtype=bool)
    for each in plan.levels:
        of_leaf = release.ancestors("block", 0, leaves)[each]
        for fact in release.facts_within(each, 0, spine.size(each)):
            if fact.sign != ">=":
                possible &= ~(fact.values == 0)[of_leaf][:, fact.query.index]
    unit = release.ancestors("block", 0, leaves)[level]
    left = np.array([possible[unit == u].sum() for u in range(spine.size(level))])
    (totals,) = (
        f.values[:, 0] for f in release.facts_within(level, 0, len(left)) if f.query.name == "total" and f.sign == "="
    )
    known = read(release).known
    assert known.empty == (~possible).sum()
    assert known.exact == ((left == 1) & (totals > 0)).sum()


def test_files_are_hashed_in_runs_as_one_by_one(release: PublishedShards, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("das.release.verification.FILES_TOGETHER", 4)
    recorded = recorded_files(release.plan, release.release)
    runs = runs_of_files(release.release, recorded)
    hashed = {name: entry for run in runs for name, entry in hash_run(release.release, run).items()}
    listed = json.loads(release.release.manifest.read_bytes())["outputs"]
    assert hashed == {name: entry for name, entry in listed.items() if "/" in name}
    assert {name: hashed[name]["sha256"] for name in recorded} == recorded


def rewritten(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(path)), path)


def test_a_shard_that_does_not_sum_is_found_among_many(release: PublishedShards) -> None:
    def one_more(table: pa.Table) -> pa.Table:
        counts = table["count"].to_pylist()
        counts[0] += 1
        return table.set_column(table.column_names.index("count"), "count", pa.array(counts))

    last = next(s for s in reversed(release.of("block")) if pq.read_metadata(s.path(release.release.counts)).num_rows)
    rewritten(last.path(release.release.counts), one_more)
    fresh = PublishedShards(release.plan, release.release, release.spine)
    assert "counts at block: do not sum to those at county" in [str(p) for p in read(fresh).problems]
