"""Geolevel by query: where the budget goes, and how much noise that leaves in each answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

__all__ = [
    "SHADES",
    "Cell",
    "Grid",
    "Row",
    "budget_grid",
    "exact_share",
    "exact_share_sentence",
    "legend",
    "noise_grid",
]

# Shares at which the heat map turns a shade darker: even steps of a logarithmic scale, since shares span decades.
SHADES = (Fraction(1, 1000), Fraction(3, 1000), Fraction(1, 100), Fraction(3, 100), Fraction(1, 10))
ABSENT = "–"


@dataclass(frozen=True, slots=True)
class Cell:
    """One field: what it says, and how dark it is (0 is the page itself)."""

    text: str
    shade: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One query, by level."""

    query: str
    answers: int
    cells: tuple[Cell, ...]
    total: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """Queries down, levels across; the budget has sums at its edges."""

    levels: tuple[str, ...]
    rows: tuple[Row, ...]
    totals: tuple[str, ...] = ()


def budget_grid(plan: Mapping[str, Any]) -> Grid:
    """Share of the whole budget in percent, shaded.

    Examples
    --------
    >>> half = {"query": "total", "cells": 1, "share": "1/2", "std_dev": 1.0}
    >>> grid = budget_grid({"levels": ["state", "block"],
    ...                     "measurements": [{**half, "level": "state"}, {**half, "level": "block"}]})
    >>> grid.rows[0].cells[0], grid.rows[0].total, grid.totals
    (Cell(text='50.00', shade=6), '100.00', ('50.00', '50.00', '100.00'))
    """
    share = {(m["level"], m["query"]): Fraction(m["share"]) for m in plan["measurements"]}
    levels = tuple(plan["levels"])

    def cell(at: tuple[str, str]) -> Cell:
        return Cell(_percent(share[at]), 1 + sum(share[at] >= s for s in SHADES)) if at in share else Cell(ABSENT)

    def total(level: str | None = None, query: str | None = None) -> str:
        return _percent(
            sum((v for (at, q), v in share.items() if level in (None, at) and query in (None, q)), Fraction())
        )

    rows = (Row(q, n, tuple(cell((at, q)) for at in levels), total(query=q)) for q, n in _queries(plan).items())
    if plan.get("framework") == "zcdp and pure":  # each release has a budget of its own, and they have no sum
        return Grid(levels, tuple(rows))
    return Grid(levels, tuple(rows), (*(total(level=at) for at in levels), total()))


def exact_share(plan: Mapping[str, Any], statement: Mapping[str, Any]) -> str:
    """Percent of the budget that measures what the public facts give exactly; empty where none does.

    Examples
    --------
    >>> half = {"query": "total", "share": "1/3"}
    >>> plan = {"measurements": [{**half, "level": "state"}, {**half, "level": "block"}]}
    >>> exact_share(plan, {"determined_queries": [["state", "total"]]}), exact_share(plan, {})
    ('33.33', '')
    """
    total = sum((Fraction(m["share"]) for m in _measured_again(plan, statement)), Fraction())
    return _percent(total) if total else ""


def exact_share_sentence(plan: Mapping[str, Any], statement: Mapping[str, Any]) -> str:
    """Say which part of the budget measures what is public anyway; empty where none does.

    Examples
    --------
    >>> plan = {"measurements": [{"query": "total", "share": "1/3", "level": "state"}]}
    >>> exact_share_sentence(plan, {"determined_queries": [["state", "total"]]})[:69]
    '33.33 percent of the budget measures what is published exactly (total'
    """
    again = _measured_again(plan, statement)
    if not again:
        return ""
    named = "; ".join(f"{m['query']} at {m['level']}" for m in again)
    what = f"{exact_share(plan, statement)} percent of the budget measures what is published exactly ({named})"
    where = ", ".join(dict.fromkeys(f"[strategy.queries.{m['level']}]" for m in again))
    return f"{what}: it hides nothing and buys no accuracy; without them in {where}, the other queries get it"


def _measured_again(plan: Mapping[str, Any], statement: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    public = {tuple(pair) for pair in statement.get("determined_queries") or ()}
    return [m for m in plan["measurements"] if (m["level"], m["query"]) in public and Fraction(m["share"])]


def legend() -> tuple[Cell, ...]:
    """Name the shades of the budget grid, lightest first.

    Examples
    --------
    >>> [cell.text for cell in legend()]
    ['below 0.1', '0.1 to 0.3', '0.3 to 1', '1 to 3', '3 to 10', '10 and more']
    """
    marks = [f"{float(100 * share):g}" for share in SHADES]
    between = [f"{low} to {high}" for low, high in pairwise(marks)]
    return tuple(Cell(text, k) for k, text in enumerate([f"below {marks[0]}", *between, f"{marks[-1]} and more"], 1))


def noise_grid(plan: Mapping[str, Any]) -> Grid:
    """Standard deviation of the noise of one answer; ``exact`` where the true answer is public."""
    noise = {(m["level"], m["query"]): _deviation(m["std_dev"]) for m in plan["measurements"]}
    noise |= {(i["level"], i["query"]): "exact" for i in plan["invariants"]}
    levels = tuple(plan["levels"])
    rows = (Row(q, n, tuple(Cell(noise.get((at, q), ABSENT)) for at in levels)) for q, n in _queries(plan).items())
    return Grid(levels, tuple(rows))


def _queries(plan: Mapping[str, Any]) -> dict[str, int]:
    return {m["query"]: m["cells"] for m in plan["measurements"]}


def _percent(share: Fraction) -> str:
    percent = 100 * share
    return f"{float(percent):.2f}" if percent == 0 or percent >= Fraction(1, 100) else "<0.01"


def _deviation(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
