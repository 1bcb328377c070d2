"""Integer rows from a fitted model by controlled rounding: published marginals lose almost nothing.

Rows sampled independently add their own sampling error to every marginal. Here the expected counts of each node of the
junction tree are rounded in place, with exact totals for every cell of what is already there; then single rows move to
neighbouring cells as long as that brings the marginals closer to the model's. Cells of probability zero stay empty, and
invariants hold exactly: the attributes that they count are placed first, and never moved.

Everything here reads the public model alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from das.errors import InfeasibleError, Problem
from das.synthesis.domain import Constraints, Domain
from das.synthesis.invariant_rounding import round_to_invariants
from das.synthesis.rows_kernel import improve

if TYPE_CHECKING:
    from das.synthesis.graphical.model import GraphicalModel

__all__ = ["MarginalModel", "controlled_rows", "moved_rows", "placed_rows", "systematic_counts", "targets_of"]

Codes = NDArray[np.int64]
_TARGET_CELLS = 4_000_000
"""The most numbers that the rows are held to."""
_SWEEPS = 8


class MarginalModel(Protocol):
    """What rows are moved towards: several marginals of a distribution on a domain."""

    @property
    def domain(self) -> Domain:
        """The attributes."""

    @property
    def constraints(self) -> Constraints:
        """What rows keep exactly."""

    @property
    def total(self) -> float:
        """Number of records that the model stands for."""

    def marginals(self, wanted: Iterable[tuple[str, ...]], /) -> dict[tuple[str, ...], NDArray[np.float64]]:
        """Return expected counts of several marginals."""


def controlled_rows(
    model: GraphicalModel,
    n: int,
    generator: np.random.Generator,
    targets: Sequence[tuple[str, ...]] | None = None,
) -> Codes:
    """Return n rows of label positions whose marginals follow the model's.

    Parameters
    ----------
    model : GraphicalModel
        The public model.
    n : int
        Number of rows; with invariants, their total.
    generator : numpy.random.Generator
        For the rounding, which needs no protection.
    targets : sequence of tuple of str, optional
        Marginals that the rows are held to; all triples, or all pairs, if there is room, by default.
    """
    for each in model.constraints.invariants:
        if int(each.counts.sum()) != n:
            reason = f"the invariant {' * '.join(each.attributes)} has another total"
            raise InfeasibleError(Problem(f"{n} rows", reason, "ask for as many rows as the invariants count"))
    return moved_rows(model, placed_rows(model, n, generator), generator, targets)


def moved_rows(
    model: MarginalModel, rows: Codes, generator: np.random.Generator, targets: Sequence[tuple[str, ...]] | None = None
) -> Codes:
    """Return placed rows in random order after single moves that bring their marginals closer to the model's."""
    domain, constraints, n = model.domain, model.constraints, len(rows)
    sets = targets_of(domain, constraints) if targets is None else [domain.ordered(each) for each in targets]
    fixed = domain.axes(constraints.invariant_attributes)
    free = np.array([axis for axis in range(len(domain.shape)) if axis not in fixed], dtype=np.int64)
    if len(free) and n:
        expected = model.marginals(sets)
        goals = [expected[each] * (n / model.total) for each in sets]
        closed = [~constraints.possible(each, domain.shape_of(each)) for each in sets]
        axes = [domain.axes(each) for each in sets]
        rows = improve(rows, domain.shape, axes, goals, closed, free, generator.permutation(n), sweeps=_SWEEPS)
    return rows[generator.permutation(n)]


def targets_of(domain: Domain, constraints: Constraints) -> list[tuple[str, ...]]:
    """Return the marginals that rows are held to: all triples, or pairs, or single attributes, and the zeros'."""
    for size in (3, 2, 1):
        sets = list(combinations(domain.names, min(size, len(domain.names))))
        if sum(map(domain.size_of, sets)) <= _TARGET_CELLS:
            break
    covered = [set(each) for each in sets]
    more = {zero.attributes for zero in constraints.all_zeros}
    return sets + sorted(each for each in more if not any(set(each) <= other for other in covered))


def systematic_counts(totals: Codes, weights: NDArray[np.float64], generator: np.random.Generator) -> Codes:
    """Split each total over a row of weights, within one of its share, with the sum exact (systematic sampling).

    With a uniform start u, the count of a cell is floor(S_k + u) - floor(S_(k-1) + u) for cumulated shares S. Every
    partial sum along the row is within one of its share as well, and a cell of weight zero gets nothing.

    Examples
    --------
    >>> systematic_counts(np.array([5]), np.array([[0.4, 0.0, 0.6]]), np.random.default_rng(1)).tolist()
    [[2, 0, 3]]
    """
    cumulated = weights.cumsum(axis=1)
    whole = cumulated[:, -1:]
    shares = np.divide(cumulated, whole, out=np.zeros_like(cumulated), where=whole > 0)
    steps = np.floor(shares * totals[:, None] + generator.random(len(totals))[:, None]).astype(np.int64)
    counts = np.diff(np.minimum(steps, totals[:, None]), axis=1, prepend=0)
    missing = totals - counts.sum(axis=1)  # the last step, where u rounded up to one
    if missing.any():
        short = np.flatnonzero(missing)
        counts[short, weights[short].argmax(axis=1)] += missing[short]
    return counts


def placed_rows(model: GraphicalModel, n: int, generator: np.random.Generator) -> Codes:
    """Place rows node by node from the root: each node splits the rows that share a cell of its separator."""
    domain, tree = model.domain, model.tree
    rows = np.zeros((n, len(domain.shape)), dtype=np.int64)
    known = domain.axes(domain.ordered(model.constraints.invariant_attributes))
    if known:
        expected = model.marginal([domain.names[axis] for axis in known])
        counts = round_to_invariants(expected, [domain.names[a] for a in known], model.constraints, generator)
        _write(rows, np.arange(n), known, domain.shape, np.repeat(np.arange(counts.size), counts.reshape(-1)))
    for number, node in enumerate(tree.nodes):
        given = tuple(axis for axis in node if axis in (known if number == 0 else tree.separators[number]))
        new = tuple(axis for axis in node if axis not in given)
        if not new:
            continue
        table = np.transpose(model.tables[number], [node.index(axis) for axis in (*given, *new)])
        outer = int(np.prod([domain.shape[axis] for axis in given], dtype=np.int64))
        weights = table.reshape(outer, -1)
        group = np.ravel_multi_index([rows[:, a] for a in given], [domain.shape[a] for a in given]) if given else None
        order = generator.permutation(n)
        if group is not None:
            order = order[np.argsort(group[order], kind="stable")]
        totals = np.bincount(group, minlength=outer) if group is not None else np.array([n])
        counts = systematic_counts(totals, weights, generator).reshape(-1)
        cells = np.repeat(np.arange(counts.size) % weights.shape[1], counts)
        _write(rows, order, new, domain.shape, cells)
    return rows


def _write(rows: Codes, order: Codes, axes: tuple[int, ...], shape: tuple[int, ...], cells: Codes) -> None:
    codes = np.unravel_index(cells, tuple(shape[axis] for axis in axes))
    for axis, code in zip(axes, codes, strict=True):
        rows[order, axis] = code
