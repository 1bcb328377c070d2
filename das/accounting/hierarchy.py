"""A plan over a hierarchy as plain values, and what a change of one record can affect; records are not enumerated.

A record is a leaf of the geography and one value for each attribute. A query keeps some attributes, each through a
recode; a measurement or an invariant is a query at a level. Whether a change of one record is seen by a measurement
depends on two things: the first level at which its two places differ, and which queries separate its two attribute
cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations, product
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from das.accounting.events import Event, NotSupported
from das.errors import ConfigError, Problem

__all__ = ["HierarchicalPlan", "Maps", "RecordChange", "attribute_changes", "compose", "finest_invariant", "refines"]

Maps = tuple[tuple[int, ...] | None, ...]
REALISATION_CHECKS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class HierarchicalPlan:
    """Everything the accountant needs to know about a plan on a spine.

    Parameters
    ----------
    levels : tuple of str
        Geolevels, top down.
    units : tuple of int
        How many geounits each level has; a level with as many as its parent separates no records.
    attributes : tuple of (name, size)
        The schema.
    queries : mapping of name to maps
        For each attribute the answer cell of each value, or None where the attribute is summed over. A value mapped to
        -1 is counted nowhere; it is accounted as one more cell, which can only overstate a cost.
    events : tuple of Event
        What is measured.
    invariants, bounds : tuple of (level, query)
        What is published exactly, and what is publicly bounded.
    possible : bool array, optional
        False at structural zeros of the schema.
    known_adjacency : int, optional
        a(t), where it was computed from the published numbers; the declarations decide otherwise.

    Examples
    --------
    >>> plan = HierarchicalPlan(
    ...     levels=("us", "state"), units=(1, 51), attributes=(("sex", 2),),
    ...     queries={"total": (None,), "sex": ((0, 1),)}, events=(), invariants=(("state", "total"),))
    >>> finest_invariant(plan)
    ('state', 'total')
    """

    levels: tuple[str, ...]
    units: tuple[int, ...]
    attributes: tuple[tuple[str, int], ...]
    queries: Mapping[str, Maps]
    events: tuple[Event, ...]
    invariants: tuple[tuple[str, str], ...] = ()
    bounds: tuple[tuple[str, str], ...] = ()
    possible: npt.NDArray[np.bool_] | None = field(default=None, compare=False)
    known_adjacency: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "queries", MappingProxyType(dict(self.queries)))
        problems = list(self._problems())
        if problems:
            raise ConfigError(problems)

    def _problems(self) -> Iterator[Problem]:
        sizes = tuple(size for _, size in self.attributes)
        if len(self.units) != len(self.levels) or any(a > b for a, b in zip(self.units, self.units[1:], strict=False)):
            yield Problem("units", "there is not one growing number of geounits a level", "count them top down")
        for name, maps in self.queries.items():
            if len(maps) != len(sizes) or any(m is not None and len(m) != n for m, n in zip(maps, sizes, strict=False)):
                yield Problem(f"query {name}", "its maps do not fit the attributes", "one map an attribute, or None")
        used = [("event", event.level, event.query) for event in self.events]
        used += [("invariant", *pair) for pair in self.invariants] + [("bound", *pair) for pair in self.bounds]
        for kind, level, query in dict.fromkeys(used):
            if level not in self.levels:
                yield Problem(f"{kind} {level}/{query}", f"the spine has no level {level!r}", "name one of its levels")
            if query not in self.queries:
                yield Problem(f"{kind} {level}/{query}", f"there is no query {query!r}", "define it")
        if self.possible is not None:
            if self.possible.shape != sizes:
                yield Problem("structural zeros", "they do not have the shape of the schema", "one flag a cell")
            elif not self.possible.any():
                yield Problem("structural zeros", "no cell is left: the data space is empty", "allow some cell")

    def depth(self, level: str) -> int:
        """Position of a level, the top being 0."""
        return self.levels.index(level)

    def diverging(self, after: int = -1) -> int:
        """First depth below `after` at which two records can live in different geounits; the number of levels if none.

        Examples
        --------
        >>> plan = HierarchicalPlan(levels=("us", "state"), units=(1, 51), attributes=(), queries={}, events=())
        >>> plan.diverging(), plan.diverging(after=1)
        (1, 2)
        """
        for depth in range(after + 1, len(self.levels)):
            if self.units[depth] > (self.units[depth - 1] if depth else 1):
                return depth
        return len(self.levels)


@dataclass(frozen=True, slots=True)
class RecordChange:
    """A change of one record: the first level at which its places differ, and the queries that separate its cells."""

    divergence: int
    separated: frozenset[str]

    def seen_by(self, depth: int, query: str) -> bool:
        """Return whether the answers at this depth change: another geounit, or another cell in the same one."""
        return depth >= self.divergence or query in self.separated


def attribute_changes(
    plan: HierarchicalPlan, *, keep: frozenset[str] = frozenset(), only: frozenset[str] | None = None
) -> tuple[frozenset[str], ...]:
    """Largest sets of queries that one change of attributes can be seen by.

    Parameters
    ----------
    keep : frozenset of str
        Queries that must not see the change (the invariants).
    only : frozenset of str, optional
        Attributes that may change; all by default.

    Examples
    --------
    >>> plan = HierarchicalPlan(
    ...     levels=("us",), units=(1,), attributes=(("sex", 2), ("age", 3)), events=(),
    ...     queries={"sex": ((0, 1), None), "adult": (None, (0, 1, 1)), "age": (None, (0, 1, 2))})
    >>> [sorted(changes) for changes in attribute_changes(plan, keep=frozenset({"adult"}))]
    [['age', 'sex']]
    """
    zeros = None if plan.possible is None or plan.possible.all() else np.packbits(plan.possible).tobytes()
    return _largest_sets(plan.attributes, tuple(plan.queries.items()), keep, only, zeros)


@lru_cache(maxsize=512)
def _largest_sets(
    attributes: tuple[tuple[str, int], ...],
    queries: tuple[tuple[str, Maps], ...],
    keep: frozenset[str],
    only: frozenset[str] | None,
    packed: bytes | None,
) -> tuple[frozenset[str], ...]:
    per_attribute = []
    for axis, (name, size) in enumerate(attributes):
        maps = {query: maps[axis] for query, maps in queries}
        distinct = tuple(sorted({m for m in maps.values() if m is not None}))
        codes = _separation_codes(distinct, size)
        choices = []
        for code in np.unique(codes):
            seen = frozenset(q for q, m in maps.items() if m is not None and int(code) >> distinct.index(m) & 1)
            if not seen & keep and (not seen or only is None or name in only):
                choices.append((seen, codes == code))
        per_attribute.append(choices)
    combined = [(frozenset(q for seen, _ in choice for q in seen), choice) for choice in product(*per_attribute)]
    combined.sort(key=lambda option: (-len(option[0]), sorted(option[0])))
    shape = tuple(size for _, size in attributes)
    possible = None if packed is None else _unpacked(packed, shape)
    largest: list[frozenset[str]] = []
    checks_left = REALISATION_CHECKS
    for seen, choice in combined:
        if any(seen <= other for other in largest):
            continue
        # a change that was not checked is taken to be possible, which can only overstate a cost
        checks_left -= 1
        if possible is None or checks_left < 0 or _realised(possible, [pairs for _, pairs in choice]):
            largest.append(seen)
    return tuple(largest)


def refines(fine: Maps, coarse: Maps) -> bool:
    """Return whether the answers of `coarse` are sums of the answers of `fine`.

    Examples
    --------
    >>> refines(((0, 1, 2),), ((0, 1, 1),)), refines(((0, 1, 1),), ((0, 0, 1),))
    (True, False)
    """
    return all(
        c is None or len(set(c)) == 1 or (f is not None and len(set(zip(f, c, strict=True))) == len(set(f)))
        for f, c in zip(fine, coarse, strict=True)
    )


def implied(plan: HierarchicalPlan, level: str, query: str, by: tuple[str, str]) -> bool:
    """Return whether an exact answer of the pair `by` gives the exact answer of `query` at `level`."""
    return plan.depth(level) <= plan.depth(by[0]) and refines(plan.queries[by[1]], plan.queries[query])


def finest_invariant(plan: HierarchicalPlan) -> tuple[str, str] | NotSupported | None:
    """The invariant from which all others follow; None without invariants.

    Nested invariants always have one. Others are a general system: enumerate it when it is small.
    """
    for pair in plan.invariants:
        if all(implied(plan, *other, by=pair) for other in plan.invariants):
            return pair
    if not plan.invariants:
        return None
    names = ", ".join(f"{level}/{query}" for level, query in plan.invariants)
    return NotSupported(f"the invariants {names} are not nested; enumerate them as a table")


def compose(*plans: HierarchicalPlan) -> HierarchicalPlan:
    """One plan that makes all the releases, public facts of all of them included.

    What two releases promise together is not the sum of what each promises alone: the joint release publishes the
    invariants of both, so every measurement is accounted again on the moves that keep all of them.

    Examples
    --------
    >>> one = HierarchicalPlan(levels=("us",), units=(1,), attributes=(("sex", 2),), queries={"sex": ((0, 1),)},
    ...     events=(), invariants=(("us", "sex"),))
    >>> compose(one, one).invariants
    (('us', 'sex'),)
    """
    first = plans[0]
    queries: dict[str, Maps] = {}
    for plan in plans:
        if (plan.levels, plan.units, plan.attributes) != (first.levels, first.units, first.attributes):
            raise ConfigError(
                Problem("releases", "they have different spines or schemas", "express them on one spine and schema")
            )
        for name, maps in plan.queries.items():
            if queries.setdefault(name, maps) != maps:
                raise ConfigError(Problem(f"query {name}", "two releases define it differently", "rename one of them"))
    masks = [plan.possible for plan in plans if plan.possible is not None]
    return replace(
        first,
        queries=queries,
        events=tuple(event for plan in plans for event in plan.events),
        invariants=tuple(dict.fromkeys(pair for plan in plans for pair in plan.invariants)),
        bounds=tuple(dict.fromkeys(pair for plan in plans for pair in plan.bounds)),
        possible=np.logical_and.reduce(masks) if masks else None,
        known_adjacency=None,
    )


def separable_cells(plan: HierarchicalPlan, query: str) -> Iterator[frozenset[str]]:
    """For each two cells of `query` that differ in one attribute, the queries no record of either cell shares.

    Between two such cells a query in the set has disjoint answers; in any other query the cells may meet.
    """
    for axis, fine in enumerate(plan.queries[query]):
        if fine is None:
            continue
        members = [{value for value, cell in enumerate(fine) if cell == wanted} for wanted in sorted(set(fine))]
        for one, other in combinations(members, 2):
            apart = set()
            for name, maps in plan.queries.items():
                kept = maps[axis]
                if kept is not None and {kept[v] for v in one}.isdisjoint(kept[v] for v in other):
                    apart.add(name)
            yield frozenset(apart)


@lru_cache(maxsize=64)
def _separation_codes(maps: tuple[tuple[int, ...], ...], size: int) -> npt.NDArray[np.int64]:
    """For each two values of an attribute, which of these maps separate them, as the bits of a number."""
    if len(maps) > 62:
        raise ConfigError(Problem("queries", "they use more than 62 recodes of one attribute", "use fewer recodes"))
    codes = np.zeros((size, size), dtype=np.int64)
    for bit, cells in enumerate(maps):
        codes |= np.not_equal.outer(cells, cells).astype(np.int64) << bit
    codes.setflags(write=False)
    return codes


def _unpacked(packed: bytes, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    count = math.prod(shape)
    return np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=count).astype(np.bool_).reshape(shape)


def _realised(possible: npt.NDArray[np.bool_], pairs: list[npt.NDArray[np.bool_]]) -> bool:
    """Return whether two possible cells differ, attribute by attribute, as the pair matrices allow."""
    reachable = possible.astype(np.float64)
    for axis, allowed in enumerate(pairs):
        reached = np.tensordot(allowed.astype(np.float64), reachable, axes=(0, axis))
        reachable = np.minimum(np.moveaxis(reached, 0, axis), 1.0)
    return bool(np.any(possible & (reachable > 0)))
