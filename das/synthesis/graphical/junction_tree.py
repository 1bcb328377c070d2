"""Junction tree of a set of marginals: every marginal lies within a node, and nodes that share attributes are linked.

Lauritzen and Spiegelhalter (1988). The graph is triangulated by eliminating the attribute whose neighbourhood has the
fewest cells; the nodes are the maximal cliques, linked by a maximum spanning tree over the sizes of their overlaps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import networkx as nx

from das.synthesis.graphical.projection import Axes

__all__ = ["JunctionTree", "junction_tree"]


@dataclass(frozen=True)
class JunctionTree:
    """Nodes in an order in which each comes after its parent; the first is a root, and so is any with parent -1.

    Examples
    --------
    >>> tree = junction_tree((2, 3, 4), [(0, 1), (1, 2)])
    >>> sorted(tree.nodes), tree.cells
    ([(0, 1), (1, 2)], 18)
    """

    shape: tuple[int, ...]
    nodes: tuple[Axes, ...]
    parents: tuple[int, ...]

    @cached_property
    def separators(self) -> tuple[Axes, ...]:
        """What each node shares with its parent; nothing for a root."""
        pairs = zip(self.nodes, self.parents, strict=True)
        return tuple(
            tuple(axis for axis in node if parent >= 0 and axis in self.nodes[parent]) for node, parent in pairs
        )

    @property
    def cells(self) -> int:
        """Numbers that the node tables hold together: the size of a model."""
        return sum(math.prod(self.shape[axis] for axis in node) for node in self.nodes)

    def holder(self, axes: Iterable[int]) -> int | None:
        """Return the smallest node that holds all of these axes, if there is one."""
        wanted = set(axes)
        holding = [number for number, node in enumerate(self.nodes) if wanted <= set(node)]
        return min(holding, key=lambda k: math.prod(self.shape[a] for a in self.nodes[k])) if holding else None


def junction_tree(shape: Sequence[int], marginals: Iterable[Axes], root: Axes = ()) -> JunctionTree:
    """Build the tree; the first node holds the axes of ``root``."""
    graph = nx.Graph()
    graph.add_nodes_from(range(len(shape)))
    for marginal in (*marginals, root):
        graph.add_edges_from(combinations(marginal, 2))
    cliques = _eliminate(graph, shape)
    overlaps = nx.Graph()
    overlaps.add_nodes_from(range(len(cliques)))
    for one, two in combinations(range(len(cliques)), 2):
        if shared := len(set(cliques[one]) & set(cliques[two])):
            overlaps.add_edge(one, two, weight=shared)
    forest = nx.maximum_spanning_tree(overlaps)
    first = next(k for k, clique in enumerate(cliques) if set(root) <= set(clique))
    nodes: list[Axes] = []
    parents: list[int] = []
    number: dict[int, int] = {}
    for start in (first, *range(len(cliques))):
        if start in number:
            continue
        number[start] = len(nodes)
        nodes.append(cliques[start])
        parents.append(-1)
        for parent, child in nx.bfs_edges(forest, start):
            number[child] = len(nodes)
            nodes.append(cliques[child])
            parents.append(number[parent])
    return JunctionTree(tuple(shape), tuple(nodes), tuple(parents))


def _eliminate(graph: nx.Graph, shape: Sequence[int]) -> list[Axes]:
    """Return the maximal cliques of a triangulation."""
    remaining = graph.copy()
    cliques: list[set[int]] = []
    while remaining:
        neighbourhoods = {axis: {axis, *remaining[axis]} for axis in remaining}
        axis = min(neighbourhoods, key=lambda a: (math.prod(shape[b] for b in neighbourhoods[a]), a))
        clique = neighbourhoods[axis]
        if not any(clique <= larger for larger in cliques):
            cliques.append(clique)
        remaining.add_edges_from(combinations(sorted(clique - {axis}), 2))
        remaining.remove_node(axis)
    return [tuple(sorted(clique)) for clique in cliques]
