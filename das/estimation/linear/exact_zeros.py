"""Condition linear estimates on known zeros: structural zeros, and cells that public limits leave empty.

Counts are not negative, so where a sum is known to be zero, each of its cells is: a block without a nursing home has
nobody of any age and race in one. That is far more information than the sum alone. Of the redistricting schema's 2,016
cells a block without group quarters keeps 252, and the noise of the others no longer enters the parents' estimates.

Structural zeros are the same everywhere, so they are conditioned on in the leaves; sums of leaves inherit them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from das.estimation.linear.basis import Basis, Floats
from das.estimation.linear.blue import LinearEstimate, pseudo_inverse_for, rows_apart
from das.schema.limits import Limits

__all__ = ["condition_alike", "condition_on_zeros", "inside_classes", "known_zeros"]

Indices = NDArray[np.int64]


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
    if all(block.strides[0] == 0 for block in known.covariance):
        return condition_alike(basis, known, empty).each()
    mean, covariance, inverse = (
        known.mean.copy(),
        [np.array(block) for block in known.covariance],
        pseudo_inverse_for(known.covariance),
    )
    for _, units, parts in _patterns(basis, empty):
        for old, block, (where, e, f) in zip(known.covariance, covariance, parts, strict=True):
            if len(e):
                own = old[units]
                share = _moved_mean(mean, units, where, e, f, own, inverse)
                block[units] = 0.0
                block[np.ix_(units, f, f)] = _left(own, e, f, share)
    return LinearEstimate(mean, covariance)


def condition_alike(basis: Basis, known: LinearEstimate, empty: NDArray[np.bool_]) -> LinearEstimate:
    """Condition geounits that all have the first one's covariance, as leaves do: those with the same zeros stay alike.

    What is common to a pattern of zeros is worked out once; the covariance has a row for each pattern.
    """
    patterns, pattern_of = np.unique(empty, axis=0, return_inverse=True)
    kind_of = pattern_of.reshape(-1).astype(np.int64)
    mean, inverse = known.mean.copy(), pseudo_inverse_for(known.covariance)
    covariance = [rows_apart(block[:1], np.zeros(len(patterns), np.int64)) for block in known.covariance]
    for number, units, parts in _patterns(basis, empty):
        for old, block, (where, e, f) in zip(known.covariance, covariance, parts, strict=True):
            if len(e):
                own = old[:1]
                share = _moved_mean(mean, units, where, e, f, own, inverse)
                block[number] = 0.0
                block[number][np.ix_(f, f)] = _left(own, e, f, share)[0]
    if len(kind_of) == 1 or not empty.any():
        covariance = [np.ascontiguousarray(block) for block in covariance]
    return LinearEstimate(mean, covariance, kind_of)


def _patterns(
    basis: Basis, empty: NDArray[np.bool_]
) -> Iterator[tuple[int, Indices, list[tuple[Indices, Indices, Indices]]]]:
    """Each pattern with any zero, the geounits that have it, and for each kind of block where it is, E and F."""
    patterns, pattern_of = np.unique(empty, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        if pattern.any():
            gone = zip(basis.where, inside_classes(basis, pattern), strict=True)
            parts = [(where, np.flatnonzero(inside), np.flatnonzero(~inside)) for where, inside in gone]
            yield number, np.flatnonzero(pattern_of.reshape(-1) == number), parts


def _moved_mean(
    mean: Floats,
    units: Indices,
    where: Indices,
    e: Indices,
    f: Indices,
    own: Floats,
    inverse: Callable[[Floats], Floats],
) -> Floats:
    """Move the means of some geounits in place, and return V_EE^+ V_EF."""
    share = inverse(own[:, e[:, None], e]) @ own[:, e[:, None], f]
    at = np.ix_(units, where.reshape(-1))
    here = mean[at].reshape(len(units), *where.shape)
    here[..., f] -= here[..., e] @ share
    here[..., e] = 0.0
    mean[at] = here.reshape(len(units), -1)
    return share


def _left(own: Floats, e: Indices, f: Indices, share: Floats) -> Floats:
    """V_FF less what the zeros explain."""
    left = own[:, f[:, None], f] - own[:, f[:, None], e] @ share
    return np.asarray((left + np.swapaxes(left, -1, -2)) / 2)


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
