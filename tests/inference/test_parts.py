"""Parts: the partition's law, isolation of parts, failing estimators, pure steps, and workers that change nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from das.errors import ConfigError, InputError
from das.inference.confidential import parts as module
from das.inference.confidential.grid import Grid
from das.inference.confidential.parts import PartOptions, as_rows, estimate_parts, init, step
from das.inference.confidential.row_statistics import BUILT_IN, Statistic, as_statistic
from das.schema.query import Neighbours

MEAN = BUILT_IN["mean"]


@given(st.integers(2, 9), st.integers(9, 60), st.integers(0, 2**64))
def test_parts_are_disjoint_equal_and_hold_every_row(parts: int, n: int, seed: int) -> None:
    state = init(as_rows(np.arange(n)), PartOptions(parts=parts), seed)
    assert sorted(state.rows[:, 0].tolist()) == list(range(n))
    sizes = np.diff(state.starts)
    assert sizes.sum() == n
    assert sizes.max() - sizes.min() <= 1


def test_every_split_is_equally_likely() -> None:
    rows = as_rows(np.arange(4))
    seen = Counter(tuple(sorted(init(rows, PartOptions(parts=2), seed).rows[:2, 0])) for seed in range(3000))
    assert len(seen) == 6
    assert stats.chisquare(list(seen.values())).pvalue > 1e-6


def test_under_add_remove_rows_choose_parts_independently() -> None:
    rows, options = as_rows(np.arange(3)), PartOptions(parts=2, rows=3)
    sizes = Counter(int(init(rows, options, seed, Neighbours.ADD_REMOVE).starts[1]) for seed in range(2000))
    expected = 2000 * stats.binom(3, 0.5).pmf(range(4))
    assert stats.chisquare([sizes[i] for i in range(4)], expected).pvalue > 1e-6


@given(st.integers(0, 39), st.floats(-1e6, 1e6), st.integers(0, 2**32))
def test_one_row_changes_one_part(position: int, value: float, seed: int) -> None:
    rows = as_rows(np.arange(40.0))
    changed = rows.copy()
    changed[position] = value
    options = PartOptions(parts=5, bootstraps=3)
    one = estimate_parts(rows, MEAN, options, seed=seed).estimates
    two = estimate_parts(changed, MEAN, options, seed=seed).estimates
    assert (one != two).sum() <= 1


def test_a_failing_part_counts_as_the_midpoint_and_the_others_stay() -> None:
    def fails_on_large(rows: np.ndarray) -> float:
        if rows.max() == 99:
            raise ValueError("99")
        return float(rows.mean())

    rows, options = as_rows(np.arange(100.0)), PartOptions(parts=10)
    state = estimate_parts(rows, as_statistic(fails_on_large), options, seed=3)
    whole = estimate_parts(rows, MEAN, options, seed=3)
    failed = np.isnan(state.estimates[:, 0])
    assert failed.sum() == 1
    assert np.array_equal(state.estimates[~failed], whole.estimates[~failed])
    assert Grid(0, 100, bits=4).integers(state.estimates[failed, 0]).tolist() == [8]
    with pytest.raises(InputError, match=r"failed on a part \(ValueError\)"):
        estimate_parts(rows, as_statistic(fails_on_large), replace(options, on_failure="refuse"), seed=3)


@pytest.mark.parametrize("result", [np.nan, [1.0, 2.0], "text", None, [np.nan]])
def test_what_is_no_estimate_is_a_failure(result: object) -> None:
    def odd(rows: np.ndarray) -> object:
        return 1.0 if rows.max() == 19 else result

    state = estimate_parts(as_rows(np.arange(20.0)), as_statistic(odd), PartOptions(parts=4), seed=1)
    assert np.isnan(state.estimates).sum() == 3


def test_an_infinite_estimate_is_clipped() -> None:
    assert Grid(0, 1, bits=3).integers(np.array([np.inf, -np.inf])).tolist() == [8, 0]


def test_steps_are_pure_and_can_be_continued() -> None:
    rows, options = as_rows(np.arange(500.0)), PartOptions(parts=100, bootstraps=2)
    begun = init(rows, options, 7)
    one, info = step(begun, MEAN, options)
    again, same = step(begun, MEAN, options)
    assert np.array_equal(one.estimates, again.estimates, equal_nan=True)
    assert info == same
    assert begun.done == 0
    assert begun.estimates.shape == (0, 1)
    assert not one.estimates.flags.writeable
    done = estimate_parts(rows, MEAN, options, seed=7, state=one)
    assert np.array_equal(done.estimates, estimate_parts(rows, MEAN, options, seed=7).estimates)
    assert "estimates" not in repr(done)


def test_progress_is_told_to_the_end() -> None:
    told: list[tuple[str, int, int]] = []
    options = PartOptions(parts=130)
    estimate_parts(as_rows(np.arange(500.0)), MEAN, options, seed=1, progress=lambda *each: told.append(each))
    assert told[0] == ("parts", 3, 130)
    assert told[-1] == ("parts", 130, 130)


def test_bootstrap_weights_are_multinomial_with_the_size_of_all_rows() -> None:
    seen = []

    def look(rows: np.ndarray, weights: np.ndarray) -> float:
        seen.append(weights)
        return 0.0

    estimate_parts(as_rows(np.arange(12.0)), as_statistic(look), PartOptions(parts=3, bootstraps=500), seed=1)
    weights = np.array(seen)
    assert weights.shape == (1500, 4)
    assert (weights.sum(axis=1) == 12).all()
    assert weights.mean() == 3
    assert weights.var(axis=0) == pytest.approx(12 * 0.25 * 0.75, rel=0.2)


def test_the_jackknife_removes_the_leading_bias() -> None:
    """The plug-in variance of n rows is too small by 1/n; the jackknife makes it unbiased exactly."""

    def variance(rows: np.ndarray, weights: np.ndarray) -> float:
        mean = weights @ rows[:, 0] / weights.sum()
        return float(weights @ (rows[:, 0] - mean) ** 2 / weights.sum())

    rows = as_rows(np.random.default_rng(1).normal(size=30))
    options = PartOptions(parts=3, bias_correction="jackknife")
    state = estimate_parts(rows, as_statistic(variance), options, seed=1)
    expected = [state.rows[a:b, 0].var(ddof=1) for a, b in zip(state.starts, state.starts[1:], strict=False)]
    assert state.estimates[:, 0] == pytest.approx(expected)


@pytest.mark.parametrize("options", [{"bootstraps": 7}, {"bias_correction": "jackknife"}])
def test_batches_of_weights_change_nothing(options: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, chosen = as_rows(np.random.default_rng(1).normal(size=50)), PartOptions(parts=4, **options)
    whole = estimate_parts(rows, BUILT_IN["median"], chosen, seed=1).estimates
    monkeypatch.setattr(module, "BATCH_WEIGHTS", 30)
    assert estimate_parts(rows, BUILT_IN["median"], chosen, seed=1).estimates == pytest.approx(whole, abs=1e-12)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"parts": 1}, "parts: 1 is too few"),
        ({"parts": 2, "bootstraps": -1}, "bootstraps: -1 is too few"),
        ({"parts": 2, "bootstraps": 5, "bias_correction": "jackknife"}, "without bootstraps"),
    ],
)
def test_bad_options(options: dict, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        PartOptions(**options)


@pytest.mark.parametrize(
    ("data", "match"),
    [([], "not a table"), (["a"], "not an array of numbers"), ([[1, 2], [3]], "not an array"), (5.0, "not a table")],
)
def test_bad_data(data: object, match: str) -> None:
    with pytest.raises(InputError, match=match):
        as_rows(data)


def test_what_cannot_travel_stays_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORTH_WORKERS_SECONDS", -1.0)
    monkeypatch.setattr(module, "_in_processes", lambda *_: pytest.fail("it was sent"))
    state = estimate_parts(
        as_rows(np.arange(20.0)),
        Statistic(lambda rows, _: rows.mean(), "mine"),
        PartOptions(parts=4, workers=2),
        seed=1,
    )
    assert state.done == 4


@pytest.mark.slow
def test_workers_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, options = as_rows(np.random.default_rng(1).normal(size=1000)), PartOptions(parts=100, bootstraps=5)
    alone = estimate_parts(rows, BUILT_IN["median"], options, seed=9)
    monkeypatch.setattr(module, "WORTH_WORKERS_SECONDS", -1.0)
    together = estimate_parts(rows, BUILT_IN["median"], replace(options, workers=2), seed=9)
    assert np.array_equal(alone.estimates, together.estimates)
    assert together.done == 100


@pytest.mark.parametrize("name", ["mean", "median", "proportion"])
def test_a_weight_is_a_number_of_copies(name: str) -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        rows, weights = rng.integers(0, 4, (9, 1)).astype(float), rng.integers(0, 3, (2, 9)).astype(float)
        weights[:, 0] += 1
        found = BUILT_IN[name].values(rows, weights)[:, 0]
        copies = [np.repeat(rows[:, 0], each.astype(int)) for each in weights]
        oracle = {"mean": np.mean, "median": np.median, "proportion": lambda x: np.mean(x != 0)}[name]
        assert found == pytest.approx([oracle(each) for each in copies])


def test_ols_agrees_with_least_squares_of_copied_rows() -> None:
    rng = np.random.default_rng(4)
    rows, weights = rng.normal(size=(30, 3)), rng.integers(0, 3, (4, 30)).astype(float)
    for found, each in zip(BUILT_IN["ols"].values(rows, weights)[:, 0], weights, strict=True):
        copied = np.repeat(rows, each.astype(int), axis=0)
        design = np.column_stack([copied[:, 1:], np.ones(len(copied))])
        assert found == pytest.approx(np.linalg.lstsq(design, copied[:, 0], rcond=None)[0][0])
