"""What is expected of counts before they are looked at: the more, the fewer people there are to tell of.

Noise does not shrink with a cell. Where the parent has three people of a kind, measurements say next to nothing about
which of its children they live in, and the nearest table sends them to whichever child drew the largest noise. Most
cells of most tables are of this sort. So the distance from the linear estimates gets a term for what anybody would
expect who knows no more than the parent's counts and how large the children are:

- The people of a cell gather: each goes to a child by its size or to where others of the cell went before. That is
  Polya's urn, the Dirichlet-multinomial law (Mosimann 1962, "On the compound multinomial distribution", Biometrika 49),
  here with a weight of one for size, as much as for a single person: the choice that says least for any number of
  children (Perks 1947, "Some observations on inverse probability", J. Inst. Actuaries 73). With q the children's shares
  of all people and p the people of a cell, x has the mean p q and the covariance p (p + 1) / 2 (diag q - q q'). On
  tables with the parent's sums that is the quadratic
      sum over children of  2 (x - p q)^2 / (q p (p + 1)),
  as strong as a measurement for a few people, and next to nothing for hundreds, who may live together or apart.
  Children that cannot have anybody in a cell have no share of it.
- At the top nothing is known above, only that a count is not negative. Given its mean m, the law that says least is the
  exponential one, x / m, which adds 2 x / m to twice the negative logarithm of a likelihood, that is, to the distance.
  The mean is taken from the estimate itself, max(z, 0) plus its standard deviation. So what many cells near zero have
  too much, because noise is cut off below and not above, is paid for by them and not by the few large cells.

The terms exclude no table. Linear estimates and their intervals do not contain them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from das.estimation.blocks import Basis
from das.estimation.learning import RELATIVE_ZERO, Knowledge
from das.estimation.problem import Quadratic
from das.estimation.totals import Totals
from das.query import parse_query

__all__ = ["expect_sharing", "expect_sizes"]

Floats = NDArray[np.float64]


def expect_sizes(distance: Quadratic, basis: Basis, known: Knowledge, cells: NDArray[np.int64]) -> Quadratic:
    """Add 2 x / m for each count at the top of the spine that is not known exactly."""
    deviation = np.sqrt(_variances(basis, known, cells))
    mean = np.maximum(distance.reference, 0.0) + deviation
    slope = np.where(deviation > 0, 1.0 / np.where(deviation > 0, mean, 1.0), 0.0)
    return replace(
        distance,
        pull=distance.pull - slope,
        constant=distance.constant + 2.0 * float((slope * distance.reference).sum()),
    )


def expect_sharing(
    distance: Quadratic, basis: Basis, known: Knowledge, cells: NDArray[np.int64], parent: NDArray[np.int64]
) -> Quadratic:
    """Add to the distance of a family how far its children are from the parent's people shared out by size."""
    n, m = distance.pull.shape
    totals = Totals.of(basis, known)
    size = (totals.aims(parent) + np.sqrt(totals.variance))[:, None] * (_variances(basis, known, cells) > 0)
    among = (size > 0).sum(axis=0)
    weighed = (size > 0) & (among > 1)
    if not weighed.any():
        return distance
    share = size / np.where(among > 0, size.sum(axis=0), 1.0)
    spread = share * (parent * (parent + 1.0) / 2.0)
    weight = np.where(weighed, 1.0 / np.where(weighed, spread, 1.0), 0.0)
    off = share * parent - distance.reference
    # The weight is that of one child and one cell: a cell's pair with itself becomes a kind of its own.
    kinds, table = _kinds(distance, basis, cells)
    own = np.diagonal(kinds)
    table = np.concatenate([np.broadcast_to(table, (n, table.shape[1])), table[:, own] + weight], axis=1)
    kinds = kinds.copy()
    np.fill_diagonal(kinds, np.arange(table.shape[1] - m, table.shape[1]))
    return replace(
        distance,
        curvature=table,
        kinds=kinds,
        pull=distance.pull + weight * off,
        constant=distance.constant + float((weight * off * off).sum()),
    )


def _variances(basis: Basis, known: Knowledge, cells: NDArray[np.int64]) -> Floats:
    """Variance of each cell; zero, not nearly zero, where it is known exactly."""
    every = basis.variances(parse_query(basis.schema, "detailed"), known.covariance)
    return np.where(every > RELATIVE_ZERO * every.max(), every, 0.0)[:, cells]


def _kinds(distance: Quadratic, basis: Basis, cells: NDArray[np.int64]) -> tuple[NDArray[np.int64], Floats]:
    """Kinds of pairs of cells and the curvature of each; one row if all children share it."""
    if distance.kinds is not None:
        return distance.kinds, distance.curvature
    m = len(cells)
    few = basis.pairs <= m * m
    kinds = basis.pair_of(cells) if few else np.arange(m * m).reshape(m, m)
    table = np.zeros((1, basis.pairs if few else m * m))
    table[0, kinds] = distance.curvature
    return kinds, table
