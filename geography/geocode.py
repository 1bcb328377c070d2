"""Fixed-width geocodes: the hierarchy is in the code itself, as in a 15-digit census block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from geography.arrays import Codes, Flags, Indices, as_text, is_ascending
from geography.problem import Problem, ProblemsFound
from geography.problem_list import AS_TEXT, Source, listed
from geography.spine import Spine


def from_geocodes(
    codes: Any, levels: Sequence[tuple[str, int]], source: str = "file", rows: Indices | None = None
) -> Spine:
    """Build a spine from the leaves' fixed-width geocodes.

    Parameters
    ----------
    codes : array-like of str
        The geocode of every leaf, each once, in any order.
    levels : sequence of (str, int)
        Name and width of each level's part of the code, top-down.
    source : str
        The file the codes come from, for error messages.
    rows : Indices, optional
        The row of each code in that file; 1, 2, ... if not given.

    Raises
    ------
    ProblemsFound
        A code is not text, blank, of the wrong length (perhaps for a lost leading zero), has characters other than
        letters and digits, or appears twice.

    Examples
    --------
    >>> from_geocodes(["01001", "01003", "02001"], [("state", 2), ("county", 3)])
    Spine(state 2, county 3)
    >>> from_geocodes(["1001", "10001", "10003"], [("state", 2), ("county", 3)], source="geo.csv")
    Traceback (most recent call last):
    geography.problem.ProblemsFound: geo.csv, row 1: geocode '1001' has lost its leading zero (4 ...
    """
    where = Source(source, rows=None if rows is None else np.asarray(rows, dtype=np.int64))
    widths = [width for _, width in levels]
    if not levels or min(widths) < 1:
        raise ProblemsFound(
            Problem("levels", "need at least one, each of width 1 or more", "give [(name, width), ...]")
        )
    values = np.asarray(codes)
    if values.size == 0:
        raise ProblemsFound(Problem(source, "has no geocodes", "give at least one leaf"))
    if values.dtype.kind in "iufb":
        raise ProblemsFound(Problem(source, "geocodes are numbers, which have lost leading zeros", AS_TEXT))
    text, other = as_text(values)
    problems = _problems(text, other, sum(widths), where)
    if problems:
        raise ProblemsFound(problems)
    if not is_ascending(text):
        text = np.sort(text)  # codes of one width sort as their prefixes do
    # Casting to a shorter text type cuts the code after that many characters: the prefix, without a loop.
    paths = [text.astype(f"<U{end}") for end in np.cumsum(widths)]
    return Spine.from_paths([name for name, _ in levels], paths)


def _problems(text: Codes, other: Flags, width: int, where: Source) -> list[Problem]:
    length = np.strings.str_len(text)
    blank = ~other & (np.strings.str_len(np.strings.strip(text)) == 0)
    usable = ~other & ~blank
    full = usable & (length == width)
    short = usable & (length == width - 1) & np.strings.isdigit(text)
    # A missing zero is the likely cause where short codes are the exception, or where nothing else is wrong with any.
    lost_zero = short & (full.sum() > usable.sum() / 2 or not (usable & ~full & ~short).any())
    strange = usable & ~_letters_and_digits(text)
    wrong_length = usable & ~full & ~lost_zero

    def say(flags: Flags, reason: str, remedy: str) -> list[Problem]:
        def describe(i: int) -> Problem:
            return Problem(where.row(i), reason.format(code=repr(str(text[i])), length=length[i], width=width), remedy)

        return listed(np.flatnonzero(flags), describe, where)

    return [
        *say(other, "the geocode is not text", AS_TEXT),
        *say(blank, "the geocode is blank", "give its geocode, or delete the row"),
        *say(lost_zero, "geocode {code} has lost its leading zero ({length} characters instead of {width})", AS_TEXT),
        *say(
            wrong_length,
            "geocode {code} has {length} characters, the levels' widths add up to {width}",
            "correct the geocode or the widths",
        ),
        *say(strange, "geocode {code} has characters other than letters and digits", "correct it; trim blanks"),
        *_duplicates(text, usable, where),
    ]


def _letters_and_digits(text: Codes) -> Flags:
    points = np.ascontiguousarray(text).view(np.uint32).reshape(len(text), -1)
    flags: Flags = np.strings.isalnum(text) & (points < 128).all(axis=1)
    return flags


def _duplicates(text: Codes, usable: Flags, where: Source) -> list[Problem]:
    if usable.all() and is_ascending(text) and not (text[1:] == text[:-1]).any():
        return []
    rows = np.flatnonzero(usable)
    _, first, inverse = np.unique(text[rows], return_index=True, return_inverse=True)
    original = np.full(len(text), -1, dtype=np.int64)
    original[rows] = rows[first[inverse]]

    def describe(i: int) -> Problem:
        reason = f"geocode {str(text[i])!r} is already in row {where.number(int(original[i]))}"
        return Problem(where.row(i), reason, "keep one of the two rows")

    return listed(np.flatnonzero(usable & (original != np.arange(len(text)))), describe, where)
