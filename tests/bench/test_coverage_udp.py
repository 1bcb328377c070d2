"""The coverage rows of confidential estimators: their shape, and that they are reproducible; the slow one has power."""

from __future__ import annotations

import pytest

from das.bench.coverage_udp import CASES, rows


def test_rows_have_the_shape_of_the_others_and_depend_on_the_seed_alone() -> None:
    found = rows(2, seed=5)
    assert found == rows(2, seed=5)
    assert [row["name"] for row in found] == list(CASES)
    for row in found:
        assert set(row) == {"name", "coverage", "replications", "nominal"}
        assert 0 <= row["coverage"] <= 1
        assert row["replications"] == 2 * CASES[row["name"]][1]


@pytest.mark.slow
def test_intervals_cover() -> None:
    for row in rows(150, seed=2):
        assert 0.90 <= row["coverage"] <= 0.99, row
