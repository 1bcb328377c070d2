"""Who else is in the data: conditioned draws reveal more or less depending on the people who do not change.

Noise that is added to each answer does not care. Noise that is conditioned on the public facts does: a count of zero
cannot go below it. So the people beside those who change are searched for too, by coordinate ascent on the exact loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from das.evaluation.privacy_audit.small_world import Counts
from das.evaluation.privacy_audit.worst_pair import Pair

__all__ = ["with_worst_bystanders"]

CROWDS = (0, 1, 4, 16)
"""People in a column beside those who change."""


def with_worst_bystanders(pair: Pair, loss: Callable[[Pair], float], evaluations: int) -> tuple[Pair, float]:
    """Search for the people beside the change that make a pair easiest to tell apart.

    Parameters
    ----------
    pair : Pair
        Two data sets with nobody but those who change.
    loss : callable
        The exact loss of a pair.
    evaluations : int
        How often it may be asked: first for the same number of people everywhere, then column by column, the columns
        that change first.
    """

    def beside(crowd: Counts) -> Pair:
        return replace(pair, one=pair.one + crowd, other=pair.other + crowd)

    size = len(pair.one)
    found = [(loss(beside(crowd)), crowd) for crowd in (np.full(size, each, dtype=np.int64) for each in CROWDS)]
    best, crowd = max(found, key=lambda each: each[0])
    left = evaluations - len(CROWDS)
    order = np.argsort(pair.one == pair.other, kind="stable")
    for column in order.tolist():
        for number in CROWDS:
            if left <= 0 or number == crowd[column]:
                continue
            changed = crowd.copy()
            changed[column] = number
            now, left = loss(beside(changed)), left - 1
            if now > best:
                best, crowd = now, changed
    return beside(crowd), best
