"""The spine: every geounit of a hierarchy, level by level, as arrays.

Units are ordered parent by parent, and by geocode within a parent, so the children of a unit are a slice, and so are
its leaves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geography.arrays import Codes, Flags, Indices, as_text, frozen
from geography.problem import Problem, ProblemsFound
from geography.problem_list import AS_TEXT, nearest
from geography.reading import read_parquet
from geography.summation import sum_ranges


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Tier:
    """All units of one level, in spine order.

    Parameters
    ----------
    name : str
        The level.
    geocodes : Codes
        Unique within the level.
    parent : Indices
        Position of each unit's parent in the level above; -1 throughout the top level.
    real : Flags
        False for a placeholder: a unit that stands where a branch skips this level or has already ended. It carries the
        geocode of the unit it stands for.
    """

    name: str
    geocodes: Codes
    parent: Indices
    real: Flags

    def __post_init__(self) -> None:
        object.__setattr__(self, "geocodes", frozen(np.asarray(self.geocodes, dtype=np.str_)))
        object.__setattr__(self, "parent", frozen(np.asarray(self.parent, dtype=np.int64)))
        object.__setattr__(self, "real", frozen(np.asarray(self.real, dtype=np.bool_)))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Spine:
    """A tree of geounits with named levels, top-down; every leaf has exactly one ancestor at each level.

    Parameters
    ----------
    tiers : tuple of Tier
        The levels from the top to the leaves, each in spine order.

    Examples
    --------
    >>> states, counties = np.array(["01", "01", "02"]), np.array(["01003", "01001", "02001"])
    >>> spine = Spine.from_paths(["state", "county"], [states, counties])
    >>> spine
    Spine(state 2, county 3)
    >>> spine.geocodes("county")[spine.children("state", 0)].tolist()
    ['01001', '01003']
    >>> spine.locate("county", ["02001", "99999"]).tolist()
    [2, -1]
    >>> spine.tabulate("state", np.array([10, 20, 30])).tolist()
    [30, 30]
    """

    tiers: tuple[Tier, ...]
    _first_child: tuple[Indices, ...] = field(init=False)
    _by_geocode: tuple[Indices, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tiers", tuple(self.tiers))
        faults = list(_faults(self.tiers))
        if faults:
            raise ProblemsFound(Problem("spine", fault) for fault in faults)
        first_child = (
            frozen(np.searchsorted(below.parent, np.arange(len(above.geocodes) + 1)).astype(np.int64))
            for above, below in pairwise(self.tiers)
        )
        object.__setattr__(self, "_first_child", tuple(first_child))
        sorters = (frozen(np.argsort(tier.geocodes, kind="stable").astype(np.int64)) for tier in self.tiers)
        object.__setattr__(self, "_by_geocode", tuple(sorters))

    @classmethod
    def from_paths(cls, levels: Sequence[str], paths: Sequence[Codes], real: Sequence[Flags] | None = None) -> Spine:
        """Build the spine from each leaf's path: one array of geocodes per level, top-down, in any order of rows.

        Parameters
        ----------
        levels : sequence of str
        paths : sequence of Codes
            ``paths[k][i]`` is the ancestor of leaf i at level k; no blanks.
        real : sequence of Flags, optional
            Whether that ancestor is a unit of its own rather than a placeholder; all are, if not given.
        """
        order = np.lexsort(tuple(reversed(paths)))
        begins = np.zeros(len(order), dtype=np.bool_)
        begins[:1] = True
        above: Indices = np.full(len(order), -1, dtype=np.int64)
        tiers = []
        for level, name in enumerate(levels):
            column = paths[level][order]
            begins[1:] |= column[1:] != column[:-1]
            first = np.flatnonzero(begins)
            is_real = np.ones(len(first), dtype=np.bool_) if real is None else real[level][order][first]
            tiers.append(Tier(name=name, geocodes=column[first], parent=above[first], real=is_real))
            above = np.cumsum(begins) - 1
        return cls(tuple(tiers))

    @property
    def levels(self) -> tuple[str, ...]:
        """The names of the levels, top-down."""
        return tuple(tier.name for tier in self.tiers)

    @property
    def leaves(self) -> Codes:
        """The geocodes of the lowest level."""
        return self.tiers[-1].geocodes

    def size(self, level: str) -> int:
        """Return the number of units at a level, placeholders included."""
        return len(self._tier(level).geocodes)

    def geocodes(self, level: str) -> Codes:
        """Return the geocodes of a level in spine order."""
        return self._tier(level).geocodes

    def parent(self, level: str) -> Indices:
        """Return each unit's parent as a position in the level above; -1 throughout the top level."""
        return self._tier(level).parent

    def real(self, level: str) -> Flags:
        """Return which units of a level are real, not placeholders."""
        return self._tier(level).real

    def first_child(self, level: str) -> Indices:
        """Return n + 1 offsets into the level below: the children of unit i are ``offsets[i]:offsets[i + 1]``."""
        position = self._position(level)
        if position == len(self.tiers) - 1:
            raise ProblemsFound(Problem(f"level {level!r}", "is the lowest and has no children", "ask a level above"))
        return self._first_child[position]

    def children(self, level: str, i: int) -> slice:
        """Return the children of unit i as a slice of the level below."""
        offsets = self.first_child(level)
        if not 0 <= i < len(offsets) - 1:
            raise IndexError(f"level {level!r} has {len(offsets) - 1} units, there is no unit {i}")
        return slice(int(offsets[i]), int(offsets[i + 1]))

    def leaf_ranges(self, level: str) -> Indices:
        """Return n + 1 offsets into the leaves: the leaves of unit i are ``offsets[i]:offsets[i + 1]``."""
        offsets: Indices = np.arange(len(self.leaves) + 1, dtype=np.int64)
        for first_child in reversed(self._first_child[self._position(level) :]):
            offsets = offsets[first_child]
        return offsets

    def locate(self, level: str, codes: Any) -> Indices:
        """Return the position of each geocode at a level, -1 where there is no such unit."""
        wanted, other = as_text(codes)
        if other.any():
            raise ProblemsFound(Problem("geocodes", "are not all text", AS_TEXT))
        position = self._position(level)
        order, known = self._by_geocode[position], self.tiers[position].geocodes
        found = order[np.minimum(np.searchsorted(known, wanted, sorter=order), len(order) - 1)]
        return np.where(known[found] == wanted, found, np.int64(-1))

    def tabulate(self, level: str, values: Any) -> Any:
        """Sum leaf values (leading axis leaves; dense, or scipy sparse leaves x cells) to the units of a level."""
        return sum_ranges(values, self.leaf_ranges(level))

    def digest(self) -> str:
        """Return the SHA-256 of the spine: levels, geocodes, parents and placeholders, nothing else."""
        sha = hashlib.sha256()
        for tier in self.tiers:
            for part in (
                tier.name.encode(),
                "\n".join(tier.geocodes.tolist()).encode(),
                tier.parent.astype("<i8").tobytes(),
                tier.real.astype("u1").tobytes(),
            ):
                sha.update(len(part).to_bytes(8, "little") + part)
        return sha.hexdigest()

    def to_table(self) -> pa.Table:
        """Return one row per unit, in spine order: level, geocode, parent (its geocode), real."""
        parents: list[str | None] = [None] * len(self.tiers[0].geocodes)
        for above, below in pairwise(self.tiers):
            parents.extend(above.geocodes[below.parent].tolist())
        return pa.table(
            {
                "level": pa.array([tier.name for tier in self.tiers for _ in tier.geocodes], pa.string()),
                "geocode": pa.array([code for tier in self.tiers for code in tier.geocodes.tolist()], pa.string()),
                "parent": pa.array(parents, pa.string()),
                "real": pa.array(np.concatenate([tier.real for tier in self.tiers])),
            }
        )

    @classmethod
    def from_table(cls, table: pa.Table) -> Spine:
        """Return the spine that `to_table` wrote."""
        level, geocode, parent = (
            np.asarray(table[name].fill_null("").to_numpy()).astype(np.str_) for name in ("level", "geocode", "parent")
        )
        real = np.asarray(table["real"].to_numpy())
        tiers: list[Tier] = []
        for name in dict.fromkeys(level.tolist()):
            here = level == name
            if tiers:
                order = np.argsort(tiers[-1].geocodes, kind="stable")
                known = tiers[-1].geocodes[order]
                slot = np.minimum(np.searchsorted(known, parent[here]), len(known) - 1)
                above = np.where(known[slot] == parent[here], order[slot], -1)
            else:
                above = np.where(parent[here] == "", -1, 0)
            tiers.append(Tier(name=name, geocodes=geocode[here], parent=above, real=real[here]))
        return cls(tuple(tiers))

    def save(self, path: str | Path) -> None:
        """Write the spine as a Parquet file; the same spine gives the same bytes."""
        pq.write_table(self.to_table(), path, compression="zstd")

    @classmethod
    def load(cls, path: str | Path) -> Spine:
        """Read a spine that `save` wrote."""
        table = read_parquet(path, ["level", "geocode", "parent", "real"])
        try:
            return cls.from_table(table)
        except pa.ArrowException:
            raise ProblemsFound(Problem(str(path), "is not a spine: its columns are not text", AS_TEXT)) from None
        except ProblemsFound as found:
            remedy = "write the file again from its crosswalk"
            raise ProblemsFound(Problem(str(path), problem.reason, remedy) for problem in found.problems) from None

    def _position(self, level: str) -> int:
        if level not in self.levels:
            raise ProblemsFound(Problem(f"level {level!r}", "is not a level of the spine", nearest(level, self.levels)))
        return self.levels.index(level)

    def _tier(self, level: str) -> Tier:
        return self.tiers[self._position(level)]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Spine):
            return NotImplemented
        return self.levels == other.levels and all(
            np.array_equal(a.geocodes, b.geocodes)
            and np.array_equal(a.parent, b.parent)
            and np.array_equal(a.real, b.real)
            for a, b in zip(self.tiers, other.tiers, strict=True)
        )

    def __hash__(self) -> int:
        return hash(self.digest())

    def __reduce__(self) -> tuple[type[Spine], tuple[tuple[Tier, ...]]]:
        return Spine, (self.tiers,)

    def __repr__(self) -> str:
        return "Spine(" + ", ".join(f"{tier.name} {len(tier.geocodes)}" for tier in self.tiers) + ")"


def _faults(tiers: Sequence[Tier]) -> Iterator[str]:
    """Say what keeps tiers from being a spine in spine order."""
    names = [tier.name for tier in tiers]
    if not names or len(set(names)) < len(names) or "" in names:
        yield "needs at least one level, and levels with different names"
        return
    above = 0
    for tier in tiers:
        codes, parent, count = tier.geocodes, tier.parent, len(tier.geocodes)
        if not (count == len(parent) == len(tier.real) > 0):
            yield f"level {tier.name!r} needs a geocode, a parent and a flag for each of at least one unit"
            return
        if (codes == "").any() or len(np.unique(codes)) < count:
            yield f"level {tier.name!r} has a blank or repeated geocode"
        if (np.strings.find(codes, "\n") >= 0).any():  # the digest separates geocodes by line
            yield f"level {tier.name!r} has a geocode of more than one line"
        step = np.diff(parent)
        if above == 0 and (parent != -1).any():
            yield f"level {tier.name!r} is the top and cannot have parents"
        elif above > 0 and not (parent[0] == 0 and parent[-1] == above - 1 and ((step == 0) | (step == 1)).all()):
            yield f"level {tier.name!r} is not ordered parent by parent, with a child for every parent"
        elif not ((step == 1) | (codes[1:] > codes[:-1])).all():
            yield f"level {tier.name!r} is not sorted by geocode within each parent"
        above = count
