"""Benchmarks on block counts of a real state: what they need, and what they find."""

from __future__ import annotations

from pathlib import Path

import pytest

from das.bench import matched, measure
from das.bench.coverage_releases import rows
from das.errors import UsageError


def test_counts_are_needed_and_are_refused_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--counts: is missing"):
        matched.rows()
    with pytest.raises(UsageError, match="means nothing to `das bench noise`"):
        measure("noise", counts=tmp_path / "blocks.csv")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_intervals_of_twenty_releases_of_rhode_island_hold_the_truth(rhode_island: Path) -> None:
    """Every level and query, and two hundred random areas with random selections of labels."""
    found = {row["name"].removeprefix("releases: "): row for row in rows(rhode_island, runs=20)}
    assert len(found) == 21
    for name, row in found.items():
        if row["replications"] >= 4_000:  # fewer cannot tell 94 from 96
            assert 0.94 < row["coverage"] < 0.96, name
            assert row["coverage_cut"] > 0.94, name
    assert 0.92 < found["levels of few geounits together"]["coverage"] < 0.98


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_methods_are_compared_at_one_epsilon_on_rhode_island(rhode_island: Path) -> None:
    found = matched.rows(counts=rhode_island, runs=2)
    assert [row["name"].partition(" ")[0] for row in found] == ["state", "county", "tract", "block_group", "block"]
    for row in found:
        assert row["prior"] == "none"
        assert 0.999 * row["effective_epsilon"] < row["congenial_epsilon"] <= row["effective_epsilon"]
    assert all(row["peer"] < row["ours"] < row["raw_noise"] for row in found[2:])
