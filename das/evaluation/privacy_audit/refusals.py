"""Does whether anything is released depend on the data? A sweep over neighbours, and a test on fresh runs.

That a release exists is an output like any other. The shipped mechanisms release for every data set that the plan
admits, so any difference between neighbours is a fault, however large the claimed epsilon is.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.stats import fisher_exact

from das.evaluation.privacy_audit.checks import Check
from das.evaluation.privacy_audit.mechanism_runs import Mechanism, facts_between, keys
from das.evaluation.privacy_audit.small_world import Counts
from das.evaluation.privacy_audit.worst_pair import Pair, Search

__all__ = ["check_refusals"]

NAME = "Whether anything is released does not depend on one record"
CONFIRMING = 64
"""Fresh runs on each of two data sets of which one was refused and the other was not."""


def check_refusals(
    mechanism: Mechanism, search: Search, pairs: list[Pair], *, sweep: int, seed: str, error: float
) -> Check:
    """Run the mechanism once on data sets one change apart; where one is refused alone, repeat both under fresh keys.

    Parameters
    ----------
    mechanism : Mechanism
        What is run.
    search : Search
        Changes of one record.
    pairs : list of Pair
        Data sets that policies compare: these are tried first.
    sweep : int
        How many data sets are tried at most.
    seed : str
        Of the testing keys.
    error : float
        Probability of a wrong finding.
    """
    tried = 0
    for one, other in _neighbours(search, pairs):
        if tried >= sweep:
            break
        facts = facts_between(mechanism.world, one, other)
        both = [mechanism.runs(data, facts, keys(f"{seed}, sweep {tried}", 1)).refused for data in (one, other)]
        tried += 1
        if both[0] == both[1]:
            continue
        again = [
            mechanism.runs(data, facts, keys(f"{seed}, again {tried}, {which}", CONFIRMING)).refused
            for which, data in enumerate((one, other))
        ]
        table = [[refused, CONFIRMING - refused] for refused in again]
        if float(fisher_exact(table).pvalue) <= error / sweep:
            changed = np.flatnonzero(one != other)
            where = "; ".join(mechanism.world.describe(int(column)) for column in changed[:4])
            detail = (
                f"refused in {again[0]} of {CONFIRMING} runs of a data set and in {again[1]} of {CONFIRMING} of its "
                f"neighbour; they differ at {where}"
            )
            return Check(name=NAME, verdict="VIOLATED", detail=detail)
    return Check(name=NAME, verdict="consistent", detail=f"{tried} pairs of neighbours, none refused alone")


def _neighbours(search: Search, pairs: list[Pair]) -> Iterator[tuple[Counts, Counts]]:
    """The pairs of the policies, then a record that goes to each column in turn, then all other changes of one."""
    yield from ((pair.one, pair.other) for pair in pairs)
    within = search.of_one(within=True)
    changes = search.changes[within if len(within) else search.of_one(within=False)]
    _, first = np.unique(changes[:, 1], return_index=True)
    for before, after in (*changes[first].tolist(), *changes.tolist()):
        one = np.zeros(search.world.columns, dtype=np.int64)
        one[before] = 1
        other = np.zeros_like(one)
        other[after] = 1
        yield one, other
        crowd = np.full_like(one, 5)
        yield crowd + one, crowd + other
