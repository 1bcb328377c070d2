"""What is expected of counts before they are looked at: the more, the fewer people there are to tell of.

Noise does not shrink with a cell. Where the parent has three people of a kind, measurements say next to nothing about
which of its children they live in, and the nearest table sends them to whichever child drew the largest noise. Most
cells of most tables are of this sort. So the distance from the linear estimates gets a term for what is expected of a
cell by those who know the other cells, and how good such expectations are is learnt from the same estimates:

- Below the top the people of a cell are expected to share out among the children as other people do: all others, or
  those others who have an attribute in common with them. Which of these, and how far people gather beyond that, is
  learnt from all cells of the family (:mod:`das.estimation.prior.dirichlet_multinomial`). With the mean m and the variance w of each child's
  count, on tables with the parent's sums, the term is the quadratic
      sum over children of  (x - m)^2 / w,
  as strong as a measurement where shares turn out to predict well or people are few, and next to nothing where hundreds
  may live together or apart. Children that cannot have anybody in a cell have no share of it.
- At the top nothing is known above, only that a count is not negative. Given its mean m, the law that says least is the
  exponential one, x / m, which adds 2 x / m to twice the negative logarithm of a likelihood, that is, to the distance.
  m is what attributes would give that have nothing to do with one another, the product of their shares, times a factor
  whose distribution is learnt from all cells (:mod:`das.estimation.prior.exponential`). So a cell in which nobody is expected does
  not keep what noise has put there, and the excess of noise that is cut off below and not above is taken from such
  cells and not from the few large ones.

A cell is never expected to be what it was itself estimated to be: it is left out of the sums that speak for it.
The terms exclude no table. Linear estimates and their intervals do not contain them.
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

_SUREST = 4.0
"""No expectation weighs more than so many times what was measured, however sure it is. Beyond that it says nothing new,
and weights of all sizes beside one another only make the nearest table harder to find."""


def add_size_prior(distance: Quadratic, basis: Basis, known: LinearEstimate, cells: NDArray[np.int64]) -> Quadratic:
    """Add 2 x / m for each count at the top of the spine that is not known exactly."""
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
    """Add to the distance of a family how far its children are from what the parent's other people let expect."""
    n, m = distance.linear.shape
    variance = _variances(basis, known, cells)
    left = parent - np.where(variance > 0, 0.0, distance.reference).sum(axis=0)  # but for those who are known exactly
    some = np.flatnonzero(((variance > 0).sum(axis=0) > 1) & (left >= 0.5))
    if not len(some):
        return distance
    reference, variance, people = distance.reference[:, some], variance[:, some], left[some]
    may = variance > 0
    others = other_people(basis, known, cells[some], ("total", *basis.schema.names))
    guesses = [ShareEstimate.by(*each, may) for each in others]
    mean, spread = fit_shares(reference, variance, people, guesses)
    weight, off = np.zeros((n, m)), np.zeros((n, m))
    weight[:, some] = np.divide(1.0, spread, out=np.zeros_like(spread), where=may)
    off[:, some] = mean - reference
    # The weight is that of one child and one cell: a cell's pair with itself becomes a kind of its own.
    kinds, table = _kinds(distance, basis, cells)
    own = np.diagonal(kinds)
    np.minimum(weight, _SUREST * table[:, own], out=weight)
    table = np.concatenate([np.broadcast_to(table, (n, table.shape[1])), table[:, own] + weight], axis=1)
    kinds = kinds.copy()
    np.fill_diagonal(kinds, np.arange(table.shape[1] - m, table.shape[1]))
    return replace(
        distance,
        hessian=table,
        kinds=kinds,
        linear=distance.linear + weight * off,
        constant=distance.constant + float((weight * off * off).sum()),
    )


def other_people(
    basis: Basis, known: LinearEstimate, cells: NDArray[np.int64], queries: Sequence[str]
) -> Iterator[tuple[Floats, Floats]]:
    """Say for each query, child and cell how many there may be in the same group as the cell, but not in it.

    That is the estimate, if it is not negative, and a standard deviation more: children x cells, all positive; with its
    variance.
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
    """Kinds of pairs of cells and the curvature of each; one row if all children share it."""
    if distance.kinds is not None:
        return distance.kinds, distance.hessian
    m = len(cells)
    few = basis.pairs <= m * m
    kinds = basis.pair_of(cells) if few else np.arange(m * m).reshape(m, m)
    table = np.zeros((1, basis.pairs if few else m * m))
    table[0, kinds] = distance.hessian
    return kinds, table
