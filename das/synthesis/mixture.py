"""A generative model: a mixture of products, fitted by gradient steps to noisy marginals that are chosen adaptively.

With weights w_k of K components and, in each, independent attributes with probabilities t_kj,

    p(x) = sum_k w_k  prod_j t_kj(x_j) ,

so that any marginal of any domain costs K times its own cells, whatever the number of attributes: no junction tree and
no table of all cells is ever made. Rounds choose the marginals that the mixture describes worst, measure them and fit
again to all measurements, as GEM does with a neural generator (Liu, Vietri and Wu 2021, arXiv 2106.07153); the
generator here is the softmax-parametrised mixture of Aydore et al. (2021, arXiv 2103.06641) and McKenna's
private-pgm, and needs nothing but NumPy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import ceil, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from das.errors import ConfigError, Problem
from das.synthesis.curator import Curator
from das.synthesis.domain import Constraints, Domain
from das.synthesis.graphical.pairs import measure_together, possible_cells
from das.synthesis.mixture_fit import Mixture, fitted, goals_of
from das.synthesis.shares import check_options, require_selection, settle_total

__all__ = ["MixtureModel", "MixtureOptions", "fit_mixture"]

_LARGEST_MARGINAL = 100_000
"""Cells of the largest marginal that is a candidate."""
_REDRAWS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureOptions:
    """What is measured and how it is fitted.

    All were fixed on the generated file of `das.bench.census_like.employment`, except ``for_each``, which needs many
    attributes: the best of 2, 3, 4, 6 and 8 on `census_like.questionnaire(seed=7)`. The README shows another seed.

    Parameters
    ----------
    components : int
        Products in the mixture.
    rounds : int
        How often marginals are chosen, measured and fitted.
    for_each : int
        How many marginals are chosen in all, for each attribute.
    degree : int
        The most attributes of a marginal.
    first_share : Fraction
        Part of the budget for single attributes, before the first round.
    selection_share : Fraction
        Part of a round's budget for choosing.
    steps : int
        Gradient steps after each round; the last round has four times as many.
    tau : Fraction
        Weight of the dependence between components and attributes beside the residuals (`mixture_fit.py`).
    """

    components: int = 100
    rounds: int = 8
    for_each: int = 8
    degree: int = 3
    first_share: Fraction = Fraction(1, 10)
    selection_share: Fraction = Fraction(1, 5)
    steps: int = 200
    tau: Fraction = Fraction(1, 50)

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, eq=False)
class MixtureModel:
    """A mixture of products times a total, conditioned on the cells that are possible.

    Examples
    --------
    >>> halves = Mixture(np.array([0.5, 0.5]), (np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 0.0], [0.0, 1.0]])))
    >>> model = MixtureModel(Domain(("a", "b"), (2, 2)), Constraints(), 10.0, halves)
    >>> model.marginal(("a", "b")).tolist()
    [[5.0, 0.0], [0.0, 5.0]]
    """

    domain: Domain
    constraints: Constraints
    total: float
    mixture: Mixture

    def marginal(self, attributes: Iterable[str]) -> NDArray[np.float64]:
        """Return expected counts of a marginal, axes in the order given."""
        named = tuple(attributes)
        ordered = self.domain.ordered(named)
        return np.transpose(self.marginals([ordered])[ordered], [ordered.index(name) for name in named])

    def marginals(self, wanted: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], NDArray[np.float64]]:
        """Return several marginals; impossible cells are empty and the others share their little mass."""
        out = {}
        for attributes in wanted:
            shape = self.domain.shape_of(attributes)
            table = self.mixture.marginal(self.domain.axes(attributes)).reshape(shape)
            table = np.where(self.constraints.possible(attributes, shape), table, 0.0)
            out[attributes] = np.asarray(table * (self.total / max(float(table.sum()), 1e-300)))
        return out

    def rows(self, n: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """Return n rows: components and labels rounded in place, then moved towards the marginals; zeros are exact."""
        from das.synthesis.rows import moved_rows

        placed = self._possible(self.mixture.rows(n, generator), generator)
        return self._possible(moved_rows(self, placed, generator), generator)

    def _possible(self, rows: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int64]:
        """Draw rows in impossible cells again."""
        for _ in range(_REDRAWS):
            wrong = np.flatnonzero(self._impossible(rows))
            if not len(wrong):
                return rows
            rows[wrong] = generator.permutation(self.mixture.rows(len(wrong), generator))
        right = np.flatnonzero(~self._impossible(rows))
        if not len(right):
            reason = "the mixture has no mass on the cells that its zeros allow"
            raise ConfigError(
                Problem("structural zeros", reason, "use `mst` or `aim`, which keep them by construction")
            )
        rows[wrong] = rows[generator.choice(right, len(wrong))]
        return rows

    def _impossible(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        out = np.zeros(len(rows), dtype=bool)
        for zero in self.constraints.all_zeros:
            out |= zero.impossible[tuple(rows[:, axis] for axis in self.domain.axes(zero.attributes))]
        return out


def fit_mixture(
    curator: Curator, constraints: Constraints, total: int | None, options: MixtureOptions | None = None
) -> MixtureModel:
    """Measure single attributes, then in rounds the marginals that the mixture describes worst; spend the budget."""
    options = options or MixtureOptions()
    domain = curator.domain
    constraints.check(domain, total)
    if constraints.invariants:
        raise ConfigError(Problem("invariants", "a mixture does not keep them", "use `pairs`, `aim` or `mst`"))
    candidates = _candidates(domain, options.degree)
    chosen_in_all = min(options.for_each * len(domain.names), len(candidates))
    first = curator.budget * options.first_share if candidates else curator.budget
    choosing = (curator.budget - first) * options.selection_share / max(chosen_in_all, 1)
    if candidates:
        require_selection(curator, choosing, total)
    n = settle_total(curator, total)
    share = (curator.left - first - chosen_in_all * choosing) / max(chosen_in_all, 1)
    ones = [(name,) for name in domain.names]
    measured = measure_together(curator, constraints, ones, first if candidates else curator.left)
    mixture = Mixture.start(domain.shape, options.components)
    mixture = fitted(mixture, goals_of(measured, domain, constraints, total=n, tau=options.tau), steps=options.steps)
    noise = sqrt(curator.changed / (2 * float(share))) if candidates else 0.0
    penalties = {each: sqrt(2 / pi) * noise * possible_cells(domain, constraints, each) for each in candidates}
    left, open_choices = list(candidates), chosen_in_all
    while open_choices:
        expected = MixtureModel(domain, constraints, n, mixture).marginals(left)
        estimates = [expected[each] for each in left]
        number = min(ceil(chosen_in_all / options.rounds), open_choices)
        chosen = curator.select_several(left, estimates, [penalties[each] for each in left], choosing, number)
        for each in [left[k] for k in chosen]:
            open_choices -= 1
            measured.append(curator.measure(each, share if open_choices else curator.left))
            left.remove(each)
        goals = goals_of(measured, domain, constraints, total=n, tau=options.tau)
        mixture = fitted(mixture, goals, steps=options.steps * (1 if open_choices else 4))
    return MixtureModel(domain, constraints, n, mixture)


def _candidates(domain: Domain, degree: int) -> list[tuple[str, ...]]:
    sizes = range(2, min(degree, len(domain.names)) + 1)
    sets = (each for size in sizes for each in combinations(domain.names, size))
    return [each for each in sets if domain.size_of(each) <= _LARGEST_MARGINAL]
