"""Exact inference on a junction tree: from potentials to the marginal of every node (Hugin propagation).

Jensen, Lauritzen and Olesen (1990). Node tables are scaled by their largest entry, so that nothing overflows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from das.synthesis.graphical.junction_tree import JunctionTree
from das.synthesis.graphical.projection import Axes

__all__ = ["calibrate", "eliminate"]

Table = NDArray[np.float64]


def calibrate(tree: JunctionTree, potentials: Sequence[Table]) -> tuple[list[Table], float]:
    """Return the probability table of each node and the logarithm of the partition function.

    Parameters
    ----------
    tree : JunctionTree
        The tree.
    potentials : sequence of ndarray
        Log potentials of the nodes, minus infinity where impossible; they are overwritten.
    """
    log_partition = 0.0
    tables: list[Table] = []
    for potential in potentials:
        top = float(potential.max())
        potential -= top
        tables.append(np.exp(potential, out=potential))
        log_partition += top
    messages: list[Table | None] = [None] * len(tables)
    for child in range(len(tables) - 1, -1, -1):
        parent = tree.parents[child]
        if parent < 0:
            total = float(tables[child].sum())
            log_partition += np.log(total)
            tables[child] /= total
            continue
        sent = _summed(tables[child], tree.nodes[child], tree.separators[child])
        scale = float(sent.max())
        sent /= scale
        log_partition += np.log(scale)
        messages[child] = sent
        tables[parent] *= _aligned(sent, tree.separators[child], tree.nodes[parent])
    for child, parent in enumerate(tree.parents):
        sent_up = messages[child]
        if sent_up is not None:
            known = _summed(tables[parent], tree.nodes[parent], tree.separators[child])
            ratio = np.divide(known, sent_up, out=np.zeros_like(known), where=sent_up > 0)
            tables[child] *= _aligned(ratio, tree.separators[child], tree.nodes[child])
            tables[child] /= tables[child].sum()
    return tables, log_partition


def eliminate(tree: JunctionTree, tables: Sequence[Table], wanted: Axes) -> Table:
    """Return any marginal of a calibrated tree, by summing out node after node towards the root.

    Only the part of the tree that links the wanted axes is visited.
    """
    keep = set(wanted)
    needed = _linking(tree, keep)
    carried: dict[int, tuple[list[Table], list[list[int]]]] = {k: ([tables[k]], [list(tree.nodes[k])]) for k in needed}
    result: Table = np.ones(())
    labels: list[int] = []
    for child in sorted(needed, reverse=True):
        operands, axes = carried[child]
        parent = tree.parents[child]
        inner = parent in needed
        onto = tree.separators[child] if inner else ()
        held = {axis for each in axes for axis in each}
        out = sorted(held & (keep | set(onto)))
        message = _contract(operands, axes, out)
        if inner:
            below = _summed(tables[child], tree.nodes[child], onto)
            inverse = np.divide(1.0, below, out=np.zeros_like(below), where=below > 0)
            carried[parent][0].append(message * _aligned(inverse, onto, tuple(out)))
            carried[parent][1].append(out)
        else:
            result, labels = _contract([result, message], [labels, out], sorted({*labels, *out})), [*labels, *out]
            labels = sorted(set(labels))
    return result


def _linking(tree: JunctionTree, keep: set[int]) -> set[int]:
    """Return connected nodes that hold all wanted axes: leaves that add nothing are cut off until none is left."""
    needed = set(range(len(tree.nodes)))
    changed = True
    while changed:
        changed = False
        for number in sorted(needed, reverse=True):
            children = [k for k in needed if tree.parents[k] == number]
            up = tree.parents[number] if tree.parents[number] in needed else -1
            linked = children + ([up] if up >= 0 else [])
            mine = keep & set(tree.nodes[number])
            if len(linked) > 1 or (not linked and mine):
                continue
            if not linked or mine <= set(tree.nodes[linked[0]]):
                needed.discard(number)
                changed = True
    return needed


def _contract(operands: list[Table], axes: list[list[int]], out: list[int]) -> Table:
    renumbered = {axis: place for place, axis in enumerate(sorted({a for each in axes for a in each}))}
    pairs: list[Any] = [
        part for table, each in zip(operands, axes, strict=True) for part in (table, [renumbered[a] for a in each])
    ]
    return np.asarray(np.einsum(*pairs, [renumbered[a] for a in out], optimize=len(operands) > 2))


def _summed(table: Table, axes: Axes, onto: Axes) -> Table:
    return np.asarray(table.sum(axis=tuple(place for place, axis in enumerate(axes) if axis not in onto)))


def _aligned(table: Table, axes: Axes, onto: Axes) -> Table:
    sizes = dict(zip(axes, table.shape, strict=True))
    return table.reshape(tuple(sizes.get(axis, 1) for axis in onto))
