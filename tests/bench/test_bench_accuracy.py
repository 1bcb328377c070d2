"""The benchmark of accuracy: its rows, on a state of a few blocks."""

from __future__ import annotations

import pytest

from das.bench.accuracy import BLUEDOWN, rows
from das.demo import generate


def test_rows_say_what_is_gained_from_the_same_measurements():
    found = rows(blocks=120, states=(1, 2), runs=1)
    assert [(row["level"], row["query"]) for row in found] == list(BLUEDOWN)
    for row in found:
        assert row["gain_percent"] == pytest.approx(100 * (1 - row["ours"] / row["peer"]))
        assert row["ratio"] == (pytest.approx(row["peer"] / row["ours"]) if row["ours"] else None)
        assert row["gain_percent_se"] >= 0
    detailed = next(row for row in found if (row["level"], row["query"]) == ("tract", "detailed"))
    assert detailed["gain_percent"] > 10  # most of what there is to tell apart


def test_the_shape_of_a_state_can_be_asked_for():
    few, many = (generate(blocks=600, people=100, blocks_per_group=size, tracts_per_county=2) for size in (60, 20))
    groups = [len({code[:12] for code in state.geocodes.tolist()}) for state in (few, many)]
    assert groups == [10, 30]
    assert len({code[:5] for code in many.geocodes.tolist()}) == 5
