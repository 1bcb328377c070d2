"""The spine: every geounit of a hierarchy, level by level, as arrays.

Units are ordered parent by parent, and by geocode within a parent, so the children of a unit are a slice, and so are
its leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geography.arrays import Codes, Flags, Indices, as_text, frozen, in_order
from geography.problem import Problem, ProblemsFound
from geography.problem_list import AS_TEXT, nearest
from geography.reading import read_parquet
from geography.spine_file import map_parts, write_parts
from geography.summation import sum_ranges
from geography.tier import Tier, digest_of_tiers, faults, order_of, table_of_tiers, tiers_of_table

__all__ = ["Spine", "Tier"]


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
    _by_geocode: tuple[Indices | None, ...] = field(init=False)  # None where geocodes are sorted

    def __post_init__(self) -> None:
        tiers = tuple(self.tiers)
        orders = tuple(order_of(tier.geocodes) for tier in tiers)
        found = list(faults(tiers, orders))
        if found:
            raise ProblemsFound(Problem("spine", fault) for fault in found)
        first_child = (
            frozen(np.searchsorted(below.parent, np.arange(len(above.geocodes) + 1)).astype(np.int64))
            for above, below in pairwise(tiers)
        )
        self._set(tiers, tuple(first_child), tuple(None if order is None else frozen(order) for order in orders))

    def _set(
        self, tiers: tuple[Tier, ...], first_child: tuple[Indices, ...], by_geocode: tuple[Indices | None, ...]
    ) -> None:
        object.__setattr__(self, "tiers", tiers)
        object.__setattr__(self, "_first_child", first_child)
        object.__setattr__(self, "_by_geocode", by_geocode)

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
        order = slice(None) if in_order(paths) else np.lexsort(tuple(reversed(paths)))
        begins = np.zeros(len(paths[0]), dtype=np.bool_)
        begins[:1] = True
        above: Indices = np.full(len(begins), -1, dtype=np.int64)
        tiers = []
        for level, name in enumerate(levels):
            column = paths[level][order]
            begins[1:] |= column[1:] != column[:-1]
            first = np.flatnonzero(begins)
            is_real = np.ones(len(first), dtype=np.bool_) if real is None else real[level][order][first]
            geocodes = column[first]
            geocodes.flags.writeable = False  # nobody else has it: it need not be copied
            tiers.append(Tier(name=name, geocodes=geocodes, parent=above[first], real=is_real))
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
        below = self._first_child[self._position(level) :]
        offsets: Indices = below[0] if below else np.arange(len(self.leaves) + 1, dtype=np.int64)
        for first_child in below[1:]:
            offsets = first_child[offsets]
        return offsets

    def locate(self, level: str, codes: Any) -> Indices:
        """Return the position of each geocode at a level, -1 where there is no such unit."""
        wanted, other = as_text(codes)
        if other.any():
            raise ProblemsFound(Problem("geocodes", "are not all text", AS_TEXT))
        position = self._position(level)
        order, known = self._by_geocode[position], self.tiers[position].geocodes
        # Text that is wider than the geocodes would have NumPy copy all of them; what is cut is not equal afterwards.
        cut = wanted.astype(known.dtype) if wanted.dtype.itemsize > known.dtype.itemsize else wanted
        slot = np.minimum(np.searchsorted(known, cut, sorter=order), len(known) - 1)
        found = slot if order is None else order[slot]
        return np.where(known[found] == wanted, found, np.int64(-1))

    def tabulate(self, level: str, values: Any) -> Any:
        """Sum leaf values (leading axis leaves; dense, or scipy sparse leaves x cells) to the units of a level."""
        return sum_ranges(values, self.leaf_ranges(level))

    def digest(self) -> str:
        """Return the SHA-256 of the spine: levels, geocodes, parents and placeholders, nothing else."""
        return digest_of_tiers(self.tiers)

    def to_table(self) -> pa.Table:
        """Return one row per unit, in spine order: level, geocode, parent (its geocode), real."""
        return table_of_tiers(self.tiers)

    @classmethod
    def from_table(cls, table: pa.Table) -> Spine:
        """Return the spine that `to_table` wrote."""
        return cls(tuple(tiers_of_table(table)))

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

    def write_mapped(self, file: BinaryIO) -> None:
        """Write the spine for processes that map it into their memory: each reads what it looks at, and no more."""
        parts = {
            f"{name} of {tier.name}": array
            for tier, order in zip(self.tiers, self._by_geocode, strict=True)
            for name, array in (
                ("geocodes", tier.geocodes),
                ("parent", tier.parent),
                ("real", tier.real),
                ("order", order),
            )
            if array is not None
        }
        parts |= {f"children of {tier.name}": first for tier, first in zip(self.tiers, self._first_child, strict=False)}
        write_parts(file, self.levels, parts)

    @classmethod
    def mapped(cls, path: Path) -> Spine:
        """Map what `write_mapped` wrote; it is not read, and not verified again."""
        levels, parts = map_parts(path)
        tiers = tuple(
            Tier(name=name, **{part: parts[f"{part} of {name}"] for part in ("geocodes", "parent", "real")})
            for name in levels
        )
        spine = object.__new__(cls)
        first_child = tuple(parts[f"children of {name}"] for name in levels[:-1])
        spine._set(tiers, first_child, tuple(parts.get(f"order of {name}") for name in levels))
        return spine

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
