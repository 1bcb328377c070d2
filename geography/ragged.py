"""Branches that skip a level or end early: placeholders give every leaf an ancestor at every level."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from geography.arrays import Codes, Flags, Indices
from geography.problem import Problem
from geography.problem_list import Source, listed


def fill(paths: Sequence[Codes]) -> tuple[list[Codes], list[Flags]]:
    """Replace blanks by the code of the unit the placeholder stands for, and say which codes are real.

    A skipped level takes the code of the next unit below; below the end of a branch, the code of the unit that ends it.

    Examples
    --------
    >>> paths, real = fill([np.array(["s", "s"]), np.array(["", "c"]), np.array(["t", ""])])
    >>> [column.tolist() for column in paths]
    [['s', 's'], ['t', 'c'], ['t', 'c']]
    >>> [flags.tolist() for flags in real]
    [[True, True], [False, True], [True, False]]
    """
    real = [column != "" for column in paths]
    filled = list(paths)
    for level in reversed(range(len(paths) - 1)):
        filled[level] = np.where(filled[level] == "", filled[level + 1], filled[level])
    for level in range(1, len(paths)):
        filled[level] = np.where(filled[level] == "", filled[level - 1], filled[level])
    return filled, real


def find_collisions(
    levels: Sequence[str], paths: Sequence[Codes], real: Sequence[Flags], source: Source
) -> list[Problem]:
    """Find placeholders whose code another unit of the level bears, in filled paths.

    Examples
    --------
    >>> paths, real = fill([np.array(["s", "s"]), np.array(["", "t"]), np.array(["t", "u"])])
    >>> print(*find_collisions(["state", "county", "tract"], paths, real, Source("geo.csv", 2)))
    geo.csv, row 3: county 't' and the one in row 2 differ: one skips this level or ends above it; give ...
    """
    problems: list[Problem] = []
    above: Codes = np.zeros(len(paths[0]), dtype="<U1")
    for level, column, is_real in zip(levels, paths, real, strict=True):
        _, first, inverse = np.unique(column, return_index=True, return_inverse=True)
        original = first[inverse]
        collides = np.flatnonzero((is_real != is_real[original]) | (~is_real & (above != above[original])))
        _, once = np.unique(column[collides], return_index=True)  # a code is named once, not with every leaf below it
        problems += _collisions_at(level, column, original, np.sort(collides[once]), source)
        above = column
    return problems


def _collisions_at(level: str, column: Codes, original: Indices, rows: Indices, source: Source) -> list[Problem]:
    def describe(i: int) -> Problem:
        earlier = source.number(int(original[i]))
        reason = (
            f"{level} {str(column[i])!r} and the one in row {earlier} differ: one skips this level or ends above it"
        )
        return Problem(source.row(i), reason, "give one of the two another code")

    return listed(rows, describe, source)
