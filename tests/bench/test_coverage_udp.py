"""The coverage rows of confidential estimators: their shape, and that they are reproducible; the slow one has power."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from das.bench.coverage_udp import CASES, rows
from das.bench.replications import pool_of_processes


def test_rows_have_the_shape_of_the_others_and_depend_on_the_seed_alone() -> None:
    with ThreadPoolExecutor(1) as pool:
        found, again = (rows(2, 5, pool, lambda row: None) for _ in range(2))
    assert found == again
    assert [row["name"] for row in found] == list(CASES)
    for row in found:
        assert set(row) == {"name", "coverage", "replications", "nominal"}
        assert 0 <= row["coverage"] <= 1
        assert row["replications"] == 2 * CASES[row["name"]][1]


@pytest.mark.slow
def test_intervals_cover() -> None:
    with pool_of_processes() as pool:
        found = rows(150, 2, pool, lambda row: None)
    for row in found:
        assert 0.90 <= row["coverage"] <= 0.99, row
