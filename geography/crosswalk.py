"""Crosswalk files: any hierarchy, one row per leaf (wide) or one row per unit (edges)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

import networkx as nx
import numpy as np

from geography import ragged
from geography.arrays import Codes, Flags, Indices
from geography.graph import Claims, find_problems
from geography.problem import Problem, ProblemsFound
from geography.problem_list import Source, listed, nearest
from geography.reading import column_names, read_text_columns
from geography.spine import Spine

EDGE_COLUMNS = ("geocode", "parent", "level")
UNNAMED = Source("crosswalk")


def read_crosswalk(
    path: str | Path,
    levels: Sequence[str] | None = None,
    *,
    layout: Literal["wide", "edges"] | None = None,
    nested: bool = False,
) -> Spine:
    """Read a crosswalk (CSV, gzipped CSV or Parquet) as a spine.

    Parameters
    ----------
    path : str or Path
    levels : sequence of str, optional
        The levels, top-down. If not given: the columns of a wide file in their order; for edges, the one order that the
        parents imply.
    layout : {"wide", "edges"}, optional
        ``wide``: one row per leaf, one column per level; blank where the leaf's branch skips the level or has ended.
        ``edges``: one row per unit, with columns geocode, parent (blank at the top) and level.
        If not given, edges where the file has those three columns, otherwise wide.
    nested : bool
        For wide files whose codes are unique only within the parent: the geocode is the parent's followed by the code.

    Raises
    ------
    ProblemsFound
        Everything that is wrong with the file, with rows.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "geo.csv"
    ...     _ = path.write_text("state,county,tract\\n01,001,1\\n01,003,1\\n02,,7\\n")
    ...     spine = read_crosswalk(path, nested=True)
    >>> spine, spine.leaves.tolist(), spine.real("county").tolist()
    (Spine(state 2, county 3, tract 3), ['010011', '010031', '027'], [True, True, False])
    """
    known = column_names(path)
    if layout is None:
        layout = "edges" if set(EDGE_COLUMNS) <= set(known) else "wide"
    if layout == "edges":
        if nested:
            raise ProblemsFound(Problem(str(path), "nested codes need one column per level", "use the wide layout"))
        columns = read_text_columns(path, EDGE_COLUMNS)
        _require_clean(columns, Source.of(path))
        return from_edges(*(columns[name] for name in EDGE_COLUMNS), levels=levels, source=Source.of(path))
    names = tuple(known if levels is None else levels)
    columns = read_text_columns(path, names)
    _require_clean(columns, Source.of(path))
    return from_wide([columns[name] for name in names], names, nested=nested, source=Source.of(path))


def from_wide(
    paths: Sequence[Codes], levels: Sequence[str], *, nested: bool = False, source: Source = UNNAMED
) -> Spine:
    """Build a spine from one row per leaf; see `read_crosswalk`.

    Examples
    --------
    >>> from_wide([np.array(["01", "01"]), np.array(["01001", "01003"])], ["state", "county"])
    Spine(state 1, county 2)
    """
    if nested:
        paths = nest(paths)
    claims, deepest = _wide_claims(paths, tuple(levels), source)
    filled, real = ragged.fill(paths)
    problems = [
        *_blank_rows(deepest, source),
        *find_problems(claims),
        *_repeated_leaves(claims, deepest),
        *ragged.find_collisions(levels, filled, real, source),
    ]
    if problems:
        raise ProblemsFound(problems)
    return Spine.from_paths(levels, filled, real)


def from_edges(
    geocode: Codes,
    parent: Codes,
    level: Codes,
    *,
    levels: Sequence[str] | None = None,
    source: Source = UNNAMED,
) -> Spine:
    """Build a spine from one row per unit; see `read_crosswalk`.

    A parent is named by its geocode alone, so geocodes are unique over all levels.

    Examples
    --------
    >>> from_edges(np.array(["01", "01001"]), np.array(["", "01"]), np.array(["state", "county"]))
    Spine(state 1, county 1)
    """
    order = _implied_order(geocode, parent, level, source) if levels is None else tuple(levels)
    units, position = np.unique(np.concatenate([geocode, parent]), return_inverse=True)
    child, above = position[: len(geocode)], position[len(geocode) :]
    claims = Claims(
        levels=order,
        geocode=units,
        child=child,
        parent=np.where(parent == "", -1, above),
        level=np.array([order.index(name) if name in order else -1 for name in level.tolist()], dtype=np.int64),
        row=np.arange(len(geocode), dtype=np.int64),
        source=source,
    )

    def unknown(i: int) -> Problem:
        return Problem(source.row(i), f"{str(level[i])!r} is not a level", nearest(str(level[i]), order))

    def blank(i: int) -> Problem:
        return Problem(source.row(i), "the geocode is blank", "give its geocode, or delete the row")

    problems = [
        *listed(np.flatnonzero(geocode == ""), blank, source),
        *listed(np.flatnonzero(claims.level < 0), unknown, source),
        *find_problems(claims),
    ]
    if problems:
        raise ProblemsFound(problems)
    # No placeholder can collide here: its code is that of a unit, and a unit's code is unique in the file.
    return Spine.from_paths(order, *ragged.fill(_climb(claims)))


def _require_clean(columns: dict[str, Codes], source: Source) -> None:
    """Refuse codes with blanks around them, which would make two units of one; a code of blanks alone is blank."""
    problems: list[Problem] = []
    for name, column in columns.items():
        trimmed = np.strings.strip(column)
        columns[name] = np.where(trimmed == "", "", column)

        def describe(i: int, name: str = name, column: Codes = column) -> Problem:
            return Problem(source.row(i), f"{name} {str(column[i])!r} has blanks around it", "trim it")

        problems += listed(np.flatnonzero((trimmed != column) & (trimmed != "")), describe, source)
    if problems:
        raise ProblemsFound(problems)


def nest(paths: Sequence[Codes]) -> list[Codes]:
    """Return whole geocodes from codes that are unique only within the parent."""
    nested: list[Codes] = []
    above: Codes = np.zeros(len(paths[0]), dtype="<U1")
    for column in paths:
        whole = np.strings.add(above, column)
        nested.append(np.where(column == "", "", whole))
        above = np.where(column == "", above, whole)
    return nested


def _wide_claims(paths: Sequence[Codes], levels: tuple[str, ...], source: Source) -> tuple[Claims, Indices]:
    """Return what the rows say about every unit, once each, and the lowest unit of each row (-1 for a blank row)."""
    above = np.full(len(paths[0]), -1, dtype=np.int64)
    parts: list[tuple[Codes, Indices, Indices, Indices, Indices]] = []
    count = 0
    for level, column in enumerate(paths):
        rows = np.flatnonzero(column != "")
        codes, unit = np.unique(column[rows], return_inverse=True)
        unit = unit + count
        # One number for the pair (unit, parent), so that each different claim is made once, by its first row.
        _, once = np.unique(unit * (count + 1) + above[rows] + 1, return_index=True)
        first = rows[once]
        parts.append((codes, unit[once], above[first], np.full(len(first), level, dtype=np.int64), first))
        above[rows] = unit
        count += len(codes)
    geocode, child, parent, level_of, row = (np.concatenate(column) for column in zip(*parts, strict=True))
    claims = Claims(levels=levels, geocode=geocode, child=child, parent=parent, level=level_of, row=row, source=source)
    return claims, above


def _blank_rows(deepest: Indices, source: Source) -> list[Problem]:
    def describe(i: int) -> Problem:
        return Problem(source.row(i), "every level is blank", "give its geocodes, or delete the row")

    return listed(np.flatnonzero(deepest < 0), describe, source)


def _repeated_leaves(claims: Claims, deepest: Indices) -> list[Problem]:
    """Find rows that repeat a leaf, and rows that end at a unit to which other rows give units below."""
    source = claims.source
    _, first, inverse = np.unique(deepest, return_index=True, return_inverse=True)
    original = first[inverse]
    is_parent: Flags = np.zeros(len(claims.geocode) + 1, dtype=np.bool_)  # the last one answers for -1, a blank row
    below = np.full(len(claims.geocode) + 1, -1, dtype=np.int64)
    with_parent = np.flatnonzero(claims.parent >= 0)[::-1]
    is_parent[claims.parent[with_parent]] = True
    below[claims.parent[with_parent]] = claims.row[with_parent]

    def repeated(i: int) -> Problem:
        reason = f"leaf {str(claims.geocode[deepest[i]])!r} is already in row {source.number(int(original[i]))}"
        return Problem(source.row(i), reason, "keep one of the two rows")

    def ends(i: int) -> Problem:
        code, row = str(claims.geocode[deepest[i]]), source.number(int(below[deepest[i]]))
        reason = f"the branch ends at {code!r}, which has units below it in row {row}"
        return Problem(source.row(i), reason, "fill in the lower levels, or delete the row")

    again = (original != np.arange(len(deepest))) & (deepest >= 0)
    return [
        *listed(np.flatnonzero(again), repeated, source),
        *listed(np.flatnonzero(is_parent[deepest] & ~again), ends, source),
    ]


def _implied_order(geocode: Codes, parent: Codes, level: Codes, source: Source) -> tuple[str, ...]:
    """Return the one order of the levels in which every parent is above its child, if there is exactly one."""
    level_of = dict(zip(geocode.tolist(), level.tolist(), strict=True))
    graph = nx.DiGraph()
    graph.add_nodes_from(sorted(set(level_of.values())))
    pairs = {
        (level_of[above], name)
        for above, name in zip(parent.tolist(), level.tolist(), strict=True)
        if above in level_of
    }
    graph.add_edges_from(sorted(pairs))
    order = tuple(nx.topological_sort(graph)) if nx.is_directed_acyclic_graph(graph) else ()
    if not order or not all(graph.has_edge(*pair) for pair in pairwise(order)):
        names = ", ".join(sorted(map(repr, graph)))
        reason = f"the parents do not imply one order of the levels {names}"
        raise ProblemsFound(Problem(source.name, reason, "give the levels, top-down"))
    return order


def _climb(claims: Claims) -> list[Codes]:
    """Return the path of every leaf, blank where it skips a level."""
    is_parent: Flags = np.zeros(len(claims.geocode), dtype=np.bool_)
    is_parent[claims.parent[claims.parent >= 0]] = True
    leaves = np.flatnonzero(~is_parent[claims.child])
    claim_of = claims.first_claim()
    paths: list[Codes] = [np.zeros(len(leaves), dtype=claims.geocode.dtype) for _ in claims.levels]
    claim: Indices = leaves
    here: Indices = np.arange(len(leaves))
    while len(claim):
        for level, column in enumerate(paths):
            at_level = claims.level[claim] == level
            column[here[at_level]] = claims.geocode[claims.child[claim[at_level]]]
        inner = claims.parent[claim] >= 0
        here, claim = here[inner], claim_of[claims.parent[claim[inner]]]
    return paths
