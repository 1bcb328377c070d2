"""Prior for sparse cells; it weighs more the smaller the count.

Noise does not shrink with a cell. Where the parent has three people in a cell, measurements say little about which of
its children they live in, and the nearest table sends them to whichever child drew the largest noise. Most cells are
like this. So a prior is added to the squared distance from the linear estimates. It is empirical Bayes: its parameters
are estimated from the same linear estimates.

- *Sharing prior*, below the top. A cell's people are split among the children with the shares of other people: all
  others, or those with one attribute in common. Which of these, and the overdispersion, is estimated from all cells of
  the family (:mod:`das.estimation.prior.dirichlet_multinomial`). With mean m and variance w of each child's count, over
  tables with the parent's sums, it adds
      sum over children of  (x - m)^2 / w,
  which is as strong as a measurement where shares predict well or people are few, and negligible where overdispersion
  makes hundreds of people unpredictable. Children that cannot have anybody in a cell have no share of it. A child whose
  own estimate is significantly above its prior mean is an *enclave*: no term is added for it, and the means of the
  others are scaled to the people whom its estimate leaves. Otherwise the prior would take people from groups that live
  together, and the sum would do so even without a term of their own. It is the idea of limited translation (Efron and
  Morris 1972, "Limiting the risk of Bayes and empirical Bayes estimators, Part II", JASA 67): shrink what is
  unremarkable, and leave alone what stands out. Shrinking by a limited distance instead was tried and does worse.
- *Size prior*, at the top. Nothing is known from above, only that counts are not negative. The exponential prior with
  mean m adds 2 x / m to twice the negative log-likelihood, that is, to the distance. m is what independent attributes
  would give (the product of their shares), times a factor whose distribution is estimated from all cells
  (:mod:`das.estimation.prior.exponential`). Nonnegativity truncates noise below and not above; with this prior the
  excess is taken from cells that are probably empty and not from the few large ones.

Predictions are leave-one-out: a cell is left out of the sums that predict it. The priors exclude no table. Linear
estimates and their intervals do not contain them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from das.estimation.grouping import group_cells
from das.estimation.linear.basis import Basis
from das.estimation.linear.blue import RELATIVE_ZERO, LinearEstimate
from das.estimation.prior.dirichlet_multinomial import ShareEstimate, fit_shares
from das.estimation.prior.exponential import NOBODY, fit_means
from das.estimation.problem import Quadratic
from das.schema.query import parse_query

__all__ = ["add_sharing_prior", "add_size_prior", "other_people"]

Floats = NDArray[np.float64]

_LARGEST_WEIGHT = 4.0
"""Largest weight of the sharing prior, as a multiple of the weight that the measurements give the cell. A larger weight
hardly moves the solution and makes the problem worse conditioned."""
_SIGNIFICANT = 2.0
"""An estimate above its prior mean by so many of its standard deviations is an enclave. Lower values gain less, higher
ones take people from enclaves of 2 to 50; chosen on the block counts of a real state with enclaves planted into it."""


def add_size_prior(distance: Quadratic, basis: Basis, known: LinearEstimate, cells: NDArray[np.int64]) -> Quadratic:
    """Add the size prior, 2 x / m for each count at the top of the spine that is not known exactly."""
    deviation = np.sqrt(_variances(basis, known, cells))
    unknown = deviation > 0
    if not unknown.any():
        return distance
    people = np.maximum(basis.to_cells(known.mean).sum(axis=1, keepdims=True), 1.0)
    mean = np.broadcast_to(people, deviation.shape)
    for others, _ in other_people(basis, known, cells, basis.schema.names):
        mean = mean * np.minimum(others / people, 1.0)
    half_gradient = np.zeros(deviation.shape)
    half_gradient[unknown] = 1.0 / fit_means(distance.reference[unknown], deviation[unknown], mean[unknown])
    return replace(
        distance,
        linear=distance.linear - half_gradient,
        constant=distance.constant + 2.0 * float((half_gradient * distance.reference).sum()),
    )


def add_sharing_prior(
    distance: Quadratic, basis: Basis, known: LinearEstimate, cells: NDArray[np.int64], parent: NDArray[np.int64]
) -> Quadratic:
    """Add the sharing prior, (x - m)^2 / w for each count of a family that is not known exactly."""
    n, m = distance.linear.shape
    variance = _variances(basis, known, cells)
    left = parent - np.where(variance > 0, 0.0, distance.reference).sum(axis=0)  # without those known exactly
    chosen = np.flatnonzero(((variance > 0).sum(axis=0) > 1) & (left >= 0.5))
    if not len(chosen):
        return distance
    reference, variance, people = distance.reference[:, chosen], variance[:, chosen], left[chosen]
    allowed = variance > 0
    others = other_people(basis, known, cells[chosen], ("total", *basis.schema.names))
    candidates = [ShareEstimate.by(*counts, allowed) for counts in others]
    mean, spread = fit_shares(reference, variance, people, candidates)
    enclave = allowed & (reference - mean > _SIGNIFICANT * np.sqrt(variance))
    mean = _mean_beside(enclave, reference, mean, people)
    weight, shift = np.zeros((n, m)), np.zeros((n, m))
    weight[:, chosen] = np.divide(1.0, spread, out=np.zeros_like(spread), where=allowed & ~enclave)
    shift[:, chosen] = mean - reference
    # The prior adds to the diagonal of each child's Hessian: each cell's pair with itself becomes a kind of its own.
    kinds, table = _kinds(distance, basis, cells)
    own = np.diagonal(kinds)
    np.minimum(weight, _LARGEST_WEIGHT * table[:, own], out=weight)
    table = np.concatenate([np.broadcast_to(table, (n, table.shape[1])), table[:, own] + weight], axis=1)
    kinds = kinds.copy()
    np.fill_diagonal(kinds, np.arange(table.shape[1] - m, table.shape[1]))
    return replace(
        distance,
        hessian=table,
        kinds=kinds,
        linear=distance.linear + weight * shift,
        constant=distance.constant + float((weight * shift * shift).sum()),
    )


def _mean_beside(enclave: NDArray[np.bool_], reference: Floats, mean: Floats, people: Floats) -> Floats:
    """Scale the prior means of the other children to the people whom the enclaves of a cell leave.

    Examples
    --------
    Of ten people four stand out in the first child; the others' means, five and two, add up to six instead of seven.

    >>> enclave, reference = np.array([[True], [False], [False]]), np.array([[4.0], [5.0], [1.0]])
    >>> _mean_beside(enclave, reference, np.array([[3.0], [5.0], [2.0]]), np.array([10.0]))[:, 0].round(3).tolist()
    [3.0, 4.286, 1.714]
    """
    left = np.maximum(people - np.where(enclave, reference, 0.0).sum(axis=0), 0.0)
    expected = people - np.where(enclave, mean, 0.0).sum(axis=0)
    factor = np.divide(left, expected, out=np.ones_like(left), where=enclave.any(axis=0) & (expected > 0))
    return np.where(enclave, mean, mean * factor)


def other_people(
    basis: Basis, known: LinearEstimate, cells: NDArray[np.int64], queries: Sequence[str]
) -> Iterator[tuple[Floats, Floats]]:
    """Yield leave-one-out counts for each query: the people of the cell's group who are not in the cell.

    They are the linear estimate, or zero if that is negative, plus one standard deviation; children x cells, all
    positive. With each comes its variance.
    """
    estimates = basis.to_cells(known.mean)
    for name in queries:
        query = parse_query(basis.schema, name)
        grouping = group_cells(query, cells)
        variance = np.maximum(basis.variances(query, known.covariance)[:, grouping.answers], 0.0)[:, grouping.index]
        others = query.answer(estimates)[:, grouping.answers][:, grouping.index] - estimates[:, cells]
        yield np.maximum(others, 0.0) + np.sqrt(variance) + NOBODY, variance


def _variances(basis: Basis, known: LinearEstimate, cells: NDArray[np.int64]) -> Floats:
    """Variance of each cell; zero, not nearly zero, where it is known exactly."""
    every = basis.variances(parse_query(basis.schema, "detailed"), known.covariance)
    return np.where(every > RELATIVE_ZERO * every.max(), every, 0.0)[:, cells]


def _kinds(distance: Quadratic, basis: Basis, cells: NDArray[np.int64]) -> tuple[NDArray[np.int64], Floats]:
    """Kinds of pairs of cells and the Hessian entry of each; one row if all children share it."""
    if distance.kinds is not None:
        return distance.kinds, distance.hessian
    m = len(cells)
    few = basis.pairs <= m * m
    kinds = basis.pair_of(cells) if few else np.arange(m * m).reshape(m, m)
    table = np.zeros((1, basis.pairs if few else m * m))
    table[0, kinds] = distance.hessian
    return kinds, table
