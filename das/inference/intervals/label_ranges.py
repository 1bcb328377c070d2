"""Labels that a question names: each by itself, or a range such as ``15-49`` that holds several of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import inf

from das.errors import Problem, UsageError
from das.schema.schema import Partition
from geography.problem_list import nearest

__all__ = ["chosen_labels", "span_of"]

Span = tuple[float, float]
OLDEST = 99
"""A range that ends here or later means everybody above: it holds a label without an end, such as ``65+``."""


def span_of(label: str) -> Span | None:
    """The whole numbers that a label stands for, first and last; None if it is no range of numbers.

    Examples
    --------
    >>> [span_of(label) for label in ("15-19", "15 to 19", "7", "85+", "85 and over", "<5", "under 5", "f", "19-15")]
    [(15.0, 19.0), (15.0, 19.0), (7.0, 7.0), (85.0, inf), (85.0, inf), (0.0, 4.0), (0.0, 4.0), None, None]
    """
    text = re.sub(r"\s*(years?|yrs?)(\s+old)?\s*$", "", label.strip().lower())
    if found := re.fullmatch(r"(\d+)\s*(?:-|–|to)\s*(\d+)", text):
        first, last = float(found[1]), float(found[2])
        return (first, last) if first <= last else None
    if re.fullmatch(r"\d+", text):
        return float(text), float(text)
    if found := re.fullmatch(r"(\d+)\s*(?:\+|and (?:over|above|older))", text):
        return float(found[1]), inf
    if found := re.fullmatch(r"(?:<|under)\s*(\d+)", text):
        return (0.0, float(found[1]) - 1) if int(found[1]) > 0 else None
    return None


def chosen_labels(partition: Partition, labels: Sequence[str], given: str = "--where") -> list[int]:
    """Positions of the labels that are named; a range stands for the labels that fill it exactly.

    A label may hold a comma, at which it was cut. ``given`` is what a message names as the place of the labels.

    Raises
    ------
    UsageError
        A label is unknown, or no labels fill a range: the message names the ones that reach into it.

    Examples
    --------
    >>> age = Partition("age", ("0-14", "15-24", "25-64", "65+"), ((0,), (1,), (2,), (3,)), 4)
    >>> chosen_labels(age, ["15-64"]), chosen_labels(age, ["25+"]), chosen_labels(age, ["65+", "0-14"])
    ([1, 2], [2, 3], [3, 0])
    >>> chosen_labels(age, ["25-120"])
    [2, 3]
    >>> chosen_labels(age, ["15-49"])
    Traceback (most recent call last):
    das.errors.UsageError: --where: '15-49' is no label of 'age', and its labels do not fill it; '15-24' lies within...
    """
    chosen: list[int] = []
    problems: list[Problem] = []
    whole = [text for text in (",".join(labels), ", ".join(labels)) if text in partition.labels]
    for label in whole[:1] or labels:
        found = [partition.labels.index(label)] if label in partition.labels else _within(partition, label)
        if not found:
            problems.append(_unknown(partition, label, given))
        chosen += [at for at in found if at not in chosen]
    if problems:
        raise UsageError(problems)
    return chosen


def _within(partition: Partition, label: str) -> list[int]:
    """Positions of the labels that together are exactly the range; none if they leave a gap, reach out or overlap."""
    wanted = span_of(label)
    if wanted is None:
        return []
    wanted = wanted[0], inf if wanted[1] >= OLDEST else wanted[1]
    spans = {at: span for at, each in enumerate(partition.labels) if (span := span_of(each)) is not None}
    touching = {at: span for at, span in spans.items() if span[0] <= wanted[1] and span[1] >= wanted[0]}
    expected = wanted[0]
    for first, last in sorted(touching.values()):
        if first != expected:
            return []
        expected = last + 1
    return sorted(touching) if touching and expected == wanted[1] + 1 else []


def _unknown(partition: Partition, label: str, given: str) -> Problem:
    wanted = span_of(label)
    spans = [(each, span_of(each)) for each in partition.labels]
    if wanted is None or not any(span for _, span in spans):
        return Problem(given, f"{label!r} is not a label of {partition.name!r}", nearest(label, partition.labels))
    inside = [each for each, span in spans if span and wanted[0] <= span[0] and span[1] <= wanted[1]]
    across = [
        each for each, span in spans if span and each not in inside and span[0] <= wanted[1] and span[1] >= wanted[0]
    ]
    parts = [_listed(inside, "within it"), _listed(across, "across its end")]
    reason = f"{label!r} is no label of {partition.name!r}, and its labels do not fill it"
    remedy = "; ".join(part for part in parts if part) or f"no label of {partition.name!r} is near it"
    return Problem(given, reason, f"{remedy}; give labels: {partition.name}={','.join(inside or across)}")


def _listed(labels: Sequence[str], where: str) -> str:
    if not labels:
        return ""
    verb = "lies" if len(labels) == 1 else "lie"
    return f"{', '.join(map(repr, labels))} {verb} {where}"
