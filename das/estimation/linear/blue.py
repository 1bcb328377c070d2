"""Best linear unbiased estimates (BLUE) of every geounit from the measurements of all levels of the spine.

Two sweeps over the tree give them exactly, in time linear in the number of geounits (generalised least squares on a
tree). On the way up, a geounit's estimate combines its own measurements with the sum of its children. On the way down,
each child is updated with the parent's innovation: what the parent's estimate adds to that sum. Covariances are kept,
never their inverses, so an exactly published answer is a variance of zero. All computations are done block by block in
the basis of :mod:`das.estimation.linear.basis`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from das.errors import ConfigError, Problem
from das.estimation.linear.basis import Basis, Blocks, Floats
from das.estimation.problem import Measured, Quadratic
from das.schema.query import Query

__all__ = [
    "RELATIVE_ZERO",
    "Exact",
    "LinearEstimate",
    "condition",
    "distance",
    "pool",
    "pseudo_inverse_for",
    "pseudo_inverses",
    "rows_apart",
    "update",
    "update_from_parent",
]

RELATIVE_ZERO = 1e-11
"""Variances below this share of the largest count as zero: that direction is known exactly."""


@dataclass(frozen=True, slots=True)
class LinearEstimate:
    """Best linear unbiased estimates of some geounits, as coefficients of a basis, and their covariance by block.

    The first axis of ``mean`` runs over the geounits, and so does that of each block. Only where geounits share few
    covariances, as leaves do, a block has a row for each kind of geounit, and ``kind_of`` says which is whose.
    """

    mean: Floats  # geounits x cells
    covariance: Blocks  # each geounits x size x size; with kinds, kinds x size x size
    kind_of: NDArray[np.int64] | None = None

    def each(self) -> LinearEstimate:
        """The same with a covariance for each geounit."""
        if self.kind_of is None:
            return self
        units, kinds = len(self.mean), self.kind_of
        return LinearEstimate(
            self.mean,
            [
                np.broadcast_to(block, (units, *block.shape[1:]))
                if len(block) == 1 and block.flags.c_contiguous
                else rows_apart(block, kinds)
                for block in self.covariance
            ],
        )

    def unit(self, index: int) -> LinearEstimate:
        """The estimate of one geounit, as an array of one."""
        return self.units(slice(index, index + 1))

    def units(self, rows: slice) -> LinearEstimate:
        """The estimates of some of the geounits."""
        blocks = self.each().covariance
        return LinearEstimate(self.mean[rows], [block[rows] for block in blocks])


@dataclass(frozen=True, slots=True)
class Exact:
    """A query's answers that are published exactly, one row per geounit."""

    query: Query
    values: NDArray[np.int64]


def update(
    basis: Basis, measured: tuple[Measured, ...], below: LinearEstimate | None, units: int, where: str
) -> LinearEstimate:
    """Update the sums of the children with the geounits' own measurements.

    With own information M (a sum of Gram matrices over variances) and vector h, and children's sum s with covariance S:
    V = (I + S M)^-1 S and m = s + V (h - M s), which needs neither S nor M to be invertible. Leaves have no children:
    V = M^-1.
    """
    weighted: Floats = np.zeros((units, *basis.schema.shape))
    for noisy in measured:
        weighted += noisy.query.aligned(np.asarray(noisy.values, dtype=np.int64) / noisy.variance)
    queries = [(noisy.query, 1.0 / noisy.variance) for noisy in measured]
    vector = basis.to_coefficients(weighted.reshape(units, basis.schema.size))
    if below is None:
        alone = basis.inverse_information(queries)
        if alone is None:
            reason = 'information = "full" needs a measurement of the detailed query there'
            raise ConfigError(Problem(where, reason, 'measure "detailed" at the lowest level, or use "level"'))
        return LinearEstimate(basis.multiply(vector, alone), [np.broadcast_to(c, (units, *c.shape)) for c in alone])
    own = basis.information(queries)
    covariance: Blocks = [
        _symmetric(np.asarray(np.linalg.solve(np.eye(len(m)) + s @ m, s)))
        for m, s in zip(own, below.covariance, strict=True)
    ]
    innovation = vector - basis.multiply(below.mean, own)
    return LinearEstimate(below.mean + basis.multiply(innovation, covariance), covariance)


def condition(basis: Basis, known: LinearEstimate, facts: tuple[Exact, ...]) -> LinearEstimate:
    """Condition on answers that are published exactly.

    With B an orthonormal basis of what the query sees of a block, and t the answers in it:
    m += (t - B'm) (B'VB)^+ B'V and V -= VB (B'VB)^+ B'V.
    """
    mean, covariance, zero = known.mean.copy(), list(known.covariance), _zero(known.covariance)
    for fact in facts:
        target = basis.spread(fact.query, fact.values.astype(np.float64))
        for at, (where, rows) in enumerate(zip(basis.where, basis.rows(fact.query), strict=True)):
            if rows is None:
                continue
            block = covariance[at]
            seen = block @ rows
            gain = _pseudo_inverse(rows.T @ seen, zero) @ _transposed(seen)
            mean[:, where] += (target[:, where] @ rows - mean[:, where] @ rows) @ gain
            covariance[at] = _symmetric(block - seen @ gain)
    return LinearEstimate(mean, covariance)


def pool(known: LinearEstimate) -> LinearEstimate:
    """Sum of siblings: an estimate of their parent."""
    known = known.each()
    return LinearEstimate(
        known.mean.sum(axis=0, keepdims=True), [block.sum(axis=0, keepdims=True) for block in known.covariance]
    )


def update_from_parent(basis: Basis, children: LinearEstimate, parent: LinearEstimate) -> LinearEstimate:
    """Update children with their parent's innovation, the difference of its estimate from their sum.

    With S the sum of the children's covariances V and A = V S^+:
    b = m + A (b_parent - sum of m) and T = V - A V + A T_parent A'.
    """
    total, kind_of = pool(children), children.kind_of
    innovation = parent.mean - total.mean
    mean, covariance, zero = children.mean.copy(), [], _zero(total.covariance)
    blocks = zip(basis.where, children.covariance, total.covariance, parent.covariance, strict=True)
    for where, own, sum_, above in blocks:
        share = own @ _pseudo_inverse(sum_, zero)
        step = innovation[:, where] @ _transposed(share)
        mean[:, where] += step if kind_of is None else step[kind_of]
        covariance.append(_symmetric(own - share @ own + share @ above @ _transposed(share)))
    return LinearEstimate(mean, covariance, kind_of)


def distance(basis: Basis, known: LinearEstimate, cells: NDArray[np.int64]) -> Quadratic:
    """Write the squared Mahalanobis distance from estimates as a quadratic on some cells.

    Cells left out are zero; their correlation with the cells that are kept gives the linear term. In directions that
    are known exactly the constraints decide, and any positive eigenvalue of the Hessian gives the same solution; they
    get the smallest of the others, so that the problem stays well conditioned.
    """
    precision, modulus = _precisions(known.covariance)
    estimates = basis.to_cells(known.mean)
    outside = estimates.copy()
    outside[:, cells] = 0.0
    linear = basis.to_cells(basis.multiply(basis.to_coefficients(outside), precision))
    one = [block[:1] for block in precision]
    alike = all(
        np.array_equal(np.broadcast_to(first, block.shape), block) for first, block in zip(one, precision, strict=True)
    )
    # Most pairs of cells are of few kinds; where they are not, each pair is a kind of its own.
    few = basis.pairs <= len(cells) ** 2
    chosen = one if alike else precision
    kinds = basis.pair_of(cells) if few else np.arange(len(cells) ** 2).reshape(len(cells), -1)
    table = basis.entries(chosen) if few else basis.kernel(cells, chosen).reshape(len(chosen[0]), -1)
    return Quadratic(
        hessian=table[0].take(kinds) if alike else table,
        kinds=None if alike else kinds,
        reference=estimates[:, cells],
        linear=linear[:, cells],
        constant=float((outside * linear).sum()),
        modulus=modulus,
    )


def pseudo_inverse_for(covariance: Blocks) -> Callable[[Floats], Floats]:
    """Pseudo-inverse of parts of a covariance, on whose scale variances count as zero."""
    zero = _zero(covariance)
    return lambda blocks: _pseudo_inverse(blocks, zero)


def pseudo_inverses(covariance: Blocks) -> Blocks:
    """Pseudo-inverses of covariances: exactly known directions are mapped to zero."""
    zero = _zero(covariance)
    return [_pseudo_inverse(block, zero) for block in covariance]


def rows_apart(block: Floats, rows: NDArray[np.int64]) -> Floats:
    """Some rows of a block, entry by entry beside one another in memory.

    So NumPy lays out a covariance that was repeated for each geounit. The order of its sums follows the layout, and
    with it the last bits of what is released.
    """
    several = rows if len(rows) > 1 else np.repeat(rows, 2)
    return np.moveaxis(np.moveaxis(block, 0, -1).take(several, axis=-1), -1, 0)[: len(rows)]


def _zero(covariance: Blocks) -> float:
    """Threshold below which a variance counts as zero: a share of the largest entry of all blocks.

    A block that is known exactly has only rounding errors for entries, so its own largest entry is not a scale.
    """
    return RELATIVE_ZERO * max(float(np.abs(block).max()) for block in covariance)


def _pseudo_inverse(blocks: Floats, zero: float) -> Floats:
    """Pseudo-inverse of covariances: exactly known directions are mapped to zero."""
    values, vectors = np.linalg.eigh(_symmetric(blocks))
    inverse = np.where(values > zero, 1.0 / np.maximum(values, zero), 0.0)
    return np.asarray((vectors * inverse[..., None, :]) @ _transposed(vectors))


def _precisions(covariance: Blocks) -> tuple[Blocks, float]:
    """Invert covariances, and return a lower bound of all eigenvalues of the inverses."""
    spectra = [np.linalg.eigh(_symmetric(np.asarray(block))) for block in covariance]
    largest = max(float(values.max()) for values, _ in spectra)
    zero, smallest = _zero(covariance), 1.0 / largest
    out = []
    for values, vectors in spectra:
        inverse = np.where(values > zero, 1.0 / np.maximum(values, zero), smallest)
        out.append((vectors * inverse[..., None, :]) @ _transposed(vectors))
    return out, smallest * (1.0 - 1e-9)


def _transposed(blocks: Floats) -> Floats:
    return np.swapaxes(blocks, -1, -2)


def _symmetric(blocks: Floats) -> Floats:
    return np.asarray((blocks + _transposed(blocks)) / 2)
