"""Variances of selected sums of cells: any product of label weights, one matrix per attribute, in a basis's blocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from das.estimation.linear.basis import Basis, Blocks, Floats
from das.estimation.linear.exact_zeros import inside_classes

__all__ = ["Factors", "sees_unseen", "selected_covariances"]

Factors = Sequence[Floats]
"""One matrix per attribute, answers x labels; the answers of all are their combinations, in row-major order."""


def selected_covariances(basis: Basis, left: Factors, right: Factors, blocks: Blocks) -> Floats:
    """Covariance of each answer on the left with the answer on the right that stands in its place: ... x answers.

    Where the right has one row for an attribute and the left several, that row is repeated. The same factors on both
    sides give variances.

    Examples
    --------
    >>> from das.schema.schema import Attribute, Schema
    >>> from das.schema.query import parse_query
    >>> schema = Schema((Attribute("sex", ("f", "m")), Attribute("age", ("0-17", "18-64", "65+"))))
    >>> basis = Basis.of(schema, [parse_query(schema, "detailed")])
    >>> independent = [np.eye(where.shape[1]) for where in basis.where]
    >>> women, old = (np.array([[1.0, 0.0]]), np.ones((1, 3))), (np.ones((1, 2)), np.array([[0.0, 1.0, 1.0]]))
    >>> selected_covariances(basis, women, women, independent).round(9).tolist()
    [3.0]
    >>> selected_covariances(basis, women, old, independent).round(9).tolist()
    [2.0]
    """
    pairs = zip(left, right, strict=True)
    right = [np.broadcast_to(two, one.shape) if len(two) == 1 else two for one, two in pairs]
    shape = [len(each) for each in left]
    lead = blocks[0].shape[:-2]
    out: Floats = np.zeros((*lead, *shape))
    for kind, block in zip(basis.kinds, blocks, strict=True):
        one, other = (_in_u(basis, kind, factors) for factors in (left, right))
        part = ((one @ block) * other).sum(axis=-1)
        part = part.reshape(*lead, *(1 if o else n for n, o in zip(shape, kind, strict=True)))
        for at, o in enumerate(kind):
            if o:
                contrasts = basis.axes[at].matrix[:, basis.axes[at].vectors(o)]
                beside = ((left[at] @ contrasts) * (right[at] @ contrasts)).sum(axis=1)
                part = part * beside.reshape(-1, *(1,) * (len(kind) - at - 1))
        out += part
    return out.reshape(*lead, -1)


def sees_unseen(basis: Basis, factors: Factors, seen: Blocks) -> bool:
    """Whether some answer needs a part of a block that the measurements do not determine.

    ``seen`` has orthonormal columns for each kind of block; structural zeros are known without being seen.
    """
    possible = [~gone for gone in inside_classes(basis, basis.impossible)]
    for kind, columns, kept in zip(basis.kinds, seen, possible, strict=True):
        if columns.shape[1] == int(kept.sum()):
            continue
        inside = _in_u(basis, kind, factors) * kept
        size = np.abs(inside - inside @ columns @ columns.T).max(initial=0.0)
        for at, o in enumerate(kind):
            if o:
                contrasts = basis.axes[at].matrix[:, basis.axes[at].vectors(o)]
                size *= np.abs(factors[at] @ contrasts).max(initial=0.0)
        if size > 1e-9:
            return True
    return False


def _in_u(basis: Basis, kind: tuple[int, ...], factors: Factors) -> Floats:
    """Coefficients of the answers in a block: combinations of rows of the attributes in U x size."""
    out: Floats = np.ones((1, 1))
    for axis, factor, outside in zip(basis.axes, factors, kind, strict=True):
        if not outside:
            matrix = factor @ axis.u
            out = (out[:, None, :, None] * matrix[:, None]).reshape(len(out) * len(matrix), -1)
    return out
