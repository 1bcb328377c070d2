"""Controlled rounding: integer counts near a real-valued solution that keep every constraint exactly.

A family is a transportation problem: the people of each of the parent's cells go to the children. Sums that refine one
another (total, then race, then race and age, then cell) form a tree within each child, and the whole is a network,
whose vertices are integral (Hoffman and Kruskal 1956). A minimum-cost flow keeps every cell, and every sum along the
tree, between the floor and the ceiling of its real value (controlled rounding, Cox 1987) at the least squared distance.
The first tree is that of the sums that were measured best; the second, if the first breaks a limit, that of limits that
refine one another. Where it breaks one of the others, a mixed-integer program takes its place.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from das.estimation.flow import TIE_BITS, Network, fixed_cost, unit_steps
from das.estimation.grouping import Grouping, group_cells
from das.estimation.problem import FamilyProblem
from das.estimation.support import SupportLimits, infeasible, limits_on_support
from das.estimation.verify import VerificationError, keeps, require_exact
from das.schema.limits import NO_LIMIT

__all__ = ["Rounded", "round_family", "tie_breaks"]

_SNAP = 1e-6
"""A value this close to an integer is that integer: the difference is the solver's error."""
_WIDENINGS = 6
_TIES_AFTER = 20
_SCALE = 2.0**-18
"""Brings the flow's whole-numbered costs to a size at which a tie is still more than the solver's tolerances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounded:
    """Integer counts, their L1 distance to the real-valued solution, and how often the box had to be widened."""

    counts: NDArray[np.int64]
    distance: float
    widened: int


def round_family(problem: FamilyProblem, x: NDArray[np.float64]) -> Rounded:
    """Round a real-valued solution of a family to counts that satisfy every constraint exactly.

    Examples
    --------
    >>> family = FamilyProblem(level="tract", geocodes=("1", "2"), cells=np.arange(2), parent=np.array([5, 4]),
    ...                        measured=(), limits=())
    >>> round_family(family, np.array([[3.7, 1.4], [1.3, 2.6]])).counts.tolist()
    [[4, 1], [1, 3]]
    """
    known = limits_on_support(problem)
    snapped = np.maximum(_snap(x), 0.0)
    tree = _refining(known)
    # Near a solution that keeps them most limits hold without being imposed: the sums measured best come first.
    for first in ((), tree) if known else ((),):
        counts = _by_flow(problem, _controls(problem, first), snapped, 0)
        if counts is not None and keeps(known, counts):
            return _rounded(problem, known, counts, x, 0)
    attempt, controls = (_by_flow if len(tree) == len(known) else _by_program), _controls(problem, known)
    for widened in range(_WIDENINGS):
        counts = attempt(problem, controls, snapped, (1 << widened) - 1)
        if counts is not None:
            return _rounded(problem, known, counts, x, widened)
    counts = _anywhere(problem, controls, snapped)
    if counts is not None:
        return _rounded(problem, known, counts, x, _WIDENINGS)
    raise infeasible(problem) or VerificationError(f"{problem.name}: no integer counts satisfy every limit")


def _rounded(
    problem: FamilyProblem,
    known: tuple[SupportLimits, ...],
    counts: NDArray[np.int64],
    x: NDArray[np.float64],
    widened: int,
) -> Rounded:
    require_exact(problem, known, counts)
    return Rounded(counts=counts, distance=float(np.abs(counts - x).sum()), widened=widened)


def tie_breaks(geocodes: tuple[str, ...], cells: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give each child and cell a fixed number below 2^12 that depends on its geocode and cell alone.

    Equal fractional parts are common. Were the first child always to win, it would gain people in every family.

    Examples
    --------
    >>> tie_breaks(("44001", "44003"), np.arange(3)).tolist()
    [[707, 611, 3965], [3712, 170, 3159]]
    """
    seeds = [int.from_bytes(hashlib.blake2b(code.encode(), digest_size=8).digest(), "little") for code in geocodes]
    word = np.array(seeds, dtype=np.uint64)[:, None] + np.uint64(0x9E3779B97F4A7C15) * (cells + 1).astype(np.uint64)
    # The finaliser of splitmix64 (Steele, Lea and Flood 2014), modulo 2^64.
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    word = (word ^ (word >> np.uint64(31))) >> np.uint64(64 - TIE_BITS)
    return np.asarray(word, dtype=np.int64)


def _snap(value: NDArray[np.float64]) -> NDArray[np.float64]:
    near = np.rint(value)
    return np.where(np.abs(value - near) < _SNAP, near, value)


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums within each child that the rounding controls, and the limits they must keep."""

    grouping: Grouping
    lower: NDArray[np.int64]
    upper: NDArray[np.int64]

    def box(
        self, x: NDArray[np.float64], by: int, nearest: bool
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the real sums and the integers around them that the limits allow."""
        value = _snap(self.grouping.sums(x))
        low, high = (np.rint(value),) * 2 if nearest else (np.floor(value), np.ceil(value))
        return (
            value,
            np.clip(low.astype(np.int64) - by, self.lower, self.upper),
            np.clip(high.astype(np.int64) + by, self.lower, self.upper),
        )


def _refining(known: tuple[SupportLimits, ...]) -> tuple[SupportLimits, ...]:
    """Pick limits, first come first served, that all refine one another."""
    chosen: list[SupportLimits] = []
    for facts in known:
        if all(_nested(facts.grouping, other.grouping) for other in chosen):
            chosen.append(facts)
    return tuple(chosen)


def _controls(problem: FamilyProblem, known: tuple[SupportLimits, ...]) -> list[_Sums]:
    """Collect limits and, while all refine one another, the total and measured queries, most precise first.

    Returns them from coarse to fine.
    """
    n, m = problem.shape
    chosen = [_Sums(facts.grouping, facts.lower, facts.upper) for facts in known]
    everything = Grouping(np.zeros(m, dtype=np.int64), np.zeros(min(m, 1), dtype=np.int64))
    measured = sorted(problem.measured, key=lambda q: (q.variance, q.query.size, q.query.name))
    for grouping in [everything, *(group_cells(q.query, problem.cells) for q in measured)]:
        # A partition as fine as one that is there already is either the same or splits one of its groups.
        is_new = grouping.size < m and all(grouping.size != s.grouping.size for s in chosen)
        if is_new and all(_nested(grouping, s.grouping) for s in chosen):
            unlimited = np.full((n, grouping.size), NO_LIMIT)
            chosen.append(_Sums(grouping, np.zeros_like(unlimited), unlimited))
    return sorted(chosen, key=lambda s: s.grouping.size)


def _nested(a: Grouping, b: Grouping) -> bool:
    fine, coarse = (a, b) if a.size >= b.size else (b, a)
    return fine.coarsen(coarse) is not None


def _cell_box(x: NDArray[np.float64], by: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.maximum(np.floor(x).astype(np.int64) - by, 0), np.ceil(x).astype(np.int64) + by


def _by_flow(problem: FamilyProblem, chain: list[_Sums], x: NDArray[np.float64], by: int) -> NDArray[np.int64] | None:
    """Send the people of each cell through each child's tree of sums to one sink, at minimum cost."""
    n, m = problem.shape
    network = Network()
    sink = network.nodes(1)
    if problem.parent is None:
        cell_nodes = np.repeat(network.nodes(1), m)
    else:
        cell_nodes = network.nodes(m)
        network.supply(cell_nodes, problem.parent)
        network.supply(sink, -problem.parent.sum(keepdims=True))

    # Node that takes the people of each child and cell, from the sink up to the finest sums.
    taker = np.broadcast_to(sink, (n, m))
    for sums in chain:
        value, low, high = sums.box(x, by, nearest=problem.parent is None and sums.grouping.size == 1)
        here = network.nodes(low.size).reshape(low.shape)
        beyond = np.empty_like(here)
        beyond[:, sums.grouping.index] = taker
        network.arcs(here.ravel(), beyond.ravel(), value.ravel(), low.ravel(), high.ravel())
        taker = here[:, sums.grouping.index]
    low, high = _cell_box(x, by)
    at = network.arcs(
        np.tile(cell_nodes, n),
        taker.ravel(),
        x.ravel(),
        low.ravel(),
        high.ravel(),
        tie_breaks(problem.geocodes, problem.cells).ravel(),
    )
    if problem.parent is None:
        network.channel(sink, cell_nodes[:1], int(high.sum()))
    flow = network.solve()
    return None if flow is None else flow[at].reshape(n, m)


def _by_program(
    problem: FamilyProblem, controls: list[_Sums], x: NDArray[np.float64], by: int
) -> NDArray[np.int64] | None:
    """Choose among the integers around each cell by a mixed-integer program, for limits that do not form a network."""
    n, m = problem.shape
    low, high = _cell_box(x, by)
    owner, cost = unit_steps(x.ravel(), low.ravel(), high.ravel())
    if not len(owner):
        return low
    child, cell = np.divmod(owner, m)
    steps = np.arange(len(owner))
    rows = []
    if problem.parent is not None:
        spare = (problem.parent - low.sum(axis=0)).astype(np.float64)
        matrix = sparse.csr_array((np.ones_like(cost), (cell, steps)), (m, len(steps)))
        rows.append(LinearConstraint(matrix, spare, spare))
    for sums in controls:
        _, least, most = sums.box(x, by, nearest=problem.parent is None and sums.grouping.size == 1)
        group = child * sums.grouping.size + sums.grouping.index[cell]
        taken = sums.grouping.sums(low)
        matrix = sparse.csr_array((np.ones_like(cost), (group, steps)), (least.size, len(steps)))
        rows.append(LinearConstraint(matrix, (least - taken).ravel(), (most - taken).ravel()))
    ties = tie_breaks(problem.geocodes, problem.cells).ravel()[owner]
    result = milp(
        fixed_cost(cost, ties) * _SCALE,
        constraints=rows,
        integrality=np.ones_like(cost),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 0.0},
    )
    if result.x is None:
        return None
    counts = low.ravel().copy()
    np.add.at(counts, owner, np.rint(result.x).astype(np.int64))
    return counts.reshape(n, m)


def _anywhere(problem: FamilyProblem, controls: list[_Sums], x: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """Find the nearest counts of all in the sum of absolute differences: the last resort, where no box holds any."""
    n, m = problem.shape
    cells = n * m
    child, cell = np.divmod(np.arange(cells), m)
    same, wide = sparse.eye_array(cells), (slice(None), slice(0, cells))
    rows = [LinearConstraint(sparse.hstack([same, -same, same]), x.ravel(), x.ravel())]
    sums = [(cell, m, problem.parent, problem.parent)] if problem.parent is not None else []
    for each in controls:
        group = child * each.grouping.size + each.grouping.index[cell]
        sums.append((group, each.lower.size, each.lower.ravel(), each.upper.ravel()))
    for group, size, lower, upper in sums:
        matrix = sparse.lil_array((size, 3 * cells))
        matrix[wide] = sparse.csr_array((np.ones(cells), (group, np.arange(cells))), (size, cells))
        rows.append(LinearConstraint(matrix.tocsr(), lower, np.where(upper < NO_LIMIT, upper, np.inf)))
    off = 1.0 + tie_breaks(problem.geocodes, problem.cells).ravel() * 2.0**-_TIES_AFTER
    result = milp(
        np.concatenate([np.zeros(cells), off, off]),
        constraints=rows,
        integrality=np.repeat([1, 0, 0], cells),
        bounds=Bounds(0, np.inf),
        options={"mip_rel_gap": 0.0},
    )
    return None if result.x is None else np.rint(result.x[:cells]).astype(np.int64).reshape(n, m)
