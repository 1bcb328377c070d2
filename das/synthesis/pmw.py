"""Private multiplicative weights: counts pass one after the other, and only those that the table misses are paid for.

Hardt and Rothblum (2010), "A multiplicative weights mechanism for privacy-preserving data analysis", with the counts of
all marginals of one size as the sequence, which goes round until the last update. `mwem-cells` looks for the worst
count instead of the next bad one, and is more accurate at the same budget; the proof is in ``pmw.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, log

import numpy as np

from das.errors import BudgetError, ConfigError, Problem
from das.synthesis.curator import Curator
from das.synthesis.domain import Constraints
from das.synthesis.graphical.projection import projection
from das.synthesis.shares import check_options, settle_total
from das.synthesis.table_model import CellModel, dense, possible_table, require_dense

__all__ = ["PmwOptions", "fit_pmw"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PmwOptions:
    """Updates of the table, the size of the marginals whose counts pass, and the part of an update for finding it."""

    updates: int = 20
    degree: int = 3
    search_share: Fraction = Fraction(2, 3)

    def __post_init__(self) -> None:
        check_options(self)


def fit_pmw(
    curator: Curator, constraints: Constraints, total: int | None, options: PmwOptions | None = None
) -> CellModel:
    """Update the table at counts that it misses by more than the noise of the search; spend the whole epsilon.

    The first threshold is the one that the noise alone passes about once in four rounds of the sequence. A round in
    which nothing passes measures the count at which it ended, and halves the threshold.
    """
    options = options or PmwOptions()
    domain = curator.domain
    require_dense(domain, "pmw")
    constraints.check(domain, total)
    if constraints.invariants:
        raise ConfigError(Problem("invariants", "multiplicative weights do not keep them", "use `pairs` or `aim`"))
    sets = domain.subsets(min(options.degree, len(domain.names)))
    sizes = np.cumsum([0, *(domain.size_of(each) for each in sets)])
    searching = curator.budget / options.updates * options.search_share
    threshold = ceil(4 / searching * Fraction(log(2 * int(sizes[-1]))))
    known = total if total is not None else curator.public_total
    if known is not None and threshold > known:
        reason = f"a count must be off by {threshold} to be found, and there are no more than that many records"
        raise BudgetError(Problem("budget", reason, "give a larger one, fewer updates, or use `histogram`"))
    n = settle_total(curator, total)
    searching = curator.left / options.updates * options.search_share
    answering = curator.left / options.updates - searching
    plan = projection(tuple(range(len(domain.shape))), domain.shape, [domain.axes(each) for each in sets])
    possible = possible_table(domain, constraints).astype(np.float64)
    table = possible * (n / possible.sum())
    begin = 0
    for _ in range(options.updates):
        expected = plan.marginals(table)
        estimates = [expected[domain.axes(each)] for each in sets]
        at = curator.first_above(sets, estimates, begin, threshold, searching)
        if at is None:
            at, threshold = (begin - 1) % int(sizes[-1]), max(1, threshold // 2)
        begin = at + 1
        which = int(np.searchsorted(sizes, at, side="right")) - 1
        cell = at - int(sizes[which])
        answer = curator.measure_cell(sets[which], cell, answering)
        place = dict(zip(sets[which], np.unravel_index(cell, domain.shape_of(sets[which])), strict=True))
        where = tuple(int(place[name]) if name in place else slice(None) for name in domain.names)
        held = float(table[where].sum())
        if held > 0:
            # the step that brings the count to its answer, within its range
            odds = min(max(answer, 0.5), n - 0.5) / (n - min(max(answer, 0.5), n - 0.5)) * (n - held) / held
            table[where] *= odds
            table *= n / table.sum()
    return dense(domain, table, n)
