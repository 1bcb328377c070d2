"""Regression on what was released: columns from a release's measurements, or from a CSV file that states its noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp, isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from das.errors import InputError, Problem, UsageError
from das.inference.additive_noise import AdditiveNoise
from das.inference.input_file import mechanism_named
from das.inference.measured_answers import Columns, measured_columns
from das.inference.regression.likelihood import fit_by_likelihood
from das.inference.regression.maximum import LikelihoodFit
from das.inference.regression.measured_counts import CountNoise, fit_measured_counts
from das.inference.regression.moments import corrected_fit, naive_fit

__all__ = ["regress_csv", "regress_release", "regression_text"]

Array = NDArray[np.float64]


def regress_release(
    folder: Path, *, level: str, response: str, on: Sequence[str], likelihood: bool = False, confidence: float = 0.95
) -> dict[str, Any]:
    """Regress one answer on others over the geounits of a level, from raw measurements.

    The noise of answers that come from one query and overlap is correlated; that covariance is taken off, too. With
    ``likelihood`` also by exact likelihood, for one regressor whose noise is independent of the response's.
    """
    columns = measured_columns(folder, level=level, answers=[response, *on])
    found = _fits(columns.values, columns.covariance, on, confidence)
    described = {
        "level": level,
        "response": response,
        "queries": dict(zip(columns.names, columns.queries, strict=True)),
    }
    if likelihood:
        found["likelihood"] = _or_refused(lambda: _of_counts(columns, confidence))
    return {**described, **found}


def regress_csv(
    path: Path,
    *,
    response: str,
    on: Sequence[str],
    noises: Sequence[str],
    likelihood: bool = False,
    confidence: float = 0.95,
) -> dict[str, Any]:
    """Regress columns of a CSV file; ``noises`` says what was added, as ``column=mechanism:parameter``."""
    import pandas as pd

    laws = dict(_parse_noise(text) for text in noises)
    try:
        frame = pd.read_csv(path)
    except (ValueError, UnicodeDecodeError):
        raise InputError(Problem(str(path), "is not a CSV file", "give a header and a row a place")) from None
    names = [response, *on]
    absent = [name for name in [*names, *laws] if name not in frame.columns]
    if absent:
        known = ", ".join(map(str, frame.columns))
        raise UsageError(*(Problem(name, f"is no column of {path.name}", f"there are {known}") for name in absent))
    try:
        values = frame[names].to_numpy(dtype=np.float64)
    except ValueError:
        raise InputError(Problem(str(path), "has entries that are not numbers", "clean these columns")) from None
    covariance = np.diag([laws[name].variance if name in laws else 0.0 for name in names])
    found = {"response": response, **_fits(values, covariance, on, confidence)}
    if likelihood:
        found["likelihood"] = _or_refused(lambda: _likelihood(values, names, laws, confidence))
    return found


def regression_text(found: Mapping[str, Any]) -> str:
    """Lay the fits out for reading."""
    lines = [
        f"{found['response']} on {', '.join(found['noise'])}" + (f", by {found['level']}" if "level" in found else "")
    ]
    for name in ("naive", "corrected"):
        fit = found[name]
        if "refused" in fit:
            lines.append(f"\n{name}: refused: {fit['refused']}")
            continue
        lines.append(f"\n{name} ({fit['rows']} rows, residual variance {fit['residual_variance']:.4g})")
        for term, each in fit["coefficients"].items():
            ends = f"{each['lower']:>10.4g} to {each['upper']:.4g}"
            lines.append(f"  {term:<28}{each['estimate']:>10.4g}  se {each['standard_error']:<9.3g}{ends}")
        if fit["residual_variance"] < 0:
            lines.append("  residuals vary less than the stated noise alone: check the noise, or use more rows")
    if "likelihood" in found:
        fit = found["likelihood"]
        low, high = ("any" if fit.get(end) is None else f"{fit[end]:.4g}" for end in ("lower", "upper"))
        said = fit.get("refused") or f"slope {fit['slope']:.4g}, profile {low} to {high}"
        lines.append(f"\nlikelihood: {'refused: ' if 'refused' in fit else ''}{said}")
    return "\n".join(lines)


def _fits(values: Array, covariance: Array, on: Sequence[str], confidence: float) -> dict[str, Any]:
    """Fit naively and corrected."""
    y, x = values[:, 0], values[:, 1:]
    found: dict[str, Any] = {
        "noise": {name: float(covariance[k, k]) for k, name in enumerate(on, start=1)},
        "noise_of_response": float(covariance[0, 0]),
        "confidence": confidence,
        "naive": naive_fit(x, y, names=on).to_json(confidence),
    }
    own, across = float(covariance[0, 0]), covariance[1:, 0]
    found["corrected"] = _or_refused(
        lambda: corrected_fit(x, y, noise=covariance[1:, 1:], noise_y=own, noise_xy=across, names=on).to_json(
            confidence
        )
    )
    return found


def _or_refused(fit: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """One of several fits: where its data do not allow it the others are kept, and the reason is given."""
    try:
        return fit()
    except InputError as refused:
        return {"refused": str(refused)}


def _likelihood(
    values: Array, names: Sequence[str], laws: Mapping[str, AdditiveNoise], confidence: float
) -> dict[str, float | None]:
    if len(names) != 2 or set(names) - laws.keys():
        raise UsageError(Problem("--likelihood", "needs one regressor, and --noise for both columns", "see --help"))
    fit = fit_by_likelihood(values[:, 1], values[:, 0], noise_x=laws[names[1]], noise_y=laws[names[0]])
    return _summary(fit, confidence)


def _of_counts(columns: Columns, confidence: float) -> dict[str, float | None]:
    if len(columns.names) != 2:
        raise UsageError(Problem("--likelihood", "is for one regressor", "give --on once"))
    if columns.covariance[0, 1]:
        reason = f"both columns hold the same answers of {columns.queries[0]!r}, and so the same noise"
        raise UsageError(Problem("--likelihood", reason, "use the moment correction, which takes it off"))
    laws = [CountNoise.of(*each) for each in zip(columns.mechanisms, columns.answers, strict=True)]
    fit = fit_measured_counts(columns.values[:, 1], columns.values[:, 0], noise_x=laws[1], noise_y=laws[0])
    return _summary(fit, confidence) | {"size": exp(fit.parameters[4]), "tau": exp(fit.parameters[5])}


def _summary(fit: LikelihoodFit[Any], confidence: float) -> dict[str, float | None]:
    """A line with the profile interval of its slope; an end that nothing excludes is null."""
    low, high = (end if isfinite(end) else None for end in fit.profile(confidence))
    intercept, slope = map(float, fit.coefficients)
    return {"intercept": intercept, "slope": slope, "lower": low, "upper": high, "sigma": fit.sigma, "mu": fit.mu}


def _parse_noise(text: str) -> tuple[str, AdditiveNoise]:
    column, _, law = text.partition("=")
    name, _, parameter = law.partition(":")
    if not (column and name and parameter):
        raise UsageError(Problem(f"--noise {text}", "is not COLUMN=MECHANISM:PARAMETER", "for example x=laplace:2"))
    return column, mechanism_named(name, parameter)
