"""A run whose blocks have exact totals and kinds of beds: plain sums let a parent ask for what no block can give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import das
from das.plan.load import load
from das.release.conformance import broken_in, problems_of
from das.release.published_shards import PublishedShards
from das.storage.layout import Layout
from geography import Spine

CONFIG = """
[release]
name = "beds"

[privacy]
framework = "zcdp"
rho = "1/50"

[input]
data = "generated"
histograms = ["counts.csv"]

[geography]
units = "units.csv"
levels = [{ name = "state", width = 1 }, { name = "county", width = 1 }, { name = "block", width = 1 }]

[schema]
attribute = [{ name = "kind", labels = ["a", "b", "c", "d"] }, { name = "sex", labels = ["f", "m"] }]

[strategy]
geolevels = { state = "1/3", county = "1/3", block = "1/3" }
queries = { all = { total = "1/2", detailed = "1/2" } }

[[invariant]]
query = "total"
level = "block"
reason = "seats"

[[bound]]
query = "kind"
level = "block"
sense = "<="
source = "beds.csv"
factor = 1000
missing = "zero"

[estimate]
information = "INFORMATION"
"""


@pytest.mark.slow
@pytest.mark.parametrize("information", ["level", "full"])
def test_a_run_with_joint_limits_ends_well(tmp_path: Path, information: str) -> None:
    rng = np.random.default_rng(5)
    codes = [f"1{county}{block}" for county in range(3) for block in range(6)]
    beds = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]])[rng.integers(0, 3, len(codes))]
    truth = rng.poisson(1.5, (len(codes), 4, 2)) * beds[:, :, None]
    (tmp_path / "units.csv").write_text("geocode\n" + "\n".join(codes) + "\n")
    rows = [
        f"{code},{'abcd'[k]},{'fm'[s]},{truth[i, k, s]}"
        for i, code in enumerate(codes)
        for k in range(4)
        for s in range(2)
    ]
    (tmp_path / "counts.csv").write_text("\n".join(["geocode,kind,sex,count", *rows]) + "\n")
    lines = [",".join([code, *map(str, row)]) for code, row in zip(codes, beds.tolist(), strict=True)]
    (tmp_path / "beds.csv").write_text("\n".join(["geocode,a,b,c,d", *lines]) + "\n")
    (tmp_path / "config.toml").write_text(CONFIG.replace("INFORMATION", information))
    plan = load(tmp_path / "config.toml")
    das.run(plan, out=tmp_path / "out", testing_key=information)
    release = Layout(tmp_path / "out").release
    published = PublishedShards(plan, release, Spine.load(release.facts / "spine.parquet"))
    assert problems_of(broken_in(published, shard) for level in plan.levels for shard in published.of(level)) == []
    facts = pq.read_table(release.facts / "county.parquet")
    assert any(" in " in name for name in facts["query"].to_pylist())
    counts = pq.read_table(release.counts / "block.parquet").to_pandas()
    found = counts.groupby("geocode")["count"].sum()
    assert found.to_dict() == {c: n for c, n in zip(codes, truth.sum(axis=(1, 2)).tolist(), strict=True) if n}
