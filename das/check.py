"""``das check``: everything that can be found wrong before anything is spent."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from das.errors import InfeasibleError, InputError, Problem, ProblemsFound
from das.facts.collect import TrueAnswers, facts_of
from das.plan.geography import areas_of, spine_of
from das.plan.plan import Plan
from das.plan.tree_of_counts import tree_of
from das.records.encode import encode
from das.records.read import chunks, input_files, read
from das.schema.counts import TrueCounts
from das.schema.query import Query
from geography import Spine

__all__ = ["check"]

LISTED = 60


def check(plan: Plan) -> dict[str, Any]:
    """Read geography, areas, bounds and every record, and report all problems at once; nothing is written or spent.

    Raises
    ------
    ProblemsFound
        Of the kind that decides the exit code: input (3) before infeasibility (4).
    """
    problems: list[Problem] = []
    conflicts: list[Problem] = []
    spine: Spine | None = None
    try:
        spine = spine_of(plan)
    except ProblemsFound as error:
        problems += error.problems
    if spine is not None:
        try:
            areas_of(plan, spine)
        except ProblemsFound as error:
            problems += error.problems
        try:
            facts_of(plan, spine, None)
        except InfeasibleError as error:
            conflicts += error.problems
        except ProblemsFound as error:
            problems += error.problems
    placed: list[TrueCounts] = []
    try:
        for chunk in chunks(plan):
            if spine is None:
                break  # without a spine no record can be placed
            for batch in read(chunk, plan):
                counts, found = encode(batch, plan, spine, chunk.name)
                placed.append(counts)
                problems += found
    except ProblemsFound as error:
        problems += error.problems
    if spine is not None and not problems and not conflicts:
        try:
            facts_of(plan, spine, _true_answers(TrueCounts.sum_of(placed, plan.schema.size), spine))
        except InfeasibleError as error:
            conflicts += error.problems
        except ProblemsFound as error:
            problems += error.problems
    if problems:
        kept = problems[:LISTED]
        if len(problems) > LISTED:
            kept.append(Problem("and", f"{len(problems) - LISTED} more problems"))
        raise InputError(kept)
    if conflicts:
        raise InfeasibleError(conflicts)
    files = [path.name for path in input_files(plan)]
    units = {level: spine.size(level) for level in spine.levels} if spine is not None else {}
    return {
        "ok": True,
        "release": plan.name,
        "geounits": units,
        "input": files,
        "plan_digest": plan.digest,
        "lines": [
            f"{plan.name}: config, geography, input and facts fit together",
            "geounits   " + ", ".join(f"{size:,} {level}" for level, size in units.items()),
            "input      " + ", ".join(files) + " (every row read)",
            *(
                [f"congenial  counts form a tree (laminar): {tree_of(plan).explain()}"]
                if plan.mechanism_stage.sampler
                else []
            ),
            f"plan       {plan.digest[:16]}",
            "nothing was spent",
        ],
    }


def _true_answers(counts: TrueCounts, spine: Spine) -> TrueAnswers:
    """Exact answers at any level, to hold the declared facts against; they stay in memory."""

    def answers(level: str, query: Query) -> NDArray[np.int64]:
        unit = counts.unit
        for below in reversed(spine.levels[spine.levels.index(level) + 1 :]):
            unit = spine.parent(below)[unit]
        return TrueCounts(unit, counts.cell, counts.count).answers(query, spine.size(level))

    return answers
