"""Repeated runs against arrays of every cell in every run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from das.evaluation.bias import jason_b
from das.evaluation.tally import NOTHING, Tally
from das.evaluation.truth import Compared
from das.schema.query import parse_query
from das.schema.schema import Attribute, Schema

SCHEMA = Schema((Attribute("sex", ("f", "m")),))


def compared(query: str, published: np.ndarray, true: np.ndarray) -> Compared:
    listed = np.flatnonzero((published > 0) | (true > 0))
    return Compared(
        level="tract",
        query=parse_query(SCHEMA, query),
        cells=len(true),
        key=listed,
        published=published[listed].astype(float),
        true=true[listed].astype(float),
    )


@pytest.mark.parametrize("runs", [2, 7])
@pytest.mark.parametrize("query", ["total", "sex"])
def test_means_errors_and_leanings(runs, query):
    rng = np.random.default_rng(runs)
    true = rng.choice([0, 0, 1, 7, 30, 300], 40)
    published = np.maximum(true + rng.integers(-3, 4, (runs, 40)) * rng.integers(0, 2, (runs, 40)), 0)
    published[:, :5] = true[:5]  # some are never wrong
    tally = NOTHING
    for run in published:
        tally = tally.plus(Tally.of(compared(query, run, true)))
    row, errors = tally.row(), published - true
    for name, scores in (
        ("bias", errors.mean(axis=1)),
        ("mae", np.abs(errors).mean(axis=1)),
        ("rmse", np.sqrt((errors**2).mean(axis=1))),
    ):
        assert row[name] == pytest.approx(scores.mean())
        assert row[f"{name}_se"] == pytest.approx(scores.std(ddof=1) / np.sqrt(runs))
    assert row["cells"] == 40
    assert row["jason_b"] == pytest.approx(np.nanmean(jason_b(errors)))
    assert row["jason_b_same_sign"] == pytest.approx(np.nanmean(jason_b(errors, means="same-sign")))
    assert ("bins" in row) == (query == "total")
    for found in row.get("bins", ()):
        low = int(found["bin"].split("-")[0])
        inside = {0: true == 0, 1: (true >= 1) & (true < 10), 10: (true >= 10) & (true < 50)}.get(low, true >= 50)
        assert found["cells"] == inside.sum()
        assert found["mae"] == pytest.approx(np.abs(errors[:, inside]).mean(axis=1).mean())
        assert found["jason_b"] == pytest.approx(np.nanmean(jason_b(errors[:, inside])))


def test_a_single_run_has_no_standard_error_and_no_leaning():
    row = NOTHING.plus(Tally.of(compared("total", np.array([3, 0]), np.array([2, 1])))).row()
    assert row["mae"] == 1
    assert np.isnan(row["mae_se"])
    assert row["jason_b"] is None


def of_scores(scores: np.ndarray) -> Tally:
    return replace(NOTHING, scores=tuple({"mae": score, "rmse": 0.0} for score in scores.tolist()))


def test_the_error_of_a_change_is_that_of_many_comparisons():
    """Pairs that go together, 400 comparisons of 30 of them: the stated error is the spread of the stated changes."""
    rng = np.random.default_rng(5)
    changes, errors = [], []
    for _ in range(400):
        shared = rng.normal(0, 0.5, 30)
        base, other = 10 + shared + rng.normal(0, 0.2, 30), 8 + shared + rng.normal(0, 0.2, 30)
        found = of_scores(other).change_from(of_scores(base))
        changes.append(found["mae"])
        errors.append(found["mae_se"])
    assert np.mean(changes) == pytest.approx(-20, abs=0.1)
    assert np.mean(errors) == pytest.approx(np.std(changes), rel=0.12)
    unpaired = 100 * np.hypot(0.5, 0.2) * np.hypot(1, 0.8) / 10 / np.sqrt(30)
    assert np.mean(errors) < 0.6 * unpaired


def test_no_change_from_nothing():
    found = of_scores(np.array([1.0, 2.0])).change_from(of_scores(np.zeros(2)))
    assert np.isnan(found["mae"])
    assert np.isnan(found["mae_se"])
