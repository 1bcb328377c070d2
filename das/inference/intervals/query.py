"""Answer a question about places of a release, with intervals, from its public files alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from das.errors import Problem, UsageError
from das.estimation.linear.basis import Blocks
from das.estimation.linear.blue import RELATIVE_ZERO
from das.estimation.linear.selected import sees_unseen, selected_covariances
from das.estimation.linear.unions import covariances_of_unions
from das.inference.intervals.answer import Intervals, answer_rows
from das.inference.intervals.asked import Asked, Where, ask
from das.inference.intervals.estimates import Estimates
from das.inference.intervals.limits import feldman_cousins, fieller, normal_limits
from das.inference.intervals.own_noise import half_widths_by_own_noise
from das.inference.intervals.places import Gazetteer, Place, combined, names_of_ratios
from das.inference.intervals.public_files import LARGEST_BLOCK, PublicFiles
from geography import Areas

__all__ = ["INTERVALS", "Question", "answer", "level_intervals"]

Floats = NDArray[np.float64]
Interval = Literal["normal", "feldman-cousins"]
INTERVALS: tuple[Interval, ...] = ("normal", "feldman-cousins")


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question about places.

    Parameters
    ----------
    query : str
        A marginal, such as ``"sex * age"``; every attribute or recode of the schema may be used.
    where : mapping
        Labels to which attributes or recodes are restricted.
    level : str, optional
        A level or a kind of area: all its places are asked about.
    area : sequence of str
        Places as ``KIND:CODE``, such as ``"tract:44007"`` or ``"catchment:HC05"``.
    areas : mapping
        Files of further areas by kind: columns ``area`` and ``geocode``, a row per leaf.
    minus : str, optional
        A place whose numbers are subtracted from those of each place.
    combine : sequence of (float, str)
        Weights and places, of which the weighted sum is asked.
    over : mapping, optional
        Labels of a denominator: the ratio to it is asked. Empty for the total.
    over_area : str, optional
        The denominator's place, if it is another one.
    confidence : float
        Probability with which an interval holds the truth.
    interval : str
        ``"normal"``, cut at zero, or ``"feldman-cousins"``.
    """

    query: str = "total"
    where: Where = field(default_factory=dict)
    level: str | None = None
    area: Sequence[str] = ()
    areas: Mapping[str, Path] = field(default_factory=dict)
    minus: str | None = None
    combine: Sequence[tuple[float, str]] = ()
    over: Where | None = None
    over_area: str | None = None
    confidence: float = 0.95
    interval: Interval = "normal"

    def __post_init__(self) -> None:
        if not 0.0 < self.confidence < 1.0:
            raise UsageError(Problem("--confidence", "must lie strictly between 0 and 1", "give for example 0.95"))
        if self.interval not in INTERVALS:
            raise UsageError(Problem("--interval", f"{self.interval!r} is unknown", f"use {' or '.join(INTERVALS)}"))
        for weight, place in self.combine:
            if not isfinite(weight):
                raise UsageError(Problem("--combine", f"the weight of {place} is not a finite number", "give another"))
        if self.interval == "feldman-cousins" and (self.is_signed or self.is_ratio):
            reason = "is for counts, which are not negative; a difference or a ratio may be"
            raise UsageError(Problem("--interval feldman-cousins", reason, "use normal"))

    @property
    def is_ratio(self) -> bool:
        """Whether a ratio is asked."""
        return self.over is not None or self.over_area is not None

    @property
    def is_signed(self) -> bool:
        """Whether something is subtracted, so that the sum of counts may be negative."""
        return bool(self.minus) or any(weight < 0 for weight, _ in self.combine)


@dataclass(frozen=True)
class _Numbers:
    """Numbers of some places: places x answers; NaN where something is not estimable."""

    names: list[str]
    levels: Sequence[str | None]  # of places that are one geounit
    counts: Floats
    estimate: Floats
    variance: Floats


def answer(known: Estimates, question: Question) -> Intervals:
    """Answer a question.

    Raises
    ------
    UsageError
        A label, query, level or place is unknown; or the release has no law of errors for what is asked.
    """
    files = known.files
    asked = ask(files.plan.schema, question.query, question.where)
    gazetteer = Gazetteer(files, {kind: files.read_areas(path) for kind, path in question.areas.items()})
    below = ask(files.plan.schema, "total", question.over or {})
    if not files.plan.mechanism_stage.measures:
        from das.inference.intervals.conditioned import conditioned_answer

        places = _places(gazetteer, question)
        over = (below, _denominators(gazetteer, question, places)) if question.is_ratio else None
        return conditioned_answer(files, question, asked, places, over)
    if files.coupled > LARGEST_BLOCK:
        from das.inference.intervals.pooled import pooled

        known, (asked, below) = pooled(known, [asked, below])
        files = known.files
    if question.is_ratio:
        return _ratio(known, question, asked, below, gazetteer)
    level = question.level
    if level in files.plan.levels and not (question.minus or question.area or question.combine):
        real = np.flatnonzero(files.spine.real(level))
        numbers = _of_level(known, level, real, asked)
    else:
        numbers = _of_places(known, _places(gazetteer, question), asked=asked)
    low, high, how = _limits(files, question, numbers, asked)
    return _table(question, asked, numbers, low, high, how, _notes(files, numbers, asked))


def level_intervals(
    known: Estimates, place: str, asked: Asked, areas: Areas | None = None, confidence: float = 0.95
) -> tuple[list[str], dict[str, Floats]]:
    """Estimates and limits of all places of a level or of a kind of area: their codes, and places x answers each."""
    files, question = known.files, Question(level=place, confidence=confidence)
    if place in files.plan.levels:
        numbers = _of_level(known, place, np.flatnonzero(files.spine.real(place)), asked)
    else:
        if place not in known.unions:
            places = Gazetteer(files, {place: areas} if areas else {}).all_of(place)
            known.unions[place] = places, covariances_of_unions(files.covariances, [[each.union] for each in places])
        numbers = _of_places(known, *known.unions[place], asked=asked)
    low, high, _ = _limits(files, question, numbers, asked)
    codes = [name.partition(":")[2] for name in numbers.names]
    deviation = np.sqrt(numbers.variance)
    return codes, {
        "count": numbers.counts,
        "estimate": numbers.estimate,
        "std_dev": deviation,
        "low": low,
        "high": high,
    }


def _places(gazetteer: Gazetteer, question: Question) -> list[Place]:
    """The places that are asked about: without any, the areas of a file that is given, or the top level."""
    places = [gazetteer.place(text) for text in question.area]
    kinds = [question.level] if question.level is not None else []
    if not (kinds or places or question.combine):
        kinds = list(gazetteer.more) or [gazetteer.files.plan.levels[0]]
    for kind in kinds:
        places += gazetteer.all_of(kind)
    if question.combine:
        terms = [(weight, gazetteer.place(text)) for weight, text in question.combine]
        places.append(combined(" ".join(f"{weight:+g}*{place.name}" for weight, place in terms), terms))
    if question.minus:
        less = gazetteer.place(question.minus)
        places = [combined(f"{place.name} - {less.name}", [(1.0, place), (-1.0, less)]) for place in places]
    return places


def _denominators(gazetteer: Gazetteer, question: Question, places: list[Place]) -> list[Place]:
    """The place of each ratio's denominator: another one, or the same."""
    return [gazetteer.place(question.over_area)] * len(places) if question.over_area else places


def _of_level(known: Estimates, level: str, units: NDArray[np.int64], asked: Asked) -> _Numbers:
    """All geounits of a level: those with the same covariance are worked out once."""
    files = known.files
    codes = files.spine.geocodes(level)
    counts = known.counts(level, units, asked)
    names = [f"{level}:{code}" for code in codes[units].tolist()]
    if sees_unseen(files.basis, asked.factors, files.covariances.seen(level)):
        nothing = np.full(counts.shape, np.nan)
        return _Numbers(names, [level] * len(names), counts, nothing, nothing)
    kind_of, blocks = files.covariances.final(level)
    kinds, at = np.unique(kind_of[units], return_inverse=True)
    variance = _variances(files, asked, asked, [block[kinds] for block in blocks])[at.reshape(-1)]
    estimate = known.answers(level, units, asked)
    return _Numbers(names, [level] * len(names), counts, _rounded(estimate, variance), variance)


def _of_places(known: Estimates, places: Sequence[Place], blocks: Blocks | None = None, *, asked: Asked) -> _Numbers:
    """Any weighted unions of geounits; ``blocks`` are their covariances, if they are known already."""
    files = known.files
    counts, estimate = _sums(known, places, asked)
    if blocks is None:
        blocks = covariances_of_unions(files.covariances, [[place.union] for place in places])
    variance = _variances(files, asked, asked, blocks)
    open_ = _is_open(files, places, asked)
    estimate[open_], variance[open_] = np.nan, np.nan
    names, levels = [place.name for place in places], [place.level for place in places]
    return _Numbers(names, levels, counts, _rounded(estimate, variance), variance)


def _sums(known: Estimates, places: Sequence[Place], asked: Asked) -> tuple[Floats, Floats]:
    """Published counts and linear estimates of unions: places x answers each."""
    files = known.files
    counts, estimate = np.zeros((len(places), asked.size)), np.zeros((len(places), asked.size))
    for level in files.plan.levels:
        here = [(i, place.union[level]) for i, place in enumerate(places) if level in place.union]
        if not here:
            continue
        units, column = np.unique(np.concatenate([members.units for _, members in here]), return_inverse=True)
        row = np.concatenate([np.full(len(members.units), i) for i, members in here])
        weight = np.concatenate([members.weights for _, members in here])
        weights = sparse.csr_array((weight, (row, column.reshape(-1))), shape=(len(places), len(units)))
        counts += weights @ known.counts(level, units, asked)
        if not sees_unseen(files.basis, asked.factors, files.covariances.seen(level)):
            estimate += weights @ known.answers(level, units, asked)
    return counts, estimate


def _is_open(files: PublicFiles, places: Sequence[Place], asked: Asked) -> NDArray[np.bool_]:
    """Which places hold a geounit of a level at which what is asked is not estimable."""
    unseen = {
        level for level in files.plan.levels if sees_unseen(files.basis, asked.factors, files.covariances.seen(level))
    }
    return np.array([not unseen.isdisjoint(place.union) for place in places], dtype=bool)


def _variances(files: PublicFiles, left: Asked, right: Asked, blocks: Blocks) -> Floats:
    """Covariances of answers; what is known exactly has none, where rounding leaves traces of its cells'."""
    found = selected_covariances(files.basis, left.factors, right.factors, blocks)
    if left is not right:
        return found
    cells = [np.abs(factor).sum(axis=1) for factor in left.factors]
    members = cells[0]
    for more in cells[1:]:
        members = np.outer(members, more).reshape(-1)
    scale = max(float(np.abs(block).max(initial=0.0)) for block in blocks)
    return np.where(found <= RELATIVE_ZERO * scale * members, 0.0, found)


def _rounded(estimate: Floats, variance: Floats) -> Floats:
    """What is known exactly is a whole number; files hold single precision."""
    exact = (variance == 0) & (np.abs(estimate - np.rint(estimate)) < 0.5)
    return np.where(exact, np.rint(estimate) + 0.0, estimate)


def _limits(files: PublicFiles, question: Question, numbers: _Numbers, asked: Asked) -> tuple[Floats, Floats, str]:
    deviation = np.sqrt(numbers.variance)
    half = half_widths_by_own_noise(files, numbers.levels, numbers.variance, asked, question.confidence)
    own = ~np.isnan(half)
    least = -np.inf if question.is_signed else 0.0
    below, above = np.maximum(numbers.estimate - half, least), np.maximum(numbers.estimate + half, least)
    if question.interval == "feldman-cousins":
        low, high = feldman_cousins(numbers.estimate, deviation, question.confidence)
        low, high = np.fmin(low, below), np.fmax(high, above)  # normal limits alone hold too little of one noise
        how, by = "Feldman-Cousins", "; at least those of the noise's own distribution"
    else:
        low, high = normal_limits(numbers.estimate, deviation, question.confidence, least=least)
        low, high = np.where(own, below, low), np.where(own, above, high)
        how, by = (
            "normal, not cut" if question.is_signed else "normal, cut at zero",
            "; by the noise's own distribution",
        )
    return low, high, how + (f"{by} where an answer was measured itself" if own.any() else "")


def _ratio(known: Estimates, question: Question, asked: Asked, below: Asked, gazetteer: Gazetteer) -> Intervals:
    """Ratios to a denominator in the same place or another one, with Fieller's limits."""
    files = known.files
    places = _places(gazetteer, question)
    other = _denominators(gazetteer, question, places)
    n, d = _sums(known, places, asked), _sums(known, other, below)
    groups = [[one.union, two.union] for one, two in zip(places, other, strict=True)]
    blocks = covariances_of_unions(files.covariances, groups)
    halves = [block.shape[-1] // 2 for block in blocks]

    def part(i: int, j: int) -> Blocks:
        cuts = [(slice(i * h, (i + 1) * h), slice(j * h, (j + 1) * h)) for h in halves]
        return [block[:, rows, columns] for block, (rows, columns) in zip(blocks, cuts, strict=True)]

    of_n = _variances(files, asked, asked, part(0, 0))
    of_d = _variances(files, below, below, part(1, 1))
    both = _variances(files, asked, below, part(0, 1))
    open_ = _is_open(files, places, asked) | _is_open(files, other, below)
    with np.errstate(divide="ignore", invalid="ignore"):
        estimate, published = n[1] / d[1], n[0] / d[0]
        variance = (of_n - 2 * estimate * both + estimate**2 * of_d) / d[1] ** 2
    low, high = fieller(n[1], d[1], (of_n, np.broadcast_to(of_d, of_n.shape), both), question.confidence)
    inside = question.over_area is None and not question.is_signed and below.covers(asked)
    least, most = -np.inf if question.is_signed else 0.0, 1.0 if inside else np.inf
    for array in (estimate, variance, low, high):
        array[open_] = np.nan
    names = names_of_ratios(places, other)
    numbers = _Numbers(names, [None] * len(names), published, estimate, np.maximum(variance, 0.0))
    notes = _notes(files, numbers, asked, below)
    if np.isinf(low[~open_]).any():
        notes += ("where the denominator is not different from zero Fieller's limits are infinite",)
    cut = "not cut" if question.is_signed else "cut at 0 and 1" if inside else "cut at 0"
    how = f"Fieller, {cut}; std_dev by the delta method"
    clipped = np.clip(low, least, most), np.clip(high, least, most)
    shown = _table(question, asked, numbers, *clipped, how, notes)
    return replace(shown, asked=asked.over(below))


def _notes(files: PublicFiles, numbers: _Numbers, *questions: Asked) -> tuple[str, ...]:
    if not np.isnan(numbers.estimate).any():
        return files.notes()
    levels = dict.fromkeys(name.partition(":")[0] for name in numbers.names)
    found = []
    for level in levels if all(level in files.plan.levels for level in levels) else files.plan.levels[-1:]:
        seen = files.covariances.seen(level)
        for asked in questions:
            if sees_unseen(files.basis, asked.factors, seen):
                known = files.estimable(level)
                what = f"estimable there: {', '.join(known)}" if known else "nothing is estimable there"
                found.append(f"not estimable at {level}: nothing that was measured determines {asked.text!r}; {what}")
    return (*files.notes(), *found)


def _table(
    question: Question, asked: Asked, numbers: _Numbers, low: Floats, high: Floats, how: str, notes: tuple[str, ...]
) -> Intervals:
    values = {"estimate": numbers.estimate, "std_dev": np.sqrt(numbers.variance), "low": low, "high": high}
    return Intervals(
        table=answer_rows(asked, numbers.names, numbers.counts, values, is_ratio=question.is_ratio),
        asked=asked.text,
        confidence=question.confidence,
        interval=how,
        notes=notes,
        is_ratio=question.is_ratio,
    )
