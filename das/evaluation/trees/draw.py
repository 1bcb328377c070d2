"""One congenial draw of a generated country, in memory: both sweeps, family by family, and no run around them.

The families, messages and draws are those of a release (:mod:`das.congenial.family`), so the law is the same. What is
left out is what protects people: the records are about nobody, and the key is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from das.congenial.family import Box, Family, SentMessages
from das.congenial.messages import WindowTooSmall
from das.evaluation.country import Country
from das.noise.stream import RunKey, Streams
from das.plan.plan import Plan
from das.plan.tree_of_counts import TreeOfCounts, tree_of
from das.storage.shards import families

__all__ = ["congenial_draws"]

REACHES = (14.0, 20.0, 40.0, 80.0, 160.0, 320.0)
"""Half the width of windows in standard deviations: the narrowest that the sampler's own checks accept is taken."""


def congenial_draws(plan: Plan, country: Country, keys: Sequence[str]) -> list[NDArray[np.int64]]:
    """Draw the counts of every leaf, leaves x cells, once for each key; the messages are computed once.

    Parameters
    ----------
    plan : Plan
        Its counts must form a tree.
    country : Country
        Generated people over a spine.
    keys : sequence of str
        Testing keys: the same text gives the same draw.

    Raises
    ------
    WindowTooSmall
        Doubles do not hold the messages of this plan, as they may not for Laplace noise.
    """
    tree = tree_of(plan)
    streams = [RunKey.for_testing(key).streams(plan.digest.encode()) for key in keys]
    for reach in REACHES:
        try:
            sweeps = _Sweeps(tree, country, reach)
            return [sweeps.draw(each) for each in streams]
        except WindowTooSmall:
            if reach == REACHES[-1]:
                raise
    return []


class _Sweeps:
    """The families of all levels with their messages, and the draw from the top down."""

    def __init__(self, tree: TreeOfCounts, country: Country, reach: float) -> None:
        self.tree, self.country, self.reach = tree, country, reach
        self.splits = tree.splits(country.spine)
        self.weighed = {}
        below: list[SentMessages] | None = None
        for depth in reversed(range(len(tree.levels))):
            level, sent = tree.levels[depth], []
            for parent, first, family in self._families(level):
                mine = None if below is None else below[first : first + len(family.geocodes)]
                weighed = family.forward_pass(mine)
                self.weighed[level, parent] = family, weighed
                if depth:
                    sent.append(family.send_up(weighed, tree[tree.levels[depth - 1]][-1]))
            below = sent

    def draw(self, streams: Streams) -> NDArray[np.int64]:
        """Draw the finest counts of every leaf."""
        drawn: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        for level in self.tree.levels:
            rows = []
            for parent in range(len(families(self.country.spine, level)) - 1):
                family, weighed = self.weighed[level, parent]
                if level == self.tree.levels[0]:
                    coarsest = family.draw_roots(weighed, streams)
                else:
                    coarsest = family.draw(weighed, drawn[parent], streams)
                rows.append(family.refine(weighed, coarsest, streams))
            drawn = np.concatenate(rows)
        finest = self.tree[self.tree.levels[-1]][-1].query
        cells = np.zeros((len(drawn), finest.schema.size), dtype=np.int64)
        possible = np.flatnonzero(finest.schema.possible)
        cells[:, possible] = drawn[:, finest.index[possible]]
        return cells

    def _families(self, level: str) -> Iterator[tuple[int, int, Family]]:
        """Yield the families of a level with the positions of parent and first child."""
        spine, layers = self.country.spine, self.tree[level]
        truth = [self.country.answers(level, layer.query) for layer in layers]
        boxes = [self.country.limits(level, layer.query) for layer in layers]
        offsets, depth = families(spine, level), spine.levels.index(level)
        for parent in range(len(offsets) - 1):
            here = slice(int(offsets[parent]), int(offsets[parent + 1]))
            family = Family(
                layers=layers,
                geocodes=tuple(spine.geocodes(level)[here].tolist()),
                parent=str(spine.geocodes(spine.levels[depth - 1])[parent]) if depth else "",
                truth=tuple(each[here] for each in truth),
                boxes=tuple(Box(lower[here], upper[here]) for lower, upper in boxes),
                reach=self.reach,
                splits=self.splits,
            )
            yield parent, here.start, family
