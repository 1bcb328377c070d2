"""Multiplicative weights: classical MWEM on single counts, and its strong form on whole marginals.

Hardt, Ligett and McSherry (2012), "A simple and practical algorithm for differentially private data release". Each
round chooses by the exponential mechanism what the table so far describes worst, measures it, and moves the table to
all measurements made until then (replay). In the strong form what is chosen is a whole marginal: its cells are
measured at the price of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import pi, sqrt

import numpy as np
from numpy.typing import NDArray

from das.errors import ConfigError, Problem
from das.synthesis.curator import Curator
from das.synthesis.domain import Constraints, Domain
from das.synthesis.graphical.projection import projection
from das.synthesis.shares import check_options, require_selection, settle_total
from das.synthesis.table_model import CellModel, dense, possible_table, require_dense

__all__ = ["MwemOptions", "fit_mwem", "fit_mwem_cells"]

Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class MwemOptions:
    """Rounds, passes over all measurements after each round, and the size of the marginals that are described."""

    rounds: int = 12
    replays: int = 10
    degree: int = 3

    def __post_init__(self) -> None:
        check_options(self)


def fit_mwem_cells(
    curator: Curator, constraints: Constraints, total: int | None, options: MwemOptions | None = None
) -> CellModel:
    """Classical MWEM: single counts, each round half of its budget for choosing and half for measuring.

    The table is multiplied by exp(q (answer - q(table)) / 2n) for each measured count q, and normalised. The result is
    the last table; the average of all rounds, for which the published bound is stated, is worse after replays.
    """
    options = options or MwemOptions(rounds=30, replays=30)
    domain, sets, half = _prepared(curator, constraints, total, options)
    n = settle_total(curator, total)
    half = curator.left / (2 * options.rounds)
    plan = projection(tuple(range(len(domain.shape))), domain.shape, [domain.axes(each) for each in sets])
    table = _uniform(domain, constraints, n)
    measured: list[tuple[tuple[slice | int, ...], int]] = []
    for _ in range(options.rounds):
        found = plan.marginals(table)
        which, cell = curator.select_cell(sets, [found[domain.axes(each)] for each in sets], half)
        answer = curator.measure_cell(sets[which], cell, half)
        place = dict(zip(sets[which], np.unravel_index(cell, domain.shape_of(sets[which])), strict=True))
        measured.append((tuple(int(place[name]) if name in place else slice(None) for name in domain.names), answer))
        for _ in range(options.replays):
            for where, wanted in measured:
                table[where] *= np.exp((wanted - table[where].sum()) / (2 * n))
                table *= n / table.sum()
    return dense(domain, table, n)


def fit_mwem(
    curator: Curator, constraints: Constraints, total: int | None, options: MwemOptions | None = None
) -> CellModel:
    """MWEM on whole marginals under zCDP: a fifth of a round's budget chooses, the rest measures.

    A marginal's cells are multiplied by exp((answer - count) / 2 max(count, answer, noise)): 2n of the classical update
    is twice the largest count that a cell can have, and a cell's own count serves as well with fewer replays.
    """
    options = options or MwemOptions()
    domain, sets, _ = _prepared(curator, constraints, total, options)
    n = settle_total(curator, total)
    share = curator.left / options.rounds
    choosing, measuring = share / 5, share * 4 / 5
    noise = sqrt(curator.changed / (2 * float(measuring)))
    candidates = sorted(
        {part for each in sets for size in range(1, len(each) + 1) for part in combinations(each, size)}
    )
    plan = projection(tuple(range(len(domain.shape))), domain.shape, [domain.axes(each) for each in candidates])
    penalties = [sqrt(2 / pi) * noise * domain.size_of(each) for each in candidates]
    table = _uniform(domain, constraints, n)
    measured: list[tuple[tuple[str, ...], NDArray[np.int64]]] = []
    for number in range(options.rounds):
        found = plan.marginals(table)
        picked = curator.select(candidates, [found[domain.axes(each)] for each in candidates], penalties, choosing)
        cost = curator.left if number == options.rounds - 1 else measuring
        measured.append((candidates[picked], curator.measure(candidates[picked], cost).answers))
        for _ in range(options.replays):
            for attributes, answers in measured:
                table *= _factor(domain, attributes, answers, table, noise)
                table *= n / table.sum()
    return dense(domain, table, n)


def _factor(domain: Domain, attributes: Sequence[str], answers: NDArray[np.int64], table: Table, noise: float) -> Table:
    axes = domain.axes(attributes)
    counts = table.sum(axis=tuple(axis for axis in range(len(domain.shape)) if axis not in axes))
    factor = np.exp((answers - counts) / (2 * np.maximum(np.maximum(counts, answers), noise)))
    return np.asarray(factor.reshape(tuple(domain.shape[a] if a in axes else 1 for a in range(len(domain.shape)))))


def _prepared(
    curator: Curator, constraints: Constraints, total: int | None, options: MwemOptions
) -> tuple[Domain, list[tuple[str, ...]], Fraction]:
    domain = curator.domain
    require_dense(domain, "mwem" if curator.framework == "zcdp" else "mwem-cells")
    constraints.check(domain, total)
    if constraints.invariants:
        raise ConfigError(Problem("invariants", "multiplicative weights do not keep them", "use `pairs` or `aim`"))
    half = curator.budget / (2 * options.rounds)
    require_selection(curator, half, total)
    return domain, domain.subsets(min(options.degree, len(domain.names))), half


def _uniform(domain: Domain, constraints: Constraints, n: float) -> Table:
    possible = possible_table(domain, constraints).astype(np.float64)
    return np.asarray(possible * (n / possible.sum()))
