"""One level of a spine as arrays, what makes levels a spine, and their table: one row per unit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geography.arrays import Codes, Flags, Indices, arrow_text, codes_of, frozen, is_ascending

__all__ = ["Tier", "digest_of_tiers", "faults", "order_of", "table_of_tiers", "tiers_of_table"]

_AT_ONCE = 1 << 16


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


def order_of(codes: Codes) -> Indices | None:
    """Return the order that sorts codes; None if they are sorted, as those of fixed width are."""
    return None if is_ascending(codes) else np.argsort(codes, kind="stable").astype(np.int64)


def faults(tiers: Sequence[Tier], orders: Sequence[Indices | None]) -> Iterator[str]:
    """Say what keeps tiers from being a spine in spine order; ``orders`` sort the geocodes of each."""
    names = [tier.name for tier in tiers]
    if not names or len(set(names)) < len(names) or "" in names:
        yield "needs at least one level, and levels with different names"
        return
    above = 0
    for tier, order in zip(tiers, orders, strict=True):
        codes, parent, count = tier.geocodes, tier.parent, len(tier.geocodes)
        if not (count == len(parent) == len(tier.real) > 0):
            yield f"level {tier.name!r} needs a geocode, a parent and a flag for each of at least one unit"
            return
        in_order = codes if order is None else codes[order]
        if in_order[0] == "" or (in_order[1:] == in_order[:-1]).any():
            yield f"level {tier.name!r} has a blank or repeated geocode"
        if (codes.view(np.uint32) == ord("\n")).any():  # the digest separates geocodes by line
            yield f"level {tier.name!r} has a geocode of more than one line"
        step = np.diff(parent)
        if above == 0 and (parent != -1).any():
            yield f"level {tier.name!r} is the top and cannot have parents"
        elif above > 0 and not (parent[0] == 0 and parent[-1] == above - 1 and ((step == 0) | (step == 1)).all()):
            yield f"level {tier.name!r} is not ordered parent by parent, with a child for every parent"
        elif order is not None and not ((step == 1) | (codes[1:] > codes[:-1])).all():
            yield f"level {tier.name!r} is not sorted by geocode within each parent"
        above = count


def digest_of_tiers(tiers: Sequence[Tier]) -> str:
    """Return the SHA-256 of levels, geocodes, parents and placeholders, some geocodes at a time."""
    sha = hashlib.sha256()
    for tier in tiers:
        name, lines = tier.name.encode(), len(tier.geocodes) - 1
        sha.update(len(name).to_bytes(8, "little") + name)
        sha.update((lines + sum(map(len, _encoded(tier.geocodes, "")))).to_bytes(8, "little"))
        for at, part in enumerate(_encoded(tier.geocodes, "\n")):
            sha.update(b"\n" + part if at else part)
        for array in (tier.parent.astype("<i8"), tier.real.astype("u1")):
            sha.update(array.nbytes.to_bytes(8, "little"))
            sha.update(array.data)
    return sha.hexdigest()


def _encoded(codes: Codes, between: str) -> Iterator[bytes]:
    for start in range(0, len(codes), _AT_ONCE):
        yield between.join(codes[start : start + _AT_ONCE].tolist()).encode()


def table_of_tiers(tiers: Sequence[Tier]) -> pa.Table:
    """Return one row per unit, in spine order: level, geocode, parent (its geocode), real."""
    parents = [pa.nulls(len(tiers[0].geocodes), pa.string())]
    parents += [arrow_text(above.geocodes[below.parent]) for above, below in pairwise(tiers)]
    sizes = [len(tier.geocodes) for tier in tiers]
    number = pa.array(np.repeat(np.arange(len(tiers), dtype=np.int32), sizes))
    names = pa.array([tier.name for tier in tiers], pa.string())
    return pa.table(
        {
            "level": pa.DictionaryArray.from_arrays(number, names).dictionary_decode(),
            "geocode": pa.concat_arrays([arrow_text(tier.geocodes) for tier in tiers]),
            "parent": pa.concat_arrays(parents),
            "real": pa.array(np.concatenate([tier.real for tier in tiers])),
        }
    )


def tiers_of_table(table: pa.Table) -> list[Tier]:
    """Return the tiers that :func:`table_of_tiers` laid out: the rows of each level stand together."""
    if not all(table.schema.field(name).type == pa.string() for name in ("level", "geocode", "parent")):
        raise pa.ArrowTypeError("levels, geocodes and parents are text")
    runs = pc.run_end_encode(table["level"].combine_chunks()) if table.num_rows else None
    if isinstance(runs, pa.ChunkedArray):
        runs = runs.chunk(0)
    ends = [] if runs is None else runs.run_ends.to_numpy().tolist()
    names = [] if runs is None else [name or "" for name in runs.values.to_pylist()]
    tiers: list[Tier] = []
    for name, start, end in zip(names, [0, *ends], ends, strict=False):
        here = table.slice(start, end - start)
        geocodes, parent = codes_of(here["geocode"]), codes_of(here["parent"])
        above = _parents(tiers[-1].geocodes, parent) if tiers else np.where(parent == "", -1, 0)
        real = here["real"].combine_chunks().to_numpy(zero_copy_only=False)
        tiers.append(Tier(name=name, geocodes=frozen(geocodes), parent=above, real=np.asarray(real)))
    return tiers


def _parents(known: Codes, parent: Codes) -> Indices:
    """Positions of the parents, -1 where there is none of that geocode; children of one parent stand together."""
    begins = np.append(True, parent[1:] != parent[:-1])
    first, order = parent[begins], order_of(known)
    slot = np.minimum(np.searchsorted(known, first, sorter=order), len(known) - 1)
    found = slot if order is None else order[slot]
    position = np.where(known[found] == first, found, -1)
    return np.asarray(position[np.cumsum(begins) - 1], dtype=np.int64)
