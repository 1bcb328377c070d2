"""The claims of a crosswalk as a networkx graph, and what keeps them from being a tree."""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
import numpy as np

from geography.arrays import Codes, Indices
from geography.problem import Problem
from geography.problem_list import AS_TEXT, Source, listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The rows of a crosswalk: one claim is "this unit, of this level, lies in that parent".

    Parameters
    ----------
    levels : tuple of str
        Top-down.
    geocode : Codes
        The geocode of each unit that is mentioned, as child or as parent.
    child, parent : Indices
        Per claim, positions in `geocode`; the parent is -1 where none is given.
    level : Indices
        Per claim, the child's level as a position in `levels`; -1 where it is unknown.
    row : Indices
        Per claim, the position of its row in the source.
    source : Source
    """

    levels: tuple[str, ...]
    geocode: Codes
    child: Indices
    parent: Indices
    level: Indices
    row: Indices
    source: Source

    def first_claim(self) -> Indices:
        """Return the first claim about each unit, -1 for a unit that is only named as a parent."""
        first = np.full(len(self.geocode), -1, dtype=np.int64)
        by_row = np.argsort(self.row, kind="stable")[::-1]
        first[self.child[by_row]] = by_row  # of several claims the last assignment stands, which is the first row
        return first

    def graph(self) -> nx.DiGraph:
        """Return the graph of all claims, edges from parent to child."""
        graph = nx.DiGraph()
        graph.add_nodes_from(range(len(self.geocode)))
        has_parent = self.parent >= 0
        graph.add_edges_from(zip(self.parent[has_parent].tolist(), self.child[has_parent].tolist(), strict=True))
        return graph


def find_problems(claims: Claims) -> list[Problem]:
    """Say everything that keeps claims from being a tree with ordered levels.

    Examples
    --------
    >>> claims = Claims(levels=("state", "county"), geocode=np.array(["01", "01001"]), child=np.array([1]),
    ...                 parent=np.array([0]), level=np.array([1]), row=np.array([0]), source=Source("geo.csv", 2))
    >>> print(*find_problems(claims))
    geo.csv, row 2: parent '01' of county '01001' is never defined; add a row for '01', or correct the parent
    """
    first = claims.first_claim()
    component = np.arange(len(claims.geocode), dtype=np.int64)
    problems = [*_repeated(claims, first), *_cycles(claims, first, component), *_missing_parents(claims, first)]
    return problems + _level_order(claims, first, component)


def _name(claims: Claims, first: Indices, unit: int) -> str:
    level = claims.level[first[unit]] if first[unit] >= 0 else -1
    code = repr(str(claims.geocode[unit]))
    return code if level < 0 else f"{claims.levels[level]} {code}"


def _repeated(claims: Claims, first: Indices) -> list[Problem]:
    """Find units with two parents, two levels, or two equal rows."""
    original = first[claims.child]
    rootless = (claims.parent < 0) & (claims.level > 0) & (claims.level == claims.level[original])  # named as such
    again = np.flatnonzero((original != np.arange(len(original))) & ~rootless)

    def describe(claim: int) -> Problem:
        earlier = int(original[claim])
        row = f"row {claims.source.number(int(claims.row[earlier]))}"
        name = _name(claims, first, int(claims.child[claim]))
        if claims.level[claim] != claims.level[earlier]:
            reason = f"geocode {str(claims.geocode[claims.child[claim]])!r} is of another level in {row}"
            remedy = "give every unit a geocode of its own"
        elif claims.parent[claim] != claims.parent[earlier]:
            here, there = (
                "no parent" if claims.parent[each] < 0 else _name(claims, first, int(claims.parent[each]))
                for each in (claim, earlier)
            )
            reason = f"{name} has two parents: {here} here, {there} in {row}"
            remedy = "give it one parent; codes unique only within their parent are nested, and padded to one width"
        else:
            reason, remedy = f"{name} is already in {row}", "keep one of the two rows"
        return Problem(claims.source.row(int(claims.row[claim])), reason, remedy)

    return listed(again[np.argsort(claims.row[again], kind="stable")], describe, claims.source)


def _cycles(claims: Claims, first: Indices, component: Indices) -> list[Problem]:
    """Name one cycle in each strongly connected component; mark its units as one."""
    graph = claims.graph()
    cycles: list[list[int]] = []
    for members in nx.strongly_connected_components(graph):
        start = min(members)
        if len(members) > 1 or graph.has_edge(start, start):
            component[list(members)] = start
            edges = nx.find_cycle(graph.subgraph(members), start)
            cycles.append([child for _, child in reversed(edges)])
    cycles.sort(key=lambda cycle: int(claims.row[first[cycle[0]]]))

    def describe(i: int) -> Problem:
        cycle = cycles[i]
        path = " lies in ".join(_name(claims, first, unit) for unit in [*cycle, cycle[0]])
        rows = sorted(claims.source.number(int(claims.row[first[unit]])) for unit in cycle)
        where = f"{claims.source.name}, row" + ("s " if len(rows) > 1 else " ") + ", ".join(map(str, rows))
        return Problem(where, f"a cycle: {path}", "give one of them a parent outside the cycle")

    return listed(range(len(cycles)), describe, claims.source)


def _missing_parents(claims: Claims, first: Indices) -> list[Problem]:
    """Find parents that have no row of their own, and units below the top that name no parent."""
    undefined = np.flatnonzero((claims.parent >= 0) & (first[claims.parent] < 0))
    rootless = np.flatnonzero((claims.parent < 0) & (claims.level > 0))
    written = _other_zeros(claims, first, undefined)

    def other_zeros(claim: int) -> Problem:
        more = f", and {len(written) - 1:,} more rows likewise" if len(written) > 1 else ""
        code = str(claims.geocode[claims.parent[claim]])
        reason = f"parent {code!r} is written {written[claim]!r} where it is defined{more}"
        return Problem(claims.source.row(int(claims.row[claim])), reason, AS_TEXT)

    def never_defined(claim: int) -> Problem:
        code = str(claims.geocode[claims.parent[claim]])
        reason = f"parent {code!r} of {_name(claims, first, int(claims.child[claim]))} is never defined"
        return Problem(
            claims.source.row(int(claims.row[claim])), reason, f"add a row for {code!r}, or correct the parent"
        )

    def no_parent(claim: int) -> Problem:
        name = f"{claims.levels[claims.level[claim]]} {str(claims.geocode[claims.child[claim]])!r}"
        remedy = f"give its {claims.levels[claims.level[claim] - 1]}, or its unit of another level above"
        return Problem(claims.source.row(int(claims.row[claim])), f"{name} has no parent", remedy)

    return [
        *(other_zeros(claim) for claim in list(written)[:1]),  # whoever lost zeros lost them throughout: said once
        *listed([claim for claim in undefined.tolist() if claim not in written], never_defined, claims.source),
        *listed(rootless, no_parent, claims.source),
    ]


def _other_zeros(claims: Claims, first: Indices, undefined: Indices) -> dict[int, str]:
    """Claims whose parent is defined with other leading zeros, and how it is written there."""
    if not len(undefined):
        return {}
    defined = [str(code) for code in claims.geocode[first >= 0]]
    by_digits = {code.lstrip("0"): code for code in defined if code.isdigit()}
    parents = {claim: str(claims.geocode[claims.parent[claim]]) for claim in undefined.tolist()}
    return {claim: by_digits[code.lstrip("0")] for claim, code in parents.items() if code.lstrip("0") in by_digits}


def _level_order(claims: Claims, first: Indices, component: Indices) -> list[Problem]:
    """Find parents that are not of a higher level; a cycle breaks the order anyway and has been named."""
    defined = (claims.parent >= 0) & (first[claims.parent] >= 0)
    parent_level = np.where(defined, claims.level[first[claims.parent]], -1)
    same_cycle = defined & (component[claims.parent] == component[claims.child])
    wrong = (parent_level >= claims.level) & (claims.level >= 0) & defined & ~same_cycle

    def describe(claim: int) -> Problem:
        child, parent = (_name(claims, first, int(unit[claim])) for unit in (claims.child, claims.parent))
        reason = f"{child} lies in {parent}, whose level is not above"
        remedy = f"correct the parent or the order of the levels ({', '.join(claims.levels)})"
        return Problem(claims.source.row(int(claims.row[claim])), reason, remedy)

    return listed(np.flatnonzero(wrong), describe, claims.source)
