"""Measures of places, ranks, shares and areas, against tables worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.evaluation.areas import compared_in
from das.evaluation.metrics import summary
from das.evaluation.places import Places, consumer_view, describe, running, worst
from das.evaluation.ranking import rank_changes
from das.evaluation.shares import by_share, shares_of
from das.evaluation.truth import Compared
from das.schema.counts import ProtectedCounts
from das.schema.query import parse_query
from das.schema.schema import Attribute, Schema
from geography import Areas

SCHEMA = Schema((Attribute("sex", ("f", "m")),))
SEX = parse_query(SCHEMA, "sex")

#                     A   B   C    D    E    F
TRUE = np.array([0.0, 0, 4, 40, 100, 200])
PUBLISHED = np.array([3.0, 0, 0, 44, 98, 190])
ESTIMATE = np.array([1.0, -2, 3, 42, 99, 180])


def six_villages() -> Places:
    return Places(
        level="village",
        on_spine=True,
        codes=np.array(list("ABCDEF")),
        published=PUBLISHED,
        true=TRUE,
        estimate=ESTIMATE,
        deviation=np.full(6, 5.0),
        noise_std_dev=8.0,
    )


def test_a_summary_of_six_villages() -> None:
    """Errors 3, 0, -4, 4, -2, -10."""
    found = summary(PUBLISHED, TRUE)
    assert found["mae"] == pytest.approx(23 / 6)
    assert found["rmse"] == pytest.approx(np.sqrt(145 / 6))
    assert found["bias"] == pytest.approx(-9 / 6)
    assert found["mape"] == pytest.approx(100 * (1 + 0.1 + 0.02 + 0.05) / 4)
    assert found["cov"] == pytest.approx(100 * np.sqrt(145 / 6) / (344 / 6))
    shares = np.abs(PUBLISHED / 335 - TRUE / 344)
    assert found["total_variation"] == pytest.approx(shares.sum() / 2)
    assert (found["median_absolute_error"], found["largest_absolute_error"]) == (3.5, 10.0)
    assert (found["outliers"], found["false_zeros"], found["false_positives"]) == (2, 1, 1)


def test_what_is_told_of_the_villages() -> None:
    found = describe(six_villages())
    assert (found["empty"], found["empty_published_inhabited"], found["inhabited_published_empty"]) == (2, 1, 1)
    # by size, true A B | C | D E F, published B C | A | D E F: A has rank 3 for 1.5, C 1.5 for 3
    assert found["ranking"]["moved"] == 2
    assert found["ranking"]["most_ranks"] == 1.5
    assert found["stated_std_dev"] == 5.0
    assert found["error_quantiles"]["p50"] == -1.0
    assert [row["place"] for row in found["worst"]] == ["A", "C", "D", "F", "E"]  # 3, 1, 0.1, 0.05, 0.02 of the size


def test_both_views_of_the_villages() -> None:
    rows = {row["bin"]: row for row in consumer_view(six_villages())}
    assert rows["0"]["producer_places"] == rows["0"]["consumer_places"] == 2
    assert rows["0"]["producer_bias"] == 1.5  # A and B
    assert rows["0"]["consumer_bias"] == 2.0  # B and C: published as empty, two people on average
    assert rows["1-9"]["producer_bias"] == -4.0  # C
    assert rows["1-9"]["consumer_bias"] == -3.0  # A
    assert rows["0"]["half_width"] == pytest.approx(9.8)
    assert rows["0"]["linear_bias"] == -0.5  # A and B: 1 and -2 for nobody
    assert rows["100-249"]["linear_bias"] == -10.5  # E and F: -1 and -20
    assert rows["100-249"]["producer_places"] == 2
    assert rows["100-249"]["consumer_places"] == 1
    assert rows["100-249"]["coverage"] == 0.0  # F: 180 is more than 9.8 from 200
    assert rows["50-99"]["coverage"] == 1.0


def test_places_without_intervals_have_none() -> None:
    village = six_villages()
    unknown = Places(
        level="area",
        on_spine=False,
        codes=village.codes,
        published=village.published,
        true=village.true,
        estimate=np.full(6, np.nan),
        deviation=np.full(6, np.nan),
        noise_std_dev=None,
    )
    assert all(np.isnan(row["half_width"]) and np.isnan(row["coverage"]) for row in consumer_view(unknown))
    assert np.isnan(describe(unknown)["stated_std_dev"])


def test_the_running_average_follows_a_line() -> None:
    """Two hundred places whose error is their size: a window's mean error is its mean size; empty ones are apart."""
    size = np.arange(1.0, 201.0)
    rows = running(np.append(size, [7.0, 9.0]), np.append(size, [0.0, 0.0]))
    assert (rows[0]["size"], rows[0]["places"], rows[0]["bias"]) == (0.0, 2, 8.0)
    assert all(row["bias"] == pytest.approx(row["size"]) and row["places"] == 20 for row in rows[1:])
    assert rows[1]["size"] == pytest.approx(10.5)
    assert rows[-1]["size"] == pytest.approx(190.5)
    assert all(row["jason_b"] == 1.0 for row in rows)


def test_nowhere_is_worst_without_errors() -> None:
    village = six_villages()
    right = Places(
        level="v",
        on_spine=True,
        codes=village.codes,
        published=TRUE,
        true=TRUE,
        estimate=ESTIMATE,
        deviation=np.ones(6),
        noise_std_dev=1.0,
    )
    assert worst(right) == []
    assert describe(right)["ranking"]["moved"] == 0


def test_shares_of_two_places() -> None:
    """80:20 published as 70:30, and 1:99 published as 0:50; a third place is empty as published."""
    found = by_share([[70, 30], [0, 50], [0, 0]], [[80, 20], [1, 99], [2, 2]])
    assert (found["places"], found["left_out"], found["largest_group_within"]) == (2, 1, 0.5)
    rows = {row["bin"]: row for row in found["bins"]}
    assert rows["0-1 %"]["bias"] == pytest.approx(-1.0)
    assert rows["5-20 %"]["bias"] == pytest.approx(10.0)
    assert rows["50-100 %"]["cells"] == 2
    assert rows["50-100 %"]["mae"] == pytest.approx((10 + 1) / 2)


def test_shares_of_a_sparse_comparison_are_those_of_the_dense_one() -> None:
    published, true = np.array([[70, 30], [0, 0], [0, 50]]), np.array([[80, 20], [0, 0], [1, 99]])
    key = np.flatnonzero((published > 0).reshape(-1) | (true > 0).reshape(-1))
    sides = {"published": published.reshape(-1)[key] * 1.0, "true": true.reshape(-1)[key] * 1.0}
    found = shares_of(Compared(level="v", query=SEX, cells=6, key=key, **sides))
    assert found == by_share(published, true)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=2, max_size=12))
def test_tau_counts_pairs(places: list[tuple[int, int]]) -> None:
    shown, real = np.array(places).T
    found = rank_changes(shown, real)
    assert found["moved"] == sum(
        sum(shown < s) + sum(shown == s) / 2 != sum(real < r) + sum(real == r) / 2 for s, r in places
    )
    if len(set(shown)) == len(places) == len(set(real)):
        pairs = [(i, j) for i in range(len(places)) for j in range(i)]
        agree = sum(np.sign(shown[i] - shown[j]) * np.sign(real[i] - real[j]) for i, j in pairs)
        assert found["kendall_tau"] == pytest.approx(agree / len(pairs))


def test_areas_that_overlap_count_their_leaves_twice() -> None:
    areas = Areas(np.array(["P", "Q"]), np.array(["", ""]), np.array([[1, 1, 0], [0, 1, 0]]))
    shown = ProtectedCounts(np.array([0, 1, 2]), np.array([0, 1, 1]), np.array([5, 7, 9]))
    real = ProtectedCounts(np.array([1, 1, 2]), np.array([0, 1, 0]), np.array([2, 7, 9]))
    found = compared_in("place", areas, SEX, shown, real)
    dense = np.zeros((2, 4))
    dense[0, found.key], dense[1, found.key] = found.published, found.true
    assert dense.tolist() == [[5, 7, 0, 7], [2, 7, 2, 7]]  # P: f, m; Q: f, m
    assert (found.level, found.cells) == ("place", 4)
