"""The population of the shape of 1940: its numbers, the same each time, and a run of a very small share."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from das.bench import census_1940, measure
from das.errors import UsageError
from das.plan.geography import spine_of
from das.plan.load import load


def test_the_shape_is_that_of_the_published_comparisons() -> None:
    codes = census_1940._codes(1.0)
    found = [len({code[:width] for code in codes}) for width in (1, 3, 7, 13)]
    assert found == [1, 49, 3_108, 155_216]
    assert sum(found) == 158_374
    assert census_1940.CELLS == 44_544


def test_a_share_is_written_as_counts_the_same_each_time(tmp_path: Path) -> None:
    written = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        config, people = census_1940.write_census(tmp_path / name, 0.0002)
        written.append((tmp_path / name / "counts.parquet").read_bytes())
    assert written[0] == written[1]
    table, plan = pq.read_table(tmp_path / "two" / "counts.parquet"), load(config)
    assert sum(table["count"].to_pylist()) == people
    assert people == pytest.approx(0.0002 * 132_000_000, rel=0.01)
    assert plan.schema.size == 44_544
    assert set(table["geocode"].to_pylist()) <= set(spine_of(plan).leaves.tolist())


def test_a_share_means_nothing_to_another_benchmark() -> None:
    with pytest.raises(UsageError, match="means nothing to `das bench noise`"):
        measure("noise", share=0.5)
    with pytest.raises(UsageError, match="--blocks"):
        measure("1940", blocks=5)


@pytest.mark.slow
def test_a_small_share_runs_end_to_end() -> None:
    found = measure("1940", share=0.00002)
    assert isinstance(found, dict)
    assert found["geounits"] == {"nation": 1, "state": 1, "county": 1, "district": 3}
    assert found["cells"] == 44_544
    assert set(found["cpu_milliseconds_per_geounit"]) == {"tabulate", "measure", "estimate", "publish", "report"}
