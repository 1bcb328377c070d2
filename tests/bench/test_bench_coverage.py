"""`das bench coverage`: every study runs, rows have what they must have, and good and bad methods are told apart."""

from __future__ import annotations

import numpy as np
import pytest

from das.bench import NAMES, coverage
from das.bench.coverage_likelihood import STUDIES, rows


def test_coverage_is_a_benchmark_and_a_missing_module_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "coverage" in NAMES
    monkeypatch.setattr(coverage, "MODULES", ("das.bench.coverage_of_nothing",))
    assert coverage.rows() == []
    assert coverage.REPLICATIONS >= 1_000


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_decided_by_its_seed(name: str) -> None:
    study = STUDIES[name].replicate
    assert study(np.random.default_rng(3)) == study(np.random.default_rng(3))


@pytest.mark.slow
def test_claimed_coverage_holds_and_naive_intervals_do_not() -> None:
    found = rows(60, seed=1)
    assert [row["name"] for row in found] == list(STUDIES)
    for row in found:
        assert row["replications"] == 60 * STUDIES[row["name"]].times
        assert row["nominal"] == 0.95
        assert (row["coverage"] >= 0.88) == row["claimed"], row["name"]
