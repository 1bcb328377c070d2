"""Measures of error against loops over every cell, the unlisted ones written out."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.evaluation.bins import POPULATION_EDGES, bin_names, by_population, mean_by_population
from das.evaluation.metrics import (
    absolute_error_quantile,
    errors_of,
    mae,
    relative_outlier_share,
    summary,
)

CELLS = st.lists(st.tuples(st.integers(-3, 60), st.integers(0, 60)), max_size=30)
UNLISTED = st.integers(0, 12)


def same(found: float, expected: float) -> bool:
    return math.isclose(found, expected, rel_tol=1e-12, abs_tol=1e-12) or (math.isnan(found) and math.isnan(expected))


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def brute_force(cells: list[tuple[int, int]], beyond: float) -> dict[str, float]:
    """One cell after the other, straight from the definitions."""
    e = [p - x for p, x in cells]
    some = [(p, x) for p, x in cells if x > 0]
    root = math.sqrt(mean([v**2 for v in e])) if e else math.nan
    people = sum(x for _, x in cells)
    ordered = sorted(abs(v) for v in e)
    deciles = statistics.quantiles(ordered, n=10, method="inclusive") if len(ordered) > 1 else ordered * 9
    return {
        "cells": len(cells),
        "true_mean": people / len(cells) if cells else math.nan,
        "mae": mean([abs(v) for v in e]),
        "rmse": root,
        "mape": 100 * mean([abs(p - x) / x for p, x in some]),
        "mape_left_out": len(cells) - len(some),
        "bias": mean(e),
        "malpe": 100 * mean([(p - x) / x for p, x in some]),
        "cov": 100 * root * len(cells) / people if people else math.nan,
        "tae": sum(ordered),
        "total_variation": moved(cells),
        "median_absolute_error": statistics.median(ordered) if ordered else math.nan,
        "p90_absolute_error": deciles[8] if deciles else math.nan,
        "p95_absolute_error": float(np.quantile(ordered, 0.95)) if ordered else math.nan,
        "p99_absolute_error": float(np.quantile(ordered, 0.99)) if ordered else math.nan,
        "largest_absolute_error": ordered[-1] if ordered else math.nan,
        "outlier_beyond": beyond,
        "outlier_share": mean([abs(p - x) > beyond * x for p, x in some]),
        "outliers": sum(abs(p - x) > beyond * x for p, x in some),
        "false_zero_share": mean([p <= 0 for p, _ in some]),
        "false_zeros": sum(p <= 0 for p, _ in some),
        "false_positive_share": mean([p > 0 for p, x in cells if x == 0]),
        "false_positives": sum(p > 0 for p, x in cells if x == 0),
    }


def moved(cells: list[tuple[int, int]]) -> float:
    shown, real = (sum(cell[side] for cell in cells) for side in (0, 1))
    return sum(abs(p / shown - x / real) for p, x in cells) / 2 if shown and real else math.nan


@given(cells=CELLS, unlisted=UNLISTED, beyond=st.sampled_from([0.05, 0.1, 0.5]))
def test_every_measure_equals_its_definition(cells, unlisted, beyond):
    published, true = [p for p, _ in cells], [x for _, x in cells]
    found = summary(published, true, unlisted=unlisted, outlier=beyond)
    expected = brute_force(cells + [(0, 0)] * unlisted, beyond)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert same(found[name], value), name


@given(cells=CELLS, unlisted=UNLISTED, q=st.floats(0, 1))
def test_quantiles_are_those_of_numpy(cells, unlisted, q):
    published, true = [p for p, _ in cells], [x for _, x in cells]
    if not len(cells) + unlisted:
        assert math.isnan(absolute_error_quantile(published, true, q))
        return
    everything = np.abs(np.array([p - x for p, x in cells] + [0] * unlisted))
    assert absolute_error_quantile(published, true, q, unlisted=unlisted) == pytest.approx(np.quantile(everything, q))


@given(cells=CELLS, unlisted=UNLISTED, edges=st.sampled_from([POPULATION_EDGES, (0,), (0, 3, 20)]))
def test_bins_part_the_cells(cells, unlisted, edges):
    rows = by_population([p for p, _ in cells], [x for _, x in cells], edges=edges, unlisted=unlisted)
    everything = cells + [(0, 0)] * unlisted
    ends = [*edges[1:], math.inf]
    expected = {}
    for name, low, end in zip(bin_names(edges), edges, ends, strict=True):
        inside = [(p, x) for p, x in everything if low <= x < end]
        if inside:
            expected[name] = brute_force(inside, 0.05)
    assert [row["bin"] for row in rows] == list(expected)
    for row in rows:
        assert all(same(row[name], value) for name, value in expected[row["bin"]].items())


def test_bins_by_the_population_of_the_area():
    rows = by_population([1, 5, 9], [2, 5, 7], population=[60, 60, 4000], edges=(0, 100))
    assert [(row["bin"], row["cells"], row["bias"]) for row in rows] == [("0-99", 2, -0.5), ("100+", 1, 2.0)]
    with pytest.raises(ValueError, match="unlisted"):
        by_population([1], [2], population=[60], unlisted=1)
    with pytest.raises(ValueError, match="same shape"):
        by_population([1], [2], population=[60, 70])


def test_default_bins_are_named_as_people_name_them():
    assert bin_names() == [
        "0",
        "1-9",
        "10-49",
        "50-99",
        "100-249",
        "250-499",
        "500-999",
        "1,000-4,999",
        "5,000-49,999",
        "50,000+",
    ]


@pytest.mark.parametrize("edges", [(), (1, 2), (0, 5, 5), (0, 9, 3)])
def test_edges_must_begin_at_zero_and_ascend(edges):
    with pytest.raises(ValueError, match="ascend"):
        bin_names(edges)


def test_means_by_population_leave_out_what_is_not_defined():
    found = mean_by_population([1.0, np.nan, -1.0, 0.5], [0, 0, 3, 4], edges=(0, 1, 10))
    assert found == {"0": 1.0, "1-9": -0.25}
    assert mean_by_population([], []) == {}


def test_outliers_are_beyond_the_limit_and_not_at_it():
    assert relative_outlier_share([105, 106], [100, 100]) == 0.5


def test_a_cell_needs_both_numbers():
    with pytest.raises(ValueError, match="shape"):
        mae([1, 2], [1])
    with pytest.raises(ValueError, match="negative"):
        mae([1], [-1])


def test_tables_are_flattened():
    assert errors_of([[1, 2], [3, 4]], [[0, 0], [0, 9]]).tolist() == [1, 2, 3, -5]
