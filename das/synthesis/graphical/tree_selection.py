"""MST and Bayes nets: models whose structure is chosen first, and measured once.

`fit_mst` is the mechanism of McKenna, Miklau and Sheldon (2021, arXiv 2108.04978): one third of rho for single
attributes, one third for choosing a spanning tree of pairs, one third for the pairs. `fit_bayes_net` grows a network as
PrivBayes does (Zhang et al. 2017, doi 10.1145/3134428), one attribute and its parents at a time; its score is the L1
distance of the family's counts to those of a model in which the attribute is independent of its parents, which moves
by 1 or 2 between neighbours, and not mutual information, whose sensitivity is larger for what it tells.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from math import pi, sqrt

import networkx as nx
import numpy as np

from das.synthesis.curator import Curator
from das.synthesis.domain import Constraints
from das.synthesis.graphical.fit import FitOptions, check_size, fit, tree_of
from das.synthesis.graphical.model import GraphicalModel
from das.synthesis.graphical.pairs import measure_together, possible_cells
from das.synthesis.shares import check_options, require_selection, settle_total

__all__ = ["BayesNetOptions", "MstOptions", "fit_bayes_net", "fit_mst"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MstOptions:
    """How models are fitted; the thirds are the published ones."""

    fitting: FitOptions = field(default_factory=FitOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class BayesNetOptions:
    """The most parents of an attribute, and the part of the budget that chooses them."""

    parents: int = 2
    selection_share: Fraction = Fraction(3, 10)
    fitting: FitOptions = field(default_factory=FitOptions)

    def __post_init__(self) -> None:
        check_options(self)


def fit_mst(
    curator: Curator, constraints: Constraints, total: int | None, options: MstOptions | None = None
) -> GraphicalModel:
    """Measure single attributes, choose a spanning tree, measure its pairs; spend the whole budget."""
    options = options or MstOptions()
    domain = curator.domain
    ones = [(name,) for name in domain.names]
    edges_wanted = len(ones) - 1
    check_size(tree_of(domain, ones, constraints), options.fitting)
    constraints.check(domain, total)
    third = curator.budget / 3
    if edges_wanted:
        require_selection(curator, third / edges_wanted, total)
    n = settle_total(curator, total)
    measured = measure_together(curator, constraints, ones, third if edges_wanted else curator.left)
    model = fit(measured, domain, constraints, total=n, options=options.fitting)
    if not edges_wanted:
        return model
    estimates = model.marginals(domain.subsets(2))
    forest = nx.utils.UnionFind(domain.names)
    chosen: list[tuple[str, ...]] = []
    for _ in range(edges_wanted):
        open_pairs = [pair for pair in estimates if forest[pair[0]] != forest[pair[1]]]
        picked = curator.select(
            open_pairs, [estimates[pair] for pair in open_pairs], [0.0] * len(open_pairs), third / edges_wanted
        )
        chosen.append(open_pairs[picked])
        forest.union(*open_pairs[picked])
    measured += measure_together(curator, constraints, chosen, curator.left)
    return fit(measured, domain, constraints, total=n, options=options.fitting, start=model)


def fit_bayes_net(
    curator: Curator, constraints: Constraints, total: int | None, options: BayesNetOptions | None = None
) -> GraphicalModel:
    """Grow a network attribute by attribute, measure each family; spend the whole budget."""
    options = options or BayesNetOptions()
    domain = curator.domain
    ones = [(name,) for name in domain.names]
    check_size(tree_of(domain, ones, constraints), options.fitting)
    constraints.check(domain, total)
    steps = len(ones) - 1
    choosing = curator.budget * options.selection_share / max(steps, 1)
    if steps:
        require_selection(curator, choosing, total)
    n = settle_total(curator, total)
    measured = measure_together(curator, constraints, ones, curator.budget * options.selection_share / 2)
    model = fit(measured, domain, constraints, total=n, options=options.fitting)
    if not steps:
        return model
    share = (curator.left - steps * choosing) / steps
    noise = sqrt(curator.changed / (2 * float(share)))
    placed = [min(domain.names, key=lambda name: domain.size_of((name,)))]
    for step in range(steps):
        waiting = [name for name in domain.names if name not in placed]
        width = min(options.parents, len(placed))
        families = [(name, parents) for name in waiting for parents in combinations(placed, width)]
        sets = [domain.ordered((name, *parents)) for name, parents in families]
        independent = []
        for (name, parents), each in zip(families, sets, strict=True):
            joint = np.multiply.outer(model.marginal(parents), model.marginal((name,))) / n
            independent.append(np.transpose(joint, [(*parents, name).index(a) for a in each]))
        penalties = [sqrt(2 / pi) * noise * possible_cells(domain, constraints, each) for each in sets]
        picked = curator.select(sets, independent, penalties, choosing)
        measured.append(curator.measure(sets[picked], curator.left if step == steps - 1 else share))
        placed.append(families[picked][0])
        model = fit(measured, domain, constraints, total=n, options=options.fitting, start=model)
    return model
