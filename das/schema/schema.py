"""What is counted: ordered attributes with labels, named partitions of them, and cells that cannot occur."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Attribute", "Partition", "Schema", "SchemaError", "StructuralZero", "stated_fields"]

EVERYTHING = "*"
"""The partition with one group: the attribute is summed out."""

TAKEN = ("total", "detailed")
"""Queries that every schema has."""

COLUMNS = {"GEOID", "geocode", "query", "query_shape", "value", "variance", "sigma2", "scale", "sign", "cell", "count"}
"""Columns that stand beside the attributes in the files of a release."""


class SchemaError(ValueError):
    """A schema or a query that cannot mean what was written."""


def stated_fields(value: Any) -> dict[str, object]:
    """State of a frozen value that travels: its fields.

    What it remembers is worked out again where it is needed: an array that has travelled is no longer read-only.
    """
    return {each.name: getattr(value, each.name) for each in fields(value)}


@dataclass(frozen=True)
class Partition:
    """A named grouping of an attribute's labels in which each label stands exactly once.

    Examples
    --------
    >>> minors = Partition("grown", ("child", "adult"), ((0, 1), (2,)), size=3)
    >>> minors.group_of.tolist()
    [0, 0, 1]
    """

    name: str
    labels: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    size: int

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.groups) or len(set(self.labels)) != len(self.labels):
            raise SchemaError(f"recode {self.name!r}: each group needs one label of its own")
        members = sorted(chain.from_iterable(self.groups))
        if members != list(range(self.size)) or not all(self.groups):
            twice = sorted({m for m in members if members.count(m) > 1})
            never = sorted(set(range(self.size)) - set(members))
            raise SchemaError(
                f"recode {self.name!r} must cover each of {self.size} labels exactly once"
                + (f"; more than once: positions {twice}" if twice else "")
                + (f"; never: positions {never}" if never else "")
            )

    def __getstate__(self) -> dict[str, object]:
        return stated_fields(self)

    @cached_property
    def group_of(self) -> NDArray[np.int64]:
        """The group of each label."""
        out = np.empty(self.size, dtype=np.int64)
        for index, members in enumerate(self.groups):
            out[list(members)] = index
        out.flags.writeable = False
        return out

    @cached_property
    def is_identity(self) -> bool:
        """Whether every label is a group of its own, in order."""
        return self.groups == tuple((i,) for i in range(self.size))

    @property
    def is_everything(self) -> bool:
        """Whether all labels form one group."""
        return len(self.groups) == 1


@dataclass(frozen=True)
class Attribute:
    """One axis of the histogram: an ordered list of labels and the recodes defined over it.

    Examples
    --------
    >>> age = Attribute("age", ("0-17", "18-64", "65+"), {"voting": {"minor": ["0-17"], "of age": ["18-64", "65+"]}})
    >>> age.partition("voting").group_of.tolist()
    [0, 1, 1]
    >>> age.partition("*").labels
    ('total',)
    """

    name: str
    labels: tuple[str, ...]
    recodes: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.labels or len(set(self.labels)) != len(self.labels):
            raise SchemaError(f"attribute {self.name!r} needs labels, each of them once")
        for label in chain(self.labels, *self.recodes.values()):
            if " * " in label:
                raise SchemaError(f"label {label!r} of {self.name!r} holds ' * ', which joins the labels of an answer")
        for name, groups in self.recodes.items():
            members = list(chain.from_iterable(groups.values()))
            for reason, wrong in (
                (f"names what is not a label of {self.name!r}", set(members) - set(self.labels)),
                ("covers more than once", {label for label in members if members.count(label) > 1}),
                ("never covers", set(self.labels) - set(members)),
            ):
                if wrong:
                    raise SchemaError(f"recode {name!r} {reason}: {', '.join(map(repr, sorted(wrong)))}")
            self.partition(name)

    def partition(self, name: str) -> Partition:
        """Find a partition by name: a recode, the attribute itself (identity) or ``*`` (everything)."""
        n = len(self.labels)
        if name == EVERYTHING:
            return Partition(EVERYTHING, ("total",), (tuple(range(n)),), n)
        if name == self.name:
            return Partition(name, self.labels, tuple((i,) for i in range(n)), n)
        index = {label: i for i, label in enumerate(self.labels)}
        groups = self.recodes[name]
        return Partition(name, tuple(groups), tuple(tuple(index[m] for m in ms) for ms in groups.values()), n)


@dataclass(frozen=True)
class StructuralZero:
    """Cells in which nobody can be, as a product of label sets; an attribute left out stands for all its labels."""

    name: str
    labels: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Schema:
    """The cells of the histogram: the product of its attributes' labels, in row-major order.

    Examples
    --------
    >>> schema = Schema(
    ...     (Attribute("sex", ("f", "m")), Attribute("age", ("young", "old"))),
    ...     (StructuralZero("no old men", {"sex": ("m",), "age": ("old",)}),),
    ... )
    >>> schema.size, schema.possible.tolist()
    (4, [True, True, True, False])
    >>> schema.cells({"sex": np.array([1, 0]), "age": np.array([0, 1])}).tolist()
    [2, 1]
    """

    attributes: tuple[Attribute, ...]
    structural_zeros: tuple[StructuralZero, ...] = ()

    def __post_init__(self) -> None:
        if not self.attributes:
            raise SchemaError("a schema needs at least one attribute")
        names = [a.name for a in self.attributes] + [r for a in self.attributes for r in a.recodes]
        for name in names:
            if not re.fullmatch(r"[^\W\d]\w*", name):
                raise SchemaError(
                    f"{name!r} must be a name of letters, digits and underscores, and not begin with a digit"
                )
            if names.count(name) > 1 or name in TAKEN:
                raise SchemaError(f"{name!r} names two things; attributes and recodes need names of their own")
        for name in self.names:
            if name in COLUMNS:
                raise SchemaError(f"attribute {name!r} would share its column with another; give it another name")
        for zero in self.structural_zeros:
            for attribute, labels in zero.labels.items():
                known = self.attribute(attribute).labels
                unknown = [label for label in labels if label not in known]
                if unknown:
                    raise SchemaError(
                        f"structural zero {zero.name!r} names {unknown[0]!r}, which is not a label of {attribute!r}"
                    )
        if not self.possible.any():
            raise SchemaError("the structural zeros leave no cell in which anybody could be")

    def __getstate__(self) -> dict[str, object]:
        return stated_fields(self)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Attribute names in axis order."""
        return tuple(a.name for a in self.attributes)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Number of labels per attribute."""
        return tuple(len(a.labels) for a in self.attributes)

    @cached_property
    def size(self) -> int:
        """Number of cells, impossible ones included."""
        return math.prod(self.shape)

    def attribute(self, name: str) -> Attribute:
        """Find an attribute by name."""
        for attribute in self.attributes:
            if attribute.name == name:
                return attribute
        raise SchemaError(f"{name!r} is not an attribute; there are {', '.join(self.names)}")

    @cached_property
    def possible(self) -> NDArray[np.bool_]:
        """True for each cell that no structural zero covers."""
        mask = np.ones(self.shape, dtype=bool)
        for zero in self.structural_zeros:
            index = [[a.labels.index(label) for label in zero.labels.get(a.name, a.labels)] for a in self.attributes]
            mask[np.ix_(*index)] = False
        flat = mask.reshape(-1)
        flat.flags.writeable = False
        return flat

    def cells(self, codes: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
        """Cell numbers of records whose attributes are given as label positions."""
        return np.asarray(np.ravel_multi_index(tuple(codes[name] for name in self.names), self.shape), dtype=np.int64)

    def labels_of(self, cells: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """Label positions of each attribute for the given cells: the inverse of :meth:`cells`."""
        return dict(zip(self.names, np.unravel_index(cells, self.shape), strict=True))
