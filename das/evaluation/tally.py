"""What repeated runs say of one query at one level: means with their standard errors, and which way each area leans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from das.evaluation.bias import b_of, signed_squares
from das.evaluation.metrics import bias, by_population, mae, mean_by_population, rmse
from das.evaluation.truth import Compared

__all__ = ["Tally", "mean_and_error"]

MEASURES = {"bias": bias, "mae": mae, "rmse": rmse}


@dataclass
class Tally:
    """The runs so far; it grows by :meth:`add`, run by run, because their counts together would not fit in memory."""

    cells: int = 0
    scores: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in MEASURES})
    bins: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    # Of every cell that was ever wrong: where it is, its truth, and its squared errors over runs by sign.
    key: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    true: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    squares: NDArray[np.float64] = field(default_factory=lambda: np.zeros((4, 0)))

    def add(self, compared: Compared) -> None:
        """Add one run."""
        self.cells = compared.cells
        published, true, unlisted = compared.published, compared.true, compared.unlisted
        for name, measure in MEASURES.items():
            self.scores[name].append(measure(published, true, unlisted=unlisted))
        if compared.query.size == 1:
            for row in by_population(published, true, unlisted=unlisted):
                self.bins.setdefault(row["bin"], []).append(row)
        wrong = published != true
        key, place = np.unique(np.concatenate([self.key, compared.key[wrong]]), return_inverse=True)
        before, now = place[: len(self.key)], place[len(self.key) :]
        squares, truths = np.zeros((4, len(key))), np.zeros(len(key))
        squares[:, before] = self.squares
        squares[:, now] += signed_squares((published - true)[wrong])
        truths[before], truths[now] = self.true, true[wrong]
        self.key, self.true, self.squares = key, truths, squares

    def row(self) -> dict[str, Any]:
        """Means over runs with their standard errors, and the mean over areas of B."""
        found: dict[str, Any] = {"cells": self.cells}
        for name, scores in self.scores.items():
            found |= mean_and_error(name, scores)
        lean = b_of(self.squares)
        found["jason_b"] = _mean(lean)
        found["jason_b_same_sign"] = _mean(b_of(self.squares, "same-sign"))
        if self.bins:
            leaning = mean_by_population(lean, self.true)
            found["bins"] = [_bin(name, rows) | {"jason_b": leaning.get(name)} for name, rows in self.bins.items()]
        return found

    def change(self, base: Tally) -> dict[str, Any]:
        """How far mae and rmse lie from those of another plan in the same runs, in percent, with standard errors."""
        found: dict[str, Any] = {}
        for name in ("mae", "rmse"):
            ours, theirs = np.array(self.scores[name]), np.array(base.scores[name])
            if not theirs.any():
                found |= {name: float("nan"), f"{name}_se": float("nan")}
                continue
            # Delta method for a ratio of paired means: r = mean(b) / mean(a), se = sd(b - r a) / (mean(a) sqrt(n)).
            ratio = ours.mean() / theirs.mean()
            spread = mean_and_error("r", (ours - ratio * theirs).tolist())["r_se"]
            found |= {name: float(100 * (ratio - 1)), f"{name}_se": float(100 * spread / theirs.mean())}
        return found


def _bin(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"bin": name, "cells": rows[0]["cells"]}
    for measure in MEASURES:
        found |= mean_and_error(measure, [row[measure] for row in rows])
    return found


def mean_and_error(name: str, scores: Sequence[float]) -> dict[str, float]:
    """Mean over runs and its standard error, sd / sqrt(n), which a single run does not have.

    Examples
    --------
    >>> mean_and_error("mae", [1.0, 3.0])
    {'mae': 2.0, 'mae_se': 1.0}
    """
    error = float(np.std(scores, ddof=1) / np.sqrt(len(scores))) if len(scores) > 1 else float("nan")
    return {name: float(np.mean(scores)), f"{name}_se": error}


def _mean(values: NDArray[np.float64]) -> float:
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if defined.size else float("nan")
