"""All pairs of attributes, measured at once, and a few triples that the pairs describe worst.

Non-adaptive but for one round: the noise of a pair follows its number of cells, so that the summed L1 error of all is
least (a share proportional to cells^(2/3) minimises sum of cells / sqrt(share)). The triples are chosen one after the
other by the exponential mechanism from one fit, without replacement, and measured together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import pi, sqrt

import numpy as np

from das.synthesis.curator import Curator, Measurement
from das.synthesis.domain import Constraints, Domain
from das.synthesis.graphical.fit import FitOptions, check_size, fit, tree_of
from das.synthesis.graphical.model import GraphicalModel
from das.synthesis.shares import check_options, proportional, require_selection, settle_total

__all__ = ["PairsOptions", "fit_pairs", "possible_cells"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsOptions:
    """What is measured; the defaults were fixed on the generated file of `das.bench.census_like.employment`.

    Parameters
    ----------
    triples : int
        How many triples are chosen and measured.
    triples_share : Fraction
        Their part of the budget, choosing included.
    selection_share : Fraction
        The part of that for choosing.
    fitting : FitOptions
        How models are fitted.
    """

    triples: int = 4
    triples_share: Fraction = Fraction(1, 5)
    selection_share: Fraction = Fraction(3, 20)
    fitting: FitOptions = field(default_factory=FitOptions)

    def __post_init__(self) -> None:
        check_options(self, may_be_zero=("triples",))


def fit_pairs(
    curator: Curator, constraints: Constraints, total: int | None, options: PairsOptions | None = None
) -> GraphicalModel:
    """Measure all pairs and the triples that they describe worst; spend the whole budget.

    Parameters
    ----------
    curator : Curator
        The confidential records and their budget.
    constraints : Constraints
        What holds exactly.
    total : int or None
        The public number of records; None to measure it.
    options : PairsOptions, optional
        What is measured.
    """
    options = options or PairsOptions()
    domain = curator.domain
    pairs = domain.subsets(min(2, len(domain.names)))
    candidates = domain.subsets(3) if len(domain.names) > 2 else []
    rounds = min(options.triples, len(candidates))
    check_size(tree_of(domain, pairs, constraints), options.fitting)
    constraints.check(domain, total)
    extra = curator.budget * options.triples_share if rounds else Fraction(0)
    choosing = extra * options.selection_share / max(rounds, 1)
    if rounds:
        require_selection(curator, choosing, total)
    n = settle_total(curator, total)
    measured = measure_together(curator, constraints, pairs, curator.left - extra)
    model = fit(measured, domain, constraints, total=n, options=options.fitting)
    if rounds:
        noise = sqrt(curator.changed / (2 * float(extra * (1 - options.selection_share) / rounds)))
        chosen = _worst(curator, constraints, model, candidates, rounds, choosing, noise)
        measured = measured + measure_together(curator, constraints, chosen, curator.left)
        model = fit(measured, domain, constraints, total=n, options=options.fitting, start=model)
    return model


def possible_cells(domain: Domain, constraints: Constraints, attributes: Sequence[str]) -> int:
    """Count the cells of a marginal that no zero rules out."""
    return int(np.count_nonzero(constraints.possible(attributes, domain.shape_of(attributes))))


def measure_together(
    curator: Curator, constraints: Constraints, sets: Sequence[tuple[str, ...]], budget: Fraction
) -> list[Measurement]:
    """Measure several marginals with shares of a budget proportional to cells^(2/3)."""
    weights = [possible_cells(curator.domain, constraints, each) ** (2 / 3) for each in sets]
    shares = proportional(budget, weights)
    return [curator.measure(each, share) for each, share in zip(sets, shares, strict=True)]


def _worst(
    curator: Curator,
    constraints: Constraints,
    model: GraphicalModel,
    candidates: Sequence[tuple[str, ...]],
    rounds: int,
    cost: Fraction,
    noise: float,
) -> list[tuple[str, ...]]:
    """Choose marginals whose distance to the model most exceeds the L1 error that their own noise would have."""
    expected = model.marginals(candidates)
    penalties = [sqrt(2 / pi) * noise * possible_cells(curator.domain, constraints, each) for each in candidates]
    chosen = curator.select_several(candidates, [expected[each] for each in candidates], penalties, cost, rounds)
    return [candidates[k] for k in chosen]
