"""`das table plan`: the three mechanisms and independent noise at one promise under `semi`, by expected L2 cost.

The plan reads the file for the declared public facts alone; everything else is computed from them and public keys.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

from das.errors import ProblemsFound
from das.table.neighbours import Neighbours, neighbours_of
from das.table_release.account import account_of
from das.table_release.data import ConfidentialTable, read_table
from das.table_release.mechanisms import MECHANISMS, Cost, naive_costs, promise_of
from das.table_release.settings import TableSettings, read_settings

__all__ = ["open_table", "plan_table", "plan_text"]


def open_table(config: Path) -> tuple[TableSettings, ConfidentialTable, Neighbours]:
    """Read config and file, and find the neighbours that the public facts leave."""
    settings = read_settings(config)
    table = read_table(settings, settings.input.path(config))
    return settings, table, neighbours_of(table.facts, settings.privacy.adjacency)


def plan_table(config: Path) -> dict[str, Any]:
    """Compare the mechanisms; the one with the smallest expected cost is recommended.

    Raises
    ------
    ProblemsFound
        The config or the file does not fit, or the facts leave nothing to promise.
    """
    settings, table, near = open_table(config)
    promise, delta = promise_of(settings.privacy), settings.privacy.delta or Fraction(0)
    rows: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    for name, keeping in MECHANISMS.items():
        try:
            mechanism = keeping(promise, near)
            cost = mechanism.expected_l2()  # refuses what a release would refuse
        except ProblemsFound as error:
            left_out[name] = error.problems[0].reason
            continue
        account = account_of(table, near, mechanism, settings.secret, delta)
        rows.append({"mechanism": name, "noise": mechanism.noise, **_cost(cost), "keeps_facts": True} | account)
    naive = [
        {"mechanism": name, **_cost(cost), "keeps_facts": False} for name, cost in naive_costs(promise, near).items()
    ]
    best = min(rows, key=lambda row: row["expected_l2"], default=None)
    return {
        "name": settings.name,
        "promise": promise.text,
        "policy": "semi",
        "adjacency": {"a": near.adjacency, "grounds": near.grounds},
        "cells": table.facts.cells,
        "records": table.facts.records,
        "rank": near.lattice.rank,
        "facts_digest": table.facts_digest,
        "mechanisms": rows,
        "naive": naive,
        "left_out": left_out,
        "recommended": best["mechanism"] if best else None,
    }


def plan_text(found: dict[str, Any]) -> str:
    """Return the comparison as lines for a terminal."""
    a = found["adjacency"]
    lines = [
        f"{found['name']}: {found['cells']} cells, {found['records']} records, {found['rank']} dimensions not public",
        f"promise: {found['promise']} under semi, a(t) = {a['a']} ({a['grounds']})",
        "",
        f"{'mechanism':<18}{'expected L2':>12}{'+-':>8}  {'semi':>9}{'irreducible':>13}  facts",
    ]
    for row in (*found["mechanisms"], *found["naive"]):
        epsilons = "".join(f"{each['epsilon']:>11.4f}" for each in row.get("effective", ()))
        error = f"{row['standard_error']:.2f}" if row["standard_error"] else "formula"
        facts = "kept" if row["keeps_facts"] else "broken"
        lines.append(f"{row['mechanism']:<18}{row['expected_l2']:>12.2f}{error:>8}{epsilons or '':<22}    {facts}")
    lines += [f"{name:<18}left out: {reason}" for name, reason in found["left_out"].items()]
    if found["mechanisms"]:
        deltas = ((row["mechanism"], row["effective"][0]["delta"]) for row in found["mechanisms"])
        read = ", ".join(f"{name} at delta {delta:.1e}" if delta else f"{name} pure" for name, delta in deltas)
        lines += ["", f"epsilons: {read}"]
    lines += [
        f"recommended: {found['recommended'] or 'none'} (smallest expected L2 error; epsilon of each policy above)",
    ]
    secrets = {each["secret"]: None for row in found["mechanisms"] for each in row["secrets"]}
    for secret in secrets:
        numbers = [
            f"{row['mechanism']} {each['epsilon']:.4f}" if "epsilon" in each else f"{row['mechanism']} {each['status']}"
            for row in found["mechanisms"]
            for each in row["secrets"]
            if each["secret"] == secret
        ]
        lines.append(f"secret {secret}: {', '.join(numbers)}")
    return "\n".join(lines)


def _cost(cost: Cost) -> dict[str, Any]:
    return {
        "expected_l2": round(cost.mean, 4),
        "standard_error": round(cost.error, 4),
        "grounds": cost.grounds,
    }
