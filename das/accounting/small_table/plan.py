"""A plan over one small table under any linear public facts: its moves by enumeration, as changes of the answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from das.accounting.events import Event
from das.accounting.moves import Move
from das.accounting.small_table.dataspace import Moves, Row, TableFacts, data_space
from das.accounting.small_table.enumeration import irreducible_moves, net_moves
from das.errors import ConfigError, Problem

__all__ = ["TablePlan", "secret_pair_moves"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlan:
    """The public facts of a table, its workloads, and what is measured.

    Parameters
    ----------
    facts : TableFacts
        The public facts t.
    workloads : mapping of (level, query) to rows
        Integer weights of each answer over the cells.
    events : tuple of Event
        What is measured.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from das.accounting.events import GaussianEvent
    >>> plan = TablePlan(
    ...     facts=TableFacts(cells=2), workloads={("table", "detailed"): ((1, 0), (0, 1))},
    ...     events=(GaussianEvent(level="table", query="detailed", sigma2=Fraction(1)),))
    >>> [move.changes["table", "detailed"] for move in plan.ball(1)]
    [(-1, 1), (1, -1)]
    """

    facts: TableFacts
    workloads: Mapping[tuple[str, str], tuple[Row, ...]]
    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "workloads", MappingProxyType(dict(self.workloads)))
        problems = [
            Problem(f"event {event.level}/{event.query}", "there is no such workload", "define it")
            for event in self.events
            if (event.level, event.query) not in self.workloads
        ]
        problems += [
            Problem(f"workload {level}/{query}", "its rows do not fit the cells", "give one weight a cell")
            for (level, query), rows in self.workloads.items()
            if any(len(row) != self.facts.cells for row in rows)
        ]
        if problems:
            raise ConfigError(problems)

    def ball(self, radius: int) -> tuple[Move, ...]:
        """All changes of at most `radius` records that keep the invariants."""
        return self.seen(net_moves(self.facts, radius), f"at most {radius} people change, nothing public changes")

    def irreducible(self, size: int) -> tuple[Move, ...]:
        """Changes of at most `size` records that keep the invariants only together."""
        return self.seen(irreducible_moves(self.facts, size), f"up to {size} people who need each other change")

    def seen(self, moves: Moves, words: str) -> tuple[Move, ...]:
        """Return the moves as changes of the answers; moves with equal changes are returned once."""
        answers = {pair: moves @ np.array(rows, dtype=np.int64).T for pair, rows in self.workloads.items()}
        distinct: dict[tuple[tuple[int, ...], ...], Move] = {}
        for index, move in enumerate(moves):
            changes = {pair: tuple(changed[index].tolist()) for pair, changed in answers.items()}
            records = int(np.abs(move).sum()) // 2
            distinct.setdefault(tuple(changes.values()), Move(description=words, records=records, changes=changes))
        return tuple(distinct.values())


def secret_pair_moves(facts: TableFacts, before: int, after: int) -> Moves:
    """Changes of the histogram when some record turns from one cell into another with the fewest others changing.

    Every data set that agrees with the public facts and every smallest compensation counts. No rows means that no data
    set with such a change exists: the secret is unprotected, not free.

    Examples
    --------
    >>> margins = ((1, 1, 0, 0), (0, 0, 1, 1), (1, 0, 1, 0), (0, 1, 0, 1))
    >>> facts = TableFacts(cells=4, invariants=margins, values=(2, 1, 2, 1), records=3)
    >>> secret_pair_moves(facts, 0, 3).tolist()
    [[0, 0, 0, 0], [1, -1, -1, 1]]
    """
    space = data_space(facts)
    found: set[Row] = set()
    targets = space[space[:, after] > 0]
    for x in space[space[:, before] > 0]:
        rest = x.copy()
        rest[before] -= 1
        rest[after] += 1
        distances = np.abs(targets - rest).sum(axis=1)
        if len(distances):
            found.update(tuple((target - x).tolist()) for target in targets[distances == distances.min()])
    return np.array(sorted(found), dtype=np.int64).reshape(len(found), facts.cells)
