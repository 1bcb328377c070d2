"""Which tables are compared: a(t), the moves of each policy that cost most, and the norm that belongs to `semi`.

The enumeration of `das.accounting.small_table` is exact and small. Here the structure of the public facts does the same
for tables of real size: nested totals and two crossing sets of totals in closed form; moves up to the symmetries of the
facts (cells of one class, and groups of a grid, are interchangeable), which leaves every largest norm as it is.
``neighbours.md`` has the proofs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import comb, prod

import numpy as np
from numpy.typing import NDArray

from das.accounting.small_table.dataspace import TableFacts, semi_adjacency
from das.accounting.small_table.enumeration import irreducible_moves, net_moves, record_classes, sensitivity
from das.accounting.small_table.margins import two_way_adjacency
from das.accounting.small_table.plan import secret_pair_moves
from das.accounting.vacuity import Vacuity, table_vacuity
from das.errors import ConfigError, NothingToPromise, Problem
from das.table.class_graph import class_graph
from das.table.lattice import MoveLattice, equality_rows, move_lattice
from das.table.lattice_k_norm import solved_by
from das.table.norm_body import HullNorm, MaximumNorm, NormBody
from das.table.systems import is_laminar, public_start

__all__ = ["Neighbours", "crossing_sets", "neighbours_of", "partitions_of"]

ENUMERATED = 600
"""Worlds of at most so many tables are enumerated."""
LARGEST_HULL = 12_000
"""Moves of a hull whose norm is computed by linear programming."""

LARGEST_SEARCH = 40_000
"""Sets of cells among which those moves are looked for."""

Labels = tuple[int, ...]


STATED = "stated in the config"
"""The grounds of an a(t) that nobody computed: the promise is about as many records, whatever the facts need."""


@dataclass(frozen=True)
class Neighbours:
    """The neighbours of tables under public facts: built by `neighbours_of`.

    Parameters
    ----------
    facts : TableFacts
    vacuity : Vacuity
        What the facts disclose by themselves.
    adjacency : int
        a(t), or a number that is not below it: how many records may change.
    grounds : str
        Why.
    partitions : tuple of labels
        The crossing sets of totals, as the group of each cell; empty if the totals nest or are of another kind.
    """

    facts: TableFacts
    vacuity: Vacuity
    adjacency: int
    grounds: str
    partitions: tuple[Labels, ...]
    is_nested: bool

    @cached_property
    def moving(self) -> TableFacts:
        """The facts with their equalities as invariants, where cells whose count is public are left out."""
        rows = tuple(tuple(row) for row in equality_rows(self.facts).tolist())
        fixed = frozenset(self.facts.zeros | set(self.vacuity.pinned))
        return TableFacts(cells=self.facts.cells, invariants=rows, zeros=fixed)

    @cached_property
    def lattice(self) -> MoveLattice:
        """All integer moves."""
        return move_lattice(self.facts, self.vacuity.pinned)

    @cached_property
    def representatives(self) -> TableFacts:
        """The facts on so few cells that each move of at most a(t) records has a copy of no smaller norm there."""
        classes = record_classes(self.moving)
        if self.is_nested:
            classes = tuple(sorted(classes, key=len, reverse=True))[: self.adjacency + 1]
        elif self.partitions and len({len(cells) > 1 for cells in classes}) == 1:
            places = [tuple(labels[cells[0]] for labels in self.partitions) for cells in classes]
            groups = [sorted(set(labels)) for labels in zip(*places, strict=True)]
            if len(classes) == prod(map(len, groups)):  # a whole grid: its groups are interchangeable
                kept = set(product(*(each[: self.adjacency] for each in groups)))
                classes = tuple(cells for cells, place in zip(classes, places, strict=True) if place in kept)
        cells = {cell for group in classes for cell in group[:2]}
        if comb(len(cells) + self.adjacency - 1, self.adjacency) > LARGEST_SEARCH:
            reason = f"changes of up to {self.adjacency} records among {len(cells)} kinds of cells are too many to list"
            raise ConfigError(Problem("facts", reason, "publish fewer totals, or a coarser table"))
        return replace(self.moving, zeros=frozenset(set(range(self.facts.cells)) - cells))

    @cached_property
    def semi(self) -> NDArray[np.int64]:
        """Moves of at most a(t) records, up to symmetry and with the largest norms."""
        return net_moves(self.representatives, self.adjacency)

    @cached_property
    def irreducible(self) -> NDArray[np.int64]:
        """Moves of at most a(t) records that need each other, up to symmetry and with the largest norms."""
        return irreducible_moves(self.representatives, self.adjacency)

    @property
    def l1(self) -> int:
        """The largest L1 norm of a move of `semi`."""
        return sensitivity(self.semi)[0]

    @property
    def l2_squared(self) -> int:
        """The largest squared L2 norm of a move of `semi`."""
        return sensitivity(self.semi)[1]

    def secret(self, before: int, after: int) -> tuple[NDArray[np.int64] | None, str]:
        """Return the moves by which one record turns from a cell into another, and on what grounds they are all.

        No rows mean that no two tables agree with the facts and differ like that: the secret is not protected. None
        means that the moves are not known.
        """
        change = np.zeros((1, self.facts.cells), dtype=np.int64)
        change[0, [before, after]] = -1, 1
        if {before, after} & set(self.vacuity.unprotected) or before in self.facts.zeros or after in self.facts.zeros:
            return change[:0], "nobody can be in one of the two cells: this is public"
        if self.is_small:
            return secret_pair_moves(self.facts, before, after), "all tables enumerated"
        if any({before, after} <= set(cells) for cells in record_classes(self.moving)) and not self.facts.bounds:
            return change, "no published total separates the two cells"
        if self.grounds == STATED:
            return None, "how many records must change with the one is stated in the config, and not known"
        if self.facts.bounds:
            return self.semi, "an upper bound: any change of at most a(t) records"
        return self.irreducible, "an upper bound: any change of records that need each other"

    @property
    def is_symmetric_body(self) -> bool:
        """Whether the norm of a representative is that of every move it stands for."""
        return isinstance(self.body, MaximumNorm) or all(len(cells) == 1 for cells in record_classes(self.moving))

    @cached_property
    def is_small(self) -> bool:
        """Whether all tables that agree with the facts can be enumerated."""
        return _is_small(self.facts)

    @cached_property
    def body(self) -> NormBody:
        """The norm whose unit ball is the hull of all moves of at most a(t) records.

        Raises
        ------
        ConfigError
            There are too many moves, or they do not span the lattice.
        """
        if self.is_nested:
            return MaximumNorm(2 * self.adjacency)
        if [len(set(labels)) for labels in self.partitions] == [2, 2] and self.adjacency in (2, 3):
            first, second = self.partitions
            cap = tuple(int(a == first[0] and b == second[0]) for a, b in zip(first, second, strict=True))
            return MaximumNorm(2 * self.adjacency, cap)
        cells, size = len(self.moving.allowed), self.adjacency
        too_many = comb(cells + size - 1, size) > LARGEST_SEARCH
        moves = np.zeros((0, cells), dtype=np.int64) if too_many else net_moves(self.moving, size)
        if too_many or len(moves) > LARGEST_HULL:
            reason = f"the hull of the moves has more than {LARGEST_HULL:,} corners, too many for its norm"
            raise ConfigError(Problem("k-norm", reason, "use `gaussian`, which is exact at this size"))
        if np.linalg.matrix_rank(moves) < self.lattice.rank:
            reason = f"changes of at most {self.adjacency} records do not span the tables that agree with the facts"
            raise ConfigError(Problem("k-norm", reason, "use `gaussian`"))
        free = [cell for part in self.lattice.components for cell in solved_by(self.facts, part)[0].tolist()]
        return HullNorm(moves, tuple(sorted(free)))


def neighbours_of(facts: TableFacts, adjacency: int | None = None) -> Neighbours:
    """Find a(t) and the structure of the facts; refuse facts that leave nothing to promise.

    Parameters
    ----------
    facts : TableFacts
        With their values and the number of records.
    adjacency : int, optional
        How many records may change, where a(t) is not known; the promise is then about as many.

    Raises
    ------
    NothingToPromise
        One table agrees with the facts.
    InfeasibleError
        No table does.
    ConfigError
        a(t) is not known for facts of this kind and size.

    Examples
    --------
    >>> from das.table.example import SEX_BY_AGE
    >>> found = neighbours_of(SEX_BY_AGE)
    >>> found.adjacency, found.grounds, found.l1, found.l2_squared, found.lattice.rank
    (3, 'two crossing sets of totals', 6, 18, 43)
    """
    vacuity = table_vacuity(facts)
    if vacuity.vacuous:
        reason = "one table agrees with all public facts: they disclose it, and no noise can protect it"
        raise NothingToPromise(Problem("facts", reason, "publish fewer of them"))
    blank = Neighbours(facts, vacuity, 0, "", (), is_nested=False)
    rows = equality_rows(facts)
    empty = set(facts.zeros) | set(vacuity.unprotected)
    cells = [cell for cell in range(facts.cells) if cell not in empty]
    every = record_classes(TableFacts(cells=facts.cells, invariants=blank.moving.invariants, zeros=frozenset(empty)))
    start = public_start(facts)
    bounds = [row for row, low, high in facts.bounds if low < high]
    nested = int(np.linalg.matrix_rank(rows[:, cells])) == len(every)
    with_bounds = is_laminar([*(tuple(row) for row in rows.tolist()), *bounds])
    if nested and (not bounds or with_bounds):
        inhabited = sum(bool(start[list(group)].sum()) for group in every)
        found = replace(blank, is_nested=True, adjacency=2 if bounds or inhabited > 1 else 1, grounds="nested totals")
        return _declared(found, adjacency)
    sets = _crossing(rows, facts.cells, cells) if not bounds else ()
    if len(sets) == 2 and _is_grid(sets, cells):
        totals = [np.bincount(np.array(labels)[cells], weights=start[cells]).astype(int).tolist() for labels in sets]
        a = max(1, two_way_adjacency(*totals))
        return _declared(replace(blank, partitions=sets, adjacency=a, grounds="two crossing sets of totals"), adjacency)
    if _is_small(facts):
        enumerated = replace(blank, adjacency=semi_adjacency(facts), grounds="all tables enumerated")
        return _declared(enumerated, adjacency)
    if adjacency is not None:
        return _declared(blank, adjacency)
    if len(sets) > 2 and _is_grid(sets, cells):
        grounds = "an upper bound for several crossing sets of totals: one compensating record for each"
        return replace(blank, partitions=sets, adjacency=len(sets) + 1, grounds=grounds)
    reason = "how many records must change together is not known for crossing facts of this size"
    remedy = "state it as privacy.adjacency, and the promise is about as many; or publish fewer totals"
    raise ConfigError(Problem("facts", reason, remedy))


def partitions_of(rows: NDArray[np.int64], cells: list[int]) -> tuple[Labels, ...] | None:
    """Put totals together to sets that part the cells; each set is the group of every one of `cells`.

    A total without its counterpart is parted from the rest, because the number of records is public.

    Examples
    --------
    >>> partitions_of(np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]]), [0, 1, 2, 3])
    ((1, 1, 2, 2), (1, 0, 1, 0))
    """
    if np.any((rows != 0) & (rows != 1)):
        return None
    sets: list[list[NDArray[np.bool_]]] = []
    for row in np.unique(rows[:, cells].astype(bool), axis=0)[::-1]:
        if not row.any() or row.all():
            continue
        home = next((blocks for blocks in sets if not any(np.any(row & block) for block in blocks)), None)
        if home is None:
            sets.append([row])
        else:
            home.append(row)
    found = []
    for blocks in sets:
        labels = sum((number * block.astype(int) for number, block in enumerate(blocks, start=1)), np.zeros(len(cells)))
        found.append(tuple(int(label) for label in labels))
    return tuple(found)


def crossing_sets(facts: TableFacts) -> tuple[Labels, ...]:
    """Return the finest sets of totals, each as the group of every cell; () if the equalities are of another kind.

    Examples
    --------
    >>> facts = TableFacts(cells=4, invariants=((1, 1, 0, 0), (1, 0, 1, 0)), values=(2, 3), records=5)
    >>> crossing_sets(facts)
    ((1, 1, 0, 0), (1, 0, 1, 0))
    """
    return _crossing(equality_rows(facts), facts.cells, list(facts.allowed))


def _crossing(rows: NDArray[np.int64], cells: int, kept: list[int]) -> tuple[Labels, ...]:
    """Return the finest sets of totals, as the group of every cell of the table; cells that are left out are in 0."""
    sets = partitions_of(rows, kept)
    if sets is None:
        return ()
    finest = [one for one in sets if not any(_refines(other, one) for other in sets if other is not one)]
    whole = []
    for labels in finest:
        group = np.zeros(cells, dtype=np.int64)
        group[kept] = labels
        whole.append(tuple(group.tolist()))
    return tuple(whole)


def _refines(fine: Labels, coarse: Labels) -> bool:
    pairs = set(zip(fine, coarse, strict=True))
    return len(pairs) == len(set(fine)) and (len(set(fine)) > len(set(coarse)) or fine < coarse)


def _is_grid(sets: tuple[Labels, ...], cells: list[int]) -> bool:
    """Whether each choice of one group of every set has a cell."""
    chosen = [[labels[cell] for cell in cells] for labels in sets]
    return len(set(zip(*chosen, strict=True))) == prod(len(set(labels)) for labels in chosen)


def _declared(found: Neighbours, adjacency: int | None) -> Neighbours:
    if adjacency is None or adjacency == found.adjacency:
        return found
    if adjacency < found.adjacency:
        reason = f"{adjacency} is below a(t) = {found.adjacency}: some changes of one person need more records"
        raise ConfigError(Problem("privacy.adjacency", reason, "leave it out"))
    grounds = f"{found.grounds}, and more records than they need are stated" if found.adjacency else STATED
    return replace(found, adjacency=adjacency, grounds=grounds)


def _is_small(facts: TableFacts) -> bool:
    """Count the tables that agree with the facts, by class totals and their splits."""
    try:
        graph = class_graph(facts)
    except ConfigError:
        return False
    ahead = [1]
    for level in reversed(range(len(graph.cells))):
        size = len(graph.cells[level])
        ways = [comb(total + size - 1, size - 1) for total in range(graph.tops[level] + 1)]
        ahead = [sum(ways[amount] * ahead[node] for amount, node in edges) for edges in graph.edges[level]]
    return ahead[0] <= ENUMERATED
