"""Before anything is spent: everything that can be found wrong, and whether the release was finished before."""

from __future__ import annotations

import json
import textwrap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from das.errors import BudgetError, InfeasibleError, InputError, Problem, ProblemsFound
from das.exact import digest_of_input
from das.facts.collect import TrueAnswers, facts_of
from das.facts.vacuous import refuse_vacuous_facts, refuse_vacuous_plan
from das.plan.describe import unused_delta
from das.plan.geography import areas_of, names_of, spine_of
from das.plan.method_accuracy import accuracy_text
from das.plan.plan import Plan
from das.plan.tree_of_counts import tree_of
from das.records.encode import encode
from das.records.read import chunks, fingerprints, input_files, read
from das.release.finish import is_finished
from das.schema.counts import TrueCounts
from das.schema.query import Query
from das.storage.files import commitment
from das.storage.hardening import harden
from das.storage.layout import Layout
from das.storage.ledger_access import standing
from das.storage.population import Population, population_of
from das.storage.staging import committed
from geography import Spine

__all__ = ["already_finished", "check"]

LISTED = 60


def check(plan: Plan) -> dict[str, Any]:
    """Read geography, areas, bounds and every record, and report all problems at once; nothing is written or spent.

    Raises
    ------
    ProblemsFound
        Of the kind that decides the exit code: input (3) before infeasibility (4) before the ledger (5).
    """
    harden()
    problems: list[Problem] = []
    conflicts: list[Problem] = []
    spine: Spine | None = None
    try:
        spine = spine_of(plan)
    except ProblemsFound as error:
        problems += error.problems
    if spine is not None:
        for read_more in (areas_of, names_of):
            try:
                read_more(plan, spine)
            except ProblemsFound as error:
                problems += error.problems
        refuse_vacuous_plan(plan, spine)
        try:
            facts_of(plan, spine, None)
        except InfeasibleError as error:
            conflicts += error.problems
        except ProblemsFound as error:
            problems += error.problems
    placed: list[TrueCounts] = []
    rows = 0
    try:
        for chunk in chunks(plan):
            if spine is None:
                break  # without a spine no record can be placed
            for batch in read(chunk, plan):
                counts, found = encode(batch, plan, spine, chunk.name)
                placed.append(counts)
                problems += found
                rows += batch.table.num_rows
        if spine is not None and not rows:
            names = ", ".join(path.name for path in input_files(plan))
            problems.append(Problem(names, "holds no row below its header", "name the file that holds the records"))
    except ProblemsFound as error:
        problems += error.problems
    if spine is not None and not problems and not conflicts:
        try:
            answers = _true_answers(TrueCounts.sum_of(placed, plan.schema.size), spine)
            refuse_vacuous_facts(plan, spine, facts_of(plan, spine, answers))
        except InfeasibleError as error:
            conflicts += error.problems
        except ProblemsFound as error:
            problems += error.problems
    people = _population(plan, spine, placed) if spine is not None and not problems else None
    refused, ledger = _ledger(plan, people)
    if problems:
        kept = problems[:LISTED]
        if len(problems) > LISTED:
            kept.append(Problem("and", f"{len(problems) - LISTED} more problems"))
        raise InputError(kept + refused)
    if conflicts:
        raise InfeasibleError(conflicts + refused)
    if refused:
        raise BudgetError(refused)
    files = [path.name for path in input_files(plan)]
    units = {level: int(spine.real(level).sum()) for level in spine.levels} if spine is not None else {}
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
                [
                    f"congenial  counts form a tree (laminar): {tree_of(plan).explain()}",
                    *textwrap.wrap(
                        f"accuracy   {accuracy_text()}", 110, subsequent_indent=11 * " ", break_on_hyphens=False
                    ),
                ]
                if plan.mechanism_stage.sampler
                else []
            ),
            *([f"hint       {unused}"] if (unused := unused_delta(plan)) else []),
            f"ledger     {ledger}",
            f"plan       {plan.digest[:16]}",
            "nothing was spent",
        ],
    }


def already_finished(plan: Plan, layout: Layout) -> str | None:
    """Say when the release in this folder was finished, and whether its input has changed; None if it is not finished.

    The input is compared by the salted commitment that the release published; both stay on the confidential side.
    """
    release = layout.release
    if not is_finished(plan, release):
        return None
    finished = json.loads(release.manifest.read_bytes())["finished"]
    when = f"on {finished[:10]}" if finished else "before (a test run keeps no times)"
    published = (committed(release.mechanism(plan)) or {})["inputs"][0]["sha256_salted"]
    try:
        now = commitment(digest_of_input(fingerprints(input_files(plan))), layout.confidential.salt.read_bytes())
        since = (
            "its input has not changed" if now == published else "its input has changed since, and is not read again"
        )
    except (ProblemsFound, OSError):
        since = "its input, or the salt that its hash was published under, is no longer there to compare"
    return f"{layout.root}: this release was finished {when}; nothing is spent again; {since}"


def _population(plan: Plan, spine: Spine, placed: list[TrueCounts]) -> Population:
    """By which the ledger knows these people under another name."""
    totals = np.zeros(spine.size(spine.levels[-1]), dtype=np.int64)
    for counts in placed:
        np.add.at(totals, counts.unit, counts.count)
    return population_of(fingerprints(input_files(plan)), spine, totals)


def _ledger(plan: Plan, population: Population | None) -> tuple[list[Problem], str]:
    """What the ledger would refuse, and what it says of this plan."""
    try:
        return [], standing(plan, population=population)
    except BudgetError as error:
        return list(error.problems), "refuses"


def _true_answers(counts: TrueCounts, spine: Spine) -> TrueAnswers:
    """Exact answers at any level, to hold the declared facts against; they stay in memory."""

    def answers(level: str, query: Query) -> NDArray[np.int64]:
        unit = counts.unit
        for below in reversed(spine.levels[spine.levels.index(level) + 1 :]):
            unit = spine.parent(below)[unit]
        return TrueCounts(unit, counts.cell, counts.count).answers(query, spine.size(level))

    return answers
