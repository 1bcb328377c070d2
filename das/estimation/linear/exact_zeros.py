"""Condition linear estimates on known zeros: cells that public limits leave empty.

Counts are not negative, so where a sum is known to be zero, each of its cells is: a block without a nursing home has
nobody of any age and race in one. That is far more information than the sum alone. Of the redistricting schema's 2,016
cells a block without group quarters keeps 252, and the noise of the others no longer enters the parents' estimates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from das.estimation.linear.basis import Basis
from das.estimation.linear.blue import LinearEstimate, exact_share
from das.schema.limits import Limits

__all__ = ["condition_on_zeros", "known_zeros"]


def known_zeros(basis: Basis, limits: Iterable[Limits], units: int) -> NDArray[np.bool_]:
    """Find the cells that limits leave empty: geounits x combinations of the labels that the basis keeps separate.

    A limit on a query that also keeps another attribute is not used here; the constrained problem still keeps it.

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
    shape = [size if at in basis.apart else 1 for at, size in enumerate(basis.schema.shape)]
    cells = np.asarray(np.ravel_multi_index(tuple(np.indices(shape).reshape(len(shape), -1)), basis.schema.shape))
    empty = np.zeros((units, math.prod(shape)), dtype=bool)
    for limit in limits:
        kept = {at for at, factor in enumerate(limit.query.factors) if not factor.is_everything}
        if kept <= set(basis.apart):
            empty |= (limit.upper == 0)[:, limit.query.group_of(cells)]
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
        units = np.flatnonzero(pattern_of.reshape(-1) == number)
        for block, where, gone in zip(covariance, basis.where, _inside(basis, pattern), strict=True):
            e, f = np.flatnonzero(gone), np.flatnonzero(~gone)
            share = exact_share(known.covariance, block[np.ix_(units, e, e)], block[np.ix_(units, e, f)])
            at = np.ix_(units, where.reshape(-1))
            own = mean[at].reshape(len(units), *where.shape)
            own[..., f] -= own[..., e] @ share
            own[..., e] = 0.0
            mean[at] = own.reshape(len(units), -1)
            left = block[np.ix_(units, f, f)] - block[np.ix_(units, f, e)] @ share
            block[units] = 0.0
            block[np.ix_(units, f, f)] = (left + np.swapaxes(left, -1, -2)) / 2
    return LinearEstimate(mean, covariance)


def _inside(basis: Basis, pattern: NDArray[np.bool_]) -> Iterable[NDArray[np.bool_]]:
    """For each kind of block, which of its coefficients are those of empty cells."""
    for kind in basis.kinds:
        inside = [at for at, outside in enumerate(kind) if not outside]
        known = pattern.reshape([basis.schema.shape[at] if at in basis.apart else 1 for at in inside])
        yield np.broadcast_to(known, [basis.axes[at].shared for at in inside]).reshape(-1)
