"""`das bench synthesis` on a small file: its rows, and what it checks; and the recipes of the generated files."""

from __future__ import annotations

import numpy as np
import pytest

from das.bench.census_like import employment, households
from das.bench.synthesis import rows
from das.synthesis.curator import Records


@pytest.mark.parametrize("recipe", [households, employment])
def test_recipes_repeat_and_keep_their_zeros(recipe) -> None:  # type: ignore[no-untyped-def]
    file, again, other = recipe(seed=3, n=2_000), recipe(seed=3, n=2_000), recipe(seed=4, n=2_000)
    assert np.array_equal(file.codes, again.codes)
    assert not np.array_equal(file.codes, other.codes)
    records = Records(file.domain, file.codes)
    records.check(file.constraints)
    assert all((records.counts((name,)) > 0).sum() >= 2 for name in file.domain.names)


@pytest.mark.slow
def test_rows_of_the_benchmark() -> None:
    model, placed, controlled = rows(repetitions=1, n=20_000)
    assert [row["name"].split(",")[0] for row in (model, placed, controlled)] == ["synthesis model"] + [
        "synthesis rows"
    ] * 2
    for row in (model, placed, controlled):
        assert row["checked"].startswith("all runs")
        assert row["ratio"] == pytest.approx(row["peer"] / row["ours"])
        assert 0 < row["ours"] < row["peer"] < 0.3
    assert controlled["ours"] == pytest.approx(model["ours"], rel=0.1), "controlled rows lose almost nothing"
