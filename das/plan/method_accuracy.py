"""How accurate a method is, said where it is chosen: in ``das plan``, ``das check`` and the report of a release.

A congenial release has an exact likelihood, and larger errors than least squares. Cells cannot go below zero, and each
empty one is drawn at zero or above: many of them pull the sums up that they are part of. How much depends on
the tree and the shares, so figures carry what they were measured on.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from das.plan.plan import Plan

__all__ = ["FIGURES", "SOURCE", "accuracy_of", "accuracy_text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Mean absolute errors of one table at one level, with a tree, shares of the levels and both methods."""

    tree: str
    shares: str
    level: str
    table: str
    congenial: float
    least_squares: float


SOURCE = (
    "measured with `das simulate` on the 2010 Census of Rhode Island: 25,181 blocks, voting age by 8 groups of race, "
    "the state total published, effective epsilon 17.15 for all; 2 runs of congenial, 1 of least squares, no prior"
)

_CELLS, _RACE = "detailed at every level", "race above the blocks, detailed in the blocks"
_OF_2020, _EQUAL, _LEAVES = "the levels' shares of 2020", "equal shares", "1895 of 3995 in the blocks"

FIGURES = (
    Figure(tree=_CELLS, shares=_OF_2020, level="tract", table="total", congenial=8.43, least_squares=3.58),
    Figure(tree=_CELLS, shares=_OF_2020, level="block", table="total", congenial=6.14, least_squares=4.58),
    Figure(tree=_CELLS, shares=_EQUAL, level="tract", table="total", congenial=7.90, least_squares=3.48),
    Figure(tree=_CELLS, shares=_EQUAL, level="block", table="total", congenial=3.19, least_squares=2.45),
    Figure(tree=_RACE, shares=_LEAVES, level="county", table="voting age", congenial=1124.9, least_squares=106.8),
)
"""Known errors, for plans of which nothing was simulated."""


def accuracy_of(plan: Plan) -> dict[str, Any] | None:
    """Return what is known about accuracy as plain data; None where the method estimates by least squares."""
    if plan.mechanism_stage.measures:
        return None
    return {"text": accuracy_text(), "source": SOURCE, "figures": [asdict(figure) for figure in FIGURES]}


def accuracy_text() -> str:
    """Say in one paragraph what the congenial method costs in accuracy, with known figures and their conditions.

    Examples
    --------
    >>> accuracy_text().split(":")[0]
    'a congenial release has an exact likelihood, and larger errors than least squares'
    """
    by_tree: dict[str, list[str]] = {}
    for f in FIGURES:
        shown = f"{f.level} {f.table} {f.congenial:.2f} against {f.least_squares:.2f}"
        by_tree.setdefault(f"{f.tree} and {f.shares}", []).append(shown)
    known = "; ".join(f"{', '.join(shown)} with {tree}" for tree, shown in by_tree.items())
    return (
        "a congenial release has an exact likelihood, and larger errors than least squares: cells cannot go below "
        "zero, so that many empty ones pull sums up, most of all sums that are measured in the leaves alone. "
        f"Known mean |error|, congenial against least squares: {known} ({SOURCE}). "
        "`das plan CONFIG --compare-trees` simulates a plan with other trees and shares."
    )
