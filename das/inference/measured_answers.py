"""Numbers of a release for inference: sums of raw noisy answers by label, with the exact covariance of their noise.

Only ``measurements`` are read: published tables and counts were made to conform, and have no such noise any more.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from das.errors import Problem, UsageError
from das.inference.intervals.asked import parse_answer
from das.inference.statistic import NoisyStatistic
from das.noise.two_sided import TwoSidedNoise
from das.plan.load import load
from das.plan.plan import Measurement, Plan
from das.storage.layout import Layout, ReleaseFolder

__all__ = ["Columns", "measured_columns", "measured_statistic", "release_in"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """One row a geounit, one column an answer, and the covariance of the noise between columns."""

    names: tuple[str, ...]
    geocodes: NDArray[np.str_]
    values: NDArray[np.float64]
    covariance: NDArray[np.float64]
    queries: tuple[str, ...]
    """From which measured query each column was taken."""
    mechanisms: tuple[TwoSidedNoise, ...]
    """What was added to each answer of a column."""
    answers: tuple[int, ...]
    """How many answers a column is the sum of."""


@dataclass(frozen=True, slots=True)
class _Source:
    """A measured query, and which of its answers add up to what was asked for."""

    measurement: Measurement
    answers: tuple[int, ...]

    @property
    def variance(self) -> float:
        return len(self.answers) * self.measurement.mechanism.variance()


def release_in(folder: Path) -> ReleaseFolder:
    """Find the finished release that a run wrote into a folder."""
    release = Layout(folder).release
    if not release.manifest.exists():
        raise UsageError(Problem(str(folder), "holds no finished release", "run `das run` to the end"))
    return release


def measured_columns(folder: Path, *, level: str, answers: Sequence[str]) -> Columns:
    """Read answers of every geounit of a level from a release's measurements.

    Parameters
    ----------
    folder : Path
        The folder of the run.
    level : str
        The geolevel.
    answers : sequence of str
        ``total``, or labels such as ``sex=f & age=15-24,25-64`` of attributes and recodes.
    """
    release = release_in(folder)
    plan = load(release.config)
    sources = [_source(plan, level, answer) for answer in answers]
    values, geocodes = zip(*(_read(release, level, source) for source in sources), strict=True)
    covariance = np.zeros((len(sources), len(sources)))
    for i, a in enumerate(sources):
        for j, b in enumerate(sources):
            if a.measurement.query.name == b.measurement.query.name:
                covariance[i, j] = len(set(a.answers) & set(b.answers)) * a.measurement.mechanism.variance()
    return Columns(
        names=tuple(answers),
        geocodes=geocodes[0],
        values=np.column_stack(values),
        covariance=covariance,
        queries=tuple(source.measurement.query.name for source in sources),
        mechanisms=tuple(source.measurement.mechanism for source in sources),
        answers=tuple(len(source.answers) for source in sources),
    )


def measured_statistic(folder: Path, *, level: str, geocode: str, answer: str) -> NoisyStatistic:
    """Read one answer of one geounit with its exact noise; it must have been measured by itself and not as a sum."""
    release = release_in(folder)
    source = _source(load(release.config), level, answer, alone=True)
    values, geocodes = _read(release, level, source)
    at = np.flatnonzero(geocodes == geocode)
    if not len(at):
        near = difflib.get_close_matches(geocode, geocodes.tolist(), n=1)
        raise UsageError(Problem("geocode", f"{geocode!r} is no {level}", f"did you mean {near[0]}?" if near else ""))
    return NoisyStatistic(value=values[at[0]], noise=source.measurement.mechanism)


def _source(plan: Plan, level: str, answer: str, *, alone: bool = False) -> _Source:
    """Choose the measured query whose answers add up to the cells with the least noise."""
    if level not in plan.levels:
        near = difflib.get_close_matches(level, plan.levels, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(plan.levels)}"
        raise UsageError(Problem("level", f"{level!r} is no level of this release", hint))
    wanted, possible = parse_answer(plan.schema, answer).inside, plan.schema.possible
    found = []
    for measurement in plan.at(level):
        index, size = measurement.query.index, measurement.query.size
        inside = np.bincount(index[possible], wanted[possible], minlength=size)
        whole = np.bincount(index[possible], minlength=size)
        if ((inside == 0) | (inside == whole)).all():
            found.append(_Source(measurement, tuple(np.flatnonzero((inside == whole) & (whole > 0)).tolist())))
    found = [source for source in found if source.answers and (len(source.answers) == 1 or not alone)]
    if not found:
        measured = ", ".join(m.query.name for m in plan.at(level)) or "nothing"
        reason = (
            "is not an answer, or a sum of answers, that was measured there" if not alone else "was not measured alone"
        )
        raise UsageError(Problem(answer, f"{reason} at level {level}", f"measured are {measured}"))
    return min(found, key=lambda source: source.variance)


def _read(release: ReleaseFolder, level: str, source: _Source) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    """Read the sums of the chosen answers, and the geocodes, in the order of the file."""
    path = release.measurements / f"{level}.parquet"
    if not path.exists():
        reason = "has no noisy measurements: its mechanism drew conforming counts, whose noise is not additive"
        raise UsageError(Problem(str(release.path), reason, "use a release of the method nonnegative-l2"))
    name = source.measurement.query.name
    table = pq.read_table(path, columns=["geocode", "value"], filters=[("query", "=", name)])
    values = table["value"].combine_chunks()
    flat = np.asarray(values.flatten(), dtype=np.float64).reshape(len(values), -1)
    return flat[:, list(source.answers)].sum(axis=1), np.asarray(table["geocode"].to_pylist(), dtype=np.str_)
