"""Functions on windows of the integers, stored in flat arrays, and groups of them that are summed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from das.congenial.convolution_kernels import totals
from das.congenial.tilts import FunctionArrays

__all__ = ["Floats", "Groups", "Integers", "Messages", "WindowTooSmall", "concat", "offsets", "runs"]

Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


class WindowTooSmall(ArithmeticError):
    """A window is too narrow for the proved bounds; the caller repeats the step with a wider reach.

    Parameters
    ----------
    reason : str
        What does not fit.
    rows : array of int
        The messages or groups concerned, if known.

    Examples
    --------
    >>> print(WindowTooSmall("the box lies outside the window", np.array([3, 5])))
    the box lies outside the window: rows 3, 5
    """

    def __init__(self, reason: str, rows: npt.ArrayLike = ()) -> None:
        self.rows = np.atleast_1d(np.asarray(rows, dtype=np.int64))
        self.reason = reason
        shown = ", ".join([*map(str, self.rows[:8].tolist()), *(["..."] if len(self.rows) > 8 else [])])
        super().__init__(f"{reason}: rows {shown}" if shown else reason)

    def __reduce__(self) -> tuple[type, tuple[str, Integers]]:
        return type(self), (self.reason, self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """Messages: many functions, each stored on a window of the integers.

    Function i has the value ``e^log_scale[i] 2^(tilt[i] k) weight[offset[i] + k]`` at first[i] + k. The tilt is exact;
    with it doubles represent a function that changes by hundreds of orders of magnitude over its window.

    Parameters
    ----------
    first, offset : array of int
        First point of each window, and position of its values in `weight`.
    weight : array of float
        Values; the largest of each function is between 1/2 and 1.
    missing : array of float
        In the same scale, an upper bound on the true value minus the stored one.
    tilt, log_scale : arrays
        Exponent of the dyadic tilt and log of the scale, see above.
    error : array of float
        Bound on the relative rounding error of each stored value.
    below, above : array (n, 2) of float
        Envelopes: log of a bound on the value one step outside the window, and log of a bound on the ratio of each
        further value to the one before; minus infinity where the function ends at the edge.

    Examples
    --------
    >>> from das.congenial.messages import leaves
    >>> from das.noise import DiscreteGaussian
    >>> messages, ids = leaves([3, 0, 3], DiscreteGaussian(4), lower=0, upper=10**6, reach=30)
    >>> len(messages), ids.tolist(), messages.first.tolist(), messages.last.tolist()
    (2, [1, 0, 1], [0, 0], [30, 33])
    """

    first: Integers
    offset: Integers
    weight: Floats
    missing: Floats
    tilt: Integers
    log_scale: Floats
    error: Floats
    below: Floats
    above: Floats

    def __post_init__(self) -> None:
        for field in fields(self):
            getattr(self, field.name).flags.writeable = False

    def __len__(self) -> int:
        return len(self.first)

    @property
    def last(self) -> Integers:
        """The last point of each window."""
        last: Integers = self.first + np.diff(self.offset) - 1
        return last

    @property
    def arrays(self) -> FunctionArrays:
        """The arrays that the compiled loops read."""
        return FunctionArrays(self.first, self.offset, self.weight, self.missing, self.tilt, self.below, self.above)

    def pick(self, ids: npt.ArrayLike) -> Messages:
        """Return the functions with these indices, in this order; an index may occur several times."""
        ids = np.asarray(ids, dtype=np.int64)
        offset, at = runs(self.offset, ids)
        return Messages(
            first=self.first[ids],
            offset=offset,
            weight=self.weight[at],
            missing=self.missing[at],
            tilt=self.tilt[ids],
            log_scale=self.log_scale[ids],
            error=self.error[ids],
            below=self.below[ids],
            above=self.above[ids],
        )

    def sealed(self) -> Messages:
        """Return the stored functions as if they were exact and complete: the input of backward sampling."""
        edges = np.full((len(self), 2), -np.inf)
        return Messages(
            first=self.first,
            offset=self.offset,
            weight=self.weight,
            missing=np.zeros_like(self.missing),
            tilt=self.tilt,
            log_scale=self.log_scale,
            error=np.zeros(len(self)),
            below=edges,
            above=edges,
        )

    def log_total(self) -> Floats:
        """Return the log of the sum over each window: at a root, the log of the normaliser."""
        inside, _ = totals(self.arrays)
        log_total: Floats = self.log_scale + inside
        return log_total

    def lost_upper(self) -> Floats:
        """Return, for each function as the root of a tree, a proved bound on the share of mass outside the windows."""
        inside, extra = totals(self.arrays)
        known = np.isfinite(inside)
        lost: Floats = np.exp(np.minimum(np.where(known, extra, 700.0) - np.where(known, inside, 0.0), 700.0))
        return lost * (1 + 1e-6)


def concat(parts: Sequence[Messages]) -> Messages:
    """Concatenate messages into one store, in order.

    Examples
    --------
    >>> from das.congenial.messages import leaves
    >>> flat, _ = leaves([0, 0], None, lower=0, upper=[1, 2], reach=0)
    >>> len(concat([flat, flat]))
    4
    """
    joined = {f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Messages)}
    joined["offset"] = offsets(np.concatenate([np.diff(part.offset) for part in parts]))
    return Messages(**joined)


@dataclass(frozen=True, slots=True)
class Groups:
    """Sums of messages. Group g has entries offset[g] to offset[g + 1]: a message each, with its multiplicity.

    Examples
    --------
    >>> groups = Groups.of([[(0, 1), (1, 27)], [(1, 28)]])
    >>> len(groups), groups.expanded.tolist()
    (2, [0, 28, 56])
    >>> Groups.of([[]])
    Traceback (most recent call last):
    ValueError: a group has no member, or a multiplicity is below one
    """

    offset: Integers
    member: Integers
    multiplicity: Integers

    def __post_init__(self) -> None:
        if (np.diff(self.offset) < 1).any() or (self.multiplicity < 1).any():
            raise ValueError("a group has no member, or a multiplicity is below one")
        for array in (self.offset, self.member, self.multiplicity):
            array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.offset) - 1

    @classmethod
    def of(cls, groups: Iterable[Iterable[tuple[int, int]]]) -> Groups:
        """Return the groups of these (message, multiplicity) pairs."""
        rows = [list(group) for group in groups]
        flat = np.array([pair for row in rows for pair in row], dtype=np.int64).reshape(-1, 2)
        offset = offsets(np.array([len(row) for row in rows], dtype=np.int64))
        return cls(offset, flat[:, 0].copy(), flat[:, 1].copy())

    @property
    def expanded(self) -> Integers:
        """Start of each group when entries are repeated by their multiplicity."""
        return offsets(np.add.reduceat(self.multiplicity, self.offset[:-1]) if len(self) else self.multiplicity[:0])

    def pick(self, ids: npt.ArrayLike) -> Groups:
        """Return the groups with these indices, in this order."""
        ids = np.asarray(ids, dtype=np.int64)
        offset, at = runs(self.offset, ids)
        return Groups(offset, self.member[at], self.multiplicity[at])

    def add(self, values: Integers) -> Integers:
        """Sum one value per message over the members of each group."""
        if not len(self):
            return np.zeros(0, dtype=values.dtype)
        total: Integers = np.add.reduceat(self.multiplicity * values[self.member], self.offset[:-1])
        return total


def offsets(lengths: Integers) -> Integers:
    """Return the start of each run of these lengths, and the end of the last."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])


def runs(offset: Integers, ids: Integers) -> tuple[Integers, Integers]:
    """Return the offsets of the runs with these indices, one after another, and the position of each of their entries.

    Examples
    --------
    >>> [array.tolist() for array in runs(np.array([0, 2, 3, 6]), np.array([2, 0]))]
    [[0, 3, 5], [3, 4, 5, 0, 1]]
    """
    lengths = np.diff(offset)[ids]
    chosen = offsets(lengths)
    return chosen, np.repeat(offset[ids] - chosen[:-1], lengths) + np.arange(chosen[-1])
