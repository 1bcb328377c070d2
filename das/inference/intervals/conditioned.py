"""Intervals for a release whose noise was conditioned to conform: from the posterior of the true counts.

The published counts z are a draw from p*(z | x), proportional to the product over all counts v of the tree of
p_v(z_v - x_v), on the tables that keep the public facts (:mod:`das.congenial.tree`). Errors are then neither unbiased
nor normal, so intervals are those of the posterior under a flat prior on all tables x that keep the facts:

    p(x | z)  is proportional to  product of p_v(z_v - x_v) / Z(x),

Z(x) being the probability that unconditioned noise would have conformed. Noise is symmetric, so the product alone is
p*(x | z): the mechanism itself, run on the published counts, draws from it exactly. Each draw then gets the weight
1 / Z(x), which the same messages give exactly (importance sampling). The effective number of draws is reported, and
where it is too small no interval is given.

The tree falls into parts that have nothing to do with each other: what lies under different roots, or under a count
that is known exactly. Only the parts that a question is about are drawn.

Such an interval holds the truth with the stated probability on average over the prior, and not for each true table: a
flat prior expects few empty cells, so the sum of many cells that are all empty lies below its interval. That is why
large parts are refused. Weights 1 / Z(x) of a thousand draws leave no effective ones there; a chain that needs no
weights could be run instead (exchange algorithm, Murray, Ghahramani and MacKay 2006), but it would have the same
posterior, and in a table of which nine cells in ten are empty 95 % intervals of it hold the true total four to seven
times in ten (``tests/inference/test_conditioned.py``). What large parts need first is a prior for empty cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from das.congenial.tree import UNBOUNDED, Tree
from das.errors import Problem, UsageError
from das.facts.fact import limits_of
from das.inference.intervals.answer import Intervals, answer_rows
from das.inference.intervals.asked import Asked
from das.inference.intervals.places import Place, names_of_ratios
from das.inference.intervals.public_files import PublicFiles
from das.noise.stream import RunKey
from das.noise.two_sided import TwoSidedNoise
from das.plan.tree_of_counts import tree_of
from das.storage.counts import read_counts

if TYPE_CHECKING:
    from das.inference.intervals.query import Question

__all__ = ["DRAWS", "LARGEST_PART", "TreeOfRelease", "conditioned_answer", "posterior_draws", "shortest_limits"]

Indices = NDArray[np.int64]
Floats = NDArray[np.float64]

DRAWS = 1000
"""Draws from the posterior of each part."""
LARGEST_PART = 2000
"""Counts of a part that are drawn; Z(x) is worked out for every draw."""
FEWEST = 100
"""Effective draws below which no interval is given."""


@dataclass(frozen=True)
class TreeOfRelease:
    """The tree of all counts of a release: for each its parent, noise, limits and published value.

    Nodes stand top down. ``leaf_unit`` and ``leaf_cell`` say of a node without children which leaf of the spine and
    which cell it is; they are -1 elsewhere.
    """

    parent: Indices
    noise: tuple[TwoSidedNoise | None, ...]
    lower: Indices
    upper: Indices
    published: Indices
    leaf_unit: Indices
    leaf_cell: Indices

    @classmethod
    def of(cls, files: PublicFiles) -> TreeOfRelease:
        """Read the tree from the public files."""
        plan, spine, layers = files.plan, files.spine, tree_of(files.plan)
        pieces: list[_Piece] = []
        made = 0
        above: Indices = np.zeros((0, 0), dtype=np.int64)  # nodes of the layer before: geounits x answers
        for level in plan.levels:
            counts = read_counts(spine, level, files.folder.counts / f"{level}.parquet")
            limits = {limit.query.name: limit for limit in limits_of(files.facts(level), slice(None))}
            for at, layer in enumerate(layers[level]):
                reached, units = np.flatnonzero(layer.reached), spine.size(level)
                node = np.full((units, layer.query.size), -1, dtype=np.int64)
                node[:, reached] = made + np.arange(units * len(reached)).reshape(units, -1)
                made += units * len(reached)
                parent: Indices
                if not pieces:
                    parent = np.full((units, len(reached)), -1, dtype=np.int64)
                elif at == 0:
                    parent = above[spine.parent(level)][:, reached]
                else:
                    firsts = np.array([np.flatnonzero(layer.query.index == answer)[0] for answer in reached])
                    parent = above[:, layers[level][at - 1].query.group_of(firsts)]
                limit = limits.get(layer.query.name)
                shape = parent.shape
                pieces.append(
                    _Piece(
                        parent=parent,
                        noise=layer.noise,
                        lower=np.zeros(shape, np.int64) if limit is None else limit.lower[:, reached],
                        upper=np.full(shape, UNBOUNDED) if limit is None else limit.upper[:, reached],
                        published=counts.answers(layer.query, units)[:, reached],
                    )
                )
                above = node
        last = layers[plan.levels[-1]][-1].query
        possible = np.flatnonzero(plan.schema.possible)
        cell_of = np.zeros(last.size, dtype=np.int64)
        cell_of[last.index[possible]] = possible
        units, reached = spine.size(plan.levels[-1]), np.flatnonzero(above[0] >= 0)
        leaf_unit, leaf_cell = np.full(made, -1, dtype=np.int64), np.full(made, -1, dtype=np.int64)
        leaf_unit[above[:, reached]] = np.arange(units)[:, None]
        leaf_cell[above[:, reached]] = cell_of[reached]
        return cls(
            parent=np.concatenate([piece.parent.reshape(-1) for piece in pieces]),
            noise=tuple(noise for piece in pieces for noise in [piece.noise] * piece.parent.size),
            lower=np.concatenate([piece.lower.reshape(-1) for piece in pieces]),
            upper=np.minimum(np.concatenate([piece.upper.reshape(-1) for piece in pieces]), UNBOUNDED),
            published=np.concatenate([piece.published.reshape(-1) for piece in pieces]),
            leaf_unit=leaf_unit,
            leaf_cell=leaf_cell,
        )

    @cached_property
    def part_of(self) -> Indices:
        """The root of the part to which each node belongs; a count that is known exactly is the root of those below."""
        known = self.lower == self.upper
        part = np.arange(len(self.parent))
        for node in np.flatnonzero(self.parent >= 0).tolist():  # top down: a parent comes before its children
            above = self.parent[node]
            part[node] = above if known[above] else part[above]
        return part

    def part(self, root: int) -> tuple[Tree, Indices]:
        """The tree of one part, and its nodes in the whole."""
        nodes = np.union1d([root], np.flatnonzero(self.part_of == root)).astype(np.int64)
        place = {int(node): at for at, node in enumerate(nodes.tolist())}
        parents = [-1 if node == root else place[int(self.parent[node])] for node in nodes.tolist()]
        known = self.lower[root] == self.upper[root]
        noise = [None if node == root and known else self.noise[node] for node in nodes.tolist()]
        return Tree(tuple(parents), tuple(noise), tuple(self.lower[nodes]), tuple(self.upper[nodes])), nodes


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """The nodes of one layer: geounits x answers."""

    parent: Indices
    noise: TwoSidedNoise | None
    lower: Indices
    upper: Indices
    published: Indices


def conditioned_answer(
    files: PublicFiles,
    question: Question,
    asked: Asked,
    places: Sequence[Place],
    over: tuple[Asked, Sequence[Place]] | None = None,
) -> Intervals:
    """Answer a question with intervals of the posterior; ``over`` has the denominators of ratios, one for each place.

    Raises
    ------
    UsageError
        The question is about more counts than are drawn, or too few effective draws are left.
    """
    if question.interval != "normal":
        reason = "is not offered for counts that were drawn to conform, whose errors are not normal"
        raise UsageError(Problem("--interval", reason, "leave it out: the interval is that of the posterior"))
    tree = TreeOfRelease.of(files)
    sums = [(asked, places)] + ([over] if over else [])
    _require_small_parts(files, tree, np.concatenate([_used(files, tree, *each) for each in sums]))
    weights = np.concatenate([_weights(files, tree, *each) for each in sums])
    used = np.flatnonzero(weights.any(axis=0))
    draws, effective = posterior_draws(tree, used, files.plan.digest)
    numbers: Floats = draws @ weights[:, used].T  # draws x (places answers)
    published: Floats = weights[:, used] @ tree.published[used]
    notes = ["these hold the truth on average over a flat prior: sums of many empty cells lie below their interval"]
    names, text, size = [place.name for place in places], asked.text, len(places) * asked.size
    if over:
        of = np.repeat(np.arange(size, len(published)), asked.size)  # a denominator has one answer
        numbers, published = _divided(numbers[:, :size], numbers[:, of]), _divided(published[:size], published[of])
        names, text = names_of_ratios(places, over[1]), asked.over(over[0])
    unknown = np.isnan(numbers).any(axis=0)
    if unknown.any():
        notes.append("no ratio is given where its denominator may be zero")
    low, high = shortest_limits(np.where(unknown, 0.0, numbers), question.confidence)
    of_draws = {"estimate": numbers.mean(axis=0), "std_dev": numbers.std(axis=0), "low": low, "high": high}
    values = {name: np.where(unknown, np.nan, value) for name, value in of_draws.items()}
    return Intervals(
        table=answer_rows(asked, names, published, values, is_ratio=over is not None),
        asked=text,
        confidence=question.confidence,
        interval=f"shortest of the posterior under a flat prior, {effective} effective draws",
        notes=tuple(notes),
        is_ratio=over is not None,
    )


def _divided(above: Floats, below: Floats) -> Floats:
    """Ratios; NaN over zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below != 0, above / below, np.nan)


def _require_small_parts(files: PublicFiles, tree: TreeOfRelease, nodes: Indices) -> None:
    """Refuse a question that needs a large part, and name what can be asked of this release."""
    sizes = np.bincount(tree.part_of, minlength=len(tree.parent)) + 1
    size = int(sizes[tree.part_of[nodes]].max(initial=0))
    if size <= LARGEST_PART:
        return
    leaves = np.flatnonzero(tree.leaf_unit >= 0)
    large = sizes[tree.part_of[leaves]] > LARGEST_PART
    small = np.setdiff1d(tree.leaf_unit[leaves[~large]], tree.leaf_unit[leaves[large]])
    level, all_units = files.plan.levels[-1], len(files.spine.leaves)
    which = f"{len(small):,} of {all_units:,} {level}s" if len(small) else f"no {level}"
    example = f", for example --area {level}:{files.spine.geocodes(level)[small[0]]}" if len(small) else ""
    raise UsageError(
        Problem(
            "intervals",
            f"this question needs the posterior of {size:,} coupled counts at once, and up to {LARGEST_PART:,} are "
            "drawn: of more, most of them empty, intervals under a flat prior hold the truth less often than they say",
            f"of this release {which} can be asked about{example}; for the errors of all levels use `das simulate` "
            "or `das compare` with its config; counts that are published exactly cut the tree into smaller parts",
        )
    )


def _of_leaves(files: PublicFiles, place: Place) -> Floats:
    """Weight of each leaf of the spine in a place."""
    weight = np.zeros(len(files.spine.leaves))
    for level, members in place.union.items():
        ranges = files.spine.leaf_ranges(level)
        for unit, each in zip(members.units.tolist(), members.weights.tolist(), strict=True):
            weight[ranges[unit] : ranges[unit + 1]] += each
    return weight


def _used(files: PublicFiles, tree: TreeOfRelease, asked: Asked, places: Sequence[Place]) -> Indices:
    """Nodes without children that a question is about; far less than its weights, where the tree is large."""
    leaves = np.flatnonzero(tree.leaf_unit >= 0)
    touched = np.zeros(len(files.spine.leaves), dtype=bool)
    for place in places:
        touched |= _of_leaves(files, place) != 0
    inside = touched[tree.leaf_unit[leaves]] & (asked.group_of(tree.leaf_cell[leaves]) >= 0)
    return np.asarray(leaves[inside], dtype=np.int64)


def _weights(files: PublicFiles, tree: TreeOfRelease, asked: Asked, places: Sequence[Place]) -> Floats:
    """Weight of each node in each number: (places answers) x nodes, on nodes without children alone."""
    leaves = np.flatnonzero(tree.leaf_unit >= 0)
    answer = asked.group_of(tree.leaf_cell[leaves])
    out = np.zeros((len(places), asked.size, len(tree.parent)))
    for at, place in enumerate(places):
        weight = _of_leaves(files, place)
        inside = (answer >= 0) & (weight[tree.leaf_unit[leaves]] != 0)
        out[at, answer[inside], leaves[inside]] = weight[tree.leaf_unit[leaves[inside]]]
    return out.reshape(len(places) * asked.size, -1)


def posterior_draws(tree: TreeOfRelease, nodes: Indices, name: str, n: int = DRAWS) -> tuple[Indices, int]:
    """Draw the true counts of some nodes from their posterior: draws x nodes, and the least effective number of draws.

    Raises
    ------
    UsageError
        The parts that hold the nodes have more counts than are drawn, or too few effective draws are left.
    """
    out = np.zeros((n, len(nodes)), dtype=np.int64)
    effective = n
    for root in np.unique(tree.part_of[nodes]).tolist():
        size = int((tree.part_of == root).sum()) + 1
        if size > LARGEST_PART:
            reason = f"the posterior of {size} counts is needed at once, and up to {LARGEST_PART} are drawn"
            raise UsageError(Problem("intervals", reason, "compare with `das simulate`, which repeats the draw"))
        part, members = tree.part(root)
        at = np.flatnonzero(tree.part_of[nodes] == root)
        truth = tree.published[members][part.leaves]
        bundle = (
            RunKey.for_testing(f"posterior {name}").streams(b"").bundle([("part", str(root), "counts", "posterior")])
        )
        drawn = part.draw(truth, bundle, n).counts
        tables, table = np.unique(drawn[:, part.leaves], axis=0, return_inverse=True)
        logs = -np.array([part.log_normalizer(each) for each in tables])[table.reshape(-1)]
        weight = np.exp(logs - logs.max())
        weight /= weight.sum()
        left = int(1.0 / (weight**2).sum())
        if left < FEWEST:
            reason = f"of {n} draws of {size} counts {left} effective ones are left, fewer than {FEWEST}"
            raise UsageError(Problem("intervals", reason, "compare with `das simulate`, which repeats the draw"))
        effective = min(effective, left)
        rng = np.random.default_rng([root, len(members)])
        chosen = rng.choice(n, size=n, p=weight)
        out[:, at] = drawn[chosen][:, np.searchsorted(members, nodes[at])]
    return out, effective


def shortest_limits(draws: Floats, confidence: float) -> tuple[Floats, Floats]:
    """Ends of the shortest interval that holds the stated share of the draws, for each column.

    Whole numbers have several as short: the one that holds the most draws is taken.

    Examples
    --------
    >>> low, high = shortest_limits(np.repeat([0.0, 1.0, 2.0, 9.0], [50, 30, 16, 4])[:, None], 0.95)
    >>> low.tolist(), high.tolist()
    ([0.0], [2.0])
    """
    ordered = np.sort(draws, axis=0)
    kept = int(np.ceil(confidence * len(draws)))
    widths = ordered[kept - 1 :] - ordered[: len(draws) - kept + 1]
    low, high = np.zeros(draws.shape[1]), np.zeros(draws.shape[1])
    for column, (values, width) in enumerate(zip(ordered.T, widths.T, strict=True)):
        first = np.flatnonzero(width <= width.min() * (1 + 1e-9))
        below, above = values[first], values[first + kept - 1]
        held = np.searchsorted(values, above, side="right") - np.searchsorted(values, below, side="left")
        best = int(held.argmax())
        low[column], high[column] = below[best], above[best]
    return low, high
