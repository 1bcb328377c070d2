"""`das bench coverage`: every study runs, rows have what they must have, and good and bad methods are told apart."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from das.bench import NAMES, coverage
from das.bench.coverage_likelihood import STUDIES, rows
from das.bench.replications import Row, one_thread_each, pool_of_processes


def test_coverage_is_a_benchmark_and_a_missing_module_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "coverage" in NAMES
    monkeypatch.setattr(coverage, "MODULES", ("das.bench.coverage_of_nothing",))
    assert coverage.rows() == []
    assert coverage.REPLICATIONS >= 1_000


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_decided_by_its_seed(name: str) -> None:
    study = STUDIES[name].replicate
    assert study(np.random.default_rng(3)) == study(np.random.default_rng(3))


def threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info()}


def test_processes_of_the_pool_keep_to_one_thread() -> None:
    """A limit that is set before the libraries are loaded holds for none of them, and fits take ten times as long."""
    with ProcessPoolExecutor(1, get_context("spawn"), one_thread_each) as pool:
        assert pool.submit(threads).result() == {1}


def test_rows_are_told_when_they_are_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "MODULES", ("das.bench.coverage_intervals", "das.bench.coverage_udp"))
    monkeypatch.setattr(coverage, "pool_of_processes", lambda: ThreadPoolExecutor(1))
    told: list[Row] = []
    found = coverage.rows(replications=2, seed=3, finished=told.append)
    assert told == found
    assert all({"name", "coverage", "replications", "nominal"} <= set(row) for row in found)
    assert found == coverage.rows(replications=2, seed=3)


@pytest.mark.slow
def test_claimed_coverage_holds_and_naive_intervals_do_not() -> None:
    told: list[Row] = []
    with pool_of_processes() as pool:
        found = rows(60, 1, pool, told.append)
    assert told == found
    assert [row["name"] for row in found] == list(STUDIES)
    for row in found:
        assert row["replications"] == 60 * STUDIES[row["name"]].times
        assert row["nominal"] == 0.95
        assert (row["coverage"] >= 0.88) == row["claimed"], row["name"]
