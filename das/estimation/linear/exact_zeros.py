"""Condition linear estimates on known zeros: structural zeros, and cells that public limits leave empty.

Counts are not negative, so where a sum is known to be zero, each of its cells is: a block without a nursing home has
nobody of any age and race in one. That is far more information than the sum alone. Of the redistricting schema's 2,016
cells a block without group quarters keeps 252, and the noise of the others no longer enters the parents' estimates.

Structural zeros are the same everywhere, so they are conditioned on in the leaves; sums of leaves inherit them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from das.estimation.linear.basis import Basis
from das.estimation.linear.blue import LinearEstimate, exact_share
from das.schema.limits import Limits

__all__ = ["condition_on_zeros", "inside_classes", "known_zeros"]


def known_zeros(basis: Basis, limits: Iterable[Limits], units: int) -> NDArray[np.bool_]:
    """Find the cells that limits leave empty: geounits x combinations of the basis's zero classes.

    A limit on a query that cuts a zero class is not used here; the constrained problem still keeps it.

    Examples
    --------
    >>> from das.schema.query import parse_query
    >>> from das.schema.schema import Attribute, Schema
    >>> schema = Schema((Attribute("sex", ("f", "m")), Attribute("age", ("0-17", "18-64", "65+"))))
    >>> age = parse_query(schema, "age")
    >>> none = Limits(query=age, lower=np.zeros((1, 3), np.int64), upper=np.array([[0, 9, 0]]))
    >>> known_zeros(Basis.of(schema, [age], [age]), [none], 1)
    array([[ True, False,  True]])
    """
    empty = np.zeros((units, math.prod(basis.class_shape)), dtype=bool)
    for limit in limits:
        factors = zip(basis.axes, limit.query.factors, strict=True)
        if all(_is_whole(axis.class_of, factor.group_of) for axis, factor in factors):
            empty |= (limit.upper == 0)[:, limit.query.group_of(basis.one_of_each_class)]
    return empty


def condition_on_zeros(basis: Basis, known: LinearEstimate, empty: NDArray[np.bool_]) -> LinearEstimate:
    """Condition on cells being empty.

    With E the coefficients of the empty cells in a block and F the others,
    m_F -= V_FE V_EE^+ m_E and V_FF -= V_FE V_EE^+ V_EF, and all that concerns E is zero.

    Parameters
    ----------
    basis, known
        Linear estimates in their basis.
    empty : ndarray of bool
        As :func:`known_zeros` returns it.
    """
    if not empty.any():
        return known
    mean, covariance = known.mean.copy(), [np.array(block) for block in known.covariance]
    patterns, pattern_of = np.unique(empty, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        if not pattern.any():
            continue
        units = np.flatnonzero(pattern_of.reshape(-1) == number)
        parts = zip(known.covariance, covariance, basis.where, inside_classes(basis, pattern), strict=True)
        for old, block, where, gone in parts:
            e, f = np.flatnonzero(gone), np.flatnonzero(~gone)
            if not len(e):
                continue
            # Leaves share one covariance: what is common to a pattern is worked out once.
            own = old[:1] if old.strides[0] == 0 else old[units]
            share = exact_share(known.covariance, own[:, e[:, None], e], own[:, e[:, None], f])
            at = np.ix_(units, where.reshape(-1))
            here = mean[at].reshape(len(units), *where.shape)
            here[..., f] -= here[..., e] @ share
            here[..., e] = 0.0
            mean[at] = here.reshape(len(units), -1)
            left = own[:, f[:, None], f] - own[:, f[:, None], e] @ share
            block[units] = 0.0
            block[np.ix_(units, f, f)] = (left + np.swapaxes(left, -1, -2)) / 2
    return LinearEstimate(mean, covariance)


def inside_classes(basis: Basis, pattern: NDArray[np.bool_]) -> Iterable[NDArray[np.bool_]]:
    """For each kind of block, which of its coefficients are those of empty cells."""
    known = pattern.reshape(basis.class_shape)
    for kind in basis.kinds:
        at = [
            np.array([k - 1]) if k else axis.class_of_vector[: axis.shared]
            for axis, k in zip(basis.axes, kind, strict=True)
        ]
        yield known[np.ix_(*at)].reshape(-1)


def _is_whole(class_of: NDArray[np.int64], group_of: NDArray[np.int64]) -> bool:
    """Whether each class lies within one group."""
    return len(set(zip(class_of.tolist(), group_of.tolist(), strict=True))) == int(class_of.max()) + 1
