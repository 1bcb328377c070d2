"""Summary of repeated runs for one query at one level: means with standard errors, and the bias B of each area."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from das.evaluation.bias import b_of, signed_squares
from das.evaluation.bins import by_population, mean_by_population
from das.evaluation.metrics import bias, mae, rmse
from das.evaluation.truth import Compared

__all__ = ["NOTHING", "Tally", "mean_and_error"]

MEASURES = {"bias": bias, "mae": mae, "rmse": rmse}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Tally:
    """The runs so far, without their counts, which together would not fit in memory; confidential.

    Parameters
    ----------
    cells : int
        Geounits times answers.
    scores : tuple of dict
        The measures of each run.
    bins : tuple of list
        For a total, the bins of population of each run: the same bins each time, because the truth is.
    key, true : ndarray
        The cells that were ever wrong, ascending, and their true counts.
    squares : ndarray
        Sums over runs of their :func:`~das.evaluation.bias.signed_squares`.
    """

    cells: int
    scores: tuple[dict[str, float], ...]
    bins: tuple[list[dict[str, Any]], ...]
    key: NDArray[np.int64]
    true: NDArray[np.float64]
    squares: NDArray[np.float64]

    @classmethod
    def of(cls, compared: Compared) -> Tally:
        """Summarise one run."""
        published, true, unlisted = compared.published, compared.true, compared.unlisted
        wrong = published != true
        bins = [by_population(published, true, unlisted=unlisted)] if compared.query.size == 1 else []
        return cls(
            cells=compared.cells,
            scores=({name: f(published, true, unlisted=unlisted) for name, f in MEASURES.items()},),
            bins=tuple(bins),
            key=compared.key[wrong],
            true=true[wrong],
            squares=signed_squares((published - true)[wrong]),
        )

    def plus(self, later: Tally) -> Tally:
        """Add later runs."""
        key, place = np.unique(np.concatenate([self.key, later.key]), return_inverse=True)
        before, now = place[: len(self.key)], place[len(self.key) :]
        squares, truths = np.zeros((4, len(key))), np.zeros(len(key))
        squares[:, before] = self.squares
        squares[:, now] += later.squares
        truths[before], truths[now] = self.true, later.true
        return Tally(
            cells=later.cells,
            scores=(*self.scores, *later.scores),
            bins=(*self.bins, *later.bins),
            key=key,
            true=truths,
            squares=squares,
        )

    def row(self) -> dict[str, Any]:
        """Means over runs with their standard errors, and the mean of B over the areas that were ever wrong.

        A single run has no B per area.
        """
        found: dict[str, Any] = {"cells": self.cells}
        for name in MEASURES:
            found |= mean_and_error(name, [score[name] for score in self.scores])
        known = len(self.scores) > 1 and self.key.size > 0
        found["jason_b"] = float(b_of(self.squares).mean()) if known else None
        found["jason_b_same_sign"] = float(b_of(self.squares, "same-sign").mean()) if known else None
        if self.bins:
            lean = mean_by_population(b_of(self.squares), self.true) if known else {}
            found["bins"] = [
                _bin(rows) | {"jason_b": lean.get(rows[0]["bin"])} for rows in zip(*self.bins, strict=True)
            ]
        return found

    def change_from(self, base: Tally) -> dict[str, float]:
        """How far mae and rmse lie from those of another plan in the same runs, in percent, with standard errors.

        Delta method for a ratio of paired means: r = mean(b) / mean(a) and se(r) = sd(b - r a) / (mean(a) sqrt(n)).
        """
        found: dict[str, float] = {}
        for name in ("mae", "rmse"):
            scores, reference = (np.array([score[name] for score in tally.scores]) for tally in (self, base))
            usual = float(reference.mean())
            ratio = float(scores.mean()) / usual if usual else float("nan")
            spread = mean_and_error("rest", (scores - ratio * reference).tolist())["rest_se"]
            found |= {name: 100 * (ratio - 1), f"{name}_se": 100 * spread / usual if usual else float("nan")}
        return found


NOTHING = Tally(cells=0, scores=(), bins=(), key=np.zeros(0, np.int64), true=np.zeros(0), squares=np.zeros((4, 0)))
"""Before the first run."""


def mean_and_error(name: str, scores: Sequence[float]) -> dict[str, float]:
    """Mean over runs and its standard error, sd / sqrt(n), which a single run does not have.

    Examples
    --------
    >>> mean_and_error("mae", [1.0, 3.0])
    {'mae': 2.0, 'mae_se': 1.0}
    """
    error = float(np.std(scores, ddof=1) / np.sqrt(len(scores))) if len(scores) > 1 else float("nan")
    return {name: float(np.mean(scores)), f"{name}_se": error}


def _bin(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One bin of population over runs."""
    found: dict[str, Any] = {"bin": rows[0]["bin"], "cells": rows[0]["cells"]}
    for name in MEASURES:
        found |= mean_and_error(name, [row[name] for row in rows])
    return found
