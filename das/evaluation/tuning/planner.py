"""The planner page: one offline file in which budget and shares can be moved, and errors and epsilons follow at once.

The page's script repeats what ``das plan`` states, from numbers that do not depend on the shares: what each move of the
data costs of each measurement's budget (:mod:`das.accounting.moves`; costs are linear in it), and the matrices of the
linear estimates of a typical geounit (:mod:`das.estimation.linear.typical`). What it exports are exact fractions, for
which ``das plan`` is the authority.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from das.accounting.condition import FACTS_IGNORED, Condition
from das.accounting.events import NotSupported, pure_epsilon, zcdp_rho
from das.accounting.hierarchy import HierarchicalPlan
from das.accounting.moves import Move, Secret, determined_queries, presence_move, secret_moves
from das.accounting.policies import POLICIES, attribute_secrets, geography_secrets, policy_moves
from das.accounting.quote import quotes_of
from das.errors import Problem, ProblemsFound, UsageError
from das.estimation.linear.basis import Floats
from das.estimation.linear.typical import TypicalTree
from das.plan.candidate_trees import candidate_shares
from das.plan.for_accountant import hierarchical_plan
from das.plan.geography import spine_of
from das.plan.plan import Plan
from das.promise.account import presence_sections
from das.promise.lines import Lines
from das.report.conditions import footnote_of
from das.report.pages import page_template
from das.schema.query import Neighbours
from geography import Spine

__all__ = ["planner_data", "render_planner"]

LARGEST_BLOCK = 64
"""Rows of a block of the basis for which the page works out linear estimates; beyond it shows the noise alone."""

_DIGITS = 12


def render_planner(plan: Plan) -> str:
    """Write the page.

    Raises
    ------
    UsageError
        The plan's noise is conditioned, which the page's formulas do not describe.
    """
    data = json.dumps(planner_data(plan), ensure_ascii=False).replace("<", "\\u003c")
    script = page_template("das.evaluation.tuning", "planner.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return page_template("das.evaluation.tuning", "planner.html.j2").render(
        name=plan.name, data=data, script=script, digest=digest
    )


def planner_data(plan: Plan) -> dict[str, Any]:
    """Everything that the page's script starts from."""
    if not plan.mechanism_stage.measures:
        reason = "describes noise that is added, and not conforming counts that are drawn"
        raise UsageError(Problem("--html", reason, "use `das plan CONFIG --compare-trees` for the congenial method"))
    try:
        spine = spine_of(plan)
    except ProblemsFound:  # a preset has no files; the account then takes every level to have several geounits
        spine = None
    whole = hierarchical_plan(plan, spine)
    privacy = plan.settings.privacy
    return {
        "name": plan.name,
        "framework": plan.framework,
        "budget": str(plan.budget),
        "delta": float(privacy.delta),
        "unit": privacy.unit,
        "levels": [{"name": level, "share": str(_share(plan, level))} for level in plan.levels],
        "measurements": [_measurement(plan, number) for number in range(len(plan.measurements))],
        "reference": _reference(plan),
        **_promises(plan, whole),
        "exact": [f"{i.query.name} at {i.level}" for i in plan.invariants],
        "paid": [(m.level, m.query.name) in determined_queries(whole) for m in plan.measurements],
        "typical": None if spine is None else _typical(plan, spine),
    }


def _share(plan: Plan, level: str) -> Fraction:
    return sum((m.share for m in plan.at(level)), Fraction(0))


def _measurement(plan: Plan, number: int) -> dict[str, Any]:
    m = plan.measurements[number]
    change = m.query.sensitivity(plan.settings.privacy.neighbours, units=2)
    return {
        "level": m.level,
        "query": m.query.name,
        "cells": m.query.size,
        "share": str(m.share / _share(plan, m.level)),
        "l1": change.l1,
        "l2": change.l2_squared,
    }


def _reference(plan: Plan) -> dict[str, Any]:
    """Shares of the levels to compare with: those of 2020 if the levels are the same, otherwise equal ones."""
    known = candidate_shares(plan)
    name = "production 2020" if "production 2020" in known else "equal"
    words = "the 2020 Census’s shares of the levels" if name != "equal" else "equal shares of the levels"
    return {"words": words, "levels": [str(known[name][level]) for level in plan.levels]}


def _promises(plan: Plan, whole: HierarchicalPlan) -> dict[str, Any]:
    """List the promises with their conditions, and what the numbers that hold otherwise are computed from."""
    lines = Lines(whole, plan.settings.privacy.delta)
    listed: list[dict[str, Any]] = []
    conditions: dict[str, int] = {}
    for line, condition, otherwise in _lines(plan, lines):
        note = footnote_of(condition) if condition else ""
        mark = conditions.setdefault(note, len(conditions) + 1) if note else None
        known = condition is not None and condition.otherwise is not None
        listed.append(line | {"mark": mark, "otherwise": otherwise if known else None})
    semi, a = policy_moves(whole, "semi")
    return {
        "lines": listed,
        "conditions": list(conditions),
        "headline": 1,  # after the nominal number: policy semi, or presence
        "semi": _line(plan, whole, "", semi)["moves"],
        "nearest": _line(plan, whole, "", policy_moves(whole, "nearest")[0])["moves"],
        "others": (a or 2) - 1,
    }


def _lines(plan: Plan, lines: Lines) -> Iterable[tuple[dict[str, Any], Condition | None, str]]:
    """For each promise the moves that it compares, its condition, and which number holds otherwise."""
    whole, leaf = lines.whole, plan.levels[-1]
    yield (
        _line(
            plan,
            whole,
            "nominal on this geography: any record, as if nothing were public",
            policy_moves(whole, "unconstrained")[0],
        ),
        FACTS_IGNORED if plan.invariants or plan.bounds else None,
        "",
    )
    if plan.settings.privacy.neighbours is Neighbours.ADD_REMOVE:
        condition = next(quotes_of(presence_sections(whole, lines.delta))).condition
        yield _line(plan, whole, "a record that is there or not", (presence_move(whole),)), condition, "nominal"
    else:
        for policy, entry in POLICIES.items():
            if entry.is_effective:
                moves = policy_moves(whole, policy)[0]
                yield _line(plan, whole, f"policy {policy}", moves), lines.under(policy).condition, "semi"
    inside = Secret(name=f"attributes within the same {leaf}", within=leaf)
    wider = [Secret(name=f"anything within the same {level}", within=level) for level in plan.levels[-2::-1]]
    alone = [(f"attribute {secret.name} alone", secret) for secret in attribute_secrets(whole)]
    places = [(f"place alone: another {secret.name}", secret) for secret in geography_secrets(whole)]
    for words, secret in (*((each.name, each) for each in (inside, *wider)), *alone, *places):
        found = secret_moves(whole, secret)
        line = _line(plan, whole, words, found if isinstance(found, NotSupported) else tuple(found))
        yield line, lines.about(secret).condition, "pair"


def _line(plan: Plan, whole: HierarchicalPlan, words: str, moves: Iterable[Move] | NotSupported) -> dict[str, Any]:
    if isinstance(moves, NotSupported):
        return {"words": words, "moves": None}
    cost = zcdp_rho if plan.framework == "zcdp" else pure_epsilon
    rows = set()
    for move in moves:
        losses = [cost(event, move.change(event)) for event in whole.events]
        if any(isinstance(loss, NotSupported) for loss in losses):
            return {"words": words, "moves": None}
        parts = zip(losses, plan.measurements, strict=True)
        rows.add(tuple(float(Fraction(loss) / m.cost) for loss, m in parts if not isinstance(loss, NotSupported)))
    # A move that costs no more than another of any measurement is never the worst.
    kept = [row for row in rows if not any(other != row and _covers(other, row) for other in rows)]
    return {"words": words, "moves": sorted(kept)}


def _covers(other: tuple[float, ...], row: tuple[float, ...]) -> bool:
    return all(one >= two for one, two in zip(other, row, strict=True))


def _typical(plan: Plan, spine: Spine) -> dict[str, Any] | None:
    """Matrices of the linear estimates: for each depth and kind of block those of every query, where something is seen.

    The variance of an answer is a sum over depths and kinds of a trace (:mod:`das.estimation.linear.typical`): both its
    factor and the information are made of the same Gram matrices.
    """
    tree = TypicalTree.of(plan, spine)
    if max(where.shape[1] for where in tree.basis.where) > LARGEST_BLOCK:
        return None
    names = list(dict.fromkeys(m.query.name for m in plan.measurements))
    queries = {m.query.name: m.query for m in plan.measurements}
    blocks = []
    for depth in range(len(plan.levels)):
        for kind, where in enumerate(tree.basis.where):
            grams = [tree.basis.information([(queries[name], 1.0)])[kind] for name in names]
            seen = [names.index(m.query.name) for m in plan.measurements if plan.levels.index(m.level) >= depth]
            inside = _seen(tree.free(depth)[kind], [grams[at] for at in dict.fromkeys(seen)])
            if inside.shape[1]:
                small = [inside.T @ gram @ inside for gram in grams]
                blocks.append({"depth": depth, "copies": len(where), "grams": [_plain(gram) for gram in small]})
    return {
        "queries": names,
        "leaves": list(tree.leaves),
        "units": [spine.size(level) for level in plan.levels],
        "blocks": blocks,
    }


def _seen(free: Floats, grams: list[Floats]) -> Floats:
    """Columns that span what is neither exact nor unseen."""
    values, vectors = np.linalg.eigh(free.T @ sum(grams, np.zeros((len(free),) * 2)) @ free)
    return np.asarray(free @ vectors[:, values > 1e-9])


def _plain(gram: Floats) -> list[list[float]]:
    return [[0.0 if abs(x) < 1e-13 else float(f"{x:.{_DIGITS}g}") for x in row] for row in gram.tolist()]
