"""AIM: marginals chosen one at a time, each where the model so far is worst, in a model that grows.

McKenna, Mullins, Sheldon and Miklau (2022), "AIM: An Adaptive and Iterative Mechanism for Differentially Private
Synthetic Data", arXiv 2201.12677, algorithms 1 and 2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from itertools import combinations
from math import pi, sqrt

import numpy as np

from das.synthesis.curator import Curator
from das.synthesis.domain import Constraints
from das.synthesis.graphical.fit import FitOptions, check_size, fit, tree_of
from das.synthesis.graphical.model import GraphicalModel
from das.synthesis.shares import check_options, require_selection, settle_total

__all__ = ["AimOptions", "fit_aim"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AimOptions:
    """The published settings.

    Parameters
    ----------
    degree : int
        The workload is all marginals of so many attributes.
    rounds : int
        Rounds for each attribute that the budget is planned for.
    measuring : Fraction
        Part of a round's budget for measuring; the rest chooses.
    cells : int
        The most numbers of the final model; ten million doubles are the published 80 megabytes.
    fitting : FitOptions
        How models are fitted.
    """

    degree: int = 3
    rounds: int = 16
    measuring: Fraction = Fraction(9, 10)
    cells: int = 10_000_000
    fitting: FitOptions = field(default_factory=FitOptions)

    def __post_init__(self) -> None:
        check_options(self)


def fit_aim(
    curator: Curator, constraints: Constraints, total: int | None, options: AimOptions | None = None
) -> GraphicalModel:
    """Choose, measure and fit in rounds; spend the whole budget."""
    options = options or AimOptions()
    domain = curator.domain
    workload = domain.subsets(min(options.degree, len(domain.names)))
    candidates = sorted(
        {part for each in workload for size in range(1, len(each) + 1) for part in combinations(each, size)}
    )
    weights = {each: sum(len(set(each) & set(other)) for other in workload) for each in candidates}
    ones = [(name,) for name in domain.names]
    check_size(tree_of(domain, ones, constraints), options.fitting)
    constraints.check(domain, total)
    planned = curator.budget / (options.rounds * len(domain.names))
    require_selection(curator, planned * (1 - options.measuring), total)
    n = settle_total(curator, total)
    measuring = planned * options.measuring
    choosing = planned * (1 - options.measuring)
    measured = [curator.measure(each, measuring) for each in ones]
    model = fit(measured, domain, constraints, total=n, options=options.fitting)

    @cache
    def model_cells(sets: frozenset[tuple[str, ...]]) -> int:
        return tree_of(domain, sorted(sets), constraints).cells

    last = False
    while not last:
        if curator.left < 2 * (measuring + choosing):
            last = True
            choosing = curator.left * (1 - options.measuring)
            measuring = curator.left - choosing
        room = options.cells * float(1 - (curator.left - measuring - choosing) / curator.budget)
        known = {each.attributes for each in measured}
        fitting = [each for each in candidates if each in known or model_cells(frozenset({*known, each})) <= room]
        noise = sqrt(curator.changed / (2 * float(measuring)))
        expected = model.marginals(fitting)
        errors = {each: sqrt(2 / pi) * noise * domain.size_of(each) for each in fitting}
        chosen = fitting[
            curator.select(
                fitting,
                [expected[each] for each in fitting],
                [errors[each] for each in fitting],
                choosing,
                [weights[each] for each in fitting],
            )
        ]
        if last:
            measuring = curator.left
        measured.append(curator.measure(chosen, measuring))
        model = fit(measured, domain, constraints, total=n, options=options.fitting, start=model)
        if np.abs(model.marginal(chosen) - expected[chosen]).sum() <= errors[chosen]:
            measuring, choosing = 4 * measuring, 4 * choosing
    return model
