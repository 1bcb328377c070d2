"""Condition linear estimates on known zeros: structural zeros, and cells that public limits leave empty.

Counts are not negative, so where a sum is known to be zero, each of its cells is: a block without a nursing home has
nobody of any age and race in one. That is far more information than the sum alone. Of the redistricting schema's 2,016
cells a block without group quarters keeps 252, and the noise of the others no longer enters the parents' estimates.

Structural zeros are the same everywhere, so they are conditioned on in the leaves; sums of leaves inherit them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from das.estimation.linear.basis import Basis, Blocks, Floats
from das.estimation.linear.blue import LinearEstimate, pseudo_inverse_for, rows_apart
from das.estimation.linear.products import add_product
from das.schema.limits import Limits

__all__ = ["condition_alike", "condition_on_zeros", "inside_classes", "known_zeros", "patterns_of"]

Indices = NDArray[np.int64]
_BITS = 62
"""Combinations of classes that a number of 64 bits holds."""
_REMEMBERED = 1024
"""Patterns of zeros that are remembered of one covariance."""


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
    for units, parts in _patterns(basis, empty):
        for old, block, (where, e, f) in zip(known.covariance, covariance, parts, strict=True):
            if len(e) and not _are_zero(known, old, units, where, e):
                own = old[units]
                share = _share(own, e, f, inverse)
                _move_mean(mean, units, where, e, f, share)
                block[units] = 0.0
                block[np.ix_(units, f, f)] = _left(own, e, f, share)
    return LinearEstimate(mean, covariance)


def condition_alike(basis: Basis, known: LinearEstimate, empty: NDArray[np.bool_]) -> LinearEstimate:
    """Condition geounits that all have the first one's covariance, as leaves do: those with the same zeros stay alike.

    What is common to a pattern of zeros is worked out once for all families; the covariance has a row for each pattern.
    """
    patterns, kind_of, _ = patterns_of(empty)
    mean = known.mean.copy()
    shared = _Shared.of(basis, [block[:1] for block in known.covariance])
    found = [shared.pattern(pattern) for pattern in patterns]
    for number, parts in enumerate(found):
        units = np.flatnonzero(kind_of == number)
        for part in parts:
            if part.share is not None:
                _move_mean(mean, units, part.where, part.e, part.f, part.share)
    rows = np.arange(len(patterns))
    blocks = zip(*([part.left for part in parts] for parts in found), strict=True)
    covariance = [rows_apart(np.stack(block), rows) for block in blocks]
    if len(kind_of) == 1 or not empty.any():
        covariance = [np.ascontiguousarray(block) for block in covariance]
    return LinearEstimate(mean, covariance, kind_of)


@dataclass(frozen=True, slots=True)
class _Part:
    """What a pattern of zeros does to one kind of block: where it is, E and F, V_EE^+ V_EF and the covariance left."""

    where: Indices
    e: Indices
    f: Indices
    share: Floats | None  # None without E
    left: Floats


@dataclass(frozen=True, slots=True)
class _Shared:
    """A covariance that many geounits share, and what is known of each pattern of zeros in it."""

    basis: Basis
    covariance: Blocks  # each 1 x size x size
    _patterns: dict[bytes, list[_Part]] = field(default_factory=dict)

    @classmethod
    def of(cls, basis: Basis, covariance: Blocks) -> _Shared:
        """Find or make the one of a covariance: leaves of a level all have the same."""
        content = b"".join(block.tobytes() for block in covariance)
        found: _Shared | None = basis.remembered.get(content)
        if found is None:
            found = basis.remembered[content] = cls(basis, covariance)
        return found

    def pattern(self, empty: NDArray[np.bool_]) -> list[_Part]:
        """Condition each kind of block on a pattern of zeros, or remember what came of it."""
        key = empty.tobytes()
        if key not in self._patterns:
            if len(self._patterns) >= _REMEMBERED:
                self._patterns.clear()
            self._patterns[key] = self._conditioned(empty)
        return self._patterns[key]

    def _conditioned(self, empty: NDArray[np.bool_]) -> list[_Part]:
        inverse, parts = pseudo_inverse_for(self.covariance), []
        for where, inside, own in zip(
            self.basis.where, inside_classes(self.basis, empty), self.covariance, strict=True
        ):
            e, f = np.flatnonzero(inside), np.flatnonzero(~inside)
            share, left = None, own[0]
            if len(e):
                share, left = _share(own, e, f, inverse), np.zeros(own.shape[1:])
                left[np.ix_(f, f)] = _left(own, e, f, share)[0]
            parts.append(_Part(where, e, f, share, left))
        return parts


def patterns_of(empty: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], Indices, Indices]:
    """Find the different rows, ascending; which of them each row is, and how many rows each is.

    Examples
    --------
    >>> rows, row_of, times = patterns_of(np.array([[True, False], [False, True], [True, False]]))
    >>> rows.tolist(), row_of.tolist(), times.tolist()
    ([[False, True], [True, False]], [1, 0, 1], [1, 2])
    """
    if empty.shape[1] > _BITS:
        rows, row_of, times = np.unique(empty, axis=0, return_inverse=True, return_counts=True)
    else:  # each row as a number, which sorts in a hundredth of the time
        number = empty @ (1 << np.arange(empty.shape[1], dtype=np.int64)[::-1])
        _, first, row_of, times = np.unique(number, return_index=True, return_inverse=True, return_counts=True)
        rows = empty[first]
    return rows, row_of.reshape(-1).astype(np.int64), times


def _patterns(
    basis: Basis, empty: NDArray[np.bool_]
) -> Iterator[tuple[Indices, list[tuple[Indices, Indices, Indices]]]]:
    """Each pattern with any zero, the geounits that have it, and for each kind of block where it is, E and F."""
    patterns, pattern_of, _ = patterns_of(empty)
    for number, pattern in enumerate(patterns):
        if pattern.any():
            gone = zip(basis.where, inside_classes(basis, pattern), strict=True)
            parts = [(where, np.flatnonzero(inside), np.flatnonzero(~inside)) for where, inside in gone]
            yield np.flatnonzero(pattern_of == number), parts


def _are_zero(known: LinearEstimate, block: Floats, units: Indices, where: Indices, e: Indices) -> bool:
    """Whether coefficients are zero already, as in the sums of leaves that have the same zeros."""
    at = np.ix_(units, where[:, e].reshape(-1))
    return not block[units][:, e].any() and not known.mean[at].any()


def _share(own: Floats, e: Indices, f: Indices, inverse: Callable[[Floats], Floats]) -> Floats:
    """V_EE^+ V_EF."""
    return np.asarray(inverse(own[:, e[:, None], e]) @ own[:, e[:, None], f])


def _move_mean(mean: Floats, units: Indices, where: Indices, e: Indices, f: Indices, share: Floats) -> None:
    """Move the means of some geounits in place."""
    if len(share) == 1 and min(len(units), len(where), len(e), len(f)) > 1:
        add_product(mean, units, where[:, e], share[0], where[:, f], mean, sign=-1.0)
        mean[np.ix_(units, where[:, e].reshape(-1))] = 0.0
        return
    at = np.ix_(units, where.reshape(-1))
    here = mean[at].reshape(len(units), *where.shape)
    here[..., f] -= here[..., e] @ share
    here[..., e] = 0.0
    mean[at] = here.reshape(len(units), -1)


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
