"""Leading zeros that a program lost when it read codes as numbers: in the file at hand, or in the geography file."""

from __future__ import annotations

import numpy as np

from geography.arrays import Codes, Flags
from geography.problem import Problem
from geography.problem_list import AS_TEXT, Source
from geography.spine import Spine

__all__ = ["lost_here", "lost_there", "zeros_problems"]


def lost_here(codes: Codes, spine: Spine, level: str) -> Flags:
    """Which codes the level does not know, and knows with zeros in front.

    Examples
    --------
    >>> spine = Spine.from_paths(["county"], [np.array(["01001", "12003"])])
    >>> lost_here(np.array(["1001", "12003", "7"]), spine, "county").tolist()
    [True, False, False]
    """
    lost = (spine.locate(level, codes) < 0) & np.strings.isdigit(codes)
    if lost.any():
        unknown = codes[lost]
        known = np.zeros(len(unknown), dtype=np.bool_)
        for width in np.unique(np.strings.str_len(spine.geocodes(level))):
            known |= spine.locate(level, np.strings.zfill(unknown, int(width))) >= 0
        lost[lost] = known
    return lost


def lost_there(codes: Codes, spine: Spine, level: str) -> Flags:
    """Which codes the level does not know, and knows without the zeros in front: the geography file has lost them.

    Examples
    --------
    >>> spine = Spine.from_paths(["county"], [np.array(["1001", "12003"])])
    >>> lost_there(np.array(["01001", "12003", "07"]), spine, "county").tolist()
    [True, False, False]
    """
    lost = (spine.locate(level, codes) < 0) & np.strings.isdigit(codes) & np.strings.startswith(codes, "0")
    if lost.any():
        lost[lost] = spine.locate(level, np.strings.lstrip(codes[lost], "0")) >= 0
    return lost


def zeros_problems(here: Flags, there: Flags, source: Source) -> list[Problem]:
    """Say it once for each file: whoever lost zeros lost them throughout.

    Examples
    --------
    >>> print(*zeros_problems(np.array([False, True, True]), np.array([False] * 3), Source("clinics.csv", 2)))
    clinics.csv, row 3: the geocode has lost its leading zeros, and 1 more geocodes of this file theirs; write and ...
    """
    problems = []
    for flags, reason, more, remedy in (
        (here, "the geocode has lost its leading zeros", "geocodes of this file theirs", AS_TEXT),
        (
            there,
            "the geocode has leading zeros that the geography file has lost",
            "geocodes of this file too",
            "write the geography file again, with its codes as text",
        ),
    ):
        if flags.any():
            first, *others = np.flatnonzero(flags)
            rest = f", and {len(others):,} more {more}" if others else ""
            problems.append(Problem(source.row(int(first)), f"{reason}{rest}", remedy))
    return problems
