"""JASON's B against loops over areas and runs, and against the pattern that it was made to show."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.evaluation.bias import b_of, jason_b, jason_b_window, signed_squares

MEANS = ["all-runs", "same-sign"]


def brute_b(errors: list[float], means: str) -> float:
    up, down = [e * e for e in errors if e > 0], [e * e for e in errors if e < 0]
    if not up and not down:
        return math.nan
    ups, downs = (len(errors), len(errors)) if means == "all-runs" else (max(len(up), 1), max(len(down), 1))
    s_up, s_down = sum(up) / ups, sum(down) / downs
    return (s_up - s_down) / (s_up + s_down)


@pytest.mark.parametrize("means", MEANS)
@given(errors=st.lists(st.lists(st.integers(-4, 4), min_size=3, max_size=3), min_size=1, max_size=8))
def test_b_of_each_area_over_runs(means, errors):
    expected = [brute_b([run[area] for run in errors], means) for area in range(3)]
    np.testing.assert_allclose(jason_b(errors, means=means), expected, rtol=1e-12)


@pytest.mark.parametrize("means", MEANS)
@given(errors=st.lists(st.integers(-4, 4), min_size=1, max_size=20))
def test_pooled_areas_are_as_runs_of_one(means, errors):
    np.testing.assert_allclose(jason_b(errors, means=means), brute_b(errors, means), rtol=1e-12)


@given(errors=st.lists(st.integers(-9, 9), min_size=1, max_size=20))
def test_b_lies_between_its_limits_and_turns_with_the_sign(errors):
    for means in MEANS:
        b = float(jason_b(errors, means=means))
        assert math.isnan(b) or -1 <= b <= 1
        np.testing.assert_allclose(jason_b([-e for e in errors], means=means), -b)


def test_sums_may_be_taken_in_pieces():
    errors = np.random.default_rng(1).integers(-5, 6, (10, 4))
    pieces = signed_squares(errors[:3]).sum(axis=1) + signed_squares(errors[3:]).sum(axis=1)
    for means in MEANS:
        np.testing.assert_array_equal(b_of(pieces, means), jason_b(errors, means=means))


def brute_window(errors: list[int], sizes: list[int], window: int, means: str) -> list[float]:
    """Window by window: ranks around the group of equals, moved inwards, then widened to whole groups."""
    order = sorted(range(len(sizes)), key=lambda area: sizes[area])
    n, out = len(sizes), []
    for area in range(n):
        equal = [rank for rank in range(n) if sizes[order[rank]] == sizes[area]]
        first, end = equal[0], equal[-1] + 1
        lacking = max(window - len(equal), 0)
        first -= lacking // 2
        end = max(end, first + window)
        if first < 0:
            first, end = 0, end - first
        if end > n:
            first, end = max(first - (end - n), 0), n
        inside = {sizes[order[rank]] for rank in range(first, end)}
        out.append(brute_b([e for e, size in zip(errors, sizes, strict=True) if size in inside], means))
    return out


@pytest.mark.parametrize("means", MEANS)
@given(
    areas=st.lists(st.tuples(st.integers(-4, 4), st.integers(0, 12)), min_size=1, max_size=25),
    window=st.integers(1, 12),
)
def test_windows_pool_areas_of_like_population(means, areas, window):
    errors, sizes = [e for e, _ in areas], [x for _, x in areas]
    found = jason_b_window(errors, sizes, window=window, means=means)
    np.testing.assert_allclose(found, brute_window(errors, sizes, window, means), rtol=1e-12)


@given(
    areas=st.lists(st.tuples(st.integers(-4, 4), st.integers(0, 6)), min_size=1, max_size=12),
    window=st.integers(1, 9),
    unlisted=st.integers(1, 9),
)
def test_areas_without_people_and_error_need_not_be_listed(areas, window, unlisted):
    errors, sizes = [e for e, _ in areas], [x for _, x in areas]
    found = jason_b_window(errors, sizes, window=window, unlisted=unlisted)
    listed = jason_b_window(errors + [0] * unlisted, sizes + [0] * unlisted, window=window)
    np.testing.assert_array_equal(found, listed[: len(areas)])


def test_a_window_that_holds_everything_pools_everything():
    errors, sizes = np.array([3, -1, 2, -2]), np.array([5, 1, 9, 7])
    assert (jason_b_window(errors, sizes, window=100) == jason_b(errors)).all()


def test_nothing_gives_nothing_and_nonsense_is_refused():
    assert jason_b_window([], []).size == 0
    with pytest.raises(ValueError, match="window"):
        jason_b_window([1], [1], window=0)
    with pytest.raises(ValueError, match="equal length"):
        jason_b_window([1, 2], [1])


def projected(noisy: np.ndarray, total: float) -> np.ndarray:
    """Nearest nonnegative numbers with the given sum: subtract a level and cut at zero (Held, Wolfe and Crowder)."""
    ordered = -np.sort(-noisy, axis=1)
    levels = (np.cumsum(ordered, axis=1) - total) / np.arange(1, noisy.shape[1] + 1)
    return np.maximum(noisy - levels.max(axis=1, keepdims=True), 0)


def test_nonnegative_counts_with_a_kept_total_lean_as_jason_saw():
    """A thousand cells, half of them below the noise: small ones lean up, large ones slightly down."""
    rng = np.random.default_rng(7)
    true = np.concatenate([rng.uniform(0, 20, 500), rng.uniform(20, 400, 500)])
    noisy = true + rng.normal(0, 20, (300, 1000))
    noise, errors = noisy - true, projected(noisy, true.sum()) - true
    for means in MEANS:
        lean = jason_b(errors, means=means)
        assert lean[true < 2].mean() > 0.95
        assert 0.1 < lean[(true >= 10) & (true < 20)].mean() < lean[true < 2].mean()
        assert -0.5 < lean[true >= 100].mean() < -0.05
        assert abs(jason_b(noise, means=means).mean()) < 0.02
    # One run alone shows the same, in windows.
    alone = jason_b_window(errors[0], true)
    assert alone[true < 2].mean() > 0.9
    assert alone[true >= 100].mean() < 0
