"""A small world with the shape of a plan: its levels, queries, noise and facts over a few places and a few labels.

The world is generated. Nothing of the plan's input is read: the geography is read for which levels branch, and no
record ever. Labels are chosen so that every largest set of queries that two labels of the plan differ in is one that
two labels of the world differ in, and likewise of labels that agree in what is public; places so that records can part
at each level at which an exchange may part them. So the accountant's worst change exists in the world at the same cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from das.errors import ProblemsFound
from das.noise.mechanisms import Mechanism
from das.plan.geography import spine_of
from das.plan.plan import Plan
from das.schema.query import Query, parse_query
from das.schema.schema import Attribute, Schema, StructuralZero
from geography import Spine

__all__ = ["Counts", "SmallWorld", "small_world", "smaller_schema"]

Counts = NDArray[np.int64]
SMALL = 64
"""Cells of all leaves together up to which a plan is audited on its own geography and schema."""


@dataclass(frozen=True)
class SmallWorld:
    """A plan and a spine of a few places; a data set is a count for each column, a leaf and a possible cell of it."""

    plan: Plan
    spine: Spine
    is_whole: bool
    """Whether geography and schema are the plan's own."""

    @cached_property
    def cells(self) -> Counts:
        """The possible cells of the schema."""
        return np.flatnonzero(self.plan.schema.possible)

    @property
    def columns(self) -> int:
        """How many numbers a data set has."""
        return self.spine.size(self.plan.levels[-1]) * len(self.cells)

    @cached_property
    def rows(self) -> Counts:
        """Every measured answer as a sum of columns, in the order in which the mechanism releases them."""
        return np.concatenate([self._released(level) for level in self.plan.levels])

    @cached_property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """The noise of each row."""
        return tuple(
            m.mechanism
            for level in self.plan.levels
            for _ in range(self.spine.size(level))
            for m in self.plan.at(level)
            for _ in range(m.query.size)
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Where each row stands: geocode, level and query."""
        return tuple(
            f"{code} ({level}) {m.query.name}"
            for level in self.plan.levels
            for code in self.spine.geocodes(level).tolist()
            for m in self.plan.at(level)
            for _ in range(m.query.size)
        )

    @cached_property
    def invariant_rows(self) -> Counts:
        """Every exactly published answer as a sum of columns."""
        found = [self.answers(i.level, i.query).reshape(-1, self.columns) for i in self.plan.invariants]
        return np.concatenate([np.zeros((0, self.columns), np.int64), *found])

    def answers(self, level: str, query: Query) -> Counts:
        """Units x answers x columns: which columns each answer counts."""
        units, leaves = self.spine.size(level), self.spine.size(self.plan.levels[-1])
        out = np.zeros((units, query.size, leaves, len(self.cells)), dtype=np.int64)
        within = query.index[self.cells]
        for unit, (first, stop) in enumerate(pairwise(self.spine.leaf_ranges(level).tolist())):
            out[unit, within, first:stop, np.arange(len(self.cells))] = 1
        return out.reshape(units, query.size, self.columns)

    def histogram(self, data: Counts, level: str) -> Counts:
        """Units x cells of the schema, impossible ones included: the true counts of a level."""
        leaves = np.zeros((self.spine.size(self.plan.levels[-1]), self.plan.schema.size), dtype=np.int64)
        leaves[:, self.cells] = data.reshape(len(leaves), -1)
        return np.add.reduceat(leaves, self.spine.leaf_ranges(level)[:-1], axis=0)

    def describe(self, column: int) -> str:
        """Name a column: the leaf and the labels of the cell."""
        leaf, cell = divmod(column, len(self.cells))
        schema = self.plan.schema
        codes = schema.labels_of(self.cells[cell : cell + 1])
        labels = [schema.attribute(name).labels[int(code[0])] for name, code in codes.items()]
        return f"{self.spine.leaves[leaf]}: {', '.join(labels)}"

    def _released(self, level: str) -> Counts:
        found = [self.answers(level, m.query) for m in self.plan.at(level)]
        if not found:
            return np.zeros((0, self.columns), dtype=np.int64)
        return np.concatenate(found, axis=1).reshape(-1, self.columns)


def small_world(plan: Plan) -> SmallWorld:
    """Shrink a plan to a world of a few places and labels, or take it as it is where it is small."""
    try:
        spine: Spine | None = spine_of(plan)
    except ProblemsFound:
        spine = None
    if spine is not None and spine.size(plan.levels[-1]) * int(plan.schema.possible.sum()) <= SMALL:
        return SmallWorld(_without_factors(plan, plan.schema), spine, is_whole=True)
    public = (*(fact.query for fact in plan.invariants), *(fact.query for fact in plan.bounds))
    schema = smaller_schema(plan.schema, _queries(plan), public)
    return SmallWorld(_without_factors(plan, schema), _small_spine(plan, spine), is_whole=False)


def smaller_schema(schema: Schema, queries: tuple[Query, ...], public: tuple[Query, ...] = ()) -> Schema:
    """Keep of each attribute a few labels: every largest set of queries that two labels differ in, kept ones differ in.

    Once among all pairs of labels, and once among those that agree in each of the `public` queries.

    Examples
    --------
    >>> ages = Attribute("age", tuple("abcdef"), {"grown": {"minor": ["a", "b"], "adult": ["c", "d", "e", "f"]}})
    >>> schema = Schema((ages, Attribute("sex", ("f", "m"))))
    >>> queries = tuple(parse_query(schema, name) for name in ("grown", "detailed"))
    >>> [attribute.labels for attribute in smaller_schema(schema, queries).attributes]
    [('a', 'c'), ('f', 'm')]
    >>> [attribute.labels for attribute in smaller_schema(schema, queries, queries[:1]).attributes]
    [('a', 'b', 'c'), ('f', 'm')]
    """
    kept = {}
    for axis, attribute in enumerate(schema.attributes):
        maps, exact = ([query.factors[axis].group_of for query in some] for some in (queries, public))
        kept[attribute.name] = _representatives(attribute, maps, exact)
    attributes = tuple(_restricted(attribute, kept[attribute.name]) for attribute in schema.attributes)
    zeros = []
    for zero in schema.structural_zeros:
        labels = {name: tuple(x for x in said if x in kept[name]) for name, said in zero.labels.items()}
        if all(labels.values()):
            zeros.append(StructuralZero(zero.name, labels))
    return Schema(attributes, tuple(zeros))


def _representatives(attribute: Attribute, maps: list[Counts], exact: list[Counts]) -> tuple[str, ...]:
    first, second = np.array(list(combinations(range(len(attribute.labels)), 2)), dtype=np.int64).reshape(-1, 2).T
    differ = np.array([each[first] != each[second] for each in maps]).reshape(len(maps), -1).T
    agree = (
        np.all([each[first] == each[second] for each in exact], axis=0) if exact else np.zeros(len(first), dtype=bool)
    )
    chosen: set[int] = set()
    for among in (np.ones(len(first), dtype=bool), agree):
        patterns, at = np.unique(differ[among], axis=0, return_index=True) if among.any() else (differ[:0], [])
        for pattern, place in zip(patterns, at, strict=True):
            larger = (patterns >= pattern).all(axis=1).sum() > 1
            if not larger:
                pair = np.flatnonzero(among)[place]
                chosen |= {int(first[pair]), int(second[pair])}
    return tuple(attribute.labels[label] for label in sorted(chosen)) or attribute.labels[:1]


def _restricted(attribute: Attribute, labels: tuple[str, ...]) -> Attribute:
    recodes = {
        name: {group: [x for x in members if x in labels] for group, members in groups.items()}
        for name, groups in attribute.recodes.items()
    }
    kept = {name: {g: members for g, members in groups.items() if members} for name, groups in recodes.items()}
    return Attribute(attribute.name, labels, kept)


def _queries(plan: Plan) -> tuple[Query, ...]:
    named = {m.query.name: m.query for m in plan.measurements} | {q.name: q for q in plan.limited_queries}
    return tuple(named.values())


def _without_factors(plan: Plan, schema: Schema) -> Plan:
    """The plan over another schema; bounds state their numbers directly, and tables of earlier releases are left out.

    To agree with such a table is post-processing: no mechanism sees it.
    """
    queries: Mapping[str, Query] = {query.name: parse_query(schema, query.name) for query in _queries(plan)}
    return replace(
        plan,
        schema=schema,
        measurements=tuple(replace(m, query=queries[m.query.name]) for m in plan.measurements),
        invariants=tuple(replace(i, query=queries[i.query.name]) for i in plan.invariants),
        bounds=tuple(replace(b, query=queries[b.query.name], factor=1, missing=None) for b in plan.bounds),
        published=(),
    )


def _small_spine(plan: Plan, spine: Spine | None) -> Spine:
    """Two branches at each level down to the deepest invariant, and two leaves in each of its geounits.

    Only a level that branches in the plan's own geography does so here; without a readable one, each does.
    """
    sizes = None if spine is None else [1, *(spine.size(level) for level in plan.levels)]
    depth = len(plan.levels)
    branching = [d for d in range(depth) if sizes is None or sizes[d + 1] > sizes[d]]
    deepest = max((plan.levels.index(i.level) for i in plan.invariants), default=-1)
    paths = [np.zeros(depth, dtype=np.int64)]
    for at in (d for d in branching if d <= deepest):
        paths.append(np.zeros(depth, dtype=np.int64))
        paths[-1][at] = 1
    below = next((d for d in branching if d > deepest), None)
    if below is not None:
        paths += [path + np.eye(depth, dtype=np.int64)[below] for path in paths]
    digits = ["".join(map(str, path.tolist())) for path in paths]
    columns = [np.array([digit[: level + 1] for digit in digits]) for level in range(depth)]
    return Spine.from_paths(plan.levels, columns)
